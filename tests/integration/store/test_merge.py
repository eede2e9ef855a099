"""Batches of the pipeline end in the fact tables: whole, once in effect, and one at a time."""

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.errors import CheckViolation

from correlator.rulebook import facts as f
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.facts import Facts
from correlator.rulebook.fold import fold
from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres
from correlator.store.fact_rows import read_facts
from correlator.store.merge import Span, StagingLostError, lock_merges, merge, statements
from correlator.store.migrations import known_migrations, migrate
from correlator.store.staging import begin, prepare, stage, sweep
from tests import corpus
from tests.integration.store.merging import (
    SOURCE,
    apply,
    batch_of,
    check_what_is_derived,
    differences,
    stored,
    versions,
)
from tests.unit.rulebook.histories import (
    DB,
    OTHER_RUN,
    RUN,
    assertions,
    dataset,
    dataset_event,
    facet,
    job_event,
    parent,
    run_event,
)

FACTS = [migration.sql.encode() for migration in known_migrations() if migration.makes_facts]


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect("test", autocommit=True) as connection:
        prepare(connection, SOURCE)
        yield connection


def many_kinds() -> list[Event]:
    """Events that leave rows in every table."""
    lineage = facet(fields={"id": {"inputFields": [{"namespace": DB, "name": "raw", "field": "id"}]}})
    return [
        run_event("START", 0, inputs=[dataset("raw")], run_facets=parent(OTHER_RUN)),
        run_event("RUNNING", 1, outputs=[dataset("orders", facets={"columnLineage": lineage})]),
        run_event("COMPLETE", 2, job_facets={"sql": facet(query="select 1")}),
        run_event(
            "COMPLETE",
            3,
            run=OTHER_RUN,
            job="test.orders",
            inputs=[dataset("orders", inputFacets=assertions({"assertion": "unique", "success": False}))],
        ),
        job_event(4, inputs=[dataset("raw")]),
        dataset_event(5, facets={"schema": facet(fields=[{"name": "id"}])}),
    ]


def one_row(connection: psycopg.Connection, query: str) -> Any:
    (row,) = connection.execute(query.encode()).fetchall()
    return row


# The tables


@corpus.needs_corpus
def test_what_real_producers_send_ends_in_the_rows_of_the_fold_whatever_the_batches(
    connection: psycopg.Connection,
) -> None:
    verdicts = map(judge, corpus.all_events())
    events = [verdict for verdict in verdicts if not isinstance(verdict, Rejection)]
    expected = fold(events)
    chance = random.Random(5)
    chance.shuffle(events)

    while events:
        size = chance.randint(1, 30)
        apply(connection, fold(events[:size]))
        events = events[chance.randint(1, size) :]  # some come again in the next batch

    assert differences(expected, read_facts(connection)) == []
    check_what_is_derived(connection, expected)


def test_every_table_is_merged(connection: psycopg.Connection) -> None:
    events = many_kinds()
    expected = fold(events)

    for event in reversed(events):
        stored(connection, [event])

    assert all(expected.rows(table) for table in f.TABLES)
    assert differences(expected, read_facts(connection)) == []


def test_a_first_batch_however_large_finds_every_row_by_its_primary_key(connection: psycopg.Connection) -> None:
    """The planner knows nothing of empty tables; another index would read all there is of a dataset for each row."""
    attempt = begin(connection, SOURCE)

    used = {}
    for statement in statements(attempt.slot, "facts"):
        (((plan,),),) = connection.execute(
            b"EXPLAIN (FORMAT json) " + statement, {"parts": [attempt.number]}
        ).fetchall()
        if plan["Plan"].get("Operation") == "Merge":
            used[plan["Plan"]["Relation Name"]] = set(indexes(plan["Plan"], "standing"))

    assert len(used) >= len(f.TABLES)
    assert used == {table: {f"{table}_pkey"} for table in used}


def indexes(plan: dict[str, Any], alias: str) -> Iterator[str]:
    """By which a table is read, anywhere in a plan."""
    if plan.get("Alias") == alias and "Index Name" in plan:
        yield plan["Index Name"]
    for part in plan.get("Plans", ()):
        yield from indexes(part, alias)


def test_the_first_end_decides_even_when_it_comes_last(connection: psycopg.Connection) -> None:
    ends = [run_event("COMPLETE", 5, outputs=[dataset("orders")]), run_event("ABORT", 4), run_event("FAIL", 4)]

    states = []
    for event in ends:
        stored(connection, [event])
        states.append(one_row(connection, "SELECT current_state, to_char(ended_at, 'MI') FROM job_runs"))

    assert states == [("COMPLETE", "05"), ("ABORT", "04"), ("FAIL", "04")]
    assert one_row(connection, "SELECT count(*) FROM lineage_edges JOIN job_runs ON id = job_run_id") == (1,)
    check_what_is_derived(connection, fold(ends))


def test_a_run_that_ended_stays_ended(connection: psycopg.Connection) -> None:
    events = [run_event("FAIL", 1), run_event("COMPLETE", 2), run_event("RUNNING", 3), run_event("START", 0)]

    for event in events:
        stored(connection, [event])

        assert one_row(connection, "SELECT current_state FROM job_runs") == ("FAIL",)
    check_what_is_derived(connection, fold(events))


def test_a_facet_that_was_deleted_stays_deleted_when_an_older_one_comes_late(connection: psycopg.Connection) -> None:
    schema = {"schema": facet(fields=[{"name": "id"}]), "documentation": facet(description="d")}
    events = [dataset_event(3, facets={"schema": facet(_deleted=True)}), dataset_event(1, facets=schema)]

    for event in events:
        stored(connection, [event])

    row = one_row(connection, "SELECT schema_json, ARRAY(SELECT jsonb_object_keys(facets)) FROM datasets")
    assert row == (None, ["documentation"])
    assert differences(fold(events), read_facts(connection)) == []


def test_column_edges_that_are_staged_in_parts_are_one_set(connection: psycopg.Connection) -> None:
    fields = {
        f"c{number}": {"inputFields": [{"namespace": DB, "name": "raw", "field": f"c{number}"}]} for number in range(40)
    }
    lineage = facet(fields=fields)
    facts = fold([run_event(outputs=[dataset("orders", facets={"columnLineage": lineage})])])
    attempt = begin(connection, SOURCE)

    stage(connection, attempt, facts, most_bytes=500)
    merge(connection, attempt, batch_of())

    assert one_row(connection, "SELECT cardinality(mapping_ids) FROM run_column_mappings") == (40,)
    assert differences(facts, read_facts(connection)) == []


# Once in effect


def test_a_batch_that_is_repeated_changes_and_locks_no_row(connection: psycopg.Connection) -> None:
    facts = stored(connection, many_kinds())
    before = versions(connection)

    apply(connection, facts)

    assert versions(connection) == before


def test_a_task_that_is_tried_again_may_stage_its_rows_twice(connection: psycopg.Connection) -> None:
    facts = fold(many_kinds())
    attempt = begin(connection, SOURCE)

    stage(connection, attempt, facts)
    stage(connection, attempt, facts)
    merge(connection, attempt, batch_of())

    assert differences(facts, read_facts(connection)) == []


def test_a_batch_is_staged_by_many_at_once(database: Database, connection: psycopg.Connection) -> None:
    rows = list(fold(many_kinds()))
    attempt = begin(connection, SOURCE)

    def task(number: int) -> None:
        with database.connect("task") as own:
            stage(own, attempt, rows[number::4])

    tasks = [threading.Thread(target=task, args=[number]) for number in range(4)]
    for each in tasks:
        each.start()
    for each in tasks:
        each.join()
    merge(connection, attempt, batch_of())

    assert differences(fold(many_kinds()), read_facts(connection)) == []


def test_what_another_attempt_or_another_source_has_staged_is_left_alone(connection: psycopg.Connection) -> None:
    prepare(connection, "kafka:broker/topic")
    given_up, attempt = begin(connection, SOURCE), begin(connection, SOURCE)
    elsewhere = begin(connection, "kafka:broker/topic")
    stage(connection, given_up, fold([run_event("FAIL")]))
    stage(connection, elsewhere, fold([run_event("FAIL", run=OTHER_RUN)]))
    stage(connection, attempt, fold([run_event("COMPLETE")]))

    merge(connection, attempt, batch_of())
    assert connection.execute("SELECT run_id, current_state FROM job_runs").fetchall() == [(RUN, "COMPLETE")]

    merge(connection, elsewhere, batch_of())
    assert one_row(connection, "SELECT count(*) FROM job_runs") == (2,)


def test_a_merge_that_is_killed_half_way_leaves_nothing_and_can_be_repeated(
    database: Database, connection: psycopg.Connection
) -> None:
    stored(connection, many_kinds())
    before = read_facts(connection)
    later = [run_event("COMPLETE", 1, run="another", outputs=[dataset("orders")]), run_event("FAIL", 1)]
    attempt = begin(connection, SOURCE)
    stage(connection, attempt, fold(later))
    errors: list[BaseException] = []

    def killed() -> None:
        try:
            with database.connect("merge", autocommit=True) as own:
                pids.append(own.info.backend_pid)
                merge(own, attempt, batch_of(batch_id=1))
        except psycopg.OperationalError as error:
            errors.append(error)

    pids: list[int] = []
    with database.connect("in the way") as other:
        # The dataset's row is merged after the runs, which are therefore written and not committed.
        other.execute("SELECT FROM datasets FOR UPDATE")
        thread = threading.Thread(target=killed)
        thread.start()
        wait_until(lambda: bool(pids) and is_waiting(connection, pids[0]))
        connection.execute("SELECT pg_terminate_backend(%s)", pids)
        thread.join()

    assert len(errors) == 1
    assert differences(before, read_facts(connection)) == []
    assert connection.execute("SELECT batch_id FROM pipeline_batches").fetchall() == [(0,)]

    merge(connection, attempt, batch_of(batch_id=1))
    assert differences(fold([*many_kinds(), *later]), read_facts(connection)) == []


def test_what_a_crash_of_the_server_has_taken_from_staging_is_not_taken_for_merged(data_dir: Path) -> None:
    """Staging is not written to the WAL: the tables are there after a crash, and empty."""
    with EmbeddedPostgres.open(data_dir / "postgres") as server:
        database = Database(server.url)
        migrate(database)
        with database.connect("merge", autocommit=True) as connection:
            prepare(connection, SOURCE)
            attempt = begin(connection, SOURCE)
            stage(connection, attempt, fold(many_kinds()))
            os.kill(connection.info.backend_pid, signal.SIGKILL)
        wait_until(lambda: is_up(database))
        with database.connect("merge", autocommit=True) as connection:
            with pytest.raises(StagingLostError, match="Batch 0 of test was not merged"):
                merge(connection, attempt, batch_of(read=6, applied=6))
            assert connection.execute("SELECT FROM pipeline_batches").fetchall() == []

            apply(connection, fold(many_kinds()), read=6, applied=6)
            assert differences(fold(many_kinds()), read_facts(connection)) == []


def is_up(database: Database) -> bool:
    try:
        database.connect("test").close()
    except psycopg.OperationalError:
        return False
    return True


def test_an_attempt_that_another_one_has_followed_is_not_merged(connection: psycopg.Connection) -> None:
    """By a second process on the same source, or after one was believed dead."""
    attempt = begin(connection, SOURCE)
    stage(connection, attempt, fold(many_kinds()))
    begin(connection, SOURCE)

    with pytest.raises(StagingLostError):
        merge(connection, attempt, batch_of())


def is_waiting(connection: psycopg.Connection, pid: int) -> bool:
    query = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted"
    return connection.execute(query, [pid]).fetchone() == (1,)


def wait_until(is_so: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(3000):
        if is_so():
            return
        pause.wait(0.01)
    pytest.fail("it never came to pass")


# One at a time


def test_of_two_merges_one_waits_for_the_other(database: Database, connection: psycopg.Connection) -> None:
    attempt = begin(connection, SOURCE)
    stage(connection, attempt, fold(many_kinds()))
    pids: list[int] = []

    def second() -> None:
        with database.connect("merge", autocommit=True) as own:
            pids.append(own.info.backend_pid)
            merge(own, attempt, batch_of())

    thread = threading.Thread(target=second)
    with database.connect("first") as first:
        lock_merges(first)
        thread.start()
        wait_until(lambda: bool(pids) and is_waiting(connection, pids[0]))
        assert read_facts(connection) == Facts()
        first.commit()
    thread.join()

    assert differences(fold(many_kinds()), read_facts(connection)) == []


def test_another_schema_is_filled_by_the_same_merge_and_at_the_same_time(
    database: Database, connection: psycopg.Connection
) -> None:
    with connection.transaction():
        connection.execute("CREATE SCHEMA facts_next")
        connection.execute("SET LOCAL search_path = facts_next")
        for migration in FACTS:
            connection.execute(migration)
    facts = fold(many_kinds())

    with database.connect("live merge") as live:
        lock_merges(live)
        apply(connection, facts, "facts_next")

    assert differences(facts, read_facts(connection, "facts_next")) == []
    assert read_facts(connection) == Facts()


# The ledger


def test_a_batch_is_in_the_ledger_once_however_often_it_is_merged(connection: psycopg.Connection) -> None:
    apply(connection, fold([]), batch_id=7, read=3, applied=3, first_position=4, last_position=6)
    again: dict[str, Any] = {
        "read": 3,
        "applied": 1,
        "duplicates": 1,
        "rejected": 1,
        "spans": (Span("topic/0", 3, 7, 9),),
    }
    apply(connection, fold([]), batch_id=7, **again)
    apply(connection, fold([]), batch_id=8, query_id="other", source="kafka")

    rows = connection.execute(
        """
        SELECT query_id, batch_id, source, read, applied, duplicates, rejected, first_position, last_position, offsets
        FROM pipeline_batches ORDER BY batch_id
        """
    ).fetchall()

    said = {"origin": "topic/0", "events": 3, "first": 7, "last": 9, "size": None, "modified_at": None}
    assert rows == [
        ("query", 7, SOURCE, 3, 1, 1, 1, None, None, [said]),
        ("other", 8, "kafka", 0, 0, 0, 0, None, None, None),
    ]


def test_a_batch_that_does_not_add_up_is_not_merged(connection: psycopg.Connection) -> None:
    with pytest.raises(CheckViolation):
        apply(connection, fold(many_kinds()), read=3, applied=2)

    assert read_facts(connection) == Facts()


def test_the_log_is_read_as_far_as_the_merge_has_come_and_never_back(connection: psycopg.Connection) -> None:
    def reached(first: int, last: int) -> Any:
        apply(connection, fold([]), reader="pipeline", first_position=first, last_position=last)
        return one_row(connection, "SELECT reader, position FROM log_readers")

    assert reached(1, 10) == ("pipeline", 10)
    assert reached(11, 15) == ("pipeline", 15)
    assert reached(1, 10) == ("pipeline", 15)


# Staging


def test_staging_is_emptied_when_it_has_grown(connection: psycopg.Connection) -> None:
    large: list[Event] = [
        dataset_event(facets={f"facet_{n}": facet(said="x" * 100_000) for n in range(40)}),
        run_event(),
    ]
    attempt = begin(connection, SOURCE)
    stage(connection, attempt, fold(large))
    merge(connection, attempt, batch_of())

    sweep(connection, attempt)

    assert staged(connection, "datasets") == 0
    assert staged(connection, "job_runs") == 1  # not worth it


def test_a_sweep_does_not_wait_for_a_task_that_was_given_up(database: Database, connection: psycopg.Connection) -> None:
    attempt = begin(connection, SOURCE)
    stage(connection, attempt, fold([dataset_event(facets={"large": facet(said="x" * 3_000_000)})]))

    with database.connect("task") as task:
        stage_and_hang = fold([dataset_event()])
        with task.transaction(force_rollback=True):
            stage(task, attempt, stage_and_hang)
            sweep(connection, attempt, patience_ms=1)
            assert staged(connection, "datasets") == 1

    sweep(connection, attempt)
    assert staged(connection, "datasets") == 0


def staged(connection: psycopg.Connection, table: str) -> Any:
    (name,) = one_row(connection, f"SELECT tablename FROM pg_tables WHERE tablename ~ '^s[0-9a-f]{{12}}_{table}$'")  # noqa: S608
    return one_row(connection, f"SELECT count(*) FROM staging.{name}")[0]  # noqa: S608
