"""Every accepted event in Parquet files, by the day it arrived: what replay starts from, and what outlives the log.

Each attempt at a batch has a directory of its own. It counts when `kept.archive_batches` has its row, which is written
when the directory is whole and takes the place of an earlier attempt's; what has no row is removed. So a batch that is
repeated is there once, and what stands is never touched, not even while it is written again.
"""

import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import psycopg
import pyarrow as pa
from psycopg.rows import class_row
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn

from correlator.pipeline import arrivals
from correlator.pipeline.hadoop import delete, literally
from correlator.pipeline.pieces import opened
from correlator.pipeline.sources import Judge, Source
from correlator.pipeline.sources.log import LOG
from correlator.pipeline.stages import Batches
from correlator.rulebook.events import Rejection
from correlator.store.database import Database
from correlator.store.merge import Span, advance, advance_in_log
from correlator.store.retention import ARCHIVE

_log = logging.getLogger(__name__)

_FILE_ROWS: Final = 500_000

AGAIN: Final = "batch=again-"
"""How the directories begin of what was read again, beside the query that usually writes."""

_ALL: Final = """
SELECT source, directory, events, rejected, first_position, last_position FROM kept.archive_batches
ORDER BY source, written_at, directory
"""
_ADD: Final = """
INSERT INTO kept.archive_batches (source, directory, events, rejected, first_position, last_position)
VALUES (%(source)s, %(directory)s, %(events)s, %(rejected)s, %(first_position)s, %(last_position)s)
"""


_REPLACE: Final = """
DELETE FROM kept.archive_batches WHERE source = %s AND starts_with(directory, %s)
"""


class ArchiveBatch(msgspec.Struct, frozen=True):
    """A directory of the archive that is whole."""

    source: str
    directory: str
    """Below the archive's own."""
    events: int
    rejected: int
    """Read and left out."""
    first_position: int | None
    last_position: int | None
    """Of the log."""


class Archive:
    """The directory that holds it, on any path that Hadoop can write."""

    def __init__(self, database: Database, directory: str) -> None:
        self._database = database
        self.directory = directory.rstrip("/")

    def batches(self) -> list[ArchiveBatch]:
        with self._connect() as connection, connection.cursor(row_factory=class_row(ArchiveBatch)) as cursor:
            return cursor.execute(_ALL).fetchall()

    def read(self, spark: SparkSession, batches: Sequence[ArchiveBatch]) -> DataFrame:
        """The events of some batches, as they arrived."""
        return _read(spark, [f"{self.directory}/{batch.directory}" for batch in batches])

    def sink(self, source: Source) -> "ArchiveSink":
        return ArchiveSink(self, source)

    def enter(self, batch: ArchiveBatch, spans: Sequence[Span]) -> None:
        """From here on the batch counts, and its reader has read it."""
        with self._connect() as connection, connection.transaction():
            connection.execute(_REPLACE, [batch.source, _of_every_attempt(batch.directory)])
            connection.execute(_ADD, msgspec.structs.asdict(batch))
            if batch.source != LOG:
                advance(connection, batch.source, ARCHIVE, spans)
            elif batch.last_position is not None:
                advance_in_log(connection, ARCHIVE, batch.last_position)

    def sweep(self, spark: SparkSession, source: str, *, again: bool = False) -> None:
        """Remove what attempts that were given up have left behind. Nobody else may write for this source meanwhile.

        What is being read again is nobody's but his who does it.
        """
        known = {batch.directory for batch in self.batches() if batch.source == source}
        for directory in self.directories(spark, source):
            if directory not in known and directory.rpartition("/")[2].startswith(AGAIN) == again:
                _log.info("removed %s from the archive: the batch was not finished", directory)
                delete(spark, f"{self.directory}/{directory}")

    def directories(self, spark: SparkSession, source: str) -> Iterator[str]:
        """All that are there, whole or not."""
        parent = _jvm(spark).org.apache.hadoop.fs.Path(f"{self.directory}/source={source}")
        files = parent.getFileSystem(_hadoop(spark))
        if files.exists(parent):
            for status in files.listStatus(parent):
                yield f"source={source}/{status.getPath().getName()}"

    def _connect(self) -> psycopg.Connection:
        return self._database.connect("pipeline archive", autocommit=True)


class ArchiveSink:
    """For `foreachBatch` of the archive's own query."""

    def __init__(self, archive: Archive, source: Source) -> None:
        self._archive = archive
        self._source = source

    def __call__(self, arrived: DataFrame, batch_id: int) -> None:
        query_id = arrived.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or "batch"
        self.write(arrived, f"batch={batch_id:09d}-{query_id}")

    def write(self, arrived: DataFrame, name: str) -> None:
        directory = f"source={self._source.name}/{name}-{secrets.token_hex(4)}"
        target = f"{self._archive.directory}/{directory}"
        read = Observation()
        judged = _judged(arrived, self._source.judge).observe(
            read,
            fn.count(fn.lit(1)).alias("read"),
            fn.count_if("accepted").alias("accepted"),
            fn.min("position").alias("first"),
            fn.max("position").alias("last"),
        )
        accepted = judged.filter("accepted").drop("accepted").withColumn("day", fn.to_date("arrived_at"))
        writer = accepted.write.partitionBy("day")
        writer.option("maxRecordsPerFile", _FILE_ROWS).option("compression", "zstd").parquet(target)
        told = read.get
        if not told["read"]:
            # Over what there is, Spark gives a batch even where there is nothing.
            delete(arrived.sparkSession, target)
            return
        is_log = self._source.name == LOG
        batch = ArchiveBatch(
            self._source.name,
            directory,
            told["accepted"],
            told["read"] - told["accepted"],
            told["first"] if is_log else None,
            told["last"] if is_log else None,
        )
        self._archive.enter(batch, () if is_log or not batch.events else _spans(arrived.sparkSession, target))


def _of_every_attempt(directory: str) -> str:
    """How the directories of all attempts at one batch begin."""
    return directory[: directory.rindex("-") + 1]


def _judged(arrived: DataFrame, judge: Judge) -> DataFrame:
    def judged(batches: Batches) -> Batches:
        for some in opened(batches):
            raws = list(some)
            good = [not isinstance(judge(raw or b""), Rejection) for raw in raws]
            whole = some.about.append_column("raw", pa.array(raws, pa.binary()))
            yield whole.append_column("accepted", pa.array(good, pa.bool_()))

    return arrived.mapInArrow(judged, f"{arrivals.SCHEMA}, accepted BOOLEAN")


def _spans(spark: SparkSession, target: str) -> list[Span]:
    """How far the events of a batch go, by origin. What was left out at the very end is read again, and left out."""
    counted = (
        _read(spark, [target])
        .groupBy("origin")
        .agg(fn.count(fn.lit(1)), fn.min("position"), fn.max("position"), fn.max("size"), fn.max("modified_at"))
    )
    return [Span(*row) for row in counted.collect()]


def _read(spark: SparkSession, directories: Iterable[str]) -> DataFrame:
    paths = map(literally, directories)
    return spark.read.schema(arrivals.SCHEMA).option("recursiveFileLookup", "true").parquet(*paths)


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm  # noqa: SLF001 (PySpark has no other way to Hadoop's file systems)


def _hadoop(spark: SparkSession) -> Any:
    return spark._jsc.hadoopConfiguration()  # noqa: SLF001
