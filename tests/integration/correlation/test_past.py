"""What jobs did before, as far as it counts: their last runs, and how much they wrote."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from correlator.correlation.history import History
from correlator.correlation.ids import Id, id_of
from correlator.correlation.past import MOST_RUNS, JobPast, facets_at, past_facets, pasts, run_facets, varied
from correlator.rulebook.events import Event
from correlator.rulebook.identity import job_key
from tests.integration.correlation.stories import dataset_id, ran, run_id, sized, tell
from tests.unit.rulebook.histories import BEGINNING, facet, job_event, run_event

Connection = psycopg.Connection[Any]
JOB = Id(job_key("airflow", "load"))
TABLE = id_of(dataset_id("t"))
UNTIL = datetime(2026, 5, 6, tzinfo=UTC)


@pytest.fixture
def busy(connection: Connection) -> Connection:
    """`load` writes the table every hour, and so do others, twice as often; once it fails when it has written half."""
    for hour in range(8):
        state, rows = ("FAIL", 50) if hour == 5 else ("COMPLETE", 100 + hour)
        at = hour * 60
        tell(
            connection,
            ran("load", f"load {hour}", at, at + 1, writes=[sized("t", rows)], state=state),
            ran("other", f"other {hour}", at + 2, at + 3, writes=[sized("t", 7)]),
            ran("another", f"another {hour}", at + 4, at + 5, writes=[sized("t", 8)]),
        )
    return connection


def past_of(connection: Connection, number: int = 60) -> JobPast:
    return pasts(History(connection), [JOB], UNTIL, [(JOB, TABLE)], number)[JOB]


def names(connection: Connection, past: JobPast) -> list[str]:
    known = History(connection).runs(run.id for run in past.runs)
    called = {run_id(f"load {hour}"): f"load {hour}" for hour in range(8)}
    return [called[known[run.id].run_id] for run in past.runs]


def test_runs_come_with_the_latest_first_and_with_what_they_are(busy: Connection) -> None:
    past = past_of(busy)

    assert names(busy, past) == [f"load {hour}" for hour in reversed(range(8))]
    assert [run.state for run in past.runs].count("FAIL") == 1
    assert {(run.ended_at - run.started_at).total_seconds() for run in past.runs} == {60.0}


@pytest.mark.parametrize("most", [3, 1_000])
def test_amounts_are_those_of_its_own_runs_however_often_others_write(
    busy: Connection, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("correlator.correlation.past._MOST_WRITES", most)

    past = past_of(busy)

    written = {run.id: rows for run, rows, _ in past.written[TABLE]}
    assert [written[run.id] for run in past.runs] == [107, 106, 50, 104, 103, 102, 101, 100]
    assert past.rows_before(TABLE, UNTIL).amounts() == [107, 106, 104, 103, 102, 101, 100]


def test_amounts_before_a_moment_go_no_further_than_the_last_good_result_where_these_are_enough(
    connection: Connection,
) -> None:
    for hour in range(14):
        tell(connection, ran("load", f"load {hour}", hour * 60, hour * 60 + 1, writes=[sized("t", 100 + hour)]))
    past = past_of(connection)
    ends = [run.ended_at for run in past.runs]

    assert past.rows_before(TABLE, ends[0]).amounts(3) == [112, 111, 110]
    assert past.rows_before(TABLE, ends[0], ends[4]).amounts(3) == [109, 108, 107]
    assert past.rows_before(TABLE, ends[0], ends[9]).amounts(3) == [112, 111, 110]


def test_the_good_runs_of_a_while_are_those_that_ended_in_it(busy: Connection) -> None:
    past = past_of(busy)
    ends = [run.ended_at for run in past.runs]

    assert [run.ended_at for run in past.good_before(ends[1])] == [ends[3], ends[4], ends[5], ends[6], ends[7]]
    assert [run.ended_at for run in past.good_between(ends[4], ends[1])] == [ends[1], ends[3], ends[4]]
    assert [run.ended_at for run in past.failed] == [ends[2]]


def test_of_a_busy_job_all_runs_of_late_are_looked_at_and_of_others_the_last(connection: Connection) -> None:
    for hour in range(12):
        tell(connection, ran("load", f"load {hour}", hour * 60, hour * 60 + 1))
    early = datetime(2026, 5, 4, 16, tzinfo=UTC)

    assert len(pasts(History(connection), [JOB], early, [], 3)[JOB].runs) == len(
        [at for at in range(12) if BEGINNING + timedelta(minutes=at * 60 + 1) <= early]
    )
    assert len(pasts(History(connection), [JOB], early + timedelta(days=30), [], 3)[JOB].runs) == 3


def test_of_a_dataset_that_is_not_asked_for_no_amounts_are_known(busy: Connection) -> None:
    past = pasts(History(busy), [JOB], UNTIL, [])[JOB]

    assert len(past.runs) == 8
    assert past.written == {}


def test_a_job_without_runs_has_no_past(connection: Connection) -> None:
    past = past_of(connection)

    assert (past.runs, past.written) == ([], {})


def test_the_set_up_of_past_runs_is_found_by_when_they_ended(connection: Connection) -> None:
    """Many end at one instant, and more came before them than a past holds."""

    def one(number: int) -> list[Event]:
        at = min(number, MOST_RUNS + 20)
        tags = {"tags": facet(tags=[{"key": "number", "value": str(number)}])}
        return ran("load", f"{number}", at, at + 1, facets=tags, state="FAIL" if number % 7 == 0 else "COMPLETE")

    tell(connection, *map(one, range(MOST_RUNS + 40)))
    history = History(connection)
    past = pasts(history, [JOB], UNTIL, [])[JOB]

    assert len(past.runs) == MOST_RUNS
    for runs in (past.good, past.good[30:50], past.good[-1:], past.runs[5:150]):
        found = past_facets(history, [(JOB, runs)])
        assert found == run_facets(history, [run.id for run in runs])
        assert len({body["tags"]["tags"][0]["value"] for body in found.values()}) == len(runs)


def test_past_runs_are_not_looked_up_one_by_one(connection: Connection) -> None:
    """Their key is a hash: each would be on a page of its own."""
    tell(connection, *[ran("load", f"load {number}", number, number + 1) for number in range(30)])
    history = History(connection)
    past = pasts(history, [JOB], UNTIL, [])[JOB]

    def looks(index: str) -> int:
        ((count,),) = connection.execute("SELECT pg_stat_get_xact_numscans(%s::regclass)", [index]).fetchall()
        return int(count)

    before = {index: looks(index) for index in ("job_runs_ended", "job_runs_pkey")}
    # As where there are too many to read them all.
    connection.execute("SET LOCAL enable_seqscan = off")
    assert len(past_facets(history, [(JOB, past.runs)])) == 30

    assert looks("job_runs_pkey") == before["job_runs_pkey"]
    assert looks("job_runs_ended") == before["job_runs_ended"] + 1


def code_at(connection: Connection, *minutes: float) -> list[str | None]:
    """The SQL of `load` as it stood at some moments."""
    asked = [(JOB, BEGINNING + timedelta(minutes=minute)) for minute in minutes]
    found = facets_at(History(connection), "job", asked, ["sql"])
    return [found[pair].get("sql", {}).get("query") for pair in asked]


def test_what_stands_is_what_was_said_last_by_then(connection: Connection) -> None:
    for name, began, ended in (("old", 0, 5), ("new", 200, 205)):
        tell(connection, ran("load", name, began, ended, job_facets={"sql": facet(query=name)}))

    assert code_at(connection, -1, 0, 3, 5, 100, 199, 200, 300) == [None, *["old"] * 5, "new", "new"]


def test_of_runs_at_the_same_time_the_last_that_spoke_counts(connection: Connection) -> None:
    long, short = ({"sql": facet(query=name)} for name in ("long", "short"))
    tell(connection, ran("load", "long", 0, 50, job_facets=long), ran("load", "short", 20, 30, job_facets=short))

    assert code_at(connection, 10, 20, 40, 50, 55) == ["long", "short", "short", "long", "long"]


def test_a_run_that_goes_on_hides_nothing_that_others_said_since(connection: Connection) -> None:
    """It speaks once in an hour, and somebody else says something new after that."""
    for minute in (0, 65, 130, 245):
        tell(connection, [run_event("RUNNING", minute, job="load", job_facets={"sql": facet(query="stream")})])
    tell(connection, ran("load", "patch", 140, 150, job_facets={"sql": facet(query="patch")}))

    assert code_at(connection, 135, 145, 200, 240, 250) == ["stream", "patch", "patch", "patch", "stream"]


def test_at_one_instant_the_end_speaks_after_the_start(connection: Connection) -> None:
    for before, after in (("a", "b"), ("b", "a")):
        with connection.transaction(force_rollback=True):
            said = {state: {"sql": facet(query=query)} for state, query in (("START", before), ("COMPLETE", after))}
            tell(connection, [run_event(state, 7, job="load", job_facets=facets) for state, facets in said.items()])

            assert code_at(connection, 7, 8) == [after, after]


def test_what_was_deleted_does_not_stand(connection: Connection) -> None:
    tell(connection, ran("load", "one", 0, 5, job_facets={"sql": facet(query="select 1")}))
    tell(connection, [job_event(10, job="load", facets={"sql": facet(_deleted=True)})])

    assert code_at(connection, 9, 10, 90) == ["select 1", None, None]


def test_of_what_more_than_one_thing_was_said_within_some_time(connection: Connection) -> None:
    for name, began, query in (("one", 0, "a"), ("two", 70, "a"), ("three", 200, "b")):
        tell(connection, ran("load", name, began, began + 5, job_facets={"sql": facet(query=query)}))

    def between(first: float, last: float) -> set[Id]:
        since, until = (BEGINNING + timedelta(minutes=minute) for minute in (first, last))
        return varied(History(connection), "job", [(JOB, since, until)], ["sql"])

    assert between(0, 205) == between(70, 200) == {JOB}
    assert between(0, 75) == between(200, 300) == set()
