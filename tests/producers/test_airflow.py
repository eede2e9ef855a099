"""The page on Airflow, typed in: a DAG whose tasks run dbt and Great Expectations."""

import sys
from pathlib import Path

import pytest

from tests.producers.correlators import Correlator
from tests.producers.environments import environment
from tests.producers.pages import Page, run
from tests.producers.warehouse import Warehouse

pytestmark = pytest.mark.producers

PYTHON = Path(sys.executable).parent


def test_the_chain_goes_from_the_dag_to_the_table(correlator: Correlator, shop: Warehouse, tmp_path: Path) -> None:
    places = {"http://localhost:8080": correlator.url, "5432": str(shop.port)}
    airflow, dbt, checks = (Page(f"{name}.md", places) for name in ("airflow", "dbt", "great-expectations"))
    for page in (airflow, dbt, checks):
        page.write_files(tmp_path)
    # Ours has what the checks need, and is first, because the others have a `python` too.
    programs = (PYTHON, environment("dbt", dbt.requirements), environment("airflow", airflow.requirements))
    run(airflow.commands("Run"), tmp_path, *programs)
    orders = f"{shop.namespace}/shop.public.orders"

    incident = correlator.incident(orders, "expect_column_values_to_not_be_null", "amount")

    model = correlator.ended_run(incident["cause"]["run_id"])
    assert correlator.family(model) == ["shop", "shop.build", "dbt-run-shop", "shop.public.shop.orders.build.run"]
    assert [one["urn"] for one in model["outputs"]] == [orders]
    assert model["root"]["job"] == {"namespace": "airflow", "name": "shop"}
    check = correlator.ended_run(incident["test_run"]["run_id"])
    assert correlator.family(check) == ["shop", "shop.check", "daily.orders"]
    dag = correlator.last_run("airflow", "shop")
    assert [(task["job"]["name"], task["state"]) for task in dag["children"]] == [
        ("shop.build", "COMPLETE"),
        ("shop.check", "COMPLETE"),
    ]
    # What has read the bad table is affected.
    assert [one["urn"] for one in incident["impact"]["affected"]] == [f"{shop.namespace}/shop.public.revenue"]
