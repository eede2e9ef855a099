"""The page on dbt, typed in, on a real PostgreSQL."""

from pathlib import Path

import pytest

from tests.producers.correlators import Correlator
from tests.producers.environments import environment
from tests.producers.pages import Page, run
from tests.producers.warehouse import Warehouse

pytestmark = pytest.mark.producers


def page_of(correlator: Correlator, shop: Warehouse) -> Page:
    return Page("dbt.md", {"http://localhost:8080": correlator.url, "5432": str(shop.port)})


def built(page: Page, heading: str, directory: Path) -> None:
    programs = environment("dbt", page.requirements)
    page.write_files(directory)
    done = run(page.commands(heading), directory, programs, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Failure in test not_null_orders_amount" in done.stdout


def upstream(correlator: Correlator, urn: str) -> set[str]:
    graph = correlator.graph(f"dataset:{urn}", direction="up")
    return {node["urn"] for node in graph["nodes"] if node["kind"] == "dataset"} - {urn}


def test_what_is_told_at_the_end_becomes_an_incident_with_its_cause(
    correlator: Correlator, shop: Warehouse, tmp_path: Path
) -> None:
    page = page_of(correlator, shop)
    built(page, "Run", tmp_path)
    orders = f"{shop.namespace}/shop.public.orders"

    incident = correlator.incident(orders, "not_null", "amount")

    assert incident["cause"]["job"] == {"namespace": "shop", "name": "shop.public.shop.orders.build.run"}
    assert incident["test_run"]["job"]["name"] == "shop.public.shop.orders.build.test"
    model = correlator.ended_run(incident["cause"]["run_id"])
    assert correlator.family(model) == ["dbt-run-shop", "shop.public.shop.orders.build.run"]
    assert [one["urn"] for one in model["outputs"]] == [orders]


def test_what_is_told_while_dbt_runs_becomes_the_same(correlator: Correlator, shop: Warehouse, tmp_path: Path) -> None:
    page = page_of(correlator, shop)
    built(page, "While dbt runs", tmp_path)
    orders = f"{shop.namespace}/shop.public.orders"

    model = correlator.last_run("shop_live", "model.shop.orders")

    assert correlator.family(model) == ["dbt-run-shop", "model.shop.orders"]
    assert [one["urn"] for one in model["outputs"]] == [orders]
    assert upstream(correlator, orders) == {f"{shop.namespace}/shop.public.raw_orders"}
