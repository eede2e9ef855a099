"""Who a request comes from, as far as its key tells, and why one is not let in."""

import hmac
import re
from typing import Final, Literal, NamedTuple, TypeAlias

from correlator.key_scopes import SCOPES, Scope

# What RFC 6750 and every key of ours is made of, and more; but nothing that a log or a terminal would trip over.
_KEY: Final = re.compile(rb"[\x21-\x7e]{1,512}")
_BEARER: Final = re.compile(rb"bearer(?:[ \t]+(.*))?", re.IGNORECASE | re.DOTALL)

Reason: TypeAlias = Literal[
    "missing_key",
    "malformed_key",
    "conflicting_keys",
    "unknown_key",
    "expired_key",
    "revoked_key",
    "missing_scope",
    "keys_unavailable",
]


class Caller(NamedTuple):
    """Whoever a request comes from, as far as its key tells."""

    name: str
    scopes: frozenset[Scope]
    key_id: int | None
    """None where the server has no keys and takes anybody."""


class Refusal(NamedTuple):
    """Why a request is not let in."""

    status: Literal[401, 403, 503]
    reason: Reason
    detail: str
    retry_after: int | None = None

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """RFC 9110 wants every 401 to say what would help."""
        if self.status == 401:  # noqa: PLR2004 (HTTP's own number)
            return ((b"www-authenticate", b'Bearer realm="correlator"'),)
        if self.retry_after is not None:
            return ((b"retry-after", str(self.retry_after).encode()),)
        return ()


ANYBODY: Final = Caller("anybody", frozenset(SCOPES), None)
"""The caller of a server without keys."""

_HOW: Final = "Send it as `Authorization: Bearer KEY` or as `X-API-Key: KEY`."
_MISSING: Final = Refusal(401, "missing_key", f"This server takes no request without a key. {_HOW}")
_MALFORMED_BEARER: Final = Refusal(
    401, "malformed_key", f"The Authorization header is not `Bearer` and one key without blanks in it. {_HOW}"
)
_OTHER_SCHEME: Final = Refusal(401, "malformed_key", f"The Authorization header has another scheme than Bearer. {_HOW}")
_MALFORMED_HEADER: Final = Refusal(
    401, "malformed_key", f"The X-API-Key header is not one key without blanks in it. {_HOW}"
)
_CONFLICTING: Final = Refusal(
    401, "conflicting_keys", "The Authorization and the X-API-Key header hold different keys. Send one of them."
)


def permit(caller: Caller, scope: Scope) -> Refusal | None:
    """None if the caller may. Scopes do not include each other: `admin` alone may not send events."""
    if scope in caller.scopes:
        return None
    has = ", ".join(each for each in SCOPES if each in caller.scopes)
    return Refusal(403, "missing_scope", f"This needs the scope {scope}; the key {caller.name!r} has {has}.")


def presented_key(authorization: bytes | None, x_api_key: bytes | None) -> bytes | Refusal:
    """The key that a request brings."""
    bearer = None
    if authorization is not None:
        parts = _BEARER.fullmatch(authorization.strip())
        if parts is not None:
            bearer = parts[1]
            if bearer is None or not _KEY.fullmatch(bearer):
                return _MALFORMED_BEARER
        elif x_api_key is None:
            return _OTHER_SCHEME
        # Else it is for a proxy on the way, such as Basic, and the other header is for us.
    if x_api_key is None:
        return bearer or _MISSING
    x_api_key = x_api_key.strip()
    if not _KEY.fullmatch(x_api_key):
        return _MALFORMED_HEADER
    if bearer is not None and not hmac.compare_digest(bearer, x_api_key):
        return _CONFLICTING
    return x_api_key
