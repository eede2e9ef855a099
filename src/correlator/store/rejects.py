"""Refused events, kept as they were received, with the reason, so that they can be looked at and driven in again."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from correlator.rulebook.events import Kind
from correlator.rulebook.naming import storable
from correlator.rulebook.problems import ROOT, Problem

MOST_PROBLEMS: Final = 100
LONGEST_TEXT: Final = 1_000
LONGEST_SENTENCE: Final = 10_000
"""Of the words about an event no more is kept: a path is as long as a key of the event, which may have megabytes, and a
thousand problems repeat it a thousand times. The event itself is kept whole."""

CHUNK_EVENTS: Final = 1_000
CHUNK_BYTES: Final = 16 * 2**20

COLUMNS: Final = {
    "source": "text",
    "layer": "int2",
    "path": "text",
    "rule": "text",
    "sentence": "text",
    "problems": "jsonb",
    "kind": "text",
    "producer": "text",
    "sent_by": "text",
    "correlation_id": "text",
    "raw": "bytea",
    "kept_bytes": "int4",
}
"""What is written of a rejected event, with its types."""

_KEEP: Final = f"COPY kept.rejected_events ({', '.join(COLUMNS)}) FROM STDIN (FORMAT BINARY)"

_COUNT: Final = "UPDATE kept.reject_totals SET events = events + %s, bytes = bytes + %s"

_COLUMNS: Final = """
id, rejected_at, source, layer, path, rule, sentence, kind, producer, sent_by, correlation_id,
octet_length(raw) AS bytes, redriven_at, redriven_as
"""

_SELECTED: Final = """
    (%(ids)s::bigint[] IS NULL OR id = ANY (%(ids)s))
AND (%(rules)s::text[] IS NULL OR EXISTS (
        SELECT FROM unnest(%(rules)s) AS said (rule)
        WHERE problems @> jsonb_build_array(jsonb_build_object('rule', said.rule))
    ))
AND (%(layer)s::int IS NULL OR layer = %(layer)s)
AND (%(producer)s::text IS NULL OR strpos(lower(producer), lower(%(producer)s)) > 0)
AND (%(source)s::text IS NULL OR source = %(source)s)
AND (%(since)s::timestamptz IS NULL OR rejected_at >= %(since)s)
AND (%(until)s::timestamptz IS NULL OR rejected_at < %(until)s)
AND (NOT %(not_redriven)s::boolean OR redriven_at IS NULL)
"""

# Down the primary key until there are enough.
_LIST: Final = f"""
SELECT {_COLUMNS} FROM kept.rejected_events
WHERE (%(before)s::bigint IS NULL OR id < %(before)s) AND {_SELECTED}
ORDER BY id DESC LIMIT %(limit)s
"""  # noqa: S608 (constants of this module)

# Up the primary key, page by page, to what was the newest at the beginning. No event is read for its size.
_SIZES: Final = f"""
SELECT id, octet_length(raw) FROM kept.rejected_events
WHERE id > %(after)s AND id <= %(last)s AND {_SELECTED}
ORDER BY id LIMIT %(limit)s
"""  # noqa: S608

_READ: Final = f"SELECT {_COLUMNS}, problems, raw FROM kept.rejected_events WHERE id = ANY (%s) ORDER BY id"  # noqa: S608

_TOTALS: Final = """
SELECT events, bytes, capped_events, capped_bytes, last_capped_at FROM kept.reject_totals
"""


class Reject(msgspec.Struct, frozen=True, kw_only=True):
    """An event on its way to the rejected ones."""

    raw: bytes
    layer: int
    problems: tuple[Problem, ...]
    kind: Kind | None = None
    producer: str | None = None
    sent_by: str | None = None
    """The name of the sender's key."""
    correlation_id: str | None = None


class Reason(msgspec.Struct, frozen=True):
    """A problem as it was written down, perhaps by a version that had other rules."""

    path: str
    rule: str
    message: str


class RejectedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a rejected event without the event itself. Path and rule are of the first reason."""

    id: int
    rejected_at: datetime
    source: str
    layer: int
    rule: str
    path: str
    sentence: str
    kind: str | None
    producer: str | None
    sent_by: str | None
    correlation_id: str | None
    bytes: int
    redriven_at: datetime | None
    redriven_as: int | None
    """Its position in the log; none if it was there already."""


class WholeRejectedEvent(RejectedEvent, frozen=True, kw_only=True):
    problems: tuple[Reason, ...]
    raw: bytes

    def __post_init__(self) -> None:
        # From the database they come as plain dictionaries.
        msgspec.structs.force_setattr(self, "problems", msgspec.convert(self.problems, tuple[Reason, ...]))


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which rejected events. What is not said does not matter."""

    ids: tuple[int, ...] | None = None
    rules: tuple[str, ...] | None = None
    """Any of them among the reasons."""
    layer: int | None = None
    producer: str | None = None
    """A part of it, in any case."""
    source: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    not_redriven: bool = False


class RejectTotals(msgspec.Struct, frozen=True):
    events: int
    bytes: int
    capped_events: int
    """Removed before their time, because all of them took more than they may."""
    capped_bytes: int
    last_capped_at: datetime | None


def keep_rejects(connection: psycopg.Connection, source: str, rejects: Sequence[Reject]) -> None:
    """Within the caller's transaction."""
    if not rejects:
        return
    taken = 0
    with connection.cursor() as cursor, cursor.copy(_KEEP.encode()) as copy:
        copy.set_types(list(COLUMNS.values()))
        for reject in rejects:
            row, size = row_of(source, reject)
            copy.write_row(row)
            taken += size
    connection.execute(_COUNT, [len(rejects), taken])


def list_rejects(
    connection: psycopg.Connection, selection: Selection, *, limit: int, before: int | None = None
) -> list[RejectedEvent]:
    """The newest first."""
    said = {**_said(selection), "limit": limit, "before": before}
    with connection.cursor(row_factory=class_row(RejectedEvent)) as cursor:
        return cursor.execute(_LIST, said).fetchall()


def read_rejects(connection: psycopg.Connection, ids: Iterable[int]) -> list[WholeRejectedEvent]:
    """With the events themselves, the oldest first. What is not there is left out."""
    with connection.cursor(row_factory=class_row(WholeRejectedEvent), binary=True) as cursor:
        return cursor.execute(_READ, [list(ids)]).fetchall()


def reject_totals(connection: psycopg.Connection) -> RejectTotals:
    with connection.cursor(row_factory=class_row(RejectTotals)) as cursor:
        totals = cursor.execute(_TOTALS).fetchone()
    assert totals is not None  # noqa: S101 (a table of one row)
    return totals


def chunks(
    connection: psycopg.Connection,
    selection: Selection,
    *,
    most_events: int = CHUNK_EVENTS,
    most_bytes: int = CHUNK_BYTES,
) -> Iterator[list[int]]:
    """The ids of all that are selected and are there now, the oldest first, as many at a time as memory has room for.

    A single event may be larger.
    """
    row = connection.execute("SELECT coalesce(max(id), 0) FROM kept.rejected_events").fetchone()
    said = {**_said(selection), "after": 0, "last": row and row[0], "limit": most_events}
    while True:
        page = connection.execute(_SIZES, said).fetchall()
        chunk: list[int] = []
        taken = 0
        for number, size in page:
            if chunk and taken + size > most_bytes:
                yield chunk
                chunk, taken = [], 0
            chunk.append(number)
            taken += size
        if chunk:
            yield chunk
        if len(page) < most_events:
            return
        said["after"] = page[-1][0]


def _said(selection: Selection) -> dict[str, Any]:
    """The parameters of a query. Only a list is an array to the driver; a tuple would be a row."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in msgspec.structs.asdict(selection).items()
    }


def row_of(source: str, reject: Reject) -> tuple[tuple[object, ...], int]:
    """The columns above, and what they take."""
    problems = [
        Problem(_short(problem.path), problem.rule, _short(problem.message))
        for problem in reject.problems[:MOST_PROBLEMS]
    ]
    if more := len(reject.problems) - len(problems):
        problems.append(Problem(ROOT, "more_problems", f"and {more:,} more, which are not kept"))
    first = problems[0]
    sentence = _short("; ".join([problem.message for problem in problems]), LONGEST_SENTENCE)
    said = msgspec.json.encode(problems)
    size = len(reject.raw) + len(said) + len(sentence.encode())
    row = (
        source,
        reject.layer,
        first.path,
        first.rule,
        sentence,
        Jsonb(said, dumps=bytes),
        reject.kind,
        None if reject.producer is None else _short(reject.producer),
        None if reject.sent_by is None else storable(reject.sent_by),
        None if reject.correlation_id is None else storable(reject.correlation_id),
        reject.raw,
        size,
    )
    return row, size


def _short(text: str, longest: int = LONGEST_TEXT) -> str:
    return storable(text if len(text) <= longest else f"{text[: longest - 1]}…")
