"""Files on any path that Hadoop knows, from Python."""

import re
from typing import Any

from pyspark.sql import SparkSession


def literally(path: str) -> str:
    """A path to read from that is no pattern, whatever letters it has."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)


def delete(spark: SparkSession, path: str) -> None:
    """A file, or a directory with all that is in it, if it is there."""
    # PySpark has no other way to Hadoop's file systems.
    jvm: Any = spark._jvm  # noqa: SLF001
    where = jvm.org.apache.hadoop.fs.Path(path)
    where.getFileSystem(spark._jsc.hadoopConfiguration()).delete(where, True)  # noqa: SLF001
