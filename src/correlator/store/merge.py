"""From staging into the fact tables: one set-based transaction for each batch, and one at a time.

By which rules, `merge_statements` says. A batch that is repeated leaves no trace but in the ledger.

    prepare(connection, source)                when the pipeline starts on a source
    attempt = begin(connection, source)        for each attempt at a batch
    stage(connection, attempt, rows)           in each task
    merge(connection, attempt, batch)          when all tasks are done; or `merge_beside`, while they go on
    sweep(connection, attempt)                 when that is committed
"""

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec
import psycopg
from psycopg.errors import ForeignKeyViolation

from correlator.rulebook import facts as f
from correlator.store import rejects
from correlator.store.fact_rows import BY_NAME, DATASET_JOBS
from correlator.store.incidents import Changed, derive_touched
from correlator.store.last_runs import note_last_runs
from correlator.store.merge_statements import statements
from correlator.store.staging import Attempt, of_attempt, parts, probed, staged_rejects, staged_table, staged_touched

# Any number will do that nobody else locks in this database.
_LOCK: Final = 40_172_831
_LOOK_EVERY_S: Final = 0.1
"""For parts that are whole, while others are still staged."""

Staged = TypeVar("Staged")


FACTS: Final = "facts"
"""Who reads the sources for the fact tables; the archive is another."""


class Span(msgspec.Struct, frozen=True):
    """What was read of one origin: a topic's partition, or a file."""

    origin: str
    events: int
    first: int | None = None
    last: int | None = None
    size: int | None = None
    modified_at: datetime | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger says of a batch."""

    query_id: str
    batch_id: int
    source: str
    read: int
    applied: int
    duplicates: int = 0
    rejected: int = 0
    first_position: int | None = None
    last_position: int | None = None
    """Of the event log."""
    spans: tuple[Span, ...] = ()
    """Where the source has no positions of the log."""
    reader: str | None = None
    """Who reads the log, and by this batch has read it up to `last_position`."""
    seconds: float = 0.0
    """What it took until it could be merged."""

    @property
    def offsets(self) -> str | None:
        """The spans as the ledger has them."""
        return msgspec.json.encode(self.spans).decode() if self.spans else None


class Merged(msgspec.Struct, frozen=True):
    """What a merge leaves to those who know more of the world than tables."""

    schema: str
    incidents: Changed = Changed()
    renamed: tuple[UUID, ...] = ()
    """Datasets of which other names were said, or to which a pattern may apply."""
    concerned: tuple[UUID, ...] = ()
    """Incidents that are as they were, and whose reasons may be others now."""


class StagingLostError(Exception):
    """What was staged is no longer there, or no longer what is to be merged. The batch has to be staged again."""


Follow: TypeAlias = Callable[[psycopg.Connection[Any], "Merged"], None]


def merge(
    connection: psycopg.Connection[Any],
    attempt: Attempt,
    batch: Batch | None,
    schema: str = "facts",
    *,
    derives: bool = True,
    then: Follow | None = None,
) -> None:
    """Merge what was staged, and enter the batch into the ledger, if it is to be there: all of it or nothing.

    Incidents are derived of what it touches, unless they are to be derived later, all at once. `then` is called within
    the transaction, if there is anything that may concern it.
    """
    with connection.transaction():
        merging = _Merging(connection, attempt, schema)
        merging.take(parts(connection, attempt), batch)
        merging.finish(derives, then)


def merge_beside(
    connection: psycopg.Connection[Any],
    attempt: Attempt,
    staging: Callable[[], Staged],
    batch_of: Callable[[Staged], Batch | None],
    schema: str = "facts",
    *,
    derives: bool = True,
    then: Follow | None = None,
) -> Staged:
    """The same while `staging` goes on: part by part as tasks have finished theirs, still in one transaction.

    One connection merges, and that is one core: the others would have to wait for it.
    """
    stop = threading.Event()
    with connection.transaction(), ThreadPoolExecutor(1, "merge") as pool:
        merging = _Merging(connection, attempt, schema, in_bulk=True)
        rounds = pool.submit(merging.take_as_they_come, stop)
        try:
            staged = staging()
        except BaseException:
            connection.cancel_safe()
            raise
        finally:
            stop.set()
        rounds.result()
        merging.take(parts(connection, attempt), batch_of(staged))
        merging.finish(derives, then)
    return staged


class _Merging:
    """A merge on its way, within a transaction.

    In bulk, that what the facts refer to is there is looked at once, of all that was staged, if the database lets us:
    to look for each row by itself would take a quarter of the time.
    """

    def __init__(
        self, connection: psycopg.Connection[Any], attempt: Attempt, schema: str, *, in_bulk: bool = False
    ) -> None:
        self._connection = connection
        self._attempt = attempt
        self._schema = schema
        self._in_bulk = in_bulk
        self._taken: set[int] = set()

    def take_as_they_come(self, stop: threading.Event) -> None:
        while not stop.wait(_LOOK_EVERY_S):
            there = parts(self._connection, self._attempt)
            if there - self._taken:
                self.take(there)

    def take(self, there: Collection[int], batch: Batch | None = None) -> None:
        """Merge the parts that were not merged yet, and enter a batch of which these are the last."""
        connection, numbers = self._connection, sorted(set(there) - self._taken)
        if not self._taken:
            lock_merges(connection, self._schema)
            connection.execute(SETTINGS, prepare=True)
            if self._in_bulk:
                self._in_bulk = bool(connection.execute(_REFER_UNSEEN).rowcount)
        self._check(batch)
        # All at once: over a network every question and answer would cost more than a small batch's work.
        with connection.pipeline():
            connection.execute(_ROUND, prepare=True)
            # One after the other: two may speak of the same run.
            for number in numbers:
                for statement in statements(self._attempt.slot, self._schema):
                    connection.execute(statement, {"part": number}, prepare=True)
            if batch is not None:
                _enter(connection, self._attempt, batch)
        self._taken.update(numbers)

    def _check(self, batch: Batch | None) -> None:
        if self._connection.execute(_IS_CURRENT, msgspec.structs.asdict(self._attempt), prepare=True).rowcount == 0:
            which = "A batch" if batch is None else f"Batch {batch.batch_id} of {batch.source}"
            raise StagingLostError(
                f"{which} was not merged: what was staged for it is gone, because the database was restarted, or "
                "because another process has begun with the same source. Nothing was changed; the batch has to be "
                "tried again."
            )

    def finish(self, derives: bool, then: Follow | None) -> None:  # noqa: FBT001 - passed on
        connection, attempt, schema = self._connection, self._attempt, self._schema
        if self._in_bulk:
            self._check_references()
        if not derives:
            return
        note_last_runs(connection, attempt, schema)
        changed = derive_touched(connection, attempt, schema)
        if then is not None:
            renamed, concerned = _renamed(connection, attempt), _concerned(connection, attempt, schema)
            if changed or renamed or concerned:
                then(connection, Merged(schema, changed, renamed, concerned))

    def _check_references(self) -> None:
        connection = self._connection
        connection.execute(_REFER_AGAIN)
        dangling = connection.execute(_dangling(self._attempt.slot).encode(), {"number": self._attempt.number})
        for table, column, id_ in dangling.fetchall():
            raise ForeignKeyViolation(
                f"A row that was staged for {table} has a {column} ({id_}) by which nothing is staged. "
                "Nothing of the batch was merged. This is a defect of Correlator: please report it."
            )
        connection.execute(SETTINGS, prepare=True)


def _renamed(connection: psycopg.Connection[Any], attempt: Attempt) -> tuple[UUID, ...]:
    query = f"""
        SELECT DISTINCT id FROM {staged_table(attempt.slot, BY_NAME[f.DATASETS.name])}
        WHERE {of_attempt()} AND (symlinks_order IS NOT NULL OR EXISTS (SELECT FROM kept.dataset_patterns))
    """  # noqa: S608
    return tuple(id_ for (id_,) in connection.execute(query.encode(), [attempt.number], prepare=True))


def _concerned(connection: psycopg.Connection[Any], attempt: Attempt, schema: str) -> tuple[UUID, ...]:
    """Those that failed since the first moment of which something was said; and those of the families of these runs.

    What happened after a failure is no reason for it, but for a test that ran before what it tested was finished.
    """
    query = f"""
        WITH said AS MATERIALIZED (
            SELECT staged.first_event_at AS at, staged.parent_job_run_id
            FROM {staged_table(attempt.slot, BY_NAME[f.JOB_RUNS.name])} AS staged
            WHERE {of_attempt("staged", "%(number)s")}
            UNION ALL
            SELECT NULL, run.parent_job_run_id
            FROM {staged_touched(attempt.slot)} AS before
            {probed(f"{schema}.job_runs", "run", "run.id = before.id")}
            WHERE {of_attempt("before", "%(number)s")} AND before.kind = 'r'
        ), since AS MATERIALIZED (SELECT min(at) AS at FROM said)
        (SELECT incident.id FROM since CROSS JOIN LATERAL (
            SELECT id FROM {schema}.incidents WHERE opened_at >= since.at ORDER BY opened_at, id LIMIT 1000
        ) AS incident)
        UNION
        (SELECT incident.id FROM since CROSS JOIN LATERAL (
            SELECT id FROM {schema}.incidents
            WHERE last_failed_at > opened_at AND last_failed_at >= since.at AND opened_at < since.at
            ORDER BY last_failed_at, id LIMIT 1000
        ) AS incident)
        UNION
        (SELECT failure.incident_id
         FROM (SELECT DISTINCT parent_job_run_id AS id FROM said WHERE parent_job_run_id IS NOT NULL) AS parent
         JOIN {schema}.job_runs AS kin ON kin.parent_job_run_id = parent.id
         JOIN {schema}.failures AS failure ON failure.job_run_id = kin.id
         WHERE EXISTS (
             SELECT FROM since JOIN {schema}.incidents AS recent ON recent.opened_at >= since.at - interval '1 day'
         ))
    """  # noqa: S608
    given = {"number": attempt.number}
    return tuple(id_ for (id_,) in connection.execute(query.encode(), given, prepare=True))


def _enter(connection: psycopg.Connection[Any], attempt: Attempt, batch: Batch) -> None:
    """Into the ledger, with all that goes with it."""
    connection.execute(_LEDGER, {**msgspec.structs.asdict(batch), "offsets": batch.offsets}, prepare=True)
    if batch.rejected:
        connection.execute(_keep_rejects(attempt.slot).encode(), [attempt.number])
    if batch.reader is not None and batch.last_position is not None:
        advance_in_log(connection, batch.reader, batch.last_position)
    if batch.spans:
        advance(connection, batch.source, FACTS, batch.spans)


def advance_in_log(connection: psycopg.Connection[Any], reader: str, position: int) -> None:
    """Write down how far a reader has read the log, within the caller's transaction."""
    connection.execute(_READER, [reader, position], prepare=True)


def advance(connection: psycopg.Connection[Any], source: str, reader: str, spans: Sequence[Span]) -> None:
    """Write down how far a reader has read, within the caller's transaction."""
    columns = [[getattr(span, name) for span in spans] for name in ("origin", "last", "size", "modified_at", "events")]
    connection.execute(_ADVANCE, [source, reader, *columns])


def lock_merges(connection: psycopg.Connection[Any], schema: str = "facts") -> None:
    """Let no one else merge into a schema until this transaction ends."""
    connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_LOCK, schema], prepare=True)


_IS_CURRENT: Final = "SELECT FROM staging.attempts WHERE slot = %(slot)s AND number = %(number)s"

# Every row is looked up by its key, however large its table is: what a batch costs depends on the batch alone. Without
# this, a plan that was made while a table was small would go on reading all of it. The memory is for sorting.
SETTINGS: Final = """
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_nestloop', 'on', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('jit', 'off', true), set_config('work_mem', '64MB', true)
"""

# Whoever may do so: a superuser, and whom one has granted it. Our own triggers are set to fire nonetheless.
_REFER_UNSEEN: Final = """
SELECT set_config('session_replication_role', 'replica', true)
WHERE has_parameter_privilege(current_user, 'session_replication_role', 'SET')
"""
# And all that was staged is read, once.
_REFER_AGAIN: Final = """
SELECT set_config('session_replication_role', 'origin', true), set_config('enable_seqscan', 'on', true),
       set_config('enable_hashjoin', 'on', true), set_config('enable_nestloop', 'off', true)
"""

_REFERENCES: Final = {
    # For the edges, of which there are many more.
    DATASET_JOBS.name: {"dataset_id": f.DATASETS},
    "running_writes": {"job_run_id": f.JOB_RUNS, "dataset_id": f.DATASETS},
    "run_column_mappings": {"job_run_id": f.JOB_RUNS},
    "test_results": {"job_run_id": f.JOB_RUNS, "dataset_id": f.DATASETS},
}
"""The foreign keys of what is merged. Whatever is said of a run or a dataset is staged with it."""


_EDGES: Final = f.LINEAGE_EDGES.name


@lru_cache(maxsize=64)
def _dangling(slot: str) -> str:
    """Ask for staged rows that refer to none that was staged."""
    uses = staged_table(slot, DATASET_JOBS)
    asked = [
        f"""
        (SELECT '{_EDGES if table == DATASET_JOBS.name else table}', '{column}', said.{column}::text
         FROM {staged_table(slot, BY_NAME[table])} AS said
         WHERE {of_attempt("said", "%(number)s")} AND said.{column} IS NOT NULL
           AND NOT EXISTS (
               SELECT FROM {staged_table(slot, BY_NAME[referred.name])} AS there
               WHERE {of_attempt("there", "%(number)s")} AND there.id = said.{column}
           )
         LIMIT 1)
        """  # noqa: S608
        for table, columns in _REFERENCES.items()
        for column, referred in columns.items()
    ]
    # Whoever stages an edge knows of its run by then.
    asked.append(f"""
        (SELECT '{_EDGES}', 'job_run_id', 'of a use of dataset ' || said.dataset_id FROM {uses} AS said
         WHERE {of_attempt("said", "%(number)s")} AND said.job_id IS NULL LIMIT 1)
    """)  # noqa: S608
    return " UNION ALL ".join(asked)


_ROUND: Final = "SELECT set_config('correlator.round_began', extract(epoch FROM clock_timestamp())::text, true)"

# A batch that is repeated takes the place of itself, in the totals too.
_LEDGER: Final = """
WITH before AS (
    SELECT source, read, applied, duplicates, rejected FROM kept.pipeline_batches
    WHERE query_id = %(query_id)s AND batch_id = %(batch_id)s
), entered AS (
    INSERT INTO kept.pipeline_batches AS known (
        query_id, batch_id, source, read, applied, duplicates, rejected,
        first_position, last_position, offsets, seconds, committed_at
    )
    VALUES (
        %(query_id)s, %(batch_id)s, %(source)s, %(read)s, %(applied)s, %(duplicates)s, %(rejected)s,
        %(first_position)s, %(last_position)s, %(offsets)s::jsonb,
        %(seconds)s + extract(epoch FROM clock_timestamp()) - current_setting('correlator.round_began')::float8,
        clock_timestamp()
    )
    ON CONFLICT (query_id, batch_id) DO UPDATE SET
        source = excluded.source, read = excluded.read, applied = excluded.applied, duplicates = excluded.duplicates,
        rejected = excluded.rejected, first_position = excluded.first_position, last_position = excluded.last_position,
        offsets = excluded.offsets, seconds = excluded.seconds, committed_at = excluded.committed_at
    RETURNING *
)
INSERT INTO kept.pipeline_totals AS total (
    source, batches, read, applied, duplicates, rejected, seconds, committed_at
)
SELECT entered.source, CASE WHEN before.source IS NULL THEN 1 ELSE 0 END,
       entered.read - coalesce(before.read, 0), entered.applied - coalesce(before.applied, 0),
       entered.duplicates - coalesce(before.duplicates, 0), entered.rejected - coalesce(before.rejected, 0),
       entered.seconds, entered.committed_at
FROM entered LEFT JOIN before ON true
ON CONFLICT (source) DO UPDATE SET
    batches = total.batches + excluded.batches,
    read = total.read + excluded.read,
    applied = total.applied + excluded.applied,
    duplicates = total.duplicates + excluded.duplicates,
    rejected = total.rejected + excluded.rejected,
    seconds = excluded.seconds,
    committed_at = excluded.committed_at
"""

# A file is what it was when it was last read; the partition of a topic goes on.
_ADVANCE: Final = """
INSERT INTO kept.source_origins AS known (source, reader, origin, position, size, modified_at, events)
SELECT %s, %s, said.origin, said.position, said.size, said.modified_at, said.events
FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::timestamptz[], %s::bigint[])
     AS said (origin, position, size, modified_at, events)
ORDER BY said.origin
ON CONFLICT (source, reader, origin) DO UPDATE SET
    position = greatest(known.position, excluded.position), size = excluded.size,
    modified_at = excluded.modified_at, events = excluded.events
"""

# A batch that is repeated, and one that another checkpoint begins further back, has been read before.
_READER: Final = """
INSERT INTO kept.log_readers AS known (reader, position) VALUES (%s, %s)
ON CONFLICT (reader) DO UPDATE SET position = excluded.position, read_at = clock_timestamp()
WHERE known.position < excluded.position
"""


def _keep_rejects(slot: str) -> str:
    """A rejected event that a repeated batch brings again is there already."""
    columns = ", ".join(rejects.COLUMNS)
    return f"""
        WITH added AS (
            INSERT INTO kept.rejected_events (arrival, {columns})
            SELECT DISTINCT ON (arrival) arrival, {columns}
            FROM {staged_rejects(slot)} WHERE {of_attempt()} ORDER BY arrival
            ON CONFLICT (arrival) WHERE arrival IS NOT NULL DO NOTHING
            RETURNING kept_bytes
        )
        UPDATE kept.reject_totals AS kept SET events = kept.events + new.events, bytes = kept.bytes + new.bytes
        FROM (SELECT count(*) AS events, coalesce(sum(kept_bytes), 0) AS bytes FROM added) AS new
        WHERE new.events > 0
    """  # noqa: S608
