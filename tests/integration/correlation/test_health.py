"""What does not fit, and what would make it fit."""

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from correlator.correlation.health import contradictions
from correlator.correlation.ignored import ignore, list_ignored, show_again
from correlator.correlation.known_causes import known_causes
from correlator.correlation.missing_runs import missing_runs
from correlator.correlation.patterns import (
    PatternTakenError,
    add_pattern,
    change_pattern,
    list_patterns,
    remove_pattern,
)
from correlator.correlation.suggestions import orphans, pattern_of
from correlator.rulebook.events import Event
from correlator.rulebook.fold import fold
from correlator.rulebook.patterns import PatternError
from tests.integration.correlation.stories import tell
from tests.integration.correlation.weeks import Weeks, moment
from tests.integration.store.merging import apply
from tests.unit.rulebook.histories import DB, assertions, dataset, facet, run_event


def ran(job: str, minute: float = 0, **parts: Any) -> Event:
    return run_event(parts.pop("state", "COMPLETE"), minute, job=job, run=str(uuid4()), **parts)


def observed(name: str, namespace: str = "warehouse", columns: str = "") -> Event:
    facets = {"schema": facet(fields=[{"name": column} for column in columns.split()])} if columns else {}
    checked = dataset(name, namespace, facets=facets, inputFacets=assertions({"assertion": "unique", "success": False}))
    return ran(f"test {name}", inputs=[checked])


def written(name: str, namespace: str = DB, columns: str = "") -> Event:
    facets = {"schema": facet(fields=[{"name": column} for column in columns.split()])} if columns else {}
    return ran(f"write {name}", outputs=[dataset(name, namespace, facets=facets)])


def test_a_tested_dataset_that_nobody_writes_is_an_orphan_until_a_pattern_finds_its_producer(
    connection: psycopg.Connection,
) -> None:
    events = [
        observed("orders", columns="id price"),
        observed("customers"),
        written("shop.orders", columns="id price"),
        written("shop.customers"),
        written("archive.orders", columns="old"),
        observed("shop.orders", DB),
    ]
    apply(connection, fold(events))

    found = {orphan.urn: orphan for orphan in orphans(connection)}

    assert found.keys() == {"warehouse/orders", "warehouse/customers"}
    best, other = found["warehouse/orders"].suggestions
    assert (best.pattern, best.target, best.means) == (
        "warehouse/{table}",
        f"{DB}/shop.{{table}}",
        f"{DB}/shop.orders",
    )
    assert best.score > other.score
    assert best.explains == 2
    assert any("schemas are equal" in reason for reason in best.reasons)
    assert found["warehouse/orders"].failing == 1

    add_pattern(connection, best.pattern, best.target, actor="me")

    assert orphans(connection) == []


@pytest.mark.parametrize(
    ("urn", "meant", "pattern", "target"),
    [
        ("w/orders", "postgres://db:5432/shop.orders", "w/{table}", "postgres://db:5432/shop.{table}"),
        ("pg://h:1/a.b.t", "pg://h:2/a.b.t", "pg://h:1/a.b.{table}", "pg://h:2/a.b.{table}"),
        ("s3://b/raw/t", "hive://m:1/x.t", "s3://b/raw/{table}", "hive://m:1/x.{table}"),
        ("a/{x}.t", "b/t", "a/{{x}}.{table}", "b/{table}"),
    ],
)
def test_a_pattern_leads_from_one_name_to_the_other(urn: str, meant: str, pattern: str, target: str) -> None:
    assert pattern_of(urn, meant) == (pattern, target)


@pytest.mark.parametrize(("urn", "meant"), [("a/orders", "b/my_orders"), ("a/x", "b/y"), ("t", "")])
def test_names_that_end_in_different_parts_make_no_pattern(urn: str, meant: str) -> None:
    assert pattern_of(urn, meant) is None


def test_patterns_are_kept_in_their_order_and_change_the_classes_at_once(connection: psycopg.Connection) -> None:
    apply(connection, fold([written("orders", "one"), written("orders", "two")]))

    def called() -> set[str]:
        return {urn for (urn,) in connection.execute("SELECT class_urn FROM dataset_classes")}

    first = add_pattern(connection, "one/{t}", "x/{t}", actor="me")
    second = add_pattern(connection, "two/{t}", "x/{t}", actor="me")
    assert [each.id for each in list_patterns(connection)] == [first.id, second.id]
    assert called() == {"x/orders"}
    with pytest.raises(PatternError):
        add_pattern(connection, "{", "x", actor="me")
    with pytest.raises(PatternTakenError):
        add_pattern(connection, "one/{t}", "y/{t}", actor="me")
    assert change_pattern(connection, second.id, "two/{t}", "y/{t}", place=0) is not None
    assert called() == {"x/orders", "y/orders"}
    assert [each.id for each in list_patterns(connection)] == [second.id, first.id]
    assert change_pattern(connection, 10**9, "a/{t}", "b/{t}") is None
    assert remove_pattern(connection, first.id)
    assert not remove_pattern(connection, first.id)
    assert called() == {"y/orders"}


def test_names_are_hidden_and_shown_again(connection: psycopg.Connection) -> None:
    one = ignore(connection, "namespace", "sandbox*", actor="me")
    assert ignore(connection, "namespace", "sandbox*", actor="you").id == one.id
    assert list_ignored(connection) == [one]
    assert show_again(connection, one.id)
    assert not show_again(connection, one.id)


def test_contradictions_are_told(connection: psycopg.Connection) -> None:
    events = [
        run_event("COMPLETE", 0, job="a", run="1"),
        run_event("FAIL", 1, job="a", run="1"),
        run_event("COMPLETE", 0, job="b", run="2"),
        run_event("START", 2, job="b", run="2"),
        ran("c", 3, state="FAIL"),
    ]
    apply(connection, fold(events))

    newest, oldest = contradictions(connection, limit=9)
    assert (newest.name, newest.kind, oldest.name, oldest.kind) == ("b", "active_after_end", "a", "two_ends")
    (last,) = contradictions(connection, limit=1)
    assert last == newest


def test_a_job_is_missed_when_the_moment_that_its_next_run_is_for_is_long_past(connection: psycopg.Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        weeks.run("punctual", day, 25, writes=["a"], nominal=day)
        if day < 6:
            weeks.run("gone", day, 25, writes=["b"], nominal=day)
        weeks.run("whenever", day, 25, writes=["c"])
    tell(connection, weeks.events)

    (missing,) = missing_runs(connection, moment(8, 5), limit=10)

    assert (missing.name, missing.missing, missing.interval_s) == ("gone", 2, 86400)
    assert (missing.last_nominal_time, missing.missing_nominal_time) == (moment(5), moment(6))
    assert missing.due_at == moment(7, 1)
    assert [one.name for one in missing_runs(connection, moment(9, 5), limit=10)] == ["gone", "punctual"]
    ignore(connection, "job", "airflow/gone", actor="ada")
    assert missing_runs(connection, moment(8, 5), limit=10) == []


def test_who_runs_on_weekdays_is_not_missed_on_a_sunday(connection: psycopg.Connection) -> None:
    weeks = Weeks()
    for day in range(19):
        if day % 7 < 5:
            weeks.run("office", day, 1, writes=["a"], nominal=day)
    tell(connection, weeks.events)

    assert missing_runs(connection, moment(20, 12), limit=10) == []
    assert [one.name for one in missing_runs(connection, moment(21, 12), limit=10)] == ["office"]


def test_a_job_that_was_not_heard_of_for_a_month_is_not_missed(connection: psycopg.Connection) -> None:
    weeks = Weeks()
    for day in range(8):
        weeks.run("old", day, 1, writes=["a"], nominal=day)
    tell(connection, weeks.events)

    assert [one.name for one in missing_runs(connection, moment(20), limit=10)] == ["old"]
    assert missing_runs(connection, moment(40), limit=10) == []


def test_of_how_many_failed_tests_the_cause_is_known(connection: psycopg.Connection) -> None:
    weeks = Weeks()
    weeks.run("load", 0, 1, writes=["known"])
    for table in ("known", "unknown"):
        weeks.check(table, 0, 2, good=False, test="unique")
    tell(connection, weeks.events)
    apply(connection, fold([observed("orders")]))

    found = known_causes(connection, moment(-1))

    assert (found.incidents, found.with_cause, found.share, found.truncated) == (3, 1, 0.3333, False)
    assert [(one.namespace, one.incidents, one.with_cause) for one in found.namespaces] == [
        (DB, 2, 1),
        ("warehouse", 1, 0),
    ]
    assert known_causes(connection, moment(1)).share is None
    ignore(connection, "namespace", "warehouse", actor="ada")
    assert known_causes(connection, moment(-1)).incidents == 2
