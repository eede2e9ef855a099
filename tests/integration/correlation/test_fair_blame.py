"""Who is not to blame: what happened after the read, was tried again, repeats anyway, or rests on weekends."""

from typing import Any

import psycopg
import pytest

from tests.integration.correlation.stories import versioned
from tests.integration.correlation.weeks import Weeks, engine, first, kinds, metrics, sql, told, version
from tests.unit.rulebook.histories import DB, Json, assertions, facet

Connection = psycopg.Connection[Any]


def test_a_failure_after_the_read_is_no_cause(connection: Connection) -> None:
    """The hourly loader fails before the test looks, and long after the daily job has read."""
    weeks = Weeks()
    for day in range(8):
        for hour in range(24):
            if (day, hour) <= (7, 5):
                weeks.run("load", day, hour, writes=["raw"], state="FAIL" if (day, hour) == (7, 5) else "COMPLETE")
        code = sql("select a from raw" if day < 7 else "select a from raw where b = 1")
        weeks.run("stage", day, 2.5, reads=["raw"], writes=["staged"], job_facets=code)
        weeks.run("mart", day, 5.3, reads=["staged"], writes=["mart"])
        weeks.check("mart", day, 6, good=day < 7, test="row_count")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("stage", weeks.last("stage"))
    assert "run_failed" not in {kind for one in detail.candidates for kind in kinds(one)}


def test_a_try_before_the_run_that_checks_itself_was_tried_again(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        if day == 7:
            weeks.run("build", day, 3, reads=["raw"], writes=["built"], state="FAIL")
        said = assertions({"assertion": "unique", "success": day < 7, "column": "id"})
        output = {"namespace": DB, "name": "built", "facets": said}
        weeks.run("build", day, 3.2, reads=["raw"], writes=[output], facets=engine("3.5" if day < 7 else "4.0"))

    detail = told(connection, weeks, "built")

    assert first(detail) == ("build", weeks.last("build"))
    assert kinds(detail.candidates[0]) == {"engine"}


def test_of_several_who_write_the_tested_table_one_may_be_missing(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(12):
        weeks.run("load eu", day, 1, writes=["raw"], rows=1000 + day)
        if day < 11:
            weeks.run("load us", day, 1.5, writes=["raw"], rows=2000 + day)
        weeks.check("raw", day, 3, good=day < 11, test="row_count")

    detail = told(connection, weeks, "raw")

    assert first(detail) == ("load us", None)
    assert kinds(detail.candidates[0]) == {"missing_run"}


def test_who_finds_nothing_new_in_what_did_not_change_is_not_to_blame(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        rows = 1000 + 37 * (day if day < 9 else 8)
        weeks.run("load", day, 1, writes=["raw"], rows=rows)
        weeks.run("increment", day, 2, reads=["raw"], writes=["added"], rows=rows if day < 9 else 20)
        weeks.check("added", day, 3, good=day < 9, test="row_count")

    detail = told(connection, weeks, "added")

    assert first(detail) == ("load", weeks.last("load"))
    assert "raw, which had not changed, accounts for it" in detail.candidates[1].evidence[0].sentence


def test_what_did_not_change_is_seen_for_as_long_as_it_lasts_and_began_with_its_first_repetition(
    connection: Connection,
) -> None:
    weeks, runs = Weeks(), list[str]()
    for day in range(12):
        read = versioned("lake", f"v{min(day, 8)}")
        runs.append(weeks.run("load", day, 1, reads=[read], writes=["raw"]))
        weeks.check("raw", day, 3, good=day < 11, test="freshness", column="at")

    detail = told(connection, weeks, "raw")

    assert first(detail) == ("load", runs[9])
    assert kinds(detail.candidates[0]) == {"unchanged"}


def test_who_runs_more_often_than_its_input_repeats_it_every_day(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        for hour in range(24) if day < 7 else range(3):
            read = versioned("dim", f"v{day if hour else day - 1}")
            weeks.run("hourly", day, hour, reads=[read], writes=["fact"])
        weeks.check("fact", day, 2.5, good=day < 7, test="is_up_to_date")

    detail = told(connection, weeks, "fact")

    assert "unchanged" not in {kind for one in detail.candidates for kind in kinds(one)}


def test_a_setting_that_changed_twice_in_a_few_days_has_changed(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        release = "2.4" if day < 7 else "2.5" if day < 9 else "3.0"
        weeks.run("load", day, 1, writes=["raw"], facets=engine(release))
        weeks.check("raw", day, 3, good=day < 9, test="in_range", column="price")

    detail = told(connection, weeks, "raw")

    assert "version of processing_engine is 3.0, was 2.5" in detail.candidates[0].evidence[0].sentence


def test_a_setting_that_was_steady_for_days_has_changed_though_it_had_been_restless_before(
    connection: Connection,
) -> None:
    weeks = Weeks()
    for day in range(10):
        release = {6: "2.5", 7: "2.6", 8: "2.6", 9: "2.6"}.get(day, "2.4")
        weeks.run("load", day, 1, writes=["raw"], facets=engine(release))
        weeks.check("raw", day, 3, good=True, test="in_range", column="price")
    weeks.run("load", 10, 1, writes=["raw"], facets=engine("3.0"))
    weeks.check("raw", 10, 3, good=False, test="in_range", column="price")

    detail = told(connection, weeks, "raw")

    assert "version of processing_engine is 3.0, was 2.6" in detail.candidates[0].evidence[0].sentence


def test_the_host_of_a_run_is_no_parameter(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        named: list[Json] = [
            {"name": "HOSTNAME", "value": "worker-1" if day < 7 else "worker-2"},
            {"name": "RATE", "value": "1" if day < 7 else "100"},
        ]
        weeks.run("load", day, 1, writes=["raw"], facets={"environmentVariables": facet(environmentVariables=named)})
        weeks.check("raw", day, 3, good=day < 7, test="in_range", column="price")

    sentences = [one.sentence for one in told(connection, weeks, "raw").candidates[0].evidence]

    assert len(sentences) == 1
    assert "RATE" in sentences[0]


def test_a_weekend_is_no_fall_where_only_a_profile_counts_rows(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(28):
        is_quiet = day % 7 in (5, 6)
        profiled = {"namespace": DB, "name": "clicks", "facets": metrics(rows=(300 if is_quiet else 1000) + day)}
        weeks.run("load clicks", day, 1, writes=[profiled])
        weeks.run("load orders", day, 1, writes=["orders"], rows=500 + day if day < 26 else 60)
        weeks.run("join", day, 2, reads=["clicks", "orders"], writes=["joined"])
        weeks.check("joined", day, 3, good=day < 26, test="row_count")

    detail = told(connection, weeks, "joined")

    assert detail.candidates[0].job.name == "load orders"
    assert not {kind for one in detail.candidates if one.job.name == "load clicks" for kind in kinds(one)} & {"volume"}


def test_a_quiet_sunday_with_as_much_as_on_a_weekday_is_odd(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(21):
        rows = 300 + day if day % 7 in (5, 6) and day < 20 else 1000 + day
        weeks.run("load", day, 1, writes=["raw"], rows=rows)
        weeks.run("mart", day, 2, reads=["raw"], writes=["mart"], facets=engine("1" if day < 20 else "2"))
        weeks.check("mart", day, 3, good=day < 20, test="row_count")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert kinds(detail.candidates[0]) == {"volume"}


def test_who_changed_and_counts_nothing_goes_before_who_shows_it(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        weeks.run("load", day, 1, writes=["raw"])
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], facets=engine("3.5" if day < 9 else "4.0"))
        weeks.run("join", day, 3, reads=["staged"], writes=["joined"], rows=1000 + 3 * day if day < 9 else 520)
        weeks.check("joined", day, 4, good=day < 9, test="row_count")

    detail = told(connection, weeks, "joined")

    assert first(detail) == ("stage", weeks.last("stage"))
    assert "it did not change, and stage, which it has data from, did" in detail.candidates[1].reasons


def test_of_many_tries_that_may_have_left_something_behind_one_is_told(connection: Connection) -> None:
    weeks = Weeks()
    tries = list[str]()
    for day in range(8):
        dag = weeks.run("dag", day, 0.9, minutes=90)
        for number in range(6) if day == 7 else ():
            at = 1 + number / 20
            tries.append(weeks.run("load", day, at, writes=["raw"], rows=480, state="FAIL", minutes=2, of=("dag", dag)))
        weeks.run("load", day, 1.5, writes=["raw"], rows=1000 + 3 * day, of=("dag", dag))
        weeks.check("raw", day, 3, good=day < 7, test="unique", column="id")

    detail = told(connection, weeks, "raw")

    assert [one.run_id for one in detail.candidates if "run_failed" in kinds(one)] == tries[-1:]


def test_who_came_too_late_did_no_harm_where_who_did_not_wait_wrote_as_much_as_ever(connection: Connection) -> None:
    """What was read instead would have been as many rows as the day before, or none that are new."""
    weeks = Weeks()
    for day in range(12):
        weeks.run("load", day, 2.4 if day == 11 else 1, writes=["raw"])
        rows, upgraded = 1000 + (day * 37) % 83, engine("4" if day == 11 else "3")
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], rows=rows, facets=upgraded)
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"])
        weeks.check("mart", day, 4, good=day < 11, test="sum_between", column="amount")

    assert first(told(connection, weeks, "mart")) == ("stage", weeks.last("stage"))


def test_who_came_too_late_is_named_where_who_did_not_wait_does_not_count(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(12):
        weeks.run("load", day, 2.4 if day == 11 else 1, writes=["raw"])
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], facets=engine("4" if day == 11 else "3"))
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"])
        weeks.check("mart", day, 4, good=day < 11, test="sum_between", column="amount")

    assert first(told(connection, weeks, "mart")) == ("load", weeks.last("load"))


def test_the_bytes_of_a_single_row_where_there_was_none_are_no_flood(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        bad = day == 9
        weeks.run("load", day, 1, writes=["raw"], rows=1000)
        statistics = {"outputStatistics": facet(rowCount=int(bad), size=56 * bad)}
        weeks.run("mart", day, 2, reads=["raw"], writes=[{"namespace": DB, "name": "mart", "outputFacets": statistics}])
        weeks.check("mart", day, 3, good=not bad, test="unique", column="id")

    detail = told(connection, weeks, "mart")

    assert not any("volume" in kinds(candidate) for candidate in detail.candidates)


def test_of_who_says_that_it_began_after_it_had_ended_it_is_not_known_how_long_it_took(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        weeks.run("load", day, 1, writes=["raw"], minutes=-50 if day in (5, 9) else 10)
        weeks.run("mart", day, 2, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 3, good=day < 9, test="row_count")

    detail = told(connection, weeks, "mart")

    assert [(one.job.name, one.evidence) for one in detail.candidates] == [("mart", []), ("load", [])]


def test_a_run_that_began_and_was_never_heard_of_again_is_named_and_not_called_missing(connection: Connection) -> None:
    """A driver that was killed says nothing."""
    weeks = Weeks()
    for day in range(10):
        weeks.run("load", day, 1, writes=["raw"], state="RUNNING" if day == 9 else "COMPLETE")
        weeks.run("mart", day, 3, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 4, good=day < 9, test="sum_between", column="amount")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert kinds(detail.candidates[0]) == {"unfinished_run"}


@pytest.mark.parametrize(("release", "named"), [("3.11.11", "load"), ("4.0.0", "mart")])
def test_a_patch_of_an_engine_is_weaker_than_a_release(connection: Connection, release: str, named: str) -> None:
    weeks = Weeks()
    for day in range(12):
        weeks.run("load", day, 1, writes=["raw"], job_facets=version("b" if day == 11 else "a"))
        made_by = engine(release if day == 11 else "3.11.9")
        weeks.run("mart", day, 3, reads=["raw"], writes=["mart"], facets=made_by)
        weeks.check("mart", day, 4, good=day < 11, test="sum_between", column="amount")

    assert first(told(connection, weeks, "mart"))[0] == named


def test_who_writes_the_same_once_more_has_it_from_above_through_those_who_do_not_count(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(12):
        rows = 34_000 + 100 * min(day, 10) * (7 + day % 3)
        if day == 11:
            rows = 34_000 + 100 * 10 * (7 + 10 % 3)
        weeks.run("load", day, 1, writes=["raw"], rows=rows)
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"])
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"], rows=rows)
        weeks.check("mart", day, 4, good=day < 11, test="freshness")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert "what it read had not changed either" in detail.candidates[1].reasons
