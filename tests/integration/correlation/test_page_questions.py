"""What the pages ask beyond one incident: causes of a list, results and amounts over time, runs that are missing."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from correlator.correlation.amounts import amounts
from correlator.correlation.history import History
from correlator.correlation.incident_briefs import incident_briefs
from correlator.correlation.incident_list import Filters, incident_list
from correlator.correlation.ticks import ticks_of_jobs, ticks_of_tests
from tests.integration.correlation.stories import checked, incident_of_run, incident_on, ran, sized, tell, urn

Connection = psycopg.Connection[Any]
TEN = datetime(2026, 5, 4, 10, tzinfo=UTC)


@pytest.fixture
def shop(connection: Connection) -> Connection:
    """A loader that loses most of its rows, two jobs above a test."""
    for hour in range(9):
        rows = 1_000 + hour if hour < 8 else 90
        tell(
            connection,
            ran("load", f"load {hour}", hour * 60, hour * 60 + 2, writes=[sized("raw", rows)]),
            ran("stage", f"stage {hour}", hour * 60 + 5, hour * 60 + 7, reads=["raw"], writes=[sized("staged", rows)]),
            checked("staged", f"test {hour}", hour * 60 + 10, good=hour < 8, test="row_count", column=""),
            ran("mart", f"mart {hour}", hour * 60 + 20, hour * 60 + 22, reads=["staged"], writes=["mart"]),
        )
    return connection


def test_a_brief_names_the_root_the_reason_and_the_harm(shop: Connection) -> None:
    incident = incident_on(shop, "staged")
    (brief,) = incident_briefs(shop, [incident.uuid, incident.uuid, uuid4()])
    assert brief.root_cause is not None
    assert (brief.root_cause.job.name, brief.root_cause.distance) == ("load", 1)
    assert "90 rows written" in brief.root_cause.why[0]
    assert "load" in brief.sentence
    assert (brief.affected, brief.at_risk, brief.truncated) == (1, 0, False)


def test_a_brief_says_when_nobody_is_known_to_write_it(connection: Connection) -> None:
    tell(connection, checked("alone", "t", 1, good=False))
    (brief,) = incident_briefs(connection, [incident_on(connection, "alone").uuid])
    assert brief.root_cause is None
    assert brief.sentence == "no producer is known"


def test_a_row_of_the_list_carries_how_the_test_did_before(shop: Connection) -> None:
    (item,) = incident_list(shop, Filters())
    assert [tick.status for tick in item.history] == ["pass"] * 8 + ["fail"]
    assert item.history[0].at < item.history[-1].at
    assert item.message == ""


def test_ticks_are_the_last_ones_the_oldest_first(shop: Connection) -> None:
    history = History(shop)
    test = incident_on(shop, "staged").subject_id
    last = ticks_of_tests(history, [test], most=3)[test]
    assert [tick.status for tick in last] == ["pass", "pass", "fail"]

    tell(shop, ran("load", "load 9", 9 * 60, 9 * 60 + 2, writes=["raw"], state="FAIL"))
    job = incident_of_run(shop, "load 9").subject_id
    assert [tick.status for tick in ticks_of_jobs(History(shop), [job], most=2)[job]] == ["COMPLETE", "FAIL"]


def test_consequences_are_listed_by_their_root(connection: Connection) -> None:
    tell(
        connection,
        ran("load", "load 1", 0, 1, writes=["raw"]),
        checked("raw", "red", 2, good=False),
        ran("stage", "stage 1", 5, 6, reads=["raw"], writes=["staged"]),
        checked("staged", "red too", 7, good=False),
    )
    root = incident_on(connection, "raw")
    (child,) = incident_list(connection, Filters(root=root.uuid))
    assert child.dataset is not None
    assert child.dataset.name == "staged"


def test_amounts_stand_against_the_band_of_what_is_usual(shop: Connection) -> None:
    found = amounts(shop, urn("raw"))
    assert [one.rows for one in found.items] == [*range(1_000, 1_008), 90]
    assert found.usual_rows is not None
    assert found.usual_rows.low > 90
    assert found.usual_rows.low < 1_000 < found.usual_rows.high
    assert found.usual_bytes is None

    before = amounts(shop, urn("raw"), until=TEN + timedelta(hours=3), limit=2)
    assert [one.rows for one in before.items] == [1_001, 1_002]
    assert before.usual_rows is None
    assert amounts(shop, urn("nothing")).items == []
