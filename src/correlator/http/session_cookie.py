"""The cookie of a browser that is signed in. It holds the key: no script can read it, no other site has it sent."""

import re
from typing import Final

from correlator.http.exchange import Header, Request

NAME: Final = "correlator_session"
_KEY: Final = re.compile(
    rb"(?:^|;)\s*" + NAME.encode() + rb"=([\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]{1,512})(?:;|$)"
)


def key_in(request: Request) -> bytes | None:
    """The key of whoever is signed in."""
    cookies = request.headers.get(b"cookie")
    found = None if cookies is None else _KEY.search(cookies)
    return None if found is None else found[1]


def cookie(key: str, seconds: int, *, is_https: bool) -> Header:
    """For the paths of the API alone; of zero seconds it takes the one there is away."""
    secure = "; Secure" if is_https else ""
    return b"set-cookie", f"{NAME}={key}; Path=/api; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}".encode()


def is_of_this_site(request: Request) -> bool:
    """Whether a page of ours sent it. A browser says so; whoever forges it needs no browser, and has no cookie."""
    origin = request.headers.get(b"origin")
    if origin is not None:
        return origin.lower().partition(b"://")[2] == request.headers.get(b"host", b"").lower()
    return request.headers.get(b"sec-fetch-site") == b"same-origin"
