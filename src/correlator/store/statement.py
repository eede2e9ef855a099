"""Prepared statements, called without the driver's own way around them, which costs four times as much."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Final, TypeAlias, cast

import psycopg
from psycopg import errors, pq

Row: TypeAlias = tuple[bytes | None, ...]
"""Values in text form."""
Prepared: TypeAlias = tuple[bytes, list[int]]
"""The name of a statement, and the formats of its parameters."""

_LOOK_SECONDS: Final = 0.2
"""How often an answer that does not come is looked for, unasked. uvloop stops to watch a socket without a word when its
other side was closed with something unread, and then the end of a connection would never be noticed."""

_numbers: Final = itertools.count()


class Statement:
    """Called from a thread, which waits inside libpq, without the interpreter's lock."""

    def __init__(self, connection: psycopg.Connection, query: bytes, types: Sequence[int]) -> None:
        self._pgconn = connection.pgconn
        self._name, self._formats = _prepare(self._pgconn, query, types)

    def __call__(self, *parameters: bytes | None) -> list[Row]:
        result = self._pgconn.exec_prepared(self._name, _sent(parameters), self._formats, pq.Format.TEXT)
        return _rows(self._pgconn, result)


class LoopConnection:
    """A connection whose statements are called from an event loop, one at a time, and which nobody else uses.

    No thread takes part: handing each call to one and taking its answer back costs more than the call, because the two
    threads then wait for each other's turn at the interpreter.
    """

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answer: asyncio.Future[list[Row]] | None = None
        self._result: pq.abc.PGresult | None = None
        self._is_writing = False
        self._watched = -1
        self._next_look: asyncio.TimerHandle | None = None

    def prepare(self, query: bytes, types: Sequence[int] = ()) -> Prepared:
        """Blocks, so it comes before `start`."""
        return _prepare(self._pgconn, query, types)

    def start(self) -> None:
        """On the event loop: begin to listen."""
        self._pgconn.nonblocking = 1
        self._loop = asyncio.get_running_loop()
        self._watched = self._pgconn.socket
        self._loop.add_reader(self._watched, self._go_on)

    def close(self) -> None:
        """On the event loop. A call that is under way fails."""
        self._break(psycopg.OperationalError("the connection was closed"))

    def call(self, statement: Prepared, parameters: Sequence[bytes | None] = ()) -> asyncio.Future[list[Row]]:
        if self._loop is None:
            # The database has closed it, or we have.
            raise psycopg.OperationalError("the connection is closed")
        assert self._answer is None, "one call at a time"  # noqa: S101
        answer = self._answer = self._loop.create_future()
        self._next_look = self._loop.call_later(_LOOK_SECONDS, self._look)
        try:
            name, formats = statement
            self._pgconn.send_query_prepared(name, _sent(parameters), formats, pq.Format.TEXT)
            self._send()
        except psycopg.Error as error:
            self._break(error)
        return answer

    def _send(self) -> None:
        """Send as much as goes; a group may be larger than what the socket takes at once."""
        assert self._loop is not None  # noqa: S101
        is_more = self._pgconn.flush() == 1
        if is_more and not self._is_writing:
            # The same as for reading. A server that has something to say (an error, say) must be heard, or both would
            # wait for ever; and libpq, asked to read, first sends, so that what it then reads may be the answer.
            self._loop.add_writer(self._watched, self._go_on)
        elif not is_more and self._is_writing:
            self._loop.remove_writer(self._watched)
        self._is_writing = is_more

    def _go_on(self) -> None:
        try:
            self._pgconn.consume_input()
            if self._is_writing:
                self._send()
            while self._answer is not None and not self._pgconn.is_busy():
                result = self._pgconn.get_result()
                if result is None:
                    self._finish()
                    return
                self._result = result
        except psycopg.Error as error:
            self._break(error)

    def _look(self) -> None:
        self._go_on()
        if self._answer is not None and self._loop is not None:
            self._next_look = self._loop.call_later(_LOOK_SECONDS, self._look)

    def _finish(self) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        answer, self._answer = self._answer, None
        result, self._result = self._result, None
        if answer is None or answer.done():
            return
        try:
            if result is None:
                raise psycopg.OperationalError("the database gave no answer")
            answer.set_result(_rows(self._pgconn, result))
        except psycopg.Error as error:
            answer.set_exception(error)

    def _break(self, error: psycopg.Error) -> None:
        """Nothing more comes from this connection; once more does no harm."""
        loop, self._loop = self._loop, None
        if loop is not None:
            # By the number that was watched: libpq has closed it, perhaps, and knows it no more.
            loop.remove_reader(self._watched)
            loop.remove_writer(self._watched)
        self._is_writing = False
        if self._next_look is not None:
            self._next_look.cancel()
        self._connection.close()
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)


def _prepare(pgconn: pq.abc.PGconn, query: bytes, types: Sequence[int]) -> Prepared:
    name = b"correlator_%d" % next(_numbers)
    _checked(pgconn, pgconn.prepare(name, query, types))
    return name, [pq.Format.BINARY] * len(types)


def _sent(parameters: Sequence[bytes | None]) -> Sequence[bytes]:
    """What libpq takes: None for NULL, whatever the annotation says."""
    return cast("Sequence[bytes]", parameters)


def _rows(pgconn: pq.abc.PGconn, result: pq.abc.PGresult) -> list[Row]:
    _checked(pgconn, result)
    columns = range(result.nfields)
    return [tuple([result.get_value(row, column) for column in columns]) for row in range(result.ntuples)]


def _checked(pgconn: pq.abc.PGconn, result: pq.abc.PGresult) -> None:
    if result.status in {pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK}:
        return
    if pgconn.status != pq.ConnStatus.OK:
        raise psycopg.OperationalError(pgconn.get_error_message())
    raise errors.error_from_result(result)
