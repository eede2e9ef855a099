"""The event log as a Spark source: ranges of positions, read in parallel.

Positions are dense and in the order of commits, so an offset is a position, what lies between two offsets never
changes, and nothing that commits late can be skipped.

Spark starts several Python processes that plan and read for each query, and all of them import this module: it is to
have little to import.
"""

import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from itertools import pairwise
from typing import Any, Final

import psycopg
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from correlator.pipeline.connections import connection_to
from correlator.store.database import Database

FORMAT: Final = "correlator_log"
_SCHEMA: Final = "position BIGINT, received_at TIMESTAMP, raw BINARY"
_ARROW: Final = pa.schema(
    [("position", pa.int64()), ("received_at", pa.timestamp("us", tz="UTC")), ("raw", pa.binary())]
)
_BATCH_BYTES: Final = 8 * 2**20
_BATCH_ROWS: Final = 5_000

_HEAD: Final = "SELECT position FROM kept.log_head"
_READ_SO_FAR: Final = """
SELECT coalesce((SELECT position FROM kept.log_readers WHERE reader = %s), 0)
"""
# One range of one index in each partition.
_READ: Final = """
SELECT position, received_at, raw FROM kept.lineage_events WHERE position > %s AND position <= %s ORDER BY position
"""


class LogRange(InputPartition):
    """Positions after `start` up to `end`."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(None)
        self.start = start
        self.end = end


class EventLogSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = _Options(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 (the names are Spark's)
        return EventLogStream(self._options)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return EventLogReader(self._options)


class _Options:
    def __init__(self, options: Mapping[str, str]) -> None:
        self.url = options["url"]
        self.reader = options["reader"]
        self.max_events = int(options["maxevents"])
        self.min_events = int(options["minevents"])
        self.max_delay = float(options["maxdelay"])
        self.parallelism = int(options["parallelism"])
        self.events_a_task = int(options["eventsatask"])
        self.start = int(options.get("start", "0"))
        self.end = int(options.get("end", "0"))

    def connect(self) -> psycopg.Connection:
        return Database(self.url).connect("pipeline source", autocommit=True)


class FactsLog(EventLogSource):
    """The log as facts are read from it.

    Each reader registers a class of its own: for a stream Spark changes the variables of the class's process while it
    may be sending them along with the tasks of another stream, which then cannot be read (`OptionalDataException`).
    """

    @classmethod
    def name(cls) -> str:
        return f"{FORMAT}_facts"


class ArchiveLog(EventLogSource):
    """The log as it is archived."""

    @classmethod
    def name(cls) -> str:
        return f"{FORMAT}_archive"


class EventLogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: _Options) -> None:
        self._options = options
        self._is_checked = False
        self._target: int | None = None
        self._waiting_since: float | None = None
        self._connection: psycopg.Connection | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Where the last merge ended, kept beside the facts: a checkpoint that was lost loses nothing."""
        return {"position": self._ask(_READ_SO_FAR, self._options.reader)}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        begin = start["position"]
        if not self._is_checked:
            self._check(begin)
        head = self._ask(_HEAD) if self._target is None else self._target
        if self._is_too_early(head - begin):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_events
        return {"position": max(begin, min(head, begin + most))}

    def _check(self, begin: int) -> None:
        """What was merged is written down before Spark writes down the batch, never after it."""
        read = self._ask(_READ_SO_FAR, self._options.reader)
        if begin > read:
            raise RuntimeError(
                f"the checkpoint says that {self._options.reader} has read the event log up to {begin:,}, and the "
                f"database {read:,}: they do not belong together; remove the checkpoint, and it goes on from there"
            )
        self._is_checked = True

    def _is_too_early(self, events: int) -> bool:
        """Whether so few events can wait for more."""
        if self._target is not None or events >= self._options.min_events:
            self._waiting_since = None
            return False
        if events > 0 and self._waiting_since is None:
            self._waiting_since = time.monotonic()
        if self._waiting_since is None or time.monotonic() - self._waiting_since < self._options.max_delay:
            return True
        self._waiting_since = None
        return False

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_events)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """For the lag in Spark's progress."""
        return {"position": self._ask(_HEAD)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._ask(_HEAD)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[LogRange]:
        return ranges(start["position"], end["position"], self._options.parallelism, self._options.events_a_task)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _ask(self, query: str, *parameters: Any) -> int:
        """One number, on a connection that lives as long as the query; made again when it breaks."""
        if self._connection is not None:
            try:
                return number(self._connection, query, *parameters)
            except psycopg.OperationalError:
                self._connection.close()
        self._connection = self._options.connect()
        return number(self._connection, query, *parameters)

    def __getstate__(self) -> dict[str, Any]:
        """Spark sends the reader to its workers; a connection stays where it is."""
        return {**self.__dict__, "_connection": None}


class EventLogReader(DataSourceReader):
    """A part of the log, for a batch read."""

    def __init__(self, options: _Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[LogRange]:
        options = self._options
        found = ranges(options.start, options.end, options.parallelism, options.events_a_task)
        # Spark takes none for a source that cannot be divided, and would have it read as a whole.
        return found or [LogRange(options.start, options.start)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


def ranges(start: int, end: int, parallelism: int, events_a_task: int) -> list[LogRange]:
    """A small range is one task; a large one is as many as there is work for, in multiples of the parallelism."""
    events = end - start
    if events <= 0:
        return []
    tasks = -(-events // events_a_task)
    if tasks > 1:
        tasks = -(-tasks // parallelism) * parallelism
    bounds = [start + events * number // tasks for number in range(tasks + 1)]
    return [LogRange(begin, finish) for begin, finish in pairwise(bounds) if finish > begin]


def number(connection: psycopg.Connection, query: str, *parameters: Any) -> int:
    row = connection.execute(query.encode(), parameters).fetchone()
    return int(row[0]) if row else 0


def _read(options: _Options, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Arrow batches bounded by rows and bytes, through a cursor of the server: memory does not grow with the range."""
    if not isinstance(partition, LogRange):
        raise TypeError(f"not a range of the log: {partition!r}")
    with (
        connection_to(options.url) as connection,
        connection.transaction(),
        connection.cursor("range", binary=True) as cursor,
    ):
        cursor.itersize = 1_000
        cursor.execute(_READ, (partition.start, partition.end))
        rows: list[tuple[Any, ...]] = []
        size = 0
        expected = partition.start
        for row in cursor:
            expected += 1
            if row[0] != expected:
                raise RuntimeError(
                    f"the event log has no position {expected:,}: it was dropped or lost; correlator audit says more"
                )
            rows.append(row)
            size += len(row[2])
            if size >= _BATCH_BYTES or len(rows) >= _BATCH_ROWS:
                yield _batch(rows)
                rows, size = [], 0
        if expected != partition.end:
            raise RuntimeError(
                f"the event log ends at {expected:,} where {partition.end:,} was expected; correlator audit says more"
            )
        if rows:
            yield _batch(rows)


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    positions, times, raws = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(positions, pa.int64()), pa.array(times, _ARROW.field(1).type), pa.array(raws, pa.binary())],
        schema=_ARROW,
    )
