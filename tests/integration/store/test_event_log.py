"""The log: durable, dense, in commit order, each event once."""

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from correlator.store.database import Database
from correlator.store.event_log import REMEMBERED, Entry, EventLog, Group, entry_of
from tests.integration.events import run_event


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect("test", autocommit=True) as connection:
        yield connection


def entry(**changes: Any) -> Entry:
    return of_text(json.dumps(run_event(**changes)).encode())


def of_text(text: bytes) -> Entry:
    verdict = judge(text)
    assert not isinstance(verdict, Rejection)
    return entry_of(verdict)


def store(
    connection: psycopg.Connection, *entries: Entry, batch: uuid.UUID | None = None, remembered: timedelta = REMEMBERED
) -> list[bool]:
    return EventLog(connection, remembered).append(Group(batch or uuid.uuid4(), "test", entries))


def log(connection: psycopg.Connection) -> list[tuple[int, bytes]]:
    return connection.execute("SELECT position, raw FROM lineage_events ORDER BY position", binary=True).fetchall()


def ledger(connection: psycopg.Connection) -> tuple[int, int, int, int]:
    row = connection.execute("SELECT received, stored, duplicates, rejected FROM kept.ingest_totals").fetchone()
    assert row is not None
    return row


def test_events_are_kept_to_the_byte_in_the_order_given(connection: psycopg.Connection) -> None:
    entries = [entry(run_id=str(number)) for number in range(5)]
    assert store(connection, *entries) == [True] * 5
    assert log(connection) == [(n, entry.raw) for n, entry in enumerate(entries, 1)]


def test_positions_go_on_without_a_gap_when_a_commit_fails(connection: psycopg.Connection, database: Database) -> None:
    store(connection, entry(run_id="1"))
    with database.connect("fails") as other:
        other.execute("BEGIN")
        assert store(other, entry(run_id="2")) == [True]
        other.rollback()
    store(connection, entry(run_id="3"))
    assert [position for position, _ in log(connection)] == [1, 2]


def test_a_repeated_event_is_a_duplicate(connection: psycopg.Connection) -> None:
    assert store(connection, entry(), entry(), entry(run_id="other")) == [True, False, True]
    assert store(connection, entry(run_id="third"), entry()) == [True, False]
    assert [position for position, _ in log(connection)] == [1, 2, 3]
    assert ledger(connection) == (5, 3, 2, 0)


def test_the_same_content_in_other_bytes_is_a_duplicate(connection: psycopg.Connection) -> None:
    event = run_event()
    backwards = json.dumps(dict(reversed(event.items())), indent=2).encode()
    assert store(connection, entry()) == [True]
    assert store(connection, of_text(backwards)) == [False]
    assert store(connection, of_text(backwards), entry()) == [False, False]
    assert len(log(connection)) == 1
    assert ledger(connection) == (4, 1, 3, 0)


def test_the_same_content_in_other_bytes_within_one_group(connection: psycopg.Connection) -> None:
    backwards = of_text(json.dumps(dict(reversed(run_event().items()))).encode())
    assert store(connection, entry(), backwards, backwards, entry()) == [True, False, False, False]
    assert ledger(connection) == (4, 1, 3, 0)


def test_another_content_under_the_same_key_is_stored(connection: psycopg.Connection) -> None:
    entries = [entry(extra=number) for number in range(4)]
    assert len({entry.key for entry in entries}) == 1
    assert store(connection, entries[0], entries[1]) == [True, True]
    assert store(connection, entries[2], entries[0], entries[3], entries[2]) == [True, False, True, False]
    assert store(connection, *entries) == [False] * 4
    assert len(log(connection)) == 4
    assert ledger(connection) == (10, 4, 6, 0)


def test_an_expired_key_is_no_duplicate_and_no_error(connection: psycopg.Connection) -> None:
    assert store(connection, entry()) == [True]
    assert store(connection, entry(), remembered=timedelta(0)) == [True]
    assert store(connection, entry()) == [False]
    assert len(log(connection)) == 2


def test_identical_events_at_the_same_moment_give_one_stored(database: Database) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(10):

            def send(number: int = number) -> list[bool]:
                with database.connect("test", autocommit=True) as connection:
                    return store(connection, entry(run_id=str(number)))

            outcomes = [future.result() for future in [pool.submit(send) for _ in range(8)]]
            assert sorted(outcomes) == [[False]] * 7 + [[True]]


def test_concurrent_groups_give_dense_positions_in_the_order_of_their_commits(database: Database) -> None:
    def send(worker: int) -> None:
        with database.connect("test", autocommit=True) as connection:
            for number in range(20):
                store(connection, *[entry(run_id=f"{worker}.{number}.{n}") for n in range(3)])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(send, range(6)))
    with database.connect("test", autocommit=True) as connection:
        rows = connection.execute("SELECT position, received_at FROM lineage_events ORDER BY position").fetchall()
        assert [position for position, _ in rows] == list(range(1, 361))
        assert [at for _, at in rows] == sorted(at for _, at in rows)
        assert ledger(connection) == (360, 360, 0, 0)


def test_a_group_whose_answer_was_lost_can_be_sent_again(connection: psycopg.Connection) -> None:
    store(connection, entry(run_id="old"))
    batch = uuid.uuid4()
    group = [entry(run_id="old"), entry(run_id="new"), entry(run_id="new", extra=1)]
    first = store(connection, *group, batch=batch)
    assert first == [False, True, True]
    assert store(connection, *group, batch=batch) == first
    assert len(log(connection)) == 3
    assert ledger(connection) == (4, 3, 1, 0)


def test_each_day_has_its_partition(connection: psycopg.Connection) -> None:
    store(connection, entry(run_id="1"))
    connection.execute("UPDATE kept.log_head SET received_at = now() + interval '1 day'")
    store(connection, entry(run_id="2"))
    partitions = connection.execute("SELECT count(DISTINCT tableoid) FROM lineage_events").fetchone()
    assert partitions == (2,)


def test_the_time_of_receipt_never_runs_backwards(connection: psycopg.Connection) -> None:
    connection.execute("UPDATE kept.log_head SET received_at = now() + interval '1 hour'")
    store(connection, entry(run_id="1"))
    store(connection, entry(run_id="2"))
    row = connection.execute("SELECT count(*) FROM lineage_events WHERE received_at > now() + interval '59 min'")
    assert row.fetchone() == (2,)


def test_a_group_of_nothing_new_takes_no_position(connection: psycopg.Connection) -> None:
    store(connection, entry())
    store(connection, entry(), entry())
    assert connection.execute("SELECT position FROM kept.log_head").fetchone() == (1,)
