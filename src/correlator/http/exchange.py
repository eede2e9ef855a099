"""One request and its answer, as light as they can be: a hot handler never touches a web framework."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from correlator.http.callers import Caller

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

JSON: Final[Header] = (b"content-type", b"application/json")
encode: Final = msgspec.json.Encoder().encode


class EventCounts(NamedTuple):
    """What became of the events of one request; the request log and the metrics tell it."""

    received: int
    stored: int
    duplicates: int
    rejected: int


class Response:
    """An answer that is known before its first byte is sent. `headers` holds the content type too."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes, headers: tuple[Header, ...] = (JSON,)) -> None:
        self.status = status
        self.body = body
        self.headers = headers


def answer(value: object, status: int = 200) -> Response:
    """A struct of `answers.py` as JSON."""
    return Response(status, encode(value))


class Request:
    """What a handler may know. Headers that came more than once are joined by commas (RFC 9110, 5.3).

    `events`, `bytes_in` and `reserved` are written on the way: by the handler, by whoever reads the body, and by the
    budget of bytes in flight, which takes back at the end whatever is reserved here.
    """

    __slots__ = (
        "bytes_in",
        "caller",
        "client",
        "correlation_id",
        "events",
        "headers",
        "method",
        "path",
        "query_string",
        "receive",
        "reserved",
    )

    def __init__(  # noqa: PLR0917 - one call, on every request: keywords would cost more than they tell
        self,
        method: str,
        path: str,
        query_string: bytes,
        headers: dict[bytes, bytes],
        receive: Receive,
        correlation_id: str,
        client: str,
    ) -> None:
        self.method = method
        self.path = path
        self.query_string = query_string
        self.headers = headers
        self.receive = receive
        self.correlation_id = correlation_id
        self.client = client
        self.caller: Caller | None = None
        self.events: EventCounts | None = None
        self.bytes_in = 0
        self.reserved = 0


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
Told: TypeAlias = Callable[[Response | Exception], None]
WholeHandler: TypeAlias = Callable[[Request, bytes, Told], bool]
"""Serves a request whose body is there, and tells later what came of it. Whatever is not as usual it leaves alone: it
returns False or raises, and then the `Handler` is asked."""


class ClientDisconnect(Exception):  # noqa: N818 - nothing went wrong here: the client is gone, and so is its request
    """The client closed the connection before its request was whole. Nothing is stored, nobody is answered."""


def joined_headers(headers: list[Header]) -> dict[bytes, bytes]:
    """Headers by their lower-case name, each looked at once."""
    by_name = dict(headers)
    if len(by_name) == len(headers):
        return by_name
    by_name.clear()
    for name, value in headers:
        by_name[name] = by_name[name] + b", " + value if name in by_name else value
    return by_name
