"""Hours of which a job says by a profile what they held: the last of them may be as it should be again."""

from typing import Any

import psycopg

from tests.integration.correlation.weeks import Weeks, first, kinds, metrics, told
from tests.unit.rulebook.histories import DB, Json

Connection = psycopg.Connection[Any]


def profiled(table: str, rows: int, nulls: int = 0) -> Json:
    return {"namespace": DB, "name": table, "facets": metrics(rows, nulls={"mail": nulls})}


def rows_of(day: int, hour: int) -> int:
    """A night is no quiet noon."""
    return 100 + 40 * abs(12 - hour) + (day * 7 + hour * 3) % 11


def test_the_first_hour_with_nulls_is_named_though_the_last_one_has_none(connection: Connection) -> None:
    weeks, began = Weeks(), ""
    for day in range(9):
        for hour in range(24):
            is_bad = (7, 20) <= (day, hour) < (8, 2)
            rows = rows_of(day, hour)
            run = weeks.run("load", day, hour, writes=[profiled("raw", rows, rows if is_bad else 0)])
            began = began or (run if is_bad else "")
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"])
        weeks.check("mart", day, 5, good=day < 8, test="not_null", column="mail")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", began)
    assert detail.candidates[0].evidence[0].sentence == "mail: 100.0% of it are null, was 0.0%"


def test_the_first_hour_with_less_is_named_though_rows_are_counted_by_profiles_alone(connection: Connection) -> None:
    weeks, began = Weeks(), ""
    for day in range(9):
        for hour in range(24):
            is_bad = (7, 17) <= (day, hour) < (8, 3)
            rows = rows_of(day, hour)
            run = weeks.run("load", day, hour, writes=[profiled("raw", rows // 4 if is_bad else rows)])
            began = began or (run if is_bad else "")
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"], rows=5200 if day == 8 else 8000 + 9 * day)
        weeks.check("mart", day, 5, good=day < 8, test="row_count")

    detail = told(connection, weeks, "mart")

    assert first(detail) == ("load", began)
    assert kinds(detail.candidates[0]) == {"volume"}


def test_what_a_check_says_once_a_day_is_not_what_each_hour_holds(connection: Connection) -> None:
    """The mart is at fault, and the checks of what it reads have had other things to say for days."""
    weeks = Weeks()
    for day in range(9):
        for hour in range(24):
            weeks.run("load", day, hour, writes=["raw"])
            if hour == 12:
                weeks.run("profile", day, hour + 0.5, reads=[profiled("raw", 6000, 3000 if day == 7 else 0)])
        weeks.run("mart", day, 4.5, reads=["raw"], writes=["mart"], rows=100 if day == 8 else 8000 + 9 * day)
        weeks.check("mart", day, 5, good=day < 8, test="row_count")

    assert first(told(connection, weeks, "mart")) == ("mart", weeks.last("mart"))
