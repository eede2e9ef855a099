"""Is it safe to read?"""

from typing import Any

import psycopg
import pytest

from correlator.correlation.verdict import Verdict, verdict
from tests.integration.correlation.stories import checked, incident_of_run, incident_on, ran, tell, urn

Connection = psycopg.Connection[Any]


def judged(connection: Connection, table: str) -> Verdict:
    return verdict(connection, urn(table), 300)


def test_a_dataset_whose_tests_pass_is_safe(connection: Connection) -> None:
    tell(connection, ran("load", "1", 0, 1, writes=["raw"]), checked("raw", "test", 2, good=True))

    found = judged(connection, "raw")

    assert (found.verdict, found.incidents) == ("safe", [])
    assert found.reason == "Its only test passed at 2026-05-04 10:03 UTC."


def test_a_red_test_makes_it_unsafe_and_a_later_pass_safe_again(connection: Connection) -> None:
    tell(connection, ran("load", "1", 0, 1, writes=["raw"]), checked("raw", "test", 2, good=False))
    found = judged(connection, "raw")
    assert (found.verdict, found.incidents) == ("unsafe", [incident_on(connection, "raw").uuid])
    assert "not_null of column id fails" in found.reason

    tell(connection, ran("load", "2", 10, 11, writes=["raw"]), checked("raw", "again", 12, good=True))
    assert judged(connection, "raw").verdict == "safe"


def test_a_warning_does_not_make_it_unsafe(connection: Connection) -> None:
    tell(
        connection,
        ran("load", "1", 0, 1, writes=["raw"]),
        checked("raw", "test", 2, good=True),
        checked("raw", "warns", 3, good=False, test="unique", severity="warn"),
    )

    found = judged(connection, "raw")
    assert found.verdict == "safe"
    assert "1 warn" in found.reason


def test_what_was_made_of_a_bad_version_is_unsafe_until_it_is_made_again(connection: Connection) -> None:
    tell(
        connection,
        ran("load", "1", 0, 1, writes=["raw"]),
        ran("mart", "mart 1", 2, 3, reads=["raw"], writes=["mart"]),
        checked("mart", "mart test", 4, good=True),
        checked("raw", "test", 5, good=False),
        ran("load", "2", 10, 11, writes=["raw"]),
        checked("raw", "again", 12, good=True),
    )
    found = judged(connection, "mart")
    assert found.verdict == "unsafe"
    assert "made of raw" in found.reason

    tell(connection, ran("mart", "mart 2", 13, 14, reads=["raw"], writes=["mart"]))
    assert judged(connection, "mart").verdict == "safe"


def test_it_is_unsafe_when_who_writes_it_failed(connection: Connection) -> None:
    tell(
        connection,
        ran("load", "1", 0, 1, writes=["raw"]),
        checked("raw", "test", 2, good=True),
        ran("load", "2", 10, 11, writes=["raw"], state="FAIL"),
    )

    found = judged(connection, "raw")
    assert (found.verdict, found.incidents) == ("unsafe", [incident_of_run(connection, "2").uuid])


@pytest.mark.parametrize("table", ["untested", "never named"])
def test_what_nobody_has_tested_or_named_is_unknown(connection: Connection, table: str) -> None:
    tell(connection, ran("load", "1", 0, 1, writes=["untested"]))

    assert judged(connection, table).verdict == "unknown"


def test_it_is_unknown_while_the_pipeline_is_too_far_behind(connection: Connection) -> None:
    tell(connection, ran("load", "1", 0, 1, writes=["raw"]), checked("raw", "test", 2, good=True))
    assert judged(connection, "raw").verdict == "safe"
    _receive_one_an_hour_ago(connection)

    found = judged(connection, "raw")
    assert found.verdict == "unknown"
    assert "behind" in found.reason
    assert verdict(connection, urn("raw"), 7200).verdict == "safe"


def _receive_one_an_hour_ago(connection: Connection) -> None:
    """An event that nobody has merged."""
    connection.execute("SELECT kept.ensure_log_partition(now() - interval '1 hour')")
    connection.execute("INSERT INTO kept.lineage_events VALUES (1, now() - interval '1 hour', '{}')")
