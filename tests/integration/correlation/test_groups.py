"""One root, one alert: failures that come of another stand under it, however the events came."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from correlator.correlation.groups import attach_all
from correlator.correlation.patterns import add_pattern
from correlator.rulebook.events import Event
from tests.integration.correlation.stories import (
    checked,
    dataset_id,
    incident_of_run,
    incident_on,
    ran,
    run_id,
    tell,
)
from tests.unit.rulebook.histories import DB, assertions, dataset, facet, run_event

Connection = psycopg.Connection[Any]
Part = Iterable[Event]


def roots(connection: Connection) -> dict[str, str | None]:
    """What each incident stands under: the table of a test, the run that failed."""
    rows = connection.execute(
        "SELECT incident.id, incident.root_id, incident.kind, incident.dataset_id, run.run_id "
        "FROM incidents AS incident JOIN job_runs AS run ON run.id = incident.job_run_id"
    ).fetchall()
    tables = {dataset_id(name): name for name in ("raw", "staged", "mart", "report", "other")}
    runs = {run_id(name): name for name in ("load 2", "stage 2", "mart 2", "load 3")}
    names: dict[UUID, str] = {id_: tables[table] if kind == "test" else runs[run] for id_, _, kind, table, run in rows}
    return {names[id_]: None if root is None else names[root] for id_, root, *_ in rows}


WELL: list[Part] = [
    ran("load", "load 1", 0, 1, writes=["raw"]),
    ran("stage", "stage 1", 2, 3, reads=["raw"], writes=["staged"]),
    ran("mart", "mart 1", 4, 5, reads=["staged"], writes=["mart"]),
    *(checked(table, f"{table} good", 6, good=True) for table in ("raw", "staged", "mart")),
]
BAD: list[Part] = [
    ran("load", "load 2", 20, 21, writes=["raw"]),
    checked("raw", "raw bad", 22, good=False),
    ran("stage", "stage 2", 23, 24, reads=["raw"], writes=["staged"]),
    checked("staged", "staged bad", 25, good=False),
    ran("mart", "mart 2", 26, 27, reads=["staged"], writes=["mart"]),
    checked("mart", "mart bad", 28, good=False),
]


def test_tests_downstream_stand_under_the_topmost_red_one(connection: Connection) -> None:
    tell(connection, *WELL, *BAD)

    assert roots(connection) == {"raw": None, "staged": "raw", "mart": "raw"}


def test_a_root_that_comes_last_takes_in_what_was_there_before(connection: Connection) -> None:
    tell(connection, *WELL)
    for part in reversed(BAD):
        tell(connection, part)

    assert roots(connection) == {"raw": None, "staged": "raw", "mart": "raw"}


def test_lineage_that_comes_late_brings_them_together(connection: Connection) -> None:
    tell(connection, *WELL, BAD[0], BAD[1], BAD[5])
    assert roots(connection) == {"raw": None, "mart": None}

    tell(connection, BAD[4])
    tell(connection, BAD[2])

    assert roots(connection) == {"raw": None, "mart": "raw"}


def test_an_upstream_test_may_come_later_than_the_one_downstream(connection: Connection) -> None:
    tell(connection, *WELL, BAD[0], BAD[2], BAD[3])
    tell(connection, checked("raw", "raw bad", 40, good=False))

    assert roots(connection) == {"raw": None, "staged": "raw"}


def test_a_root_that_is_none_any_more_lets_go(connection: Connection) -> None:
    tell(connection, *WELL, *BAD[:4])
    assert roots(connection)["staged"] == "raw"

    # The same run's result, said again later: it had passed after all.
    passed = dataset("raw", inputFacets=assertions({"assertion": "not_null", "success": True, "column": "id"}))
    tell(connection, ran("test.raw", "raw bad", 22, 24, reads=[passed]))

    assert roots(connection) == {"staged": None}


def test_another_version_of_the_upstream_table_is_no_reason(connection: Connection) -> None:
    tell(
        connection,
        *WELL,
        ran("stage", "stage 2", 10, 11, reads=["raw"], writes=["staged"]),
        ran("load", "load 2", 20, 21, writes=["raw"]),
        checked("raw", "raw bad", 22, good=False),
        checked("staged", "staged bad", 25, good=False),
    )

    assert roots(connection) == {"raw": None, "staged": None}


def test_a_trouble_that_was_there_when_all_was_well_is_no_reason(connection: Connection) -> None:
    tell(
        connection,
        *BAD[:3],
        checked("staged", "staged good", 25, good=True),
        ran("load", "load 3", 30, 31, writes=["raw"]),
        checked("raw", "raw still bad", 32, good=False),
        ran("stage", "stage 3", 33, 34, reads=["raw"], writes=["staged"]),
        checked("staged", "staged bad", 35, good=False),
    )

    assert roots(connection) == {"raw": None, "staged": None}


def test_what_is_stale_because_a_job_failed_stands_under_its_failure(connection: Connection) -> None:
    tell(
        connection,
        *WELL,
        ran("load", "load 2", 20, 21, writes=["raw"], state="FAIL"),
        ran("stage", "stage 2", 23, 24, reads=["raw"], writes=["staged"]),
        checked("staged", "staged bad", 25, good=False, test="is_fresh"),
    )

    assert roots(connection) == {"load 2": None, "staged": "load 2"}


def test_a_failure_that_was_made_up_for_is_no_reason(connection: Connection) -> None:
    tell(
        connection,
        *WELL,
        ran("load", "load 2", 20, 21, writes=["raw"], state="FAIL"),
        ran("load", "load 3", 22, 23, writes=["raw"]),
        ran("stage", "stage 2", 24, 25, reads=["raw"], writes=["staged"]),
        checked("staged", "staged bad", 26, good=False),
    )

    assert roots(connection) == {"load 2": None, "staged": None}


def test_a_run_that_was_called_off_after_a_red_test_stands_under_the_test(connection: Connection) -> None:
    tell(
        connection,
        *WELL,
        ran("stage", "stage 2", 20, 21, reads=["raw"], writes=["staged"], of="dbt"),
        checked("staged", "staged bad", 22, good=False, of="dbt"),
        ran("mart", "mart 2", 23, 23, reads=["staged"], writes=["mart"], of="dbt", state="ABORT"),
    )

    assert roots(connection) == {"staged": None, "mart 2": "staged"}


def test_a_run_that_fails_with_its_own_test_stands_under_the_test(connection: Connection) -> None:
    own = dataset("raw", outputFacets=assertions({"assertion": "unique", "success": False}))
    tell(connection, *WELL, ran("load", "load 2", 20, 21, writes=[own], state="FAIL"))

    assert roots(connection) == {"raw": None, "load 2": "raw"}


def test_all_anew_is_what_came_about_batch_by_batch(connection: Connection) -> None:
    tell(connection, *WELL)
    for part in reversed(BAD):
        tell(connection, part)
    before = roots(connection)
    connection.execute("UPDATE incidents SET root_id = NULL")

    attach_all(connection)

    assert roots(connection) == before


def test_what_was_resolved_before_is_no_root_any_more(connection: Connection) -> None:
    tell(
        connection,
        *WELL,
        *BAD[:3],
        ran("load", "load 3", 30, 31, writes=["raw"]),
        checked("raw", "raw good again", 32, good=True),
        checked("staged", "staged bad", 40, good=False),
    )

    assert roots(connection) == {"raw": None, "staged": None}
    assert incident_on(connection, "raw").resolved_by == "pass"


MENDED: list[Part] = [
    ran("load", "load 3", 40, 41, writes=["raw"]),
    checked("raw", "raw good again", 42, good=True),
    ran("stage", "stage 3", 43, 44, reads=["raw"], writes=["staged"]),
    checked("staged", "staged good again", 45, good=True),
    ran("mart", "mart 3", 46, 47, reads=["staged"], writes=["mart"]),
]


def test_what_goes_on_failing_after_its_root_was_mended_is_a_root_itself(connection: Connection) -> None:
    tell(connection, *WELL, *BAD)
    tell(connection, *MENDED)
    assert roots(connection) == {"raw": None, "staged": "raw", "mart": "raw"}

    tell(connection, checked("mart", "mart bad again", 48, good=False))

    assert incident_on(connection, "mart").failures == 2
    assert roots(connection) == {"raw": None, "staged": "raw", "mart": None}


def test_what_is_looked_at_again_before_it_was_made_anew_stays_under_its_root(connection: Connection) -> None:
    tell(connection, *WELL, *BAD, *MENDED[:2], checked("mart", "mart bad still", 43, good=False))

    assert incident_on(connection, "raw").resolved_by == "pass"
    assert roots(connection) == {"raw": None, "staged": "raw", "mart": "raw"}


def test_what_goes_on_failing_stands_under_what_is_still_red_above_it(connection: Connection) -> None:
    again = [checked("staged", "staged bad again", 45, good=False), checked("mart", "mart bad again", 48, good=False)]
    tell(connection, *WELL, *BAD, *MENDED[:3], MENDED[4], *again)

    assert roots(connection) == {"raw": None, "staged": None, "mart": "staged"}


def test_what_goes_on_failing_stands_under_the_next_that_is_red_above_it(connection: Connection) -> None:
    tell(connection, *WELL, *BAD, *MENDED, checked("mart", "mart bad again", 48, good=False))
    tell(
        connection,
        ran("load", "load 4", 60, 61, writes=["raw"]),
        checked("raw", "raw bad again", 62, good=False),
        ran("stage", "stage 4", 63, 64, reads=["raw"], writes=["staged"]),
        ran("mart", "mart 4", 65, 66, reads=["staged"], writes=["mart"]),
    )
    assert incident_on(connection, "mart").root_id is None

    tell(connection, checked("mart", "mart bad once more", 67, good=False))

    assert incident_on(connection, "mart").root_id == incident_on(connection, "raw").id


def test_lineage_that_comes_late_tells_that_what_goes_on_failing_is_a_root_itself(connection: Connection) -> None:
    parts = [*MENDED[:2], *MENDED[3:], checked("mart", "mart bad again", 48, good=False)]
    tell(connection, *WELL, *BAD, *parts)
    assert roots(connection)["mart"] == "raw", "made of what was staged before"

    tell(connection, MENDED[2])

    assert roots(connection) == {"raw": None, "staged": "raw", "mart": None}


def test_what_fails_again_after_the_failed_job_has_run_well_is_a_root_itself(connection: Connection) -> None:
    failed: list[Part] = [
        ran("load", "load 2", 20, 21, writes=["raw"], state="FAIL"),
        ran("mart", "mart 2", 26, 27, reads=["raw"], writes=["mart"]),
        checked("mart", "mart bad", 28, good=False),
        ran("load", "load 3", 30, 31, writes=["raw"]),
    ]
    tell(connection, *WELL, *failed, checked("mart", "mart bad still", 32, good=False))
    assert incident_of_run(connection, "load 2").resolved_at is not None
    assert incident_on(connection, "mart").root_id == incident_of_run(connection, "load 2").id

    again: list[Part] = [
        ran("mart", "mart 3", 33, 34, reads=["raw"], writes=["mart"]),
        checked("mart", "mart bad again", 35, good=False),
    ]
    tell(connection, *again)

    assert incident_on(connection, "mart").root_id is None


def test_a_failed_run_downstream_of_a_failed_run_stands_under_it(connection: Connection) -> None:
    tell(
        connection,
        *WELL,
        ran("load", "load 2", 20, 21, writes=["raw"], state="FAIL"),
        ran("stage", "stage 2", 22, 23, reads=["raw"], writes=["staged"], state="FAIL"),
    )

    assert roots(connection) == {"load 2": None, "stage 2": "load 2"}
    assert incident_of_run(connection, "stage 2").root_id == incident_of_run(connection, "load 2").id


def test_another_name_of_the_table_brings_them_together_whenever_it_is_told(connection: Connection) -> None:
    elsewhere = dataset("staged", namespace="s3://lake")
    story = [
        ran("load", "load 2", 20, 21, writes=["raw"]),
        checked("raw", "raw bad", 22, good=False),
        ran("stage", "stage 2", 23, 24, reads=["raw"], writes=[elsewhere]),
        ran("mart", "mart 2", 26, 27, reads=["staged"], writes=["mart"]),
        checked("mart", "mart bad", 28, good=False),
    ]
    tell(connection, *story)
    assert roots(connection) == {"raw": None, "mart": None}

    with connection.transaction(force_rollback=True):
        add_pattern(connection, "s3://lake/{table}", "postgres://db:5432/{table}", actor="test")
        assert roots(connection) == {"raw": None, "mart": "raw"}

    link = {"symlinks": facet(identifiers=[{"namespace": DB, "name": "staged", "type": "TABLE"}])}
    tell(connection, ran("look", "look", 90, 91, reads=[dataset("staged", namespace="s3://lake", facets=link)]))
    assert roots(connection) == {"raw": None, "mart": "raw"}


@pytest.mark.parametrize("moment", ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00"])
def test_a_year_that_python_has_not_keeps_nobody_from_merging(connection: Connection, moment: str) -> None:
    red = dataset("raw", inputFacets=assertions({"assertion": "not_null", "success": False}))
    tell(
        connection,
        [run_event("COMPLETE", job="load", run=run_id("load 2"), outputs=[dataset("raw")], eventTime=moment)],
        [run_event("COMPLETE", job="test", run=run_id("raw bad"), inputs=[red], eventTime=moment)],
        [run_event("FAIL", job="mart", run=run_id("mart 2"), outputs=[dataset("mart")], eventTime=moment)],
    )

    assert roots(connection) == {"raw": None, "mart 2": None}
