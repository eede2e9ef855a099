"""Files of events on any path that Hadoop can read: JSON lines, plain or packed, and Parquet."""

from collections.abc import Iterator, Sequence
from typing import Final

import psycopg
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.readwriter import DataStreamReader

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

        return _union([_of(stream(), path, self._column, kind) for path in self._paths for kind in _kinds(path)])

    def now(self, spark: SparkSession, paths: Sequence[str] | None = None) -> DataFrame:
        """What lies there at this moment."""
        return _union(
            [_of(spark.read, path, self._column, kind) for path in paths or self._paths for kind in _kinds(path)]
        )

    def offsets(self, progress: StreamingQueryProgress) -> None:  # noqa: ARG002 (nobody has counted the lines)
        return None

    def waiting(self, connection: psycopg.Connection) -> int | None:  # noqa: ARG002 (nobody has counted the lines)
        return None


def _kinds(path: str) -> tuple[str, ...]:
    """A directory may hold both, and by its name nobody can tell it from a file."""
    return ("parquet",) if _is_parquet(path) else ("text", "parquet")


def _is_parquet(path: str) -> bool:
    return path.rstrip("/").endswith(_SUFFIX)


def _of(reader: DataFrameReader | DataStreamReader, path: str, column: str, kind: str) -> DataFrame:
    reader = reader.option("recursiveFileLookup", "true")
    if not _is_parquet(path):
        reader = reader.option("pathGlobFilter", f"*{_SUFFIX}" if kind == "parquet" else _LINES)
    if kind == "parquet":
        return _as_arrivals(
            reader.schema(f"{column} BINARY").parquet(path), fn.col(column), fn.col("_metadata.row_index")
        )
    line = fn.col("value")
    lines = reader.text(path).filter(line.substr(1, _BEGINNING).rlike(_TEXT) | line.rlike(_TEXT))
    # A line has no place that would be the same however the file is cut.
    return _as_arrivals(lines, line.cast("binary"), fn.lit(None))


def _as_arrivals(files: DataFrame, raw: Column, position: Column) -> DataFrame:
    return files.select(
        fn.col("_metadata.file_path").alias("origin"),
        position.cast("bigint").alias("position"),
        fn.current_timestamp().alias("arrived_at"),
        fn.col("_metadata.file_size").alias("size"),
        fn.col("_metadata.file_modification_time").alias("modified_at"),
        fn.lit(None).cast("binary").alias("key"),
        fn.lit(None).cast("array<struct<key: string, value: binary>>").alias("headers"),
        raw.alias("raw"),
    )


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole
