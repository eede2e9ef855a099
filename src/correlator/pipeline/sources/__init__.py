"""Where events come from: the log, topics of Kafka, and files. All of them give arrivals."""

from typing import Protocol

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from correlator.pipeline.backlog import Offsets
from correlator.rulebook.events import Event, Rejection


class Judge(Protocol):
    """Layer 1. It is sent to the executors."""

    def __call__(self, raw: bytes) -> Event | Rejection: ...


class Source(Protocol):
    """A place that events come from, as a query reads it."""

    @property
    def name(self) -> str:
        """What the ledger calls it; each has checkpoints of its own."""

    @property
    def judge(self) -> Judge:
        """What its events are judged by."""

    @property
    def keeps_place(self) -> bool:
        """Whether `arrivals` begins where the database says that a reader is, and needs no checkpoint for it."""

    def arrivals(self, spark: SparkSession, reader: str, *, min_events: int = 1, max_delay: float = 0.0) -> DataFrame:
        """A stream of what arrives (`arrivals.SCHEMA`) for one of its readers, "facts" or "archive".

        A source that can tell waits until there are `min_events`, but no longer than `max_delay` seconds.
        """

    def offsets(self, progress: StreamingQueryProgress) -> tuple[Offsets, Offsets] | None:
        """How far a query has read, and how far the source has come; none where the database knows, or nobody."""

    def waiting(self, connection: psycopg.Connection) -> int | None:
        """How many events the next batch of facts has at most, where that can be told."""
