"""What a query does with each batch of arrivals: stage it, merge it, enter it into the ledger."""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import msgspec
import psycopg
from pyspark.sql import DataFrame

from correlator.correlation.following import follow
from correlator.correlation.groups import MOST
from correlator.pipeline import stages
from correlator.pipeline.sources import Judge, Source
from correlator.pipeline.sources.log import LOG
from correlator.pipeline.stages import Staging
from correlator.pipeline.tally import Tally
from correlator.store.database import Database
from correlator.store.merge import FACTS, Batch, StagingLostError, merge, merge_beside
from correlator.store.staging import begin, prepare, sweep

_log = logging.getLogger(__name__)

_TIMES: Final = 5
"""A batch whose staging is lost again and again is given up; the query starts once more."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How a batch is cut."""

    small_events: int = 5_000
    """Up to so many are one task."""
    partitions: int = 8
    """Of the shuffle of a larger one. More than there are cores: what is staged is merged while the others work."""
    regrouped_incidents: int = MOST
    """Whose roots it looks for again."""

    def is_small(self, expected: int | None) -> bool:
        return expected is not None and expected <= self.small_events


class Done(NamedTuple):
    """A batch that was merged."""

    source: str
    tally: Tally
    seconds: float


def planned(arrivals: DataFrame, judge: Judge, size: Size, expected: int | None, staging: Staging) -> DataFrame:
    """The whole way of a batch as one action, whose rows are tallies."""
    if size.is_small(expected):
        return stages.staged_by_one_task(arrivals, judge, staging)
    parcels = stages.judged_and_folded(arrivals, judge, partial(stages.StagedRuns, staging))
    return stages.staged(stages.brought_together(parcels, size.partitions), staging)


class Into(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch is merged into, and what follows from it."""

    schema: str = FACTS
    derives: bool = True
    """Whether incidents are derived."""
    regrouped_incidents: int = MOST


def merged(
    connection: psycopg.Connection,
    staging: Staging,
    plan: Callable[[Staging], DataFrame],
    batch_of: Callable[[Tally], Batch | None],
    into: Into = Into(),  # noqa: B008 - frozen
    *,
    beside: bool,
    staged_as: str | None = None,
) -> Tally:
    """Stage a batch and merge it, one after the other or beside each other. When what was staged is lost, do it again.

    Whoever reads a source beside its query stages in tables of his own: what they are called is `staged_as`.
    """
    for attempts_left in reversed(range(_TIMES)):
        attempt = begin(connection, staged_as or staging.source)
        tallies = partial(_collected, plan, staging._replace(attempt=attempt))
        try:
            then = partial(follow, most=into.regrouped_incidents)
            if beside:
                tally = merge_beside(
                    connection, attempt, tallies, batch_of, into.schema, derives=into.derives, then=then
                )
            else:
                tally = tallies()
                merge(connection, attempt, batch_of(tally), into.schema, derives=into.derives, then=then)
        except StagingLostError as error:
            if not attempts_left:
                raise
            _log.warning("%s", error)
        else:
            sweep(connection, attempt)
            return tally
    raise AssertionError


def _collected(plan: Callable[[Staging], DataFrame], staging: Staging) -> Tally:
    return Tally.total(row.tally for row in plan(staging).collect())


class FactSink:
    """For `foreachBatch`. A batch that is repeated is applied again, which changes nothing."""

    def __init__(
        self,
        database: Database,
        source: Source,
        *,
        size: Size | None = None,
        on_done: Callable[[Done], None] = lambda _: None,
        staged_as: str | None = None,
    ) -> None:
        self._database = database
        self._source = source
        self._size = size or Size()
        self._on_done = on_done
        self._staged_as = staged_as or source.name
        self._connection: psycopg.Connection | None = None
        self._last_read: int | None = None

    def __call__(self, arrivals: DataFrame, batch_id: int) -> None:
        began = time.perf_counter()
        query_id = arrivals.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        tally = self.apply(arrivals, query_id, batch_id)
        self._on_done(Done(self._source.name, tally, time.perf_counter() - began))

    def apply(self, arrivals: DataFrame, query_id: str, batch_id: int) -> Tally:
        began = time.perf_counter()
        connection = self._connected()
        expected = self._expected(connection)
        tally = merged(
            connection,
            Staging(self._database.url, self._source.name),
            partial(planned, arrivals, self._source.judge, self._size, expected),
            lambda tally: self._batch(tally, query_id, batch_id, time.perf_counter() - began),
            Into(regrouped_incidents=self._size.regrouped_incidents),
            beside=not self._size.is_small(expected),
            staged_as=self._staged_as,
        )
        self._last_read = tally.read
        return tally

    def _expected(self, connection: psycopg.Connection) -> int | None:
        """Of events, as far as one can tell. Topics go on as they were; of files, the last says nothing of the next."""
        waiting = self._source.waiting(connection)
        return self._last_read if waiting is None and self._source.keeps_place else waiting

    def _batch(self, tally: Tally, query_id: str, batch_id: int, seconds: float) -> Batch | None:
        if self._source.name == LOG and not tally.read:
            # Repeated after its merge: Spark begins a log that it knows from its checkpoint where the database says,
            # and there is nothing left. What the ledger says of the batch stands.
            return None
        of_log = tally.spans.get(LOG) if self._source.name == LOG else None
        return Batch(
            query_id=query_id,
            batch_id=batch_id,
            source=self._source.name,
            read=tally.read,
            applied=tally.applied,
            duplicates=tally.duplicates,
            rejected=tally.rejected,
            first_position=None if of_log is None else of_log.first,
            last_position=None if of_log is None else of_log.last,
            reader=None if of_log is None else FACTS,
            spans=() if self._source.name == LOG else tuple(tally.spans.values()),
            seconds=seconds,
        )

    def _connected(self) -> psycopg.Connection:
        """One connection for all batches; a new one after the old has broken."""
        if self._connection is not None:
            try:
                self._connection.execute("SELECT")
            except psycopg.Error:
                self._connection.close()
                self._connection = None
        if self._connection is None:
            self._connection = self._database.connect("pipeline merge", autocommit=True)
            prepare(self._connection, self._staged_as)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
