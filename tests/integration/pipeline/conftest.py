"""One Spark session for all tests of the pipeline: it takes longer to start than most of them to run."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from correlator.config import PipelineSettings
from correlator.pipeline.assembly import session_of


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = session_of(PipelineSettings(spark_master="local[2]"), is_short=True)
    yield session
    session.stop()
