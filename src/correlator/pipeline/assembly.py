"""The pipeline as the settings say: its session, its sources, and how its queries run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from correlator.config import PipelineSettings
from correlator.pipeline.driver import Plan
from correlator.pipeline.fact_sink import Size
from correlator.pipeline.java import NoJavaError
from correlator.pipeline.session import spark_session
from correlator.pipeline.sources import Source
from correlator.pipeline.sources.files import FilesSource
from correlator.pipeline.sources.kafka import OURS, KafkaSource, connector
from correlator.pipeline.sources.log import LogSource
from correlator.rulebook.judging import Judge
from correlator.store.database import Database

# Spark's own choice for a local disk starts a process for each file it writes: half of the time of a live batch.
_LOCAL_CHECKPOINTS: Final = (
    "spark.sql.streaming.checkpointFileManagerClass",
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
)
_SHUFFLE: Final = "spark.sql.shuffle.partitions"


class AssemblyError(Exception):
    """The settings do not go together. Its text says what to do."""


def session_of(settings: PipelineSettings, *, is_short: bool = False) -> SparkSession:
    _check_kafka_options(settings)
    _check_reach(settings, settings.spark_master or "local")
    conf = dict(settings.spark_conf)
    if settings.kafka_servers is not None:
        _add(conf, _kafka_connector(settings))
    if "://" not in (settings.checkpoint_dir or ""):
        conf.setdefault(*_LOCAL_CHECKPOINTS)
    try:
        spark = spark_session(settings.spark_master, is_short=is_short, settings=conf)
    except NoJavaError as error:
        raise AssemblyError(str(error)) from error
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise AssemblyError(_java_ended(conf)) from error
    # Under `spark-submit` it is known only now.
    _check_reach(settings, str(spark.sparkContext.master))
    if settings.kafka_servers is not None and not _has_kafka_connector(spark):
        raise AssemblyError(
            "Spark runs without its Kafka connector. To a Spark that runs already it can no longer be added: say "
            f"spark-submit --packages {connector()}, or --jars with the connector and what it needs."
        )
    if not spark.sparkContext.getConf().contains(_SHUFFLE):
        # Not Spark's 200, which would be as many tasks for each little sum over what was just archived.
        spark.conf.set(_SHUFFLE, _shuffle_partitions(settings, spark))
    return spark


def _shuffle_partitions(settings: PipelineSettings, spark: SparkSession) -> int:
    return settings.shuffle_partitions or 4 * spark.sparkContext.defaultParallelism


def _check_reach(settings: PipelineSettings, master: str) -> None:
    """What executors elsewhere need cannot be on this machine by default."""
    if master.startswith("local"):
        return
    if settings.database_url is None:
        raise AssemblyError(
            f"The embedded database serves this machine only, and Spark is to run on {master}. "
            "Name a PostgreSQL server that its executors can reach with database_url."
        )
    if settings.archive and settings.archive_dir is None:
        raise AssemblyError(
            f"The archive would be on the disks of Spark's executors, here and there, because it runs on {master}. "
            "Name a path that all of them share with archive_dir, or say --no-archive."
        )


def _check_kafka_options(settings: PipelineSettings) -> None:
    ours = sorted(name for name, _ in settings.kafka_options if name.lower() in OURS)
    if ours:
        raise AssemblyError(
            f"kafka_options cannot set {', '.join(ours)}: kafka_servers, kafka_topics, pipeline_batch_events and "
            "what was read so far do."
        )


def _kafka_connector(settings: PipelineSettings) -> tuple[str, tuple[str, ...]]:
    """The setting of Spark that brings the connector, and what to add to it."""
    if not settings.kafka_jars:
        return "spark.jars.packages", settings.kafka_packages or (connector(),)
    for jar in settings.kafka_jars:
        if ":" not in jar and not Path(jar).is_file():
            raise AssemblyError(f"There is no file {jar}, which kafka_jars names.")
    return "spark.jars", settings.kafka_jars


def _add(conf: dict[str, str], more: tuple[str, tuple[str, ...]]) -> None:
    name, values = more
    conf[name] = ",".join([*filter(None, [conf.get(name)]), *values])


def _java_ended(conf: Mapping[str, str]) -> str:
    packages = conf.get("spark.jars.packages")
    if packages is None:
        return "Spark's Java process ended while it started; its own words stand above."
    return (
        f"Spark's Java process ended while it started; its own words stand above. It had to fetch {packages} from "
        "Maven: if that was what failed, let spark.jars.repositories of spark_conf name a repository that has it, "
        "name other coordinates with kafka_packages, or jars that are here already with kafka_jars."
    )


def _has_kafka_connector(spark: SparkSession) -> bool:
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr] # noqa: SLF001
    try:
        loader.loadClass("org.apache.spark.sql.kafka010.KafkaSourceProvider")
    except Py4JJavaError:
        return False
    return True


def sources_of(settings: PipelineSettings, database: Database, spark: SparkSession) -> list[Source]:
    found: list[Source] = []
    judge = Judge.within(settings)
    if settings.log_source:
        found.append(
            LogSource(
                database.url,
                max_events=settings.pipeline_batch_events,
                events_a_task=max(1, settings.small_batch_events),
                parallelism=spark.sparkContext.defaultParallelism,
            )
        )
    if settings.kafka_servers is not None:
        found.append(
            KafkaSource(
                database,
                settings.kafka_servers,
                settings.kafka_topics,
                judge,
                options=dict(settings.kafka_options),
                max_events=settings.pipeline_batch_events,
            )
        )
    if settings.files:
        found.append(
            FilesSource(settings.files, judge, column=settings.files_column, max_bytes=settings.pipeline_batch_bytes)
        )
    return found


def plan_of(settings: PipelineSettings, spark: SparkSession) -> Plan:
    return Plan(
        checkpoints=settings.checkpoint_dir or str(settings.data_dir / "checkpoints"),
        archive=archive_directory(settings) if settings.archive else None,
        trigger=settings.trigger,
        archive_min_events=settings.archive_min_events,
        archive_delay=settings.archive_delay,
        turn_patience=settings.turn_patience,
        size=Size(
            small_events=settings.small_batch_events,
            partitions=_shuffle_partitions(settings, spark),
            regrouped_incidents=settings.regrouped_incidents,
        ),
    )


def archive_directory(settings: PipelineSettings) -> str:
    return settings.archive_dir or str(settings.data_dir / "archive")
