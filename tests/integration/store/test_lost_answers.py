"""A commit whose answer was lost is asked for again, and the second answer is what the first would have been."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from correlator.rulebook.problems import Problem
from correlator.store.database import Database
from correlator.store.event_log import MOST_EVENTS_A_STATEMENT, Entry, EventLog, Group, entry_of
from correlator.store.rejects import Reject
from tests.integration.events import run_event


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect("test", autocommit=True) as connection:
        yield connection


def entry(*, backwards: bool = False, **changes: Any) -> Entry:
    event = run_event(**changes)
    verdict = judge(json.dumps(dict(reversed(event.items())) if backwards else event).encode())
    assert not isinstance(verdict, Rejection)
    return entry_of(verdict)


def totals(connection: psycopg.Connection) -> list[tuple[int, ...]]:
    return connection.execute(
        "SELECT received, stored, duplicates, rejected, (SELECT count(*) FROM kept.lineage_events), "
        "(SELECT count(*) FROM kept.rejected_events) FROM kept.ingest_totals"
    ).fetchall()


OLD = "an event that is there"
NEW = "an event that is not"

GROUPS: dict[str, tuple[list[Entry], list[bool]]] = {
    "new and old": ([entry(job=OLD), entry(job=NEW)], [False, True]),
    "copies": ([entry(job=NEW), entry(job=NEW), entry(job=OLD), entry(job=OLD)], [True, False, False, False]),
    "an old one in other bytes": ([entry(job=NEW), entry(job=OLD, backwards=True)], [True, False]),
    "an old key with new content": ([entry(job=NEW), entry(job=OLD, extra=1)], [True, True]),
    "nothing but an old one in other bytes": ([entry(job=OLD, backwards=True)], [False]),
    "nothing but an old key with new content": ([entry(job=OLD, extra=1)], [True]),
    "a new one in two forms": ([entry(job=NEW), entry(job=NEW, backwards=True)], [True, False]),
    "two contents under a new key": ([entry(job=NEW), entry(job=NEW, extra=1)], [True, True]),
    "two contents under an old key": ([entry(job=OLD, extra=1), entry(job=OLD, extra=2)], [True, True]),
    "everything": (
        [
            entry(job=OLD, backwards=True),
            entry(job=NEW),
            entry(job=OLD, extra=1),
            entry(job=NEW, backwards=True),
            entry(job=OLD),
            entry(job=NEW, extra=1),
            entry(job=NEW),
        ],
        [False, True, True, False, False, True, False],
    ),
}


@pytest.mark.parametrize("case", GROUPS)
def test_the_second_answer_is_the_first(connection: psycopg.Connection, case: str) -> None:
    entries, expected = GROUPS[case]
    log = EventLog(connection)
    log.append(Group(uuid.uuid4(), "test", [entry(job=OLD)]))
    group = Group(uuid.uuid4(), "test", entries)
    assert log.append(group) == expected
    before = totals(connection)
    for _ in range(2):
        assert log.append(group) == expected
        assert totals(connection) == before
    assert before == [(1 + len(entries), 1 + sum(expected), len(entries) - sum(expected), 0, 1 + sum(expected), 0)]


def test_a_large_group_and_its_rejects_are_kept_once(connection: psycopg.Connection) -> None:
    log = EventLog(connection)
    log.append(Group(uuid.uuid4(), "test", [entry(job=OLD)]))
    many = [entry(run_id=str(number)) for number in range(MOST_EVENTS_A_STATEMENT)]
    entries = [entry(job=OLD, backwards=True), *many, entry(job=OLD, extra=1), entry(job=OLD)]
    expected = [False, *[True] * len(many), True, False]
    reject = Reject(raw=b"{", layer=1, problems=(Problem("event", "invalid_json", "no"),))
    group = Group(uuid.uuid4(), "test", entries, [reject])
    for _ in range(2):
        assert log.append(group) == expected
        count = len(many)
        assert totals(connection) == [(count + 5, count + 2, 2, 1, count + 2, 1)]
