"""The Spark session, with what Correlator needs to be set and nothing else."""

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Final

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from correlator.pipeline import class_archive, worker_daemon
from correlator.pipeline.java import provide_java

_SETTINGS: Final = {
    # Over TCP a bulk job now and then waits for ever for its Python worker; over the socket none did.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # An event may have 32 MB: batches are bounded by their bytes, not by the number of rows alone.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "33554432",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # The plan of a batch is made by us, and Spark need not look for a better one.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.stopTimeout": "30000",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    # How far a source was read is in the database; the checkpoint is written for Spark's sake, as cheaply as it goes.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_JAVA: Final = (f"-Dlog4j2.configurationFile={files('correlator.pipeline') / 'log4j2.properties'}",)

# On two cores the JVM's better compiler takes half of one for minutes, and small batches never give that back.
_COMPILE_QUICKLY: Final = "-XX:TieredStopAtLevel=1"


def spark_session(
    master: str | None = None,
    *,
    name: str = "correlator",
    is_short: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session, or the one that `spark-submit` has prepared. What is set there or given here goes before ours.

    Options of Java that are given come after ours, so that they too go before them.

    `is_short` says that its work will be small batches, or short.
    """
    # What it has to say of its own work is for its own makers; failures reach us as exceptions.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # Executors on this machine must run the interpreter that has Correlator installed.
    is_ours = SparkContext._gateway is None  # noqa: SLF001 (under spark-submit there is a Java already)
    is_here = is_ours and _is_local(master)
    _choose_python(is_here=is_here)
    if is_ours:
        provide_java()
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    java = [*_JAVA, *class_archive.java_options()]
    if is_short:
        java.append(_COMPILE_QUICKLY)
    ours = dict(_SETTINGS)
    # Elsewhere, or where `spark-submit` brings it along, Spark's Python finds our code only after its start.
    if is_here:
        ours["spark.python.daemon.module"] = worker_daemon.MODULE
    given = dict(settings or {})
    java += filter(None, [given.pop(_JAVA_OPTIONS, None)])
    for key, value in {**ours, _JAVA_OPTIONS: " ".join(java), **given}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _is_local(master: str | None) -> bool:
    """Whether all processes of Spark will be on this machine. A Spark of somebody's own may be set up otherwise."""
    if master is None:
        return not {"SPARK_HOME", "SPARK_CONF_DIR", "MASTER"} & os.environ.keys()
    return master.startswith("local")


def _choose_python(*, is_here: bool) -> None:
    """For Spark's processes, unless somebody has: this one, on this machine by a script that starts it more quickly."""
    script = str(Path(__file__).with_name("worker_python"))
    python = script if is_here and os.access(script, os.X_OK) else sys.executable
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if os.environ.get(name, script) == script:
            os.environ[name] = python
    os.environ |= {"PYTHON_WITH_SPARK": sys.executable, "INSTALLED_SPARK": str(Path(pyspark.__file__).parent)}


class JavaEndedError(Exception):
    """Spark's Java process is gone, and nothing that this process can do brings it back."""


def check_java(spark: SparkSession) -> None:
    """That the Java process is there, if it was we who have started it: killed for want of memory, it tells nobody."""
    process = getattr(spark.sparkContext._gateway, "proc", None)  # noqa: SLF001 (nobody else knows)
    code = None if process is None else process.poll()
    if code is not None:
        how = f"was killed (signal {-code})" if code < 0 else f"has ended (exit code {code})"
        raise JavaEndedError(f"Spark's Java process {how}; if memory was short, give it less with spark_conf")


def stop(spark: SparkSession) -> None:
    """Also where there is nobody left to be told."""
    with suppress(OSError, Py4JError):
        spark.stop()
