"""Every fact anew: from the archive, and from the sources what the archive does not hold yet.

The new tables are filled beside the old ones while the pipeline goes on. Then merges wait for a moment: what they have
merged meanwhile is added, and the new tables take the old ones' place. Nothing that people have said is touched.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import psycopg
from pyspark.sql import DataFrame, SparkSession

from correlator.correlation.following import follow_all
from correlator.pipeline.archive import Archive, ArchiveBatch
from correlator.pipeline.driver import Stopping, Turn
from correlator.pipeline.fact_sink import Done, Into, Size, merged, planned
from correlator.pipeline.sources import Judge, Source
from correlator.pipeline.sources.files import FilesSource
from correlator.pipeline.sources.kafka import KafkaSource
from correlator.pipeline.sources.log import LogSource
from correlator.pipeline.stages import Staging
from correlator.pipeline.tally import Tally
from correlator.rulebook.decode import judge
from correlator.store.alert_watch import see_what_came_meanwhile
from correlator.store.database import Database
from correlator.store.incidents import derive_all
from correlator.store.last_runs import note_all_last_runs
from correlator.store.merge import FACTS, lock_merges
from correlator.store.next_facts import NEXT, NextFacts
from correlator.store.retention import ARCHIVE
from correlator.store.staging import prepare

_log = logging.getLogger("correlator.pipeline")

REPLAY: Final = "replay"

_HEAD: Final = "SELECT position FROM kept.log_head"
_ARCHIVED: Final = "SELECT coalesce((SELECT position FROM kept.log_readers WHERE reader = %s), 0)"
_TAIL: Final = "SELECT coalesce(min(position), 1) - 1 FROM kept.lineage_events"
# Files that made facts and that the archive does not hold as they are now.
_FILES: Final = """
SELECT facts.origin FROM kept.source_origins AS facts
WHERE facts.source = %s AND facts.reader = %s AND NOT EXISTS (
    SELECT FROM kept.source_origins AS archived
    WHERE archived.source = facts.source AND archived.reader = %s AND archived.origin = facts.origin
      AND archived.size IS NOT DISTINCT FROM facts.size
)
ORDER BY facts.origin
"""

_NOT_ARCHIVED: Final = """
SELECT facts.origin FROM kept.source_origins AS facts
WHERE facts.reader = %s AND facts.source <> ALL (%s) AND NOT EXISTS (
    SELECT FROM kept.source_origins AS archived
    WHERE archived.source = facts.source AND archived.reader = %s AND archived.origin = facts.origin
      AND archived.size IS NOT DISTINCT FROM facts.size
      AND archived.position IS NOT DISTINCT FROM facts.position
)
ORDER BY facts.origin LIMIT 5
"""


class ReplayError(Exception):
    """Not everything that made the facts can be read any more. Its text says what is missing."""


class Replay:
    def __init__(
        self,
        spark: SparkSession,
        database: Database,
        sources: Sequence[Source],
        archive: Archive,
        *,
        size: Size,
        batch_events: int = 200_000,
        on_done: Callable[[Done], None] = lambda _: None,
    ) -> None:
        self._spark = spark
        self._database = database
        self._sources = sources
        self._archive = archive
        self._size = size
        self._batch_events = batch_events
        self._on_done = on_done
        self._stopping = threading.Event()
        self._is_dressed = False
        """Whether incidents can be derived batch by batch: that needs the indexes."""

    def stop(self) -> None:
        """Give up after the batch that is under way; nothing is changed then."""
        self._stopping.set()

    def run(self) -> None:
        with (
            Turn(self._database, REPLAY, self._stopping),
            self._database.connect("replay", autocommit=True) as connection,
            self._database.connect("replay merge", autocommit=True) as merging,
        ):
            self._check_sources(connection)
            prepare(merging, REPLAY)
            following = NextFacts(connection)
            following.make()
            try:
                done, position = self._fill(connection, merging)
                _log.info("replay: the tables are filled; keys and indexes are made")
                following.dress()
                with connection.transaction():
                    note_all_last_runs(connection, NEXT)
                    derive_all(connection, NEXT)
                    follow_all(connection, NEXT)
                self._is_dressed = True
                with connection.transaction():
                    lock_merges(connection)
                    self._catch_up(connection, merging, done, position)
                    see_what_came_meanwhile(connection, NEXT)
                    following.put_in_place()
            finally:
                following.drop()

    def _check_sources(self, connection: psycopg.Connection) -> None:
        """Facts of a source that nobody names, and that the archive does not hold, would be gone."""
        named = [source.name for source in self._sources]
        rows = connection.execute(_NOT_ARCHIVED, [FACTS, named, ARCHIVE]).fetchall()
        if rows:
            raise ReplayError(
                f"Facts were made of {', '.join(origin for (origin,) in rows)}, which the archive does not hold yet. "
                "Name the source by the same settings as for the pipeline."
            )

    def _fill(self, connection: psycopg.Connection, merging: psycopg.Connection) -> tuple[set[str], int]:
        """All that the archive and the log have, without hurry. Says how far it has come."""
        batches = self._archive.batches()
        for chunk in _chunks(batches, self._batch_events):
            self._apply(merging, self._archive.read(self._spark, chunk), sum(batch.events for batch in chunk))
        position = _number(connection, _ARCHIVED, ARCHIVE)
        if (tail := _number(connection, _TAIL)) > position:
            raise ReplayError(
                f"The log begins at position {tail + 1:,}, and the archive ends at {position:,}: what lies between is "
                "gone, so that facts made from it cannot be made again."
            )
        return {batch.directory for batch in batches}, self._read_log(merging, position, _number(connection, _HEAD))

    def _catch_up(
        self, connection: psycopg.Connection, merging: psycopg.Connection, done: set[str], position: int
    ) -> None:
        """What came meanwhile, and what only its source has. Nobody merges now."""
        late = [batch for batch in self._archive.batches() if batch.directory not in done]
        for chunk in _chunks(late, self._batch_events):
            self._apply(merging, self._archive.read(self._spark, chunk), sum(batch.events for batch in chunk))
        self._read_log(merging, position, _number(connection, _HEAD))
        for source in self._sources:
            if isinstance(source, KafkaSource):
                self._apply(merging, source.after(self._spark, ARCHIVE), None, source.judge)
            elif isinstance(source, FilesSource):
                rows = connection.execute(_FILES, [source.name, FACTS, ARCHIVE]).fetchall()
                if rows:
                    files = source.now(self._spark, [origin for (origin,) in rows])
                    self._apply(merging, files, None, source.judge)

    def _read_log(self, merging: psycopg.Connection, start: int, end: int) -> int:
        log = next((source for source in self._sources if isinstance(source, LogSource)), None)
        log = log or LogSource(self._database.url, parallelism=self._size.partitions)
        while start < end:
            upto = min(start + self._batch_events, end)
            self._apply(merging, log.between(self._spark, start, upto), upto - start)
            start = upto
        return end

    def _apply(
        self, merging: psycopg.Connection, arrivals: DataFrame, events: int | None, judge: Judge = judge
    ) -> None:
        """What is in the log and the archive was accepted, and is no matter of limits any more."""
        if self._stopping.is_set():
            raise Stopping
        plan = partial(planned, arrivals, judge, self._size, events)
        staging = Staging(self._database.url, REPLAY)
        into = Into(schema=NEXT, derives=self._is_dressed)
        tally = merged(merging, staging, plan, _not_in_ledger, into, beside=not self._size.is_small(events))
        self._on_done(Done(REPLAY, tally, 0.0))


def _not_in_ledger(_: Tally) -> None:
    return None


def _chunks(batches: Sequence[ArchiveBatch], most: int) -> Iterator[list[ArchiveBatch]]:
    chunk: list[ArchiveBatch] = []
    events = 0
    for batch in batches:
        if not batch.events:
            continue
        if chunk and events + batch.events > most:
            yield chunk
            chunk, events = [], 0
        chunk.append(batch)
        events += batch.events
    if chunk:
        yield chunk


def _number(connection: psycopg.Connection, query: str, *parameters: Any) -> int:
    row = connection.execute(query.encode(), parameters).fetchone()
    return int(row[0]) if row else 0
