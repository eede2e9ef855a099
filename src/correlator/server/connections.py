"""Connections that nobody can fill or hold open for nothing, and whose answers go out in one piece.

uvicorn bounds neither the size of a request's head nor the time that it takes. Both are checked here where it costs
nothing: once for each piece that comes in, and with a timer only for a head that does not come in one piece. It also
writes the head of an answer and its body one after the other, each with a call of the kernel that costs as much as
judging an event.
"""

import asyncio
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from correlator.server import problems
from correlator.server.correlation_id import CorrelationIds
from correlator.server.problems import BAD_REQUEST, HEAD_TOO_LARGE, HttpProblem

_PHRASES: Final = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}
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

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()


class BoundedConnection(HttpToolsProtocol):
    """A connection whose heads (and trailers) are bounded in bytes, and have to be whole after some time."""

    max_head_bytes = 64 * 1024
    head_seconds = 60.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unfinished = 0
        """Bytes that have come since the last thing that was whole: a head, a piece of a body, a message."""
        self._patience: asyncio.TimerHandle | None = None
        self._is_repeating = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as its parent has it
        super().connection_made(cast("asyncio.Transport", _InOnePiece(transport)))
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._progress()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unfinished += len(data)
        self._unset_keepalive_if_required()
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                data = data[offer.args[0] :]
                self._decline_upgrade()
            except httptools.HttpParserError:
                message = "Invalid HTTP request received."
                self.logger.warning(message)
                self.send_400_response(message)
                return
            else:
                break
        if self._unfinished:
            if self._unfinished > self.max_head_bytes:
                self._refuse()
            elif self._patience is None:
                self._wait()

    def on_message_begin(self) -> None:
        if not self._is_repeating:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_repeating:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_repeating:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._progress()
        if not self._is_repeating:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._progress()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._progress()
        # Of a request that offers an upgrade the parser says so before its body: see `_decline_upgrade`.
        if not self.parser.should_upgrade():
            super().on_message_complete()

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
        super().on_response_complete()

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
        # Before the first request there is no cycle, whatever its type says.
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
        lines = [
            b"HTTP/1.1 %d %s" % (answer.status, _PHRASES[answer.status]),
            *(name + b": " + value for name, value in answer.headers),
            b"content-length: %d" % len(answer.body),
            b"x-correlation-id: " + correlation_id.encode(),
            b"connection: close",
            b"",
        ]
        self.transport.write(b"\r\n".join(lines) + b"\r\n" + answer.body)
        self.transport.close()


def bounded(*, max_head_bytes: int, head_seconds: float) -> type[BoundedConnection]:
    """The class of connections with these limits, for uvicorn's option `http`."""
    return type(
        "BoundedConnection", (BoundedConnection,), {"max_head_bytes": max_head_bytes, "head_seconds": head_seconds}
    )
