"""What the pipeline has done so far, and how far it is behind the log, as the database has it."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec
import psycopg
from psycopg.rows import class_row

from correlator.store.merge import FACTS

LOG: Final = "log"
"""What the ledger calls the event log among the sources."""

_TOTALS: Final = """
SELECT source, batches, read, applied, duplicates, rejected, seconds, committed_at
FROM kept.pipeline_totals ORDER BY source
"""

# The facts' reader is told of before it has ever read. One index probe in each day's partition for each reader.
# Of other sources the pipeline writes down what it sees; while nobody looks, the time since the last look counts.
_LAGS: Final = """
SELECT %(log)s AS source, reader.reader, head.position - reader.position AS events, coalesce((
    SELECT greatest(extract(epoch FROM clock_timestamp() - next.received_at), 0)
    FROM kept.lineage_events AS next WHERE next.position = reader.position + 1
), 0)::float8 AS seconds
FROM kept.log_head AS head, (
    SELECT reader, position FROM kept.log_readers
    UNION ALL
    SELECT %(facts)s, 0 WHERE NOT EXISTS (SELECT FROM kept.log_readers WHERE reader = %(facts)s)
) AS reader
UNION ALL
SELECT source, reader, events, CASE
    WHEN waiting_since IS NULL AND looked_at > clock_timestamp() - %(stale)s * interval '1 second' THEN 0
    ELSE greatest(extract(epoch FROM clock_timestamp() - coalesce(waiting_since, looked_at)), 0)
END::float8
FROM kept.source_backlogs
ORDER BY seconds DESC, source, reader
"""
_STALE: Final = 60.0
"""A source that nobody has looked at for so many seconds may have events of which nobody knows."""

_SEE: Final = """
INSERT INTO kept.source_backlogs (source, reader, events, waiting_since, looked_at)
VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (source, reader) DO UPDATE SET
    events = excluded.events, waiting_since = excluded.waiting_since, looked_at = excluded.looked_at
"""
_SEEN: Final = """
SELECT coalesce(waiting_since, looked_at) FROM kept.source_backlogs WHERE source = %s AND reader = %s
"""
_FORGET: Final = "DELETE FROM kept.source_backlogs WHERE source <> ALL (%s)"

# What was received before the first event that is not merged is in the facts. One index probe in each day's partition.
_FACTS_AS_OF: Final = """
SELECT coalesce((
    SELECT next.received_at FROM kept.lineage_events AS next
    WHERE next.position = coalesce((SELECT position FROM kept.log_readers WHERE reader = %s), 0) + 1
), now())
"""


class SourceTotals(msgspec.Struct, frozen=True):
    """What became of all that was read of a source: read = applied + duplicates + rejected."""

    source: str
    batches: int
    read: int
    applied: int
    duplicates: int
    rejected: int
    seconds: float
    """What the last batch took."""
    committed_at: datetime
    """When that was."""


class Lag(msgspec.Struct, frozen=True):
    """What a reader of a source has not read yet."""

    source: str
    reader: str
    events: int
    seconds: float
    """How long the oldest of them has waited."""


def source_totals(connection: psycopg.Connection) -> list[SourceTotals]:
    with connection.cursor(row_factory=class_row(SourceTotals)) as cursor:
        return cursor.execute(_TOTALS).fetchall()


def lags(connection: psycopg.Connection) -> list[Lag]:
    """Of every reader, as far as it can be told, and of the log's facts in any case; who is furthest behind first."""
    with connection.cursor(row_factory=class_row(Lag)) as cursor:
        return cursor.execute(_LAGS, {"facts": FACTS, "log": LOG, "stale": _STALE}).fetchall()


def lag_of(of_all: Iterable[Lag], source: str, reader: str) -> Lag | None:
    return next((lag for lag in of_all if (lag.source, lag.reader) == (source, reader)), None)


def lag_of_facts(of_all: Iterable[Lag]) -> Lag:
    """Of the source whose events wait longest."""
    return max((lag for lag in of_all if lag.reader == FACTS), key=lambda lag: (lag.seconds, lag.events))


def see_backlog(
    connection: psycopg.Connection, source: str, reader: str, backlog: tuple[int, datetime | None], looked_at: datetime
) -> None:
    """Write down how many events wait at a source that only the pipeline can see, and since when."""
    connection.execute(_SEE, [source, reader, *backlog, looked_at])


def backlog_seen(connection: psycopg.Connection, source: str, reader: str) -> datetime | None:
    """After when whatever waits now must have come, as far as earlier looks can tell."""
    row = connection.execute(_SEEN, [source, reader]).fetchone()
    return None if row is None else row[0]


def forget_backlogs_but_of(connection: psycopg.Connection, sources: Sequence[str]) -> None:
    """A source that is no longer read has nobody who would look at it."""
    connection.execute(_FORGET, [list(sources)])


def facts_as_of(connection: psycopg.Connection) -> datetime:
    """Up to when what came over HTTP is in the facts. Asked before the facts, lest it promises too much."""
    row = connection.execute(_FACTS_AS_OF, [FACTS]).fetchone()
    assert row is not None  # noqa: S101 (one row, always)
    at: datetime = row[0]
    return at
