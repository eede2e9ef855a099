"""Group commit: requests that arrive together share a transaction, and each is answered only after its commit.

A request hands over what it has judged, and is told when that is on disk. One task takes everything that has gathered
while the commit before was on its way to the disk, and commits it in one statement. The more load, the larger the
groups. The event loop never waits for the database: the statement is sent and its answer taken without blocking, and
what is large, or rare and needs several statements (rejects, disputes), is done by a thread on a connection of its own.
"""

import asyncio
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final, TypeAlias, TypeVar, cast

import msgspec
import psycopg

from correlator.store.database import Database
from correlator.store.event_log import APPEND, APPEND_TYPES, REMEMBERED, Entry, EventLog, Group, QuickAppend
from correlator.store.rejects import Reject
from correlator.store.statement import LoopConnection, Prepared

T = TypeVar("T")
Told: TypeAlias = Callable[[list[bool] | Exception], None]
"""Is told for each entry whether it was stored (else it is a duplicate), or why nothing is acknowledged."""

SOURCE: Final = "http"
_LONGEST_GOODBYE: Final = 2.0
"""Seconds for a last commit whose request is not waited for any more. A database that hangs must not keep the server
from ending; nobody was told 200."""
_LARGEST_ON_THE_LOOP: Final = 256 * 1024
"""Bytes of a group that are sent from the event loop: as much as a socket takes at once. A larger group would have to
wait for the loop's next turn again and again; a thread sends it as fast as the database reads."""
_AWAY_WORDS: Final = "the database is away"
_LONGEST_SILENCE: Final = 1.0
"""Seconds without a commit after which the database is asked whether it is still there."""

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
    events: int
    size: int
    told: Told


class Committed(msgspec.Struct, frozen=True):
    """What one group commit came to."""

    requests: int
    stored: int
    duplicates: int
    rejected: int
    seconds: float


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    max_waiting_events: int = 100_000
    max_group_events: int = 1_000
    max_group_bytes: int = 16 * 2**20
    """A group takes whole requests until it has this much; a request that is larger goes alone."""
    patience: float = 3.0
    """How long a database that went away is waited for before requests are refused. Under the 5 s of most clients."""
    longest_commit: float = 20.0
    """After this the database is taken to hang."""


class GroupCommit:
    """Everything here happens on the event loop, but for what is handed to a thread by name."""

    def __init__(
        self,
        database: Database,
        limits: Limits | None = None,
        *,
        remembered: timedelta = REMEMBERED,
        on_commit: Callable[[Committed], None] = lambda _: None,
    ) -> None:
        self._limits = limits or Limits()
        self._connections = _Connections(database, remembered, self._limits.longest_commit)
        self._remembered = remembered
        self._on_commit = on_commit
        self._pending: deque[Submission] = deque()
        self._under_way: list[Submission] = []
        self._waiting_events = 0
        self._news = asyncio.Event()
        self._is_closing = False
        self._down: str | None = "the database has not been reached yet"
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="group commit")

    async def stop(self) -> None:
        """Commit what is waiting, then end."""
        self._is_closing = True
        self._news.set()
        if self._task is not None:
            try:
                await asyncio.wait_for(self._task, _LONGEST_GOODBYE)
            except TimeoutError:
                _log.warning("the database does not answer; what was waiting is not acknowledged")
                self._refuse([*self._under_way, *self._take_all()], Unavailable("the server stops"))
        self._connections.close()

    @property
    def waiting_events(self) -> int:
        """Taken from requests and not yet answered."""
        return self._waiting_events

    @property
    def trouble(self) -> str | None:
        """Why nothing can be committed at the moment, if so."""
        return self._down

    def submit(self, entries: Sequence[Entry], rejects: Sequence[Reject] = ()) -> asyncio.Future[list[bool]]:
        """As `hand_over`, for who awaits it."""
        future: asyncio.Future[list[bool]] = asyncio.get_running_loop().create_future()

        def tell(outcome: list[bool] | Exception) -> None:
            if future.done():
                return
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.hand_over(entries, rejects, tell)
        return future

    def hand_over(self, entries: Sequence[Entry], rejects: Sequence[Reject], told: Told) -> None:
        """To be kept. `told` is called once that is on disk, or cannot be."""
        if self._down is not None:
            raise Unavailable(self._down)
        events = len(entries) + len(rejects)
        # A request that alone exceeds the limit passes when nothing else waits.
        if self._waiting_events and self._waiting_events + events > self._limits.max_waiting_events:
            most = self._limits.max_waiting_events
            raise Unavailable(f"{most:,} events are waiting to be stored, which is the limit (max_waiting_events)")
        size = sum([len(entry.raw) for entry in entries])
        if rejects:
            size += sum([len(reject.raw) for reject in rejects])
        self._waiting_events += events
        self._pending.append(Submission(entries, rejects, events, size, told))
        self._news.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._work()
            except Exception:  # noqa: BLE001 (a defect must not end in a server that takes events and stores none)
                _log.exception("group commit failed and goes on")
                self._connections.close()
                self._down = "the server has failed and begins again"
            else:
                return

    async def _work(self) -> None:
        while True:
            if self._down is not None and not await self._reach():
                self._refuse(self._take_all(), Unavailable(self._down))
                if self._is_closing:
                    return
                await asyncio.sleep(0.2)
            elif self._pending:
                await self._commit(self._take())
            elif self._is_closing:
                return
            else:
                await self._wait()

    async def _wait(self) -> None:
        """Until there is something to commit. Meanwhile see that it could be done: `trouble` is never old news."""
        self._news.clear()
        while not self._pending and not self._is_closing:
            waking = asyncio.get_running_loop().call_later(_LONGEST_SILENCE, self._news.set)
            await self._news.wait()
            waking.cancel()
            self._news.clear()
            if not self._pending and not self._is_closing:
                try:
                    await self._with_patience(_Connections.check)
                except Unavailable as reason:
                    self._down = str(reason)
                    return

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

    def _take_all(self) -> list[Submission]:
        group = list(self._pending)
        self._pending.clear()
        return group

    async def _commit(self, group: list[Submission]) -> None:
        began = time.perf_counter()
        self._under_way = group
        try:
            stored = await self._append(group)
        except Unavailable as reason:
            self._down = str(reason)
            self._under_way = []
            self._refuse([*group, *self._take_all()], reason)
        except Exception as error:  # noqa: BLE001 (each is told to its request, and the task goes on)
            self._connections.close()
            if len(group) > 1:
                # Whatever it is, it must not harm the requests that happen to share a transaction with it.
                for submission in group:
                    await self._commit([submission])
                return
            _log.exception("a request could not be stored")
            self._under_way = []
            self._refuse(group, error)
        else:
            # In the next turn of the loop: first the database is given the group that has gathered meanwhile.
            seconds = time.perf_counter() - began
            self._under_way = []
            asyncio.get_running_loop().call_soon(self._deliver, group, stored, seconds)

    def _deliver(self, group: list[Submission], stored: list[bool], seconds: float) -> None:
        done = rejected = 0
        for submission in group:
            end = done + len(submission.entries)
            rejected += len(submission.rejects)
            self._tell(submission, stored[done:end])
            done = end
        now_stored = sum(stored)
        self._on_commit(Committed(len(group), now_stored, len(stored) - now_stored, rejected, seconds))

    def _refuse(self, group: list[Submission], reason: Exception) -> None:
        for submission in group:
            self._tell(submission, reason)

    def _tell(self, submission: Submission, outcome: list[bool] | Exception) -> None:
        self._waiting_events -= submission.events
        try:
            submission.told(outcome)
        except Exception:  # noqa: BLE001 (one request's defect is not that of the others in its group)
            _log.exception("a request could not be told what became of it")

    async def _append(self, group: list[Submission]) -> list[bool]:
        if len(group) == 1:
            entries, rejects = group[0].entries, group[0].rejects
        else:
            entries = [entry for submission in group for entry in submission.entries]
            rejects = [reject for submission in group for reject in submission.rejects]
        unit = Group(uuid.uuid4(), SOURCE, entries, rejects)
        size = sum([submission.size for submission in group])
        quick = QuickAppend.of(unit, self._remembered) if size <= _LARGEST_ON_THE_LOOP else None
        stored: list[bool] | None = None
        if quick is not None:
            stored = await self._with_patience(lambda connections: connections.append_quickly(quick))
        if stored is None:
            stored = await self._with_patience(lambda connections: connections.append(unit))
        return stored

    async def _with_patience(self, work: Callable[["_Connections"], Awaitable[T]]) -> T:
        """Try until the database is back, or patience ends. A group has an id, so trying again is safe."""
        deadline = time.monotonic() + self._limits.patience
        pause = 0.02
        while True:
            try:
                async with asyncio.timeout(self._limits.longest_commit):
                    return await work(self._connections)
            except TimeoutError as error:
                self._connections.close()
                reason = f"the database has not answered for {self._limits.longest_commit:.0f} s"
                _log.error(reason)
                raise Unavailable(reason) from error
            except _AWAY as error:
                self._connections.close()
                if time.monotonic() + pause > deadline:
                    # The log says where it is and why; who sends events need not know.
                    reason = _AWAY_WORDS
                    _log.error("%s: %s", reason, _first_line(error))
                    raise Unavailable(reason) from error
                await asyncio.sleep(pause)
                pause = min(pause * 2, 0.3)

    async def _reach(self) -> bool:
        try:
            async with asyncio.timeout(self._limits.longest_commit):
                await self._connections.check()
        except (psycopg.Error, TimeoutError) as error:
            self._connections.close()
            if self._down != _AWAY_WORDS:
                _log.warning("%s: %s", _AWAY_WORDS, _first_line(error))
            self._down = _AWAY_WORDS
            return False
        self._down = None
        _log.info("the database is there")
        return True


class _Connections:
    """One that the event loop talks on, and one for a thread that does what is rare. Made when needed."""

    def __init__(self, database: Database, remembered: timedelta, longest_commit: float) -> None:
        self._connect = partial(_connect, database, longest_commit)
        self._remembered = remembered
        self._quick: _Quick | None = None
        self._slow: _Slow | None = None

    async def check(self) -> None:
        quick = await self._get_quick()
        ((_, is_read_only),) = await quick.connection.call(quick.check)
        if is_read_only == b"on":
            raise psycopg.errors.ReadOnlySqlTransaction("it takes no writes at the moment (transaction_read_only)")

    async def append_quickly(self, append: QuickAppend) -> list[bool] | None:
        quick = await self._get_quick()
        (row,) = await quick.connection.call(quick.append, append.parameters)
        return append.outcome(row)

    async def append(self, group: Group) -> list[bool]:
        if self._slow is None:
            self._slow = _Slow(self._connect, self._remembered)
        slow = self._slow
        return await _in_a_thread(lambda: slow.append(group))

    def close(self) -> None:
        """Use these no more; whatever is under way on them does not count."""
        if self._quick is not None:
            self._quick.connection.close()
        if self._slow is not None:
            self._slow.abandon()
        self._quick = self._slow = None

    async def _get_quick(self) -> "_Quick":
        if self._quick is None:
            quick = await _in_a_thread(lambda: _Quick.made(self._connect()))
            quick.connection.start()
            self._quick = quick
        return self._quick


class _Quick(msgspec.Struct, frozen=True):
    connection: LoopConnection
    append: Prepared
    check: Prepared

    @classmethod
    def made(cls, plain: psycopg.Connection) -> "_Quick":
        connection = LoopConnection(plain)
        return cls(connection, connection.prepare(APPEND, APPEND_TYPES), connection.prepare(_CHECK))


class _Slow:
    """The event log on a connection that one thread at a time uses, and that only it may close."""

    def __init__(self, connect: Callable[[], psycopg.Connection], remembered: timedelta) -> None:
        self._connect = connect
        self._remembered = remembered
        self._in_use = threading.Lock()
        self._connection: psycopg.Connection | None = None
        self._log: EventLog | None = None
        self._is_abandoned = False

    def append(self, group: Group) -> list[bool]:
        with self._in_use:
            try:
                if self._log is None:
                    self._connection = self._connect()
                    self._log = EventLog(self._connection, self._remembered)
                return self._log.append(group)
            finally:
                if self._is_abandoned:
                    self._close()

    def abandon(self) -> None:
        """Not to be waited for. A connection that a thread is waiting on cannot be closed under it."""
        self._is_abandoned = True
        if self._in_use.acquire(blocking=False):
            self._close()
            self._in_use.release()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()


_CHECK: Final = b"SELECT position, current_setting('transaction_read_only') FROM kept.log_head"

# A database that is only read is away too: a standby after a failover, or one that its provider holds still for want of
# room. A new connection may find the one that writes.
_AWAY: Final = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction)


def _connect(database: Database, longest_commit: float) -> psycopg.Connection:
    connection = database.connect("group commit", autocommit=True)
    milliseconds = max(1, int(longest_commit * 1000))
    # A little before we give up ourselves, so that the database says why. And a server that is stopped in the middle of
    # a transaction holds the end of the log: the database lets go of it.
    connection.execute(
        f"SET statement_timeout = {milliseconds * 3 // 4}; SET lock_timeout = {milliseconds // 2}; "
        f"SET idle_in_transaction_session_timeout = {milliseconds // 2}; "
        # Each statement has one plan that is right; to plan it anew for each group takes a fifth of the whole append.
        "SET plan_cache_mode = force_generic_plan"
    )
    return connection


async def _in_a_thread(work: Callable[[], T]) -> T:
    """A thread that nobody waits for at the end: the pool of asyncio would, even for one that hangs."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast("T", result))

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:  # noqa: BLE001 (it is told to whoever waits)
            error = raised
        # The loop may be gone by now, and nobody waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=run, name="correlator-store", daemon=True).start()
    return await future


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
