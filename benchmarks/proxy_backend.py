"""A backend that takes everything, as cheaply as can be, and says how much it has and when each event came.

It runs in a process of its own, `python -m benchmarks.proxy_backend`, and tells its port on standard output. It answers
batches, so that what is measured is the proxy and not the backend.
"""

import asyncio
import re
import time
from typing import Final

import httptools
import msgspec

_MARK: Final = re.compile(rb'"mark": ?"([^"]+)"')
_RUN: Final = re.compile(rb'"eventTime"')


class Seen(msgspec.Struct):
    events: int = 0
    requests: int = 0
    marks: dict[str, float] = msgspec.field(default_factory=dict)
    """When an event with a mark came, by the clock that all processes share."""


class _Connection(asyncio.Protocol):
    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body, self._body = b"".join(self._body), []
        answer = b"{}"
        if self._parser.get_method() == b"GET":
            answer = msgspec.json.encode(self._seen)
        else:
            now = time.monotonic()
            self._seen.requests += 1
            self._seen.events += len(_RUN.findall(body))
            for mark in _MARK.findall(body):
                self._seen.marks[mark.decode()] = now
        assert self._transport is not None
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))


async def _serve() -> None:
    seen = Seen()
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(seen), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
