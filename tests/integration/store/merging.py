"""What a batch of the pipeline does to the database, without Spark."""

from collections.abc import Iterable
from typing import Any

import psycopg

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
