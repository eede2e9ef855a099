"""Plain pipelines of a few jobs, one of which went wrong this morning, and what may be mistaken for it."""

from typing import Any

import psycopg
import pytest

from tests.integration.correlation.weeks import Weeks, engine, first, kinds, sql, told, version, with_lineage

Connection = psycopg.Connection[Any]


def parameters(**values: str) -> dict[str, Any]:
    return {"parameters": {"_producer": "https://a.example", "_schemaURL": "https://a.example/p.json", "set": values}}


@pytest.mark.parametrize("column", ["updated_at", "order_date", "loadedAt"])
def test_the_greatest_moment_of_a_column_is_how_old_it_is(connection: Connection, column: str) -> None:
    """Great Expectations has no expectation of freshness, and this is what is used for it."""
    weeks = Weeks()
    for day in range(10):
        if day < 9:
            weeks.run("load", day, 1, writes=["raw"], rows=1000 + day)
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], rows=500 + day)
        code = version("b" if day == 9 else "a")
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"], rows=400 + day, job_facets=code)
        weeks.check("mart", day, 4, good=day < 9, test="expect_column_max_to_be_between", column=column)

    assert first(told(connection, weeks, "mart")) == ("load", None)


def test_the_greatest_amount_of_a_column_is_not(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        if day < 9:
            weeks.run("load", day, 1, writes=["raw"], rows=1000 + day)
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], rows=500 + day)
        code = version("b" if day == 9 else "a")
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"], rows=400 + day, job_facets=code)
        weeks.check("mart", day, 4, good=day < 9, test="expect_column_max_to_be_between", column="amount")

    assert first(told(connection, weeks, "mart")) == ("mart", weeks.last("mart"))


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_parameter_that_was_set_for_the_first_time_has_changed(connection: Connection, *, is_gone: bool) -> None:
    weeks = Weeks()
    for day in range(10):
        is_set = (day == 9) != is_gone
        facets = parameters(lookback="30", **({"join_window": "0"} if is_set else {}))
        weeks.run("load", day, 1, writes=["raw"])
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], facets=facets)
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"])
        weeks.check("mart", day, 4, good=day < 9, test="not_null", column="amount")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("stage", weeks.last("stage"))
    (evidence,) = detail.candidates[0].evidence
    values = "not set, was 0" if is_gone else "0, was not set"
    assert evidence.sentence == f"set.join_window of parameters is {values}"


def test_a_facet_that_has_other_names_all_the_time_says_nothing_by_a_new_one(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        weeks.run("load", day, 1, writes=["raw"])
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], facets=parameters(**{f"stage_{day}": "done"}))
        weeks.check("staged", day, 4, good=day < 9, test="not_null", column="amount")

    assert all(kinds(one) == set() for one in told(connection, weeks, "staged").candidates)


def test_a_red_test_is_no_news_of_who_read_what_was_old(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        bad = day == 9
        if not bad:
            weeks.run("load", day, 1, writes=["raw"], rows=1000 + day)
        weeks.run("clean", day, 2, reads=["raw"], writes=["cleaned"], rows=900 + 3 * day)
        weeks.run("stage", day, 3, reads=["cleaned"], writes=["staged"], rows=500 + 2 * day)
        weeks.check("staged", day, 3.5, good=not bad, test="sum_between", column="amount")
        weeks.run("mart", day, 4, reads=["staged"], writes=["mart"], rows=400 + day)
        weeks.check("mart", day, 5, good=not bad, test="sum_between", column="amount")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", None)
    assert detail.candidates[1].score < 0.1


def test_a_new_column_further_up_is_no_reason_where_what_was_tested_has_none(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        bad = day == 9
        code = version("b" if bad else "a")
        raw = ["id", "status", *(["note"] if bad else [])]
        kept = ["id"] if bad else ["id", "status"]
        weeks.run("load", day, 1, writes=["raw"], columns=raw, job_facets=code)
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], columns=kept)
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"], columns=kept)
        weeks.check("mart", day, 4, good=not bad, test="columns_match")

    assert first(told(connection, weeks, "mart")) == ("stage", weeks.last("stage"))


def test_a_run_that_failed_when_its_reader_had_begun_failed_and_was_not_late(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        bad = day == 9
        weeks.run("load", day, 1, writes=["raw"], minutes=40, state="FAIL" if bad else "COMPLETE")
        if bad:
            weeks.run("load", day, 1.75, writes=["raw"], minutes=20, state="FAIL")
        weeks.run("mart", day, 1.7, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 4, good=not bad, test="freshness", column="updated_at")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert kinds(detail.candidates[0]) == {"run_failed"}


def test_what_is_added_to_was_there_when_all_was_well(connection: Connection) -> None:
    """A job that reads its own table leads back through all its past, which is the same on both sides."""
    weeks = Weeks()
    for day in range(12):
        columns = ["id", "status", *(["amount"] if day < 6 else [])]
        weeks.run("load", day, 1, writes=["raw"], columns=columns)
        release = engine("4.0.0" if day == 11 else "3.4.1")
        weeks.run("stage", day, 2, reads=["raw", "staged"], writes=["staged"], facets=release)
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"])
        weeks.check("mart", day, 4, good=day < 11, test="not_null", column="status")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("stage", weeks.last("stage"))
    assert not any("schema" in kinds(one) for one in detail.candidates)


def test_who_reads_what_its_own_family_wrote_has_not_missed_what_came_since(connection: Connection) -> None:
    """One run of a workflow has an hourly task in it, which goes on in runs of its own."""
    weeks = Weeks()
    for day in range(10):
        of = ("nightly", f"00000000-0000-4000-8000-0000000000{day:02}")
        for hour in range(24):
            weeks.run("stage", day, hour, writes=["staged"], of=of if hour == 6 else None)
            if hour == 6:
                release = engine("4.0.0" if day == 9 else "3.4.1")
                weeks.run("core", day, 6.5, reads=["staged"], writes=["core"], of=of, facets=release)
            if hour == 8:
                weeks.run("mart", day, 8.5, reads=["core", "staged"], writes=["mart"], of=of)
                weeks.check("mart", day, 8.8, good=day < 9, test="row_count")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("core", weeks.last("core"))
    assert not any("late_run" in kinds(one) for one in detail.candidates)


def test_who_came_a_little_late_and_wrote_more_has_not_made_up_for_anything(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(12):
        bad = day == 11
        release = engine("4.0.0" if bad else "3.4.1")
        weeks.run("load", day, 1, writes=["raw"])
        rows = 1420 if bad else 1000 + 5 * day
        weeks.run("stage", day, 2.7 if bad else 2, reads=["raw"], writes=["staged"], rows=rows, facets=release)
        weeks.check("staged", day, 4, good=not bad, test="unique", column="id")

    detail = told(connection, weeks, "staged")

    assert first(detail) == ("stage", weeks.last("stage"))
    assert not any("missing_run" in kinds(one) for one in detail.candidates)


def test_a_column_that_is_gone_is_gone_from_the_lineage_of_columns_as_well(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        bad = day == 9
        kept = ["id"] if bad else ["id", "amount"]
        weeks.run("load", day, 1, writes=["raw"], columns=kept)
        for hour, table, source in ((2, "staged", "raw"), (3, "mart", "staged")):
            release = engine("3.4.2" if bad and table == "staged" else "3.4.1")
            made = with_lineage(table, {column: (source, column) for column in kept})
            weeks.run(f"make {table}", day, hour, reads=[source], writes=[made], columns=kept, facets=release)
        weeks.check("mart", day, 4, good=not bad, test="not_null", column="amount")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", weeks.last("load"))
    assert "nothing of it is said to reach the column" not in detail.candidates[0].reasons


def test_nobody_waits_for_a_table_of_his_own(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(10):
        bad = day == 9
        release = engine("4.0.0" if bad else "3.4.1")
        weeks.run("load", day, 1, writes=["raw"], facets=release)
        if bad:
            weeks.run("stage", day, 2, reads=["raw", "staged"], writes=["staged"], state="FAIL")
        weeks.run("stage", day, 2.5 if bad else 2, reads=["raw", "staged"], writes=["staged"])
        weeks.check("staged", day, 4, good=not bad, test="sum_between", column="amount")

    assert first(told(connection, weeks, "staged")) == ("load", weeks.last("load"))


def test_what_was_not_there_in_time_for_a_run_that_was_well_has_done_no_harm(connection: Connection) -> None:
    """The table is added to, and what went into it three days ago was older than it should have been."""
    weeks = Weeks()
    for day in range(10):
        bad = day == 9
        weeks.run("load", day, 1, writes=["raw"], state="FAIL" if day == 6 else "COMPLETE")
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], facets=engine("4.0.0" if bad else "3.4.1"))
        weeks.run("mart", day, 3, reads=["staged", "mart"], writes=["mart"])
        weeks.check("mart", day, 4, good=not bad, test="sum_between", column="amount")

    assert first(told(connection, weeks, "mart")) == ("stage", weeks.last("stage"))


@pytest.mark.parametrize("told_by", ["version", "sql"])
def test_a_deploy_that_made_a_new_column_was_for_that(connection: Connection, told_by: str) -> None:
    weeks = Weeks()
    for day in range(10):
        bad = day == 9
        columns = ["id", "amount", *(["note"] if bad else [])]
        text = " ".join(["SELECT", ", ".join(columns), "FROM source"])
        code = version(str(bad)) if told_by == "version" else sql(text)
        weeks.run("load", day, 1, writes=["raw"], columns=columns, job_facets=code)
        release = engine("4.0.0" if bad else "3.4.1")
        weeks.run("stage", day, 2, reads=["raw"], writes=["staged"], columns=["id", "amount"], facets=release)
        weeks.run("mart", day, 3, reads=["staged"], writes=["mart"], columns=["id", "amount"])
        weeks.check("mart", day, 4, good=not bad, test="row_count")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("stage", weeks.last("stage"))
    assert "it has made new columns, and the others are as they were" in detail.candidates[1].reasons
