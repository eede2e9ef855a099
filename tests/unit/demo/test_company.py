"""The shop of the demo."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from correlator.demo.company import ShopHistory, play_shop, shop
from correlator.demo.telling import Sent
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection

NOW = datetime(2026, 5, 12, 14, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def played() -> ShopHistory:
    return play_shop(1, NOW)


def failed_results(events: list[Sent]) -> Iterator[str]:
    for sent in events:
        event = json.loads(sent.raw)
        for dataset in event.get("inputs", ()):
            for facets in (dataset.get("facets", {}), dataset.get("inputFacets", {})):
                for said in facets.get("dataQualityAssertions", {}).get("assertions", ()):
                    if not said["success"]:
                        yield dataset["name"]


def test_it_is_of_a_size_that_can_be_looked_at() -> None:
    company = shop()
    assert 25 <= len(company.jobs) <= 40
    assert len({job.tool for job in company.jobs.values()}) == 4


def test_three_weeks_are_well_and_the_morning_is_not(played: ShopHistory) -> None:
    assert list(failed_results(played.history)) == []
    assert "shop.dashboards.dash_revenue" in set(failed_results(played.incident))
    assert played.history[-1].at - played.history[0].at > timedelta(days=20).total_seconds()


def test_the_deploy_is_behind_every_failure(played: ShopHistory) -> None:
    assert {truth.root_job for truth in played.truths} == {("dbt-prod", "model.shop.stg_orders")}
    assert {truth.hops for truth in played.truths} >= {2, 3}
    assert all(truth.is_told for truth in played.truths)


def test_nothing_is_told_before_it_happens(played: ShopHistory) -> None:
    assert played.incident[-1].at < NOW.timestamp()
    assert NOW.timestamp() - played.incident[-1].at < timedelta(days=1).total_seconds()


def test_the_same_day_gives_the_same_events_and_the_next_day_others(played: ShopHistory) -> None:
    assert play_shop(1, NOW.replace(hour=0, minute=1)) == played
    assert play_shop(1, NOW.replace(hour=23)) == played
    assert play_shop(1, NOW + timedelta(days=1)).history != played.history
    assert play_shop(2, NOW).history != played.history


def test_every_event_is_accepted_without_a_word(played: ShopHistory) -> None:
    for sent in [*played.history, *played.incident]:
        verdict = judge(sent.raw)
        assert not isinstance(verdict, Rejection)
        assert verdict.warnings == ()


def test_everything_has_an_owner(played: ShopHistory) -> None:
    owned = set()
    for sent in played.history:
        event = json.loads(sent.raw)
        if "dataset" in event and "ownership" in event["dataset"]["facets"]:
            owned.add(event["dataset"]["name"])
    assert owned == {table.written_as.name for table in shop().tables.values()}
