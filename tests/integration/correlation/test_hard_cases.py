"""The cases in which a quick look names the wrong run. The cause is who wrote the version that the test read."""

from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from correlator.correlation.incident_detail import IncidentDetail, incident_detail
from correlator.correlation.life import Action, act
from correlator.rulebook.events import Event
from tests.integration.correlation.stories import (
    checked,
    incident_on,
    ran,
    run_id,
    sized,
    tell,
    urn,
    versioned,
)
from tests.unit.rulebook.histories import DB, assertions, dataset, facet

Connection = psycopg.Connection[Any]


def detail_on(connection: Connection, table: str) -> IncidentDetail:
    return incident_detail(connection, incident_on(connection, table).uuid)


def cause_on(connection: Connection, table: str) -> str | None:
    cause = detail_on(connection, table).cause
    return None if cause is None else cause.run_id


def test_a_table_written_again_before_the_events_came(connection: Connection) -> None:
    tell(connection, ran("load", "load 2", 10, 11, writes=["raw"]))
    tell(connection, checked("raw", "test", 5, good=False))
    tell(connection, ran("load", "load 1", 0, 1, writes=["raw"]))

    assert cause_on(connection, "raw") == run_id("load 1")


@pytest.mark.parametrize("minutes", [(2, 3), (6, 7)], ids=["before", "after"])
def test_a_run_that_failed_wrote_nothing_that_anyone_read(connection: Connection, minutes: tuple[int, int]) -> None:
    tell(
        connection,
        ran("load", "load 1", 0, 1, writes=["raw"]),
        ran("load", "load 2", *minutes, writes=["raw"], state="FAIL"),
        checked("raw", "test", 4, good=False),
    )

    assert cause_on(connection, "raw") == run_id("load 1")


def test_a_run_that_failed_and_says_how_much_it_wrote_is_a_cause(connection: Connection) -> None:
    tell(
        connection,
        ran("load", "load 1", 0, 1, writes=[sized("raw", 100)]),
        ran("load", "load 2", 2, 3, writes=[sized("raw", 7)], state="FAIL"),
        checked("raw", "test", 4, good=False),
    )

    assert cause_on(connection, "raw") == run_id("load 2")


def test_a_retry_that_succeeded(connection: Connection) -> None:
    tell(
        connection,
        ran("load", "try 1", 0, 1, writes=["raw"], of="dag run", state="FAIL"),
        ran("load", "try 2", 2, 3, writes=["raw"], of="dag run"),
        checked("raw", "test", 4, good=False),
    )

    assert cause_on(connection, "raw") == run_id("try 2")
    assert connection.execute("SELECT count(*) FROM incidents WHERE kind = 'run'").fetchone() == (0,)


@pytest.mark.parametrize("state", ["COMPLETE", "FAIL"])
def test_a_test_of_what_the_run_itself_wrote(connection: Connection, state: str) -> None:
    own = dataset("raw", outputFacets=assertions({"assertion": "unique", "success": False}))
    tell(
        connection,
        ran("load", "load 1", 0, 1, writes=["raw"]),
        ran("load", "load 2", 2, 5, writes=[own], state=state),
        ran("load", "load 3", 3, 4, writes=["raw"]),
    )

    assert cause_on(connection, "raw") == run_id("load 2")


def test_dbt_stamps_its_tests_before_the_model_is_done(connection: Connection) -> None:
    tell(
        connection,
        ran("model", "model 1", 0, 1, writes=["raw"], of="dbt 1"),
        ran("model", "model 2", 10, 15, writes=["raw"], of="dbt 2"),
        checked("raw", "test", 12, good=False, of="dbt 2"),
    )

    assert cause_on(connection, "raw") == run_id("model 2")


def test_a_test_that_names_the_version_that_it_read(connection: Connection) -> None:
    tell(
        connection,
        ran("load", "load 1", 0, 1, writes=[versioned("raw", "v1")]),
        ran("load", "load 2", 2, 3, writes=[versioned("raw", "v2")]),
        checked("raw", "test", 4, good=False, version="v1"),
    )

    assert cause_on(connection, "raw") == run_id("load 1")


def test_a_swap_of_names_leads_to_what_was_built_under_the_other_name(connection: Connection) -> None:
    def renamed(name: str, former: str) -> dict[str, Any]:
        change = facet(lifecycleStateChange="RENAME", previousIdentifier={"namespace": DB, "name": former})
        return dataset(name, facets={"lifecycleStateChange": change})

    tell(
        connection,
        ran("load old", "old", 0, 1, writes=["t"]),
        ran("build", "build", 2, 3, reads=["raw"], writes=["t__tmp"]),
        ran("swap", "swap", 4, 5, writes=[renamed("t__backup", "t"), renamed("t", "t__tmp")]),
        checked("t", "test", 6, good=False),
    )

    detail = detail_on(connection, "t")

    assert detail.cause is not None
    assert detail.cause.run_id == run_id("swap")
    assert [step.run_id for step in detail.upstream] == [run_id("swap"), run_id("build"), None]
    assert run_id("old") not in {candidate.run_id for candidate in detail.candidates}


def test_what_was_bad_before_a_swap_of_names_goes_where_it_was_put(connection: Connection) -> None:
    def renamed(name: str, former: str) -> dict[str, Any]:
        change = facet(lifecycleStateChange="RENAME", previousIdentifier={"namespace": DB, "name": former})
        return dataset(name, facets={"lifecycleStateChange": change})

    tell(
        connection,
        ran("load old", "old", 0, 1, writes=["t"]),
        checked("t", "test", 2, good=False),
        ran("build", "build", 2, 3, reads=["raw"], writes=["t__tmp"]),
        ran("swap", "swap", 4, 5, writes=[renamed("t__backup", "t"), renamed("t", "t__tmp")]),
        ran("report", "report", 6, 7, reads=["t"], writes=["report"]),
    )

    assert [one.urn for one in detail_on(connection, "t").impact.affected] == [urn("t__backup")]


def test_two_servers_on_one_host_have_nothing_in_common(connection: Connection) -> None:
    other = dataset("raw", namespace="postgres://db:5433")
    tell(
        connection,
        ran("load", "here", 0, 1, writes=["raw"]),
        ran("load other", "there", 2, 3, writes=[other]),
        ran("copy", "copy", 4, 5, reads=[other], writes=["copied"]),
        checked("raw", "test", 6, good=False),
    )

    detail = detail_on(connection, "raw")

    assert detail.cause is not None
    assert detail.cause.run_id == run_id("here")
    assert detail.impact.affected == []
    assert detail.impact.at_risk == []


def test_a_late_failure_moves_the_start_of_what_someone_commented_on(connection: Connection) -> None:
    tell(
        connection,
        ran("load", "load 1", 0, 1, writes=["raw"]),
        ran("load", "load 2", 10, 11, writes=["raw"]),
        checked("raw", "second", 12, good=False),
    )
    before = incident_on(connection, "raw").uuid
    act(connection, before, Action(kind="comment", note="it is the new load"), "ada")
    assert cause_on(connection, "raw") == run_id("load 2")

    tell(connection, checked("raw", "first", 5, good=False))

    detail = incident_detail(connection, before)
    assert detail.id != before
    assert detail.cause is not None
    assert detail.cause.run_id == run_id("load 1")
    assert "it is the new load" in [moment.note for moment in detail.timeline]


def test_nobody_is_known_to_have_written_it(connection: Connection) -> None:
    tell(
        connection,
        ran("report", "report", 0, 1, reads=["raw"], writes=["report"]),
        checked("raw", "test", 4, good=False),
    )

    detail = detail_on(connection, "raw")

    assert (detail.cause, detail.candidates) == (None, [])
    assert "no producer is known" in detail.summary
    assert [risk.urn for risk in detail.impact.at_risk] == [urn("report")]


# Whatever the order in which events come, and in however many batches.

_CODE = {"sourceCodeLocation": facet(type="git", url="https://example.com/repo", version="2")}
STORY: list[Event] = [
    event
    for part in (
        ran("load", "load 1", 0, 1, writes=[sized("raw", 1000)]),
        ran("stage", "stage 1", 2, 3, reads=["raw"], writes=[sized("staged", 1000)], of="dag 1"),
        checked("raw", "raw 1", 3, good=True),
        checked("staged", "staged 1", 4, good=True),
        ran("load", "load 2", 10, 11, writes=[sized("raw", 10)], job_facets=_CODE),
        ran("stage", "try 1", 11, 12, reads=["raw"], writes=["staged"], of="dag 2", state="FAIL"),
        ran("stage", "try 2", 13, 14, reads=["raw"], writes=[sized("staged", 10)], of="dag 2"),
        checked("staged", "staged 2", 15, good=False, of="dag 2"),
        ran("mart", "mart 2", 16, 16, reads=["staged"], writes=["mart"], of="dag 2", state="ABORT"),
        checked("raw", "raw 2", 17, good=False),
        ran("load", "load 3", 20, 21, writes=[sized("raw", 1000)]),
        checked("raw", "raw 3", 22, good=True),
        checked("staged", "staged 3", 23, good=False),
    )
    for event in part
]


def _answers(connection: Connection) -> list[IncidentDetail]:
    rows = connection.execute("SELECT id FROM incidents ORDER BY id").fetchall()
    found = [incident_detail(connection, id_) for (id_,) in rows]
    return [_timeless(detail) for detail in found]


def _timeless(detail: IncidentDetail) -> IncidentDetail:
    return msgspec.structs.replace(detail, facts_as_of=detail.opened_at)


@given(
    order=st.permutations(range(len(STORY))),
    cuts=st.sets(st.integers(min_value=1, max_value=len(STORY) - 1), max_size=6),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_answers_are_the_same_in_whatever_order_events_come(
    connection: Connection, order: list[int], cuts: set[int]
) -> None:
    with connection.transaction(force_rollback=True):
        tell(connection, STORY)
        expected = _answers(connection)
    assert {(detail.dataset and detail.dataset.name, detail.root_id is None) for detail in expected} == {
        ("raw", True),
        ("staged", False),
        ("mart", False),
    }

    with connection.transaction(force_rollback=True):
        for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(STORY)], strict=True):
            tell(connection, [STORY[place] for place in order[start:end]])
        assert _answers(connection) == expected


def test_a_later_try_of_its_own_family_is_not_what_a_test_had_seen(connection: Connection) -> None:
    """A workflow tests what is there at six, and its load, which had failed, ends well at noon."""
    tell(
        connection,
        ran("load", "load 1", 0, 1, writes=["raw"], of="workflow 1"),
        ran("load", "load 2", 60, 61, writes=["raw"], of="workflow 2", state="FAIL"),
        checked("raw", "test", 65, good=False, of="workflow 2"),
        ran("load", "load 3", 90, 91, writes=["raw"], of="workflow 2"),
    )

    assert cause_on(connection, "raw") == run_id("load 1")
