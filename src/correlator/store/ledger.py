"""What the pipeline has done so far, and how far it is behind the log, as the database has it."""

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
_LAGS: Final = """
SELECT reader.reader, head.position - reader.position AS events, coalesce((
    SELECT greatest(extract(epoch FROM clock_timestamp() - next.received_at), 0)
    FROM kept.lineage_events AS next WHERE next.position = reader.position + 1
), 0)::float8 AS seconds
FROM kept.log_head AS head, (
    SELECT reader, position FROM kept.log_readers
    UNION ALL
    SELECT %(facts)s, 0 WHERE NOT EXISTS (SELECT FROM kept.log_readers WHERE reader = %(facts)s)
) AS reader
ORDER BY reader.reader
"""


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
    """What a reader of the log has not read yet."""

    reader: str
    events: int
    seconds: float
    """How long the oldest of them has waited."""


def source_totals(connection: psycopg.Connection) -> list[SourceTotals]:
    with connection.cursor(row_factory=class_row(SourceTotals)) as cursor:
        return cursor.execute(_TOTALS).fetchall()


def lags(connection: psycopg.Connection) -> list[Lag]:
    """Of every reader, and of the facts in any case."""
    with connection.cursor(row_factory=class_row(Lag)) as cursor:
        return cursor.execute(_LAGS, {"facts": FACTS}).fetchall()


def lag_of_facts(of_all: list[Lag]) -> Lag:
    return next(lag for lag in of_all if lag.reader == FACTS)


def facts_as_of(connection: psycopg.Connection) -> datetime:
    """Up to when what came over HTTP is in the facts. Asked before the facts, lest it promises too much."""
    row = connection.execute(_FACTS_AS_OF, [FACTS]).fetchone()
    assert row is not None  # noqa: S101 (one row, always)
    at: datetime = row[0]
    return at
