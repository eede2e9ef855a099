"""One Spark session for all tests of the pipeline: it takes longer to start than most of them to run."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from correlator.pipeline.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session("local[2]", name="tests", is_short=True)
    yield session
    session.stop()
