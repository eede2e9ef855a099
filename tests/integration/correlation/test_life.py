"""What people say and do about incidents, and how that stands when late events move them."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from correlator.correlation.history import History
from correlator.correlation.incident_detail import incident_detail
from correlator.correlation.incident_list import Filters, incident_list
from correlator.correlation.incidents import Incident
from correlator.correlation.life import (
    Action,
    InvalidActionError,
    SenselessActionError,
    Status,
    UnknownIncidentError,
    act,
    standings,
)
from tests.integration.correlation.stories import checked, incident_on, ran, run_id, tell
from tests.unit.rulebook.histories import facet

Connection = psycopg.Connection[Any]
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def red(connection: Connection, *minutes: float, table: str = "raw") -> Incident:
    tell(connection, *(checked(table, f"{table} {minute}", minute, good=False) for minute in minutes))
    return incident_on(connection, table)


def green(connection: Connection, minute: float, table: str = "raw") -> None:
    tell(connection, checked(table, f"{table} {minute}", minute, good=True))


def do(connection: Connection, incident: UUID, kind: Any, now: datetime = NOON, **said: Any) -> Incident:
    return act(connection, incident, Action(kind=kind, **said), "ada", now)


def status(connection: Connection, incident: Incident, now: datetime = NOON) -> Status:
    return standings(History(connection), [incident], now)[incident.id].status


def kinds(connection: Connection, incident: UUID) -> list[str]:
    return [moment.kind for moment in incident_detail(connection, incident).timeline]


def test_an_incident_is_open_then_acknowledged_then_resolved(connection: Connection) -> None:
    incident = red(connection, 10)

    assert status(connection, incident) == "open"
    do(connection, incident.uuid, "acknowledge")
    assert status(connection, incident) == "acknowledged"
    after = do(connection, incident.uuid, "resolve", reason="fixed", note="the key was wrong")
    assert (after.resolved_by, after.resolved_at) == ("person", NOON)
    assert status(connection, after) == "resolved"
    assert kinds(connection, incident.uuid) == ["failed", "acknowledge", "resolve"]


def test_a_failure_after_a_resolve_is_a_new_incident_and_reopening_makes_it_one_again(connection: Connection) -> None:
    first = red(connection, 10)
    do(connection, first.uuid, "resolve", reason="fixed")
    second = red(connection, 180)
    assert second.id != first.id

    after = do(connection, first.uuid, "reopen")

    assert after.id == first.id
    assert after.failures == 2
    assert incident_on(connection, "raw").id == first.id
    assert status(connection, after) == "open"


def test_a_later_pass_resolves_by_itself_and_cannot_be_reopened(connection: Connection) -> None:
    incident = red(connection, 10)
    green(connection, 20)

    after = incident_on(connection, "raw")
    assert after.resolved_by == "pass"
    with pytest.raises(SenselessActionError, match="later pass"):
        do(connection, incident.uuid, "reopen")


def test_what_has_passed_since_a_person_resolved_it_cannot_be_reopened(connection: Connection) -> None:
    incident = red(connection, 10)
    do(connection, incident.uuid, "resolve", reason="fixed")
    green(connection, 180)

    with pytest.raises(SenselessActionError, match="has passed since"):
        do(connection, incident.uuid, "reopen")
    assert incident_on(connection, "raw").resolved_by == "person"
    assert kinds(connection, incident.uuid).count("reopen") == 0


def test_what_was_done_can_be_taken_back(connection: Connection) -> None:
    incident = red(connection, 10)
    do(connection, incident.uuid, "acknowledge")
    do(connection, incident.uuid, "unacknowledge")
    assert status(connection, incident) == "open"
    assert incident_list(connection, Filters(status="acknowledged")) == []
    do(connection, incident.uuid, "acknowledge")
    assert status(connection, incident) == "acknowledged"
    assert [one.id for one in incident_list(connection, Filters(status="acknowledged"))] == [incident.uuid]

    do(connection, incident.uuid, "assign", assignee="bob")
    do(connection, incident.uuid, "unassign")
    assert standings(History(connection), [incident], NOON)[incident.id].assignee is None
    assert incident_list(connection, Filters(assignee="bob")) == []


@pytest.mark.parametrize(
    ("before", "senseless", "words"),
    [
        ([{"kind": "acknowledge"}], {"kind": "acknowledge"}, "acknowledged already, by ada"),
        ([{"kind": "resolve", "reason": "fixed"}], {"kind": "acknowledge"}, "resolved already, by a person"),
        ([{"kind": "resolve", "reason": "fixed"}], {"kind": "resolve", "reason": "other"}, "resolved already"),
        ([{"kind": "resolve", "reason": "fixed"}], {"kind": "assign", "assignee": "bob"}, "resolved already"),
        ([{"kind": "assign", "assignee": "bob"}], {"kind": "assign", "assignee": "bob"}, "assigned to bob already"),
        ([], {"kind": "unmute"}, "not muted"),
        ([], {"kind": "unacknowledge"}, "not acknowledged"),
        ([], {"kind": "unassign"}, "assigned to nobody"),
        ([], {"kind": "reopen"}, "not resolved"),
    ],
)
def test_what_makes_no_sense_is_refused_with_words(
    connection: Connection, before: list[dict[str, Any]], senseless: dict[str, Any], words: str
) -> None:
    incident = red(connection, 10)
    for said in before:
        do(connection, incident.uuid, **said)
    told = kinds(connection, incident.uuid)

    with pytest.raises(SenselessActionError, match=words):
        do(connection, incident.uuid, **senseless)
    assert kinds(connection, incident.uuid) == told


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"kind": "assign"}, "assignee is required"),
        ({"kind": "mute"}, "until is required"),
        ({"kind": "mute", "until": NOON - timedelta(seconds=1)}, "in the past"),
        ({"kind": "resolve"}, "reason is required"),
        ({"kind": "comment", "note": " "}, "note is required"),
        ({"kind": "acknowledge", "assignee": "bob"}, "assignee says nothing"),
        ({"kind": "comment", "note": "x" * 10_001}, "10,000 are allowed"),
    ],
)
def test_what_lacks_something_is_refused_with_words(connection: Connection, said: dict[str, Any], words: str) -> None:
    incident = red(connection, 10)

    with pytest.raises(InvalidActionError, match=words):
        do(connection, incident.uuid, **said)


def test_nobody_can_speak_of_an_incident_that_is_not_there(connection: Connection) -> None:
    with pytest.raises(UnknownIncidentError, match="no incident"):
        do(connection, uuid4(), "acknowledge")


def test_a_mute_is_of_the_test_outlasts_its_incidents_and_ends_when_it_says(connection: Connection) -> None:
    incident = red(connection, 10)
    do(connection, incident.uuid, "mute", until=NOON + timedelta(hours=1))
    assert status(connection, incident) == "muted"

    green(connection, 20)
    again = red(connection, 30)

    assert again.id != incident.id
    assert status(connection, again) == "muted"
    assert status(connection, again, NOON + timedelta(hours=1)) == "open"
    do(connection, again.uuid, "unmute")
    assert status(connection, again) == "open"


def test_the_id_of_any_failure_leads_to_the_incident(connection: Connection) -> None:
    incident = red(connection, 10, 20, 30)
    failures = connection.execute("SELECT id FROM failures ORDER BY at").fetchall()

    assert {incident_detail(connection, failure).id for (failure,) in failures} == {incident.uuid}
    assert do(connection, failures[-1][0], "acknowledge").id == incident.id


def test_words_stay_with_their_failure_when_a_late_one_moves_the_start(connection: Connection) -> None:
    incident = red(connection, 30)
    do(connection, incident.uuid, "comment", note="I look into it")
    do(connection, incident.uuid, "acknowledge")

    earlier = red(connection, 10)

    assert earlier.id != incident.id
    detail = incident_detail(connection, incident.uuid)
    assert (detail.id, detail.status, detail.failures) == (earlier.uuid, "acknowledged", 2)
    assert [moment.note for moment in detail.timeline if moment.kind == "comment"] == ["I look into it"]


def test_words_are_about_what_was_known_when_a_late_pass_parts_a_streak(connection: Connection) -> None:
    incident = red(connection, 10, 30)
    do(connection, incident.uuid, "acknowledge")

    green(connection, 20)

    assert status(connection, incident_on(connection, "raw", 0)) == "resolved"
    assert status(connection, incident_on(connection, "raw", 1)) == "acknowledged"


def test_a_resolve_covers_failures_whose_clock_is_ahead(connection: Connection) -> None:
    incident = red(connection, 10)

    after = do(connection, incident.uuid, "resolve", now=incident.opened_at - timedelta(hours=1), reason="other")

    assert after.resolved_at == incident.last_failed_at


def test_a_run_that_names_the_incident_is_on_its_timeline(connection: Connection) -> None:
    incident = red(connection, 10, 20)
    context = {"correlator_incidentContext": facet(incidentId=str(incident.uuid))}
    other = {"correlator_incidentContext": facet(incidentId="INC-12345")}
    tell(
        connection,
        ran("repair", "repair", 25, 26, writes=["raw"], facets=context),
        ran("repair", "another", 27, 28, writes=["raw"], facets=other),
    )

    told = [moment for moment in incident_detail(connection, incident.uuid).timeline if moment.kind == "run"]

    assert [(moment.run_id, moment.job and moment.job.name) for moment in told] == [(run_id("repair"), "repair")]


def test_similar_incidents_of_before_say_how_they_ended_and_how_long_they_took(connection: Connection) -> None:
    first = red(connection, 10)
    green(connection, 20)
    second = red(connection, 30)
    do(connection, second.uuid, "resolve", reason="false_alarm", note="the test was wrong")
    third = red(connection, 180)

    similar = incident_detail(connection, third.uuid).similar

    assert [(one.id, one.outcome, one.took_s, one.note) for one in similar] == [
        (second.uuid, "false_alarm", (NOON - second.opened_at).total_seconds(), "the test was wrong"),
        (first.uuid, "passed", 600.0, None),
    ]
    assert "same test" in similar[0].likeness
