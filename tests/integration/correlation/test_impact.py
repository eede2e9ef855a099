"""Who is hurt: affected is who read a bad version, at risk is who would."""

from typing import Any

import psycopg

from correlator.correlation.ids import id_of
from correlator.correlation.incident_detail import ImpactTold, incident_detail
from tests.integration.correlation.stories import (
    checked,
    dataset_id,
    incident_of_run,
    incident_on,
    owned,
    ran,
    run_id,
    sized,
    tell,
    urn,
)
from tests.unit.rulebook.histories import dataset, facet, job_event, run_event

Connection = psycopg.Connection[Any]


def impact_on(connection: Connection, table: str) -> ImpactTold:
    return incident_detail(connection, incident_on(connection, table).uuid).impact


def affected(found: ImpactTold) -> set[tuple[str, str]]:
    return {(one.urn, one.run_id) for one in found.affected}


def at_risk(found: ImpactTold) -> set[str]:
    return {one.urn for one in found.at_risk}


def test_who_read_the_bad_version_is_affected_and_so_on_down(connection: Connection) -> None:
    tell(
        connection,
        ran("load", "load 1", 0, 5, writes=["raw"]),
        ran("stage", "stage 1", 6, 8, reads=["raw"], writes=["staged"]),
        checked("raw", "test 1", 7, good=True),
        ran("load", "load 2", 20, 25, writes=["raw"]),
        checked("raw", "test 2", 27, good=False),
        ran("stage", "stage 2", 26, 28, reads=["raw"], writes=["staged"]),
        ran("mart", "mart 2", 30, 31, reads=["staged"], writes=["mart"]),
    )

    found = impact_on(connection, "raw")

    assert affected(found) == {(urn("staged"), run_id("stage 2")), (urn("mart"), run_id("mart 2"))}
    assert at_risk(found) == set()


def test_who_has_not_read_it_yet_is_at_risk_and_what_is_declared_too(connection: Connection) -> None:
    tell(
        connection,
        ran("load", "load 1", 0, 5, writes=["raw"]),
        ran("stage", "stage 1", 6, 8, reads=["raw"], writes=["staged"]),
        ran("mart", "mart 1", 9, 10, reads=["staged"], writes=["mart"]),
        [job_event(11, job="report", inputs=[dataset("mart")], outputs=[dataset("report")])],
        checked("raw", "test 1", 6, good=True),
        ran("load", "load 2", 20, 25, writes=["raw"]),
        checked("raw", "test 2", 27, good=False),
    )

    found = impact_on(connection, "raw")

    assert affected(found) == set()
    assert at_risk(found) == {urn("staged"), urn("mart"), urn("report")}
    assert [one.urn for one in found.at_risk if one.declared] == [urn("report")]


def test_after_a_good_version_nobody_is_at_risk_but_what_was_made_of_the_bad_one_stays_affected(
    connection: Connection,
) -> None:
    tell(
        connection,
        ran("load", "load 1", 0, 5, writes=["raw"]),
        checked("raw", "test 1", 6, good=False),
        ran("stage", "stage 1", 7, 8, reads=["raw"], writes=["staged"]),
        ran("load", "load 2", 20, 25, writes=["raw"]),
        checked("raw", "test 2", 26, good=True),
        ran("stage", "stage 2", 27, 28, reads=["raw"], writes=["staged"]),
    )

    found = impact_on(connection, "raw")

    assert affected(found) == {(urn("staged"), run_id("stage 1"))}
    assert at_risk(found) == set()


def test_a_bad_version_that_still_stands_downstream_puts_its_readers_at_risk(connection: Connection) -> None:
    tell(
        connection,
        ran("mart", "mart 0", 0, 1, reads=["staged"], writes=["mart"]),
        ran("load", "load 1", 2, 5, writes=["raw"]),
        checked("raw", "test 1", 6, good=False),
        ran("stage", "stage 1", 7, 8, reads=["raw"], writes=["staged"]),
        ran("load", "load 2", 20, 25, writes=["raw"]),
        checked("raw", "test 2", 26, good=True),
    )

    assert at_risk(impact_on(connection, "raw")) == {urn("mart")}


def test_a_table_that_is_made_of_itself_stays_bad_until_it_is_well(connection: Connection) -> None:
    tell(
        connection,
        ran("add", "add 1", 0, 1, reads=["t"], writes=["t"]),
        checked("t", "test 1", 2, good=False),
        ran("add", "add 2", 10, 11, reads=["t"], writes=["t"]),
        ran("copy", "copy 2", 12, 13, reads=["t"], writes=["copied"]),
        ran("add", "add 3", 20, 21, reads=["t"], writes=["t"]),
        checked("t", "test 3", 22, good=True),
        ran("copy", "copy 3", 23, 24, reads=["t"], writes=["copied"]),
    )

    assert affected(impact_on(connection, "t")) == {(urn("copied"), run_id("copy 2"))}


def test_a_stream_reads_every_version_until_it_ends(connection: Connection) -> None:
    streaming = {"jobType": facet(processingType="STREAMING", integration="FLINK", jobType="JOB")}
    flow = {"run": run_id("stream"), "job": "stream", "job_facets": streaming}
    sides = {"inputs": [dataset("raw")], "outputs": [sized("live", 5)]}
    tell(
        connection,
        [run_event("START", 0, **flow, **sides), run_event("RUNNING", 3, **flow, **sides)],
        ran("view", "view 1", 4, 5, reads=["live"], writes=["viewed"]),
        ran("load", "load 1", 6, 10, writes=["raw"]),
        checked("raw", "test 1", 11, good=False),
        [run_event("RUNNING", 12, **flow, **sides)],
        ran("view", "view 2", 14, 15, reads=["live"], writes=["viewed"]),
    )

    assert affected(impact_on(connection, "raw")) == {
        (urn("live"), run_id("stream")),
        (urn("viewed"), run_id("view 2")),
    }


def test_columns_are_told_where_it_is_known_where_they_come_from(connection: Connection) -> None:
    def made_of(**columns: tuple[str, str]) -> dict[str, Any]:
        fields = {
            name: {"inputFields": [{"namespace": "postgres://db:5432", "name": table, "field": field}]}
            for name, (table, field) in columns.items()
        }
        return {"columnLineage": facet(fields=fields)}

    staged = dataset("staged", facets=made_of(key=("raw", "id"), total=("raw", "amount")))
    mart = dataset("mart", facets=made_of(customer=("staged", "key"), euros=("staged", "total")))
    tell(
        connection,
        ran("load", "load 1", 0, 5, writes=["raw"]),
        checked("raw", "test 1", 6, good=False, column="id"),
        ran("stage", "stage 1", 7, 8, reads=["raw"], writes=[staged]),
        ran("mart", "mart 1", 9, 10, reads=["staged"], writes=[mart]),
        ran("other", "other 1", 9, 10, reads=["staged"], writes=["other"]),
    )

    found = {one.urn: one.columns for one in impact_on(connection, "raw").affected}

    assert found == {urn("staged"): ["key"], urn("mart"): ["customer"], urn("other"): None}


def test_what_tests_write_is_no_impact_and_readers_without_outputs_are_told_apart(connection: Connection) -> None:
    test_job = {"jobType": facet(processingType="BATCH", integration="DBT", jobType="TEST")}
    tell(
        connection,
        ran("load", "load 1", 0, 5, writes=["raw"]),
        checked("raw", "test 1", 6, good=False),
        ran("audit", "audit 1", 7, 8, reads=["raw"], writes=["audit"], job_facets=test_job),
        ran("export", "export 1", 7, 8, reads=["raw"]),
    )

    found = impact_on(connection, "raw")

    assert affected(found) == set()
    assert [(one.run_id, one.job.name) for one in found.readers] == [(run_id("export 1"), "export")]


def test_owners_are_those_of_the_dataset_else_those_of_its_job(connection: Connection) -> None:
    of_job = {"ownership": facet(owners=[{"name": "team marts", "type": "TEAM"}])}
    tell(
        connection,
        ran("load", "load 1", 0, 5, writes=[owned("raw", "team raw")]),
        checked("raw", "test 1", 6, good=False),
        ran("stage", "stage 1", 7, 8, reads=["raw"], writes=["staged"], job_facets=of_job),
    )

    detail = incident_detail(connection, incident_on(connection, "raw").uuid)

    assert detail.owner == "team raw"
    assert [(one.urn, one.owner) for one in detail.impact.affected] == [(urn("staged"), "team marts")]


def test_a_run_that_failed_puts_at_risk_who_waits_for_it(connection: Connection) -> None:
    tell(
        connection,
        ran("load", "load 1", 0, 5, writes=["raw"]),
        ran("stage", "stage 1", 6, 8, reads=["raw"], writes=["staged"]),
        ran("load", "load 2", 20, 25, writes=["raw"], state="FAIL"),
    )

    detail = incident_detail(connection, incident_of_run(connection, "load 2").uuid)

    assert detail.kind == "run"
    assert detail.dataset is not None
    assert id_of(dataset_id("raw")) == incident_of_run(connection, "load 2").dataset_id
    assert detail.impact.affected == []
    assert at_risk(detail.impact) == {urn("staged")}


def test_who_read_a_version_while_its_test_passed_took_no_harm(connection: Connection) -> None:
    tell(
        connection,
        ran("load", "load 1", 0, 5, writes=["raw"]),
        ran("stage", "stage 1", 6, 7, reads=["raw"], writes=["staged"]),
        checked("raw", "test 1", 8, good=True, test="is_fresh"),
        ran("stage", "stage 2", 66, 67, reads=["raw"], writes=["staged"]),
        checked("raw", "test 2", 68, good=False, test="is_fresh"),
    )

    assert affected(impact_on(connection, "raw")) == {(urn("staged"), run_id("stage 2"))}
