"""What is kept no longer than it serves: each function removes a little at a time and holds no long lock."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec
import psycopg
from psycopg import sql

CHUNK: Final = 5_000
"""Rows that one transaction removes, so that nobody waits for it."""

ARCHIVE: Final = "archive"
"""The reader of the log that copies it to files: nothing is dropped that it has not got."""

# A little more than the window, so that whoever appends by an older clock never meets a key that is just going. Each
# row is asked for its time once more: not every version of PostgreSQL notices that a row which it had to wait for, and
# which it found by its place, was renewed meanwhile.
_FORGET_KEYS: Final = """
WITH expired AS (
    SELECT max(received_at) - %s - interval '1 minute' AS until FROM kept.log_head
)
DELETE FROM kept.lineage_event_idempotency WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM kept.lineage_event_idempotency
    WHERE received_at < (SELECT until FROM expired) ORDER BY received_at LIMIT %s
)) AND received_at < (SELECT until FROM expired)
"""

_FOLD_LEDGER: Final = """
WITH old AS (
    DELETE FROM kept.ingest_batches WHERE id = ANY (ARRAY(
        SELECT id FROM kept.ingest_batches WHERE committed_at < now() - %s ORDER BY committed_at LIMIT %s
    )) RETURNING *
), folded AS (
    INSERT INTO kept.ingest_days AS days (
        source, day, batches, received, stored, duplicates, rejected, first_position, last_position
    )
    SELECT source, (committed_at AT TIME ZONE 'UTC')::date, count(*), sum(received), sum(stored), sum(duplicates),
           sum(rejected), min(first_position), max(last_position)
    FROM old GROUP BY 1, 2
    ON CONFLICT (source, day) DO UPDATE SET
        batches = days.batches + excluded.batches,
        received = days.received + excluded.received,
        stored = days.stored + excluded.stored,
        duplicates = days.duplicates + excluded.duplicates,
        rejected = days.rejected + excluded.rejected,
        first_position = least(days.first_position, excluded.first_position),
        last_position = greatest(days.last_position, excluded.last_position)
)
SELECT count(*) FROM old
"""

# A query's last batch is left: Spark may repeat it, and then it has to be found. So is one that does not add up, which
# is for `correlator audit` to show.
_FOLD_PIPELINE_LEDGER: Final = """
WITH old AS (
    DELETE FROM kept.pipeline_batches WHERE (query_id, batch_id) IN (
        SELECT query_id, batch_id FROM kept.pipeline_batches AS batch
        WHERE committed_at < now() - %s
          AND (first_position IS NULL OR read = last_position - first_position + 1)
          AND EXISTS (
              SELECT FROM kept.pipeline_batches AS later
              WHERE later.query_id = batch.query_id AND later.batch_id > batch.batch_id
          )
        ORDER BY committed_at LIMIT %s
    ) RETURNING *
), folded AS (
    INSERT INTO kept.pipeline_days AS days (source, day, batches, read, applied, duplicates, rejected, positions)
    SELECT source, (committed_at AT TIME ZONE 'UTC')::date, count(*), sum(read), sum(applied), sum(duplicates),
           sum(rejected), coalesce(range_agg(int8range(first_position, last_position, '[]'))
                                   FILTER (WHERE first_position IS NOT NULL), '{}')
    FROM old GROUP BY 1, 2
    ON CONFLICT (source, day) DO UPDATE SET
        batches = days.batches + excluded.batches,
        read = days.read + excluded.read,
        applied = days.applied + excluded.applied,
        duplicates = days.duplicates + excluded.duplicates,
        rejected = days.rejected + excluded.rejected,
        positions = days.positions + excluded.positions
)
SELECT count(*) FROM old
"""

_DROP_OLD_REJECTS: Final = """
WITH gone AS (
    DELETE FROM kept.rejected_events WHERE id = ANY (ARRAY(
        SELECT id FROM kept.rejected_events WHERE rejected_at < now() - %s ORDER BY rejected_at LIMIT %s
    )) RETURNING kept_bytes AS bytes
), counted AS (
    UPDATE kept.reject_totals SET events = events - (SELECT count(*) FROM gone),
                                  bytes = bytes - (SELECT coalesce(sum(gone.bytes), 0) FROM gone)
)
SELECT count(*) FROM gone
"""

# From the oldest on, until what is left fits.
_CAP_REJECTS: Final = """
WITH excess AS (
    SELECT bytes - %(most)s AS bytes FROM kept.reject_totals WHERE bytes > %(most)s
), oldest AS (
    SELECT id, kept_bytes AS bytes, sum(kept_bytes) OVER (ORDER BY id) - kept_bytes AS before
    FROM (SELECT id, kept_bytes FROM kept.rejected_events ORDER BY id LIMIT %(chunk)s) AS first
), gone AS (
    DELETE FROM kept.rejected_events AS rejects USING oldest, excess
    WHERE rejects.id = oldest.id AND oldest.before < excess.bytes
    RETURNING oldest.bytes
), counted AS (
    UPDATE kept.reject_totals SET
        events = events - (SELECT count(*) FROM gone),
        bytes = bytes - (SELECT sum(gone.bytes) FROM gone),
        capped_events = capped_events + (SELECT count(*) FROM gone),
        capped_bytes = capped_bytes + (SELECT sum(gone.bytes) FROM gone),
        last_capped_at = now()
    WHERE EXISTS (SELECT FROM gone)
)
SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM gone
"""

# Only days that are over, that are old enough, and that every reader and the archive have left behind.
_FINISHED_DAYS: Final = """
SELECT child.relname
FROM pg_inherits
JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = 'kept.lineage_events'::regclass
  AND to_date(right(child.relname, 8), 'YYYYMMDD') < ((now() - %s) AT TIME ZONE 'UTC')::date
  AND EXISTS (SELECT FROM kept.log_readers WHERE reader = %s)
ORDER BY child.relname
"""

_IS_READ: Final = """
SELECT coalesce(max(position), 0) <= (SELECT min(position) FROM kept.log_readers) FROM kept.{}
"""


class Capped(msgspec.Struct, frozen=True):
    """What the byte cap of rejected events has cost."""

    events: int
    bytes: int


def forget_keys(connection: psycopg.Connection, older_than: timedelta, *, chunk: int = CHUNK) -> int:
    """Remove the keys of events that are no longer compared with. The connection is in autocommit."""
    return _in_chunks(lambda: connection.execute(_FORGET_KEYS, [older_than, chunk]).rowcount, chunk)


def fold_ledger(connection: psycopg.Connection, older_than: timedelta, *, chunk: int = CHUNK) -> int:
    """Add up old rows of the ledger by day."""
    return _in_chunks(lambda: _count(connection, _FOLD_LEDGER, older_than, chunk), chunk)


def fold_pipeline_ledger(connection: psycopg.Connection, older_than: timedelta, *, chunk: int = CHUNK) -> int:
    """Add up old batches of the pipeline by day."""
    return _in_chunks(lambda: _count(connection, _FOLD_PIPELINE_LEDGER, older_than, chunk), chunk)


def drop_old_rejects(connection: psycopg.Connection, older_than: timedelta, *, chunk: int = CHUNK) -> int:
    return _in_chunks(lambda: _count(connection, _DROP_OLD_REJECTS, older_than, chunk), chunk)


def cap_rejects(connection: psycopg.Connection, max_bytes: int, *, chunk: int = CHUNK) -> Capped:
    """Remove the oldest rejected events until the rest fits, and write down how many that were."""
    events = size = 0
    while True:
        row = connection.execute(_CAP_REJECTS, {"most": max_bytes, "chunk": chunk}).fetchone()
        assert row is not None  # noqa: S101 (an aggregate returns a row)
        events += row[0]
        size += row[1]
        if row[0] < chunk:
            return Capped(events, size)


def drop_log_days(connection: psycopg.Connection, older_than: timedelta) -> list[str]:
    """Drop whole days of the log. A day that somebody is reading just now is left for the next time."""
    dropped = []
    for (name,) in connection.execute(_FINISHED_DAYS, [older_than, ARCHIVE]).fetchall():
        row = connection.execute(sql.SQL(_IS_READ).format(sql.Identifier(name))).fetchone()
        if row is None or not row[0]:
            break
        try:
            with connection.transaction():
                # Appending must not queue up behind a drop that waits for a long read.
                connection.execute("SET LOCAL lock_timeout = '1s'")
                connection.execute(sql.SQL("DROP TABLE kept.{}").format(sql.Identifier(name)))
        except psycopg.errors.LockNotAvailable:
            break
        dropped.append(name)
    return dropped


def _in_chunks(remove: Callable[[], int], chunk: int) -> int:
    removed = 0
    while True:
        count = remove()
        removed += count
        if count < chunk:
            return removed


def _count(connection: psycopg.Connection, query: str, older_than: timedelta, chunk: int) -> int:
    row = connection.execute(query.encode(), [older_than, chunk]).fetchone()
    return 0 if row is None else int(row[0])
