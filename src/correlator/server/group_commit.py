"""Group commit: requests that arrive together share a transaction, and each is answered only after its commit.

The event loop hands over what it has judged and awaits a future; one thread of its own talks to the database, and takes
everything that has gathered while the commit before was on its way to the disk. The more load, the larger the groups.
"""

import asyncio
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from queue import SimpleQueue
from typing import Final

import msgspec
import psycopg

from correlator.store.database import Database
from correlator.store.event_log import REMEMBERED, Entry, EventLog, Group
from correlator.store.rejects import Reject

SOURCE: Final = "http"
_LONGEST_GOODBYE: Final = 10.0
"""Seconds for the last commits. A database that hangs must not keep the server from ending; nobody was told 200."""

_log = logging.getLogger("correlator.server.group_commit")


class Unavailable(Exception):  # noqa: N818 (it is no error of the request's)
    """Nothing was acknowledged; sending the same again later is safe and right."""

    def __init__(self, reason: str, retry_after: int = 1) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Submission(msgspec.Struct, eq=False):
    """What one request wants kept."""

    entries: Sequence[Entry]
    rejects: Sequence[Reject]
    size: int
    answer: asyncio.Future[list[bool]]

    @property
    def events(self) -> int:
        return len(self.entries) + len(self.rejects)


class Committed(msgspec.Struct, frozen=True):
    """What one group commit came to."""

    requests: int
    stored: int
    duplicates: int
    rejected: int
    seconds: float


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    max_waiting_events: int = 100_000
    max_group_events: int = 5_000
    max_group_bytes: int = 16 * 2**20
    """A group takes whole requests until it has this much; a request that is larger goes alone."""
    patience: float = 3.0
    """How long a database that went away is waited for before requests are refused. Under the 5 s of most clients."""
    longest_commit: float = 20.0
    """After this the database is taken to hang."""


class GroupCommit:
    def __init__(
        self,
        database: Database,
        limits: Limits | None = None,
        *,
        remembered: timedelta = REMEMBERED,
        on_commit: Callable[[Committed], None] = lambda _: None,
    ) -> None:
        self._database = database
        self._limits = limits or Limits()
        self._remembered = remembered
        self._on_commit = on_commit
        self._pending: deque[Submission] = deque()
        self._waiting_events = 0
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._is_idle = False
        self._is_closing = False
        self._down: str | None = "the database has not been reached yet"
        self._in_flight: tuple[float, list[Submission]] | None = None
        self._connection: psycopg.Connection | None = None
        self._log: EventLog | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._run, name="correlator-group-commit", daemon=True)

    # --- on the event loop

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        self._look()

    async def stop(self) -> None:
        """Commit what is waiting, then end."""
        self._is_closing = True
        self._wakeups.put(None)
        await asyncio.to_thread(self._thread.join, _LONGEST_GOODBYE)
        if self._watch is not None:
            self._watch.cancel()

    @property
    def waiting_events(self) -> int:
        """Taken from requests and not yet answered."""
        return self._waiting_events

    @property
    def trouble(self) -> str | None:
        """Why nothing can be committed at the moment, if so."""
        return self._down

    def submit(self, entries: Sequence[Entry], rejects: Sequence[Reject] = ()) -> asyncio.Future[list[bool]]:
        """For each entry whether it was stored (else it is a duplicate), once that is on disk."""
        if self._down is not None:
            raise Unavailable(self._down)
        assert self._loop is not None  # noqa: S101 (`start` comes first)
        size = sum([len(entry.raw) for entry in entries]) + sum([len(reject.raw) for reject in rejects])
        submission = Submission(entries, rejects, size, self._loop.create_future())
        events = submission.events
        # A request that alone exceeds the limit passes when nothing else waits.
        if self._waiting_events and self._waiting_events + events > self._limits.max_waiting_events:
            most = self._limits.max_waiting_events
            raise Unavailable(f"{most:,} events are waiting to be stored, which is the limit (max_waiting_events)")
        self._waiting_events += events
        self._pending.append(submission)
        if self._is_idle:
            self._wakeups.put(None)
        return submission.answer

    def _deliver(self, group: list[Submission], answers: list[list[bool]], seconds: float) -> None:
        stored = duplicates = rejected = 0
        for submission, answer in zip(group, answers, strict=True):
            now_stored = sum(answer)
            stored += now_stored
            duplicates += len(answer) - now_stored
            rejected += len(submission.rejects)
            self._waiting_events -= submission.events
            if not submission.answer.done():
                submission.answer.set_result(answer)
        self._on_commit(Committed(len(group), stored, duplicates, rejected, seconds))

    def _refuse(self, group: list[Submission], reason: Exception) -> None:
        for submission in group:
            self._waiting_events -= submission.events
            if not submission.answer.done():
                submission.answer.set_exception(reason)

    def _look(self) -> None:
        """See every second whether the database answers at all."""
        assert self._loop is not None  # noqa: S101
        in_flight = self._in_flight
        if in_flight is not None and time.monotonic() - in_flight[0] > self._limits.longest_commit:
            self._down = f"the database has not answered for {self._limits.longest_commit:.0f} s"
            for submission in [*in_flight[1], *self._pending]:
                if not submission.answer.done():
                    submission.answer.set_exception(Unavailable(self._down))
        if not self._is_closing or self._thread.is_alive():
            self._watch = self._loop.call_later(1.0, self._look)

    # --- on the thread

    def _run(self) -> None:
        try:
            while self._step():
                pass
        finally:
            self._disconnect()

    def _step(self) -> bool:
        if self._down is not None and not self._reach():
            self._refuse_pending(Unavailable(self._down))
            time.sleep(0.2)
            return not self._is_closing
        group = self._take()
        if group:
            self._commit(group)
            return True
        if self._is_closing:
            return False
        self._is_idle = True
        if not self._pending:
            self._wakeups.get()
        self._is_idle = False
        return True

    def _take(self) -> list[Submission]:
        group: list[Submission] = []
        events = size = 0
        while self._pending:
            submission = self._pending[0]
            events += submission.events
            size += submission.size
            if group and (events > self._limits.max_group_events or size > self._limits.max_group_bytes):
                break
            group.append(self._pending.popleft())
        return group

    def _commit(self, group: list[Submission]) -> None:
        began = time.monotonic()
        try:
            self._in_flight = (began, group)
            try:
                answers = self._append(group)
            finally:
                self._in_flight = None
        except Unavailable as reason:
            self._down = str(reason)
            self._call(self._refuse, group, reason)
            self._refuse_pending(reason)
        except Exception as error:  # noqa: BLE001 (each is told to its request, and the thread goes on)
            self._disconnect()
            if len(group) > 1:
                # Whatever it is, it must not harm the requests that happen to share a transaction with it.
                for submission in group:
                    self._commit([submission])
                return
            _log.exception("a request could not be stored")
            self._call(self._refuse, group, error)
        else:
            self._down = None
            self._call(self._deliver, group, answers, time.monotonic() - began)

    def _append(self, group: list[Submission]) -> list[list[bool]]:
        entries = [entry for submission in group for entry in submission.entries]
        rejects = [reject for submission in group for reject in submission.rejects]
        unit = Group(uuid.uuid4(), SOURCE, entries, rejects)
        stored = self._with_patience(lambda log: log.append(unit))
        answers, done = [], 0
        for submission in group:
            answers.append(stored[done : done + len(submission.entries)])
            done += len(submission.entries)
        return answers

    def _with_patience(self, work: Callable[[EventLog], list[bool]]) -> list[bool]:
        """Try until the database is back, or patience ends. A group has an id, so trying again is safe."""
        deadline = time.monotonic() + self._limits.patience
        pause = 0.02
        while True:
            try:
                return work(self._event_log())
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                self._disconnect()
                if time.monotonic() + pause > deadline:
                    _log.error("the database is away: %s", _first_line(error))
                    raise Unavailable(f"the database is away: {_first_line(error)}") from error
                time.sleep(pause)
                pause = min(pause * 2, 0.3)

    def _reach(self) -> bool:
        try:
            self._event_log()
        except psycopg.Error as error:
            self._disconnect()
            self._down = f"the database is away: {_first_line(error)}"
            return False
        self._down = None
        _log.info("the database is there")
        return True

    def _refuse_pending(self, reason: Unavailable) -> None:
        if group := [self._pending.popleft() for _ in range(len(self._pending))]:
            self._call(self._refuse, group, reason)

    def _event_log(self) -> EventLog:
        if self._log is None:
            self._connection = self._database.connect("group commit", autocommit=True)
            self._connection.execute(_SAFEGUARDS)
            self._log = EventLog(self._connection, self._remembered)
        return self._log

    def _disconnect(self) -> None:
        connection, self._connection, self._log = self._connection, None, None
        if connection is not None:
            connection.close()

    def _call(self, callback: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None  # noqa: S101
        self._loop.call_soon_threadsafe(callback, *arguments)


# A server that is stopped in the middle of a transaction holds the end of the log: the database lets go of it.
_SAFEGUARDS: Final = """
SET statement_timeout = '15s'; SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '10s'
"""


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
