"""Changes that were taken back before the last run that was read: what the hours between wrote is in the day."""

from typing import Any

import psycopg
import pytest

from tests.integration.correlation.weeks import Weeks, engine, first, kinds, sql, told, version, with_columns
from tests.unit.rulebook.histories import Json, facet

Connection = psycopg.Connection[Any]


def day_of_hours(connection: Connection, told_of: str) -> tuple[tuple[str, str | None], str, set[str]]:
    """Some hours of the last day are not like the others. Who is named, who it was, and by what it is told."""
    weeks, began = Weeks(), ""
    for day in range(5):
        for hour in range(24):
            bad = (3, 15) <= (day, hour) < (3, 20)
            members: Json = {}
            match told_of:
                case "code":
                    members["job_facets"] = sql("select 1 where a" if bad else "select 1")
                case "engine":
                    members["facets"] = engine("4" if bad else "3")
                case "parameter":
                    limit = facet(parameters=[{"key": "limit", "value": "10" if bad else "20"}])
                    members["facets"] = {"executionParameters": limit}
                case "schema":
                    members["columns"] = ["id"] if bad else ["id", "mail"]
                case "source":
                    members["reads"] = [with_columns("export", ["id", "e_mail" if bad else "mail"])]
            run = weeks.run("load", day, hour, writes=["raw"], **members)
            began = began or (run if bad else "")
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 5, good=day < 4, test="not_null", column="mail")
    detail = told(connection, weeks, "mart")
    return first(detail), began, kinds(detail.candidates[0])


@pytest.mark.parametrize("told_of", ["code", "engine", "parameter", "schema", "source"])
def test_the_first_run_with_what_was_taken_back_later_is_named(connection: Connection, told_of: str) -> None:
    named, began, kinds_ = day_of_hours(connection, told_of)

    assert named == ("load", began)
    assert {"source": "schema"}.get(told_of, told_of) in kinds_


def test_a_version_that_is_still_there_was_not_taken_back(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(5):
        for hour in range(24):
            weeks.run("load", day, hour, writes=["raw"], job_facets=version("b" if (day, hour) >= (3, 15) else "a"))
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 5, good=day < 4, test="not_null", column="mail")

    detail = told(connection, weeks, "mart")

    assert not any("changed back" in one.sentence for candidate in detail.candidates for one in candidate.evidence)


def test_what_was_odd_a_week_ago_and_passed_ever_since_goes_behind_the_run_that_was_tested(
    connection: Connection,
) -> None:
    weeks = Weeks()
    for day in range(16):
        rows = 400 if day == 9 else 1000 + 5 * day
        weeks.run("load", day, 1, writes=["raw"], rows=rows)
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], rows=rows)
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"])
        weeks.check("mart", day, 4, good=day not in (9, 15), test="row_count")

    assert first(told(connection, weeks, "mart")) == ("mart", weeks.last("mart"))


def test_what_was_less_before_newer_data_came_has_made_nothing_old(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(12):
        weeks.run("load", day, 1, writes=["raw"], rows=300 if day == 9 else 1000 + 5 * day)
        weeks.run("mart", day, 3, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 4, good=day < 11, test="freshness")

    detail = told(connection, weeks, "mart")

    assert not any("volume" in kinds(candidate) for candidate in detail.candidates)


@pytest.mark.parametrize("told_of", ["code", "engine"])
def test_what_came_hours_before_the_last_good_result_may_have_been_too_little_to_notice(
    connection: Connection, told_of: str
) -> None:
    """Of the day that passed only three hours had it, of the next one all."""
    weeks, began = Weeks(), ""
    for day in range(8):
        members: Json = {"job_facets": sql("select 2" if day >= 6 else "select 1")}
        if told_of == "engine":
            members = {"facets": engine("4" if day >= 6 else "3")}
        run = weeks.run("rates", day, 1.7, writes=["rates"], **members)
        began = began or (run if day == 6 else "")
        for hour in range(24):
            weeks.run("convert", day, hour + 0.2, reads=["rates"], writes=["sales"])
        weeks.run("mart", day, 5.5, reads=["sales"], writes=["mart"])
        weeks.check("mart", day, 9, good=day < 7, test="sum_between", column="amount")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("rates", began)
    assert kinds(detail.candidates[0]) == {told_of}


def test_a_change_that_many_have_in_common_before_the_last_good_result_is_named_for_none(
    connection: Connection,
) -> None:
    weeks = Weeks()
    names = [f"load {number}" for number in range(12)]
    for day in range(9):
        for name in names:
            weeks.run(name, day, 1, writes=[f"raw {name}"], facets=engine("4" if day >= 6 else "3"))
        weeks.run("mart", day, 3, reads=[f"raw {name}" for name in names], writes=["mart"])
        weeks.check("mart", day, 4, good=day < 8, test="row_count")

    assert first(told(connection, weeks, "mart")) == ("mart", weeks.last("mart"))


def test_a_change_in_what_was_tested_itself_was_seen_as_a_whole_when_it_passed(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(9):
        weeks.run("load", day, 1, writes=["raw"], facets=engine("4" if day >= 7 else "3"))
        weeks.check("raw", day, 4, good=day < 8, test="row_count")

    detail = told(connection, weeks, "raw")

    assert [(one.job.name, one.run_id) for one in detail.candidates] == [("load", weeks.last("load"))]


@pytest.mark.parametrize("since", [(3, 2), (2, 20)])
def test_what_was_changed_back_since_the_last_good_result_is_not_when_it_began(
    connection: Connection, since: tuple[int, int]
) -> None:
    """The day that passed had some hours of it, and the next one eighteen."""
    weeks, began = Weeks(), ""
    for day in range(5):
        for hour in range(24):
            bad = since <= (day, hour) < (3, 23)
            currency = facet(parameters=[{"key": "currency", "value": "USD" if bad else "EUR"}])
            rows = 500 if bad else 1000 + hour
            run = weeks.run("load", day, hour, writes=["raw"], rows=rows, facets={"executionParameters": currency})
            began = began or (run if bad else "")
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 5, good=day < 4, test="sum_between", column="amount")

    assert first(told(connection, weeks, "mart")) == ("load", began)
