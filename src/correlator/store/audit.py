"""Whether every event is where it should be, as far as the database can tell: the log, the ledgers, the manifest.

Nothing is locked that anybody waits for, and nothing is read that could run ahead: how far something goes is asked
first, and then whether all is there up to that point. So an audit may run while events come in and are merged.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
import psycopg
from psycopg import sql
from psycopg.rows import class_row
from psycopg.types.multirange import Multirange

from correlator.store.ledger import LOG, Lag, lag_of, lags, source_totals
from correlator.store.merge import FACTS
from correlator.store.retention import ARCHIVE

MOST_NAMED: Final = 10
"""Holes, files and directories that a sentence names; of the others it says how many there are."""

Outcome: TypeAlias = Literal["ok", "wrong", "unknown"]
Span: TypeAlias = tuple[int, int]
"""Positions from the first to the last."""


class Check(msgspec.Struct):
    """What was found about one thing."""

    name: str
    said: str = ""
    """The state of it in a few words."""
    wrong: list[str] = []
    """A sentence for each thing that is missing or wrong: which, where, and what to do."""
    unknown: list[str] = []
    """What could not be looked at, and why."""
    notes: list[str] = []
    """What is worth knowing and not wrong."""
    missing: int = 0
    """Events that are known to be missing."""
    positions: list[Span] = []
    """Where in the log they lie, as far as they do."""

    def miss(self, spans: Sequence[Span]) -> None:
        self.missing += _count(spans)
        self.positions += spans

    @property
    def outcome(self) -> Outcome:
        return "wrong" if self.wrong else "unknown" if self.unknown else "ok"


class SourceBalance(msgspec.Struct):
    """Received = stored + duplicates + rejected, for one way in."""

    source: str
    received: int
    stored: int
    duplicates: int
    rejected: int
    missing: int = 0


class ArchivedBatch(msgspec.Struct, frozen=True):
    """A row of the archive's manifest."""

    source: str
    directory: str
    events: int
    rejected: int
    first_position: int | None
    last_position: int | None


class OriginRead(msgspec.Struct, frozen=True):
    """How far one reader has read a file, or the partition of a topic."""

    reader: str
    origin: str
    position: int | None
    size: int | None
    modified_ms: int | None
    incarnation: str | None = None
    """Of a topic."""


# --- the log


_HEAD: Final = """
SELECT head.position, coalesce((SELECT sum(stored) FROM kept.ingest_totals), 0)::bigint FROM kept.log_head AS head
"""

_UNTOLD: Final = """
SELECT int8multirange(int8range(1, %s, '[]')) - coalesce(range_agg(told.positions), '{}')
FROM (
    SELECT int8range(first_position, last_position, '[]') AS positions
    FROM kept.ingest_batches WHERE first_position IS NOT NULL
    UNION ALL
    SELECT int8range(first_position, last_position, '[]') FROM kept.ingest_days WHERE first_position IS NOT NULL
) AS told
"""

# In the order of their days, and so of their positions.
_PARTITIONS: Final = """
SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
WHERE inhparent = 'kept.lineage_events'::regclass ORDER BY child.relname
"""

# The primary key alone is read, never an event.
_EXTENT: Final = "SELECT count(*), min(position), max(position) FROM kept.{} WHERE position <= %s"
_HOLES: Final = """
SELECT position + 1, next - 1 FROM (
    SELECT position, lead(position) OVER (ORDER BY position) AS next FROM kept.{} WHERE position <= %s
) AS neighbours
WHERE next > position + 1 ORDER BY position
"""

_READERS: Final = "SELECT reader, position FROM kept.log_readers ORDER BY reader"


def check_log(connection: psycopg.Connection) -> Check:
    """Positions are dense from the oldest that is kept to the head; no reader was left behind by what was dropped."""
    check = Check("log")
    # A day that is dropped meanwhile would look like a hole; whoever drops does not wait long, and comes again.
    with connection.transaction():
        connection.execute("LOCK TABLE kept.lineage_events IN ACCESS SHARE MODE")
        connection.execute("SET LOCAL enable_seqscan = off")
        readers: dict[str, int] = dict(connection.execute(_READERS).fetchall())
        head, stored = _row(connection, _HEAD)
        oldest, holes = _holes(connection, head)
    dropped = oldest - 1
    if head == 0:
        check.said = "no event yet"
    elif oldest > head:
        check.said = f"up to position {head:,}, of which none is kept any more"
    else:
        check.said = f"positions {oldest:,} to {head:,} are kept"
    if holes:
        check.miss(holes)
        check.wrong.append(
            f"The log has no position {_named(holes)}: {_events(holes)} lost after having been stored. What the facts "
            "or the archive have read before stays; the rest can come back from a backup of the database only."
        )
    for reader, position in readers.items():
        if position > head:
            check.wrong.append(
                f"The reader {reader!r} is at position {position:,}, and the log ends at {head:,}, as after a restore "
                f"of only a part of the database: what is stored from now on would be skipped until {position:,}. Set "
                f"its row of kept.log_readers back to {head:,}."
            )
        elif dropped > position:
            check.miss([(position + 1, dropped)])
            check.wrong.append(
                f"The log begins at position {oldest:,}, and the reader {reader!r} has read up to {position:,}: "
                f"positions {position + 1:,} to {dropped:,} were dropped before it could read them. They can come "
                "back from a backup of the database only."
            )
    if dropped > 0 and ARCHIVE not in readers:
        check.miss([(1, dropped)])
        check.wrong.append(
            f"The log begins at position {oldest:,} although nothing was ever archived: {dropped:,} events are gone "
            "that retention would have left. They can come back from a backup of the database only."
        )
    if stored != head:
        untold = _spans(_row(connection, _UNTOLD, head)[0])
        where = f", with nothing about position {_named(untold)}" if untold else ""
        check.wrong.append(
            f"The log's head is {head:,}, and its ledger tells of {stored:,} stored events{where}: rows of the ledger "
            "(kept.ingest_batches, kept.ingest_days) were removed or changed."
        )
    return check


def _holes(connection: psycopg.Connection, head: int) -> tuple[int, list[Span]]:
    """The oldest position that is kept (after the head if none is), and what is missing from there to the head."""
    holes: list[Span] = []
    oldest = expected = None
    for (name,) in connection.execute(_PARTITIONS).fetchall():
        table = sql.Identifier(name)
        row = connection.execute(sql.SQL(_EXTENT).format(table), [head]).fetchone()
        count, first, last = row or (0, None, None)
        if not count:
            continue
        if expected is not None and first > expected:
            holes.append((expected, first - 1))
        if count < last - first + 1:
            holes += connection.execute(sql.SQL(_HOLES).format(table), [head]).fetchall()
        oldest = first if oldest is None else oldest
        expected = last + 1
    if expected is not None and expected <= head:
        holes.append((expected, head))
    return (head + 1 if oldest is None else oldest), holes


# --- the pipeline's ledger


_READ_BY: Final = "SELECT position FROM kept.log_readers WHERE reader = %s"

# Batches may overlap, because one may be repeated under another checkpoint. What none has read is left over.
_UNREAD: Final = """
SELECT int8multirange(int8range(1, %(position)s, '[]')) - coalesce(range_agg(told.positions), '{}')
FROM (
    SELECT int8multirange(int8range(first_position, last_position, '[]')) AS positions
    FROM kept.pipeline_batches WHERE source = %(source)s AND first_position IS NOT NULL
    UNION ALL
    SELECT positions FROM kept.pipeline_days WHERE source = %(source)s
) AS told
"""

_UNEVEN: Final = """
SELECT batch_id, read, first_position, last_position, query_id FROM kept.pipeline_batches
WHERE source = %s AND read <> coalesce(last_position - first_position + 1, 0)
ORDER BY committed_at LIMIT %s
"""

_TOTALS_DIFFER: Final = """
SELECT coalesce(total.source, ledger.source), coalesce(total.read, 0)::bigint, coalesce(ledger.read, 0)::bigint
FROM kept.pipeline_totals AS total
FULL JOIN (
    SELECT source, sum(batches) AS batches, sum(read) AS read, sum(applied) AS applied,
           sum(duplicates) AS duplicates, sum(rejected) AS rejected
    FROM (
        SELECT source, 1 AS batches, read, applied, duplicates, rejected FROM kept.pipeline_batches
        UNION ALL
        SELECT source, batches, read, applied, duplicates, rejected FROM kept.pipeline_days
    ) AS rows GROUP BY source
) AS ledger USING (source)
WHERE (total.batches, total.read, total.applied, total.duplicates, total.rejected)
      IS DISTINCT FROM (ledger.batches, ledger.read, ledger.applied, ledger.duplicates, ledger.rejected)
ORDER BY 1
"""


def check_facts(connection: psycopg.Connection) -> Check:
    """The ledger of the pipeline: every position of the log up to the facts' reader was read by some batch."""
    check = Check("facts")
    found = connection.execute(_READ_BY, [FACTS]).fetchone()
    position = int(found[0]) if found else 0
    if position:
        unread = _spans(_row(connection, _UNREAD, {"position": position, "source": LOG})[0])
        if unread:
            check.miss(unread)
            check.wrong.append(
                f"No batch of the pipeline has read position {_named(unread)} of the log, although its reader is at "
                f"{position:,}: {_events(unread)} may be missing in the facts. `correlator pipeline replay` makes the "
                "facts anew from the archive and the log."
            )
    for batch, read, first, last, query in connection.execute(_UNEVEN, [LOG, MOST_NAMED]).fetchall():
        if first is None:
            lies = f"tells no positions of the {read:,} events that it read"
        else:
            lies = f"read {read:,} events of the positions {first:,} to {last:,}, which are {last - first + 1:,}"
            check.missing += max(0, last - first + 1 - read)
        check.wrong.append(f"Batch {batch} of query {query} {lies}. `correlator pipeline replay` makes the facts anew.")
    for source, total, read in connection.execute(_TOTALS_DIFFER).fetchall():
        check.wrong.append(
            f"Of the source {source} the ledger's batches tell of {read:,} events read, and its totals of {total:,}: "
            "rows of kept.pipeline_batches, kept.pipeline_days or kept.pipeline_totals were removed or changed."
        )
    lag = lag_of(lags(connection), LOG, FACTS)
    check.said = f"the log is read up to position {position:,}, {_behind(lag)}"
    check.notes += [
        f"{total.source}: {total.read:,} read = {total.applied:,} applied + {total.duplicates:,} duplicate + "
        f"{total.rejected:,} rejected, in {total.batches:,} batches"
        for total in source_totals(connection)
    ]
    return check


# --- the archive's manifest


_MANIFEST: Final = """
SELECT source, directory, events, rejected, first_position, last_position FROM kept.archive_batches
ORDER BY source, first_position, written_at, directory
"""


def archived_batches(connection: psycopg.Connection) -> list[ArchivedBatch]:
    with connection.cursor(row_factory=class_row(ArchivedBatch)) as cursor:
        return cursor.execute(_MANIFEST).fetchall()


def check_manifest(connection: psycopg.Connection, check: Check) -> list[ArchivedBatch]:
    """The log's batches follow each other without gap and overlap up to the archive's reader."""
    found = connection.execute(_READ_BY, [ARCHIVE]).fetchone()
    batches = archived_batches(connection)
    position = int(found[0]) if found else 0
    expected = 1
    unarchived: list[Span] = []
    for batch in batches:
        if batch.source != LOG:
            continue
        first, last = batch.first_position, batch.last_position
        if first is None or last is None or batch.events + batch.rejected != last - first + 1:
            check.wrong.append(
                f"{batch.directory} of the archive tells of {batch.events:,} events and {batch.rejected:,} rejected "
                f"ones from the positions {_text(first)} to {_text(last)}: that does not add up."
            )
            check.missing += 0 if first is None or last is None else max(0, last - first + 1 - batch.events)
        if first is None or last is None:
            continue
        if first > expected:
            unarchived.append((expected, first - 1))
        elif first < expected:
            check.wrong.append(
                f"{batch.directory} of the archive begins at position {first:,}, and what was archived before it goes "
                f"to {expected - 1:,}: {min(last + 1, expected) - first:,} events are archived twice. Facts do not "
                "mind, but whoever counts the archive's events does."
            )
        expected = max(expected, last + 1)
    if expected <= position:
        unarchived.append((expected, position))
    if unarchived:
        check.miss(unarchived)
        check.wrong.append(
            f"No directory of the archive has position {_named(unarchived)} of the log, although its reader is at "
            f"{position:,}: {_events(unarchived)} are not archived."
        )
    lag = lag_of(lags(connection), LOG, ARCHIVE)
    if lag is None:
        check.said = "nothing of the log is archived yet"
    else:
        check.said = f"the log is archived up to position {position:,}, {_behind(lag)}"
    return batches


def _behind(lag: Lag | None) -> str:
    return f"{lag.events:,} events ({lag.seconds:,.1f} s) behind" if lag and lag.events > 0 else "nothing waits"


# --- where each source stands


_INGESTED: Final = "SELECT source, received, stored, duplicates, rejected FROM kept.ingest_totals ORDER BY source"

# What several checks miss is missing once.
_LOST: Final = """
WITH lost AS (
    SELECT range_agg(int8range(first, last, '[]')) AS positions
    FROM unnest(%s::bigint[], %s::bigint[]) AS span (first, last)
)
SELECT batch.source, sum(upper(part) - lower(part))::bigint
FROM lost, kept.ingest_batches AS batch,
     unnest(int8multirange(int8range(batch.first_position, batch.last_position, '[]')) * lost.positions) AS part
WHERE batch.first_position IS NOT NULL
  AND int8range(batch.first_position, batch.last_position, '[]') && lost.positions
GROUP BY batch.source
"""

_LENGTH: Final = """
SELECT sum(upper(part) - lower(part))::bigint FROM (
    SELECT unnest(range_agg(int8range(first, last, '[]'))) AS part
    FROM unnest(%s::bigint[], %s::bigint[]) AS span (first, last)
) AS parts
"""

_ORIGINS: Final = """
SELECT reader, origin, position, size, (extract(epoch FROM modified_at) * 1000)::bigint AS modified_ms,
       incarnation
FROM kept.source_origins WHERE source = %s ORDER BY origin, reader
"""


def balances(connection: psycopg.Connection, lost: Sequence[Span]) -> list[SourceBalance]:
    """Every way in, with what became of what came that way: over HTTP, and into the pipeline from elsewhere.

    What was lost of the log counts with the source that its batch came from; where the ledger has only days left, with
    the one that has stored the most.
    """
    with connection.cursor(row_factory=class_row(SourceBalance)) as cursor:
        found = cursor.execute(_INGESTED).fetchall()
    if lost:
        bounds = [first for first, _ in lost], [last for _, last in lost]
        left = int(_row(connection, _LENGTH, *bounds)[0])
        by_source: dict[str, int] = dict(connection.execute(_LOST, bounds).fetchall())
        for balance in found:
            balance.missing = by_source.get(balance.source, 0)
            left -= balance.missing
        if left and not found:
            found.append(SourceBalance(LOG, 0, 0, 0, 0))
        max(found, key=lambda balance: balance.stored).missing += left
    for total in source_totals(connection):
        if total.source != LOG:
            found.append(SourceBalance(total.source, total.read, total.applied, total.duplicates, total.rejected))
    return found


def origins_read(connection: psycopg.Connection, source: str) -> list[OriginRead]:
    with connection.cursor(row_factory=class_row(OriginRead)) as cursor:
        return cursor.execute(_ORIGINS, [source]).fetchall()


_LOSSES: Final = """
SELECT source, reader, sentence, events, noticed_at, settled_at IS NOT NULL FROM kept.source_losses ORDER BY id
"""
_SETTLE: Final = "UPDATE kept.source_losses SET settled_at = now() WHERE settled_at IS NULL"


def check_losses(connection: psycopg.Connection, checks: list[Check]) -> None:
    """What the pipeline has passed by because its source no longer had it. Told until somebody has taken note."""
    by_name = {check.name: check for check in checks}
    for source, reader, sentence, events, noticed_at, is_settled in connection.execute(_LOSSES).fetchall():
        check = by_name.get(source)
        if check is None:
            checks.append(check := by_name.setdefault(source, Check(source)))
        told = f"{noticed_at:%Y-%m-%d %H:%M} UTC, for the {reader}: {sentence}"
        if is_settled:
            check.notes.append(f"{told} (settled)")
        else:
            check.wrong.append(f"{told}. Take note with `correlator audit --settle`.")
            check.missing += events if reader == FACTS else 0


def settle_losses(connection: psycopg.Connection) -> int:
    """Take note of what was lost at a source, and say how many times: it is no longer told as wrong."""
    return connection.execute(_SETTLE).rowcount


# --- words


def named(things: Sequence[str]) -> str:
    """The first few of them, and how many there are beside."""
    more = len(things) - MOST_NAMED
    return ", ".join(things[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _named(spans: Sequence[Span]) -> str:
    return named([f"{first:,}" if first == last else f"{first:,} to {last:,}" for first, last in spans])


def _events(spans: Sequence[Span]) -> str:
    count = _count(spans)
    return f"{count:,} event" if count == 1 else f"{count:,} events"


def _count(spans: Iterable[Span]) -> int:
    return sum(last - first + 1 for first, last in spans)


def _text(position: int | None) -> str:
    return "?" if position is None else f"{position:,}"


def _spans(ranges: Multirange[int]) -> list[Span]:
    return list(_bounds(ranges))


def _bounds(ranges: Multirange[int]) -> Iterator[Span]:
    for one in ranges:
        if one.lower is not None and one.upper is not None:
            yield one.lower, one.upper - 1


def _row(connection: psycopg.Connection, query: str, *parameters: Any) -> tuple[Any, ...]:
    given = parameters[0] if parameters and isinstance(parameters[0], dict) else parameters
    row = connection.execute(query.encode(), given).fetchone()
    assert row is not None  # noqa: S101 (each has a row, whatever there is)
    return row
