"""Real clients, unchanged, against a real server: what they send is what is kept."""

import gzip
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import zstandard
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import (
    DatasetEvent,
    InputDataset,
    Job,
    JobEvent,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
    StaticDataset,
)
from openlineage.client.facet_v2 import (
    data_quality_assertions_dataset,
    error_message_run,
    job_type_job,
    nominal_time_run,
    output_statistics_output_dataset,
    parent_run,
    schema_dataset,
    sql_job,
)
from openlineage.client.serde import Serde
from openlineage.client.transport import get_default_factory
from openlineage.client.transport.async_http import AsyncHttpTransport
from openlineage.client.transport.http import HttpTransport
from requests import HTTPError, Response

from correlator.store.api_keys import create_key
from correlator.store.database import Database
from tests.integration.conftest import Postgres, database_url, new_database, reachable_directory
from tests.integration.events import run_event
from tests.integration.server.running import PATIENCE, Server, running, wait_until

PRODUCER = "https://example.com/tests"
NAMESPACE = "postgres://db:5432"

Event = RunEvent | JobEvent | DatasetEvent


@contextmanager
def serving(postgres: Postgres, template: str, *arguments: str) -> Iterator[Server]:
    with (
        new_database(postgres, template) as name,
        reachable_directory() as directory,
        running(directory, *arguments, database=Database(database_url(postgres, name))) as server,
    ):
        yield server


@pytest.fixture(scope="module")
def server(postgres: Postgres, migrated_template: str) -> Iterator[Server]:
    """One that takes everybody."""
    with serving(postgres, migrated_template) as server:
        yield server


@pytest.fixture(scope="module")
def locked(postgres: Postgres, migrated_template: str) -> Iterator[tuple[Server, str]]:
    """One that wants a key, and the key."""
    with new_database(postgres, migrated_template) as name, reachable_directory() as directory:
        database = Database(database_url(postgres, name))
        with database.connect("test") as connection:
            key = create_key(connection, "airflow", {"ingest"}, actor="test").secret
        with running(directory, database=database) as server:
            yield server, key


@pytest.fixture(autouse=True)
def _without_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy between us, and no configuration of whoever runs the tests."""
    for name in os.environ:
        if name.startswith("OPENLINEAGE_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


class Log:
    """What comes into the log from now on."""

    def __init__(self, server: Server) -> None:
        self._database = server.database
        self._before = self._query("SELECT position FROM kept.log_head")[0][0]

    def raws(self) -> list[bytes]:
        query = f"SELECT raw FROM kept.lineage_events WHERE position > {self._before} ORDER BY position"  # noqa: S608
        return [bytes(raw) for (raw,) in self._query(query)]

    def _query(self, query: str) -> list[tuple[Any, ...]]:
        with self._database.connect("test", autocommit=True) as connection:
            return connection.execute(query.encode(), binary=True).fetchall()


# What a producer sends


def a_run_event(state: RunState = RunState.COMPLETE, run_id: str | None = None) -> RunEvent:
    columns = [schema_dataset.SchemaDatasetFacetFields("id", "BIGINT", "größe des Ärgers")]
    return RunEvent(
        eventType=state,
        eventTime="2026-11-01T10:00:00.123456+01:00",
        run=Run(
            run_id or str(uuid4()),
            facets={
                "nominalTime": nominal_time_run.NominalTimeRunFacet("2026-11-01T09:00:00Z"),
                "parent": parent_run.ParentRunFacet(
                    parent_run.Run(str(uuid4())), parent_run.Job("airflow", "daily"), producer=PRODUCER
                ),
                "errorMessage": error_message_run.ErrorMessageRunFacet("it broke", "PYTHON", "line 1\nline 2"),
            },
        ),
        job=Job(
            "airflow",
            "daily.load_orders",
            facets={
                "sql": sql_job.SQLJobFacet("INSERT INTO orders SELECT * FROM raw", "ansi"),
                "jobType": job_type_job.JobTypeJobFacet("BATCH", "AIRFLOW", "TASK"),
            },
        ),
        inputs=[
            InputDataset(
                NAMESPACE,
                "shop.public.raw",
                inputFacets={
                    "dataQualityAssertions": data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(
                        [data_quality_assertions_dataset.Assertion("not_null", success=False, column="id")]
                    )
                },
            )
        ],
        outputs=[
            OutputDataset(
                NAMESPACE,
                "shop.public.orders",
                facets={"schema": schema_dataset.SchemaDatasetFacet(columns)},
                outputFacets={
                    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(3, 300)
                },
            )
        ],
        producer=PRODUCER,
    )


def a_job_event() -> JobEvent:
    job = Job("airflow", f"daily.{uuid4()}", facets={"sql": sql_job.SQLJobFacet("SELECT 1")})
    return JobEvent(
        eventTime="2026-11-01T10:00:00Z",
        job=job,
        inputs=[InputDataset(NAMESPACE, "shop.public.raw")],
        outputs=[OutputDataset(NAMESPACE, "shop.public.orders")],
        producer=PRODUCER,
    )


def a_dataset_event() -> DatasetEvent:
    columns = [schema_dataset.SchemaDatasetFacetFields("id", "BIGINT")]
    dataset = StaticDataset(NAMESPACE, f"shop.{uuid4()}", facets={"schema": schema_dataset.SchemaDatasetFacet(columns)})
    return DatasetEvent(eventTime="2026-11-01T10:00:00Z", dataset=dataset, producer=PRODUCER)


def as_sent(event: Event) -> bytes:
    return Serde.to_json(event).encode()


def answer_in(error: HTTPError) -> Response:
    assert error.response is not None
    return error.response


@contextmanager
def client(server: Server, kind: str = "http", **options: Any) -> Iterator[OpenLineageClient]:
    transport = get_default_factory().create({"type": kind, "url": server.url, **options})
    assert isinstance(transport, AsyncHttpTransport if kind == "async_http" else HttpTransport)
    client = OpenLineageClient(transport=transport)
    try:
        yield client
    finally:
        assert client.close(PATIENCE)


# openlineage-python


@pytest.mark.parametrize("kind", ["http", "async_http"])
@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}], ids=["plain", "gzip"])
def test_the_python_client_sends_all_three_kinds_of_events(
    server: Server, kind: str, options: Mapping[str, Any]
) -> None:
    log = Log(server)
    run_id = str(uuid4())
    events: list[Event] = [
        a_run_event(RunState.START, run_id),
        a_job_event(),
        a_dataset_event(),
        a_run_event(RunState.COMPLETE, run_id),
    ]
    with client(server, kind, **options) as sender:
        for event in events:
            sender.emit(event)
    if kind == "http":
        assert log.raws() == [as_sent(event) for event in events]
    else:
        # It sends several at once.
        assert sorted(log.raws()) == sorted(as_sent(event) for event in events)


@pytest.mark.parametrize("kind", ["http", "async_http"])
def test_the_python_client_shows_its_key(locked: tuple[Server, str], kind: str) -> None:
    server, key = locked
    log = Log(server)
    event = a_run_event()
    with client(server, kind, auth={"type": "api_key", "apiKey": key}) as sender:
        sender.emit(event)
    assert log.raws() == [as_sent(event)]


def test_the_python_client_is_told_when_its_key_is_no_good(locked: tuple[Server, str]) -> None:
    server, _ = locked
    log = Log(server)
    with client(server, auth={"type": "api_key", "apiKey": "corr_wrong"}) as sender, pytest.raises(HTTPError) as raised:
        sender.emit(a_run_event())
    response = answer_in(raised.value)
    assert response.status_code == 401
    assert "corr_wrong" not in response.text
    assert log.raws() == []


def test_custom_headers_of_the_python_client_arrive(locked: tuple[Server, str]) -> None:
    server, key = locked
    log = Log(server)
    event = a_run_event()
    with client(server, custom_headers={"X-API-Key": key, "X-Correlation-ID": "from-the-client"}) as sender:
        sender.emit(event)
    assert log.raws() == [as_sent(event)]
    wait_until(lambda: "[from-the-client]" in server.log, "the log has the request's own name", server)


def test_a_url_with_a_slash_and_an_endpoint_of_its_own_is_understood(server: Server) -> None:
    log = Log(server)
    event = a_run_event()
    transport = get_default_factory().create(
        {"type": "http", "url": f"{server.url}/", "endpoint": "api/v1/lineage/?from=here"}
    )
    OpenLineageClient(transport=transport).emit(event)
    transport.close()
    assert log.raws() == [as_sent(event)]


def test_the_same_event_sent_twice_is_stored_once(server: Server) -> None:
    log = Log(server)
    event = a_run_event()
    with client(server) as sender:
        sender.emit(event)
        sender.emit(event)
    assert log.raws() == [as_sent(event)]


def test_an_event_that_is_refused_is_an_error_in_the_client(server: Server) -> None:
    event = a_run_event()
    event.job.name = " "
    with client(server) as sender, pytest.raises(HTTPError) as raised:
        sender.emit(event)
    response = answer_in(raised.value)
    assert response.status_code == 422
    assert "job.name" in response.json()["detail"]


_PROGRAM = """
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
client = OpenLineageClient()
client.emit(RunEvent(
    eventType=RunState.START, eventTime="2026-11-01T10:00:00Z", producer="https://example.com/tests",
    run=Run("RUN_ID"), job=Job("tests", "from the environment"),
))
assert client.close(60)
"""


@pytest.mark.parametrize("how", ["one variable", "a variable each", "the short ones", "async"])
def test_the_python_client_takes_everything_from_the_environment(locked: tuple[Server, str], how: str) -> None:
    server, key = locked
    auth = {"type": "api_key", "apiKey": key}
    variables = {
        # As `correlator keys create` tells it.
        "one variable": {"OPENLINEAGE__TRANSPORT": json.dumps({"type": "http", "url": server.url, "auth": auth})},
        "a variable each": {
            "OPENLINEAGE__TRANSPORT__TYPE": "http",
            "OPENLINEAGE__TRANSPORT__URL": server.url,
            "OPENLINEAGE__TRANSPORT__AUTH": json.dumps(auth),
            "OPENLINEAGE__TRANSPORT__COMPRESSION": "gzip",
        },
        "the short ones": {"OPENLINEAGE_URL": server.url, "OPENLINEAGE_API_KEY": key},
        "async": {
            "OPENLINEAGE__TRANSPORT__TYPE": "async_http",
            "OPENLINEAGE__TRANSPORT__URL": server.url,
            "OPENLINEAGE__TRANSPORT__AUTH": json.dumps(auth),
        },
    }
    log = Log(server)
    run_id = str(uuid4())
    done = subprocess.run(  # noqa: S603 (a program of our own)
        [sys.executable, "-c", _PROGRAM.replace("RUN_ID", run_id)],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=server.data_dir,
        env=dict(os.environ) | variables[how],
    )
    assert done.returncode == 0, done.stderr
    (raw,) = log.raws()
    assert json.loads(raw)["run"]["runId"] == run_id


@pytest.mark.parametrize("kind", ["http", "async_http"])
def test_the_python_client_waits_out_a_busy_server_and_its_event_is_stored_once(
    postgres: Postgres, migrated_template: str, kind: str
) -> None:
    event = a_run_event()
    first = json.dumps(run_event()).encode()
    with serving(postgres, migrated_template, "--max-waiting-events", "1") as server:
        log = Log(server)
        with server.database.connect("in the way") as connection:
            connection.execute("SELECT FROM kept.log_head FOR UPDATE")
            waiting = threading.Thread(target=server.post, args=["/api/v1/lineage", first])
            waiting.start()
            wait_until(lambda: server.get("/health").json()["waiting_events"] == 1, "one event waits", server)
            with client(server, kind) as sender:
                sending = threading.Thread(target=sender.emit, args=[event])
                sending.start()
                wait_until(lambda: "POST /api/v1/lineage 503" in server.log, "the client was sent away", server)
                connection.rollback()
                sending.join()
            waiting.join()
        assert sorted(log.raws()) == sorted([first, as_sent(event)])


# curl


@pytest.fixture(scope="module")
def curl() -> str:
    found = shutil.which("curl")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("curl is not installed, and here it has to be")
        pytest.skip("curl is not installed")
    return found


class Told:
    """What curl has printed."""

    def __init__(self, text: str, error: str) -> None:
        head, _, self.body = text.rpartition("\r\n\r\n")
        self.head = head.lower()
        self.status = int(head.rpartition("HTTP/1.1 ")[2][:3])
        self.error = error


def ask(curl: str, *arguments: str, body: bytes | None = None) -> Told:
    done = subprocess.run(  # noqa: S603
        [curl, "--silent", "--show-error", "--include", "--verbose", "--max-time", "60", *arguments],
        check=False,
        input=body,
        capture_output=True,
        timeout=PATIENCE,
    )
    error = done.stderr.decode(errors="replace")
    assert done.returncode == 0, error
    return Told(done.stdout.decode(), error)


JSON = ("--header", "Content-Type: application/json")
STDIN = ("--data-binary", "@-")


def an_event(**changes: Any) -> bytes:
    return json.dumps(run_event(run_id=str(uuid4()), **changes), ensure_ascii=False, indent=1).encode()


CURLS: dict[str, tuple[str, tuple[str, ...]]] = {
    "plain": ("", ()),
    "chunked": ("", ("--header", "Transfer-Encoding: chunked")),
    "expect": ("", ("--header", "Expect: 100-continue")),
    "a slash too many": ("/", ()),
    "a query": ("?api-version=1&x=%00", ()),
    "http 1.0": ("", ("--http1.0",)),
    "a charset": ("", ("--header", "Content-Type: application/json; charset=utf-8")),
}


@pytest.mark.parametrize("case", CURLS)
def test_curl_sends_an_event(server: Server, curl: str, case: str) -> None:
    suffix, options = CURLS[case]
    log = Log(server)
    event = an_event(note="Ärger 🙂")
    content = () if case == "a charset" else JSON
    told = ask(curl, f"{server.url}/api/v1/lineage{suffix}", *content, *options, *STDIN, body=event)
    assert (told.status, json.loads(told.body)["status"]) == (200, "stored")
    assert log.raws() == [event]
    if case == "expect":
        assert "HTTP/1.1 100 Continue" in told.error


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@pytest.mark.parametrize("options", [(), ("--header", "Transfer-Encoding: chunked")], ids=["whole", "chunked"])
def test_curl_sends_a_packed_event(server: Server, curl: str, coding: str, options: tuple[str, ...]) -> None:
    log = Log(server)
    event = an_event()
    packed = gzip.compress(event) if coding == "gzip" else zstandard.compress(event)
    header = ("--header", f"Content-Encoding: {coding}")
    url = f"{server.url}/api/v1/lineage"
    told = ask(curl, url, "--compressed", *JSON, *header, *options, *STDIN, body=packed)
    assert told.status == 200, told.body
    assert log.raws() == [event]


def test_curl_sends_a_large_batch_after_it_was_told_to_go_on(server: Server, curl: str) -> None:
    log = Log(server)
    events = [an_event(padding="x" * 3_000) for _ in range(500)]
    url = f"{server.url}/api/v1/lineage/batch"
    told = ask(curl, url, *JSON, "--expect100-timeout", "60", *STDIN, body=b"[" + b",".join(events) + b"]")
    assert "Expect: 100-continue" in told.error
    assert "HTTP/1.1 100 Continue" in told.error
    assert json.loads(told.body)["summary"]["successful"] == 500
    assert log.raws() == events


def test_curl_is_refused_before_it_has_sent_a_body_that_is_too_large(server: Server, curl: str, tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(100_000_001)
    url = f"{server.url}/api/v1/lineage"
    size = ("--write-out", "%{stderr}sent %{size_upload} bytes")
    told = ask(curl, url, "--request", "POST", *JSON, "--expect100-timeout", "60", *size, "--upload-file", str(large))
    assert told.status == 413
    assert "max_request_bytes" in told.body
    assert told.error.endswith("sent 0 bytes")


def test_curl_gets_a_result_for_each_event(server: Server, curl: str) -> None:
    log = Log(server)
    good, bad = an_event(), an_event().replace(b'"eventType": "START"', b'"eventType": "STRAT"')
    told = ask(curl, f"{server.url}/api/v1/lineage/events", *JSON, *STDIN, body=b"[" + bad + b"," + good + b"]")
    assert told.status == 207
    assert [result["status"] for result in json.loads(told.body)["results"]] == [422, 200]
    assert log.raws() == [good]


def test_curl_asks_for_the_head_of_a_probe(server: Server, curl: str) -> None:
    told = ask(curl, "--head", f"{server.url}/ping")
    assert told.status == 200
    assert "content-type: application/json" in told.head
    assert told.body == ""


def test_curl_with_a_key_is_let_in_and_with_another_or_none_is_not(locked: tuple[Server, str], curl: str) -> None:
    server, key = locked
    log = Log(server)
    url = f"{server.url}/api/v1/lineage"
    for header in ("Authorization: Bearer corr_wrong", "X-API-Key: corr_wrong", "X-Nothing: x"):
        told = ask(curl, url, *JSON, "--header", header, *STDIN, body=an_event())
        assert told.status == 401
        assert "www-authenticate: bearer" in told.head
        assert "application/problem+json" in told.head
        assert "corr_wrong" not in told.body
    assert log.raws() == []
    events = [an_event(), an_event()]
    for event, header in zip(events, (f"Authorization: Bearer {key}", f"X-API-Key: {key}"), strict=True):
        assert ask(curl, url, *JSON, "--header", header, *STDIN, body=event).status == 200
    assert log.raws() == events
    assert key not in server.log
    assert "corr_wrong" not in server.log


# Others


def test_a_request_as_the_java_client_makes_it(locked: tuple[Server, str]) -> None:
    """Apache HttpClient packs while it sends: chunks of gzip, and no length."""
    server, key = locked
    log = Log(server)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    for body in (an_event(), an_event()):
        packed = gzip.compress(body)
        headers = {
            "Accept-Encoding": "gzip, x-gzip, deflate",
            "Content-Encoding": "gzip",
            "Transfer-Encoding": "chunked",
            "Content-Type": "application/json; charset=UTF-8",
            "Authorization": f"Bearer {key}",
            "Connection": "keep-alive",
            "User-Agent": "openlineage-java",
        }
        chunks = (packed[start : start + 10] for start in range(0, len(packed), 10))
        connection.request("POST", "/api/v1/lineage", chunks, headers, encode_chunked=True)
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())["status"]) == (200, "stored")
        assert log.raws()[-1] == body
    connection.close()


def test_a_body_that_comes_in_many_small_pieces_is_put_together(server: Server) -> None:
    log = Log(server)
    event = an_event()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    connection.putrequest("POST", "/api/v1/lineage")
    connection.putheader("Content-Length", str(len(event)))
    connection.endheaders()
    for start in range(0, len(event), 100):
        connection.send(event[start : start + 100])
    assert connection.getresponse().status == 200
    connection.close()
    assert log.raws() == [event]
