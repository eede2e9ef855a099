"""Of each job the merge keeps what stands of its lineage, and its last run, whatever comes late or in another order."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from correlator.rulebook.fold import fold
from correlator.store.database import Database
from correlator.store.last_runs import note_all_last_runs
from correlator.store.merge import merge
from correlator.store.migrations import known_migrations
from correlator.store.next_facts import NEXT, NextFacts
from correlator.store.staging import begin, prepare, stage
from tests.integration.store.merging import SOURCE, apply, check_constraints, check_last_runs
from tests.unit.rulebook.histories import Json, accepted, dataset, facet, run_json

TABLES = ("standing_lineage", "last_runs", "producer_jobs")
STREAM = {"jobType": facet(processingType="STREAMING", integration="FLINK")}


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect("test", autocommit=True) as connection:
        prepare(connection, SOURCE)
        yield connection


def said(state: str, minute: float, run: str, inputs: str = "", outputs: str = "", **parts: Any) -> Json:
    return run_json(
        state,
        minute,
        run=run,
        inputs=[dataset(name) for name in inputs.split()],
        outputs=[dataset(name) for name in outputs.split()],
        **parts,
    )


def store(connection: psycopg.Connection, *events: Json) -> None:
    apply(connection, fold(map(accepted, events)))
    check_last_runs(connection)


def rows(connection: psycopg.Connection, columns: str = "*") -> list[list[Any]]:
    return [
        connection.execute(f"SELECT {columns} FROM {table} ORDER BY 1".encode()).fetchall()  # noqa: S608
        for table in TABLES
    ]


def standing(connection: psycopg.Connection) -> str | None:
    """The run that stands, and what it read."""
    row = connection.execute("""
        SELECT run_id || ': ' || ARRAY(SELECT dataset_name FROM datasets WHERE id = ANY (inputs) ORDER BY 1)::text
        FROM standing_lineage
    """).fetchone()
    return None if row is None else row[0]


def test_the_last_run_that_completed_stands_and_not_one_that_failed_or_goes_on(connection: psycopg.Connection) -> None:
    store(connection, said("COMPLETE", 1, "first", "a"), said("COMPLETE", 2, "second", "b"))
    assert standing(connection) == "second: {b}"

    store(connection, said("FAIL", 3, "third", "c"), said("START", 4, "fourth", "d"))
    assert standing(connection) == "second: {b}"


def test_an_older_run_that_comes_late_does_not_stand(connection: psycopg.Connection) -> None:
    store(connection, said("COMPLETE", 5, "new", "a"))
    store(connection, said("COMPLETE", 1, "old", "b"))

    assert standing(connection) == "new: {a}"


def test_what_is_said_late_of_the_run_that_stands_is_part_of_it(connection: psycopg.Connection) -> None:
    store(connection, said("COMPLETE", 5, "one", "a"))
    store(connection, said("START", 1, "one", "b"))

    assert standing(connection) == "one: {a,b}"


def test_a_run_that_turns_out_to_have_failed_first_leaves_the_one_before_it_standing(
    connection: psycopg.Connection,
) -> None:
    store(connection, said("COMPLETE", 1, "first", "a"), said("COMPLETE", 5, "second", "b"))
    store(connection, said("FAIL", 4, "second"))
    assert standing(connection) == "first: {a}"

    store(connection, said("ABORT", 0, "first"))
    assert standing(connection) is None


def test_a_run_that_turns_out_to_have_ended_before_another_leaves_that_one_standing(
    connection: psycopg.Connection,
) -> None:
    store(connection, said("COMPLETE", 5, "first", "a"), said("COMPLETE", 3, "second", "b"))
    assert standing(connection) == "first: {a}"

    store(connection, said("COMPLETE", 2, "first"))
    assert standing(connection) == "second: {b}"


def test_a_stream_stands_from_its_start_once_it_is_running(connection: psycopg.Connection) -> None:
    store(connection, said("COMPLETE", 1, "first", "a", job_facets=STREAM))
    store(connection, said("START", 2, "second", "b", job_facets=STREAM))
    assert standing(connection) == "first: {a}"

    store(connection, said("RUNNING", 9, "second", "c"))
    assert standing(connection) == "second: {b,c}"


def test_a_batch_that_comes_again_writes_nothing(connection: psycopg.Connection) -> None:
    events = [said("START", 0, "one", "a"), said("COMPLETE", 1, "one", "a", "b"), said("START", 2, "two")]
    store(connection, *events)
    before = rows(connection, "ctid::text, xmin::text, xmax::text")

    store(connection, *events)

    assert rows(connection, "ctid::text, xmin::text, xmax::text") == before


# A small world: three runs of one job, rarely of another, whose events meet at a few instants.
EVENTS = st.builds(
    lambda state, minute, run, inputs, outputs, parts: said(state, minute, run, inputs, outputs, **parts),
    st.sampled_from(["COMPLETE", "COMPLETE", "FAIL", "RUNNING", "START"]),
    st.integers(0, 5),
    st.sampled_from(["one", "two", "three"]),
    st.sampled_from(["a", "b", "a b", ""]),
    st.sampled_from(["c", ""]),
    st.sampled_from(
        [
            {},
            {},
            {"producer": "https://example.com/another"},
            {"job_facets": STREAM},
            {"job_facets": {"jobType": facet(processingType="BATCH", integration="DBT", jobType="TEST")}},
            {"job": "another"},
        ]
    ),
)
BATCHES = st.lists(st.lists(EVENTS, min_size=1, max_size=4), min_size=2, max_size=5)

in_one_database = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@given(batches=BATCHES)
@in_one_database
def test_after_every_batch_it_is_what_all_runs_together_say(
    connection: psycopg.Connection, batches: list[list[Json]]
) -> None:
    with connection.transaction(force_rollback=True):
        for batch in batches:
            store(connection, *batch)
        kept = rows(connection)

        # Worked out at once, as after a replay, and by the migration, it is the same.
        note_all_last_runs(connection)
        assert rows(connection) == kept
        check_constraints(connection)
        connection.execute("DROP TABLE standing_lineage, last_runs, producer_jobs")
        (migration,) = [one for one in known_migrations() if one.name == "0017_facts_last_runs"]
        connection.execute(migration.sql.encode())
        assert rows(connection) == kept


def test_tables_that_are_filled_without_it_have_it_afterwards(connection: psycopg.Connection) -> None:
    events = [said("COMPLETE", 1, "first", "a"), said("COMPLETE", 5, "second", "b"), said("FAIL", 4, "second")]
    following = NextFacts(connection)
    following.make()
    for event in events:
        attempt = begin(connection, SOURCE)
        stage(connection, attempt, fold([accepted(event)]))
        merge(connection, attempt, None, NEXT, derives=False)
    following.dress()
    assert connection.execute("SELECT count(*) FROM facts_next.standing_lineage").fetchone() == (0,)

    note_all_last_runs(connection, NEXT)
    with connection.transaction():
        following.put_in_place()

    check_last_runs(connection)
    assert standing(connection) == "first: {a}"
