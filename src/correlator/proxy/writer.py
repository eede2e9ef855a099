"""Group commit: one thread writes the buffer, and each request is told when its events are on disk.

What gathers while one commit is on its way to the disk shares the next one, the checkpoints of the destinations too.
The same thread removes what is processed, too old or too much, so that nobody ever waits for a lock of SQLite.
"""

import logging
import math
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from correlator.proxy.buffer import Buffer, Dropped, Partition, Position, Reader, is_corrupt
from correlator.setting_kinds import show_size

Told: TypeAlias = Callable[[Exception | None], None]
"""Is told None once the events are on disk, or why they are not."""
Wake: TypeAlias = Callable[[Callable[[], None]], object]
"""Has something done by the thread of the requests."""

COLLECT_SECONDS: Final = 60.0
_MOST_EVENTS: Final = 1024
_MOST_BYTES: Final = 8 * 2**20
_CHECKPOINT_SECONDS: Final = 0.1
"""How long a checkpoint waits for events to share its commit. After a crash so much may be sent once more."""
_PACE_SECONDS: Final = 0.004
"""From the beginning of one commit to that of the next under load, where the disk is faster: large ones cost less."""
_RECOVERY_SECONDS: Final = 1.0
_SHUTDOWN_SECONDS: Final = 10.0

_log = logging.getLogger(__name__)


class Unwritable(Exception):  # noqa: N818 (it is no error of the request's)
    """Nothing was kept; sending the same again later is right."""


class _Submission(NamedTuple):
    events: Sequence[bytes]
    size: int
    told: Told


class Committed(NamedTuple):
    """What one commit came to."""

    events: int
    size: int
    seconds: float


class Counts:
    """What the writer counts, for whoever publishes it."""

    def __init__(self) -> None:
        self.written = 0
        self.written_bytes = 0
        self.commits = 0
        self.replaced = 0
        """How often a damaged file was set aside."""
        self.processed_partitions = 0
        self.dropped_partitions = {"age": 0, "size": 0}


class Writer:
    def __init__(
        self,
        buffer: Buffer,
        destinations: Sequence[str],
        *,
        on_dropped: Callable[[Sequence[Dropped]], None] = lambda _: None,
        on_damaged: Callable[[], None] = lambda: None,
        on_commit: Callable[[Committed], None] = lambda _: None,
        reserved_bytes: int = 0,
        collect_seconds: float = COLLECT_SECONDS,
    ) -> None:
        self._buffer = buffer
        self._destinations = tuple(destinations)
        self._on_dropped = on_dropped
        self._on_damaged = on_damaged
        self._on_commit = on_commit
        self._reserved_bytes = reserved_bytes
        self._collect_seconds = collect_seconds
        self._pending: deque[_Submission] = deque()
        self._positions: dict[str, Position] = {}
        self._noted_at = 0.0
        """When the oldest of them was noted."""
        self._news = threading.Condition()
        self._is_waiting = False
        self._wanted = 1
        """How many submissions are worth waking up for."""
        self._handed_over_at = -math.inf
        self._senders = 1
        """How many there seem to be: those whom the last commit has answered, and those who waited meanwhile."""
        self._gathers_until = -math.inf
        """Until when the next commit waits for them."""
        self._is_closing = False
        self._damage: sqlite3.Error | None = None
        self._must_open_again = False
        self._appended = threading.Condition()
        self._wake: Wake = lambda work: work()
        self._thread = threading.Thread(target=self._run, name="buffer", daemon=True)
        self.dropping = threading.Lock()
        """Held while partitions go and while that is counted: nobody goes on to a next one in between."""
        self.counts = Counts()
        self.trouble: str | None = None
        """Why nothing can be kept at the moment, if so."""

    # --- for every thread

    def start(self, wake: Wake) -> None:
        """`wake` has answers given by the thread that the requests belong to."""
        self._wake = wake
        self._thread.start()

    def stop(self) -> None:
        """Write what is waiting, then end."""
        with self._news:
            self._is_closing = True
            self._news.notify()
        self._thread.join(_SHUTDOWN_SECONDS)
        with self._appended:
            self._appended.notify_all()

    def hand_over(self, events: Sequence[bytes], told: Told) -> None:
        """To be kept, behind all that was handed over before."""
        self._pending.append(_Submission(events, sum([len(event) for event in events]), told))
        self._handed_over_at = time.monotonic()
        if self._is_waiting and len(self._pending) >= self._wanted:
            with self._news:
                self._news.notify()

    def note(self, destination: str, position: Position) -> None:
        """So far is this destination. It is on disk a moment later."""
        with self._news:
            if not self._positions:
                self._noted_at = time.monotonic()
            self._positions[destination] = position
            if self._wanted == 1:
                self._news.notify()

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """As they are on disk now, the oldest first."""
        return self._buffer.partitions

    def position(self, destination: str) -> Position:
        return self._buffer.positions.get(destination, Position(0, 0))

    def reader(self) -> Reader:
        return Reader(self._buffer.path)

    def report_damage(self, error: sqlite3.Error) -> None:
        """Somebody who reads has met a damaged page."""
        with self._news:
            self._damage = error
            self._news.notify()

    def wait_for_events(self, is_there: Callable[[], bool], seconds: float) -> None:
        """Until something was appended that matters, or the time is over."""
        with self._appended:
            if not is_there():
                self._appended.wait(seconds)

    def wake_readers(self) -> None:
        with self._appended:
            self._appended.notify_all()

    @property
    def file_bytes(self) -> int:
        return self._buffer.file_bytes

    # --- the thread

    def _run(self) -> None:
        collected_at = -math.inf
        while True:
            self._gather()
            if not self._pending:
                self._wait(collected_at + self._pause)
            try:
                if (self._damage is not None or self._must_open_again) and not self._mend():
                    continue
                if self._pending or self._positions:
                    self._commit()
                if time.monotonic() >= collected_at + self._pause or self._buffer.is_over_its_size:
                    collected_at = time.monotonic()
                    self._collect()
            except sqlite3.DatabaseError as error:
                self._fail([], error)
            except Exception:  # noqa: BLE001 (a defect must not end in a proxy that takes events and keeps none)
                _log.exception("The buffer failed and goes on.")
            if self._is_closing and not self._pending and not self._positions:
                self._close()
                return
            if self._is_closing and self.trouble is not None:
                self._refuse(self._take_all(), Unwritable(self.trouble))
                self._close()
                return

    @property
    def _pause(self) -> float:
        """Between two collections. When there is trouble, one may end it."""
        return self._collect_seconds if self.trouble is None else min(_RECOVERY_SECONDS, self._collect_seconds)

    def _close(self) -> None:
        try:
            self._buffer.close()
        except sqlite3.Error as error:
            _log.warning("The buffer could not be closed as it should: %s", error)

    def _wait(self, until: float) -> None:
        """Until there are events, or checkpoints that have waited long enough, or it is time to collect."""
        with self._news:
            while not (self._pending or self._is_closing or self._damage is not None or self._must_open_again):
                due = min(until, self._noted_at + _CHECKPOINT_SECONDS) if self._positions else until
                rest = due - time.monotonic()
                if rest <= 0:
                    return
                self._is_waiting = True
                # A hand-over between the look above and this line has seen no one waiting.
                if not self._pending:
                    self._news.wait(rest)
                self._is_waiting = False

    def _gather(self) -> None:
        """Wait for those who are about to come: most senders are back as soon as the last commit has answered them."""
        with self._news:
            self._wanted, self._is_waiting = self._senders, True
            while len(self._pending) < self._wanted and not self._is_closing:
                rest = self._gathers_until - time.monotonic()
                if rest <= 0 or not self._news.wait(rest):
                    break
            self._wanted, self._is_waiting = 1, False

    def _plan_the_next(self, answered: int, began: float) -> None:
        """How long the next commit waits, and for how many.

        If requests came until the end of this one, the disk and the requests keep each other busy: the next begins at
        once with those that are there, and while it is written the others are judged. If they were all there soon and
        then waited for the disk, one commit for all is best: waiting for them takes less than a second commit would.
        """
        now = time.monotonic()
        took = now - began
        waiting = len(self._pending)
        self._senders = waiting + answered
        self._gathers_until = began + _PACE_SECONDS
        if not waiting or now - self._handed_over_at > took / 2:
            self._gathers_until = max(self._gathers_until, now + took / 2)

    def _take(self) -> list[_Submission]:
        group: list[_Submission] = []
        events = size = 0
        while self._pending:
            submission = self._pending[0]
            events += len(submission.events)
            size += submission.size
            if group and (events > _MOST_EVENTS or size > _MOST_BYTES):
                break
            group.append(self._pending.popleft())
        return group

    def _take_all(self) -> list[_Submission]:
        group = list(self._pending)
        for _ in group:
            self._pending.popleft()
        return group

    def _commit(self) -> None:
        began = time.monotonic()
        group = self._take()
        with self._news:
            positions, self._positions = self._positions, {}
        if group and (lack := self._lack_of_room()) is not None:
            self._set_trouble(lack)
            self._refuse(group, Unwritable(lack))
            group = []
        events = [event for submission in group for event in submission.events]
        if not events and not positions:
            self._deliver(group, None)
            return
        try:
            self._buffer.commit(events, positions)
        except sqlite3.DatabaseError as error:
            with self._news:
                # What is newer by now stays.
                self._positions = positions | self._positions
            self._fail(group, error)
            if not group:
                # Checkpoints alone are tried again when there is room, and not all the time.
                time.sleep(_CHECKPOINT_SECONDS)
            return
        except Exception as error:  # noqa: BLE001 (it is told to the requests, and the thread goes on)
            _log.exception("Events could not be kept.")
            self._refuse(group, error)
            return
        if group:
            self._set_trouble(None)
        self._deliver(group, None)
        if events:
            self._plan_the_next(len(group), began)
            self.wake_readers()
            size = sum([submission.size for submission in group])
            self.counts.written += len(events)
            self.counts.written_bytes += size
            self.counts.commits += 1
            self._on_commit(Committed(len(events), size, time.monotonic() - began))

    def _lack_of_room(self) -> str | None:
        """A disk that is full to the last byte could not even be emptied: removing a partition needs some room."""
        if not self._reserved_bytes:
            return None
        disk = os.statvfs(self._buffer.path.parent)
        free = disk.f_bavail * disk.f_frsize
        if free >= self._reserved_bytes:
            return None
        reserved = show_size(self._reserved_bytes)
        return f"the disk has {free:,} bytes left, and {reserved} of it are kept free (disk_reserve)"

    def _fail(self, group: list[_Submission], error: sqlite3.DatabaseError) -> None:
        if is_corrupt(error):
            self._refuse(group, Unwritable("the buffer is damaged and is begun anew"))
            self._damage = error
            return
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        # After an error of the disk SQLite's picture of the file is not to be trusted.
        self._must_open_again = code not in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY}
        reason = "the disk is full" if code == sqlite3.SQLITE_FULL else f"the buffer cannot be written ({error})"
        self._set_trouble(reason)
        self._refuse(group, Unwritable(reason))

    def _mend(self) -> bool:
        """Open the file again after an error of the disk, or begin a new one if it is damaged. Whether that worked."""
        damage = self._damage
        try:
            if damage is None:
                self._buffer.open_again()
            else:
                if self._buffer.partitions:
                    self._on_damaged()
                self._buffer.begin_anew(damage)
        except (sqlite3.Error, OSError) as error:
            reason = f"the buffer cannot be opened ({error})"
            self._set_trouble(reason)
            self._refuse(self._take_all(), Unwritable(reason))
            if self._is_closing:
                self._must_open_again, self._damage = False, None
                self._positions = {}
                return True
            time.sleep(_RECOVERY_SECONDS)
            return False
        self._must_open_again = False
        if damage is not None:
            with self._news:
                self._damage, self._positions = None, {}
            self.counts.replaced += 1
        self.wake_readers()
        return True

    def _set_trouble(self, reason: str | None) -> None:
        if reason is not None and self.trouble is None:
            _log.error("Events cannot be kept: %s. They are refused with 503 until that is mended.", reason)
        elif reason is None and self.trouble is not None:
            _log.info("Events are kept again.")
        self.trouble = reason

    def _refuse(self, group: list[_Submission], reason: Exception) -> None:
        self._deliver(group, reason)

    def _deliver(self, group: list[_Submission], outcome: Exception | None) -> None:
        if not group:
            return

        def tell() -> None:
            for submission in group:
                try:
                    submission.told(outcome)
                except Exception:  # noqa: BLE001 (one request's defect is not that of the others in its group)
                    _log.exception("A request could not be told what became of it.")

        try:
            self._wake(tell)
        except RuntimeError:  # the loop of the requests is gone, and nobody waits any more
            _log.debug("Nobody is left to be told.")

    def _collect(self) -> None:
        with self.dropping:
            processed, dropped = self._buffer.collect(self._destinations)
            if dropped:
                self._on_dropped(dropped)
        self.counts.processed_partitions += len(processed)
        for each in dropped:
            self.counts.dropped_partitions[each.why] += 1
        if dropped:
            self.wake_readers()
        if self.trouble is not None and self._lack_of_room() is None:
            # A collection has been written: there is room again.
            self._set_trouble(None)
        while self._buffer.give_back() and not self._pending and not self._is_closing:
            pass
        if (processed or dropped or self.trouble is not None) and not self._pending:
            self._buffer.shrink_log()


def waiting_events(partitions: Sequence[Partition], position: Position) -> int:
    """Events that a destination has not had yet."""
    return sum(
        [
            partition.events - (min(position.offset, partition.events) if partition.id == position.partition else 0)
            for partition in partitions
            if partition.id >= position.partition
        ]
    )
