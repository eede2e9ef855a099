"""The edge of the server: everything about a request but what it asks for.

It gives the request its correlation id and its client, finds the route, asks for the key, calls the handler, turns
whatever goes wrong into a problem document, and writes the answer, the log line and the metrics. It costs a few
microseconds, because it stands before every event: plain ASGI, one look at the headers, nothing made that is not sent.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from ipaddress import ip_address
from time import perf_counter
from typing import Final, NamedTuple, Protocol

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from correlator.http import correlation_id
from correlator.http.bodies import Budget
from correlator.http.callers import Caller, Refusal, permit
from correlator.http.correlation_id import CorrelationIds
from correlator.http.exchange import (
    ClientDisconnect,
    Handler,
    Header,
    Message,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    WholeHandler,
    joined_headers,
)
from correlator.http.limits import ClientAddress, Limits
from correlator.http.metrics import HttpMetrics
from correlator.http.problems import (
    FORBIDDEN,
    INTERNAL,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    HttpProblem,
    kind_for,
    unavailable,
)
from correlator.http.problems import response as problem_response
from correlator.http.request_log import Log
from correlator.http.session_cookie import is_of_this_site, key_in
from correlator.key_scopes import Scope as KeyScope

CLIENT_GONE: Final = 499
"""In log and metrics, as nginx has it: the client went away, nobody was answered."""
_OTHER = "other"
_PAGES = "pages"
_NO_CONTENT = 204
_SERVER_ERROR = 500
_NOSNIFF: Final[Header] = (b"x-content-type-options", b"nosniff")
_READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

Lifespan = Callable[[], AbstractAsyncContextManager[None]]
Page = Callable[[Request], Response | None]
"""What stands at a path for people, if anything does."""
Reply = Callable[[int, list[Header], bytes], None]
"""Writes an answer: its status, its headers, its body."""

_log = logging.getLogger(__name__)


class Keys(Protocol):
    """Who may do what."""

    @property
    def is_open(self) -> bool: ...

    def authenticate(self, authorization: bytes | None, x_api_key: bytes | None) -> Caller | Refusal: ...


class Route(NamedTuple):
    handler: Handler
    scope: KeyScope | None
    """What the key must be allowed to; None for everybody."""
    endpoint: str
    """The path as it was declared: a label for metrics that no client can make up."""
    is_quiet: bool
    """Whether its successes are left out of the log: a probe asks every few seconds."""
    whole: WholeHandler | None = None
    """The short way for requests that come whole."""


class Routes:
    """Paths and methods that are known exactly. HEAD comes with GET."""

    def __init__(self) -> None:
        self._by_path: dict[str, dict[str, Route]] = {}

    def add(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        scope: KeyScope | None = None,
        is_quiet: bool = False,
        whole: WholeHandler | None = None,
    ) -> None:
        route = Route(handler, scope, path, is_quiet, whole)
        by_method = self._by_path.setdefault(path, {})
        by_method[method] = route
        if method == "GET":
            by_method.setdefault("HEAD", route)

    def find(self, path: str) -> dict[str, Route] | None:
        """What a path offers. A slash too many is forgiven: clients join URLs in every way there is."""
        found = self._by_path.get(path)
        if found is None and (path.endswith("/") or "//" in path):
            found = self._by_path.get("/" + "/".join(part for part in path.split("/") if part))
        return found

    def short(self) -> dict[bytes, Route]:
        """Those that have a short way, by their target in the request's first line. All are for POST."""
        return {
            path.encode(): route
            for path, by_method in self._by_path.items()
            if (route := by_method.get("POST")) is not None and route.whole is not None
        }


class Rest(NamedTuple):
    """What is asked for anything that `Routes` does not know: an ordinary ASGI application, such as Starlette's."""

    app: ASGIApp
    scope: Callable[[str, str], KeyScope | None]
    """What a method on a path needs; the path as it was sent, since in a part of it a slash is written %2F."""


class Edge:
    """The ASGI application that the server runs."""

    def __init__(  # noqa: PLR0913 - the parts that it joins, each by its name
        self,
        routes: Routes,
        *,
        keys: Keys,
        budget: Budget,
        limits: Limits,
        addresses: ClientAddress,
        log: Log,
        metrics: HttpMetrics,
        cors_origins: Sequence[str] = (),
        is_for_this_machine: bool = False,
        rest: Rest | None = None,
        page: Page | None = None,
        lifespan: Lifespan | None = None,
    ) -> None:
        self._routes = routes
        self._keys = keys
        self._budget = budget
        self._limits = limits
        self._addresses = addresses
        self._access_log = log
        self._metrics = metrics
        self._cors = Cors(cors_origins) if cors_origins else None
        self._is_for_this_machine = is_for_this_machine
        self._named_hosts = frozenset(_host_of(origin.partition("://")[2].lower().encode()) for origin in cors_origins)
        self._rest = rest
        self._page = page
        self._lifespan = lifespan
        self._ids = CorrelationIds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._serve_other(scope, receive, send)
            return
        began = perf_counter()
        headers = joined_headers(scope["headers"])
        request = Request(
            scope["method"],
            scope["path"],
            scope["query_string"],
            headers,
            receive,
            self._ids.take(headers.get(correlation_id.HEADER)),
            self._addresses.of(scope["client"], headers.get(b"x-forwarded-for")),
        )
        route = None
        problem = None
        status = CLIENT_GONE
        try:
            by_method = self._routes.find(request.path)
            if by_method is None:
                response = await self._serve_rest(scope, request, send)
            else:
                route = by_method.get(request.method)
                response = await self._serve(request, route, by_method)
        except ClientDisconnect:
            response = None
        except asyncio.CancelledError:
            # The grace period is over (shutdown_grace). Nothing was acknowledged, and this is no defect.
            problem = unavailable("The server stops. Nothing of this request is acknowledged: send it again.")
            response = problem_response(problem, request.path, request.correlation_id)
        except Exception as error:  # noqa: BLE001 - a defect of ours: it is told once, whole, and the client gets words
            problem = self._problem(request, error)
            response = problem_response(problem, request.path, request.correlation_id)
        finally:
            if request.reserved:
                self._budget.release(request)
        if isinstance(response, Response):
            status = response.status
            await self._send(request, response, send)
        elif response is not None:
            status = response
        place = scope.get("state", {}).get("endpoint") if route is None else None
        self._told(request, route, status, perf_counter() - began, problem, place)

    @property
    def short(self) -> dict[bytes, Route]:
        """The routes of `serve_whole`, by their target."""
        return self._routes.short()

    def serve_whole(
        self, route: Route, headers: dict[bytes, bytes], body: bytes, peer: tuple[str, int] | None, reply: Reply
    ) -> bool:
        """Serve an ordinary request that has come whole, without the task and the messages of ASGI.

        They cost more than judging the event. False for whatever is to be refused: nothing is done then, and the usual
        way tells it. (An ordinary request has no Origin, and a body that is sent as it is.)
        """
        began = perf_counter()
        request = Request(
            "POST",
            route.endpoint,
            b"",
            headers,
            _nothing_more,
            self._ids.take(headers.get(correlation_id.HEADER)),
            self._addresses.of(peer, headers.get(b"x-forwarded-for")),
        )

        def told(outcome: Response | Exception) -> None:
            self._budget.release(request)
            problem = None
            if isinstance(outcome, Exception):
                problem = self._problem(request, outcome)
                outcome = problem_response(problem, request.path, request.correlation_id)
            reply(outcome.status, self._headers(request, outcome), outcome.body)
            self._told(request, route, outcome.status, perf_counter() - began, problem)

        is_taken = False
        try:
            if route.scope is not None:
                self._authenticate(request, route.scope)
            is_taken = route.whole is not None and route.whole(request, body, told)
        except Exception:  # noqa: BLE001, S110 (the usual way meets it again, and tells it)
            pass
        finally:
            if not is_taken:
                self._budget.release(request)
        return is_taken

    async def _serve(self, request: Request, route: Route | None, by_method: dict[str, Route]) -> Response:
        if b"origin" in request.headers:
            self._check_origin(request)
        if route is None:
            return self._without_route(request, by_method)
        if route.scope is not None:
            self._authenticate(request, route.scope)
        return await route.handler(request)

    def _authenticate(self, request: Request, scope: KeyScope) -> None:
        headers = request.headers
        authorization, x_api_key = headers.get(b"authorization"), headers.get(b"x-api-key")
        # Programs send events, and they bring their keys: a cookie is for people.
        if authorization is None and x_api_key is None and scope != "ingest" and b"cookie" in headers:
            x_api_key = self._key_of_session(request)
        caller = self._keys.authenticate(authorization, x_api_key)
        if isinstance(caller, Refusal):
            raise refused(caller)
        request.caller = caller
        if caller.key_id is None and self._is_for_this_machine:
            self._check_host(request)
        if scope not in caller.scopes:
            refusal = permit(caller, scope)
            if refusal is not None:
                raise refused(refusal)
        # Whoever has sent too much already is told so before the next body is read.
        self._limits.refuse_spent(request)

    def _key_of_session(self, request: Request) -> bytes | None:
        """Of somebody who is signed in. The browser sends it by itself, so a page of ours must have asked."""
        key = key_in(request)
        if key is None or request.method in _READING_METHODS or is_of_this_site(request):
            return key
        origin = request.headers.get(b"origin")
        if origin is not None and self._cors is not None and self._cors.names(origin):
            return key
        raise HttpProblem(
            FORBIDDEN,
            "A browser that is signed in may write from a page of this server only, and it does not say that it does. "
            "Behind a proxy that changes the Host header, name the address of the pages in cors_origins.",
        )

    def _check_host(self, request: Request) -> None:
        """Who may be anybody has to call the server by a name of this machine.

        A page can have the name of its own site point here (DNS rebinding). For the browser it then calls its own site,
        and no Origin tells otherwise; but the name is still that of the site.
        """
        host = request.headers.get(b"host")
        if host is None or _is_this_machine(host) or _host_of(host.lower()) in self._named_hosts:
            return
        raise HttpProblem(
            FORBIDDEN,
            "This server has no keys, so it is for this machine only and has to be called by a name of it, such as "
            f"localhost or 127.0.0.1; {_shown(host)} is none. Create keys, name its origin in cors_origins, or say "
            "--insecure if anybody who can reach the server may use it.",
        )

    def _check_origin(self, request: Request) -> None:
        """No page of another site may write to a server that takes anybody: a browser would carry it in from outside.

        (With keys this cannot happen, since a browser does not send them by itself.)
        """
        if request.method in _READING_METHODS or not self._keys.is_open:
            return
        origin = request.headers[b"origin"].lower()
        if origin.partition(b"://")[2] == request.headers.get(b"host", b"").lower():
            return
        if self._cors is None or not self._cors.allows(origin):
            raise HttpProblem(
                FORBIDDEN,
                f"This server has no keys, so pages of other sites may not write to it, and {_shown(origin)} is one. "
                "Name it in cors_origins, or create keys.",
            )

    def _without_route(self, request: Request, by_method: dict[str, Route]) -> Response:
        methods = ", ".join(sorted({*by_method, "OPTIONS"}))
        allow = (b"allow", methods.encode())
        if request.method != "OPTIONS":
            raise HttpProblem(
                METHOD_NOT_ALLOWED, f"{request.method} is not for this path; it takes {methods}.", headers=(allow,)
            )
        if self._cors is not None and b"origin" in request.headers:
            return self._cors.preflight(request, methods)
        return Response(_NO_CONTENT, b"", (allow,))

    async def _serve_rest(self, scope: Scope, request: Request, send: Send) -> Response | int:
        """An answer, or the status of one that the other application has already sent."""
        page = None if self._page is None else self._page(request)
        if page is not None:
            scope.setdefault("state", {})["endpoint"] = _PAGES
            return page
        rest = self._rest
        if rest is None:
            raise _nothing_here(request)
        if b"origin" in request.headers:
            self._check_origin(request)
            if request.method == "OPTIONS" and self._cors is not None:
                return self._cors.preflight(request, "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
        sent: bytes = scope.get("raw_path") or request.path.encode()
        needed = rest.scope(request.method, sent.partition(b"?")[0].decode("latin-1"))
        if needed is not None:
            self._authenticate(request, needed)
        scope.setdefault("state", {})["request"] = request
        # Starlette's router raises its 404 and 405, instead of answering in plain text, when it is part of something.
        scope.setdefault("app", self)
        sender = _Sender(send, self._common_headers(request))
        try:
            await rest.app(scope, request.receive, sender)
        except Exception as error:
            if sender.status is not None:
                # Half an answer is out. uvicorn closes the connection, so that nobody takes it for a whole one.
                self._failed(request, error)
                return sender.status
            if isinstance(error, HTTPException):
                raise _of_framework(error, request) from None
            raise
        return CLIENT_GONE if sender.status is None else sender.status

    def _common_headers(self, request: Request) -> list[Header]:
        headers = [_NOSNIFF, (correlation_id.HEADER, request.correlation_id.encode())]
        if self._cors is not None:
            headers += self._cors.headers(request)
        return headers

    def _headers(self, request: Request, response: Response) -> list[Header]:
        headers: list[Header] = [*response.headers, _NOSNIFF, (correlation_id.HEADER, request.correlation_id.encode())]
        if response.status != _NO_CONTENT:
            headers.append((b"content-length", b"%d" % len(response.body)))
        if self._cors is not None:
            headers += self._cors.headers(request)
        return headers

    async def _send(self, request: Request, response: Response, send: Send) -> None:
        headers = self._headers(request, response)
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    def _problem(self, request: Request, error: Exception) -> HttpProblem:
        return error if isinstance(error, HttpProblem) else self._failed(request, error)

    def _failed(self, request: Request, error: Exception) -> HttpProblem:
        _log.error(
            "%s %s failed",
            request.method,
            request.path,
            exc_info=error,
            extra={"correlation_id": request.correlation_id},
        )
        return HttpProblem(
            INTERNAL,
            "The server failed at this request; its log says why, under the correlation id. Nothing is acknowledged, "
            "and it is safe to send the same again.",
        )

    def _told(
        self,
        request: Request,
        route: Route | None,
        status: int,
        seconds: float,
        problem: HttpProblem | None,
        place: str | None = None,
    ) -> None:
        """`place` is what the rest calls the path, where it knows it."""
        endpoint = (place or _OTHER) if route is None else route.endpoint
        metrics = self._metrics
        metrics.requests.add((endpoint, status))
        metrics.request_seconds.observe(seconds, (endpoint,))
        if request.bytes_in:
            metrics.body_bytes.add((), request.bytes_in)
        if request.events is not None:
            metrics.count_events(endpoint, *request.events)
        if problem is not None:
            metrics.refused.add((problem.kind.slug,))
        elif route is not None and route.is_quiet and status < _SERVER_ERROR:
            return
        self._access_log.request(request, status, seconds, None if problem is None else problem.kind.slug)

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:  # a WebSocket: there are none here
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        if self._lifespan is not None:
            async with self._lifespan():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        else:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


class Cors:
    """Which pages of other sites may call the server from a browser."""

    _ALLOWED_HEADERS: Final[Header] = (
        b"access-control-allow-headers",
        b"Authorization, X-API-Key, Content-Type, Content-Encoding, X-Correlation-ID",
    )
    _EXPOSED: Final[Header] = (b"access-control-expose-headers", b"X-Correlation-ID, Retry-After")
    _MAX_AGE: Final[Header] = (b"access-control-max-age", b"600")
    _VARY: Final[Header] = (b"vary", b"Origin")

    def __init__(self, origins: Sequence[str]) -> None:
        self._allows_all = "*" in origins
        self._origins = frozenset(origin.lower().encode() for origin in origins)

    def names(self, origin: bytes) -> bool:
        return origin.lower() in self._origins

    def allows(self, origin: bytes) -> bool:
        return self._allows_all or origin.lower() in self._origins

    def headers(self, request: Request) -> tuple[Header, ...]:
        """What every answer carries, so that the browser lets the page read it."""
        if self._allows_all:
            return ((b"access-control-allow-origin", b"*"), self._EXPOSED)
        origin = request.headers.get(b"origin")
        if origin is None or not self.allows(origin):
            return (self._VARY,)
        return ((b"access-control-allow-origin", origin), self._EXPOSED, self._VARY)

    def preflight(self, request: Request, methods: str) -> Response:
        """The browser's question before the request itself. It never carries a key, so none is asked for."""
        origin = request.headers[b"origin"]
        if not self.allows(origin):
            raise HttpProblem(
                FORBIDDEN, f"Pages of {_shown(origin)} may not call this server; name the origin in cors_origins."
            )
        return Response(
            _NO_CONTENT,
            b"",
            ((b"access-control-allow-methods", methods.encode()), self._ALLOWED_HEADERS, self._MAX_AGE),
        )


class _Sender:
    """Passes another application's answer on, with our headers, and remembers its status."""

    def __init__(self, send: Send, headers: list[Header]) -> None:
        self._send = send
        self._headers = headers
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
        await self._send(message)


async def _nothing_more() -> Message:
    """What comes after a body that is whole."""
    return {"type": "http.disconnect"}


def refused(refusal: Refusal) -> HttpProblem:
    return HttpProblem(
        kind_for(refusal.status), refusal.detail, members={"reason": refusal.reason}, headers=refusal.headers
    )


def _nothing_here(request: Request) -> HttpProblem:
    return HttpProblem(NOT_FOUND, f"Nothing is served at {request.path[:200]!a}. GET /docs tells what is.")


def _of_framework(error: HTTPException, request: Request) -> HttpProblem:
    kind = kind_for(error.status_code)
    if kind is NOT_FOUND:
        return _nothing_here(request)
    headers = tuple((name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items())
    return HttpProblem(kind, error.detail, headers=headers)


def _host_of(authority: bytes) -> bytes:
    """Without the port."""
    host, colon, port = authority.rpartition(b":")
    return host if colon and port.isdigit() else authority


@lru_cache(maxsize=256)
def _is_this_machine(authority: bytes) -> bool:
    host = _host_of(authority.lower()).decode("latin-1").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _shown(origin: bytes) -> str:
    return ascii(origin.decode("latin-1")[:100])
