"""Which routes an alert takes."""

from datetime import UTC, datetime
from typing import Any

import pytest

from correlator.alerts.routes import Subject, routes_for
from correlator.store.alert_routes import AlertRoute

SUBJECT = Subject("team-raw", ["airflow", "postgres://db:5432"], "error")


def route(name: str = "all", **said: Any) -> AlertRoute:
    usual: dict[str, Any] = {
        "id": 1,
        "kind": "webhook",
        "url": "",
        "has_secret": True,
        "owners": [],
        "namespaces": [],
        "severities": [],
        "is_default": False,
        "tells_resolved": True,
        "is_enabled": True,
        "created_at": datetime.now(UTC),
        "created_by": "test",
    }
    return AlertRoute(name=name, **(usual | said))


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"owners": ["team-*"]},
        {"owners": ["other", "TEAM-RAW"]},
        {"namespaces": ["postgres://*"]},
        {"namespaces": ["airflow"]},
        {"severities": ["warn", "e?ror"]},
        {"owners": ["team-raw"], "namespaces": ["*"], "severities": ["error"]},
    ],
)
def test_a_route_is_for_what_fits_all_that_it_names(said: dict[str, Any]) -> None:
    assert routes_for(SUBJECT, [route(**said)]) != []


@pytest.mark.parametrize(
    "said",
    [
        {"owners": ["team"]},
        {"owners": ["team.raw"]},
        {"namespaces": ["snowflake://*"]},
        {"severities": ["warn"]},
        {"severities": [""]},
        {"owners": ["team-raw"], "severities": ["warn"]},
    ],
)
def test_a_route_is_not_for_what_does_not_fit_one_thing_that_it_names(said: dict[str, Any]) -> None:
    assert routes_for(SUBJECT, [route(**said)]) == []


def test_what_has_no_owner_is_for_no_route_that_names_one() -> None:
    assert routes_for(Subject(), [route(owners=["*"])]) == []


def test_the_default_is_for_what_no_other_route_is_for() -> None:
    default = route("rest", is_default=True)
    mine, other = route("mine", owners=["team-raw"]), route("other", owners=["x"])

    assert routes_for(SUBJECT, [default, mine, other]) == [mine]
    assert routes_for(SUBJECT, [default, other]) == [default]
    assert routes_for(SUBJECT, [route("rest", is_default=True, severities=["warn"]), other]) == []
