"""The action in real checkpoints of Great Expectations, on a file of SQLite; what it sends goes to a small server."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import great_expectations as gx
import pytest
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.core.yaml_handler import YAMLHandler
from great_expectations.datasource.fluent import SQLDatasource

from correlator.integrations.great_expectations import CorrelatorValidationAction
from correlator.rulebook.decode import judge
from correlator.rulebook.policy import SPEC

PARENT = "airflow/shop.check/0190f0a2-0000-7000-8000-000000000001"


class Backend(ThreadingHTTPServer):
    """Takes what comes."""

    def __init__(self) -> None:
        self.batches: list[list[dict[str, Any]]] = []
        self.keys: list[str | None] = []
        self.status = 200
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Backend

    def do_POST(self) -> None:
        self.server.batches.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.keys.append(self.headers["X-API-Key"])
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENLINEAGE_PARENT_ID", "OPENLINEAGE_ROOT_PARENT_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE orders (id INTEGER, amount REAL)")
        database.executemany("INSERT INTO orders VALUES (?, ?)", [(1, 10.0), (2, None), (3, 30.0)])
    database.close()
    return tmp_path


def checkpoint(project: Path, *actions: Any, mode: Any = "ephemeral", column: str = "amount") -> gx.Checkpoint:
    context = (
        gx.get_context(mode="ephemeral")
        if mode == "ephemeral"
        else gx.get_context(mode="file", project_root_dir=project)
    )
    shop = context.data_sources.add_sqlite("shop", connection_string=f"sqlite:///{project / 'shop.db'}")
    batch = shop.add_table_asset("all orders", table_name="orders").add_batch_definition_whole_table("all")
    suite = context.suites.add(gx.ExpectationSuite(name="orders"))
    suite.add_expectation(gx.expectations.ExpectColumnValuesToNotBeNull(column=column))
    suite.add_expectation(gx.expectations.ExpectTableRowCountToBeBetween(min_value=1, max_value=10))
    validation = context.validation_definitions.add(gx.ValidationDefinition(name="orders", data=batch, suite=suite))
    made = gx.Checkpoint(name="daily", validation_definitions=[validation], actions=list(actions))
    return context.checkpoints.add(made)


def action(backend: Backend, **options: Any) -> CorrelatorValidationAction:
    return CorrelatorValidationAction(name="correlator", correlator_endpoint=backend.url, **options)


def told_by(one: CorrelatorValidationAction, result: Any) -> dict[str, Any]:
    return one.run(result)


def test_a_checkpoint_is_a_run_that_starts_and_ends_and_carries_its_results(
    project: Path, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", PARENT)
    monkeypatch.setenv("CORRELATOR_KEY", "sesame")

    result = checkpoint(project, action(backend, api_key="${CORRELATOR_KEY}")).run()

    assert not result.success
    ((start, end),) = backend.batches
    assert backend.keys == ["sesame"]
    for event in (start, end):
        assert not hasattr(judge(json.dumps(event).encode(), SPEC), "errors")
        assert event["job"]["namespace"] == "great_expectations://default"
        assert event["job"]["name"] == "daily.orders"
        assert event["run"]["facets"]["parent"]["job"]["name"] == "shop.check"
        (tested,) = event["inputs"]
        assert (tested["namespace"], tested["name"]) == (f"sqlite://{project / 'shop.db'}", "orders")
    assert (start["eventType"], end["eventType"]) == ("START", "FAIL")
    assert start["run"]["runId"] == end["run"]["runId"]
    assert start["eventTime"] == result.run_id.run_time.isoformat()
    facets = end["inputs"][0]["inputFacets"]
    assert facets["dataQualityMetrics"]["rowCount"] == 3
    assert facets["dataQualityMetrics"]["columnMetrics"]["amount"]["nullCount"] == 1
    told = {one["assertion"]: one for one in facets["dataQualityAssertions"]["assertions"]}
    nulls = told["expect_column_values_to_not_be_null"]
    assert (nulls["success"], nulls["column"], nulls["actual"], nulls["severity"]) == (
        False,
        "amount",
        "1 unexpected of 3",
        "error",
    )


def test_a_broken_check_is_told_as_broken(project: Path, backend: Backend) -> None:
    checkpoint(project, action(backend), column="nosuch").run()

    ((_, end),) = backend.batches
    assertions = end["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    (broken,) = [one for one in assertions if not one["success"]]
    assert "The check itself broke" in broken["message"]
    assert "nosuch" in broken["message"]


def test_a_repeated_emission_is_the_same_run_and_a_new_run_of_the_same_name_another(
    project: Path, backend: Backend
) -> None:
    daily = checkpoint(project)
    one = daily.run(run_id=RunIdentifier(run_name="nightly", run_time="2026-11-01T10:00:00+00:00"))
    other = daily.run(run_id=RunIdentifier(run_name="nightly", run_time="2026-11-02T10:00:00+00:00"))

    told = [told_by(action(backend), result) for result in (one, one, other)]

    assert all(each["emitted"] and each["events"] == 2 for each in told)
    first, again, new = (each["runs"] for each in told)
    assert first == again != new
    assert UUID(first[0]).version == 5


@pytest.mark.parametrize(
    ("emit_on", "column", "is_emitted"),
    [
        ("all", "amount", True),
        ("all", "id", True),
        ("success", "amount", False),
        ("success", "id", True),
        ("failure", "amount", True),
        ("failure", "id", False),
    ],
)
def test_what_is_emitted_follows_the_checkpoints_success(
    project: Path, backend: Backend, emit_on: str, column: str, *, is_emitted: bool
) -> None:
    result = checkpoint(project, column=column).run()

    told = told_by(action(backend, emit_on=emit_on), result)

    assert told["emitted"] is is_emitted
    assert len(backend.batches) == is_emitted
    assert is_emitted or f"emit_on is {emit_on}" in told["reason"]


def test_a_backend_that_fails_or_is_gone_never_fails_the_checkpoint(project: Path, backend: Backend) -> None:
    daily = checkpoint(project, action(backend))
    backend.status = 500
    result = daily.run()

    assert "answered 500" in told_by(action(backend), result)["reason"]
    backend.shutdown()
    backend.server_close()
    assert daily.run().run_results
    assert "no connection" in told_by(action(backend), result)["reason"]


def test_an_error_of_our_own_never_fails_the_checkpoint(project: Path, backend: Backend) -> None:
    result = checkpoint(project).run()
    variable = CorrelatorValidationAction(name="c", correlator_endpoint="${NOT_SET_ANYWHERE}")

    told = told_by(variable, result)

    assert not told["emitted"]
    assert "correlator_endpoint names a variable" in told["reason"]
    assert backend.batches == []


def test_a_connection_that_cannot_be_asked_for_its_name_does_not_outlast_the_timeout(
    project: Path, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = checkpoint(project).run()
    is_over = threading.Event()
    monkeypatch.setattr(SQLDatasource, "get_engine", lambda _: is_over.wait())
    try:
        told = told_by(action(backend, timeout=1), result)
    finally:
        is_over.set()

    assert "not sent within 1 s" in told["reason"]


@pytest.mark.parametrize(
    "options",
    [{"correlator_endpoint": "correlator"}, {"emit_on": "sometimes"}, {"timeout": 0}, {"nosuch": 1}],
    ids=lambda options: next(iter(options)),
)
def test_a_setting_that_cannot_be_is_told_when_the_action_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        CorrelatorValidationAction(**{"name": "c", "correlator_endpoint": "http://localhost:8080", **options})


def test_the_key_is_not_shown() -> None:
    made = CorrelatorValidationAction(name="c", correlator_endpoint="http://localhost:8080", api_key="sesame")

    assert "sesame" not in repr(made)


YAML = """
- name: correlator
  type: correlator
  correlator_endpoint: {url}
  emit_on: failure
"""


def test_an_action_that_is_written_as_yaml_is_ours(project: Path, backend: Backend) -> None:
    checkpoint(project, *YAMLHandler().load(YAML.format(url=backend.url))).run()

    ((_, end),) = backend.batches
    assert end["eventType"] == "FAIL"


STORED = """
import sys
import great_expectations as gx
from correlator.integrations.great_expectations import CorrelatorValidationAction
gx.get_context(mode="file", project_root_dir=sys.argv[1]).checkpoints.get("daily").run()
"""


def test_a_stored_checkpoint_brings_its_action_along(project: Path, backend: Backend) -> None:
    checkpoint(project, action(backend, job_namespace="shop", timeout=60), mode="file")
    (stored,) = (project / "gx" / "checkpoints").iterdir()
    assert json.loads(stored.read_text())["actions"][0]["type"] == "correlator"

    # A file and not `-c`: where PySpark is installed too, importing Great Expectations would end such a process with 0.
    script = project / "run.py"
    script.write_text(STORED)
    ran = subprocess.run(  # noqa: S603
        [sys.executable, str(script), str(project)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ,
    )

    assert ran.returncode == 0, ran.stderr
    assert len(backend.batches) == 1, ran.stderr
    ((start, end),) = backend.batches
    assert (start["job"]["namespace"], end["eventType"]) == ("shop", "FAIL")
