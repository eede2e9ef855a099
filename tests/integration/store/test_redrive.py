"""Redriving: by today's rules, once, whole, and in balance with the ledger."""

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.problems import ROOT, Problem
from correlator.store.database import Database
from correlator.store.event_log import EventLog, Group, entry_of
from correlator.store.redrive import Outcome, Redrive
from correlator.store.rejects import Reject, read_rejects, reject_totals
from tests.integration.events import run_event

PATIENCE = 30
ONCE_A_RULE = Problem(ROOT, "type", "a rule of former times")
CYCLE = Problem(ROOT, "backward_transition", "a broken cycle")


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect("test", autocommit=True) as connection:
        yield connection


def text(run_id: str = "1", **changes: Any) -> bytes:
    return json.dumps(run_event(run_id=run_id, **changes)).encode()


def refuse(connection: psycopg.Connection, *raws: bytes, problem: Problem = ONCE_A_RULE, layer: int = 1) -> None:
    """As the server does it, so that the ledger has them."""
    rejects = [Reject(raw=raw, layer=layer, problems=(problem,), sent_by="key", correlation_id="c") for raw in raws]
    EventLog(connection).append(Group(uuid.uuid4(), "http", (), rejects))


def store(connection: psycopg.Connection, raw: bytes) -> None:
    verdict = judge(raw)
    assert not isinstance(verdict, Rejection)
    assert EventLog(connection).append(Group(uuid.uuid4(), "http", [entry_of(verdict)])) == [True]


def redrive(connection: psycopg.Connection, *ids: int) -> list[Outcome]:
    return Redrive(connection, judge)(ids)


def log(connection: psycopg.Connection) -> list[bytes]:
    rows = connection.execute("SELECT raw FROM lineage_events ORDER BY position", binary=True).fetchall()
    return [raw for (raw,) in rows]


def ledger(connection: psycopg.Connection) -> dict[str, tuple[int, ...]]:
    """Received, stored, duplicates, rejected by source."""
    return {source: tuple(counts) for source, *counts in connection.execute("SELECT * FROM ingest_totals").fetchall()}


def test_an_event_that_passes_now_is_stored_to_the_byte_and_marked(connection: psycopg.Connection) -> None:
    store(connection, text("before"))
    refuse(connection, text("a"), text("b"))
    assert redrive(connection, 1, 2) == [Outcome(id=1, layer=1, stored=1), Outcome(id=2, layer=1, stored=1)]
    assert log(connection) == [text("before"), text("a"), text("b")]
    assert ledger(connection) == {"http": (3, 1, 0, 2), "redrive": (2, 2, 0, 0)}
    first, second = read_rejects(connection, [1, 2])
    assert first.redriven_at is not None
    assert (first.redriven_as, second.redriven_as) == (2, 3)


def test_to_redrive_twice_changes_nothing(connection: psycopg.Connection) -> None:
    refuse(connection, text("a"), text("b"))
    redrive(connection, 1)
    # Not even when nobody remembers the event any more.
    connection.execute("DELETE FROM lineage_event_idempotency")
    assert redrive(connection, 1, 2) == [Outcome(id=2, layer=1, stored=1)]
    assert redrive(connection, 1, 2) == []
    assert log(connection) == [text("a"), text("b")]
    assert ledger(connection)["redrive"] == (2, 2, 0, 0)


def test_an_event_that_the_log_has_is_a_duplicate_and_done_with(connection: psycopg.Connection) -> None:
    store(connection, text("a"))
    other_bytes = json.dumps(run_event(run_id="a"), indent=1).encode()
    refuse(connection, text("a"), other_bytes, text("b"), text("b"))
    outcomes = redrive(connection, 1, 2, 3, 4)
    assert [(outcome.stored, outcome.duplicates) for outcome in outcomes] == [(0, 1), (0, 1), (1, 0), (0, 1)]
    assert all(outcome.is_accepted for outcome in outcomes)
    assert log(connection) == [text("a"), text("b")]
    assert ledger(connection)["redrive"] == (4, 1, 3, 0)
    positions = [event.redriven_as for event in read_rejects(connection, [1, 2, 3, 4])]
    assert positions == [None, None, 2, 2]
    assert redrive(connection, 1, 2, 3, 4) == []


def test_other_content_under_one_key_is_stored_and_found_again(connection: psycopg.Connection) -> None:
    refuse(connection, *[text("a", extra=number) for number in range(3)])
    assert [outcome.stored for outcome in redrive(connection, 1, 2, 3)] == [1, 1, 1]
    positions = [event.redriven_as for event in read_rejects(connection, [1, 2, 3])]
    assert [log(connection)[(position or 0) - 1] for position in positions] == [
        text("a", extra=number) for number in range(3)
    ]


def test_what_is_still_refused_stays_one_rejected_event_and_tells_why(connection: psycopg.Connection) -> None:
    nameless = text("a", job="")
    refuse(connection, nameless, b"{", text("b"))
    outcomes = redrive(connection, 1, 2, 3)
    assert [outcome.is_accepted for outcome in outcomes] == [False, False, True]
    assert [problem.rule for problem in outcomes[0].problems] == ["blank"]
    assert [problem.rule for problem in outcomes[1].problems] == ["invalid_json"]
    assert reject_totals(connection).events == 3
    still, _, _ = read_rejects(connection, [1, 2, 3])
    assert (still.sentence, still.redriven_at) == ("a rule of former times", None)
    assert ledger(connection) == {"http": (3, 0, 0, 3), "redrive": (1, 1, 0, 0)}


def test_a_group_of_nothing_but_refused_ones_leaves_no_trace(connection: psycopg.Connection) -> None:
    refuse(connection, b"{", b"[1, 2]", b"[]", b"[{]")
    outcomes = redrive(connection, 1, 2, 3, 4)
    assert not any(outcome.is_accepted for outcome in outcomes)
    assert [problem.path for problem in outcomes[1].problems] == ["[0]", "[1]"]
    assert outcomes[1].problems[0].message == "[0]: the event must be a JSON object, got number"
    assert list(ledger(connection)) == ["http"]
    assert reject_totals(connection).events == 4


def test_events_of_a_broken_run_cycle_are_judged_each_by_itself(connection: psycopg.Connection) -> None:
    raws = [text(event_type="COMPLETE"), text(event_time="2026-11-01T10:01:00Z", event_type="START")]
    refuse(connection, *raws, problem=CYCLE, layer=2)
    assert redrive(connection, 1, 2) == [Outcome(id=1, layer=2, stored=1), Outcome(id=2, layer=2, stored=1)]
    assert log(connection) == raws


def test_one_object_that_was_refused_as_a_batch_is_an_event(connection: psycopg.Connection) -> None:
    refuse(connection, b"\xef\xbb\xbf" + text("a"))
    assert redrive(connection, 1) == [Outcome(id=1, layer=1, stored=1)]


def test_an_array_is_taken_apart_and_one_bad_element_does_not_harm_the_others(connection: psycopg.Connection) -> None:
    body = b"\xef\xbb\xbf [" + b" ,\n".join([text("a"), b"17", text("b"), text("c", job="")]) + b"]"
    refuse(connection, body)
    assert redrive(connection, 1) == [Outcome(id=1, layer=1, stored=2, split_off=2)]
    assert log(connection) == [text("a"), text("b")]
    assert ledger(connection) == {"http": (1, 0, 0, 1), "redrive": (4, 2, 0, 2)}
    array, *split_off = read_rejects(connection, range(1, 9))
    assert array.redriven_as == 1
    assert [(event.raw, event.source, event.rule) for event in split_off] == [
        (b"17", "redrive", "type"),
        (text("c", job=""), "redrive", "blank"),
    ]
    assert {(event.sent_by, event.correlation_id) for event in split_off} == {("key", "c")}
    assert redrive(connection, 1) == []


def test_the_elements_of_an_array_that_are_all_refused_tell_where(connection: psycopg.Connection) -> None:
    refuse(connection, b"[" + text(job="") + b"]")
    (outcome,) = redrive(connection, 1)
    (problem,) = outcome.problems
    assert problem.path == "[0].job.name"
    assert problem.message.startswith("[0].job.name")
    assert reject_totals(connection).events == 1


def test_a_rehearsal_tells_the_same_and_changes_nothing(connection: psycopg.Connection) -> None:
    refuse(connection, text("a"), b"{", b"[" + text("b") + b", 1]")
    rehearsed = Redrive(connection, judge).rehearse([1, 2, 3])
    assert log(connection) == []
    assert list(ledger(connection)) == ["http"]
    assert reject_totals(connection).events == 3
    assert redrive(connection, 1, 2, 3) == rehearsed


def test_today_s_rules_are_those_of_the_judge_that_is_given(connection: psycopg.Connection) -> None:
    def severe(raw: bytes) -> Event | Rejection:
        return Rejection(raw=raw, errors=(Problem(ROOT, "too_large", "too large for me"),))

    refuse(connection, text("a"))
    (outcome,) = Redrive(connection, severe)([1])
    assert outcome.problems == (Problem(ROOT, "too_large", "too large for me"),)
    assert log(connection) == []


def test_more_than_one_statement_holds_is_redriven_at_once(connection: psycopg.Connection) -> None:
    body = b"[" + b",".join(text(str(number)) for number in range(2500)) + b"]"
    refuse(connection, text("first"), body)
    assert redrive(connection, 1, 2) == [
        Outcome(id=1, layer=1, stored=1),
        Outcome(id=2, layer=1, stored=2500, split_off=0),
    ]
    assert len(log(connection)) == 2501
    assert ledger(connection)["redrive"] == (2501, 2501, 0, 0)
    assert read_rejects(connection, [2])[0].redriven_as == 2


def test_a_connection_that_breaks_between_storing_and_marking_leaves_neither(
    database: Database, connection: psycopg.Connection
) -> None:
    refuse(connection, text("a"), text("b"))
    with ThreadPoolExecutor(1) as pool, database.connect("breaks", autocommit=True) as breaking:
        ((pid,),) = breaking.execute("SELECT pg_backend_pid()").fetchall()
        with connection.transaction():
            # Everything but changing the rows: it gets as far as to mark them.
            connection.execute("LOCK TABLE rejected_events IN SHARE MODE")
            broken = pool.submit(redrive, breaking, 1, 2)
            with database.connect("watches", autocommit=True) as watching:
                while not watching.execute("SELECT FROM pg_locks WHERE pid = %s AND NOT granted", [pid]).fetchall():
                    assert not broken.done()
                watching.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
            with pytest.raises(psycopg.OperationalError):
                broken.result(PATIENCE)
    assert log(connection) == []
    assert list(ledger(connection)) == ["http"]
    assert [outcome.stored for outcome in redrive(connection, 1, 2)] == [1, 1]
    assert log(connection) == [text("a"), text("b")]
    assert ledger(connection)["redrive"] == (2, 2, 0, 0)


def test_several_that_redrive_the_same_store_it_once(database: Database, connection: psycopg.Connection) -> None:
    refuse(connection, *[text(str(number)) for number in range(40)])

    def work(_: int) -> int:
        with database.connect("redrives", autocommit=True) as own:
            drive = Redrive(own, judge)
            return sum(len(drive([number, number + 1])) for number in range(1, 41))

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == 40
    assert sorted(log(connection)) == sorted(text(str(number)) for number in range(40))
    assert ledger(connection)["redrive"] == (40, 40, 0, 0)
