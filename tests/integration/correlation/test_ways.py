"""By which way something came in: diamonds, neighbours, old data that is passed on, and what a failure read."""

from typing import Any

import psycopg

from tests.integration.correlation.weeks import (
    Weeks,
    engine,
    first,
    kinds,
    metrics,
    sql,
    told,
    version,
    with_lineage,
)
from tests.unit.rulebook.histories import DB

Connection = psycopg.Connection[Any]


def test_what_came_in_by_another_way_before_is_new_where_it_comes_in_now(connection: Connection) -> None:
    """Of a diamond one side reads at once, and the test passes; the other reads hours later."""
    weeks = Weeks()
    for day in range(10):
        rows = 300 if day == 9 else 1000 + 3 * day
        weeks.run("load", day, 0.5, writes=["raw"], rows=rows)
        for hour in range(1, 24) if day < 9 else range(1, 7):
            if hour == 4:
                weeks.run("fact", day, 4, reads=["raw"], writes=["fact"], rows=rows)
            weeks.run("dim", day, hour + 0.2, reads=["raw"], writes=["dim"])
            weeks.run("mart", day, hour + 0.4, reads=["dim", "fact"], writes=["mart"])
            weeks.check("mart", day, hour + 0.8, good=(day, hour) < (9, 4), test="row_count")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert "by another way it had come in before, and the test passed" in detail.candidates[0].reasons


def test_what_was_read_the_same_way_when_all_was_well_is_no_cause(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        weeks.run("load", day, 0.5, writes=["raw"], rows=300 if day == 9 else 1000 + 3 * day)
        for hour in range(1, 24) if day < 9 else range(1, 7):
            release = "2" if (day, hour) >= (9, 4) else "1"
            weeks.run("mart", day, hour, reads=["raw"], writes=["mart"], facets=engine(release))
            weeks.check("mart", day, hour + 0.5, good=(day, hour) < (9, 4), test="in_range", column="price")

    detail = told(connection, weeks, "mart")

    assert detail.candidates[0].job.name == "mart"
    assert kinds(detail.candidates[0]) == {"engine"}


def test_who_else_writes_the_table_is_no_reason_for_a_failure(connection: Connection) -> None:
    weeks, failed = Weeks(), ""
    for day in range(10):
        bad = day == 9
        weeks.run("load us", day, 1.5 if bad else 1.0, writes=["raw"], rows=1000 + 3 * day)
        run = weeks.run("load eu", day, 1.2, writes=["raw"], rows=None if bad else 2000 + 3 * day, state=_ended(bad))
        failed = run if bad else failed
        weeks.run("mart", day, 3, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 4, good=not bad, test="row_count")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load eu", failed)
    assert "it had its reasons further upstream" not in detail.candidates[0].reasons


def _ended(bad: bool) -> str:  # noqa: FBT001 (a state)
    return "FAIL" if bad else "COMPLETE"


def test_as_many_rows_as_the_last_time_are_passed_on_like_any_number(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(12):
        rows = 1000 + 37 * min(day, 10)
        weeks.run("load", day, 1, writes=["raw"], rows=rows)
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], rows=6 * rows)
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"], rows=3 * rows)
        weeks.check("mart", day, 4, good=day < 11, test="freshness")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert "what it read had not changed either" in detail.candidates[1].reasons


def test_what_a_failed_run_had_read_is_what_to_look_at_next(connection: Connection) -> None:
    """That something changed there convinces nobody, but it is all there is."""
    weeks = Weeks()
    for day in range(8):
        bad = day == 7
        weeks.run("load", day, 1, writes=["raw"], facets=engine("2" if bad else "1"))
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], state=_ended(bad))
        weeks.check("staged", day, 3, good=not bad, test="freshness")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("stage", weeks.last("stage"))
    assert (detail.candidates[1].job.name, detail.candidates[1].run_id) == ("load", weeks.last("load"))


def test_a_new_way_is_new_all_the_way_up(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        rows = 300 if day == 9 else 1000 + 3 * day
        weeks.run("load", day, 0.5, writes=["raw"], rows=rows)
        weeks.run("stage", day, 0.8, reads=["raw"], writes=["staged"], rows=rows)
        for hour in range(1, 24) if day < 9 else range(1, 7):
            if hour == 4:
                weeks.run("fact", day, 4, reads=["staged"], writes=["fact"], rows=rows)
            weeks.run("dim", day, hour + 0.2, reads=["staged"], writes=["dim"])
            weeks.run("mart", day, hour + 0.4, reads=["dim", "fact"], writes=["mart"])
            weeks.check("mart", day, hour + 0.8, good=(day, hour) < (9, 4), test="row_count")

    assert first(told(connection, weeks, "mart")) == ("load", weeks.last("load"))


def test_who_else_writes_the_table_is_not_late_before_it_is_due(connection: Connection) -> None:
    """The test looks after each of the two: after the first, the second has not been there yet on any day."""
    weeks = Weeks()
    for day in range(10):
        bad = day == 9
        weeks.run("load eu", day, 1, writes=["raw"], facets=engine("2" if bad else "1"), minutes=5)
        weeks.check("raw", day, 1.1, good=not bad, test="not_null", column="status")
        weeks.run("load us", day, 1.1, writes=["raw"], minutes=5)
        weeks.check("raw", day, 1.2, good=not bad, test="not_null", column="status")

    detail = told(connection, weeks, "raw")

    assert first(detail)[0] == "load eu"
    assert "late_run" not in {kind for one in detail.candidates for kind in kinds(one)}


def test_other_averages_come_with_other_amounts(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        rows = 600 if day == 9 else 1000 + 3 * day
        weeks.run("load", day, 1, writes=["raw"], rows=rows)
        facets = metrics(rows=rows, sums={"amount": rows * (6.2 if day == 9 else 7.8)})
        weeks.run("stage", day, 2, reads=["raw"], writes=[{"namespace": DB, "name": "staged", "facets": facets}])
        weeks.check("staged", day, 3, good=day < 9, test="sum_between", column="amount")

    assert first(told(connection, weeks, "staged")) == ("load", weeks.last("load"))


def test_what_a_column_holds_on_weekends_is_no_news_after_a_friday(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(14):
        is_weekend, bad = day % 7 >= 5, day == 13
        total = (600 if is_weekend else 1000) + 7 * (day % 3)
        sums = {"facets": metrics(12, sums={"amount": 12.0 * total})}
        weeks.run("sum up", day, 1, writes=[{"namespace": DB, "name": "sums", **sums}])
        code = sql("select * from sums" if not bad else "select * from sums where is_valid")
        weeks.run("mart", day, 2, reads=["sums"], writes=["mart"], job_facets=code)
        # Nobody looks on Saturdays.
        if day % 7 != 5:
            weeks.check("mart", day, 3, good=not bad, test="sum_between", column="amount")

    assert first(told(connection, weeks, "mart")) == ("mart", weeks.last("mart"))


def test_a_table_of_several_grows_old_by_the_one_that_brought_nothing(connection: Connection) -> None:
    """The other one was late, as the test came early: but what was tested had been written in time."""
    weeks, empty = Weeks(), ""
    for day in range(10):
        bad = day == 9
        weeks.run("load shops", day, 1.5 if bad else 1.0, writes=["raw"], rows=1000 + 3 * day)
        run = weeks.run("load web", day, 1.1, writes=["raw"], rows=0 if bad else 2000 + 3 * day, minutes=6)
        empty = run if bad else empty
        weeks.check("raw", day, 1.49, good=not bad, test="freshness")

    detail = told(connection, weeks, "raw")

    assert first(detail) == ("load web", empty)
    assert detail.candidates[1].job.name == "load shops"
    assert "another job has written there in time" in detail.candidates[1].reasons


def test_what_has_as_many_rows_whatever_goes_in_does_not_tell_that_nothing_was_lost(connection: Connection) -> None:
    """One row for each region: which of their keys are left is another thing, and the join below shows it."""
    weeks = Weeks()
    for day in range(12):
        bad = day == 11
        weeks.run("load", day, 1, writes=["raw"], rows=400 if bad else 1000 + 3 * day)
        weeks.run("sum up", day, 2, reads=["raw"], writes=["regions"], rows=12)
        weeks.run("mart", day, 3, reads=["regions"], writes=["mart"], rows=2000 if bad else 5000 + 9 * day)
        weeks.check("mart", day, 4, good=not bad, test="row_count")

    assert first(told(connection, weeks, "mart")) == ("load", weeks.last("load"))


def test_a_new_column_called_like_the_tested_one_is_where_its_values_went(connection: Connection) -> None:
    weeks, began = Weeks(), ""
    for day in range(10):
        columns = ["id", "country", *(["country_v2"] if day == 9 else [])]
        began = weeks.run("load", day, 1, writes=["raw"], columns=columns)
        weeks.run("other", day, 1, writes=["others"], job_facets=version("b" if day == 9 else "a"))
        weeks.run("mart", day, 3, reads=["raw", "others"], writes=["mart"])
        weeks.check("mart", day, 4, good=day < 9, test="not_null", column="country")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", began)
    assert kinds(detail.candidates[0]) == {"schema"}


def test_a_new_column_called_otherwise_says_little(connection: Connection) -> None:
    weeks, changed = Weeks(), ""
    for day in range(10):
        weeks.run("load", day, 1, writes=["raw"], columns=["id", "country", *(["note"] if day == 9 else [])])
        changed = weeks.run("other", day, 1, writes=["others"], job_facets=version("b" if day == 9 else "a"))
        weeks.run("mart", day, 3, reads=["raw", "others"], writes=["mart"])
        weeks.check("mart", day, 4, good=day < 9, test="not_null", column="country")

    assert first(told(connection, weeks, "mart")) == ("other", changed)


def test_who_asks_for_columns_is_told_the_first_run_with_a_new_one(connection: Connection) -> None:
    weeks, began = Weeks(), ""
    for day in range(5):
        for hour in range(24):
            is_new = (day, hour) >= (3, 10)
            columns = ["id", "country", *(["note"] if is_new else [])]
            run = weeks.run("load", day, hour, writes=["raw"], columns=columns, minutes=3)
            began = began or (run if is_new else "")
        weeks.check("raw", day, 5, good=day < 4, test="expect_table_columns_to_match_set")

    assert first(told(connection, weeks, "raw")) == ("load", began)


def test_what_is_joined_decides_how_many_rows_there_are_whatever_column_is_looked_at(connection: Connection) -> None:
    weeks, changed = Weeks(), ""
    for day in range(12):
        weeks.run("orders", day, 1, writes=["orders"], job_facets=version("b" if day == 11 else "a"))
        changed = weeks.run("customers", day, 1, writes=["customers"], rows=3000 if day == 11 else 1000 + day)
        weeks.run(
            "mart", day, 3, reads=["orders", "customers"], writes=[with_lineage("mart", {"tax": ("orders", "tax")})]
        )
        weeks.check("mart", day, 4, good=day < 11, test="sum_between", column="tax")

    assert first(told(connection, weeks, "mart")) == ("customers", changed)


def test_a_fall_that_goes_on_beyond_who_does_not_count_is_followed(connection: Connection) -> None:
    weeks, changed = Weeks(), ""
    for day in range(12):
        share = 0.5 if day == 11 else 1 + day / 200
        weeks.run("orders", day, 1, writes=["orders"], job_facets=version("b" if day == 11 else "a"))
        changed = weeks.run("customers", day, 1, writes=["customers"], rows=int(1000 * share))
        joined = with_lineage("joined", {"tax": ("orders", "tax")})
        weeks.run("join", day, 2, reads=["orders", "customers"], writes=[joined])
        mart = with_lineage("mart", {"tax": ("joined", "tax")})
        weeks.run("mart", day, 3, reads=["joined"], writes=[mart], rows=int(800 * share))
        weeks.check("mart", day, 4, good=day < 11, test="sum_between", column="tax")

    assert first(told(connection, weeks, "mart")) == ("customers", changed)


def test_rows_that_were_multiplied_on_their_way_have_come_in_as_more(connection: Connection) -> None:
    """What is joined to itself, or to what has grown as well, has more than both."""
    weeks = Weeks()
    for day in range(12):
        bad = day == 11
        weeks.run("load", day, 1, writes=["raw"], rows=2300 if bad else 1000 + day, facets=engine("2" if bad else "1"))
        weeks.run("join", day, 2, reads=["raw"], writes=["joined"], rows=50_000 if bad else 5000 + 9 * day)
        weeks.run("mart", day, 3, reads=["joined"], writes=["mart"])
        weeks.check("mart", day, 4, good=not bad, test="expect_column_mean_to_be_between", column="amount")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert "what it read had changed in the same way, though by less" in detail.candidates[1].reasons
