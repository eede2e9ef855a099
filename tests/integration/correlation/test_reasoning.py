"""What a thoughtful engineer would say, of histories in the manner of many producers."""

from typing import Any

import psycopg
import pytest

from correlator.correlation.incident_detail import Reach, incident_detail
from correlator.correlation.walk import Limits
from tests.integration.correlation.weeks import (
    Weeks,
    engine,
    first,
    kinds,
    metrics,
    sql,
    told,
    version,
    with_columns,
    with_lineage,
)
from tests.unit.rulebook.histories import DB, facet

Connection = psycopg.Connection[Any]


def test_a_change_of_the_task_is_one_of_the_spark_job_that_it_starts(connection: Connection) -> None:
    """Airflow tasks and Spark applications know the code and name no tables; their children name tables alone."""
    weeks = Weeks()
    for day in range(7):
        task = weeks.run("shop.load", day, 1, minutes=50, job_facets=version("a" if day < 6 else "b"))
        weeks.run("load.insert", day, 1.1, reads=["lake"], writes=["raw"], of=("shop.load", task))
        other = weeks.run("shop.stage", day, 2, minutes=50, job_facets=version("x"))
        weeks.run("stage.insert", day, 2.1, reads=["raw"], writes=["staged"], of=("shop.stage", other))
        weeks.check("staged", day, 3, good=day < 6, test="not_null", column="id")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("load.insert", weeks.last("load.insert"))
    assert kinds(detail.candidates[0]) == {"code"}
    assert "shop.load" in detail.candidates[0].evidence[0].sentence


def test_a_setting_of_the_application_is_one_of_its_jobs(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(7):
        set_up = {"spark_properties": facet(properties={"spark.sql.ansi.enabled": "true" if day < 6 else "false"})}
        app = weeks.run("app", day, 1, minutes=50, facets=set_up)
        weeks.run("app.insert", day, 1.1, reads=["lake"], writes=["raw"], of=("app", app))
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"])
        weeks.check("staged", day, 3, good=day < 6, test="values_in_range", column="price")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("app.insert", weeks.last("app.insert"))
    assert kinds(detail.candidates[0]) == {"parameter"}


def test_a_source_that_lost_a_column_is_told_by_who_reads_it(connection: Connection) -> None:
    """Nobody is known to write the source, and what the loader makes of it looks as ever."""
    weeks = Weeks()
    for day in range(7):
        source = with_columns("crm.users", ["id", "mail"] if day < 6 else ["id", "email"])
        weeks.run("load", day, 1, reads=[source], writes=["raw"], columns=["id", "mail"])
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], job_facets=version("a" if day < 6 else "b"))
        weeks.check("staged", day, 3, good=day < 6, test="not_null", column="mail")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("load", weeks.last("load"))
    assert detail.candidates[0].evidence[0].subject == "crm.users"
    assert "mail is gone" in detail.candidates[0].evidence[0].sentence


def test_a_catalogue_tells_of_a_source_that_lost_a_column(connection: Connection) -> None:
    weeks = Weeks()
    weeks.announce("crm.users", 0, 0, ["id", "mail"])
    weeks.announce("crm.users", 5, 12, ["id", "email"])
    for day in range(7):
        weeks.run("load", day, 1, reads=["crm.users"], writes=["raw"])
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"])
        weeks.check("staged", day, 3, good=day < 6, test="not_null", column="mail")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("load", weeks.last("load"))
    assert kinds(detail.candidates[0]) == {"schema"}


def test_a_job_that_reads_something_else_has_changed(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        weeks.run("load orders", day, 1, writes=["orders"])
        weeks.run("load refunds", day, 1, writes=["refunds"])
        weeks.run("stage", day, 2, reads=["orders"], writes=["staged"])
        reads = ["staged", "refunds"] if day < 7 else ["staged"]
        weeks.run("mart", day, 3, reads=reads, writes=["mart"])
        weeks.run("report", day, 4, reads=["mart"], writes=["report"])
        weeks.check("report", day, 5, good=day < 7, test="sum_is_plausible", column="revenue")

    detail = told(connection, weeks, "report")

    assert first(detail) == ("mart", weeks.last("mart"))
    assert detail.candidates[0].evidence[0].sentence == "it no longer reads refunds"


def test_inputs_that_are_others_every_day_are_no_change(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        weeks.run("load", day, 1, reads=[f"lake/day={day}"], writes=["raw"])
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], job_facets=version("a" if day < 7 else "b"))
        weeks.check("staged", day, 3, good=day < 7, test="not_null", column="id")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("stage", weeks.last("stage"))
    assert [kinds(one) for one in detail.candidates if one.job.name == "load"] == [set()]


def test_a_job_that_took_over_a_table(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        weeks.run("load", day, 1, writes=["raw"])
        weeks.run("stage" if day < 7 else "stage v2", day, 2, reads=["raw"], writes=["staged"])
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"])
        weeks.check("mart", day, 4, good=day < 7, test="unique", column="id")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("stage v2", weeks.last("stage v2"))
    assert detail.candidates[0].evidence[0].sentence == "its first run known; before, stage wrote staged"


def test_a_table_that_nobody_renews_any_more_was_old_when_all_was_well(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(20):
        if day < 8:
            weeks.run("load countries", day, 1, writes=["countries"])
        weeks.run("load", day, 1, writes=["raw"])
        code = version("a" if day < 19 else "b")
        weeks.run("stage", day, 2, reads=["raw", "countries"], writes=["staged"], job_facets=code)
        weeks.check("staged", day, 3, good=day < 19, test="not_null", column="id")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("stage", weeks.last("stage"))


def test_a_table_grows_older_until_it_is_too_old(connection: Connection) -> None:
    """A test of freshness may pass for a while after a job has stopped."""
    weeks = Weeks()
    for day in range(14):
        if day < 10:
            weeks.run("load", day, 1, writes=["raw"])
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], job_facets=version("a" if day < 13 else "b"))
        weeks.check("staged", day, 3, good=day < 13, test="freshness", column="loaded_at")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("load", None)


def test_a_table_that_several_jobs_write_is_what_all_of_them_made(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        weeks.run("append", day, 1, writes=["events"], rows=10_000 + 13 * day if day < 9 else 900)
        weeks.run("purge", day, 2, writes=["events"])
        weeks.check("events", day, 3, good=day < 9, test="row_count_in_range")

    detail = told(connection, weeks, "events")

    assert first(detail) == ("append", weeks.last("append"))


def test_an_hour_that_failed_is_missing_in_the_day(connection: Connection) -> None:
    weeks = Weeks()
    runs = {}
    for day in range(10):
        for hour in range(24):
            state = "FAIL" if (day, hour) == (8, 13) else "COMPLETE"
            runs[day, hour] = weeks.run("load hour", day, hour + 0.1, minutes=5, writes=["raw"], state=state)
        weeks.run("sum day", day, 0.5, reads=["raw"], writes=["days"])
        weeks.check("days", day, 1, good=day < 9, test="row_count_in_range")

    detail = told(connection, weeks, "days")

    assert first(detail) == ("load hour", runs[8, 13])


def test_a_weekly_test_finds_the_run_that_began_it(connection: Connection) -> None:
    weeks = Weeks()
    runs = {}
    for day in range(29):
        rows = 50_000 + 17 * (day % 5)
        loaded = rows if day < 24 else rows // 3
        runs[day] = weeks.run("load", day, 1, writes=["raw"], rows=loaded, job_facets=version("a" if day < 24 else "b"))
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], rows=loaded, job_facets=version(f"{day // 26}"))
        if day % 7 == 0:
            weeks.check("staged", day, 3, good=day < 28, test="row_count_in_range")

    assert first(told(connection, weeks, "staged")) == ("load", runs[24])


def test_a_test_that_was_never_green(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        rows = 50_000 + 17 * (day % 5)
        weeks.run("load", day, 1, writes=["raw"], rows=rows if day < 9 else 200)
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], rows=rows if day < 9 else 200)
    weeks.check("staged", 9, 3, good=False, test="row_count_in_range")

    assert first(told(connection, weeks, "staged")) == ("load", weeks.last("load"))


def test_what_was_loaded_twice_is_there_twice(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        weeks.run("load", day, 1, writes=["raw"], nominal=day)
        if day == 7:
            weeks.run("load", day, 1.5, writes=["raw"], nominal=day)
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], job_facets=version(f"{day // 4}"))
        weeks.check("staged", day, 3, good=day < 7, test="unique", column="id")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("load", weeks.last("load"))
    assert kinds(detail.candidates[0]) == {"repeated_run"}


def test_a_run_for_an_older_day_overwrites_a_newer_one(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        weeks.run("load", day, 1, writes=["raw"], nominal=day)
        if day == 7:
            weeks.run("load", day, 1.5, writes=["raw"], nominal=2)
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"])
        weeks.check("staged", day, 3, good=day < 7, test="freshness", column="at")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("load", weeks.last("load"))
    assert kinds(detail.candidates[0]) == {"older_run"}


def test_two_causes_at_once_are_told_apart_by_columns(connection: Connection) -> None:
    weeks = Weeks()
    lineage = with_lineage("mart", {"price": ("orders", "price"), "country": ("users", "country")})
    for day in range(8):
        orders = "select price from shop" if day < 7 else "select price * 100 as price from shop"
        users = "select country from crm" if day < 7 else "select null as country from crm"
        weeks.run("orders", day, 1, writes=["orders"], job_facets=sql(orders))
        weeks.run("users", day, 1, writes=["users"], job_facets=sql(users))
        weeks.run("mart", day, 2, reads=["orders", "users"], writes=[lineage])
        weeks.check("mart", day, 3, good=day < 7, test="in_range", column="price")
        weeks.check("mart", day, 4, good=day < 7, test="not_null", column="country")

    detail = told(connection, weeks, "mart")
    assert detail.test is not None
    assert (detail.test.column, first(detail)) == ("country", ("users", weeks.last("users")))
    other = [one for one in detail.candidates if one.run_id == weeks.last("orders")]
    assert all(one.score < detail.candidates[0].score / 2 for one in other)


def test_an_upgrade_that_all_have_had_is_to_blame_where_it_shows(connection: Connection) -> None:
    weeks = Weeks()
    runs = {}
    for day in range(10):
        upgraded = engine("3.5.1" if day < 9 else "4.0.0")
        for name in ("a", "b", "c", "d"):
            rows = 1000 + 7 * day if name != "c" or day < 9 else 4100
            runs[name] = weeks.run(f"load {name}", day, 1, writes=[name], rows=rows, facets=upgraded)
        weeks.run("mart", day, 2, reads=["a", "b", "c", "d"], writes=["mart"], facets=upgraded)
        weeks.check("mart", day, 3, good=day < 9, test="unique", column="id")

    assert first(told(connection, weeks, "mart")) == ("load c", runs["c"])


def test_an_odd_amount_may_have_come_with_a_change_above_that_counts_nothing(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        weeks.run("load", day, 1, writes=["raw"], job_facets=version("a" if day < 9 else "b"))
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"])
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"], rows=5000 + 31 * day if day < 9 else 20_000)
        weeks.check("mart", day, 4, good=day < 9, test="row_count_in_range")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert detail.candidates[1].run_id == weeks.last("mart")


def test_what_waits_and_what_only_groups_is_no_cause(connection: Connection) -> None:
    """Sensors read and write nothing; groups of tasks do neither."""
    weeks = Weeks()
    for day in range(8):
        dag = weeks.run("dag", day, 0.5, minutes=240, facets=engine("2.9" if day < 7 else "2.10"))
        weeks.run("dag.wait", day, 0.6, reads=["lake"], minutes=20 if day < 7 else 200, of=("dag", dag))
        weeks.run(
            "dag.load", day, 1, reads=["lake"], writes=["raw"], rows=900 + day if day < 7 else 90, of=("dag", dag)
        )
        weeks.run("dag.stage", day, 2, reads=["raw"], writes=["staged"], of=("dag", dag))
        weeks.check("staged", day, 3, good=day < 7, test="row_count_in_range")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("dag.load", weeks.last("dag.load"))
    assert {one.job.name for one in detail.candidates} == {"dag.load", "dag.stage"}


def test_incidents_that_were_like_it_say_so_by_their_evidence(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(20):
        rows = 90 if day in (9, 19) else 9000 + 11 * day
        code = version("b" if day == 14 else "a")
        weeks.run("load", day, 1, writes=["raw"], rows=rows, job_facets=code)
        weeks.check("raw", day, 2, good=day not in (9, 14, 19), test="in_range", column="price")

    similar = told(connection, weeks, "raw").similar

    assert [(one.opened_at.day, "same evidence" in one.likeness) for one in similar] == [(13, True), (18, False)]
    assert {one.outcome for one in similar} == {"passed"}
    assert {one.took_s for one in similar} == {86400.0}


def test_the_evidence_of_incidents_that_were_like_it_may_lie_two_steps_up(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(20):
        rows = 90 if day in (9, 19) else 9000 + 11 * day
        weeks.run("load", day, 1, reads=["lake"], writes=["raw"], rows=rows)
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"])
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"], job_facets=version("b" if day == 14 else "a"))
        weeks.check("mart", day, 4, good=day not in (9, 14, 19), test="in_range", column="price")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert detail.candidates[0].distance == 2
    assert [(one.opened_at.day, "same evidence" in one.likeness) for one in detail.similar] == [(13, True), (18, False)]


def test_what_was_only_passed_on_in_an_incident_before_is_no_evidence_that_it_was_like_it(
    connection: Connection,
) -> None:
    """What went into the run that shows it is one step farther than the cause of this one."""
    weeks = Weeks()
    for day in range(20):
        nulls = metrics(rows=1000, nulls={"mail": 600 if day in (9, 19) else 4})
        weeks.run("export", day, 0.5, writes=["lake"], columns=["id"] if day == 9 else ["id", "mail"])
        weeks.run("load", day, 1, reads=["lake"], writes=[{"namespace": DB, "name": "raw", "facets": nulls}])
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"])
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"])
        weeks.check("mart", day, 4, good=day not in (9, 19), test="not_null", column="mail")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert detail.candidates[0].distance == 2
    assert [(one.opened_at.day, "same evidence" in one.likeness) for one in detail.similar] == [(13, False)]


def test_the_same_kind_of_evidence_against_another_job_is_not_the_same(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(20):
        weeks.run("load", day, 1, writes=["raw"], rows=90 if day == 19 else 9000 + 11 * day)
        weeks.run("other", day, 1.5, writes=["beside"], rows=80 if day == 9 else 8000 + 7 * day)
        weeks.run("mart", day, 3, reads=["raw", "beside"], writes=["mart"])
        weeks.check("mart", day, 4, good=day not in (9, 19), test="in_range", column="price")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert [(one.opened_at.day, one.likeness) for one in detail.similar] == [(13, ["same test", "same dataset"])]


def test_an_answer_says_when_it_did_not_look_at_all_there_is(connection: Connection) -> None:
    weeks = Weeks()
    for place in range(4):
        weeks.run(f"job {place}", 0, place, reads=[f"table {place}"], writes=[f"table {place + 1}"])
        weeks.run(f"report {place}", 0, 6, reads=["table 2"], writes=[f"report {place}"])
    weeks.check("table 2", 0, 5, good=False, test="unique")
    id_ = told(connection, weeks, "table 2").id

    near = incident_detail(connection, id_, Reach(cause=Limits(depth=1), impact=Limits(runs=2)))
    far = incident_detail(connection, id_)

    assert (near.upstream_truncated, near.impact.truncated) == (True, True)
    assert (far.upstream_truncated, far.impact.truncated) == (False, False)


@pytest.mark.parametrize("told_by", ["writer", "reader"])
def test_nulls_that_somebody_counted_lead_to_where_they_came_in(connection: Connection, told_by: str) -> None:
    weeks = Weeks()
    for day in range(8):
        facets = metrics(rows=1000, nulls={"mail": 4 + day if day < 7 else 600})
        ways: list[tuple[int, str, list[str], str]] = [
            (1, "load", [], "raw"),
            (2, "stage", ["raw"], "staged"),
            (3, "mart", ["staged"], "mart"),
        ]
        for hour, job, reads, table in ways:
            said = {"facets": facets} if told_by == "writer" and table != "mart" else {}
            weeks.run(job, day, hour, reads=reads, writes=[{"namespace": DB, "name": table, **said}])
            if told_by == "reader" and table != "mart":
                profiled = {"namespace": DB, "name": table, "inputFacets": facets}
                weeks.run(f"profile {table}", day, hour + 0.5, reads=[profiled])
        weeks.check("mart", day, 10, good=day < 7, test="not_null", column="mail")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert detail.candidates[0].evidence[0].sentence == "mail: 60.0% of it are null, was 1.0%"


def test_a_try_that_failed_half_way_may_have_left_its_half_behind(connection: Connection) -> None:
    weeks = Weeks()
    half = ""
    for day in range(8):
        dag = weeks.run("dag", day, 0.9, minutes=90)
        if day == 7:
            half = weeks.run("load", day, 1, writes=["raw"], rows=480, state="FAIL", of=("dag", dag))
        weeks.run("load", day, 1.5, writes=["raw"], rows=1000 + 3 * day, of=("dag", dag))
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"])
        weeks.check("staged", day, 3, good=day < 7, test="unique", column="id")

    assert first(told(connection, weeks, "staged")) == ("load", half)


def test_averages_are_others_where_a_source_delivers_too_much(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        rows = 1000 + 3 * day if day < 7 else 9000
        weeks.run("load", day, 1, writes=["raw"], rows=rows)
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"])
        mart = {"namespace": DB, "name": "mart", "facets": metrics(rows=40, sums={"total": 40 * rows})}
        weeks.run("mart", day, 3, reads=["staged"], writes=[mart], job_facets=version("a" if day < 7 else "b"))
        weeks.check("mart", day, 4, good=day < 7, test="mean_in_range", column="total")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert "raw was not as usual either" in detail.candidates[1].evidence[0].sentence


def test_who_rests_on_weekends_is_not_missed_on_monday(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(29):
        if day % 7 < 5:
            weeks.run("office", day, 8, writes=["prices"])
        code = version("a" if day < 28 else "b")
        weeks.run("mart", day, 5, reads=["prices"], writes=["mart"], job_facets=code)
        weeks.check("mart", day, 6, good=day < 28, test="in_range", column="price")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("mart", weeks.last("mart"))
    assert "missing_run" not in {kind for one in detail.candidates for kind in kinds(one)}


def test_one_deploy_of_all_jobs_is_to_blame_where_it_shows(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        commit = version("1f3c" if day < 9 else "8e21")
        weeks.run("load", day, 1, writes=["raw"], job_facets=commit)
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], job_facets=commit)
        rows = 700 + 5 * day if day < 9 else 60
        weeks.run("join", day, 3, reads=["staged"], writes=["joined"], rows=rows, job_facets=commit)
        weeks.run("mart", day, 4, reads=["joined"], writes=["mart"], job_facets=commit)
        weeks.check("mart", day, 5, good=day < 9, test="not_null", column="id")

    assert first(told(connection, weeks, "mart")) == ("join", weeks.last("join"))


def test_a_job_that_fails_before_every_success_is_no_news(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        dag = weeks.run("dag", day, 0.9, minutes=90)
        weeks.run("load", day, 1, writes=["raw"], state="FAIL", of=("dag", dag))
        weeks.run("load", day, 1.5, writes=["raw"], of=("dag", dag))
        code = version("a" if day < 9 else "b")
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], job_facets=code)
        weeks.check("staged", day, 3, good=day < 9, test="in_range", column="price")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("stage", weeks.last("stage"))
    assert "run_failed" not in {kind for one in detail.candidates for kind in kinds(one)}


def test_a_run_that_failed_is_explained_by_the_column_that_vanished_above(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        columns = ["id", "mail"] if day < 7 else ["id"]
        weeks.run("load", day, 1, writes=["raw"], columns=columns)
        weeks.run("other", day, 1, writes=["other"], job_facets=version(f"{day}"))
        state = "COMPLETE" if day < 7 else "FAIL"
        weeks.run("stage", day, 2, reads=["raw", "other"], writes=["staged"], state=state)
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"])
        weeks.check("mart", day, 4, good=day < 7, test="freshness", column="at")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert detail.candidates[1].run_id == weeks.last("stage")
