"""The page on `openlineage-python`, typed in."""

import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.integration.pipeline import maven
from tests.integration.pipeline.brokers import running_broker
from tests.producers.correlators import Correlator, correlator_up, proxy_to
from tests.producers.pages import Page, run

PYTHON = Path(sys.executable).parent


def told(page: Page, heading: str, directory: Path) -> tuple[str, str]:
    """Type the commands under a heading, with names of their own: the warehouse that they tell of, and the bad run."""
    warehouse = f"postgres://{uuid4().hex}:5432"
    page.write_files(directory)
    done = run(page.commands(heading), directory, PYTHON, WAREHOUSE=warehouse, JOBS="shop")
    return warehouse, done.stdout.split()[-1]


def check_answers(correlator: Correlator, warehouse: str, cause: str) -> None:
    orders = f"{warehouse}/shop.public.orders"
    incident = correlator.incident(orders, "not_null", "amount")

    assert incident["cause"]["run_id"] == cause
    assert incident["cause"]["job"] == {"namespace": "shop", "name": "load"}
    assert incident["test_run"]["job"]["name"] == "check"
    # What a JobEvent has declared is at risk, and never a cause.
    (risk,) = correlator.wait_for(
        "the report is at risk", lambda: correlator.ask(f"incidents/{incident['id']}")["impact"]["at_risk"]
    )
    assert (risk["urn"], risk["declared"]) == (f"{warehouse}/shop.public.report", True)
    # The schema of a DatasetEvent.
    columns = correlator.ask("search", q="amount")["items"]
    assert any(orders in str(one) for one in columns)


@pytest.mark.parametrize("heading", ["Run", "In the background"])
def test_run_job_and_dataset_events_become_an_incident_with_its_cause(
    correlator: Correlator, tmp_path: Path, heading: str
) -> None:
    page = Page("openlineage-python.md", {"http://localhost:8080": correlator.url})

    check_answers(correlator, *told(page, heading, tmp_path))


@pytest.mark.producers
def test_a_client_by_kafka_is_understood_as_one_by_http(tmp_path: Path) -> None:
    connector = ",".join(map(str, maven.jars(*maven.CONNECTORS)))
    with running_broker(tmp_path) as broker:
        broker.create("openlineage.events", 1)
        with correlator_up("--kafka-servers", broker.servers, "--kafka-jars", connector) as correlator:
            page = Page("openlineage-python.md", {"broker:9092": broker.servers})
            check_answers(correlator, *told(page, "By Kafka", tmp_path))


def test_a_client_through_the_proxy_is_understood_as_one_without(correlator: Correlator, tmp_path: Path) -> None:
    with proxy_to(correlator, tmp_path) as url:
        page = Page("openlineage-python.md", {"http://localhost:8090": url})
        check_answers(correlator, *told(page, "Through a proxy", tmp_path))
