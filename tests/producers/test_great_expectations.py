"""The page on Great Expectations, typed in, on tables that others have written."""

import runpy
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.transport.http import HttpConfig, HttpTransport

from tests.producers.correlators import Correlator
from tests.producers.environments import environment
from tests.producers.pages import Page, run
from tests.producers.warehouse import Warehouse

PYTHON = Path(sys.executable).parent


def check(correlator: Correlator, shop: Warehouse, directory: Path) -> Any:
    """Run the page's checkpoint, and ask for the incident."""
    page = Page("great-expectations.md", {"http://localhost:8080": correlator.url, "5432": str(shop.port)})
    page.write_files(directory)
    done = run(page.commands("Run"), directory, PYTHON, check=False)
    assert done.returncode == 1, done.stderr
    orders = f"{shop.namespace}/shop.public.orders"
    return correlator.incident(orders, "expect_column_values_to_not_be_null", "amount")


def write_orders(correlator: Correlator, shop: Warehouse) -> str:
    """A table with an order that has no amount, and the run that has written it."""
    shop.execute(
        "CREATE TABLE orders (id int, customer text, amount int)",
        "INSERT INTO orders VALUES (1, 'ann', 10), (2, 'bob', NULL)",
    )
    run_id = str(uuid4())
    client = OpenLineageClient(transport=HttpTransport(HttpConfig(url=correlator.url)))
    client.emit(
        RunEvent(
            eventType=RunState.COMPLETE,
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(run_id),
            job=Job("shop", "load"),
            outputs=[OutputDataset(shop.namespace, "shop.public.orders")],
            producer="https://example.com/shop/1.0.0",
        )
    )
    client.close()
    return run_id


def test_a_failed_expectation_is_an_incident_whose_cause_wrote_the_table(
    correlator: Correlator, shop: Warehouse, tmp_path: Path
) -> None:
    run_id = write_orders(correlator, shop)

    incident = check(correlator, shop, tmp_path)

    assert (incident["cause"]["run_id"], incident["cause"]["job"]["name"]) == (run_id, "load")
    assert incident["test_run"]["job"] == {"namespace": "great_expectations://default", "name": "daily.orders"}
    assert (incident["test"]["expected"], incident["test"]["actual"]) == ("0 unexpected", "1 unexpected of 2")
    checked = correlator.ended_run(incident["test_run"]["run_id"])
    assert (checked["integration"], checked["state"]) == ("GREAT_EXPECTATIONS", "FAIL")
    assert {(one["name"], one["status"]) for one in checked["results"]} == {
        ("expect_column_values_to_not_be_null", "fail"),
        ("expect_column_values_to_be_unique", "pass"),
    }
    # A check that fails is the test's failure, and no failed job.
    assert correlator.ask("incidents", job="great_expectations://default/daily.orders", kind="run")["items"] == []


def test_the_same_test_goes_on_and_is_over_when_it_passes(
    correlator: Correlator, shop: Warehouse, tmp_path: Path
) -> None:
    write_orders(correlator, shop)
    page = Page("great-expectations.md", {"http://localhost:8080": correlator.url, "5432": str(shop.port)})
    page.write_files(tmp_path)

    assert [checked_here(tmp_path), checked_here(tmp_path)] == [1, 1]
    shop.execute("UPDATE orders SET amount = 20 WHERE amount IS NULL")
    assert checked_here(tmp_path) == 0

    def found() -> Any:
        answer = correlator.ask("incidents", dataset=f"{shop.namespace}/shop.public.orders", status="resolved")
        return answer and answer["items"]

    (incident,) = correlator.wait_for("the incident is over", found)
    assert incident["failures"] == 2


def checked_here(directory: Path) -> Any:
    """The page's script in this process: Great Expectations takes long to import."""
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(directory / "check.py"))
    return ended.value.code


@pytest.mark.producers
def test_a_table_that_dbt_wrote_is_the_one_that_is_tested(
    correlator: Correlator, shop: Warehouse, tmp_path: Path
) -> None:
    dbt = Page("dbt.md", {"http://localhost:8080": correlator.url, "5432": str(shop.port)})
    dbt.write_files(tmp_path)
    run(dbt.commands("Run"), tmp_path, environment("dbt", dbt.requirements), check=False)

    incident = check(correlator, shop, tmp_path)

    model = correlator.ended_run(incident["cause"]["run_id"])
    assert correlator.family(model) == ["dbt-run-shop", "shop.public.shop.orders.build.run"]
