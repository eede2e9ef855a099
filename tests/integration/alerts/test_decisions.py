"""Who is told of what, and of what nobody is."""

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from correlator.alerts import outbox
from correlator.alerts.decisions import Decisions
from correlator.correlation.following import follow
from correlator.correlation.ignored import ignore
from correlator.correlation.life import Action, act
from correlator.rulebook.events import Event
from correlator.rulebook.fold import fold
from correlator.store.alert_watch import see_what_came_meanwhile
from correlator.store.merge import merge
from correlator.store.next_facts import NEXT, NextFacts
from correlator.store.staging import begin, stage
from tests.integration.alerts.shop import (
    add,
    ago,
    decide,
    let_time_pass,
    open_shop,
    raw_fails,
    raw_passes,
    settings,
    staged_fails,
    told,
)
from tests.integration.correlation.stories import checked, incident_on, owned, ran, sized, tell
from tests.integration.store.merging import SOURCE
from tests.unit.rulebook.histories import facet

Connection = psycopg.Connection[Any]

RAW = "not_null of column id failed on raw"
STAGED = "not_null of column id failed on staged"


@pytest.fixture(autouse=True)
def shop(connection: Connection) -> None:
    open_shop(connection)


def do(connection: Connection, table: str, kind: Any, **said: Any) -> None:
    act(connection, incident_on(connection, table).uuid, Action(kind=kind, **said), "ada")


def test_somebody_is_told_once_that_a_test_fails_and_once_that_it_passes_again(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    decide(connection)
    raw_fails(connection, "raw bad again", 15)
    decide(connection)
    assert told(connection) == [("all", "opened", RAW)]

    raw_passes(connection)
    decide(connection)

    assert told(connection) == [("all", "opened", RAW), ("all", "resolved", RAW)]
    assert connection.execute("TABLE kept.alert_watch").fetchall() == []


def test_nobody_is_told_before_the_wait_is_over(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)

    Decisions(settings()).decide(connection)
    assert told(connection) == []
    let_time_pass(connection, 31)
    Decisions(settings()).decide(connection)

    assert told(connection) == [("all", "opened", RAW)]


def test_what_was_over_before_the_wait_was_is_not_told(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    raw_passes(connection)
    decide(connection)

    assert told(connection) == []


def test_a_root_that_arrives_after_its_consequence_is_told_alone(connection: Connection) -> None:
    add(connection)
    staged_fails(connection)
    Decisions(settings()).decide(connection)
    raw_fails(connection)
    assert incident_on(connection, "staged").root_id == incident_on(connection, "raw").id
    decide(connection)

    assert told(connection) == [("all", "opened", RAW)]


def test_a_consequence_that_comes_later_is_not_told(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    decide(connection)
    staged_fails(connection)
    decide(connection)

    assert told(connection) == [("all", "opened", RAW)]


def test_a_root_that_comes_after_its_consequence_was_told_is_told_too(connection: Connection) -> None:
    add(connection)
    staged_fails(connection)
    decide(connection)
    raw_fails(connection)
    decide(connection)

    assert told(connection) == [("all", "opened", STAGED), ("all", "opened", RAW)]


def test_a_consequence_that_turns_out_to_be_none_is_told_after_all(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    staged_fails(connection)
    decide(connection)
    connection.execute("UPDATE facts.incidents SET root_id = NULL")
    decide(connection)

    assert told(connection) == [("all", "opened", RAW), ("all", "opened", STAGED)]


def test_what_goes_on_when_its_root_is_over_is_told_however_late(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    staged_fails(connection)
    decide(connection)
    tell(
        connection,
        ran("load", "load mended", ago(10), ago(9), writes=["raw"]),
        checked("raw", "raw good again", ago(8), good=True),
        ran("stage", "stage mended", ago(7), ago(6), reads=["raw"], writes=["staged"]),
    )
    decide(connection, alert_max_age=300.0)
    assert told(connection) == [("all", "opened", RAW), ("all", "resolved", RAW)]

    staged_fails(connection, "staged bad again", minutes=1)
    decide(connection, alert_max_age=300.0)

    assert told(connection)[2:] == [("all", "opened", STAGED)]


MART_A = "not_null of column id failed on mart_a"
MART_B = "not_null of column id failed on mart_b"


def marts_fail(connection: Connection, *, is_deploy: bool = True) -> None:
    """Nobody tests what they are made of, and a new version of that has hardly any rows."""
    for hour in range(12, 0, -1):
        is_new = is_deploy and hour == 1
        written = 10 if is_new else 1000
        facets = {"sql": facet(query="SELECT 1 WHERE false" if is_new else "SELECT 1")}
        tell(
            connection,
            ran("clean", f"clean {hour}", *minutes_of(hour, 0), writes=[sized("clean", written)], job_facets=facets),
            *(
                part
                for mart in ("mart_a", "mart_b")
                for part in (
                    ran(mart, f"{mart} {hour}", *minutes_of(hour, 2), reads=["clean"], writes=[sized(mart, written)]),
                    checked(mart, f"{mart} checked {hour}", minutes_of(hour, 4)[0], good=hour > 1),
                )
            ),
        )


def minutes_of(hour: int, minute: int) -> tuple[float, float]:
    return ago(hour * 60 - minute), ago(hour * 60 - minute - 1)


def test_of_two_that_fail_because_of_one_run_that_nobody_tests_one_is_told(connection: Connection) -> None:
    add(connection)
    marts_fail(connection)
    decide(connection)

    assert incident_on(connection, "mart_b").root_id is None
    assert told(connection) == [("all", "opened", MART_A)]


def test_who_waits_for_another_with_the_same_reason_is_told_when_that_is_over(connection: Connection) -> None:
    add(connection)
    marts_fail(connection)
    decide(connection)
    tell(connection, checked("mart_a", "mart_a good again", ago(2), good=True))
    decide(connection)
    decide(connection)

    assert told(connection) == [("all", "opened", MART_A), ("all", "resolved", MART_A), ("all", "opened", MART_B)]


def test_who_waits_for_another_is_not_told_when_both_are_over(connection: Connection) -> None:
    add(connection)
    marts_fail(connection)
    decide(connection)
    tell(connection, *(checked(mart, f"{mart} good again", ago(2), good=True) for mart in ("mart_a", "mart_b")))
    decide(connection)
    decide(connection)

    assert told(connection) == [("all", "opened", MART_A), ("all", "resolved", MART_A)]
    assert connection.execute("TABLE kept.alert_watch").fetchall() == []


def test_a_route_that_was_not_told_of_the_first_is_told_of_the_second(connection: Connection) -> None:
    marts_fail(connection)
    tell(connection, ran("owner", "owns", ago(1), ago(0.5), writes=[owned("mart_b", "team-b")]))
    add(connection, "all")
    add(connection, "b", owners=["team-b"])
    decide(connection)

    assert ("b", "opened", MART_B) in told(connection)


def test_two_of_which_the_reason_is_not_known_are_both_told(connection: Connection) -> None:
    add(connection)
    marts_fail(connection, is_deploy=False)
    raw_fails(connection)
    decide(connection)

    assert {title for _, _, title in told(connection)} == {RAW, MART_A, MART_B}


def unique_fails(connection: Connection, **said: Any) -> None:
    raw_fails(connection, "unique bad", 19, test="unique", **said)


def test_of_two_tests_that_fail_on_one_version_one_is_told(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    unique_fails(connection)
    decide(connection)

    assert len(told(connection)) == 1
    assert incident_on(connection, "raw", 0).root_id is None
    assert incident_on(connection, "raw", 1).root_id is None


def test_what_stands_beside_a_muted_test_is_told(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    do(connection, "raw", "mute", until=datetime.now(UTC) + timedelta(hours=1))
    unique_fails(connection)
    decide(connection)

    assert told(connection) == [("all", "opened", "unique of column id failed on raw")]


def test_an_error_is_told_of_where_a_warning_was(connection: Connection) -> None:
    add(connection)
    unique_fails(connection, severity="warn")
    decide(connection)
    raw_fails(connection)
    decide(connection)

    assert told(connection) == [("all", "opened", "unique of column id failed on raw"), ("all", "opened", RAW)]


def test_a_late_event_that_moves_the_beginning_tells_nobody_again(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    decide(connection)
    before = incident_on(connection, "raw").uuid
    raw_fails(connection, "raw bad earlier", 24)
    assert incident_on(connection, "raw").uuid != before
    decide(connection)
    raw_passes(connection)
    decide(connection)

    assert told(connection) == [("all", "opened", RAW), ("all", "resolved", RAW)]
    about = {about for (about,) in connection.execute("SELECT about FROM kept.alert_outbox")}
    assert about == {str(before)}


def test_a_beginning_that_moves_while_it_waits_is_told_once(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    raw_fails(connection, "raw bad earlier", 24)
    decide(connection)

    assert told(connection) == [("all", "opened", RAW)]


def test_after_a_resolve_the_next_failure_is_told_and_so_is_a_reopening(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    decide(connection)
    do(connection, "raw", "resolve", reason="expected")
    decide(connection)
    assert [event for _, event, _ in told(connection)] == ["opened", "resolved"]

    do(connection, "raw", "reopen")
    decide(connection)
    assert [event for _, event, _ in told(connection)] == ["opened", "resolved", "opened"]

    do(connection, "raw", "resolve", reason="fixed")
    decide(connection)
    raw_fails(connection, "raw bad after that", -1)
    decide(connection)

    events = [event for _, event, _ in told(connection)]
    assert events == ["opened", "resolved", "opened", "resolved", "opened"]


def test_nobody_is_told_of_what_is_muted_until_the_mute_ends(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    do(connection, "raw", "mute", until=datetime.now(UTC) + timedelta(hours=1))
    decide(connection)
    assert told(connection) == []

    do(connection, "raw", "unmute")
    decide(connection)

    assert told(connection) == [("all", "opened", RAW)]


def test_nobody_is_told_of_what_is_ignored(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    ignore(connection, "dataset", "*/raw", actor="ada")
    decide(connection)

    assert told(connection) == []


def test_nobody_is_told_of_a_failure_that_is_too_old_or_of_a_backfill(connection: Connection) -> None:
    add(connection)
    tell(
        connection,
        *(
            part
            for day in range(1, 15)
            for part in (
                ran("daily", f"daily {day}", ago(day * 1440 + 60), ago(day * 1440 + 59), writes=["history"]),
                checked("history", f"history {day}", ago(day * 1440 + 10), good=False, test=f"check {day}"),
            )
        ),
    )
    decide(connection)
    assert told(connection) == []

    raw_fails(connection, "too old for this setting")
    decide(connection, alert_max_age=60.0)
    assert told(connection) == []
    assert connection.execute("TABLE kept.alert_watch").fetchall() == []


def test_a_large_backfill_keeps_nobody_from_being_told_of_what_fails_now(connection: Connection) -> None:
    add(connection)
    tell(
        connection,
        *(checked("raw", f"old {n}", ago(5000 + n), good=False, test=f"check {n}") for n in range(150)),
    )
    raw_fails(connection)
    let_time_pass(connection)
    Decisions(settings()).decide(connection)

    assert told(connection) == [("all", "opened", RAW)]


def test_what_waits_behind_the_pipeline_is_waited_for_but_not_for_ever(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    received_before(connection, timedelta(hours=2))

    # Something came before the failure was found, and is not in the facts: it may be the pass that ends it.
    let_time_pass(connection, 40)
    Decisions(settings()).decide(connection)
    assert told(connection) == []

    let_time_pass(connection, 300)
    Decisions(settings()).decide(connection)
    assert told(connection) == [("all", "opened", RAW)]


def test_a_replay_tells_nobody_what_it_finds(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    connection.execute("DELETE FROM kept.alert_watch")

    replay(
        connection, checked("raw", "raw bad", ago(20), good=False), checked("mart", "by new rules", ago(10), good=False)
    )

    assert incident_on(connection, "mart").root_id is None
    decide(connection)
    assert told(connection) == []


def test_what_waits_while_a_replay_gives_it_another_beginning_is_told_once(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)

    replay(connection, *(checked("raw", name, ago(at), good=False) for name, at in (("earlier", 40), ("raw bad", 20))))

    decide(connection)
    assert told(connection) == [("all", "opened", RAW)]


def test_what_came_during_a_replay_and_was_merged_by_nobody_else_is_told(connection: Connection) -> None:
    add(connection)
    received_before(connection, timedelta(minutes=10))

    replay(connection, checked("raw", "raw bad", ago(12), good=False), checked("mart", "mart bad", ago(60), good=False))

    decide(connection)
    assert told(connection) == [("all", "opened", RAW)]


def replay(connection: Connection, *found: list[Event]) -> None:
    """As `pipeline.replay` does it: other tables are filled, and take the place of those that stand."""
    following = NextFacts(connection)
    following.make()
    following.dress()
    attempt = begin(connection, SOURCE)
    stage(connection, attempt, fold(event for part in found for event in part))
    merge(connection, attempt, None, NEXT, then=follow)
    with connection.transaction():
        see_what_came_meanwhile(connection, NEXT)
        following.put_in_place()
    following.drop()


def test_every_route_that_fits_is_told_and_the_default_only_what_no_other_is(connection: Connection) -> None:
    add(connection, "raw", owners=["team-raw"])
    add(connection, "errors", severities=["error"], tells_resolved=False)
    add(connection, "rest", is_default=True)
    raw_fails(connection)
    tell(
        connection,
        ran("count", "count", ago(24), ago(23), writes=[owned("counts", "team-raw")]),
        checked("counts", "warned", ago(19), good=False, test="row_count", column="", severity="warn"),
        ran("other", "other bad", ago(10), ago(9), writes=["else"], state="FAIL"),
    )
    decide(connection)
    titles = {(route, title) for route, _, title in told(connection)}
    assert titles == {
        ("raw", RAW),
        ("errors", RAW),
        ("raw", "row_count failed on counts"),
        ("errors", "other ended with FAIL"),
    }

    connection.execute("UPDATE kept.alert_routes SET is_enabled = false WHERE name = 'errors'")
    tell(connection, ran("third", "third bad", ago(8), ago(7), writes=["third"], state="FAIL"))
    raw_passes(connection)
    decide(connection)

    assert set(told(connection)[4:]) == {("raw", "resolved", RAW), ("rest", "opened", "third ended with FAIL")}


def test_an_acknowledgement_is_told_to_pagerduty_alone(connection: Connection) -> None:
    add(connection)
    add(connection, "pager", kind="pagerduty")
    raw_fails(connection)
    decide(connection)
    do(connection, "raw", "acknowledge")
    do(connection, "raw", "unacknowledge")
    decide(connection)
    assert len(told(connection)) == 2
    do(connection, "raw", "acknowledge")
    decide(connection)

    assert told(connection)[2:] == [("pager", "acknowledged", RAW)]


def test_what_was_told_and_is_no_more_is_told_to_be_over(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    decide(connection)

    replay(connection, checked("raw", "raw bad", ago(20), good=True))
    decide(connection)

    assert told(connection) == [("all", "opened", RAW), ("all", "resolved", f"Resolved: {RAW}")]


def test_what_cannot_be_explained_is_told_all_the_same(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    add(connection, owners=["nobody-fits"])
    raw_fails(connection)
    connection.execute("ALTER TABLE facts.facet_history RENAME TO hidden")
    decide(connection)

    assert told(connection) == [("all", "opened", "A data test fails")]
    assert "cannot be explained" in caplog.text


def test_a_pipeline_that_lags_is_told_once_and_once_that_it_has_caught_up(connection: Connection) -> None:
    add(connection)
    add(connection, "team", owners=["team-raw"])
    decisions = Decisions(settings())
    decisions.look_at_pipeline(connection)
    received_before(connection, timedelta(minutes=3))
    decisions.look_at_pipeline(connection)
    assert told(connection) == []

    for times in (1, 2):
        received_before(connection, timedelta(minutes=6))
        for _ in range(3):
            Decisions(settings()).look_at_pipeline(connection)
        late = ("all", "opened", "The pipeline is behind: incidents may be missing")
        assert told(connection)[2 * times - 2 :] == [late]
        # Less than the limit is not caught up: it would be told again and again.
        received_before(connection, timedelta(minutes=4))
        Decisions(settings()).look_at_pipeline(connection)
        assert len(told(connection)) == 2 * times - 1

        received_before(connection, None)
        for _ in range(3):
            Decisions(settings()).look_at_pipeline(connection)
        assert told(connection)[2 * times - 1 :] == [("all", "resolved", "The pipeline has caught up")]


def received_before(connection: Connection, before: timedelta | None) -> None:
    """An event in the log that the pipeline has not read; None for none."""
    connection.execute("DELETE FROM kept.lineage_events")
    connection.execute("UPDATE kept.log_head SET position = %s", [0 if before is None else 1])
    if before is not None:
        at = datetime.now(UTC) - before
        connection.execute("SELECT kept.ensure_log_partition(%s)", [at])
        connection.execute("INSERT INTO kept.lineage_events VALUES (1, %s, %s)", [at, b"{}"])


def test_what_is_done_with_is_forgotten_in_time_but_not_what_stands(connection: Connection) -> None:
    add(connection)
    raw_fails(connection)
    tell(connection, ran("other", "other bad", ago(10), ago(9), writes=["else"], state="FAIL"))
    decide(connection)
    raw_passes(connection)
    decide(connection)
    tell(connection, ran("third", "third bad", ago(8), ago(7), writes=["third"], state="FAIL"))
    connection.execute("UPDATE kept.alert_outbox SET sent_at = now() - interval '31 days'")
    connection.execute("UPDATE kept.alert_watch SET seen_at = now() - interval '31 days'")

    outbox.forget(connection, timedelta(days=32))
    assert len(told(connection)) == 3
    outbox.forget(connection, timedelta(days=30))

    # Who was told of it is still to be told that it is over; what nobody has looked at for a month is no news.
    assert told(connection) == [("all", "opened", "other ended with FAIL")]
    assert connection.execute("SELECT told_at IS NOT NULL FROM kept.alert_watch").fetchall() == [(True,)]
