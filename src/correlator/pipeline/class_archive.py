"""Spark's Java classes in the form in which the JVM can map them: half of the time until a session is ready.

    python -m correlator.pipeline.class_archive     makes it, once for each Java and each PySpark

It is a cache of the user and nothing depends on it: the JVM itself checks whether it fits, and goes without it if not.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession

from correlator.pipeline.java import NoJavaError, provide_java

# What the JVM has to say of an archive that does not fit is of no use to anyone.
_QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")


def java_options() -> tuple[str, ...]:
    """What a JVM of Spark is told to use the archive, if there is one."""
    path = path_here()
    return (f"-XX:SharedArchiveFile={path}", *_QUIET) if path is not None and path.is_file() else ()


def make() -> Path | None:
    """Run some of what a pipeline runs, and keep the classes that this took."""
    with suppress(NoJavaError):
        provide_java()
    path = path_here()
    if path is None or path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="making-") as directory:
        made = Path(directory) / path.name
        _dump(made, directory)
        if not made.is_file():
            return None
        made.replace(path)
    others = sorted(path.parent.glob(f"{_NAME}-*.jsa"), key=lambda one: one.stat().st_mtime, reverse=True)
    for old in others[_MOST:]:
        old.unlink(missing_ok=True)
    return path


_NAME: Final = "spark-classes"
_MOST: Final = 3
"""Of as many environments as somebody may use in turn; each takes 180 MB."""


def path_here() -> Path | None:
    """Another Java or another PySpark has another."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None or " " in java:
        return None
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "correlator"
    except RuntimeError:  # a user without a home, as in a container
        return None
    # A file name with a space cannot be said in Spark's options.
    if " " in str(cache):
        return None
    of_java, of_spark = Path(java).resolve(), Path(pyspark.__file__).parent / "jars"
    if not of_spark.is_dir():
        return None
    # In whole seconds, as the JVM compares them too: layers of an image keep no more.
    ages = (int(each.stat().st_mtime) for each in (of_java, of_spark))
    said = f"{of_java} {of_spark} {pyspark.__version__} {' '.join(map(str, ages))}"
    return cache / f"{_NAME}-{sha256(said.encode()).hexdigest()[:16]}.jsa"


def _dump(path: Path, directory: str) -> None:
    from correlator.pipeline.session import spark_session  # noqa: PLC0415 - it asks us for options

    options = " ".join([f"-XX:ArchiveClassesAtExit={path}", *_QUIET])
    settings = {"spark.driver.extraJavaOptions": options}
    spark = spark_session("local[2]", name="class archive", is_short=True, settings=settings)
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - whose end has to be waited for
    _work(spark, directory)
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _work(spark: SparkSession, directory: str) -> None:
    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    def take(batch: DataFrame, _: int) -> None:
        shuffled = batch.repartition(2, "value").sortWithinPartitions("value")
        shuffled.mapInArrow(same, shuffled.schema).collect()
        batch.write.mode("overwrite").parquet(f"{directory}/out")

    events = Path(directory) / "events"
    events.mkdir()
    (events / "one.jsonl").write_text("{}\n" * 100)
    stream = spark.readStream.text(str(events)).writeStream.foreachBatch(take).trigger(availableNow=True)
    stream.option("checkpointLocation", f"{directory}/checkpoint").start().awaitTermination()


if __name__ == "__main__":
    sys.exit(0 if make() is not None else 1)
