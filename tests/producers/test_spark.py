"""The page on Spark, typed in: a PySpark job with the OpenLineage listener."""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, Run, RunEvent, RunState
from openlineage.client.facet_v2 import data_quality_assertions_dataset
from openlineage.client.transport.http import HttpConfig, HttpTransport

from tests.integration.pipeline import maven
from tests.producers.correlators import Correlator
from tests.producers.pages import Page, run

pytestmark = pytest.mark.producers

PYTHON = Path(sys.executable).parent
PACKAGE = re.compile(r"--packages (\S+):(\S+):(\S+)")


def page_of(correlator: Correlator) -> Page:
    """With the package that it names from the tests' cache."""
    found = PACKAGE.search(Page("spark.md").text)
    assert found is not None
    (jar,) = maven.jars([maven.Artifact(found[1], found[2], found[3])])
    return Page("spark.md", {"http://localhost:8080": correlator.url, found[0]: f"--jars {jar}"})


def fail_a_test_of(correlator: Correlator, path: Path, column: str) -> None:
    failed = data_quality_assertions_dataset.Assertion("not_null", success=False, column=column)
    facet = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet([failed])
    client = OpenLineageClient(transport=HttpTransport(HttpConfig(url=correlator.url)))
    client.emit(
        RunEvent(
            eventType=RunState.FAIL,
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(str(uuid4())),
            job=Job("shop", "check revenue"),
            inputs=[InputDataset("file", str(path), inputFacets={"dataQualityAssertions": facet})],
            producer="https://example.com/shop/1.0.0",
        )
    )
    client.close()


def test_a_spark_job_is_a_cause_and_its_columns_are_known(correlator: Correlator, tmp_path: Path) -> None:
    page = page_of(correlator)
    page.write_files(tmp_path)
    run(page.commands("Run"), tmp_path, PYTHON)
    fail_a_test_of(correlator, tmp_path / "revenue", "total")
    revenue, orders = f"file{tmp_path}/revenue", f"file{tmp_path}/orders.csv"

    incident = correlator.incident(revenue, "not_null", "total")

    query = correlator.ended_run(incident["cause"]["run_id"])
    assert query["integration"] == "SPARK"
    assert correlator.family(query)[0] == "revenue"
    assert [one["urn"] for one in query["inputs"]] == [orders]
    assert [one["urn"] for one in query["outputs"]] == [revenue]
    edges = correlator.graph(f"column:{revenue}#total", direction="up", level="column")["edges"]
    direct = [edge for edge in edges if edge["transformation"] == "DIRECT"]
    assert [(edge["source"], edge["subtype"]) for edge in direct] == [(f"column:{orders}#amount", "AGGREGATION")]
    # Its many events are one run for each query, and none of them says what cannot be.
    assert [one for one in correlator.ask("health/contradictions")["items"] if one["name"].startswith("revenue")] == []
