"""The event log: the events that came over HTTP."""

from typing import Final

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.listener import StreamingQueryProgress

from correlator.pipeline.event_log import ArchiveLog, EventLogSource, FactsLog, number
from correlator.rulebook.decode import judge
from correlator.store.merge import FACTS

LOG: Final = "log"
_WAITING: Final = """
SELECT (SELECT position FROM kept.log_head) -
       coalesce((SELECT position FROM kept.log_readers WHERE reader = %s), 0)
"""


class LogSource:
    """The events that came over HTTP."""

    name = LOG
    keeps_place = True
    judge = staticmethod(judge)
    """Without limits and formats: it was taken when it came, and what was taken is applied."""

    def __init__(
        self, url: str, *, max_events: int = 200_000, events_a_task: int = 5_000, parallelism: int = 1
    ) -> None:
        self._url = url
        self._options = {
            "url": url,
            "maxevents": str(max_events),
            "eventsatask": str(events_a_task),
            "parallelism": str(parallelism),
        }

    def arrivals(
        self, spark: SparkSession, reader: str = FACTS, *, min_events: int = 1, max_delay: float = 0.0
    ) -> DataFrame:
        """Not before so many events wait, unless they have waited so long."""
        source = FactsLog if reader == FACTS else ArchiveLog
        spark.dataSource.register(source)
        options = {**self._options, "reader": reader, "minevents": str(min_events), "maxdelay": str(max_delay)}
        return _as_arrivals(spark.readStream.format(source.name()).options(**options).load())

    def between(self, spark: SparkSession, start: int, end: int) -> DataFrame:
        """What lies after one position up to another."""
        spark.dataSource.register(EventLogSource)
        options = {
            **self._options,
            "reader": "",
            "minevents": "1",
            "maxdelay": "0",
            "start": str(start),
            "end": str(end),
        }
        return _as_arrivals(spark.read.format(EventLogSource.name()).options(**options).load())

    def offsets(self, progress: StreamingQueryProgress) -> None:  # noqa: ARG002 (the database knows)
        return None

    def waiting(self, connection: psycopg.Connection) -> int | None:
        return number(connection, _WAITING, FACTS)


def _as_arrivals(log: DataFrame) -> DataFrame:
    return log.select(
        fn.lit(LOG).alias("origin"),
        fn.col("position"),
        fn.col("received_at").alias("arrived_at"),
        fn.lit(None).cast("bigint").alias("size"),
        fn.lit(None).cast("timestamp").alias("modified_at"),
        fn.lit(None).cast("binary").alias("key"),
        fn.lit(None).cast("array<struct<key: string, value: binary>>").alias("headers"),
        fn.col("raw"),
    )
