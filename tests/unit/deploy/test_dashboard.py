"""The dashboard: what Grafana imports, and no metric in it that nobody exposes."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from tests.metric_table import rows
from tests.unit.deploy.dockerfile import ROOT

BOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/correlator.json").read_text(encoding="utf-8"))
TABLE = rows()
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
PANELS = [pytest.param(panel, id=panel["title"]) for panel in BOARD["panels"] if panel["type"] != "row"]
OF_PROMETHEUS = {"instance", "job"}
"""Labels that every series gets when it is scraped."""
METRIC = re.compile(r"\b((?:correlator|process)_\w+)(?:\{([^}]*)\})?")


def expressions(panel: dict[str, Any]) -> Iterator[str]:
    for target in panel["targets"]:
        yield target["expr"]


def metrics(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric of an expression as the table has it, with the labels that are asked of it."""
    for name, selector in METRIC.findall(expression):
        is_histogram = re.sub(r"_(bucket|sum|count)$", "", name)
        family = name if name in TABLE else is_histogram
        if family != name:
            assert TABLE[family].kind == "histogram", name
        yield family, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))


def test_it_has_the_shape_that_grafana_imports() -> None:
    assert (BOARD["uid"], BOARD["title"], BOARD["id"]) == ("correlator", "Correlator", None)
    assert BOARD["schemaVersion"] >= 36
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", BOARD["uid"])
    variables = {each["name"]: each for each in BOARD["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    assert variables["instance"]["datasource"] == DATASOURCE
    assert BOARD["time"].keys() == {"from", "to"}


def test_no_two_panels_share_an_id_or_a_place() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids))
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 and place["h"] > 0 for place in places)
    for one, other in combinations(places, 2):
        is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        is_below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert is_beside or is_below, (one, other)


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_asks_the_prometheus_that_was_chosen_and_says_what_it_shows(panel: dict[str, Any]) -> None:
    assert panel["datasource"] == DATASOURCE
    assert panel["title"]
    assert panel["description"]
    assert panel["fieldConfig"]["defaults"]["unit"]
    targets = panel["targets"]
    assert targets
    assert all(target["datasource"] == DATASOURCE for target in targets)
    assert len({target["refId"] for target in targets}) == len(targets)


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_asks_for_metrics_and_labels_that_there_are(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        expression = target["expr"]
        assert expression.count("(") == expression.count(")")
        known: set[str] = set(OF_PROMETHEUS)
        found = list(metrics(expression))
        assert found, expression
        for name, labels in found:
            assert name in TABLE, name
            assert labels <= {*TABLE[name].labels, *OF_PROMETHEUS}, expression
            assert "instance" in labels, f"the choice of an instance has no effect: {expression}"
            known |= set(TABLE[name].labels) | ({"le"} if TABLE[name].kind == "histogram" else set())
        grouped = [
            label.strip() for labels in re.findall(r"\bby \(([^)]*)\)", expression) for label in labels.split(",")
        ]
        assert set(grouped) <= known, expression
        legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        is_grouped = bool(grouped) and expression.split("(")[0].strip() != "histogram_quantile"
        assert legend <= (set(grouped) if is_grouped else known), expression


@pytest.mark.parametrize("panel", PANELS)
def test_counters_are_shown_as_rates_and_nothing_else_is(panel: dict[str, Any]) -> None:
    for expression in expressions(panel):
        for name, _ in metrics(expression):
            is_rate = bool(re.search(rf"\b(rate|increase)\({name}", expression))
            assert is_rate is (TABLE[name].kind in {"counter", "histogram"}), expression


@pytest.mark.parametrize("panel", PANELS)
def test_what_every_server_tells_from_the_database_is_not_added_up(panel: dict[str, Any]) -> None:
    shared = r"correlator_(pipeline_\w+|alerts_\w+|incidents|rejected_\w+)"
    for expression in expressions(panel):
        assert not re.search(rf"\bsum(?: by \([^)]*\) )?\((?:rate\(|increase\()?{shared}", expression), expression


def test_it_shows_what_is_asked_for_first() -> None:
    targets = [target for panel in BOARD["panels"] for target in panel.get("targets", ())]
    shown = {name for target in targets for name, _ in metrics(target["expr"])}
    assert {
        "correlator_events_total",
        "correlator_http_request_duration_seconds",
        "correlator_pipeline_lag_seconds",
        "correlator_pipeline_last_batch_timestamp_seconds",
        "correlator_incidents",
        "correlator_alerts_total",
        "correlator_events_rejected_total",
        "correlator_proxy_buffer_events",
        "correlator_proxy_lag_seconds",
    } <= shown
