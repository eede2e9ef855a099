"""Questions to the database, answered beside ingest: in a few threads, each with a connection of its own.

However slow a question is, it holds one of these and nothing else. When all are busy, the next one waits a moment, and
is then told to come back.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias, TypeVar

import psycopg
from psycopg.errors import DataError, QueryCanceled

from correlator.http.problems import INVALID_REQUEST, HttpProblem, unavailable
from correlator.store.database import Database
from correlator.store.moments import read_any_moment

T = TypeVar("T")

Connection: TypeAlias = psycopg.Connection[Any]
Mode: TypeAlias = Literal["read", "write", "own"]
"""`read` is a question about one moment, however many steps it takes; `write` one transaction; `own` makes its own."""

_CANCEL_SECONDS: Final = 2.0
_BEGIN: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


class Questions:
    def __init__(self, database: Database, *, connections: int, timeout: float, patience: float) -> None:
        self._database = database
        self._timeout = timeout
        self._patience = patience
        self._connections = connections
        self._turns = asyncio.Semaphore(connections)
        self._threads = ThreadPoolExecutor(connections, "questions")
        # Threads take from the one and put into the other; each step is atomic.
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._is_closed = False

    async def ask(self, work: Callable[[Connection], T], mode: Mode = "read") -> T:
        try:
            async with asyncio.timeout(self._patience):
                await self._turns.acquire()
        except TimeoutError:
            raise unavailable(
                f"All {self._connections} connections for questions have been busy for {self._patience:g} s "
                "(query_connections, query_patience). Ask again later."
            ) from None
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._answer, work, mode)
        finally:
            self._turns.release()

    def close(self) -> None:
        """Whoever is being answered is told that the server stops: the database ends what it does for them."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for connection in list(self._busy):
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=_CANCEL_SECONDS)
        while self._idle:
            self._idle.pop().close()

    def _answer(self, work: Callable[[Connection], T], mode: Mode) -> T:
        try:
            return self._try(work, mode)
        except psycopg.OperationalError as error:
            if isinstance(error, QueryCanceled):
                raise unavailable(
                    f"The database took longer than {self._timeout:g} s (query_timeout) for this. Ask for less.",
                    retry_after=self._timeout,
                ) from None
            raise unavailable("The database does not answer. Ask again later.", retry_after=2.0) from error
        except (DataError, UnicodeEncodeError) as error:
            # A character or a number that PostgreSQL cannot hold; nothing that is stored has one.
            words = str(error).partition("\n")[0]
            raise HttpProblem(INVALID_REQUEST, f"The request holds what no database can: {words[:200]}.") from None

    def _try(self, work: Callable[[Connection], T], mode: Mode) -> T:
        while True:
            connection, is_new = self._take()
            try:
                done = self._do(connection, work, mode)
            except psycopg.OperationalError:
                # One that has lain here may be dead, because the database was restarted. To read again does no harm.
                if connection.closed and not is_new and mode == "read":
                    continue
                raise
            finally:
                self._busy.discard(connection)
                if self._is_closed:
                    connection.close()
                elif not connection.closed:
                    self._idle.append(connection)
            return done

    def _do(self, connection: Connection, work: Callable[[Connection], T], mode: Mode) -> T:
        if mode == "own":
            return work(connection)
        with connection.transaction():
            if mode == "read":
                connection.execute(_BEGIN)
            return work(connection)

    def _take(self) -> tuple[Connection, bool]:
        is_new = False
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._database.connect("questions", autocommit=True)
            connection.execute(f"SET statement_timeout = {round(self._timeout * 1000)}".encode())
            read_any_moment(connection)
            is_new = True
        self._busy.add(connection)
        return connection, is_new
