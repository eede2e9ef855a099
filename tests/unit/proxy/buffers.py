"""Small buffers, and clocks that can be set."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from correlator.proxy.buffer import Buffer, Chunk, Limits, Partition, Position, Reader
from correlator.proxy.clock import Clock, Reading

DAY = 86_400.0
BEGINNING = Position(0, 0)


class SetClock(Clock):
    """As somebody sets it."""

    def __init__(self) -> None:
        super().__init__()
        self.boot_id = "first"
        self.now = 1_800_000_000.0
        self.since_boot = 1000.0

    def pass_seconds(self, seconds: float) -> None:
        self.now += seconds
        self.since_boot += seconds

    def read(self) -> Reading:
        return Reading(self.boot_id, self.since_boot, self.now)

    def wall(self) -> float:
        return self.now


@contextmanager
def opened(directory: Path, clock: Clock | None = None, **limits: float) -> Iterator[Buffer]:
    buffer = Buffer(directory, Limits(**limits), clock or SetClock())  # type: ignore[arg-type]  # bytes are whole here
    try:
        yield buffer
    finally:
        buffer.close()


def events_of(buffer: Buffer, after: Position = BEGINNING) -> list[bytes]:
    """All that a destination at this place would get, in this order."""
    return [event for chunk in chunks_of(buffer, after) for event in chunk.events]


def chunks_of(buffer: Buffer, after: Position = BEGINNING, most_events: int = 3) -> list[Chunk]:
    reader = Reader(buffer.path)
    found = []
    try:
        for partition in buffer.partitions:
            if partition.id < after.partition:
                continue
            offset = after.offset if partition.id == after.partition else 0
            while True:
                chunk = reader.read(partition, offset, most_events=most_events, most_bytes=10**9)
                if chunk is None:
                    break
                found.append(chunk)
                if chunk.is_end:
                    break
                offset = chunk.after.offset
    finally:
        reader.close()
    return found


def names(partitions: list[Partition] | tuple[Partition, ...]) -> list[str]:
    return [partition.name for partition in partitions]


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, f"not after a minute: {what}"
        time.sleep(0.005)
