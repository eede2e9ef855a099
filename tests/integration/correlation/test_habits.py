"""What changes all the time, or is done once more, and what that says: dates, comments, versions, tries, rests."""

from typing import Any

import psycopg
import pytest

from tests.integration.correlation.weeks import (
    Weeks,
    engine,
    first,
    kinds,
    moment,
    sql,
    told,
    version,
    with_lineage,
)
from tests.unit.rulebook.histories import Json, facet

Connection = psycopg.Connection[Any]


def parameters(**values: str) -> Json:
    return {"executionParameters": facet(parameters=[{"key": key, "value": value} for key, value in values.items()])}


def test_of_tries_that_do_not_say_what_started_them_the_last_is_meant(connection: Connection) -> None:
    weeks, tries = Weeks(), list[str]()
    for day in range(8):
        for minute in (0, 20, 40) if day == 7 else (0,):
            state = "FAIL" if day == 7 else "COMPLETE"
            run = weeks.run("load", day, 1 + minute / 60, writes=["raw"], state=state)
            tries += [run] if day == 7 else []
        weeks.run("mart", day, 4, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 5, good=day < 7, test="freshness")

    assert first(told(connection, weeks, "mart")) == ("load", tries[2])


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y%m%d", "%Y-%m-%dT00:00:00+00:00"])
def test_a_date_that_moves_on_with_the_calendar_is_no_parameter(connection: Connection, form: str) -> None:
    """Of an hourly job it is the same all day, and another when the daily one reads next."""
    weeks = Weeks()
    for day in range(8):
        for hour in range(24) if day < 7 else range(3):
            weeks.run("load", day, hour, writes=["raw"], facets=parameters(ds=moment(day).strftime(form)))
        code = sql("select a from raw" if day < 7 else "select a from raw where b = 1")
        weeks.run("stage", day, 2.5, reads=["raw"], writes=["staged"], job_facets=code)
        weeks.check("staged", day, 3, good=day < 7, test="row_count")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("stage", weeks.last("stage"))
    assert "parameter" not in {kind for one in detail.candidates for kind in kinds(one)}


def test_a_date_that_somebody_has_set_is_a_parameter(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        since = "2020-01-01" if day < 7 else "2025-01-01"
        weeks.run("load", day, 1, writes=["raw"], facets=parameters(since=since))
        weeks.check("raw", day, 3, good=day < 7, test="row_count")

    assert kinds(told(connection, weeks, "raw").candidates[0]) == {"parameter"}


def test_a_comment_in_sql_is_no_change_of_it(connection: Connection) -> None:
    """dbt writes into one what has started the query."""
    weeks = Weeks()
    for day in range(8):
        code = sql(f"/* invocation {day // 7} */\nselect a, '--' from raw -- as of {day // 7}\n")
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], job_facets=code)
        weeks.check("staged", day, 3, good=day < 7, test="row_count")

    assert kinds(told(connection, weeks, "staged").candidates[0]) == set()


def test_what_says_which_rows_there_are_reaches_every_column(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        weeks.run("load", day, 1, writes=["raw"], job_facets=version("a" if day < 7 else "b"))
        code = sql("select price, id from raw" if day < 7 else "select price, id from raw where is_valid")
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], job_facets=code)
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"])
        weeks.check("mart", day, 4, good=day < 7, test="sum_between", column="price_eur")

    assert first(told(connection, weeks, "mart")) == ("stage", weeks.last("stage"))


def test_a_new_version_says_little_where_the_code_is_known_to_be_the_same(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        weeks.run("load", day, 1, writes=["raw"], job_facets=version("a" if day < 7 else "b"))
        code = sql("select a from raw") | version("c" if day < 7 else "d")
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], job_facets=code)
        weeks.check("staged", day, 3, good=day < 7, test="row_count")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("load", weeks.last("load"))
    assert "the code that is known of it is the same" in detail.candidates[1].reasons


def test_a_version_that_is_new_every_other_day_says_little_when_it_is_so_again(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(12):
        weeks.run("load", day, 1, writes=["raw"], job_facets=version("a" if day < 11 else "b"))
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], job_facets=version(f"c{(day + 1) // 2}"))
        weeks.check("staged", day, 3, good=day < 11, test="row_count")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("load", weeks.last("load"))
    assert "its code has a new version all the time" in detail.candidates[1].reasons


def test_rows_that_a_join_has_lost_take_the_columns_of_others_with_them(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        bad = day == 9
        weeks.run("load orders", day, 1, writes=["orders"], facets=engine("2" if bad else "1"))
        weeks.run("load shops", day, 1, writes=["shops"], rows=300 if bad else 1000 + 3 * day)
        mart = with_lineage("mart", {"amount": ("orders", "amount")})
        weeks.run("mart", day, 2, reads=["orders", "shops"], writes=[mart], rows=310 if bad else 1000 + 3 * day)
        weeks.check("mart", day, 3, good=not bad, test="sum_between", column="amount")

    assert first(told(connection, weeks, "mart")) == ("load shops", weeks.last("load shops"))


def test_who_was_odd_before_because_of_its_input_is_so_now_for_the_same_reason(connection: Connection) -> None:
    """The test passes at first in spite of it, so that the input was there when all was well."""
    weeks = Weeks()
    for day in range(10):
        weeks.run("load", day, 0.5, writes=["raw"], rows=400 if day == 9 else 1000 + 3 * day)
        for hour in range(1, 24) if day < 9 else range(1, 7):
            rows = 400 if day == 9 else 1000 + 3 * day
            weeks.run("stage", day, hour, reads=["raw"], writes=["staged"], rows=rows)
            weeks.check("staged", day, hour + 0.5, good=(day, hour) < (9, 5), test="row_count")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("load", weeks.last("load"))


def test_who_makes_up_for_a_run_that_failed_is_not_to_blame(connection: Connection) -> None:
    weeks, failed = Weeks(), ""
    for day in range(10):
        if day == 8:
            failed = weeks.run("load", day, 1, writes=["raw"], state="FAIL")
        else:
            weeks.run("load", day, 1, writes=["raw"], rows=2050 if day == 9 else 1000 + 3 * day)
        weeks.check("raw", day, 3, good=day < 9, test="row_count")

    detail = told(connection, weeks, "raw")

    assert first(detail) == ("load", failed)
    assert "what runs before it had left undone accounts for it" in detail.candidates[1].evidence[0].sentence


def test_of_the_tries_that_another_run_made_up_for_the_last_is_meant(connection: Connection) -> None:
    weeks, tries = Weeks(), list[str]()
    for day in range(10):
        if day == 8:
            tries = [weeks.run("load", day, 1 + n / 3, writes=["raw"], state="FAIL") for n in range(3)]
        else:
            weeks.run("load", day, 1, writes=["raw"], rows=2050 if day == 9 else 1000 + 3 * day)
        weeks.check("raw", day, 3, good=day < 9, test="row_count")

    assert first(told(connection, weeks, "raw")) == ("load", tries[2])


def test_who_makes_up_for_a_run_that_never_was_is_not_to_blame(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        if day != 8:
            weeks.run("load", day, 1, writes=["raw"], rows=2050 if day == 9 else 1000 + 3 * day)
        weeks.check("raw", day, 3, good=day < 9, test="row_count")

    detail = told(connection, weeks, "raw")

    assert first(detail) == ("load", None)
    assert kinds(detail.candidates[0]) == {"missing_run"}


def test_three_times_as_much_is_not_what_one_run_had_left_undone(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        if day != 8:
            weeks.run("load", day, 1, writes=["raw"], rows=9000 if day == 9 else 1000 + 3 * day)
        weeks.check("raw", day, 3, good=day < 9, test="row_count")

    assert first(told(connection, weeks, "raw")) == ("load", weeks.last("load"))
