"""The database held against the story: sentences about what is wrong, none if all is well."""

import json
from collections.abc import Iterator

import psycopg

from tests.chaos.story import MARK, Story

_SHOWN = 5

_COUNTS = """
SELECT head.position,
       (SELECT count(*) FROM kept.lineage_events),
       (SELECT count(*) FROM kept.lineage_event_idempotency),
       (SELECT count(*) FROM kept.rejected_events),
       (SELECT events FROM kept.reject_totals),
       coalesce(totals.received, 0), coalesce(totals.stored, 0),
       coalesce(totals.duplicates, 0), coalesce(totals.rejected, 0)
FROM kept.log_head AS head LEFT JOIN kept.ingest_totals AS totals ON true
"""

# Group commits lie behind each other without a gap.
_GAPS = """
SELECT first_position, before FROM (
    SELECT first_position, coalesce(lag(last_position) OVER (ORDER BY first_position), 0) AS before
    FROM kept.ingest_batches WHERE first_position IS NOT NULL
) AS batches WHERE first_position <> before + 1
"""

_UNKNOWN = """
SELECT log.position FROM kept.lineage_events AS log
LEFT JOIN kept.lineage_event_idempotency AS known ON known.position = log.position
WHERE known.position IS NULL
"""


class Verdict:
    """Remembers what it has read, so that a check costs what is new."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._positions: dict[str, int] = {}
        self._read = 0
        self._last_received = None

    def findings(self, connection: psycopg.Connection) -> list[str]:
        """Nobody may be sending meanwhile."""
        with self._story.lock:
            return [
                *self._story.findings,
                *self._in_the_log(connection),
                *self._in_the_ledger(connection),
                *self._among_the_rejects(connection),
            ]

    def _in_the_log(self, connection: psycopg.Connection) -> Iterator[str]:
        story = self._story
        rows = connection.execute(
            "SELECT position, received_at, raw FROM kept.lineage_events WHERE position > %s ORDER BY position",
            [self._read],
            binary=True,
        )
        for position, received_at, raw in rows:
            if position != self._read + 1:
                yield f"position {position} follows {self._read}"
            self._read = position
            if self._last_received is not None and received_at < self._last_received:
                yield f"position {position} was received before its predecessor"
            self._last_received = received_at
            mark = json.loads(raw)[MARK]
            if mark in self._positions:
                yield f"{mark} is stored twice, at {self._positions[mark]} and {position}"
            self._positions[mark] = position
            if bytes(raw) not in story.raws[mark]:
                yield f"{mark} is stored in bytes that nobody has sent"
        if missing := story.kept - self._positions.keys():
            yield f"{len(missing)} acknowledged events are not in the log: {sorted(missing)[:_SHOWN]}"
        if lies := [mark for mark, count in story.told_stored.items() if count > 1]:
            yield f"{len(lies)} events were called stored more than once: {sorted(lies)[:_SHOWN]}"

    def _in_the_ledger(self, connection: psycopg.Connection) -> Iterator[str]:
        story = self._story
        row = connection.execute(_COUNTS).fetchone()
        assert row is not None
        head, in_log, known, rejects, reject_total, received, stored, duplicates, rejected = row
        if received != stored + duplicates + rejected:
            yield f"the ledger: {received} received, but {stored} stored, {duplicates} duplicates, {rejected} rejected"
        if not head == in_log == stored == known == len(self._positions):
            yield f"{in_log} in the log, head {head}, ledger {stored}, keys {known}, read {len(self._positions)}"
        if not rejects == reject_total == rejected:
            yield f"{rejects} rejected events are kept, counted {reject_total}, ledger {rejected}"
        if not story.answered <= received <= story.attempted:
            yield f"the ledger has {received} received; {story.answered} were answered, {story.attempted} attempted"
        if rejected < story.answered_refused:
            yield f"the ledger has {rejected} rejected; {story.answered_refused} were answered so"
        for first, before in connection.execute(_GAPS).fetchall():
            yield f"a group commit begins at {first}, the one before ends at {before}"
        for (position,) in connection.execute(_UNKNOWN).fetchall()[:_SHOWN]:
            yield f"position {position} has no key"

    def _among_the_rejects(self, connection: psycopg.Connection) -> Iterator[str]:
        story = self._story
        kept = {
            bytes(raw): count
            for raw, count in connection.execute(
                "SELECT raw, count(*) FROM kept.rejected_events GROUP BY raw", binary=True
            )
        }
        if missing := story.refused - kept.keys():
            yield f"{len(missing)} refused events are not kept: {sorted(missing)[:_SHOWN]}"
        for raw, count in kept.items():
            if count > story.refusals_attempted[raw]:
                yield f"kept {count} times among the rejects, sent {story.refusals_attempted[raw]} times: {raw[:200]!r}"
