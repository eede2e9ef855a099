"""The edge around a tiny handler, over a real socket: routes, keys, problems, CORS, bodies, log and metrics."""

import asyncio
import gzip
import json
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import zstandard
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route, Router

from correlator.http.bodies import BodyReader, Budget
from correlator.http.callers import ANYBODY, Caller, Refusal
from correlator.http.connections import BoundedConnection, bounded
from correlator.http.edge import Edge, Keys, Lifespan, Rest, Routes
from correlator.http.exchange import ClientDisconnect, EventCounts, Request, Response, answer
from correlator.http.limits import Buckets, ClientAddress, Limits
from correlator.http.metrics import render
from correlator.http.problems import CONFLICT, HttpProblem
from correlator.http.request_log import Log
from correlator.server.auth import KeyCache
from correlator.server.metrics import Metrics
from correlator.store.api_keys import create_key
from correlator.store.database import Database
from tests.integration.server.listening import Address, listening

EVENT = b'{"eventType": "START"}'
CORRELATION = "X-Correlation-ID"


class NoKeys:
    """A server that has no keys takes anybody; what it takes to know that needs a database."""

    is_open = True

    def authenticate(self, authorization: bytes | None, x_api_key: bytes | None) -> Caller | Refusal:
        del authorization, x_api_key
        return ANYBODY


class Site:
    """Everything that an edge joins, and a few handlers behind it."""

    def __init__(
        self,
        log: Path,
        *,
        keys: Keys | None = None,
        max_bytes: int = 1_000_000,
        receive_seconds: float = 30.0,
        events_per_second: float = 0.0,
        cors_origins: Sequence[str] = (),
        is_for_this_machine: bool = False,
        rest: Rest | None = None,
        lifespan: Lifespan | None = None,
    ) -> None:
        self.seen: list[Request] = []
        self.bodies: list[bytes] = []
        self.disconnects = 0
        self.budget = Budget(10_000_000)
        self.reader = BodyReader(max_bytes=max_bytes, receive_seconds=receive_seconds, budget=self.budget)
        self.limits = Limits(Buckets(0, 1), Buckets(events_per_second, 1))
        self.metrics = Metrics("0")
        self.descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.log = Log("json", descriptor=self.descriptor)
        routes = Routes()
        routes.add("POST", "/api/v1/lineage", self.take, scope="ingest")
        routes.add("GET", "/ping", self.ping, is_quiet=True)
        routes.add("GET", "/fail", self.fail)
        routes.add("GET", "/conflict", self.conflict)
        self.edge = Edge(
            routes,
            keys=keys or NoKeys(),
            budget=self.budget,
            limits=self.limits,
            addresses=ClientAddress(),
            log=self.log,
            metrics=self.metrics,
            cors_origins=cors_origins,
            is_for_this_machine=is_for_this_machine,
            rest=rest,
            lifespan=lifespan,
        )

    async def take(self, request: Request) -> Response:
        self.seen.append(request)
        try:
            body = await self.reader.read(request)
        except ClientDisconnect:
            self.disconnects += 1
            raise
        self.limits.admit(request, 1)
        self.bodies.append(body)
        request.events = EventCounts(1, 1, 0, 0)
        return answer({"bytes": len(body), "correlation_id": request.correlation_id})

    async def ping(self, request: Request) -> Response:
        self.seen.append(request)
        return Response(200, b'{"status":"ok"}')

    async def fail(self, request: Request) -> Response:
        raise ZeroDivisionError(f"a secret of {request.client}")

    async def conflict(self, request: Request) -> Response:
        raise HttpProblem(CONFLICT, "Somebody was faster.", members={"by": request.client})

    def close(self) -> None:
        self.log.close()
        os.close(self.descriptor)


@contextmanager
def serving(site: Site, connections: type[BoundedConnection] = BoundedConnection) -> Iterator[Address]:
    try:
        with listening(site.edge, connections) as address:
            yield address
    finally:
        site.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def site(log: Path) -> Site:
    return Site(log)


@pytest.fixture
def server(site: Site) -> Iterator[Address]:
    with serving(site) as address:
        yield address


def lines(log: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


# --- answers


def test_an_answer_has_the_handlers_body_and_the_edges_headers(server: Address) -> None:
    answered = server.post(EVENT)
    assert answered.status == 200
    assert answered.headers["content-type"] == "application/json"
    assert answered.headers["x-content-type-options"] == "nosniff"
    assert answered.json["bytes"] == len(EVENT)
    assert answered.json["correlation_id"] == answered.headers["x-correlation-id"]


def test_a_correlation_id_comes_back_if_it_is_safe(server: Address) -> None:
    assert server.post(EVENT, X_Correlation_ID="my-id-1").headers["x-correlation-id"] == "my-id-1"
    made = server.post(EVENT, X_Correlation_ID="no thank you <b>").headers["x-correlation-id"]
    assert made != "no thank you <b>"
    problem = server.ask("GET", "/nowhere", headers={CORRELATION: "my-id-2"})
    assert problem.json["correlation_id"] == problem.headers["x-correlation-id"] == "my-id-2"


def test_a_problem_of_a_handler_is_a_problem_document(server: Address) -> None:
    answered = server.ask("GET", "/conflict")
    assert answered.status == 409
    assert answered.headers["content-type"] == "application/problem+json"
    assert answered.json["type"] == "urn:correlator:problem:conflict"
    assert answered.json["instance"] == "/conflict"
    assert answered.json["by"] == "127.0.0.1"


def test_a_defect_is_answered_in_words_and_logged_once_with_its_traceback(
    server: Address, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    answered = server.ask("GET", "/fail", headers={CORRELATION: "broken-1"})
    assert answered.status == 500
    assert answered.json["type"] == "urn:correlator:problem:internal"
    assert "secret" not in answered.body.decode()
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    assert record.__dict__["correlation_id"] == "broken-1"
    assert server.post(EVENT).status == 200
    assert site.metrics.refused.value(("internal",)) == 1


# --- paths and methods


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/lineage/",
        "//api/v1/lineage",
        "/api//v1/lineage//",
        "/api/v1/lineage?api_key=x&timeout=5",
        "/api/v1/%6cineage",
    ],
)
def test_a_slash_too_many_and_a_query_do_no_harm(server: Address, path: str) -> None:
    assert server.post(EVENT, path).status == 200


@pytest.mark.parametrize(
    "path", ["/api", "/api/v1", "/api/v1/lineagex", "/API/V1/LINEAGE", "/%00", "/../ping", "/%F0%9F"]
)
def test_an_unknown_path_is_not_found(server: Address, path: str) -> None:
    answered = server.ask("GET", path)
    assert answered.status == 404
    assert answered.json["status"] == 404
    assert "/docs" in answered.json["detail"]


def test_a_known_path_names_its_methods(server: Address) -> None:
    for method in ("GET", "PUT", "DELETE", "PATCH", "HEAD"):
        answered = server.ask(method, "/api/v1/lineage")
        assert answered.status == 405
        assert answered.headers["allow"] == "OPTIONS, POST"
    answered = server.ask("OPTIONS", "/ping")
    assert answered.status == 204
    assert answered.headers["allow"] == "GET, HEAD, OPTIONS"


def test_head_is_get_without_the_body(server: Address) -> None:
    got, head = server.ask("GET", "/ping"), server.ask("HEAD", "/ping")
    assert head.status == 200
    assert head.body == b""
    assert head.headers["content-length"] == got.headers["content-length"] == "15"


# --- bodies, over the wire


@pytest.mark.parametrize(
    ("encoding", "compress"), [("gzip", gzip.compress), ("zstd", zstandard.compress), ("identity", bytes)]
)
def test_bodies_come_packed_or_plain(
    server: Address, site: Site, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    body = EVENT * 20_000
    assert server.post(compress(body), Content_Encoding=encoding).status == 200
    assert site.bodies == [body]
    assert site.budget.used == 0


def test_a_chunked_body_is_read_to_its_end(server: Address, site: Site) -> None:
    packed = gzip.compress(EVENT)
    with server.connect() as connection:
        connection.sendall(
            b"POST /api/v1/lineage HTTP/1.1\r\nHost: x\r\nContent-Type: application/json; charset=UTF-8\r\n"
            b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        )
        for byte in packed:
            connection.sendall(b"1\r\n" + bytes([byte]) + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        assert everything(connection).startswith(b"HTTP/1.1 200 ")
    assert site.bodies == [EVENT]


def test_a_body_that_is_too_large_is_refused_and_the_connection_goes_on(server: Address) -> None:
    with server.connect() as connection:
        connection.sendall(
            b"POST /api/v1/lineage HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n" + b"x" * 2_000_000
        )
        connection.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answered = everything(connection)
    assert answered.startswith(b"HTTP/1.1 413 ")
    assert b"HTTP/1.1 200 OK" in answered


def test_who_asks_before_sending_is_refused_before_sending(server: Address) -> None:
    with server.connect() as connection:
        connection.sendall(
            b"POST /api/v1/lineage HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\nExpect: 100-continue\r\n\r\n"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_goes_away_leaves_nothing_behind(server: Address, site: Site, log: Path) -> None:
    with server.connect() as connection:
        connection.sendall(b"POST /api/v1/lineage HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
        while not site.seen:
            server.ask("GET", "/conflict")
    while not site.disconnects:
        server.ask("GET", "/conflict")
    assert site.bodies == []
    assert site.budget.used == 0
    site.log.close()
    assert 499 in [line["status"] for line in lines(log)]


def test_a_slow_sender_is_given_up(log: Path) -> None:
    with serving(Site(log, receive_seconds=0.2)) as server, server.connect() as connection:
        connection.sendall(b"POST /api/v1/lineage HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
        answered = everything(connection)
    assert answered.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answered


# --- before there is a request


@pytest.mark.parametrize("start", [b"GET /ping HTTP/1.1\r\nX-Long: ", b"GET /", b"GET /ping HTTP/1.1\r\nx: y\r\nx: "])
def test_a_head_without_end_is_refused(server: Address, start: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(start)
        # One byte too many, and none after it: what a server has not read when it closes can cost its answer.
        connection.sendall(b"a" * (BoundedConnection.max_head_bytes - len(start) + 1))
        answered = everything(connection)
    assert answered.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    head, _, body = answered.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert json.loads(body)["type"] == "urn:correlator:problem:head-too-large"
    assert server.ask("GET", "/ping").status == 200


TOO_LARGE = b"GET /ping HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 1000 + b"\r\n\r\n"


def test_a_head_that_is_too_large_is_refused_even_if_it_comes_at_once(log: Path) -> None:
    small = bounded(max_head_bytes=1000, head_seconds=30.0)
    with serving(Site(log), small) as server, server.connect() as connection:
        connection.sendall(TOO_LARGE)
        assert everything(connection).startswith(b"HTTP/1.1 431 ")


def test_a_head_that_is_too_large_ends_the_connection_if_another_request_is_being_served(log: Path) -> None:
    small = bounded(max_head_bytes=1000, head_seconds=30.0)
    with serving(Site(log), small) as server, server.connect() as connection:
        connection.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n" + TOO_LARGE)
        assert everything(connection).count(b"HTTP/1.1 200 ") <= 1


def test_the_largest_head_passes_with_the_body_that_comes_with_it(log: Path) -> None:
    head = b"POST /api/v1/lineage HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5000\r\n\r\n"
    small = bounded(max_head_bytes=len(head), head_seconds=30.0)
    with serving(Site(log), small) as server, server.connect() as connection:
        connection.sendall(head + b"x" * 5000)
        assert everything(connection).startswith(b"HTTP/1.1 200 ")


def test_an_idle_connection_is_closed_after_some_time(log: Path) -> None:
    class Impatient(BoundedConnection):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.timeout_keep_alive = 0  # seconds

    with serving(Site(log), Impatient) as server, server.connect() as connection:
        connection.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
        assert everything(connection).count(b"HTTP/1.1 200 ") == 3


def test_who_does_not_take_its_answers_is_given_up(log: Path) -> None:
    page = b"p" * 1_000_000
    lost = threading.Event()

    class Impatient(BoundedConnection):
        head_seconds = 0.1

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.set()

    site = Site(log, rest=Rest(Router([Route("/page", lambda _: PlainTextResponse(page))]), lambda *_: None))
    with serving(site, Impatient) as server, server.connect() as connection:
        connection.sendall(b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        assert lost.wait(30)
        assert len(everything(connection)) < 20 * len(page)


def test_trailers_without_end_end_the_connection(server: Address) -> None:
    with server.connect() as connection:
        connection.sendall(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Long: ")
        with pytest.raises(OSError):  # noqa: PT011 - however the system calls it
            connection.sendall(b"a" * 100_000_000)


def test_what_is_no_http_gets_words(server: Address) -> None:
    with server.connect() as connection:
        connection.sendall(b"\x16\x03\x01 this is TLS, say\r\n\r\n")
        head, _, body = everything(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert json.loads(body)["type"] == "urn:correlator:problem:bad-request"


@pytest.mark.parametrize("start", [b"", b"GET /ping HTTP/1.1\r\nHost: "])
def test_a_head_that_does_not_come_is_not_waited_for(log: Path, start: bytes) -> None:
    impatient = bounded(max_head_bytes=1000, head_seconds=0.1)
    with serving(Site(log), impatient) as server, server.connect() as connection:
        connection.sendall(start)
        assert everything(connection) == b""


def test_a_slow_body_is_not_a_slow_head(log: Path) -> None:
    """A body has its own time; the timer for heads must not cut into it, nor into the next request."""
    impatient = bounded(max_head_bytes=1000, head_seconds=0.2)
    site = Site(log)
    with serving(site, impatient) as server, server.connect() as connection:
        connection.sendall(b"POST /api/v1/lineage HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n" + b"x" * 2000)
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(30)
        connection.sendall(b"x" * 3000)
        connection.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answered = everything(connection)
    assert answered.count(b"HTTP/1.1 200 OK") == 2
    assert len(site.bodies[0]) == 5000


# --- who may


def test_keys_are_asked_for_by_scope(log: Path, database: Database) -> None:
    with database.connect("test", autocommit=True) as connection:
        sender = create_key(connection, "airflow", {"ingest"}, actor="test").secret
        reader = create_key(connection, "grafana", {"read"}, actor="test").secret
    with KeyCache(database) as keys, serving(Site(log, keys=keys)) as server:
        assert server.ask("GET", "/ping").status == 200
        missing = server.post(EVENT)
        assert missing.status == 401
        assert missing.json["reason"] == "missing_key"
        assert missing.headers["www-authenticate"].startswith("Bearer")
        assert server.post(EVENT, Authorization=f"Bearer {sender}").status == 200
        assert server.post(EVENT, X_API_Key=sender).status == 200
        assert server.post(EVENT, X_API_Key=f"{sender}x").status == 401
        other = server.post(EVENT, X_API_Key=reader)
        assert other.status == 403
        assert "ingest" in other.json["detail"]
        assert server.post(EVENT, Origin="https://elsewhere.example", X_API_Key=sender).status == 200
    logged = log.read_text()
    assert '"key":"airflow"' in logged
    assert sender not in logged
    assert reader not in logged


def test_a_sender_over_its_limit_is_told_when_to_come_back(log: Path) -> None:
    with serving(Site(log, events_per_second=0.01)) as server:
        assert server.post(EVENT).status == 200
        answered = server.post(EVENT)
        assert answered.status == 429
        assert int(answered.headers["retry-after"]) > 90
        assert "rate_limit_per_address" in answered.json["detail"]
        assert server.post(EVENT).status == 429


# --- browsers


def test_cors_is_off_by_default(server: Address) -> None:
    asked = {"Origin": "https://ui.example", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in server.ask("OPTIONS", "/api/v1/lineage", headers=asked).headers
    assert "access-control-allow-origin" not in server.ask("GET", "/ping", headers=asked).headers


def test_a_preflight_is_answered_without_a_key(log: Path, database: Database) -> None:
    asked = {
        "Origin": "https://ui.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    with database.connect("test", autocommit=True) as connection:
        create_key(connection, "airflow", {"ingest"}, actor="test")
    with (
        KeyCache(database) as keys,
        serving(Site(log, keys=keys, cors_origins=["https://ui.example"])) as server,
    ):
        allowed = server.ask("OPTIONS", "/api/v1/lineage", headers=asked)
        assert allowed.status == 204
        assert allowed.headers["access-control-allow-origin"] == "https://ui.example"
        assert "POST" in allowed.headers["access-control-allow-methods"]
        assert "Authorization" in allowed.headers["access-control-allow-headers"]
        assert "X-API-Key" in allowed.headers["access-control-allow-headers"]
        assert allowed.headers["access-control-max-age"] == "600"
        assert allowed.headers["vary"] == "Origin"
        refused = server.ask("OPTIONS", "/api/v1/lineage", headers={**asked, "Origin": "https://evil.example"})
        assert refused.status == 403
        assert "access-control-allow-origin" not in refused.headers
        # The page may read errors too.
        answered = server.post(EVENT, Origin="https://ui.example")
        assert answered.status == 401
        assert answered.headers["access-control-allow-origin"] == "https://ui.example"
        assert "X-Correlation-ID" in answered.headers["access-control-expose-headers"]
        assert server.ask("GET", "/ping").headers["vary"] == "Origin"


def test_a_star_lets_every_page_in(log: Path) -> None:
    with serving(Site(log, cors_origins=["*"])) as server:
        answered = server.post(EVENT, Origin="https://any.example")
        assert answered.status == 200
        assert answered.headers["access-control-allow-origin"] == "*"


def test_pages_of_other_sites_cannot_write_to_a_server_without_keys(server: Address) -> None:
    refused = server.post(EVENT, Origin="https://evil.example")
    assert refused.status == 403
    assert "cors_origins" in refused.json["detail"]
    assert server.post(EVENT, Origin=f"http://127.0.0.1:{server.port}").status == 200
    assert server.ask("GET", "/ping", headers={"Origin": "https://evil.example"}).status == 200


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:8080", "correlator.localhost", "named.example"])
def test_a_server_for_this_machine_is_called_by_its_names(log: Path, host: str) -> None:
    with serving(Site(log, is_for_this_machine=True, cors_origins=["https://named.example"])) as server:
        assert server.post(EVENT, Host=host).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "192.168.0.1"])
def test_a_page_whose_name_points_to_this_machine_is_refused(log: Path, host: str) -> None:
    with serving(Site(log, is_for_this_machine=True)) as server:
        refused = server.post(EVENT, Host=host, Origin=f"http://{host}")
        assert refused.status == 403
        assert "a name of it, such as localhost" in refused.json["detail"]
        assert server.ask("GET", "/ping", headers={"Host": host}).status == 200


# --- what is told of it


def test_each_request_is_one_line_and_probes_are_none(server: Address, site: Site, log: Path) -> None:
    server.post(EVENT, path="/api/v1/lineage?api_key=secret", X_Correlation_ID="one")
    server.ask("GET", "/ping")
    server.ask("GET", "/nowhere%0Aforged", headers={CORRELATION: "two"})
    site.log.close()
    first, second = lines(log)
    assert (first["status"], first["correlation_id"], first["stored"], first["bytes_in"]) == (200, "one", 1, len(EVENT))
    assert (second["status"], second["problem"], second["path"]) == (404, "not-found", "/nowhere\nforged")
    assert "secret" not in log.read_text()
    assert "START" not in log.read_text()


def test_each_request_is_counted_under_a_path_that_no_client_makes_up(server: Address, site: Site) -> None:
    server.post(EVENT, path="/api/v1/lineage/")
    server.ask("GET", "/nowhere/at/all")
    assert site.metrics.requests.value(("/api/v1/lineage", 200)) == 1
    assert site.metrics.requests.value(("other", 404)) == 1
    assert site.metrics.events.value(("/api/v1/lineage", "stored")) == 1
    assert site.metrics.body_bytes.value() == len(EVENT)
    assert b"nowhere" not in render(site.metrics.families())


# --- what else runs behind it


def starlette_rest() -> Rest:
    async def hello(request: StarletteRequest) -> JSONResponse:
        seen: Request = request.state.request
        return JSONResponse({"name": request.path_params["name"], "correlation_id": seen.correlation_id})

    async def breaks_off(_: StarletteRequest) -> StreamingResponse:
        async def half() -> AsyncIterator[bytes]:
            yield b"half"
            await asyncio.sleep(0)
            raise ZeroDivisionError

        return StreamingResponse(half())

    router = Router([Route("/api/v1/hello/{name}", hello), Route("/half", breaks_off)])
    return Rest(router, lambda _, path: "read" if path.startswith("/api/") else None)


def test_everything_else_goes_to_another_application(log: Path) -> None:
    with serving(Site(log, rest=starlette_rest())) as server:
        answered = server.ask("GET", "/api/v1/hello/you", headers={CORRELATION: "rest-1"})
        assert answered.json == {"name": "you", "correlation_id": "rest-1"}
        assert answered.headers["x-correlation-id"] == "rest-1"
        assert server.ask("GET", "/nowhere").json["type"] == "urn:correlator:problem:not-found"
        other = server.ask("POST", "/api/v1/hello/you")
        assert other.status == 405
        assert other.json["type"] == "urn:correlator:problem:method-not-allowed"
        assert "GET" in other.headers["allow"]


def test_half_an_answer_is_never_taken_for_a_whole_one(log: Path) -> None:
    with serving(Site(log, rest=starlette_rest())) as server, server.connect() as connection:
        connection.sendall(b"GET /half HTTP/1.1\r\nHost: x\r\n\r\n")
        answered = everything(connection)
    assert answered.startswith(b"HTTP/1.1 200 ")
    assert not answered.endswith(b"0\r\n\r\n")


def test_what_lives_as_long_as_the_server_is_begun_and_ended(log: Path) -> None:
    happened = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        happened.append("begun")
        yield
        happened.append("ended")

    with serving(Site(log, lifespan=lifespan)) as server:
        assert happened == ["begun"]
        assert server.ask("GET", "/ping").status == 200
    assert happened == ["begun", "ended"]


def everything(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received
