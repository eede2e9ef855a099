"""The page on dbt, typed in, on a real PostgreSQL."""

from pathlib import Path
from typing import Any

import pytest

from tests.producers.correlators import Correlator
from tests.producers.environments import environment
from tests.producers.pages import Page, run
from tests.producers.warehouse import Warehouse

pytestmark = pytest.mark.producers


def build(correlator: Correlator, shop: Warehouse, heading: str, directory: Path) -> Any:
    """Type the commands, and ask for the incident."""
    page = Page("dbt.md", {"http://localhost:8080": correlator.url, "5432": str(shop.port)})
    page.write_files(directory)
    done = run(page.commands(heading), directory, environment("dbt", page.requirements), check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return correlator.incident(f"{shop.namespace}/shop.public.orders", "not_null_orders_amount", "amount")


def check_lineage(correlator: Correlator, shop: Warehouse) -> None:
    graph = correlator.graph(f"dataset:{shop.namespace}/shop.public.orders", direction="up")
    tables = {node["name"] for node in graph["nodes"] if node["kind"] == "dataset"}
    assert tables == {"shop.public.orders", "shop.public.raw_orders"}


def test_what_is_told_at_the_end_becomes_an_incident_with_its_cause(
    correlator: Correlator, shop: Warehouse, tmp_path: Path
) -> None:
    incident = build(correlator, shop, "Run", tmp_path)

    model = correlator.ended_run(incident["cause"]["run_id"])
    assert correlator.family(model) == ["dbt-run-shop", "shop.public.shop.orders.build.run"]
    assert [one["name"] for one in model["outputs"]] == ["shop.public.orders"]
    assert incident["test_run"]["job"] == {"namespace": "shop", "name": "shop.public.shop.orders.build.test"}
    assert (incident["test"]["expected"], incident["test"]["actual"]) == ("0", "1")
    # The model's run names no inputs: they are known by its columns.
    check_lineage(correlator, shop)
    amount = f"column:{shop.namespace}/shop.public.orders#amount"
    (edge,) = correlator.graph(amount, direction="up", level="column")["edges"]
    assert edge["source"] == f"column:{shop.namespace}/shop.public.raw_orders#amount"


def test_what_is_told_while_dbt_runs_has_seeds_and_consequences_too(
    correlator: Correlator, shop: Warehouse, tmp_path: Path
) -> None:
    incident = build(correlator, shop, "While dbt runs", tmp_path)

    model = correlator.ended_run(incident["cause"]["run_id"])
    assert correlator.family(model) == ["dbt-run-shop", "model.shop.orders"]
    assert [step["job"]["name"] for step in incident["upstream"]] == ["model.shop.orders", "seed.shop.raw_orders"]
    check_lineage(correlator, shop)
    # The model that was skipped because of the test is no trouble of its own.
    (below,) = correlator.wait_for(
        "a consequence is under its root", lambda: correlator.ask(f"incidents/{incident['id']}")["children"]
    )
    consequence = correlator.ask(f"incidents/{below}")
    assert (consequence["kind"], consequence["test_run"]["job"]["name"]) == ("run", "model.shop.revenue")
    # What the test writes for itself is not what it tests.
    assert {one["urn"] for one in incident["impact"]["affected"]} == set()
