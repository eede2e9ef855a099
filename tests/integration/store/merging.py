"""What a batch of the pipeline does to the database, without Spark."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from correlator.rulebook import facts as f
from correlator.rulebook.events import Event
from correlator.rulebook.facts import Facts
from correlator.rulebook.fold import fold
from correlator.rulebook.runs import run_view
from correlator.store.fact_rows import InstantLoader
from correlator.store.merge import Batch, merge
from correlator.store.staging import FactRow, begin, stage
from tests.integration.store.incident_model import check_what_is_derived_of_runs

SOURCE = "test"


def apply(connection: psycopg.Connection, facts: Iterable[FactRow], schema: str = "facts", **said: Any) -> None:
    """Stage and merge."""
    attempt = begin(connection, SOURCE)
    stage(connection, attempt, facts)
    merge(connection, attempt, batch_of(**said), schema)


def batch_of(**said: Any) -> Batch:
    usual: dict[str, Any] = {"query_id": "query", "batch_id": 0, "source": SOURCE, "read": 0, "applied": 0}
    return Batch(**(usual | said))


def stored(connection: psycopg.Connection, events: Iterable[Event], schema: str = "facts") -> Facts:
    """Fold, stage, merge and commit."""
    facts = fold(events)
    apply(connection, facts, schema)
    connection.commit()
    return facts


def differences(one: Facts, other: Facts) -> list[Any]:
    """Shorter to read than two whole sets of tables."""
    found = {(table.name, key): row for table, key, row in one}
    again = {(table.name, key): row for table, key, row in other}
    return [(k, found.get(k), again.get(k)) for k in found.keys() | again.keys() if found.get(k) != again.get(k)]


def check_constraints(connection: psycopg.Connection) -> None:
    """As a commit would."""
    connection.execute("SET CONSTRAINTS ALL IMMEDIATE")


def check_what_is_derived(connection: psycopg.Connection, facts: Facts) -> None:
    """What the database works out of the facts is what the rulebook makes of them."""
    cursor = connection.cursor(binary=True)
    cursor.adapters.register_loader("timestamptz", InstantLoader)
    views = {key.hex(): run_view(row) for (key,), row in facts.rows(f.JOB_RUNS).items()}

    rows = cursor.execute("SELECT id, started_at, ended_at, current_state FROM job_runs").fetchall()
    assert {run.hex: tuple(said) for run, *said in rows} == {
        run: (view.started_at, view.ended_at, view.state) for run, view in views.items()
    }
    rows = cursor.execute(_HISTORIES).fetchall()
    assert {run.hex: list(zip(times, states, strict=True)) for run, times, states in rows} == {
        run: view.history for run, view in views.items()
    }
    rows = cursor.execute("SELECT job_run_id, kind, at, sentence FROM run_contradictions").fetchall()
    assert sorted((run.hex, *said) for run, *said in rows) == sorted(
        (run, said.kind, said.at, said.sentence) for run, view in views.items() for said in view.contradictions
    )
    rows = cursor.execute("SELECT id FROM datasets WHERE schema_json IS DISTINCT FROM facets -> 'schema'").fetchall()
    assert rows == []
    check_what_is_derived_of_runs(connection, facts)
    check_lookups(connection)
    times = cursor.execute("SELECT id, event_time FROM job_runs").fetchall()
    assert {run.hex: at for run, at in times} == {
        key.hex(): row["last_event"][0] for (key,), row in facts.rows(f.JOB_RUNS).items()
    }
    times = cursor.execute("SELECT test_id, job_run_id, event_time FROM test_results").fetchall()
    assert {(test.bytes, run.bytes): at for test, run, at in times} == {
        key: row["result"][0] for key, row in facts.rows(f.TEST_RESULTS).items()
    }


def check_lookups(connection: psycopg.Connection) -> None:
    """What is kept for questions is what all facts together say."""
    for kept, said in (
        (
            "SELECT dataset_id, job_id, edge_type FROM dataset_jobs",
            "SELECT dataset_id, job_id, edge_type FROM lineage_edges JOIN job_runs ON job_runs.id = job_run_id",
        ),
        (
            "SELECT id, dataset_id, test_name, column_name, parameters FROM data_tests",
            "SELECT test_id, dataset_id, test_name, column_name, parameters FROM standing_results",
        ),
    ):
        assert set(connection.execute(kept.encode())) == set(connection.execute(said.encode()))
    check_last_runs(connection)


def check_last_runs(connection: psycopg.Connection) -> None:
    """What stands of each job is what its runs say, looked at one by one."""
    edges: dict[UUID, list[tuple[UUID, str, int, int | None]]] = {}
    for run, *edge in connection.execute(
        "SELECT job_run_id, dataset_id, edge_type, origin, sources_told_by FROM lineage_edges ORDER BY dataset_id"
    ):
        edges.setdefault(run, []).append(tuple(edge))
    jobs: dict[UUID, list[dict[str, Any]]] = {}
    with connection.cursor(row_factory=dict_row) as cursor:
        for run in cursor.execute("SELECT * FROM job_runs ORDER BY started_at, id"):
            jobs.setdefault(run["job_id"], []).append(run)
    standing, last = {}, {}
    figures: dict[tuple[str, str | None], list[int]] = {}
    for job, runs in jobs.items():
        moments = [(at, run["id"], run) for run in runs for at in _stood_at(run)]
        if moments:
            at, _, run = max(moments, key=lambda one: one[:2])
            standing[job] = (run["id"], at, run["run_id"], *_lineage(run, edges.get(run["id"], [])))
        run = runs[-1]
        producer = (run["producer"], run["integration"], run["current_state"], run["event_time"])
        is_open = [_is_open(one) for one in runs]
        has_start, left_open = run["first_start_at"] is not None, any(is_open[-2:-1])
        last[job] = (run["id"], *producer, has_start, is_open[-1], left_open)
        of_producer = figures.setdefault(producer[:2], [0, 0, 0, 0])
        for place, counts in enumerate((True, run["current_state"] in ("FAIL", "ABORT"), not has_start, left_open)):
            of_producer[place] += counts
    assert {job: tuple(said) for job, *said in connection.execute(_STANDING)} == standing
    assert {job: tuple(said) for job, *said in connection.execute(_LAST)} == last
    assert {(who, by): said for who, by, *said in connection.execute(_PRODUCERS)} == figures


_STANDING = """
SELECT job_id, job_run_id, at, run_id, observes, states_lineage, inputs, outputs, origins, told_by FROM standing_lineage
"""
_LAST = """
SELECT job_id, job_run_id, producer, integration, current_state, event_time, has_start, is_open, left_open
FROM last_runs
"""
_PRODUCERS = "SELECT producer, integration, jobs, failing, without_start, left_open FROM producer_jobs"


def _stood_at(run: dict[str, Any]) -> Iterator[datetime]:
    if run["current_state"] == "COMPLETE":
        yield run["ended_at"]
    if _is_stream(run) and any(said["state"] == "RUNNING" for said in run["state_history"]):
        yield run["started_at"]


def _is_stream(run: dict[str, Any]) -> bool:
    return (run["processing_type"] or "").upper() in ("STREAMING", "SERVICE")


def _is_open(run: dict[str, Any]) -> bool:
    return run["current_state"] in ("START", "RUNNING") and not _is_stream(run)


def _lineage(run: dict[str, Any], edges: list[tuple[UUID, str, int, int | None]]) -> tuple[object, ...]:
    inputs = [(dataset, origin) for dataset, role, origin, _ in edges if role == "input"]
    outputs = [(dataset, told_by) for dataset, role, _, told_by in edges if role == "output"]
    is_plain = not run["states_lineage"] and all(origin != 3 and told is None for _, _, origin, told in edges)
    observes = (run["job_type"] or "").upper() == "TEST" or (run["has_results"] and not outputs)
    return (
        observes,
        run["states_lineage"],
        [dataset for dataset, _ in inputs],
        [dataset for dataset, _ in outputs],
        None if is_plain or not inputs else [origin for _, origin in inputs],
        None if is_plain or not outputs else [told_by for _, told_by in outputs],
    )


# In the order in which they stand there.
_HISTORIES = """
SELECT id,
       ARRAY(SELECT (e ->> 'event_time')::timestamptz FROM jsonb_array_elements(state_history) AS e),
       ARRAY(SELECT e ->> 'state' FROM jsonb_array_elements(state_history) AS e)
FROM job_runs
"""

TABLES = ("column_mappings", "run_column_mappings", *(t.name for t in f.TABLES if t is not f.COLUMN_EDGES))


def versions(connection: psycopg.Connection) -> list[tuple[Any, ...]]:
    """Every row by where it lies and who touched it last: another list when anything was written, or only locked."""
    query = " UNION ALL ".join(
        f"SELECT '{table}', ctid::text, xmin::text, xmax::text, cmin::text FROM {table}"  # noqa: S608
        for table in TABLES
    )
    return connection.execute(f"{query} ORDER BY 1, 2".encode()).fetchall()
