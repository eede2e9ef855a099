"""Files on any path that Hadoop knows, from Python."""

import re
from typing import Any

from pyspark.sql import SparkSession


def literally(path: str) -> str:
    """A path to read from that is no pattern, whatever letters it has."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)


def is_of_machine(spark: SparkSession, path: str) -> bool:
    """Whether it lies where Python finds it too, on each machine that Spark runs on."""
    where = _jvm(spark).org.apache.hadoop.fs.Path(path)
    return bool(where.getFileSystem(_configuration(spark)).getUri().getScheme() == "file")


def packed_suffixes(spark: SparkSession) -> list[str]:
    """How the names of files end that Hadoop unpacks."""
    hadoop = _jvm(spark).org.apache.hadoop
    codecs = hadoop.io.compress.CompressionCodecFactory.getCodecClasses(_configuration(spark))
    made = (hadoop.util.ReflectionUtils.newInstance(codec, _configuration(spark)) for codec in codecs)
    return [codec.getDefaultExtension() for codec in made]


def delete(spark: SparkSession, path: str) -> None:
    """A file, or a directory with all that is in it, if it is there."""
    where = _jvm(spark).org.apache.hadoop.fs.Path(path)
    where.getFileSystem(_configuration(spark)).delete(where, True)


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm  # noqa: SLF001 (PySpark has no other way to Hadoop)


def _configuration(spark: SparkSession) -> Any:
    return spark._jsc.hadoopConfiguration()  # noqa: SLF001
