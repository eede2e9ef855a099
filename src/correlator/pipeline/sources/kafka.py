"""Topics of Kafka, through Spark's own connector.

How far each partition was read stands in the database, written by the transaction that merged what was read. A query
always begins there: a checkpoint that is lost, old, or of another database changes nothing.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import psycopg
import pyspark
from psycopg.rows import class_row
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.listener import StreamingQueryProgress

from correlator.pipeline.backlog import Offsets
from correlator.pipeline.sources import Judge
from correlator.pipeline.sources.topics import Extent, Topic, look_at
from correlator.store.database import Database
from correlator.store.merge import FACTS

_log = logging.getLogger(__name__)

KAFKA: Final = "kafka"
_EARLIEST: Final = -2
"""Spark's word for the first offset that there is when it begins."""

OURS: Final = frozenset(
    {
        "assign",
        "endingoffsets",
        "includeheaders",
        "kafka.bootstrap.servers",
        "maxoffsetspertrigger",
        "maxtriggerdelay",
        "minoffsetspertrigger",
        "startingoffsets",
        "startingoffsetsbytimestamp",
        "startingtimestamp",
        "subscribe",
        "subscribepattern",
    }
)
"""Options of the connector that Correlator sets by its own settings, and by what it has read; in lower case."""

_READ_SO_FAR: Final = """
SELECT origin, position, incarnation FROM kept.source_origins WHERE source = %s AND reader = %s
"""
# What an earlier topic of the same name, or a part that the broker has lost, has said of offsets is no longer true.
_BEGIN: Final = """
INSERT INTO kept.source_origins AS known (source, reader, origin, position, incarnation, events)
SELECT %s, %s, said.origin, said.position, said.incarnation, 0
FROM unnest(%s::text[], %s::bigint[], %s::text[]) AS said (origin, position, incarnation)
ORDER BY said.origin
ON CONFLICT (source, reader, origin) DO UPDATE SET position = excluded.position, incarnation = excluded.incarnation
"""
_LOSE: Final = """
INSERT INTO kept.source_losses (source, reader, origin, sentence, events) VALUES (%s, %s, %s, %s, %s)
"""


def connector(scala: str = "2.13") -> str:
    """The Maven coordinates of the connector that belongs to the running Spark."""
    return f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{pyspark.__version__}"


class Place(msgspec.Struct, frozen=True):
    """How far a partition was read."""

    origin: str
    position: int | None = None
    """The last offset."""
    incarnation: str | None = None
    """The id of the topic that was read."""


class LossError(Exception):
    """Messages that were to be read are gone."""


class KafkaSource:
    """Messages whose values are events. Keys, headers, partitions and offsets are kept."""

    name = KAFKA
    keeps_place = True

    def __init__(
        self,
        database: Database,
        bootstrap_servers: str,
        topics: Sequence[str],
        judge: Judge,
        *,
        options: Mapping[str, str] | None = None,
        max_events: int = 200_000,
    ) -> None:
        self._database = database
        self.judge = judge
        self._topics = tuple(topics)
        self._max_events = max_events
        self._options = {
            "kafka.bootstrap.servers": bootstrap_servers,
            # By a pattern, a topic may be made later, and is read from then on.
            "subscribePattern": "|".join(re.escape(topic) for topic in topics),
            "includeHeaders": "true",
            # Spark is to stop where messages are gone. We look what it is, tell it, and go on behind it.
            "failOnDataLoss": "true",
            **(options or {}),
        }

    def arrivals(
        self, spark: SparkSession, reader: str = FACTS, *, min_events: int = 1, max_delay: float = 0.0
    ) -> DataFrame:
        topics = look_at(spark, self._topics, self._options)
        self._tell_missing(topics)
        beginning = list(beginnings(topics.values(), self._read_so_far(reader)))
        for place in beginning:
            if place.loss:
                _log.error("%s %s: %s", self.name, reader, place.loss)
        self._begin(reader, beginning)
        options = {
            **self._options,
            "startingOffsets": starting_offsets(beginning),
            "maxOffsetsPerTrigger": str(self._max_events),
        }
        if min_events > 1:
            options |= {"minOffsetsPerTrigger": str(min_events), "maxTriggerDelay": f"{max_delay * 1000:.0f}ms"}
        return _as_arrivals(spark.readStream.format("kafka").options(**options).load())

    def after(self, spark: SparkSession, reader: str) -> DataFrame:
        """What a reader has not read yet, all of it, as far as it has come by now."""
        topics = look_at(spark, self._topics, self._options)
        beginning = list(beginnings(topics.values(), self._read_so_far(reader)))
        losses = [each.loss for each in beginning if each.loss]
        if losses:
            raise LossError(f"{self.name} {reader}: {'; '.join(losses)}")
        options = {**self._options, "startingOffsets": starting_offsets(beginning), "endingOffsets": "latest"}
        return _as_arrivals(spark.read.format("kafka").options(**options).load())

    def offsets(self, progress: StreamingQueryProgress) -> tuple[Offsets, Offsets] | None:
        told = [(_offsets(source.endOffset), _offsets(source.latestOffset)) for source in progress.sources]
        return told[0] if told and told[0][1] else None

    def waiting(self, connection: psycopg.Connection) -> int | None:  # noqa: ARG002 (only the broker could tell)
        return None

    def _tell_missing(self, found: Iterable[str]) -> None:
        missing = sorted(set(self._topics) - set(found))
        if missing:
            _log.warning(
                "%s: there is no topic %s at %s; what comes once there is will be read",
                self.name,
                ", ".join(missing),
                self._options["kafka.bootstrap.servers"],
            )

    def _read_so_far(self, reader: str) -> dict[str, Place]:
        with (
            self._database.connect("pipeline source") as connection,
            connection.cursor(row_factory=class_row(Place)) as cursor,
        ):
            return {place.origin: place for place in cursor.execute(_READ_SO_FAR, [self.name, reader])}

    def _begin(self, reader: str, beginning: Sequence["Beginning"]) -> None:
        """Write down which topics are read from here on, so that one that is made again is known by its id.

        What is passed by is written down as well, for `correlator audit`.
        """
        columns = [[getattr(each, name) for each in beginning] for name in ("origin", "position", "incarnation")]
        with self._database.connect("pipeline source") as connection:
            connection.execute(_BEGIN, [self.name, reader, *columns])
            for each in beginning:
                if each.loss:
                    connection.execute(_LOSE, [self.name, reader, each.origin, each.loss, each.lost])


class Beginning(msgspec.Struct, frozen=True):
    """Where the reading of a partition begins."""

    topic: str
    partition: int
    position: int | None = None
    """The last offset that need not be read; none: from the first that is there."""
    incarnation: str | None = None
    loss: str = ""
    """What is gone that was not read, in words."""
    lost: int = 0
    """How many messages, where that can be told."""

    @property
    def origin(self) -> str:
        return f"{self.topic}/{self.partition}"


def beginnings(topics: Iterable[Topic], read: Mapping[str, Place]) -> Iterator[Beginning]:
    """For every partition that there is: behind what was read, or at its first message.

    What the broker no longer has cannot be waited for, and while one waits it deletes more: we go on with what is
    there, and say what is not.
    """
    for topic in topics:
        for partition, extent in sorted(topic.partitions.items()):
            place = read.get(f"{topic.name}/{partition}")
            if place is None or place.position is None:
                yield Beginning(topic.name, partition, None, topic.id)
            else:
                yield _going_on(topic, partition, extent, place, place.position)


def _going_on(topic: Topic, partition: int, extent: Extent, place: Place, position: int) -> Beginning:
    origin = f"{topic.name}/{partition}"
    is_another = topic.id != place.incarnation and place.incarnation is not None
    if is_another or (topic.id is None and position >= extent.end):
        loss = (
            f"{origin} is another one than before: the topic was deleted and made again. It is read from its "
            f"beginning; what came to the old one after offset {position} was never read, and is lost"
        )
        return Beginning(topic.name, partition, None, topic.id, loss)
    if position >= extent.end:
        loss = (
            f"{origin} ends before offset {extent.end} and was read up to {position}: the broker has lost what it "
            f"had. It is read from offset {extent.end} on"
        )
        return Beginning(topic.name, partition, extent.end - 1, topic.id, loss)
    if position + 1 < extent.first:
        loss = (
            f"offsets {position + 1} to {extent.first - 1} of {origin} are lost: the broker has deleted them before "
            f"they were read. It is read from offset {extent.first} on; let the topic's retention be longer"
        )
        return Beginning(topic.name, partition, None, topic.id, loss, extent.first - position - 1)
    return Beginning(topic.name, partition, position, topic.id)


def starting_offsets(beginning: Iterable[Beginning]) -> str:
    """In Spark's words, which have to name every partition or none."""
    offsets: dict[str, dict[str, int]] = {}
    for each in beginning:
        begin = _EARLIEST if each.position is None else each.position + 1
        offsets.setdefault(each.topic, {})[str(each.partition)] = begin
    return json.dumps(offsets) if offsets else "earliest"


def _offsets(told: str) -> dict[str, int]:
    """Of each partition, from Spark's words for it."""
    topics: dict[str, dict[str, int]] = json.loads(told or "null") or {}
    return {f"{topic}/{number}": offset for topic, parts in topics.items() for number, offset in parts.items()}


def _as_arrivals(messages: DataFrame) -> DataFrame:
    # A producer may write any time onto its messages; what cannot be is not when they arrived.
    now = fn.current_timestamp()
    is_possible = fn.col("timestamp").between(fn.timestamp_seconds(fn.lit(0)), now)
    return messages.select(
        fn.concat_ws("/", fn.col("topic"), fn.col("partition").cast("string")).alias("origin"),
        fn.col("offset").alias("position"),
        fn.when(is_possible, fn.col("timestamp")).otherwise(now).alias("arrived_at"),
        fn.lit(None).cast("bigint").alias("size"),
        fn.lit(None).cast("timestamp").alias("modified_at"),
        fn.col("key"),
        fn.col("headers"),
        fn.col("value").alias("raw"),
    )
