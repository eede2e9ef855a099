"""The pages for people: files that `make web` has built, read once and sent from memory.

The pages find their way by themselves: whatever path a page has, it is the same document. What is built into its assets
has their content in the name, so that a browser never asks for them twice.
"""

import mimetypes
from pathlib import Path
from typing import Final, NamedTuple

from correlator.http.edge import Routes
from correlator.http.exchange import Handler, Header, Request, Response

BUILT: Final = Path(__file__).with_name("web")
"""Where the build lands; a wheel carries it."""

_PLACES: Final = frozenset(
    {"", "incidents", "lineage", "jobs", "runs", "datasets", "status", "settings", "sign-in", "welcome"}
)
"""The first parts of the paths of pages. `/health` is for programs, so the page of that name is `/status`."""
# Nothing inline, nothing from elsewhere, and nobody may put the pages into a frame.
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_OF_PAGES: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
)
_FOR_EVER: Final[Header] = (b"cache-control", b"public, max-age=31536000, immutable")
_FOR_AN_HOUR: Final[Header] = (b"cache-control", b"public, max-age=3600")
_VARY: Final[Header] = (b"vary", b"accept-encoding")
_GZIPPED: Final[Header] = (b"content-encoding", b"gzip")
_READING: Final = ("GET", "HEAD")

_HOW_TO_BUILD: Final = (
    b"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    b"<title>Correlator</title><h1>Correlator runs; its pages are not built</h1>"
    b"<p>Everything works but the pages for people. They are built with Node 20 or newer: run <code>make web</code> in "
    b"the source, then start the server again. A released wheel carries them.</p>"
    b"<p>The API is described at <a href=/docs>/docs</a>; on the command line there are <code>correlator incidents"
    b"</code> and <code>correlator explain ID</code>.</p>"
)


class _Asset(NamedTuple):
    plain: Response
    gzipped: Response | None

    def for_(self, request: Request) -> Response:
        if self.gzipped is not None and b"gzip" in request.headers.get(b"accept-encoding", b""):
            return self.gzipped
        return self.plain


class UserInterface:
    def __init__(self, directory: Path = BUILT) -> None:
        self._assets = {f"/{path.relative_to(directory)}": _asset(path) for path in _files(directory)}
        built = self._assets.pop("/index.html", None)
        self.is_built: Final = built is not None
        self._page: Final = built or _Asset(Response(200, _HOW_TO_BUILD, _OF_PAGES), None)

    def add_to(self, routes: Routes) -> None:
        for path, asset in self._assets.items():
            routes.add("GET", path, _handler(asset), is_quiet=True)

    def page(self, request: Request) -> Response | None:
        """For the path of a page; and for people who are lost, who then read it in a page rather than in JSON."""
        if request.method not in _READING:
            return None
        first = request.path.split("/", 2)[1] if request.path.startswith("/") else request.path
        if first in _PLACES:
            return self._page.for_(request)
        is_for_people = b"text/html" in request.headers.get(b"accept", b"")
        if self.is_built and is_for_people and first not in ("api", "assets"):
            found = self._page.for_(request)
            return Response(404, found.body, found.headers)
        return None


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and path.suffix != ".gz")


def _asset(path: Path) -> _Asset:
    if path.name == "index.html":
        headers = _OF_PAGES
    else:
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        kind = f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
        headers = ((b"content-type", kind.encode()), _FOR_EVER if path.parent.name == "assets" else _FOR_AN_HOUR)
    packed = path.with_name(f"{path.name}.gz")
    plain = Response(200, path.read_bytes(), (*headers, _VARY))
    return _Asset(plain, Response(200, packed.read_bytes(), (*headers, _VARY, _GZIPPED)) if packed.exists() else None)


def _handler(asset: _Asset) -> Handler:
    async def handler(request: Request) -> Response:
        return asset.for_(request)

    return handler
