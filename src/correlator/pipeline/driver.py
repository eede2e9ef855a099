"""Runs the queries of the sources: for ever, or over what there is.

Each source has two, with a checkpoint each: one that merges facts, and one that archives. A query that fails is told,
and starts again where it was: its offsets never run ahead of what it has committed. Of all processes on one database
one works on a source at a time; another waits for it, and says so. Who wants no more than what there is waits a while,
and then leaves the source to the other, which reads that too.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any, Final

import msgspec
import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from correlator.pipeline.archive import Archive
from correlator.pipeline.backlog import Backlog
from correlator.pipeline.fact_sink import Done, FactSink, Size
from correlator.pipeline.hadoop import delete
from correlator.pipeline.sources import Source
from correlator.store.database import Database
from correlator.store.ledger import backlog_seen, forget_backlogs_but_of, see_backlog
from correlator.store.merge import FACTS
from correlator.store.retention import ARCHIVE

_log = logging.getLogger(__name__)

_POLL: Final = 0.25
_LOOK_EVERY: Final = 10.0
"""Spark tells of its progress as often while nothing comes."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0


class Stopping(Exception):  # noqa: N818 - nothing went wrong
    """Ends a query between two batches, or before the first."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How the queries run."""

    checkpoints: str
    """The directory of the checkpoints, on any path that Hadoop can write."""
    archive: str | None
    trigger: float = 0.2
    archive_trigger: float = 10.0
    archive_min_events: int = 100_000
    archive_delay: float = 600.0
    size: Size = Size()
    patience: float = 300.0
    """How long a run over what there is waits for what may pass, such as a database that is away."""
    turn_patience: float = 30.0
    """How long it waits for another process that works on a source, and may do so for ever."""


class Driver:
    def __init__(
        self,
        spark: SparkSession,
        database: Database,
        sources: Sequence[Source],
        plan: Plan,
        *,
        on_done: Callable[[Done], None] = lambda _: None,
    ) -> None:
        self._database = database
        self._sources = sources
        self._stopping = threading.Event()
        archive = None if plan.archive is None else Archive(database, plan.archive)
        self._queries: list[Query] = []
        self._facts = [FactSink(database, source, size=plan.size, on_done=on_done) for source in sources]
        for source, facts in zip(sources, self._facts, strict=True):
            self._queries.append(Query(spark, database, source, FACTS, facts, plan, self._stopping))
            if archive is not None:
                sink = archive.sink(source)
                query = Query(spark, database, source, ARCHIVE, sink, plan, self._stopping)
                query.before = partial(archive.sweep, spark, source.name)
                self._queries.append(query)

    def stream(self) -> None:
        """Until `stop` is called."""
        with suppress(psycopg.OperationalError), self._database.connect("pipeline") as connection:
            forget_backlogs_but_of(connection, [source.name for source in self._sources])
        self._run(Query.run_for_ever)

    def batch(self) -> None:
        """Over what there is now, then end. What fails is raised."""
        errors: list[BaseException] = []

        def run(query: "Query") -> None:
            try:
                query.run_once()
            except Exception as error:  # noqa: BLE001 - told to the caller, when the others are done
                errors.append(error)

        self._run(run)
        if errors:
            raise errors[0]

    def _run(self, run: Callable[["Query"], None]) -> None:
        """All queries at once, each in a thread of its own."""
        threads = [threading.Thread(target=run, args=[query], name=query.name) for query in self._queries]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for sink in self._facts:
            sink.close()

    def stop(self) -> None:
        """End after the batches that are under way."""
        self._stopping.set()


class Query:
    """One reader of one source."""

    def __init__(  # noqa: PLR0917
        self,
        spark: SparkSession,
        database: Database,
        source: Source,
        reader: str,
        sink: Callable[[DataFrame, int], None],
        plan: Plan,
        stopping: threading.Event,
    ) -> None:
        self.name = f"{source.name} {reader}"
        self.before: Callable[[], None] = lambda: None
        self._spark = spark
        self._source = source
        self._reader = reader
        self._sink = sink
        self._plan = plan
        self._stopping = stopping
        self._idle = threading.Lock()
        self._failed: Exception | None = None
        self._database = database
        self._turn = Turn(database, self.name, stopping)
        self._backlog: Backlog | None = None

    def run_for_ever(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                with self._turn:
                    self.before()
                    query = self._start(processingTime=f"{self._interval() * 1000:.0f} milliseconds")
                    self._wait(query, self._look)
            except Stopping:
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the events wait, and are tried again
                if self._stopping.is_set():
                    return
                if time.monotonic() - began > _LONGEST_PAUSE:
                    pause = _FIRST_PAUSE
                _log.error("%s: %s; again in %.1f s", self.name, reason(error), pause)
                self._stopping.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def run_once(self) -> None:
        self._turn.patience = self._plan.turn_patience
        deadline = time.monotonic() + self._plan.patience
        pause = _FIRST_PAUSE
        while True:
            try:
                with self._turn:
                    self.before()
                    self._wait(self._start(availableNow=True))
            except Stopping:
                return
            except Exception as error:
                if self._stopping.is_set():
                    return
                if not is_passing(error) or time.monotonic() > deadline:
                    raise
                _log.warning("%s: %s; again in %.1f s", self.name, reason(error), pause)
                self._stopping.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                return

    def _interval(self) -> float:
        return self._plan.trigger if self._reader == FACTS else self._plan.archive_trigger

    def _start(self, **trigger: Any) -> StreamingQuery:
        # Over what there is, nothing is waited for.
        is_patient = self._reader == ARCHIVE and "availableNow" not in trigger
        arrivals = self._source.arrivals(
            self._spark,
            self._reader,
            min_events=self._plan.archive_min_events if is_patient else 1,
            max_delay=self._plan.archive_delay if is_patient else 0.0,
        )
        checkpoint = f"{self._plan.checkpoints.rstrip('/')}/{self._source.name}-{self._reader}"
        if self._source.keeps_place:
            delete(self._spark, checkpoint)
        return (
            arrivals.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", checkpoint)
            .queryName(self.name)
            .trigger(**trigger)
            .start()
        )

    def _take(self, arrivals: DataFrame, batch_id: int) -> None:
        # Who else holds it is about to stop the query, and that waits for us.
        if self._stopping.is_set() or not self._idle.acquire(blocking=False):
            raise Stopping
        try:
            self._turn.check()
            self._sink(arrivals, batch_id)
        except Exception as error:
            # Of what Spark makes of it, little can be read.
            self._failed = error
            raise
        finally:
            self._idle.release()

    def _wait(self, query: StreamingQuery, look: Callable[[StreamingQuery], None] = lambda _: None) -> None:
        """Until the query ends, by itself or because all is to stop: then between two batches, never inside one."""
        look_at = time.monotonic()
        while query.isActive and not self._stopping.wait(_POLL):
            if time.monotonic() >= look_at:
                look(query)
                look_at = time.monotonic() + _LOOK_EVERY
        if query.isActive:
            with self._idle, suppress(Exception):
                query.stop()
            raise Stopping
        error = self._failed or query.exception()
        self._failed = None
        if error is not None:
            raise error

    def _look(self, query: StreamingQuery) -> None:
        """Write down what waits at the source, where Spark knows and the database does not."""
        progress = query.lastProgress
        offsets = None if progress is None else self._source.offsets(progress)
        if progress is None or offsets is None:
            return
        # Not the turn's own connection: that may have died while nothing came, and nobody would look any more.
        with (
            suppress(psycopg.OperationalError),
            self._database.connect("pipeline backlog", autocommit=True) as connection,
        ):
            if self._backlog is None:
                self._backlog = Backlog(backlog_seen(connection, self._source.name, self._reader) or _at(progress))
            seen = self._backlog.look(_at(progress), *offsets)
            see_backlog(connection, self._source.name, self._reader, seen, _at(progress))


def _at(progress: StreamingQueryProgress) -> datetime:
    """When Spark had looked."""
    return datetime.fromisoformat(progress.timestamp)


class Turn:
    """The right to work on a source, for as long as the connection that holds it lives."""

    def __init__(self, database: Database, name: str, stopping: threading.Event) -> None:
        self._database = database
        self._name = name
        self._stopping = stopping
        self._connection: psycopg.Connection | None = None
        self.patience = math.inf
        """How long it is waited for. Who has waited in vain is stopped."""

    def __enter__(self) -> None:
        key = int.from_bytes(sha256(f"correlator {self._name}".encode()).digest()[:8], signed=True)
        connection = self._connection = self._database.connect(f"pipeline {self._name}", autocommit=True)
        began, is_told = time.monotonic(), False
        while not _scalar(connection, "SELECT pg_try_advisory_lock(%s)", key):
            if not is_told:
                _log.warning("%s: another process works on it; waiting for it to end", self._name)
                is_told = True
            if is_late := time.monotonic() - began > self.patience:
                _log.warning("%s: the other process goes on; what there is to read is left to it", self._name)
            if is_late or self._stopping.wait(1.0):
                connection.close()
                raise Stopping

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def check(self) -> None:
        """The database may have been restarted since, and the turn be somebody else's."""
        if self._connection is not None:
            self._connection.execute("SELECT")


def is_passing(error: BaseException) -> bool:
    """Whether it may go better in a while, as far as one can tell from what Spark passes on.

    The database did not answer; or the machine was so busy that a Python process of Spark's did not start within ten
    seconds, whatever the settings say.
    """
    return isinstance(error, psycopg.OperationalError) or any(words in str(error) for words in _PASSING)


_PASSING: Final = ("psycopg.OperationalError", "Python worker failed to connect back")


def reason(error: BaseException) -> str:
    """What went wrong in one line: of Spark's page the last line of Python's own account, else Java's first cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    told = [line for line in lines if _is_told(line)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    # Of an error in Java py4j says only in the second line which it was.
    java = [line.removeprefix(": ") for line in lines[1:2] if line.startswith(": ")]
    return (*told[-1:], *causes[-1:], *java, lines[0])[0][:500]


def _is_told(line: str) -> bool:
    name, colon, _ = line.partition(": ")
    return (
        bool(colon)
        and name.rpartition(".")[2].endswith(("Error", "Exception"))
        and not name.startswith(("at ", "org."))
    )


def _scalar(connection: psycopg.Connection, query: str, *parameters: Any) -> Any:
    row = connection.execute(query.encode(), parameters).fetchone()
    return None if row is None else row[0]
