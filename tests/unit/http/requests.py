"""Requests without a server: headers, and a body in pieces."""

from collections.abc import Sequence

from correlator.http.exchange import Message, Request, joined_headers


def request(
    pieces: Sequence[bytes] = (b"",), *, headers: dict[str, str] | None = None, then_gone: bool = False
) -> Request:
    """A POST whose body comes in these pieces; with `then_gone` the client goes away instead of ending it."""
    messages: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": then_gone or index < len(pieces) - 1}
        for index, piece in enumerate(pieces)
    ]
    messages.append({"type": "http.disconnect"})
    coming = iter(messages)

    async def receive() -> Message:
        return next(coming)

    given = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    return Request("POST", "/api/v1/lineage", b"", joined_headers(given), receive, "test-1", "127.0.0.1")
