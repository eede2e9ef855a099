"""Lists of incidents: filters, order, pages, counts, and how long people took."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from correlator.correlation.incident_list import (
    Filters,
    Sort,
    incident_counts,
    incident_list,
    sort_key,
    statistics,
    unresolved_counts,
)
from correlator.correlation.life import Action, act
from correlator.correlation.words import pieces_of
from tests.integration.correlation.stories import checked, incident_of_run, incident_on, owned, ran, run_id, tell, urn
from tests.integration.store.incident_model import check_what_is_kept_of_incidents
from tests.unit.rulebook.histories import PRODUCER, facet

Connection = psycopg.Connection[Any]


@pytest.fixture
def shop(connection: Connection) -> Connection:
    """Tests of `a` and `b` are red, that of `c` was, and a run of `load d` has failed."""
    of_job = {"ownership": facet(owners=[{"name": "team loads", "type": "TEAM"}])}
    tell(
        connection,
        ran("load a", "a 1", 0, 1, writes=[owned("a", "team a")]),
        ran("load b", "b 1", 0, 1, writes=["b"], job_facets=of_job),
        checked("a", "test a", 10, good=False, test="not_null", column="id"),
        checked("b", "test b", 20, good=False, test="unique", column="key", severity="warn"),
        checked("c", "test c", 30, good=False),
        checked("c", "test c again", 40, good=True),
        ran("load d", "d 1", 45, 50, writes=["d"], state="FAIL"),
    )
    return connection


def tables(connection: Connection, sort: Sort = "opened_at", **asked: Any) -> list[str]:
    found = incident_list(connection, Filters(**asked), sort=sort)
    return [item.dataset.name if item.dataset else "" for item in found]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, "abcd"),
        ({"status": "open"}, "abd"),
        ({"status": "resolved"}, "c"),
        ({"status": "acknowledged"}, ""),
        ({"kind": "run"}, "d"),
        ({"severity": "WARN"}, "b"),
        ({"dataset": urn("a")}, "a"),
        ({"dataset": urn("nothing")}, ""),
        ({"job": "airflow/load a"}, "a"),
        ({"job": "airflow/test.c"}, "c"),
        ({"job": "airflow/load d"}, "d"),
        ({"owner": "team a"}, "a"),
        ({"owner": "team loads"}, "b"),
        ({"producer": PRODUCER[8:19]}, "abcd"),
        ({"producer": "spark"}, ""),
        ({"text": "UNIQUE"}, "b"),
        ({"text": "load d"}, "d"),
        ({"text": "%"}, ""),
        ({"since": datetime(2026, 5, 4, 10, 20, tzinfo=UTC), "until": datetime(2026, 5, 4, 10, 50, tzinfo=UTC)}, "bc"),
        ({"roots": True}, "abcd"),
    ],
)
def test_filters_leave_what_fits(shop: Connection, asked: dict[str, Any], found: str) -> None:
    assert tables(shop, **asked) == list(found)


PARTS = {
    "": "abcd",
    "UNIQ": "b",
    "niqu": "b",
    "est.b": "b",
    "q": "b",
    "qU": "b",
    "zq": "",
    "load d": "d",
    "_": "ac",
    "not_nul": "ac",
    "notxnul": "",
    "it's": "",
    "\\": "",
    "a ' & b": "",
    "x" * 100: "",
}
"""What is typed, and which of the four have it somewhere."""


@pytest.mark.parametrize("few", [0, 1_000])
def test_any_part_of_what_is_said_finds_it_however_many_have_it(
    shop: Connection, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("correlator.correlation.incident_list._FEW", few)

    assert {text: "".join(tables(shop, text=text)) for text in PARTS} == PARTS
    assert {text: incident_counts(shop, Filters(text=text)).total for text in PARTS} == {
        text: len(found) for text, found in PARTS.items()
    }


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)


@given(before=TEXTS, part=TEXTS, after=TEXTS)
def test_every_part_of_a_text_has_none_but_its_pieces(
    shared: psycopg.Connection, before: str, part: str, after: str
) -> None:
    found = shared.execute("SELECT pieces_of(%s) @@ %s::tsquery", [before + part + after, pieces_of(part)]).fetchone()

    assert found == (True,)


def test_what_is_said_of_a_run_later_finds_its_incidents_too(shop: Connection) -> None:
    failed = {"errorMessage": facet(message="Ein Gerät ist VOLL", programmingLanguage="python")}
    assert tables(shop, text="gerät ist") == []

    tell(shop, ran("test.a", "test a", 10, 12, reads=["a"], facets=failed))
    tell(shop, ran("load d", "d 1", 45, 50, writes=["d"], state="FAIL", facets=failed))

    assert tables(shop, text="gerät ist voll") == ["a", "d"]
    check_what_is_kept_of_incidents(shop)


def test_a_failure_that_comes_late_takes_the_text_with_it(shop: Connection) -> None:
    said = {"errorMessage": facet(message="the first of all", programmingLanguage="python")}
    tell(shop, ran("load d", "d 0", 30, 35, writes=["d"], state="FAIL", facets=said))

    assert incident_of_run(shop, "d 0").id == incident_of_run(shop, "d 1").id
    assert tables(shop, text="first of all") == ["d"]
    assert tables(shop, text=run_id("d 1")) == []
    check_what_is_kept_of_incidents(shop)


def test_of_a_long_message_the_beginning_is_found(shop: Connection) -> None:
    message = f"no room left{' and so on' * 300} until the very end"
    said = {"errorMessage": facet(message=message, programmingLanguage="python")}
    tell(shop, ran("load e", "e 1", 60, 65, writes=["e"], state="FAIL", facets=said))

    assert tables(shop, text="No room left and") == ["e"]
    assert tables(shop, text="very end") == []


@pytest.mark.parametrize("status", ["all", "open", "resolved", "muted"])
@pytest.mark.parametrize("severity", [None, "ERROR", "warn"])
@pytest.mark.parametrize("roots", [False, True])
def test_counts_are_those_of_what_is_listed(
    shop: Connection, status: Literal["all", "open", "resolved", "muted"], severity: str | None, *, roots: bool
) -> None:
    tell(shop, ran("load x", "x 1", 60, 65, reads=["d"], writes=["x"], state="FAIL"))
    tell(shop, ran("load x", "x 2", 70, 75, reads=["d"], writes=["x"]))
    kinds: tuple[Literal["test", "run"] | None, ...] = (None, "test", "run")
    for kind in kinds:
        filters = Filters(status=status, severity=severity, roots=roots, kind=kind)
        listed = incident_list(shop, filters)
        counts = incident_counts(shop, filters)

        assert counts.total == len(listed)
        assert counts.roots == sum(one.root_id is None for one in listed)
        assert {name: number for name, number in counts.status.items() if number} == Counter(
            one.status for one in listed
        )
        assert counts.severity == Counter(one.severity for one in listed)


def test_totals_follow_what_people_do(shop: Connection) -> None:
    for table in "ab":
        act(shop, incident_on(shop, table).uuid, Action(kind="resolve", reason="fixed"), "ada")
    check_what_is_kept_of_incidents(shop)
    assert incident_counts(shop, Filters()).status["resolved"] == 3

    act(shop, incident_on(shop, "a").uuid, Action(kind="reopen"), "ada")
    check_what_is_kept_of_incidents(shop)
    assert incident_counts(shop, Filters()).status["resolved"] == 2


def test_totals_are_kept_where_other_triggers_are_off(shop: Connection) -> None:
    shop.execute("SET LOCAL session_replication_role = replica")
    tell(shop, checked("a", "test a again", 60, good=True))

    check_what_is_kept_of_incidents(shop)
    assert incident_counts(shop, Filters()).status["resolved"] == 2


def test_what_people_said_can_be_asked_for(shop: Connection) -> None:
    act(shop, incident_on(shop, "a").uuid, Action(kind="acknowledge"), "ada")
    act(shop, incident_on(shop, "a").uuid, Action(kind="assign", assignee="bob"), "ada")
    until = datetime.now(UTC) + timedelta(hours=1)
    act(shop, incident_of_run(shop, "d 1").uuid, Action(kind="mute", until=until), "ada")

    assert tables(shop, status="acknowledged") == ["a"]
    assert tables(shop, assignee="bob") == ["a"]
    assert tables(shop, status="muted") == ["d"]
    assert tables(shop, status="open") == ["b"]
    counts = incident_counts(shop, Filters())
    assert counts.status == {"open": 1, "acknowledged": 1, "muted": 1, "resolved": 1}
    assert (counts.total, counts.kind, counts.severity) == (4, {"test": 3, "run": 1}, {"error": 3, "warn": 1})
    every_sort = unresolved_counts(shop)
    assert len(every_sort) == 12
    assert [(each.status, each.kind, each.is_root) for each in every_sort if each.incidents == 1] == [
        ("open", "test", True),
        ("acknowledged", "test", True),
        ("muted", "run", True),
    ]
    assert sum(each.incidents for each in every_sort) == 3


@pytest.mark.parametrize("sort", ["opened_at", "-opened_at", "last_failed_at", "-last_failed_at"])
def test_pages_go_through_all_in_order_without_a_gap(shop: Connection, sort: Sort) -> None:
    whole = [item.id for item in incident_list(shop, Filters(), sort=sort)]
    found = []
    after = None
    while page := incident_list(shop, Filters(), sort=sort, after=after, limit=1):
        found.append(page[0].id)
        after = sort_key(page[0], sort)
        if "opened" in sort:  # who fails again is, by its last failure, somewhere else
            tell(shop, checked("a", "test a later", 15, good=False))

    assert found == whole
    assert sort.startswith("-") == (tables(shop, sort)[0] == "d")


def test_an_item_names_its_cause(shop: Connection) -> None:
    (item,) = incident_list(shop, Filters(dataset=urn("a")), causes=True)

    assert item.cause is not None
    assert (item.cause.job.name, item.cause.state) == ("load a", "COMPLETE")
    assert item.named_cause is not None
    assert "load a" in item.named_cause


def test_what_is_ignored_is_not_listed(shop: Connection) -> None:
    shop.execute("INSERT INTO kept.ignored_names (kind, pattern, created_by) VALUES ('job', '*/load d', 'test')")

    assert tables(shop) == ["a", "b", "c"]
    assert incident_counts(shop, Filters()).total == 3


def test_how_long_people_took_is_told_by_owner_and_week(shop: Connection) -> None:
    incident = incident_on(shop, "a")
    act(shop, incident.uuid, Action(kind="acknowledge"), "ada", incident.opened_at + timedelta(minutes=5))
    act(shop, incident.uuid, Action(kind="resolve", reason="fixed"), "ada", incident.opened_at + timedelta(hours=1))

    found = statistics(shop, datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC))

    assert (found.all.incidents, found.all.acknowledged, found.all.resolved) == (4, 1, 2)
    assert found.all.median_to_acknowledge_s == 300
    assert found.all.median_to_resolve_s == (3600 + 600) / 2
    by_owner = {one.owner: one.times.median_to_resolve_s for one in found.owners}
    assert by_owner == {"team a": 3600.0, "team loads": None, None: 600.0}
    assert [week.week for week in found.weeks] == ["2026-05-04"]
