"""The server against its own OpenAPI document: thousands of made-up requests, and each status once by hand."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from jsonschema import Draft202012Validator
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import negative_data_rejection

from correlator import __version__
from correlator.config import ServerSettings
from correlator.server.openapi import document
from correlator.server.sessions import PATH as SESSION
from correlator.store.api_keys import create_key
from correlator.store.database import Database
from tests.integration.conftest import Postgres, database_url, new_database, reachable_directory
from tests.integration.events import run_event
from tests.integration.server.running import PATIENCE, Answer, Server, running, wait_until

EXAMPLES = 100
"""Made up for each operation, beside those that its schema's limits ask for."""


@pytest.fixture(scope="module")
def server(postgres: Postgres, migrated_template: str) -> Iterator[Server]:
    """One as it comes."""
    with (
        new_database(postgres, migrated_template) as name,
        reachable_directory() as directory,
        running(directory, database=Database(database_url(postgres, name))) as server,
    ):
        yield server


TIGHT = (
    *("--max-event-bytes", "50kB"),
    *("--max-request-bytes", "100kB"),
    *("--max-batch-events", "5"),
    *("--max-waiting-events", "1"),
    *("--max-head-bytes", "4kB"),
    *("--request-timeout", "500ms"),
)


@pytest.fixture(scope="module")
def tight(postgres: Postgres, migrated_template: str) -> Iterator[Server]:
    """One whose limits are easy to reach."""
    with (
        new_database(postgres, migrated_template) as name,
        reachable_directory() as directory,
        running(directory, *TIGHT, database=Database(database_url(postgres, name))) as server,
    ):
        yield server


Locked = tuple[Server, str, str]


@pytest.fixture(scope="module")
def locked(postgres: Postgres, migrated_template: str) -> Iterator[Locked]:
    """One that wants a key, a key that may send events (very few of them), and one that may not."""
    with new_database(postgres, migrated_template) as name, reachable_directory() as directory:
        database = Database(database_url(postgres, name))
        with database.connect("test") as connection:
            good = create_key(connection, "sender", {"ingest"}, actor="test").secret
            other = create_key(connection, "reader", {"read"}, actor="test").secret
        limits = ("--rate-limit-per-key", "0.01", "--rate-limit-burst", "1s")
        with running(directory, *limits, database=database) as server:
            yield server, good, other


# Made up by Schemathesis: every check it has, with good and bad requests, at every operation.

DESCRIBED = schemathesis.openapi.from_dict(
    document(ServerSettings(), __version__),
    config=SchemathesisConfig.from_dict({"generation": {"deterministic": True}}),
).include(tag=["ingest", "operation"])
ARRAYS = {"/api/v1/lineage/batch", "/api/v1/lineage/events"}


@DESCRIBED.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_documented(case: "schemathesis.Case[Any]", server: Server) -> None:
    # One bad event does not refuse an array: that it is named is checked here.
    takes_arrays = case.path in ARRAYS
    response = case.call_and_validate(
        base_url=server.url, excluded_checks=[negative_data_rejection] if takes_arrays else []
    )
    if takes_arrays and _has_a_bad_body(case) and response.status_code < 400:
        said = json.loads(response.content)
        assert said["failed"] if "failed" in said else said["summary"]["failed"]


def _has_a_bad_body(case: "schemathesis.Case[Any]") -> bool:
    component = None if case.meta is None else case.meta.components.get(ParameterLocation.BODY)
    return component is not None and component.mode is GenerationMode.NEGATIVE


@DESCRIBED.parametrize()
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_without_a_key_every_answer_is_as_documented_too(case: "schemathesis.Case[Any]", locked: Locked) -> None:
    locked_server, _, _ = locked
    response = case.call_and_validate(base_url=locked_server.url, excluded_checks=[negative_data_rejection])
    # Who signs in has no key yet: there a body that says nothing is told so.
    if case.path.startswith("/api/") and case.path != SESSION and case.method.upper() == "POST":
        assert response.status_code in {400, 401}


def test_the_document_is_the_one_that_was_tested(server: Server) -> None:
    served = server.get("/openapi.json").json()
    assert served == json.loads(json.dumps(document(ServerSettings(), __version__)))


# Each status by hand.

ONE, BATCH, EVENTS = "/api/v1/lineage", "/api/v1/lineage/batch", "/api/v1/lineage/events"


def event(**changes: Any) -> bytes:
    return json.dumps(run_event(run_id=str(uuid4()), **changes)).encode()


BAD = json.dumps(run_event() | {"job": {"namespace": "tests"}}).encode()


def conforms(server: Server, path: str, answer: Answer, status: int, method: str = "post") -> Any:
    """The answer's JSON, when status, headers and body are what the document says."""
    described = server.get("/openapi.json").json()
    assert answer.status == status, answer.body
    responses = described["paths"].get(path, {}).get(method, {}).get("responses", {})
    # What has no operation has no place of its own in the document.
    response = responses.get(str(status)) or described["components"]["responses"][str(status)]
    response = _resolved(described, response)
    for name, header in response["headers"].items():
        value: Any = answer.header(name)
        assert value is not None, name
        schema = _resolved(described, header)["schema"]
        Draft202012Validator(schema).validate(int(value) if schema["type"] == "integer" else value)
    ((media_type, content),) = response["content"].items()
    assert answer.header("Content-Type") == media_type
    said = answer.json()
    Draft202012Validator({**content["schema"], "components": described["components"]}).validate(said)
    if status >= 400:
        assert said["status"] == status
        assert said["instance"] == path
        assert said["correlation_id"] == answer.header("X-Correlation-ID")
    return said


def _resolved(described: Any, node: Any) -> Any:
    if "$ref" not in node:
        return node
    for part in node["$ref"].removeprefix("#/").split("/"):
        described = described[part]
    return described


def array(*raws: bytes) -> bytes:
    return b"[" + b",".join(raws) + b"]"


def test_200(server: Server) -> None:
    raw = event()
    assert conforms(server, ONE, server.post(ONE, raw), 200)["status"] == "stored"
    assert conforms(server, ONE, server.post(ONE, raw), 200)["status"] == "duplicate"
    odd = server.post(ONE, event().replace(b'"inputs": []', b'"inputs": [], "run": {"runId": "no uuid"}'))
    assert conforms(server, ONE, odd, 200)["warnings"]
    assert conforms(server, BATCH, server.post(BATCH, array(event(), BAD)), 200)["status"] == "partial_success"
    assert conforms(server, BATCH, server.post(BATCH, b"[]"), 200)["status"] == "success"
    assert conforms(server, EVENTS, server.post(EVENTS, event()), 200)["stored"] == 1
    for path in ("/ping", "/ready", "/health"):
        conforms(server, path, server.get(path), 200, "get")


def test_207(server: Server) -> None:
    said = conforms(server, EVENTS, server.post(EVENTS, array(event(), BAD)), 207)
    assert said["summary"] == {"total": 2, "success": 1, "failed": 1}


@pytest.mark.parametrize("path", [ONE, BATCH, EVENTS])
def test_400(server: Server, path: str) -> None:
    for body, headers in (
        (b"", {}),
        (b"{", {}),
        (b"[", {}),
        (b"\xff", {}),
        (b'{"a": NaN}', {}),
        (b"no gzip", {"content_encoding": "gzip"}),
    ):
        said = conforms(server, path, server.post(path, body, **headers), 400)
        assert said["type"] == "urn:correlator:problem:not-json"


def test_401_and_403_and_429(locked: Locked) -> None:
    server, good, other = locked
    for path in (ONE, BATCH, EVENTS):
        assert conforms(server, path, server.post(path, b""), 401)["reason"] == "missing_key"
        assert conforms(server, path, server.post(path, b"", x_api_key="corr_x"), 401)["reason"] == "unknown_key"
        assert conforms(server, path, server.post(path, b"", x_api_key=other), 403)["reason"] == "missing_scope"
    conforms(server, ONE, server.post(ONE, event(), x_api_key=good), 200)
    for path in (ONE, BATCH, EVENTS):
        conforms(server, path, server.post(path, array(event()), x_api_key=good), 429)


def test_403_for_a_page_of_another_site(server: Server) -> None:
    conforms(server, ONE, server.post(ONE, event(), origin="https://elsewhere.example"), 403)


def test_404_and_405(server: Server) -> None:
    conforms(server, "/api/v1/nothing", server.get("/api/v1/nothing"), 404)
    # Where one event goes to, the graph is asked for.
    for path, allowed in ((ONE, "GET, HEAD, OPTIONS, POST"), (BATCH, "OPTIONS, POST"), (EVENTS, "OPTIONS, POST")):
        answer = server.request("DELETE", path)
        conforms(server, path, answer, 405)
        assert answer.header("Allow") == allowed
    conforms(server, "/ping", server.post("/ping", b""), 405)


@pytest.mark.parametrize("path", [ONE, BATCH, EVENTS])
def test_408(tight: Server, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", tight.port, timeout=PATIENCE)
    connection.putrequest("POST", path)
    connection.putheader("Content-Length", "10")
    connection.endheaders(b"{")
    response = connection.getresponse()
    conforms(tight, path, Answer(response.status, dict(response.getheaders()), response.read()), 408)
    connection.close()


def test_413(tight: Server) -> None:
    large = event(padding="x" * 60_000)
    for path in (ONE, EVENTS):
        assert "max_event_bytes" in conforms(tight, path, tight.post(path, large), 413)["detail"]
    for path in (ONE, BATCH, EVENTS):
        assert "max_request_bytes" in conforms(tight, path, tight.post(path, b" " * 200_000), 413)["detail"]
    for path in (BATCH, EVENTS):
        assert "max_batch_events" in conforms(tight, path, tight.post(path, array(*[b"{}"] * 6)), 413)["detail"]


@pytest.mark.parametrize("path", [ONE, BATCH, EVENTS])
def test_415(server: Server, path: str) -> None:
    conforms(server, path, server.post(path, event(), content_type="text/plain"), 415)
    conforms(server, path, server.post(path, event(), content_type="application/json; charset=latin-1"), 415)
    conforms(server, path, server.post(path, event(), content_encoding="br"), 415)


def test_422(server: Server) -> None:
    assert conforms(server, ONE, server.post(ONE, BAD), 422)["errors"]
    assert conforms(server, ONE, server.post(ONE, array(event())), 422)["errors"]
    assert conforms(server, BATCH, server.post(BATCH, event()), 422)["errors"]
    assert conforms(server, EVENTS, server.post(EVENTS, BAD), 422)["results"]
    assert conforms(server, EVENTS, server.post(EVENTS, array(BAD, b"1", b"null")), 422)["failed"] == 3
    complete = run_event("COMPLETE", event_time="2026-11-01T10:00:00Z")
    start = run_event("START", event_time="2026-11-01T11:00:00Z")
    answer = server.post(EVENTS, json.dumps([complete, start]).encode())
    assert conforms(server, EVENTS, answer, 422)["rule"] == "terminal_state_immutable"


def test_431(tight: Server) -> None:
    with socket.create_connection(("127.0.0.1", tight.port), timeout=PATIENCE) as connection:
        connection.sendall(b"POST /api/v1/lineage HTTP/1.1\r\nX-Long: " + b"x" * 5_000)
        response = http.client.HTTPResponse(connection)
        response.begin()
        answer = Answer(response.status, dict(response.getheaders()), response.read())
    # Nobody has read yet what it was for.
    conforms(tight, "/", answer, 431)


def test_500(server: Server) -> None:
    """A database that is not ours any more: no defect, but nothing else makes one."""
    with server.database.connect("test", autocommit=True) as connection:
        connection.execute("ALTER TABLE kept.ingest_batches RENAME TO elsewhere")
        try:
            for path in (ONE, BATCH, EVENTS):
                conforms(server, path, server.post(path, array(event()) if path == BATCH else event()), 500)
        finally:
            connection.execute("ALTER TABLE kept.elsewhere RENAME TO ingest_batches")
    conforms(server, ONE, server.post(ONE, event()), 200)


def test_503(tight: Server) -> None:
    with tight.database.connect("in the way") as connection:
        connection.execute("SELECT FROM kept.log_head FOR UPDATE")
        waiting = threading.Thread(target=tight.post, args=[ONE, event()])
        waiting.start()
        wait_until(lambda: tight.get("/health").json()["waiting_events"] == 1, "one event waits", tight)
        for path in (ONE, BATCH, EVENTS):
            body = array(event()) if path == BATCH else event()
            assert "max_waiting_events" in conforms(tight, path, tight.post(path, body), 503)["detail"]
    waiting.join()


def test_nothing_of_all_this_has_unbalanced_the_ledger(server: Server) -> None:
    with server.database.connect("test", autocommit=True) as connection:
        row = connection.execute(
            "SELECT received = stored + duplicates + rejected, stored = (SELECT count(*) FROM kept.lineage_events), "
            "rejected = (SELECT count(*) FROM kept.rejected_events) FROM kept.ingest_totals"
        ).fetchone()
    assert row == (True, True, True)
