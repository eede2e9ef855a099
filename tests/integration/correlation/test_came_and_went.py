"""Changes that were taken back before the last run that was read: what the hours between wrote is in the day."""

from typing import Any

import psycopg
import pytest

from tests.integration.correlation.weeks import Weeks, engine, first, kinds, sql, told, version
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
            run = weeks.run("load", day, hour, writes=["raw"], **members)
            began = began or (run if bad else "")
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 5, good=day < 4, test="not_null", column="mail")
    detail = told(connection, weeks, "mart")
    return first(detail), began, kinds(detail.candidates[0])


@pytest.mark.parametrize("told_of", ["code", "engine", "parameter", "schema"])
def test_the_first_run_with_what_was_taken_back_later_is_named(connection: Connection, told_of: str) -> None:
    named, began, kinds_ = day_of_hours(connection, told_of)

    assert named == ("load", began)
    assert told_of in kinds_


def test_a_version_that_is_still_there_was_not_taken_back(connection: Connection) -> None:
    weeks = Weeks()
    for day in range(5):
        for hour in range(24):
            weeks.run("load", day, hour, writes=["raw"], job_facets=version("b" if (day, hour) >= (3, 15) else "a"))
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 5, good=day < 4, test="not_null", column="mail")

    detail = told(connection, weeks, "mart")

    assert not any("changed back" in one.sentence for candidate in detail.candidates for one in candidate.evidence)
