"""One for each destination: reads the buffer from its checkpoint, sends in order, and never moves on before it knows.

What the destination has, and what was handed over because it is refused for good, is settled; the checkpoint is the
last event before which all are. Whatever else happens, the event is sent again, for ever, with ever longer pauses.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal, TypeAlias

from correlator.proxy.buffer import Chunk, Partition, Position, Reader, is_corrupt
from correlator.proxy.destinations import Accepted, Destination, Later, Refused, Result
from correlator.proxy.failed_events import FailedEvent, FailedEvents
from correlator.proxy.writer import Writer, waiting_events

_IDLE_SECONDS: Final = 1.0
_PACE_SECONDS: Final = 0.04
"""From one batch to the next while events come in numbers: fewer and larger batches cost less."""
_NUMBERS: Final = 8
"""Batches of fewer events follow each other as they come: there is time for that, and nobody waits."""
_TELL_SECONDS: Final = 60.0
"""A destination that stays away is told once a minute."""
_STOP_SECONDS: Final = 5.0
_LONGEST_RETRY_AFTER: Final = 3600.0

_log = logging.getLogger(__name__)

State: TypeAlias = Literal["ok", "retrying", "misdirected"]
OnRefusal: TypeAlias = Literal["park", "block"]


@dataclass(frozen=True, slots=True)
class Habits:
    """How a consumer goes about it."""

    most_events: int = 500
    most_bytes: int = 4 * 2**20
    first_pause: float = 0.2
    longest_pause: float = 30.0
    on_refusal: OnRefusal = "park"


class Tally:
    """What one consumer has counted. Only its own thread writes, but for what is dropped before it was read."""

    def __init__(self) -> None:
        self.sent = 0
        self.failed = 0
        self.retried = 0
        self.dropped = 0
        """Lost for this destination: they were too old, or too many, or their file was damaged."""


class _Stopped(Exception):  # noqa: N818 (nothing went wrong)
    pass


class Consumer:
    def __init__(
        self,
        name: str,
        destination: Destination,
        writer: Writer,
        failed: FailedEvents,
        habits: Habits | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.tally = Tally()
        self.state: State = "ok"
        self.reason: str | None = None
        self._destination = destination
        self._writer = writer
        self._failed = failed
        self._habits = habits or Habits()
        self._clock = clock
        self._random = Random()  # noqa: S311 (so that many proxies do not come back at the same moment)
        self._position = writer.position(name)
        self._taken = self._position
        """The end of what is in its hands: whoever drops partitions counts what is behind it."""
        self._generation = 0
        self._waiting_since: float | None = None
        self._reader: Reader | None = None
        self._stopping = threading.Event()
        self._told_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name=f"to {name}", daemon=True)

    # --- for other threads

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send nothing more. What is on its way is waited for a little; else it is sent again at the next start."""
        self._stopping.set()
        self._writer.wake_readers()

    def join(self) -> None:
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            self._destination.interrupt()
            self._thread.join(_STOP_SECONDS)

    @property
    def position(self) -> Position:
        return self._position

    @property
    def lag_events(self) -> int:
        return waiting_events(self._writer.partitions, self._position)

    @property
    def lag_seconds(self) -> float:
        """The age of the oldest event that the destination has not had."""
        since = self._waiting_since
        return 0.0 if since is None or not self.lag_events else max(0.0, self._clock() - since)

    def missed(self, partition: Partition) -> int:
        """A partition is dropped: count what of it was not even read. What was is counted when it is given up.

        Called under `Writer.dropping`.
        """
        count = waiting_events([partition], self._taken)
        self.tally.dropped += count
        return count

    def lose_all(self) -> int:
        """The buffer is damaged, and is another from now on."""
        lost = self.lag_events
        self.tally.dropped += lost
        self._generation += 1
        return lost

    # --- the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._work()
            except _Stopped:
                break
            except sqlite3.DatabaseError as error:
                if is_corrupt(error):
                    self._writer.report_damage(error)
                else:
                    _log.warning("%s: the buffer cannot be read and is tried again: %s", self.name, error)
                self._close_reader()
                self._stopping.wait(_IDLE_SECONDS)
            except Exception:  # noqa: BLE001 (a defect must not end in a proxy that forwards nothing)
                _log.exception("%s: forwarding failed and goes on.", self.name)
                self._stopping.wait(_IDLE_SECONDS)
        self._close_reader()
        self._destination.close()

    def _work(self) -> None:
        generation = self._generation
        self._close_reader()
        self._reader = self._writer.reader()
        self._go_to(self._writer.position(self.name))
        while generation == self._generation:
            if self._stopping.is_set():
                raise _Stopped
            chunk = self._next()
            if chunk is not None:
                began = time.monotonic()
                self._deliver(chunk)
                if _NUMBERS <= len(chunk.events) < self._habits.most_events and not chunk.is_end:
                    self._stopping.wait(began + _PACE_SECONDS - time.monotonic())

    def _next(self) -> Chunk | None:
        """Some events; None if there are none at the moment, or the place was left for the next partition."""
        with self._writer.dropping:
            partition = self._partition()
            if partition is not None and self._reader is not None:
                chunk = self._reader.read(
                    partition,
                    self._position.offset,
                    most_events=self._habits.most_events,
                    most_bytes=self._habits.most_bytes,
                )
                if chunk is not None:
                    self._taken = chunk.after
                    self._waiting_since = chunk.received_at
                    return chunk
        self._waiting_since = None
        self._writer.wait_for_events(lambda: bool(self.lag_events) or self._stopping.is_set(), _IDLE_SECONDS)
        return None

    def _partition(self) -> Partition | None:
        """The one it stands in. When that was dropped, the next one, from its beginning."""
        for partition in self._writer.partitions:
            if partition.id == self._position.partition:
                return partition
            if partition.id > self._position.partition:
                self._go_to(Position(partition.id, 0))
                return partition
        return None

    def _holds(self, partition: int) -> bool:
        return any(each.id == partition for each in self._writer.partitions)

    def _go_to(self, position: Position) -> None:
        self._position = self._taken = position

    def _deliver(self, chunk: Chunk) -> None:
        events = chunk.events
        settled = [False] * len(events)
        done = tries = 0
        generation = self._generation
        while done < len(events):
            if self._stopping.is_set():
                raise _Stopped
            pending = [index for index in range(done, len(events)) if not settled[index]]
            if self._habits.on_refusal == "block":
                # Of several a destination could take those behind the one that it refuses.
                del pending[1:]
            if generation != self._generation:
                return
            if tries and not self._holds(chunk.partition):
                self._give_up(chunk, len(pending))
                return
            results = self._destination.send([events[index] for index in pending])
            tries += 1
            waits = self._settle(chunk, pending, results, settled)
            before = done
            while done < len(events) and settled[done]:
                done += 1
            if done > before:
                self._position = Position(chunk.partition, chunk.first + done - 1)
                self._writer.note(self.name, self._position)
            if waits is None:
                continue
            if any(settled[index] for index in pending):
                tries = 1
            self.tally.retried += sum(not is_settled for is_settled in settled)
            self._pause(waits, tries)
        self._say_all_is_well()
        if chunk.is_end:
            self._next_partition(chunk.partition)

    def _settle(
        self, chunk: Chunk, pending: Sequence[int], results: Sequence[Result], settled: list[bool]
    ) -> Later | None:
        """Note what is settled. What has to wait is returned, if there is any."""
        waits: Later | None = None
        refusals: list[tuple[int, Refused]] = []
        for index, result in zip(pending, results, strict=True):
            match result:
                case Accepted():
                    settled[index] = True
                    self.tally.sent += 1
                case Refused() if self._habits.on_refusal == "park":
                    refusals.append((index, result))
                case Refused():
                    waits = waits or Later(f"{result.reason}, and on_refusal is block", is_misdirected=True)
                case Later():
                    waits = waits or result
        if refusals and self._park(chunk, refusals):
            for index, _ in refusals:
                settled[index] = True
            self.tally.failed += len(refusals)
        elif refusals:
            waits = Later("no handler has taken an event that was refused for good", is_misdirected=True)
        return waits

    def _park(self, chunk: Chunk, refusals: Sequence[tuple[int, Refused]]) -> bool:
        failed_at = self._clock()
        events = [
            FailedEvent(
                raw=chunk.events[index],
                reason=refused.reason,
                failed_at=failed_at,
                stage="destination",
                destination=self.name,
                status=refused.status,
                answer=refused.answer,
            )
            for index, refused in refusals
        ]
        _log.error("%s refused %d events for good: %s", self.name, len(events), refusals[0][1].reason)
        return self._failed.hand_over(events).result()

    def _next_partition(self, partition: int) -> None:
        with self._writer.dropping:
            following = [each.id for each in self._writer.partitions if each.id > partition]
            if following:
                self._go_to(Position(following[0], 0))
                self._writer.note(self.name, self._position)

    def _give_up(self, chunk: Chunk, count: int) -> None:
        """The partition was dropped under its hands."""
        self.tally.dropped += count
        _log.error("%s: %d events were dropped while they waited to be sent.", self.name, count)
        self._go_to(chunk.after)

    def _pause(self, waits: Later, tries: int) -> None:
        habits = self._habits
        pause = min(habits.longest_pause, habits.first_pause * 2 ** min(tries - 1, 30))
        pause *= self._random.uniform(0.5, 1.0)
        if waits.retry_after is not None:
            pause = max(pause, min(waits.retry_after, _LONGEST_RETRY_AFTER))
        self.state = "misdirected" if waits.is_misdirected else "retrying"
        self.reason = waits.reason
        now = time.monotonic()
        if now - self._told_at >= _TELL_SECONDS:
            self._told_at = now
            if waits.is_misdirected:
                _log.error(
                    "%s: NOTHING IS FORWARDED, AND SOMEBODY HAS TO DO SOMETHING: %s. Nothing is dropped before its "
                    "time; it is tried again.",
                    self.name,
                    waits.reason,
                )
            else:
                _log.warning("%s: %s. It is tried again until it succeeds.", self.name, waits.reason)
        if self._stopping.wait(pause):
            raise _Stopped

    def _say_all_is_well(self) -> None:
        if self.state != "ok":
            _log.info("%s takes events again.", self.name)
            self.state, self.reason, self._told_at = "ok", None, float("-inf")

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
