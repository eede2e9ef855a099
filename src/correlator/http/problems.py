"""Errors as RFC 9457 documents: a stable kind for programs, a sentence for people.

The `type` of a problem is a URN. It has to be the same on every server, so that a client can compare it; a reference
relative to the server would differ with its address, and an https URL would promise a page on a domain that a
self-hosted tool does not own. What each kind means stands in the server's own page, `/docs`.
"""

import math
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from correlator.http.exchange import Header, Response, encode

MEDIA_TYPE: Final = "application/problem+json"
_CONTENT_TYPE: Final[Header] = (b"content-type", MEDIA_TYPE.encode())
_LONGEST_INSTANCE = 500
_URI_CHARACTERS = "%/:@!$&'()*+,;=-._~"


class Kind(msgspec.Struct, frozen=True):
    slug: str
    status: int
    title: str
    meaning: str
    """What a person does about it, for the documentation."""

    @property
    def type(self) -> str:
        return f"urn:correlator:problem:{self.slug}"


BAD_REQUEST: Final = Kind(
    "bad-request", 400, "The request cannot be understood", "Change the request as the detail says."
)
NOT_JSON: Final = Kind(
    "not-json", 400, "The body is not JSON", "Send one JSON document in UTF-8; a compressed body has to be whole."
)
UNAUTHORIZED: Final = Kind(
    "unauthorized", 401, "A valid key is needed", "Send a key as `Authorization: Bearer KEY` or `X-API-Key: KEY`."
)
FORBIDDEN: Final = Kind(
    "forbidden",
    403,
    "This is not allowed",
    "Use a key that has the scope named in the detail; a page of another site has to be named in cors_origins.",
)
NOT_FOUND: Final = Kind(
    "not-found", 404, "There is nothing at this path", "Look up the path in `/docs`; or what it names is not known."
)
METHOD_NOT_ALLOWED: Final = Kind(
    "method-not-allowed", 405, "This path does not take this method", "Use a method of the `Allow` header."
)
REQUEST_TIMEOUT: Final = Kind(
    "request-timeout", 408, "The body took too long to arrive", "Send it again, or raise the limit that is named."
)
CONFLICT: Final = Kind("conflict", 409, "That does not go with how things stand", "Read again, then decide.")
TOO_LARGE: Final = Kind(
    "too-large", 413, "The body is too large", "Split the batch, or raise the limit named in the detail."
)
UNSUPPORTED_MEDIA_TYPE: Final = Kind(
    "unsupported-media-type",
    415,
    "This kind of body is not taken here",
    "Send `Content-Type: application/json` in UTF-8, plain or with `Content-Encoding: gzip` or `zstd`.",
)
INVALID_EVENTS: Final = Kind(
    "invalid-events",
    422,
    "No event of the request is valid",
    "Every event was refused, each with its reasons. They are kept: see `correlator rejects`.",
)
BROKEN_RUN_CYCLE: Final = Kind(
    "broken-run-cycle",
    422,
    "The events break the cycle of their run",
    "The batch is one run whose states cannot follow each other; it was refused whole.",
)
INVALID_REQUEST: Final = Kind(
    "invalid-request",
    422,
    "The request asks for something that cannot be",
    "Change the parameter, or the member of the body, that the detail names.",
)
TOO_MANY_REQUESTS: Final = Kind(
    "too-many-requests", 429, "Too many events in too short a time", "Wait for `Retry-After` seconds, then send again."
)
HEAD_TOO_LARGE: Final = Kind(
    "head-too-large", 431, "The head of the request is too large", "Send shorter headers, or a shorter path."
)
INTERNAL: Final = Kind(
    "internal", 500, "The server failed", "A defect of Correlator: its log has the cause under the correlation id."
)
UNAVAILABLE: Final = Kind(
    "unavailable",
    503,
    "The server cannot take this now",
    "Nothing was stored. Wait for `Retry-After` seconds, then send the same again.",
)

KINDS: Final = (
    BAD_REQUEST,
    NOT_JSON,
    UNAUTHORIZED,
    FORBIDDEN,
    NOT_FOUND,
    METHOD_NOT_ALLOWED,
    REQUEST_TIMEOUT,
    CONFLICT,
    TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    INVALID_EVENTS,
    BROKEN_RUN_CYCLE,
    INVALID_REQUEST,
    TOO_MANY_REQUESTS,
    HEAD_TOO_LARGE,
    INTERNAL,
    UNAVAILABLE,
)
_BY_STATUS: Final = {kind.status: kind for kind in reversed(KINDS)}


class HttpProblem(Exception):  # noqa: N818 - it carries an RFC 9457 problem, which is its name
    """Raised anywhere on the way of a request; the edge answers it.

    `members` are added to the document as they are (structs included), but never replace what RFC 9457 defines.
    """

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        members: Mapping[str, Any] | None = None,
        headers: tuple[Header, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{kind.slug}: {detail}")
        self.kind = kind
        self.detail = detail
        self.members = members or {}
        self.headers = headers if retry_after is None else (*headers, _retry_after(retry_after))


def unavailable(detail: str, *, retry_after: float = 1.0) -> HttpProblem:
    """Back-pressure: clients that honour `Retry-After` come back, and nothing was stored meanwhile."""
    return HttpProblem(UNAVAILABLE, detail, retry_after=retry_after)


def kind_for(status: int) -> Kind:
    """The kind for a status that another framework chose."""
    return _BY_STATUS.get(status) or (BAD_REQUEST if status < 500 else INTERNAL)  # noqa: PLR2004 - HTTP's own border


def document(problem: HttpProblem, instance: str, correlation_id: str) -> bytes:
    kind = problem.kind
    content: dict[str, Any] = {
        "type": kind.type,
        "title": kind.title,
        "status": kind.status,
        "detail": problem.detail,
        "instance": quote(instance[:_LONGEST_INSTANCE], safe=_URI_CHARACTERS),
        "correlation_id": correlation_id,
    }
    return encode(content | {name: value for name, value in problem.members.items() if name not in content})


def response(problem: HttpProblem, instance: str, correlation_id: str) -> Response:
    return Response(problem.kind.status, document(problem, instance, correlation_id), (_CONTENT_TYPE, *problem.headers))


def _retry_after(seconds: float) -> Header:
    """Whole seconds, at least one: a client that waits too little is refused again."""
    return b"retry-after", str(max(1, math.ceil(round(seconds, 5)))).encode()
