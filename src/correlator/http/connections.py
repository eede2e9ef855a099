"""Connections that nobody can fill or hold open for nothing, and whose answers go out in one piece.

uvicorn bounds neither the size of a request's head nor the time that it takes. Both are checked here where it costs
nothing: once for each piece that comes in, and with a timer only for a head that does not come in one piece. It also
writes the head of an answer and its body one after the other, each with a call of the kernel that costs as much as
judging an event.

And it makes a task, a dictionary and four messages for each request. An ordinary event does without them: what it says
is handed to the edge when it is whole, and the answer written when the edge has one. It is ordinary if nothing about it
asks for more: a small body with a Content-Length, no request before it that is still being served. All others, and
every refusal, go the way through ASGI.
"""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from correlator.http import problems
from correlator.http.correlation_id import CorrelationIds
from correlator.http.edge import Edge, Route
from correlator.http.exchange import Header
from correlator.http.problems import BAD_REQUEST, HEAD_TOO_LARGE, HttpProblem

_UNUSUAL: Final = frozenset({b"origin", b"content-encoding", b"transfer-encoding", b"expect", b"upgrade"})
"""Headers of requests that need more than the short way knows of."""
_AROUND_A_FIELD: Final = len(": \r\n")
_LARGEST_WHOLE: Final = 64 * 1024
_LONGEST_HOLD: Final = 0.1
"""Seconds for which a head waits for its body. Then it goes the usual way, where it can be refused without one."""
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
_ids = CorrelationIds()


class _InOnePiece:
    """A transport that holds the head of an answer back until its body comes, or it is clear that none does."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write_whole(self, data: bytes) -> None:
        if not self.is_closing():
            self._transport.write(data)

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
            return
        # uvicorn does not know that the client is gone when another request of it is waiting.
        if not self.is_closing():
            self._transport.write(data)

    def flush(self) -> None:
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()


class _Whole:
    """A request on the short way, in the place where uvicorn keeps its own (`cycle`)."""

    __slots__ = ("_connection", "disconnected", "keep_alive", "response_complete")

    def __init__(self, connection: "BoundedConnection") -> None:
        self._connection = connection
        self.disconnected = False
        self.keep_alive = True
        """uvicorn sets it to False when the server stops."""
        self.response_complete = False

    def reply(self, status: int, headers: list[Header], body: bytes) -> None:
        self.response_complete = True
        if not self.disconnected:
            self._connection.reply(status, headers, body, keep_alive=self.keep_alive)


class _HeadTooLargeError(Exception):
    pass


class BoundedConnection(HttpToolsProtocol):
    """A connection whose heads (and trailers) are bounded in bytes, and have to be whole after some time.

    As much time has the other side to take what is written: an answer that nobody takes is not kept.
    """

    max_head_bytes = 64 * 1024
    head_seconds = 60.0
    edge: Edge | None = None
    short: Mapping[bytes, Route] = MappingProxyType({})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unfinished = 0
        """Bytes that have come since the last thing that was whole: a head, a piece of a body, a message."""
        self._patience: asyncio.TimerHandle | None = None
        self._is_repeating = False
        self._target = b""
        self._fields: list[Header] = []
        self._headers: dict[bytes, bytes] = {}
        self._held: list[bytes] | None = None
        """The body so far of a request that may go the short way."""
        self._hold: asyncio.TimerHandle | None = None
        self._whole: _Whole | None = None
        self._untaken: asyncio.TimerHandle | None = None
        self._idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as its parent has it
        super().connection_made(cast("asyncio.Transport", _InOnePiece(transport)))
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._progress()
        self.resume_writing()
        self._unset_keepalive_if_required()
        self._let_go()
        if self._whole is not None:
            self._whole.disconnected = True
        if isinstance(self.cycle, _Whole):
            # uvicorn would want to wake its task, which it does not have.
            self.cycle = cast("RequestResponseCycle", None)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        self._let_go()
        super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._untaken = self.loop.call_later(self.head_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None

    def data_received(self, data: bytes) -> None:
        self._unfinished += len(data)
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                data = data[offer.args[0] :]
                self._decline_upgrade()
            except httptools.HttpParserError as error:
                if isinstance(error.__context__, _HeadTooLargeError):
                    self._refuse()
                    return
                message = "Invalid HTTP request received."
                self.logger.warning(message)
                self.send_400_response(message)
                return
            else:
                break
        if self._held is not None and self._hold is None:
            self._hold = self.loop.call_later(_LONGEST_HOLD, self._let_go)
        if self._unfinished:
            if self._unfinished > self.max_head_bytes:
                self._refuse()
            elif self._patience is None:
                self._wait()

    def on_message_begin(self) -> None:
        if not self._is_repeating:
            self._target = b""
            self._fields = []

    def on_url(self, url: bytes) -> None:
        if not self._is_repeating:
            self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_repeating:
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._progress()
        if self._is_repeating:
            return
        size = len(self._target) + sum([len(name) + len(value) + _AROUND_A_FIELD for name, value in self._fields])
        if size > self.max_head_bytes:
            raise _HeadTooLargeError
        if self._target in self.short and self._is_ordinary(headers := dict(self._fields)):
            self._headers = headers
            self._held = []
        else:
            self._go_the_usual_way()

    def on_body(self, body: bytes) -> None:
        self._progress()
        if self._held is not None:
            self._held.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._progress()
        if self._held is not None:
            if self._go_the_short_way(self._held):
                return
            self._let_go()
        # Of a request that offers an upgrade the parser says so before its body: see `_decline_upgrade`.
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _is_ordinary(self, headers: dict[bytes, bytes]) -> bool:
        return (
            self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and len(headers) == len(self._fields)
            and headers.keys().isdisjoint(_UNUSUAL)
            and int(headers.get(b"content-length", _LARGEST_WHOLE)) < _LARGEST_WHOLE
            and headers.get(b"connection", b"keep-alive").lower() == b"keep-alive"
            # Before the first request there is no cycle, whatever its type says.
            and getattr(self.cycle, "response_complete", True)
            # An answer that the client does not take has to be waited for.
            and not self.flow.write_paused
        )

    def _go_the_short_way(self, held: list[bytes]) -> bool:
        assert self.edge is not None  # noqa: S101 (or else there are no routes for it)
        whole = _Whole(self)
        body = held[0] if len(held) == 1 else b"".join(held)
        route = self.short[self._target]
        if not self.edge.serve_whole(route, self._headers, body, self.client, whole.reply):
            return False
        self._whole = whole
        self.cycle = cast("RequestResponseCycle", whole)
        self._stop_holding()
        return True

    def _go_the_usual_way(self) -> None:
        """Tell uvicorn what has come."""
        super().on_message_begin()
        self.url = self._target
        for name, value in self._fields:
            super().on_header(name, value)
        super().on_headers_complete()

    def _let_go(self) -> None:
        """What is held goes the usual way."""
        held = self._held
        if held is not None:
            self._stop_holding()
            self._go_the_usual_way()
            for piece in held:
                super().on_body(piece)

    def _stop_holding(self) -> None:
        self._held = None
        if self._hold is not None:
            self._hold.cancel()
            self._hold = None

    def reply(self, status: int, headers: list[Header], body: bytes, *, keep_alive: bool) -> None:
        """The answer to a request on the short way."""
        self._whole = None
        cast("_InOnePiece", self.transport).write_whole(
            _rendered(status, [*self.server_state.default_headers, *headers], body, keep_alive=keep_alive)
        )
        if not keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _decline_upgrade(self) -> None:
        """Take the request as if it had not offered another protocol, as RFC 9110 (7.8) has it.

        `curl --http2` and Java's own client offer `h2c` with every first request. The parser takes what follows the
        head for the other protocol, so a new one is told again how the body is framed, and goes on with it.
        """
        framing = b"".join([name + b": " + value + b"\r\n" for name, value in self.headers if name in _FRAMING])
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._is_repeating = True
        try:
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")
        finally:
            self._is_repeating = False

    def on_response_complete(self) -> None:
        cast("_InOnePiece", self.transport).flush()
        self._idle_since = self.loop.time()
        if self.pipeline or self.timeout_keep_alive_task is None:
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
            self.flow.resume_reading()

    def timeout_keep_alive_handler(self) -> None:
        """One timer looks from time to time whether the connection is idle: one for each request would cost more."""
        self.timeout_keep_alive_task = None
        if self._unfinished or self._held is not None or not self.cycle.response_complete:
            return
        rest = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if rest > 0:
            self.timeout_keep_alive_task = self.loop.call_later(rest, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        self._answer(HttpProblem(BAD_REQUEST, f"This is no HTTP/1.1. {msg}"))

    def _progress(self) -> None:
        self._unfinished = 0
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _wait(self) -> None:
        self._patience = self.loop.call_later(self.head_seconds, self._give_up)

    def _give_up(self) -> None:
        self._patience = None
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self) -> None:
        if self.transport.is_closing():
            return
        if not getattr(self.cycle, "response_complete", True):
            # Trailers without end: their request is being served, and nothing can be said before its answer.
            self.transport.close()
            return
        told = f"The head of the request has more than {self.max_head_bytes:,} bytes (max_head_bytes)."
        self._answer(HttpProblem(HEAD_TOO_LARGE, told))

    def _answer(self, problem: HttpProblem) -> None:
        """There is no request yet that could be answered in the usual way."""
        self._progress()
        correlation_id = _ids.take(None)
        answer = problems.response(problem, "/", correlation_id)
        headers = [
            *answer.headers,
            (b"content-length", b"%d" % len(answer.body)),
            (b"x-correlation-id", correlation_id.encode()),
        ]
        cast("_InOnePiece", self.transport).write_whole(
            _rendered(answer.status, headers, answer.body, keep_alive=False)
        )
        self.transport.close()


def _rendered(status: int, headers: list[Header], body: bytes, *, keep_alive: bool) -> bytes:
    end = b"\r\n" if keep_alive else b"connection: close\r\n\r\n"
    lines = [b"%b: %b\r\n" % header for header in headers]
    return b"".join([STATUS_LINE[status], *lines, end, body])


def bounded(*, max_head_bytes: int, head_seconds: float, edge: Edge | None = None) -> type[BoundedConnection]:
    """The class of connections with these limits, for uvicorn's option `http`. With an edge there is a short way."""
    return type(
        "BoundedConnection",
        (BoundedConnection,),
        {
            "max_head_bytes": max_head_bytes,
            "head_seconds": head_seconds,
            "edge": edge,
            "short": {} if edge is None else edge.short,
        },
    )
