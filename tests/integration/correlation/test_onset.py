"""When it began: an hourly job feeds a daily one, and many runs are bad before a test looks at what came of them."""

from typing import Any

import psycopg

from tests.integration.correlation.weeks import Weeks, engine, first, sql, told, version

Connection = psycopg.Connection[Any]


def test_a_column_is_gone_from_the_first_run_without_it(connection: Connection) -> None:
    weeks, began = Weeks(), ""
    for day in range(4):
        for hour in range(24):
            is_gone = (day, hour) >= (2, 15)
            run = weeks.run("load", day, hour, writes=["raw"], columns=["id"] if is_gone else ["id", "mail"])
            began = began or (run if is_gone else "")
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 5, good=day < 3, test="not_null", column="mail")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", began)
    assert "the first of its runs that shows it" in detail.candidates[0].reasons[-1]


def test_a_run_that_ended_after_another_has_begun_has_the_columns_that_it_says(connection: Connection) -> None:
    weeks, today = Weeks(), ""
    for day in range(4):
        is_gone = day == 3
        today = weeks.run("load", day, 1, writes=["raw"], columns=["id"] if is_gone else ["id", "mail"])
        # For the day before, and still at it when that of today begins.
        weeks.run("load", day, 0.5, writes=["raw"], columns=["id", "mail"], minutes=35)
        weeks.run("mart", day, 2, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 3, good=not is_gone, test="not_null", column="mail")

    assert first(told(connection, weeks, "mart")) == ("load", today)


def test_a_change_of_code_some_hours_before_is_not_when_the_column_went(connection: Connection) -> None:
    weeks, began = Weeks(), ""
    for day in range(4):
        for hour in range(24):
            is_gone = (day, hour) >= (3, 2)
            code = version("b" if (day, hour) >= (2, 20) else "a")
            columns = ["id"] if is_gone else ["id", "mail"]
            run = weeks.run("load", day, hour, writes=["raw"], columns=columns, job_facets=code)
            began = began or (run if is_gone else "")
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 5, good=day < 3, test="not_null", column="mail")

    assert first(told(connection, weeks, "mart")) == ("load", began)


def test_of_a_series_of_failures_the_first_is_meant(connection: Connection) -> None:
    weeks, began = Weeks(), ""
    for day in range(4):
        for hour in range(24):
            fails = (day, hour) >= (2, 15)
            run = weeks.run("load", day, hour, writes=["raw"], state="FAIL" if fails else "COMPLETE")
            began = began or (run if fails else "")
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 5, good=day < 3, test="freshness", column="at")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", began)
    assert "load ended with FAIL since 2026-" in detail.candidates[0].evidence[0].sentence


def test_of_the_tries_of_the_first_that_failed_the_last_is_meant(connection: Connection) -> None:
    weeks, tries = Weeks(), list[str]()
    for day in range(4):
        for hour in range(24):
            fails = (day, hour) >= (2, 15)
            dag = weeks.run("dag", day, hour, minutes=50)
            for minute in (0, 20) if fails else (0,):
                at, state = hour + minute / 60, "FAIL" if fails else "COMPLETE"
                run = weeks.run("load", day, at, writes=["raw"], state=state, of=("dag", dag))
                tries += [run] if fails else []
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 5, good=day < 3, test="freshness", column="at")

    assert first(told(connection, weeks, "mart")) == ("load", tries[1])


def test_odd_amounts_may_have_begun_before_the_last_good_result(connection: Connection) -> None:
    """By the evening the morning's runs are many, and what is usual must not be told by them."""
    weeks, began = Weeks(), ""
    for day in range(10):
        for hour in range(24):
            is_odd = (day, hour) >= (8, 2)
            rows = (250 if is_odd else 1000) + (day * 7 + hour * 3) % 11
            run = weeks.run("load", day, hour, writes=["raw"], rows=rows)
            began = began or (run if is_odd else "")
        rows = {8: 21_500, 9: 6_010}.get(day, 24_000 + day * 13)
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"], rows=rows)
        weeks.check("mart", day, 5, good=day < 9, test="row_count", column="")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", began)
    named = [candidate.run_id for candidate in detail.candidates]
    assert len(named) == len(set(named))


def test_where_twice_as_much_is_missing_as_when_all_was_well_that_says_little(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        for hour in range(24):
            if (day, hour) < (5, 19):
                weeks.run("load", day, hour, writes=["raw"])
        rows = 3 if day == 7 else 24_000 + day * 13
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"], rows=rows)
        weeks.check("mart", day, 5, good=day < 7, test="row_count", column="")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", None)
    assert detail.candidates[0].evidence[0].kind == "missing_run"


def test_a_column_that_got_a_name_in_front_of_it_is_the_same(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        gone = day == 7
        weeks.run("load", day, 1, writes=["orders"], columns=["id"] if gone else ["id", "status"])
        weeks.run(
            "stage", day, 2, reads=["orders"], writes=["staged"], columns=["id"] if gone else ["id", "orders_status"]
        )
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"])
        weeks.check("mart", day, 4, good=not gone, test="not_null", column="orders_status")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert "orders had changed so before" in detail.candidates[1].evidence[0].sentence


def test_more_is_not_explained_by_less_of_something_else(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        bad = day == 7
        code = version("b" if bad else "a")
        weeks.run("load clicks", day, 1, writes=["clicks"], rows=300 if bad else 1000 + 3 * day, job_facets=code)
        weeks.run("load payments", day, 1, writes=["payments"], rows=2500 if bad else 1000 + 3 * day)
        weeks.run("join", day, 2, reads=["payments", "clicks"], writes=["joined"], rows=1900 if bad else 1200 + 3 * day)
        weeks.check("joined", day, 3, good=not bad, test="row_count", column="")

    detail = told(connection, weeks, "joined")

    assert first(detail) == ("load payments", weeks.last("load payments"))
    clicks = next(one for one in detail.candidates if one.job.name == "load clicks")
    assert "of what was tested there is more, and not less" in clicks.reasons


def test_hours_of_which_none_is_odd_are_odd_together_and_the_first_of_them_is_meant(connection: Connection) -> None:
    """Twenty rows an hour differ by chance, half of them for half a day do not."""
    weeks, began = Weeks(), ""
    for day in range(9):
        for hour in range(24):
            bad = day == 7 and 10 <= hour < 22
            rows = (12 if bad else 20) + (day * 7 + hour * 5) % 4
            run = weeks.run("load", day, hour, writes=["raw"], rows=rows, minutes=3)
            weeks.run("other", day, hour, writes=["others"], rows=40 + (day + hour) % 3, minutes=3)
            began = began or (run if bad else "")
        weeks.run("mart", day, 1.5, reads=["raw", "others"], writes=["mart"])
        weeks.check("mart", day, 2, good=day < 8, test="row_count")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", began)
    (evidence,) = detail.candidates[0].evidence
    assert evidence.kind == "volume"
    assert "by 12 runs together" in evidence.sentence


def test_a_new_version_of_a_repository_is_not_when_another_engine_came(connection: Connection) -> None:
    """The statement itself is the same, so what was deployed concerns others."""
    weeks, began = Weeks(), ""
    for day in range(6):
        for hour in range(24):
            is_new = (day, hour) >= (5, 2)
            code = version("b" if (day, hour) >= (4, 20) else "a") | sql("SELECT id, price FROM lake")
            facets = engine("4.0" if is_new else "3.2")
            run = weeks.run("load", day, hour, writes=["raw"], job_facets=code, facets=facets)
            began = began or (run if is_new else "")
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"], rows=1000 + day if day < 5 else 300)
        weeks.check("mart", day, 5, good=day < 5, test="row_count_in_range")

    assert first(told(connection, weeks, "mart")) == ("load", began)
