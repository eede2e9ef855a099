"""Tests that were red further up before: what they found was passed on."""

from typing import Any

import psycopg
import pytest

from tests.integration.correlation.weeks import Weeks, engine, first, kinds, told, version

Connection = psycopg.Connection[Any]


def week_of_tests(red_from: int, *, changed: bool = False) -> Weeks:
    """The source is tested as well, and a job in between shows less rows than ever from the last day on."""
    weeks = Weeks()
    for day in range(12):
        bad = day == 11
        weeks.run("load", day, 1, writes=["raw"])
        weeks.check("raw", day, 1.5, good=day < red_from, test="accepted_values", column="status")
        code = version("b" if bad and changed else "a")
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], rows=500 if bad else 1000 + day, job_facets=code)
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"])
        weeks.check("mart", day, 4, good=not bad, test="sum_between", column="amount")
    return weeks


def test_who_wrote_what_had_failed_a_test_before_goes_before_who_shows_the_effect(connection: Connection) -> None:
    weeks = week_of_tests(red_from=11)

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    (evidence,) = detail.candidates[0].evidence
    assert evidence.kind == "test_failed"
    assert evidence.sentence.startswith("the test accepted_values(status) failed on raw, at 2026-05-15 01:31")
    assert "a test had failed on raw, which went into it" in detail.candidates[1].reasons


def test_what_was_red_when_all_was_well_has_done_no_harm(connection: Connection) -> None:
    weeks = week_of_tests(red_from=8)

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("stage", weeks.last("stage"))
    assert not any("test_failed" in kinds(candidate) for candidate in detail.candidates)


def test_who_changed_after_a_red_test_is_still_looked_at(connection: Connection) -> None:
    weeks = week_of_tests(red_from=11, changed=True)

    detail = told(connection, weeks, "mart")

    assert [one.job.name for one in detail.candidates[:2]] == ["stage", "load"]


def test_why_it_was_bad_by_then_is_asked_further_up(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(12):
        bad = day == 11
        weeks.run("load", day, 1, writes=["raw"], rows=3000 if bad else 1000 + day)
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"])
        weeks.check("staged", day, 2.5, good=not bad, test="unique", column="id")
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"])
        weeks.check("mart", day, 4, good=not bad, test="unique", column="id")

    detail = told(connection, weeks, "mart")

    assert [one.job.name for one in detail.candidates] == ["load", "stage", "mart"]
    assert [kinds(one) for one in detail.candidates] == [{"volume"}, {"test_failed"}, set()]


@pytest.mark.parametrize("hour", [3.5, 5])
def test_a_test_of_the_same_table_or_a_later_one_says_nothing_of_what_was_before(
    connection: Connection, hour: float
) -> None:
    weeks = Weeks()
    for day in range(12):
        weeks.run("load", day, 1, writes=["raw"])
        weeks.run("mart", day, 3, reads=["raw"], writes=["mart"])
        weeks.check("mart" if hour < 4 else "raw", day, hour, good=day < 11, test="accepted_values", column="status")
        weeks.check("mart", day, 4, good=day < 11, test="sum_between", column="amount")

    detail = told(connection, weeks, "mart")

    assert not any("test_failed" in kinds(candidate) for candidate in detail.candidates)


def test_a_red_test_is_no_effect_of_another_engine_where_what_went_in_was_odd(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(12):
        bad = day == 11
        weeks.run("load", day, 1, writes=["raw"], rows=1700 if bad else 1000 + day)
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], facets=engine("3.3" if bad else "3.2"))
        weeks.check("staged", day, 2.5, good=not bad, test="sum_between", column="amount")
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"])
        weeks.check("mart", day, 4, good=not bad, test="sum_between", column="amount")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert "test_failed" in kinds(detail.candidates[1])
