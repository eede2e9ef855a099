"""The session of a pipeline on this machine."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn


def test_workers_are_forked_with_what_they_need_and_run_the_installed_spark(spark: SparkSession) -> None:
    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys  # noqa: PLC0415 - in the worker

        list(batches)
        is_forked_with_it = "correlator.rulebook.fold" in sys.modules
        yield pa.RecordBatch.from_pydict({"ready": [is_forked_with_it], "spark": [sys.modules["pyspark"].__file__]})

    (row,) = spark.range(1, numPartitions=1).mapInArrow(told, "ready BOOLEAN, spark STRING").collect()

    assert row.ready
    assert ".zip" not in row.spark


def test_a_sum_has_as_many_tasks_as_the_machine_has_work_for(spark: SparkSession) -> None:
    sums = spark.range(10).groupBy(fn.col("id") % 3).count()

    assert sums.rdd.getNumPartitions() == 4 * spark.sparkContext.defaultParallelism
