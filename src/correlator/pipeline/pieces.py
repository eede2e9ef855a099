"""Files of lines on this machine, read by the very tasks that judge the lines, a piece at a time.

By Spark's own reader each line would come to Python through Java and a socket: of a bulk load, a tenth of all that it
costs. A piece is a row of arrivals that holds no event: it has the `length` of a part of a file, which begins at its
`position`. A line belongs to the piece that its first byte lies in.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from correlator.pipeline.arrivals import LENGTH
from correlator.pipeline.places import key_of

BYTES: Final = 32 * 2**20
_LINES: Final = 20_000
"""So many are judged and folded at once, as of what Spark reads: see `session`."""
_BLOCK: Final = 2**18
"""Little enough that lines are still in the processor's cache when they are judged."""
_BEGINNING: Final = b"{"
_BYTE_ORDER_MARK: Final = "\ufeff".encode()


class Arrived:
    """Some events, to be gone through once, and what else is known of each."""

    def __init__(self, raws: Iterable[bytes | None], about: pa.RecordBatch) -> None:
        self._raws = raws
        self._about = about
        self._count = 0

    def __iter__(self) -> Iterator[bytes | None]:
        for raw in self._raws:
            self._count += 1
            yield raw

    def place(self, number: int) -> tuple[str, int | None]:
        """The origin of one of them, and its position there."""
        return self._about.column("origin")[number].as_py(), self._about.column("position")[number].as_py()

    @property
    def about(self) -> pa.RecordBatch:
        """The columns of arrivals but for the events themselves, of those that were gone through."""
        return self._about


class _Lines(Arrived):
    """Of these the same is known, and there is one row for all. A line has no place: it would depend on the cuts."""

    def place(self, number: int) -> tuple[str, int | None]:  # noqa: ARG002
        return super().place(0)

    @property
    def about(self) -> pa.RecordBatch:
        return self._about.take(pa.repeat(pa.scalar(0), self._count))


def opened(batches: Iterable[pa.RecordBatch]) -> Iterator[Arrived]:
    """What has arrived, the lines of pieces among it. Each is to be gone through before the next."""
    for batch in batches:
        if LENGTH not in batch.schema.names:
            yield _arrived(batch)
            continue
        is_event = pc.is_null(batch.column(LENGTH))
        events = batch.filter(is_event)
        if events.num_rows:
            yield _arrived(events.drop_columns([LENGTH]))
        pieces = batch.filter(pc.invert(is_event))
        for number in range(pieces.num_rows):
            yield from _lines_of(pieces.slice(number, 1))


def _arrived(events: pa.RecordBatch) -> Arrived:
    return Arrived(events.column("raw").to_pylist(), events.drop_columns(["raw"]))


def _lines_of(piece: pa.RecordBatch) -> Iterator[Arrived]:
    start, length = piece.column("position")[0].as_py(), piece.column(LENGTH)[0].as_py()
    about = piece.drop_columns(["raw", LENGTH])
    position = about.schema.get_field_index("position")
    about = about.set_column(position, about.schema.field(position), pa.nulls(1, pa.int64()))
    with Path(key_of(piece.column("origin")[0].as_py())).open("rb", buffering=0) as file:
        lines = lines_between(file, start, start + length)
        for first in lines:
            yield _Lines(chain([first], islice(lines, _LINES - 1)), about)


def lines_between(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    """The lines of a file whose first byte lies from one place up to another, but for empty ones."""
    lines = _cut(file, start, end)
    if start == 0:
        # What a file may begin with is not part of its first line.
        lines = chain([next(lines, b"").removeprefix(_BYTE_ORDER_MARK)], lines)
    return (line for line in lines if line.startswith(_BEGINNING) or not _is_empty(line))


def _cut(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    # The byte before tells whether a line begins right here.
    is_in_former_line = start > 0
    at = file.seek(start - is_in_former_line)
    begun: list[bytes] = []
    while block := file.read(min(_BLOCK, end - at)):
        at += len(block)
        lines = _split(block)
        if is_in_former_line:
            if len(lines) == 1:
                continue
            is_in_former_line = False
            lines[0] = b""
        begun.append(lines[0])
        if len(lines) > 1:
            yield b"".join(begun)
            yield from lines[1:-1]
            begun = lines[-1:]
    if any(begun):
        yield b"".join(chain(begun, _rest_of_line(file)))


def _split(block: bytes) -> list[bytes]:
    """By any end of a line. To look for one letter alone is many times faster, and most files have but that one."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return block.split(b"\n")


def _rest_of_line(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        rest, *others = _split(block)
        yield rest
        if others:
            return


def _is_empty(line: bytes) -> bool:
    """Whether it says nothing: files that were put together have such a mark before a line, or instead of one."""
    return not line.replace(_BYTE_ORDER_MARK, b"").strip()
