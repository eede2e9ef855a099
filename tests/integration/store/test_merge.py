"""Batches of the pipeline end in the fact tables: whole, once in effect, and one at a time."""

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.errors import CheckViolation, ForeignKeyViolation

from correlator.rulebook import facts as f
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.facts import Facts
from correlator.rulebook.fold import fold
from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres
from correlator.store.fact_rows import BY_NAME, read_facts
from correlator.store.merge import SETTINGS, Span, StagingLostError, lock_merges, merge, merge_beside
from correlator.store.merge_statements import statements
from correlator.store.migrations import known_migrations, migrate
from correlator.store.staging import Attempt, begin, prepare, stage, staged_table, sweep
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


def many_kinds(run: str = RUN, other: str = OTHER_RUN) -> list[Event]:
    """Events that leave rows in every table."""
    lineage = facet(fields={"id": {"inputFields": [{"namespace": DB, "name": "raw", "field": "id"}]}})
    return [
        run_event("START", 0, run=run, inputs=[dataset("raw")], run_facets=parent(other)),
        run_event("RUNNING", 1, run=run, outputs=[dataset("orders", facets={"columnLineage": lineage})]),
        run_event("COMPLETE", 2, run=run, job_facets={"sql": facet(query="select 1")}),
        run_event(
            "COMPLETE",
            3,
            run=other,
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


def test_parts_that_speak_of_the_same_run_are_merged_one_after_the_other(connection: psycopg.Connection) -> None:
    events = [run_event("START", 1, outputs=[dataset("orders")]), run_event("COMPLETE", 5, inputs=[dataset("raw")])]
    attempt = begin(connection, SOURCE)

    for task, event in enumerate(events):
        stage(connection, attempt, fold([event]), number=attempt.part(task))
    merge(connection, attempt, batch_of())

    assert differences(fold(events), read_facts(connection)) == []
    check_what_is_derived(connection, fold(events))


def test_a_task_that_is_tried_again_may_stage_what_was_merged_before(connection: psycopg.Connection) -> None:
    events = many_kinds()
    attempt = begin(connection, SOURCE)

    def staging() -> None:
        for task, count in ((7, 0), (7, 1), (8, 0), (8, 1)):
            with connect_like(connection) as other:
                stage(other, attempt, fold(events[count::2]), number=attempt.part(task, count))

    merge_beside(connection, attempt, staging, lambda _: batch_of())

    assert differences(fold(events), read_facts(connection)) == []
    check_what_is_derived(connection, fold(events))


@pytest.mark.parametrize("is_superuser", [True, False])
@pytest.mark.parametrize("missing", [f.DATASETS, f.JOB_RUNS], ids=["datasets", "runs"])
def test_in_bulk_too_nothing_is_merged_that_refers_to_nothing(
    connection: psycopg.Connection, missing: f.Table, *, is_superuser: bool
) -> None:
    """Whether it is we who look, all at once, or the database, each row by itself."""
    facts = fold([run_event("COMPLETE", 5, outputs=[dataset("orders")])])
    incomplete = [row for row in facts if row[0] is not missing]
    attempt = begin(connection, SOURCE)
    if not is_superuser:
        become_nobody(connection)

    with connect_like(connection) as other:
        staging = partial(stage, other, attempt, incomplete)
        with pytest.raises(ForeignKeyViolation, match="lineage_edges"):
            merge_beside(connection, attempt, staging, lambda _: batch_of())

    assert len(read_facts(connection)) == 0


def test_whoever_may_not_put_off_the_database_merges_in_bulk_all_the_same(connection: psycopg.Connection) -> None:
    events = many_kinds()
    attempt = begin(connection, SOURCE)
    become_nobody(connection)

    with connect_like(connection) as other:
        merge_beside(connection, attempt, partial(stage, other, attempt, fold(events)), lambda _: batch_of())

    assert differences(fold(events), read_facts(connection)) == []


def become_nobody(connection: psycopg.Connection) -> None:
    """A user who may do with our tables what we may, and nothing else."""
    connection.execute("DROP ROLE IF EXISTS nobody_special")
    connection.execute("CREATE ROLE nobody_special")
    for schema in ("kept", "facts", "staging"):
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO nobody_special".encode())
        connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO nobody_special".encode())
    connection.execute("SET ROLE nobody_special")


def connect_like(connection: psycopg.Connection) -> psycopg.Connection:
    return psycopg.connect(connection.info.dsn, password=connection.info.password, autocommit=True)


def test_triggers_of_facts_fire_in_a_bulk_merge(connection: psycopg.Connection) -> None:
    """It lets the database's own ones rest, with all that are not said to fire always."""
    resting = connection.execute(
        "SELECT tgrelid::regclass::text, tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid "
        "WHERE NOT tgisinternal AND tgenabled <> 'A' AND relnamespace = 'facts'::regnamespace"
    ).fetchall()

    assert resting == []


def test_a_first_batch_however_large_finds_every_row_by_its_primary_key(connection: psycopg.Connection) -> None:
    """The planner knows nothing of empty tables; another index would read all there is of a dataset for each row."""
    used = {
        plan["Relation Name"]: {scan["Index Name"] for scan in scans(plan) if scan.get("Alias") == "standing"}
        for plan in plans(connection)
        if plan.get("Operation") == "Merge"
    }

    assert len(used) >= len(f.TABLES)
    assert used == {table: {f"{table}_pkey"} for table in used}


def test_nothing_that_a_merge_asks_for_is_looked_for_in_all_of_a_table(connection: psycopg.Connection) -> None:
    """Nor in all of an index: of each it knows at least where to begin."""
    first_columns: dict[str, str] = dict(
        connection.execute(
            "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid, 1, true) FROM pg_index "
            "JOIN pg_class ON pg_class.oid = indrelid WHERE relnamespace = 'facts'::regnamespace"
        ).fetchall()
    )

    found = [scan for plan in plans(connection) for scan in scans(plan)]
    begins_nowhere = [
        (scan.get("Relation Name"), scan.get("Index Name"), scan.get("Index Cond"))
        for scan in found
        if f"{first_columns.get(scan.get('Index Name', ''))} = " not in scan.get("Index Cond", "")
    ]

    assert len(found) > len(f.TABLES)
    assert begins_nowhere == []


def plans(
    connection: psycopg.Connection, attempt: Attempt | None = None, more: str = "VERBOSE"
) -> Iterator[dict[str, Any]]:
    """Of every statement of a merge; if nothing is said, of nothing into empty tables."""
    attempt = attempt or begin(connection, SOURCE)
    with connection.transaction():
        connection.execute(SETTINGS)
        for statement in statements(attempt.slot, "facts"):
            explain = f"EXPLAIN ({more}, FORMAT json) ".encode() + statement
            (((plan,),),) = connection.execute(explain, {"part": attempt.number}).fetchall()
            yield plan["Plan"]


def scans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """How a plan reads facts, anywhere in it; of a scan by a bitmap, how that is made."""
    if "Scan" in plan["Node Type"] and plan.get("Schema") == "facts" and plan["Node Type"] != "Bitmap Heap Scan":
        yield plan
    for part in plan.get("Plans", ()):
        if part["Node Type"] == "Bitmap Index Scan" and plan.get("Schema") == "facts":
            yield part
        yield from scans(part)


def test_what_is_said_of_new_runs_is_inserted_and_only_what_is_said_of_others_is_merged(
    connection: psycopg.Connection,
) -> None:
    """If all were merged, the rows would be the same, and nobody would see what it costs."""
    known, new = many_kinds(), many_kinds("third", "fourth")
    before: list[Event] = []

    for events in (known, known, [*known, *new]):
        facts = fold(events)
        # A JobEvent or DatasetEvent speaks of no run.
        runs = {run for (run,) in fold(before).rows(f.JOB_RUNS)} | {b""}

        assert rows_taken(connection, facts) == {
            table: (sum(run not in runs for run in said), sum(run in runs for run in said))
            for table, said in runs_told_of(facts).items()
        }
        before += events


def runs_told_of(facts: Facts) -> dict[str, list[bytes]]:
    """By table the run of each row. Their column edges, a list for each run, have a merge of their own."""
    return {
        table: [key[place] for key in facts.rows(f.BY_NAME[table])]
        for table, place in f.RUN_AT.items()
        if table != f.COLUMN_EDGES.name
    }


def rows_taken(connection: psycopg.Connection, facts: Facts) -> dict[str, tuple[int, int]]:
    """By table how many rows its INSERTs and its MERGE have looked at, whether they wrote them or not."""
    taken: Counter[tuple[str, str]] = Counter()
    attempt = begin(connection, SOURCE)
    stage(connection, attempt, facts)
    for plan in plans(connection, attempt, "ANALYZE"):
        if plan["Node Type"] == "ModifyTable":
            taken[plan["Operation"], plan["Relation Name"]] += round(plan["Plans"][0]["Actual Rows"])
    return {table: (taken["Insert", table], taken["Merge", table]) for table in runs_told_of(facts)}


def test_a_part_of_new_and_of_known_runs_ends_in_the_rows_of_the_fold(connection: psycopg.Connection) -> None:
    first = many_kinds()
    mixed = [
        *many_kinds("third", "fourth"),
        run_event("START", 0, run_facets=parent("third")),
        run_event("RUNNING", 1.5, outputs=[dataset("orders"), dataset("returns")]),
        run_event("FAIL", 1.7, run_facets={"errorMessage": facet(message="no", programmingLanguage="SQL")}),
        run_event(
            "COMPLETE",
            4,
            run=OTHER_RUN,
            job="test.orders",
            inputs=[dataset("orders", inputFacets=assertions({"assertion": "unique", "success": True}))],
        ),
    ]

    stored(connection, first)
    stored(connection, mixed)

    assert differences(fold([*first, *mixed]), read_facts(connection)) == []
    check_what_is_derived(connection, fold([*first, *mixed]))


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

    for task in (3, 4):
        stage(connection, attempt, facts, number=attempt.part(task))
    merge(connection, attempt, batch_of())

    assert differences(facts, read_facts(connection)) == []


def test_runs_are_staged_in_the_order_of_their_ids(connection: psycopg.Connection) -> None:
    attempt = begin(connection, SOURCE)

    stage(connection, attempt, fold([run_event("COMPLETE", 1, run=str(UUID(int=number))) for number in range(50)]))

    staged = staged_table(attempt.slot, BY_NAME[f.JOB_RUNS.name])
    ids = [id_ for (id_,) in connection.execute(f"SELECT id FROM {staged} ORDER BY ctid".encode())]  # noqa: S608
    assert len(ids) == 50
    assert ids == sorted(ids)


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
            # The server takes in the death of a process a moment later, and until then it still lets people in. When
            # it has, it ends all the others: the witness.
            with database.connect("witness", autocommit=True) as witness:
                os.kill(connection.info.backend_pid, signal.SIGKILL)
                wait_until(lambda: not answers(witness))
        wait_until(lambda: is_up(database))
        with database.connect("merge", autocommit=True) as connection:
            with pytest.raises(StagingLostError, match="Batch 0 of test was not merged"):
                merge(connection, attempt, batch_of(read=6, applied=6))
            assert connection.execute("SELECT FROM pipeline_batches").fetchall() == []

            apply(connection, fold(many_kinds()), read=6, applied=6)
            assert differences(fold(many_kinds()), read_facts(connection)) == []


def answers(connection: psycopg.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


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
