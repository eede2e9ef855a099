"""Runs that were left out, where all ran again before a test looked: what they had to do is lost, or was done later."""

from typing import Any

import psycopg
import pytest

from tests.integration.correlation.weeks import Weeks, engine, first, kinds, metrics, told
from tests.unit.rulebook.histories import DB, facet

Connection = psycopg.Connection[Any]


def test_a_run_that_never_was_is_named_though_nobody_says_how_much_the_next_one_did(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        if day != 8:
            weeks.run("load", day, 1, writes=["raw"])
            weeks.check("raw", day, 3, good=day < 9, test="sum_between", column="amount")

    detail = told(connection, weeks, "raw")

    assert first(detail) == ("load", None)
    assert kinds(detail.candidates[0]) == {"missing_run"}


def test_a_run_that_failed_before_the_last_good_result_is_named_for_what_the_next_one_made_up(
    connection: Connection,
) -> None:
    """What was read on the day itself was yesterday's once more, and nobody noticed; then came two days at once."""
    weeks, failed = Weeks(), ""
    for day in range(10):
        if day == 8:
            failed = weeks.run("load", day, 1, writes=["raw"], state="FAIL")
        else:
            weeks.run("load", day, 1, writes=["raw"], rows=2050 if day == 9 else 1000 + 3 * day)
        weeks.run("mart", day, 2, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 3, good=day < 9, test="row_count")

    assert first(told(connection, weeks, "mart")) == ("load", failed)


def test_a_failure_is_seen_by_those_who_tell_of_the_ends_of_their_runs_alone(connection: Connection) -> None:
    weeks, failed = Weeks(), ""
    for day in range(10):
        if day == 8:
            failed = weeks.run("load", day, 1, writes=["raw"], state="FAIL", minutes=0)
        else:
            weeks.run("load", day, 1, writes=["raw"], minutes=0)
        weeks.run("mart", day, 2, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 3, good=day < 9, test="row_count")

    assert first(told(connection, weeks, "mart")) == ("load", failed)


def test_hours_that_were_left_out_are_missing_from_the_day(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        for hour in range(24):
            if not (day == 8 and 9 <= hour < 21):
                weeks.run("load", day, hour, writes=["raw"], rows=1000 + (day * 7 + hour * 3) % 11)
        rows = 12_060 if day == 9 else 24_000 + day * 13
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"], rows=rows)
        weeks.check("mart", day, 5, good=day < 9, test="row_count")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", None)
    assert "missing_run" in kinds(detail.candidates[0])


def test_a_try_that_failed_and_was_tried_again_is_not_what_was_left_out(connection: Connection) -> None:
    """It is of the first run that came after."""
    weeks = Weeks()
    for day in range(10):
        for hour in range(24):
            if (day, hour) == (8, 21):
                weeks.run("load", day, hour - 0.2, writes=["raw"], state="FAIL", minutes=2)
            if not (day == 8 and 9 <= hour < 21):
                weeks.run("load", day, hour, writes=["raw"])
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 5, good=day < 9, test="row_count")

    assert first(told(connection, weeks, "mart")) == ("load", None)


def test_who_came_late_has_left_nothing_out(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        weeks.run("load", day, 2 if day == 9 else 1, writes=["raw"])
        weeks.check("raw", day, 3, good=day < 9, test="row_count")

    assert kinds(told(connection, weeks, "raw").candidates[0]) == set()


@pytest.mark.parametrize(("total", "is_made_up"), [(2100, True), (9000, False)])
def test_larger_sums_in_as_many_rows_make_up_for_a_run_that_failed(
    connection: Connection, total: int, *, is_made_up: bool
) -> None:
    """A row for each of twelve regions says nothing of how much was done; what it sums up does."""
    weeks, failed = Weeks(), ""
    for day in range(12):
        weeks.run("load", day, 1, writes=["raw"], facets=engine("4" if day >= 11 else "3"))
        if day == 10:
            failed = weeks.run("regions", day, 2, reads=["raw"], writes=["regions"], state="FAIL")
        else:
            sums = metrics(12, sums={"amount": 12.0 * (total if day == 11 else 1000 + 3 * day)})
            table = {"namespace": DB, "name": "regions", "facets": sums}
            weeks.run("regions", day, 2, reads=["raw"], writes=[table], rows=12)
        weeks.run("mart", day, 3, reads=["regions"], writes=["mart"])
        weeks.check("mart", day, 4, good=day < 11, test="sum_between", column="amount")

    assert (first(told(connection, weeks, "mart")) == ("regions", failed)) == is_made_up


def test_what_was_left_out_before_the_last_good_result_is_named_where_nothing_else_is_found(
    connection: Connection,
) -> None:
    """What follows has read both the day that came late and the day itself, and adds up more than one of them."""
    weeks = Weeks()
    for day in range(12):
        if day != 9:
            weeks.run("load", day, 1, writes=["raw"], rows=108 if day == 10 else 54)
        weeks.run("mart", day, 2, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 3, good=day < 11, test="sum_between", column="amount")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", None)
    assert kinds(detail.candidates[0]) == {"missing_run"}
    assert "it was so before the last good result, which had not noticed" in detail.candidates[0].reasons


def test_of_those_that_were_left_out_at_once_the_one_farthest_up_is_named(connection: Connection) -> None:
    weeks, failed = Weeks(), ""
    for day in range(12):
        is_broken = day == 9
        run = weeks.run("load", day, 1, writes=["raw"], state="FAIL" if is_broken else "COMPLETE")
        failed = run if is_broken else failed
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], state="ABORT" if is_broken else "COMPLETE")
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"])
        weeks.check("mart", day, 4, good=day < 11, test="sum_between", column="amount")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", failed)
    assert "something further upstream was left out at the time, too" in detail.candidates[1].reasons


def test_one_of_many_writers_that_has_stopped_is_missed_however_often_the_others_write(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(4):
        for hour in range(24):
            if (day, hour) < (3, 10):
                weeks.run("first", day, hour + 0.05, writes=["raw"], rows=20, minutes=1)
            weeks.run("second", day, hour + 0.1, writes=["raw"], rows=30, minutes=1)
            weeks.run("third", day, hour + 0.15, writes=["raw"], rows=10, minutes=1)
        weeks.check("raw", day, 23.5, good=day < 3, test="sum_between", column="amount")

    detail = told(connection, weeks, "raw")

    assert first(detail) == ("first", None)
    assert kinds(detail.candidates[0]) == {"missing_run"}


def test_who_began_early_because_nobody_made_it_wait_has_read_what_was_old(connection: Connection) -> None:
    """It is started when what it reads is there: that takes ten minutes, but for the day when nothing came."""
    weeks = Weeks()
    for day in range(9):
        is_there = day < 8
        if is_there:
            weeks.run("stage", day, 2.2, reads=["lake"], writes=["staged"], minutes=10)
        weeks.run("join", day, 2.4 if is_there else 2.2, reads=["staged"], writes=["joined"], minutes=9)
        weeks.run("mart", day, 2.7, reads=["joined"], writes=["mart"])
        weeks.check("mart", day, 3, good=is_there, test="expect_table_to_be_fresh", column="")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("stage", None)
    assert kinds(detail.candidates[0]) == {"missing_run"}


def test_a_writer_that_has_stopped_is_not_missed_where_another_has_replaced_it_all(connection: Connection) -> None:
    weeks = Weeks()
    whole = {
        "namespace": DB,
        "name": "raw",
        "facets": {"lifecycleStateChange": facet(lifecycleStateChange="OVERWRITE")},
    }
    for day in range(4):
        for hour in range(24):
            if (day, hour) < (3, 10):
                weeks.run("first", day, hour + 0.05, writes=["raw"], rows=20, minutes=1)
            weeks.run("second", day, hour + 0.1, writes=["raw"], rows=30, minutes=1)
            weeks.run("third", day, hour + 0.15, writes=["raw"], rows=10, minutes=1)
            if (day, hour) == (3, 15):
                weeks.run("reload", day, hour + 0.3, writes=[whole], minutes=1)
        weeks.check("raw", day, 23.5, good=day < 3, test="sum_between", column="amount")

    detail = told(connection, weeks, "raw")

    assert "first" not in {one.job.name for one in detail.candidates}
