"""What is kept no longer than it serves, and nothing that still does."""

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from correlator.rulebook.problems import Problem
from correlator.store.database import Database
from correlator.store.event_log import EventLog, Group, entry_of
from correlator.store.rejects import Reject, keep_rejects, reject_totals
from correlator.store.retention import (
    ARCHIVE,
    Capped,
    cap_rejects,
    drop_log_days,
    drop_old_rejects,
    fold_ledger,
    forget_keys,
)
from tests.integration.events import run_event

DAY = timedelta(days=1)
PATIENCE = 30


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect("test", autocommit=True) as connection:
        yield connection


def append(connection: psycopg.Connection, *run_ids: str) -> list[bool]:
    verdicts = [judge(json.dumps(run_event(run_id=run_id)).encode()) for run_id in run_ids]
    entries = [entry_of(verdict) for verdict in verdicts if not isinstance(verdict, Rejection)]
    return EventLog(connection).append(Group(uuid.uuid4(), "test", entries))


def keep(connection: psycopg.Connection, *raws: bytes) -> None:
    problem = Problem("job.name", "required", "job.name is required")
    keep_rejects(connection, "test", [Reject(raw=raw, layer=1, problems=(problem,)) for raw in raws])


def rows(connection: psycopg.Connection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query.encode()).fetchall()


def assert_totals_are_right(connection: psycopg.Connection) -> None:
    counted = rows(connection, "SELECT count(*), coalesce(sum(kept_bytes), 0) FROM rejected_events")
    totals = reject_totals(connection)
    assert counted == [(totals.events, totals.bytes)]


@contextmanager
def another_waits_for(database: Database, work: Any) -> Iterator[Any]:
    """Runs `work` with a connection of its own, and does not go on before it waits for a lock of ours."""
    with ThreadPoolExecutor(1) as pool, database.connect("waits", autocommit=True) as waiting:
        (pid,) = rows(waiting, "SELECT pg_backend_pid()")[0]
        future = pool.submit(work, waiting)
        with database.connect("watches", autocommit=True) as watching:
            while not rows(watching, f"SELECT FROM pg_locks WHERE pid = {pid} AND NOT granted"):
                assert not future.done(), future.result()
        yield future


def test_keys_outlive_their_window_by_little(connection: psycopg.Connection) -> None:
    append(connection, "old", "older", "new")
    connection.execute(
        "UPDATE lineage_event_idempotency SET received_at = received_at - interval '2 days' WHERE position < 3"
    )
    assert forget_keys(connection, DAY, chunk=1) == 2
    assert rows(connection, "SELECT position FROM lineage_event_idempotency") == [(3,)]
    assert forget_keys(connection, DAY) == 0
    assert append(connection, "old", "new") == [True, False]


def test_the_age_of_a_key_is_told_by_the_log_and_not_by_the_clock(connection: psycopg.Connection) -> None:
    append(connection, "a")
    connection.execute("UPDATE log_head SET received_at = received_at + interval '3 days'")
    append(connection, "b")
    assert forget_keys(connection, DAY) == 1
    assert rows(connection, "SELECT position FROM lineage_event_idempotency") == [(2,)]


def test_an_empty_database_has_nothing_to_forget(connection: psycopg.Connection) -> None:
    assert forget_keys(connection, DAY) == 0
    assert fold_ledger(connection, DAY) == 0
    assert drop_old_rejects(connection, DAY) == 0
    assert cap_rejects(connection, 0) == Capped(0, 0)
    assert drop_log_days(connection, DAY) == []


def test_a_key_that_is_used_again_while_it_is_going_stays(database: Database, connection: psycopg.Connection) -> None:
    append(connection, "a")
    connection.execute("UPDATE lineage_event_idempotency SET received_at = received_at - interval '2 days'")
    with database.connect("appends", autocommit=True) as appends, appends.transaction():
        assert append(appends, "a") == [True]
        with another_waits_for(database, lambda waiting: forget_keys(waiting, DAY)) as forgetting:
            appends.execute("COMMIT; BEGIN")
            assert forgetting.result(PATIENCE) == 0
    assert append(connection, "a") == [False]


def test_old_lines_of_the_ledger_are_added_up_and_the_totals_stay(connection: psycopg.Connection) -> None:
    for run_ids in (("a", "b"), ("b", "c"), ("d",)):
        append(connection, *run_ids)
    before = rows(connection, "SELECT * FROM ingest_totals")
    connection.execute("UPDATE ingest_batches SET committed_at = now() - interval '3 days' WHERE first_position < 4")
    assert fold_ledger(connection, 2 * DAY, chunk=1) == 2
    assert rows(connection, "SELECT * FROM ingest_totals") == before == [("test", 5, 4, 1, 0)]
    assert rows(connection, "SELECT count(*) FROM ingest_batches") == [(1,)]
    folded = rows(
        connection, "SELECT batches, received, stored, duplicates, first_position, last_position FROM ingest_days"
    )
    assert folded == [(2, 4, 3, 1, 1, 3)]


def test_old_rejects_go_and_the_totals_follow(connection: psycopg.Connection) -> None:
    keep(connection, b"1", b"22", b"333", b"4444")
    connection.execute("UPDATE rejected_events SET rejected_at = now() - interval '31 days' WHERE id < 4")
    assert drop_old_rejects(connection, 30 * DAY, chunk=2) == 3
    assert rows(connection, "SELECT raw FROM rejected_events") == [(b"4444",)]
    assert_totals_are_right(connection)
    assert reject_totals(connection).capped_events == 0


def test_what_is_too_much_goes_from_the_oldest_on_and_is_written_down(connection: psycopg.Connection) -> None:
    keep(connection, *[b"x" * 1000] * 10)
    one = reject_totals(connection).bytes // 10
    assert cap_rejects(connection, 10 * one, chunk=3) == Capped(0, 0)
    assert reject_totals(connection).last_capped_at is None
    assert cap_rejects(connection, 3 * one + 1, chunk=3) == Capped(7, 7 * one)
    assert rows(connection, "SELECT id FROM rejected_events ORDER BY id") == [(8,), (9,), (10,)]
    assert_totals_are_right(connection)
    assert cap_rejects(connection, 2 * one, chunk=3) == Capped(1, one)
    totals = reject_totals(connection)
    assert (totals.events, totals.capped_events, totals.capped_bytes) == (2, 8, 8 * one)
    assert totals.last_capped_at is not None


def test_one_event_that_alone_is_too_much_goes_too(connection: psycopg.Connection) -> None:
    keep(connection, b"x" * 5000)
    assert cap_rejects(connection, 4000).events == 1
    assert_totals_are_right(connection)


def test_long_words_about_short_events_count_too(connection: psycopg.Connection) -> None:
    problems = tuple(Problem(f"inputs[{n}]", "type", f"inputs[{n}]: expected object, got number") for n in range(90))
    keep_rejects(connection, "test", [Reject(raw=b"{}", layer=1, problems=problems)] * 10)
    assert reject_totals(connection).bytes > 50_000
    assert cap_rejects(connection, 20_000).events > 5


@pytest.mark.parametrize("how", ["old", "capped"])
def test_removing_does_not_miscount_what_is_refused_meanwhile(
    database: Database, connection: psycopg.Connection, how: str
) -> None:
    keep(connection, *[b"x" * 1000] * 5)
    connection.execute("UPDATE rejected_events SET rejected_at = now() - interval '31 days' WHERE id < 3")

    def remove(waiting: psycopg.Connection) -> int:
        return drop_old_rejects(waiting, 30 * DAY) if how == "old" else cap_rejects(waiting, 4000).events

    with database.connect("keeps", autocommit=True) as keeps, keeps.transaction():
        keep(keeps, b"new", b"newer")
        with another_waits_for(database, remove) as removing:
            keeps.execute("COMMIT; BEGIN")
            assert removing.result(PATIENCE) == 2
    assert_totals_are_right(connection)
    assert reject_totals(connection).events == 5


@pytest.mark.parametrize("how", ["old", "capped"])
def test_removing_waits_for_whoever_redrives(database: Database, connection: psycopg.Connection, how: str) -> None:
    keep(connection, b"1", b"2")
    connection.execute("UPDATE rejected_events SET rejected_at = now() - interval '31 days'")

    def remove(waiting: psycopg.Connection) -> int:
        return drop_old_rejects(waiting, 30 * DAY) if how == "old" else cap_rejects(waiting, 0).events

    with database.connect("redrives", autocommit=True) as redrives, redrives.transaction():
        redrives.execute("UPDATE rejected_events SET redriven_at = now() WHERE id = 1")
        with another_waits_for(database, remove) as removing:
            redrives.execute("COMMIT; BEGIN")
            assert removing.result(PATIENCE) == 2
    assert_totals_are_right(connection)


def days(connection: psycopg.Connection) -> list[str]:
    names = rows(
        connection, "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'lineage_events'::regclass"
    )
    return sorted(name for (name,) in names)


@pytest.fixture
def three_days(connection: psycopg.Connection) -> list[str]:
    """The log's days: ten, nine and eight days ago, one event in each."""
    for ago in (10, 9, 8):
        connection.execute(f"SELECT ensure_log_partition(now() - interval '{ago} days')".encode())
        connection.execute(
            f"INSERT INTO lineage_events SELECT {11 - ago}, now() - interval '{ago} days', '{{}}'".encode()
        )
    return days(connection)


def read_to(connection: psycopg.Connection, reader: str, position: int) -> None:
    connection.execute(
        "INSERT INTO log_readers VALUES (%s, %s) ON CONFLICT (reader) DO UPDATE SET position = excluded.position",
        [reader, position],
    )


def test_no_day_is_dropped_before_there_is_an_archive(connection: psycopg.Connection, three_days: list[str]) -> None:
    read_to(connection, "pipeline", 100)
    assert drop_log_days(connection, 7 * DAY) == []
    assert days(connection) == three_days


def test_only_days_that_everybody_has_read_are_dropped(connection: psycopg.Connection, three_days: list[str]) -> None:
    read_to(connection, ARCHIVE, 3)
    read_to(connection, "pipeline", 1)
    assert drop_log_days(connection, 7 * DAY) == three_days[:1]
    read_to(connection, "pipeline", 3)
    assert drop_log_days(connection, 7 * DAY) == three_days[1:]
    assert days(connection) == []


def test_days_are_kept_for_as_long_as_was_said(connection: psycopg.Connection, three_days: list[str]) -> None:
    read_to(connection, ARCHIVE, 3)
    assert drop_log_days(connection, 9 * DAY) == three_days[:1]
    assert drop_log_days(connection, 30 * DAY) == []


def test_a_day_that_somebody_is_reading_is_left_for_the_next_time(
    database: Database, connection: psycopg.Connection, three_days: list[str]
) -> None:
    read_to(connection, ARCHIVE, 3)
    with database.connect("reads") as reading:
        reading.execute("SELECT count(*) FROM lineage_events")
        assert drop_log_days(connection, 7 * DAY) == []
    assert drop_log_days(connection, 7 * DAY) == three_days
