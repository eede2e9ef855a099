"""Files of events on any path that Hadoop can read: JSON lines, plain or packed, and Parquet.

Lines that are not packed, on this machine, are read by our own tasks (`pieces`); all else by Spark.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import psycopg
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.readwriter import DataStreamReader

from correlator.pipeline.arrivals import LENGTH
from correlator.pipeline.hadoop import is_of_machine, packed_suffixes
from correlator.pipeline.pieces import BYTES
from correlator.pipeline.sources import Judge
from correlator.store.merge import FACTS


def _not_ending_in(suffix: str) -> Iterator[str]:
    for number, letter in enumerate(suffix):
        yield f"*[!{letter}]{suffix[number + 1 :]}"
        if number:
            yield suffix[number:]


FILES: Final = "files"
_SUFFIX: Final = ".parquet"
_LINES: Final = f"{{{','.join(_not_ending_in(_SUFFIX))}}}"
"""Everything else: Hadoop's patterns have no other way to say so."""
_TEXT: Final = r"[^\s\x{FEFF}]"
_BEGINNING: Final = 16
"""So many characters of a line nearly always show that it is not empty; to look at all of each has its price."""
_BINARY: Final = "path STRING NOT NULL, modificationTime TIMESTAMP NOT NULL, length BIGINT NOT NULL, content BINARY"
"""A stream of such files has to be told what they always have."""
_PARTITIONS_A_CORE: Final = 4
"""Pieces of files are dealt out to so many tasks."""


class FilesSource:
    """Every file under some paths, each once. A file that grows afterwards is told by `correlator audit`."""

    name = FILES
    keeps_place = False

    def __init__(
        self, paths: Sequence[str], judge: Judge, *, column: str = "raw", max_bytes: int = 2_000_000_000
    ) -> None:
        self._paths = tuple(paths)
        self.judge = judge
        self._column = column
        self._max_bytes = max_bytes

    @property
    def paths(self) -> tuple[str, ...]:
        return self._paths

    def arrivals(
        self,
        spark: SparkSession,
        reader: str = FACTS,  # noqa: ARG002 (each reader has its own checkpoint, and that is all it needs)
        *,
        min_events: int = 1,  # noqa: ARG002
        max_delay: float = 0.0,  # noqa: ARG002
    ) -> DataFrame:
        def stream() -> DataStreamReader:
            return spark.readStream.option("maxBytesPerTrigger", self._max_bytes)

        return self._of(spark, stream, self._paths)

    def now(self, spark: SparkSession, paths: Sequence[str] | None = None) -> DataFrame:
        """What lies there at this moment."""
        return self._of(spark, lambda: spark.read, paths or self._paths)

    def _of(
        self, spark: SparkSession, reader: Callable[[], DataFrameReader | DataStreamReader], paths: Sequence[str]
    ) -> DataFrame:
        files = _Files(spark, reader, self._column)
        frames = [kind(path) for path in paths for kind in (files.lines, files.parquet)]
        # Checkpoints know them by their order, and those of former versions know nothing of these.
        frames += map(files.packed_lines, paths)
        return _union([frame for frame in frames if frame is not None])

    def offsets(self, progress: StreamingQueryProgress) -> None:  # noqa: ARG002 (nobody has counted the lines)
        return None

    def waiting(self, connection: psycopg.Connection) -> int | None:  # noqa: ARG002 (nobody has counted the lines)
        return None


class _Files:
    """What lies under a path, by kind. A directory may hold all, and by its name nobody can tell it from a file."""

    def __init__(
        self, spark: SparkSession, reader: Callable[[], DataFrameReader | DataStreamReader], column: str
    ) -> None:
        self._spark = spark
        self._reader = reader
        self._column = column
        self._is_packed = f"({'|'.join(map(re.escape, packed_suffixes(spark)))})$"

    def parquet(self, path: str) -> DataFrame | None:
        column = self._column
        files = self._matching(path, f"*{_SUFFIX}").schema(f"{column} BINARY").parquet(path)
        return _as_arrivals(files, fn.col(column), fn.col("_metadata.row_index"))

    def lines(self, path: str) -> DataFrame | None:
        if _is_parquet(path):
            return None
        if not is_of_machine(self._spark, path):
            return self._lines_by_spark(self._matching(path, _LINES), path)
        # Of the content, which nobody asks for, nothing is read.
        files = self._matching(path, _LINES).schema(_BINARY).format("binaryFile").load(path)
        is_plain = ~fn.col("_metadata.file_path").rlike(self._is_packed)
        starts = fn.sequence(fn.lit(0).cast("bigint"), fn.col("_metadata.file_size") - 1, fn.lit(BYTES).cast("bigint"))
        pieces = _as_arrivals(
            files.filter(is_plain & (fn.col("_metadata.file_size") > 0)),
            fn.lit(None).cast("binary"),
            fn.explode(starts),
            fn.lit(BYTES).cast("bigint"),
        )
        return pieces.repartition(_PARTITIONS_A_CORE * self._spark.sparkContext.defaultParallelism)

    def packed_lines(self, path: str) -> DataFrame | None:
        if _is_parquet(path) or not is_of_machine(self._spark, path):
            return None
        suffixes = ",".join(packed_suffixes(self._spark))
        return self._lines_by_spark(self._matching(path, f"*{{{suffixes}}}"), path)

    def _matching(self, path: str, names: str) -> DataFrameReader | DataStreamReader:
        reader = self._reader().option("recursiveFileLookup", "true")
        return reader if _is_parquet(path) else reader.option("pathGlobFilter", names)

    @staticmethod
    def _lines_by_spark(reader: DataFrameReader | DataStreamReader, path: str) -> DataFrame:
        line = fn.col("value")
        lines = reader.text(path).filter(line.substr(1, _BEGINNING).rlike(_TEXT) | line.rlike(_TEXT))
        # A line has no place that would be the same however the file is cut.
        return _as_arrivals(lines, line.cast("binary"), fn.lit(None).cast("bigint"))


def _is_parquet(path: str) -> bool:
    return path.rstrip("/").endswith(_SUFFIX)


def _as_arrivals(files: DataFrame, raw: Column, position: Column, length: Column | None = None) -> DataFrame:
    return files.select(
        fn.col("_metadata.file_path").alias("origin"),
        position.alias("position"),
        fn.current_timestamp().alias("arrived_at"),
        fn.col("_metadata.file_size").alias("size"),
        fn.col("_metadata.file_modification_time").alias("modified_at"),
        fn.lit(None).cast("binary").alias("key"),
        fn.lit(None).cast("array<struct<key: string, value: binary>>").alias("headers"),
        raw.alias("raw"),
        (fn.lit(None).cast("bigint") if length is None else length).alias(LENGTH),
    )


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole
