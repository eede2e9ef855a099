"""Signing in with a browser: the key goes into a cookie. The server keeps nothing of it.

A session is as good as its key: it ends with the key, when the person signs out, and after `session_lifetime`.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

from correlator import __version__
from correlator.config import ServerSettings
from correlator.http.bodies import BodyReader
from correlator.http.callers import Caller, Refusal, permit
from correlator.http.edge import Keys, Routes, refused
from correlator.http.exchange import JSON, Header, Request, Response, encode
from correlator.http.problems import FORBIDDEN, HttpProblem
from correlator.http.session_cookie import cookie, is_of_this_site, key_in
from correlator.key_scopes import SCOPES, Scope
from correlator.server.api.operations import read_body

PATH: Final = "/api/v1/session"
_NO_CONTENT: Final = 204
_NO_STORE: Final[Header] = (b"cache-control", b"no-store")


class SignIn(Struct, frozen=True, forbid_unknown_fields=True):
    key: Annotated[str, Meta(min_length=1, max_length=512, description="A key with the scope `read`.")]

    def __repr__(self) -> str:
        return "SignIn(…)"


class Session(Struct, frozen=True, kw_only=True):
    """Who is signed in, and what they may do."""

    is_open: Annotated[bool, Meta(description="Whether the server has no keys and takes anybody.")]
    name: Annotated[str | None, Meta(description="The name of the key; null while nobody is signed in.")]
    scopes: list[Scope]
    version: str


class Sessions:
    def __init__(self, settings: ServerSettings, keys: Keys, bodies: BodyReader) -> None:
        self._keys = keys
        self._bodies = bodies
        self._lifetime = round(settings.session_lifetime)
        self._is_https = settings.tls_certificate is not None

    def add_to(self, routes: Routes) -> None:
        routes.add("GET", PATH, self._show, is_quiet=True)
        routes.add("POST", PATH, self._sign_in)
        routes.add("DELETE", PATH, self._sign_out)

    async def _show(self, request: Request) -> Response:
        headers = request.headers
        caller = self._keys.authenticate(headers.get(b"authorization"), headers.get(b"x-api-key") or key_in(request))
        return self._told(None if isinstance(caller, Refusal) else caller)

    async def _sign_in(self, request: Request) -> Response:
        _refuse_other_sites(request)
        key = read_body(SignIn, await self._bodies.read(request)).key.strip()
        caller = self._keys.authenticate(None, key.encode(errors="replace"))
        if isinstance(caller, Refusal):
            raise refused(caller)
        refusal = permit(caller, "read")
        if refusal is not None:
            raise refused(refusal)
        return self._told(caller, () if caller.key_id is None else (self._cookie(request, key, self._lifetime),))

    async def _sign_out(self, request: Request) -> Response:
        _refuse_other_sites(request)
        return Response(_NO_CONTENT, b"", (_NO_STORE, self._cookie(request, "", 0)))

    def _cookie(self, request: Request, key: str, seconds: int) -> Header:
        # A header that anybody may send: who lies about it only keeps his own cookie from being sent back.
        is_https = self._is_https or request.headers.get(b"x-forwarded-proto", b"").lower() == b"https"
        return cookie(key, seconds, is_https=is_https)

    def _told(self, caller: Caller | None, headers: tuple[Header, ...] = ()) -> Response:
        session = Session(
            is_open=self._keys.is_open,
            name=None if caller is None else caller.name,
            # What comes from a browser is no event.
            scopes=[] if caller is None else [one for one in SCOPES if one in caller.scopes and one != "ingest"],
            version=__version__,
        )
        return Response(200, encode(session), (JSON, _NO_STORE, *headers))


def _refuse_other_sites(request: Request) -> None:
    if b"origin" in request.headers and not is_of_this_site(request):
        raise HttpProblem(FORBIDDEN, "Pages of other sites may not sign anybody in or out here.")
