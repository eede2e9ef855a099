"""The door for questions: finds the operation of a request, reads the request, has it answered, writes the answer."""

from typing import Any, Final
from urllib.parse import unquote

from starlette.routing import Route, Router

from correlator.http.bodies import BodyReader
from correlator.http.callers import permit
from correlator.http.edge import Rest, Routes
from correlator.http.exchange import JSON, Handler, Header, Receive, Request, Response, Scope, Send, encode
from correlator.http.problems import FORBIDDEN, METHOD_NOT_ALLOWED, HttpProblem
from correlator.key_scopes import Scope as KeyScope
from correlator.server.api.catalogue import OPERATIONS
from correlator.server.api.operations import (
    Asked,
    Context,
    MovedError,
    Operation,
    by_path,
    choose,
    read_body,
    read_query,
)
from correlator.server.api.questions import Connection, Questions

_NO_CONTENT: Final = 204
_MOVED: Final = 308
# Answers about facts are of their moment, and may be for one reader only.
_NO_STORE: Final[Header] = (b"cache-control", b"no-store")
_SHARED: Final = "/api/v1/lineage"
"""A path that takes events too."""


class Door:
    def __init__(self, context: Context, questions: Questions, bodies: BodyReader) -> None:
        self._context = context
        self._questions = questions
        self._bodies = bodies
        routes = [Route(path, _Place(self, operations), methods=None) for path, operations in _BY_PATH.items()]
        self._router = Router(routes, redirect_slashes=False)

    @property
    def rest(self) -> Rest:
        """For the edge, whose own routes go first."""
        return Rest(self._serve_encoded, _scope_of)

    def add_shared(self, routes: Routes) -> None:
        for operation in _BY_PATH[_SHARED]:
            routes.add(operation.method, operation.path, self._handler(operation), scope=operation.scope)

    def _handler(self, operation: Operation) -> Handler:
        async def handler(request: Request) -> Response:
            return await self.answer(operation, request, {})

        return handler

    async def answer(self, operation: Operation, request: Request, path: dict[str, str]) -> Response:
        caller = request.caller
        # The edge has asked already, by the path; here it is the operation itself that asks, lest the two differ.
        refusal = None if caller is None else permit(caller, operation.scope)
        if caller is None or refusal is not None:
            raise HttpProblem(
                FORBIDDEN, f"This needs the scope {operation.scope}." if refusal is None else refusal.detail
            )
        query = read_query(operation, request.query_string)
        body = None if operation.body is None else read_body(operation.body, await self._bodies.read(request))
        asked = Asked(self._context, path, query, body, caller.name)

        def work(connection: Connection) -> bytes | None:
            said = operation.answer(connection, asked)
            # In the thread: a large answer takes a while.
            return None if said is None else encode(said)

        try:
            written = await self._questions.ask(work, operation.mode)
        except MovedError as moved:
            return Response(_MOVED, b"", ((b"location", moved.location.encode()), _NO_STORE))
        if written is None:
            return Response(_NO_CONTENT, b"", (_NO_STORE,))
        return Response(operation.status, written, (JSON, _NO_STORE))

    async def _serve_encoded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """By the path as it was sent: in a name that is a part of it a slash is written %2F."""
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        path = raw.partition(b"?")[0].decode("latin-1")
        await self._router({**scope, "path": path.rstrip("/") or "/", "root_path": ""}, receive, send)


class _Place:
    """What Starlette calls for a path: all of its methods."""

    def __init__(self, door: Door, operations: list[Operation]) -> None:
        self._door = door
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        request: Request = scope["state"]["request"]
        # For the metrics: the path as it is declared, which no client can make up.
        scope["state"]["endpoint"] = self._operations[0].written_path
        operation = choose(self._operations, request.method)
        if operation is None:
            methods: list[str] = sorted({each.method for each in self._operations})
            methods += ["HEAD"] if "GET" in methods else []
            allow = (b"allow", ", ".join(sorted(methods)).encode())
            raise HttpProblem(
                METHOD_NOT_ALLOWED,
                f"{request.method} is not for this path; it takes {', '.join(methods)}.",
                headers=(allow,),
            )
        path = {name: unquote(value, errors="replace") for name, value in scope["path_params"].items()}
        response = await self._door.answer(operation, request, path)
        headers = list(response.headers)
        if response.status != _NO_CONTENT:
            headers.append((b"content-length", b"%d" % len(response.body)))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})


_BY_PATH: Final = by_path(OPERATIONS)
_NOTHING: Final[Any] = object()
_SCOPES: Final = Router([Route(path, _NOTHING, methods=None) for path in _BY_PATH], redirect_slashes=False)


def _scope_of(method: str, path: str) -> KeyScope | None:
    """What the edge is to ask for; whatever there is not is told to everybody."""
    asked = {"type": "http", "path": path.rstrip("/") or "/", "method": method, "root_path": ""}
    for route in _SCOPES.routes:
        match, _ = route.matches(asked)
        if match.value and isinstance(route, Route):
            operation = choose(_BY_PATH[route.path], method)
            return None if operation is None else operation.scope
    return None
