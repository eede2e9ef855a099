"""Rejected events: kept whatever they hold, found again, read in chunks."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from correlator.rulebook.problems import Problem
from correlator.store.database import Database
from correlator.store.rejects import (
    LONGEST_SENTENCE,
    LONGEST_TEXT,
    MOST_PROBLEMS,
    Reason,
    Reject,
    Selection,
    WholeRejectedEvent,
    chunks,
    keep_rejects,
    list_rejects,
    read_rejects,
    reject_totals,
)

NAMELESS = Problem("job.name", "required", "job.name is required")
BLANK = Problem("run.runId", "blank", "run.runId is blank")


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect("test", autocommit=True) as connection:
        yield connection


def reject(raw: bytes = b"{}", *problems: Problem, **others: Any) -> Reject:
    return Reject(raw=raw, layer=others.pop("layer", 1), problems=problems or (NAMELESS,), **others)


def kept(connection: psycopg.Connection, one: Reject) -> WholeRejectedEvent:
    keep_rejects(connection, "http", [one])
    ((number,),) = connection.execute("SELECT max(id) FROM rejected_events").fetchall()
    (event,) = read_rejects(connection, [number])
    return event


def ids(connection: psycopg.Connection, **selection: Any) -> list[int]:
    return [event.id for event in list_rejects(connection, Selection(**selection), limit=100)]


def test_an_event_is_kept_with_everything_that_is_known_of_it(connection: psycopg.Connection) -> None:
    before = datetime.now(UTC)
    raw = b'{"producer": "https://example.com/p"}'
    event = kept(
        connection,
        reject(
            raw, NAMELESS, BLANK, kind="run", producer="https://example.com/p", sent_by="airflow", correlation_id="c-1"
        ),
    )
    assert abs(event.rejected_at - before) < timedelta(minutes=1)
    assert (event.source, event.layer, event.path, event.rule) == ("http", 1, "job.name", "required")
    assert event.sentence == "job.name is required; run.runId is blank"
    assert event.problems == (
        Reason("job.name", "required", "job.name is required"),
        Reason("run.runId", "blank", "run.runId is blank"),
    )
    assert (event.kind, event.producer) == ("run", "https://example.com/p")
    assert (event.sent_by, event.correlation_id) == ("airflow", "c-1")
    assert (event.raw, event.bytes) == (raw, len(raw))
    assert (event.redriven_at, event.redriven_as) == (None, None)


def test_to_keep_nothing_is_nothing(connection: psycopg.Connection) -> None:
    keep_rejects(connection, "http", [])
    assert reject_totals(connection).events == 0


def test_totals_follow(connection: psycopg.Connection) -> None:
    keep_rejects(connection, "http", [reject(b"x" * 100)] * 3)
    totals = reject_totals(connection)
    assert totals.events == 3
    assert 300 < totals.bytes < 1000
    assert (totals.capped_events, totals.capped_bytes, totals.last_capped_at) == (0, 0, None)


def test_what_is_kept_in_a_transaction_that_fails_is_not_kept(
    database: Database, connection: psycopg.Connection
) -> None:
    with database.connect("fails") as other:
        keep_rejects(other, "http", [reject()])
        other.rollback()
    assert reject_totals(connection).events == 0
    assert ids(connection) == []


def test_texts_that_postgresql_cannot_hold_are_held_as_near_as_can_be(connection: psycopg.Connection) -> None:
    event = kept(
        connection,
        reject(
            b"\x00\xff\xfe",
            Problem("a\x00b", "type", "a\x00b: \ud800 \udfff ü 🦆"),
            producer="p\x00\ud83d",
            sent_by="k\x00",
            correlation_id="c\udc80",
        ),
    )
    assert event.raw == b"\x00\xff\xfe"
    assert event.path == "a\ufffdb"
    assert event.sentence == event.problems[0].message == "a\ufffdb: \ufffd \ufffd ü 🦆"
    assert (event.producer, event.sent_by, event.correlation_id) == ("p\ufffd\ufffd", "k\ufffd", "c\ufffd")


# One database for all examples: the table only grows.
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    raw=st.binary(max_size=50),
    path=st.text(st.characters(), max_size=20),
    message=st.text(st.characters(), max_size=20),
    producer=st.none() | st.text(st.characters(), max_size=20),
)
def test_no_text_and_no_bytes_break_it(
    connection: psycopg.Connection, raw: bytes, path: str, message: str, producer: str | None
) -> None:
    event = kept(connection, reject(raw, Problem(path, "type", message), producer=producer))
    assert event.raw == raw
    assert len(event.sentence) == len(message)


def test_what_the_rulebook_says_of_a_nasty_event_is_kept(connection: psycopg.Connection) -> None:
    for raw in (
        b'{"run": {"runId": "\\u0000"}, "job": {"name": "\\ud800"}}',
        b'{"eventTime": "\x80"}',
        b"[" * 100_000,
        b"",
        b'{"run": {}, "job": {}, "\\u0000": 1, "inputs": [{"facets": {"\\u0000\\uffff": {"_producer": 1}}}]}',
    ):
        verdict = judge(raw)
        assert isinstance(verdict, Rejection)
        event = kept(connection, reject(raw, *verdict.errors, producer=verdict.producer))
        assert event.raw == raw
        assert event.problems


def test_of_endless_words_the_beginning_is_kept_and_of_the_event_all(connection: psycopg.Connection) -> None:
    key = "k" * 1_000_000
    problems = [Problem(f"inputs[{n}].{key}", "type", f"inputs[{n}].{key}: expected object") for n in range(1000)]
    raw = b"x" * 3_000_000
    event = kept(connection, reject(raw, *problems, producer=key))
    assert event.raw == raw
    assert len(event.path) == len(event.producer or "") == LONGEST_TEXT
    assert event.path.startswith("inputs[0].kkk")
    assert event.path.endswith("…")
    assert len(event.sentence) == LONGEST_SENTENCE
    assert len(event.problems) == MOST_PROBLEMS + 1
    assert event.problems[-1] == Reason("$", "more_problems", "and 900 more, which are not kept")


def test_lists_begin_with_the_newest_and_go_on_before_it(connection: psycopg.Connection) -> None:
    keep_rejects(connection, "http", [reject()] * 5)
    first = list_rejects(connection, Selection(), limit=2)
    assert [event.id for event in first] == [5, 4]
    assert [event.id for event in list_rejects(connection, Selection(), limit=9, before=4)] == [3, 2, 1]


def test_events_are_selected_by_what_is_known_of_them(connection: psycopg.Connection) -> None:
    keep_rejects(connection, "http", [reject(b"1"), reject(b"2", BLANK, NAMELESS, producer="https://Airflow.example")])
    keep_rejects(connection, "kafka", [reject(b"3", BLANK, layer=2, producer="100%_sure")])
    connection.execute("UPDATE rejected_events SET rejected_at = now() - interval '2 days' WHERE id = 1")
    connection.execute("UPDATE rejected_events SET redriven_at = now() WHERE id = 2")
    day_ago = datetime.now(UTC) - timedelta(days=1)
    for selection, expected in (
        ({}, [3, 2, 1]),
        ({"ids": (1, 3, 99)}, [3, 1]),
        ({"rules": ("required",)}, [2, 1]),
        ({"rules": ("blank",)}, [3, 2]),
        ({"rules": ("blank", "required")}, [3, 2, 1]),
        ({"rules": ("none such",)}, []),
        ({"layer": 2}, [3]),
        ({"producer": "airflow"}, [2]),
        ({"producer": "%_s"}, [3]),
        ({"producer": "_"}, [3]),
        ({"source": "http"}, [2, 1]),
        ({"since": day_ago}, [3, 2]),
        ({"until": day_ago}, [1]),
        ({"since": day_ago, "until": day_ago}, []),
        ({"not_redriven": True}, [3, 1]),
        ({"rules": ("blank",), "not_redriven": True, "source": "kafka"}, [3]),
    ):
        assert ids(connection, **selection) == expected, selection


def test_chunks_are_bounded_by_number_and_bytes_and_miss_nothing(connection: psycopg.Connection) -> None:
    keep_rejects(connection, "http", [reject(b"x" * size) for size in (10, 10, 95, 10, 200, 10, 80, 20)])
    everything = list(chunks(connection, Selection(), most_events=100, most_bytes=100))
    assert everything == [[1, 2], [3], [4], [5], [6, 7], [8]]
    for most in range(1, 10):
        found = list(chunks(connection, Selection(), most_events=most, most_bytes=10_000))
        assert [number for chunk in found for number in chunk] == list(range(1, 9))
        assert max(map(len, found)) <= most
    assert list(chunks(connection, Selection(ids=(8, 2, 5)))) == [[2, 5, 8]]
    assert list(chunks(connection, Selection(source="none"))) == []


def test_what_comes_while_chunks_are_read_is_left_for_the_next_time(connection: psycopg.Connection) -> None:
    keep_rejects(connection, "http", [reject()] * 3)
    seen = []
    for chunk in chunks(connection, Selection(), most_events=1):
        seen += chunk
        keep_rejects(connection, "http", [reject()])
    assert seen == [1, 2, 3]
