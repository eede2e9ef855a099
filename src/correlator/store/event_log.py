"""The event log: accepted events, appended durably and once, in dense positions and in the order of commits."""

import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Final

import msgspec
import psycopg

from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.formats import Instant
from correlator.rulebook.identity import content_digest, idempotency_key
from correlator.store.rejects import Reject, keep_rejects
from correlator.store.statement import Row, Statement

REMEMBERED: Final = timedelta(hours=24)
"""How long a repeated event is known to be one."""
MOST_EVENTS_A_STATEMENT: Final = 1_000
MOST_BYTES_A_STATEMENT: Final = 16 * 2**20
"""More is appended in several statements: larger ones are no faster, and the database holds each several times."""

_ID_BYTES: Final = 16

APPEND: Final = b"""
SELECT first_position, last_position, duplicates, disputed, was_committed
FROM kept.append_events($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""

# One index probe for each event. Used only where an answer was lost.
_KNOWN: Final = b"""
SELECT known.key, known.digest, known.position
FROM unnest($1, $2, $3) AS said (event_time, key, digest)
JOIN kept.lineage_event_idempotency AS known
  ON known.event_time = said.event_time AND known.key = said.key AND known.digest = said.digest
"""

# Used only where a key is met again in other bytes.
_UNREAD: Final = b"SELECT key, digest, position, event_time FROM kept.unread_events($1, $2, $3)"

_READ: Final = "SELECT position, raw FROM kept.lineage_events WHERE position = ANY (%s)"

_BATCH: Final = "SELECT first_position, last_position FROM kept.ingest_batches WHERE id = %s"

# A group of nothing but disputes is in the ledger too, or else it would look new when it is tried again.
_ENTER: Final = """
INSERT INTO kept.ingest_batches (id, source, committed_at, received, stored, duplicates, rejected)
VALUES (%s, %s, now(), 0, 0, 0, 0)
ON CONFLICT (id) DO NOTHING
"""

_SETTLE: Final = """
UPDATE kept.lineage_event_idempotency SET content = %s::uuid
WHERE event_time = %s::timestamptz AND key = %s::uuid AND digest = %s::uuid
"""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An accepted event on its way into the log."""

    event_time: Instant
    key: bytes
    digest: bytes
    """Of the bytes as received. Only when a key is met again in other bytes are contents compared: nearly every
    repetition is a client that sends the same bytes once more, and reading each event for its content costs a third of
    all that the server does with it."""
    raw: bytes


def entry_of(event: Event) -> Entry:
    raw = event.raw
    return Entry(event.event_time, idempotency_key(event)[:_ID_BYTES], sha256(raw).digest()[:_ID_BYTES], raw)


class Group(msgspec.Struct, frozen=True):
    """What is committed together. Its id makes it safe to try again when the answer of the database got lost."""

    id: uuid.UUID
    source: str
    entries: Sequence[Entry]
    rejects: Sequence[Reject] = ()


class EventLog:
    """The log through one connection, which is in autocommit."""

    def __init__(self, connection: psycopg.Connection, remembered: timedelta = REMEMBERED) -> None:
        self._connection = connection
        self._append_events = Statement(connection, APPEND, APPEND_TYPES)
        self._look_up = Statement(connection, _KNOWN, _KNOWN_TYPES)
        self._look_for_unread = Statement(connection, _UNREAD, _UNREAD_TYPES)
        self._remembered = int(remembered.total_seconds())

    def append(self, group: Group) -> list[bool]:
        """Commit the group. For each entry whether it was stored now; if not, it is a duplicate.

        A group without rejects and disputes is one statement and one round trip; a large one, one for each part.
        """
        stored: list[bool] = []
        for number, part in enumerate(_parts(group.entries)):
            # The first part has the group's id and its rejects.
            identity = uuid.uuid5(group.id, str(number)) if number else group.id
            stored += self._append(Group(identity, group.source, part, () if number else group.rejects))
        return stored

    def head(self) -> int:
        """The position of the newest event."""
        row = self._connection.execute("SELECT position FROM kept.log_head").fetchone()
        assert row is not None  # noqa: S101 (a table of one row)
        return int(row[0])

    def _append(self, group: Group) -> list[bool]:
        if group.rejects:
            with self._connection.transaction():
                answer = self._append_undisputed(group)
                if not answer.was_committed:
                    keep_rejects(self._connection, group.source, group.rejects)
        else:
            answer = self._append_undisputed(group)
        if answer.disputed:
            with self._connection.transaction():
                self._settle(group, answer)
        return answer.stored

    def _append_undisputed(self, group: Group) -> "_Answer":
        first, disputed = _first_of_each(group.entries)
        entries = [group.entries[index] for index in first] if len(first) < len(group.entries) else group.entries
        copies = len(group.entries) - len(first) - len(disputed)
        row = self._call(group.id, group.source, entries, None, copies, len(group.rejects))
        if row.was_committed:
            return self._what_became(group, first, disputed, row)
        new, more_disputed = row.outcome(len(entries))
        stored = [False] * len(group.entries)
        for n in new:
            stored[first[n]] = True
        return _Answer(stored, sorted([*disputed, *(first[n] for n in more_disputed)]), was_committed=False)

    def _call(
        self,
        batch: uuid.UUID,
        source: str,
        entries: Sequence[Entry],
        contents: Sequence[bytes] | None,
        duplicates: int,
        rejected: int,
    ) -> "_Row":
        call = _parameters(batch, source, entries, contents, duplicates, rejected, self._remembered)
        (row,) = self._append_events(*call)
        return _read(row)

    def _what_became(self, group: Group, first: Sequence[int], disputed: Sequence[int], row: "_Row") -> "_Answer":
        """Of a group that had been committed before its answer was lost: what was stored, what is left to settle."""
        settled = self._connection.execute(_BATCH, [_settled_id(group)]).fetchone()
        ranges = [
            range(begin, end + 1)
            for begin, end in ((row.first_position, row.last_position), settled or (None, None))
            if begin is not None and end is not None
        ]
        known = self._positions(group.entries)
        answer = _Answer([False] * len(group.entries), [], was_committed=True)
        for index in (*first, *disputed):
            entry = group.entries[index]
            position = known.get((entry.key, entry.digest))
            answer.stored[index] = any(position in positions for positions in ranges)
            if settled is None and (position is None or index in disputed):
                answer.disputed.append(index)
        answer.disputed.sort()
        return answer

    def _positions(self, entries: Sequence[Entry]) -> dict[tuple[bytes, bytes], int]:
        """Where those of these entries stand that are remembered, by key and digest."""
        times = _times([entry.event_time for entry in entries])
        keys, digests = _ids([entry.key for entry in entries]), _ids([entry.digest for entry in entries])
        return {
            (_id(key), _id(digest)): int(position or 0) for key, digest, position in self._look_up(times, keys, digests)
        }

    def _unread(self, entries: Iterable[Entry]) -> list["_Known"]:
        """What is remembered under the keys of these entries without its content."""
        times = {entry.key: entry.event_time for entry in entries}
        call = _times(list(times.values())), _ids(list(times)), _INTEGER(self._remembered)
        return [
            _Known(_id(key), _id(digest), int(position or 0), (time or b"").decode())
            for key, digest, position, time in self._look_for_unread(*call)
        ]

    def _settle(self, group: Group, answer: "_Answer") -> None:
        """Store those of the disputed whose content is new. No one else can append meanwhile."""
        self._connection.execute("SELECT FROM kept.log_head FOR UPDATE")
        self._connection.execute(_ENTER, [group.id, group.source])
        disputed = [group.entries[index] for index in answer.disputed]
        unread = {known.position: known for known in self._unread(disputed)}
        for position, raw in self._connection.execute(_READ, [list(unread)], binary=True).fetchall():
            known = unread[position]
            said = [_content(raw).hex(), known.event_time, known.key.hex(), known.digest.hex()]
            self._connection.execute(_SETTLE, said)
        new: dict[tuple[bytes, bytes], int] = {}
        for index in answer.disputed:
            entry = group.entries[index]
            new.setdefault((entry.key, _content(entry.raw)), index)
        indexes = list(new.values())
        row = self._call(
            _settled_id(group),
            group.source,
            [group.entries[index] for index in indexes],
            [content for _, content in new],
            len(disputed) - len(new),
            0,
        )
        stored, _ = row.outcome(len(indexes))
        for n in stored:
            answer.stored[indexes[n]] = True


class QuickAppend(msgspec.Struct, frozen=True):
    """The append of a group as the one statement that it nearly always is, for who waits for its answer otherwise.

    Whatever is more than that is left to `EventLog.append`, which can take over at any point: it finds out by the
    group's id what was done.
    """

    group: Group
    first: list[int]
    parameters: tuple[bytes | None, ...]

    @classmethod
    def of(cls, group: Group, remembered: timedelta) -> "QuickAppend | None":
        """None where one statement is not enough: rejects, a large group, one key told in several ways."""
        entries = group.entries
        if group.rejects or len(entries) > MOST_EVENTS_A_STATEMENT or not entries:
            return None
        if sum([len(entry.raw) for entry in entries]) > MOST_BYTES_A_STATEMENT:
            return None
        first, disputed = _first_of_each(entries)
        if disputed:
            return None
        sent = entries if len(first) == len(entries) else [entries[index] for index in first]
        copies = len(entries) - len(first)
        seconds = int(remembered.total_seconds())
        return cls(group, first, _parameters(group.id, group.source, sent, None, copies, 0, seconds))

    def outcome(self, answer: Row) -> list[bool] | None:
        """For each entry whether it was stored; None where only `EventLog.append` can tell."""
        row = _read(answer)
        if row.disputed or row.was_committed:
            return None
        new, _ = row.outcome(len(self.first))
        stored = [False] * len(self.group.entries)
        for n in new:
            stored[self.first[n]] = True
        return stored


class _Row(msgspec.Struct, frozen=True):
    first_position: int | None
    last_position: int | None
    duplicates: frozenset[int]
    disputed: frozenset[int]
    was_committed: bool

    def outcome(self, entries: int) -> tuple[Sequence[int], list[int]]:
        """Indexes of what was stored, and of what is disputed."""
        if not self.duplicates and not self.disputed:
            return range(entries), []
        left_out = self.duplicates | self.disputed
        return [n for n in range(entries) if n not in left_out], sorted(self.disputed)


class _Answer(msgspec.Struct):
    stored: list[bool]
    disputed: list[int]
    was_committed: bool


class _Known(msgspec.Struct, frozen=True):
    key: bytes
    digest: bytes
    position: int
    event_time: str
    """As the database wrote it, to be given back: Python has no date for some of them."""


def _settled_id(group: Group) -> uuid.UUID:
    """The ledger's id for what had to be settled of a group, which is a commit of its own."""
    return uuid.uuid5(group.id, "settled")


def _parts(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """At least one, and none larger than a statement should be."""
    begin = size = 0
    for index, entry in enumerate(entries):
        size += len(entry.raw)
        if index > begin and (size > MOST_BYTES_A_STATEMENT or index - begin >= MOST_EVENTS_A_STATEMENT):
            yield entries[begin:index]
            begin, size = index, len(entry.raw)
    yield entries[begin:] if begin else entries


def _first_of_each(entries: Sequence[Entry]) -> tuple[list[int], list[int]]:
    """Indexes of the first entry with each key, and of those that say something else under a key of this group."""
    seen: dict[bytes, bytes | set[bytes]] = {}
    first, disputed = [], []
    for index, entry in enumerate(entries):
        digests = seen.setdefault(entry.key, entry.digest)
        if digests is entry.digest:
            first.append(index)
            continue
        if isinstance(digests, bytes):
            digests = seen[entry.key] = {digests}
        if entry.digest not in digests:
            digests.add(entry.digest)
            disputed.append(index)
    return first, disputed


def _content(raw: bytes) -> bytes:
    event = judge(raw)
    # What the log holds was accepted once, perhaps by other rules than today's.
    digest = sha256(raw).digest() if isinstance(event, Rejection) else content_digest(event)
    return digest[:_ID_BYTES]


# PostgreSQL's binary forms, made here without an object for each element: an append is nearly nothing else.

_EPOCH: Final = 946_684_800_000_000
"""PostgreSQL counts microseconds from the year 2000."""
_INTEGER: Final[Callable[[int], bytes]] = struct.Struct("!i").pack
_TIME: Final[Callable[[int, int], bytes]] = struct.Struct("!iq").pack
_ARRAY: Final = struct.Struct("!iiiii").pack
_ID_LENGTH: Final = _INTEGER(_ID_BYTES)
_TYPES: Final = psycopg.adapters.types
_TIME_TYPE: Final = _TYPES["timestamptz"].oid
_ID_TYPE: Final = _TYPES["uuid"].oid
_TEXT_TYPE: Final = _TYPES["bytea"].oid
APPEND_TYPES: Final = [
    _ID_TYPE,
    _TYPES["text"].oid,
    _TYPES["timestamptz"].array_oid,
    *[_TYPES["uuid"].array_oid] * 3,
    _TYPES["bytea"].array_oid,
    *[_TYPES["int4"].oid] * 3,
]
_KNOWN_TYPES: Final = [_TYPES["timestamptz"].array_oid, *[_TYPES["uuid"].array_oid] * 2]
_UNREAD_TYPES: Final = [_TYPES["timestamptz"].array_oid, _TYPES["uuid"].array_oid, _TYPES["int4"].oid]


def _parameters(  # noqa: PLR0917 (one for each argument of the SQL function)
    batch: uuid.UUID,
    source: str,
    entries: Sequence[Entry],
    contents: Sequence[bytes] | None,
    duplicates: int,
    rejected: int,
    remembered_seconds: int,
) -> tuple[bytes | None, ...]:
    return (
        batch.bytes,
        source.encode(),
        _times([entry.event_time for entry in entries]),
        _ids([entry.key for entry in entries]),
        _ids([entry.digest for entry in entries]),
        None if contents is None else _ids(contents),
        _texts([entry.raw for entry in entries]),
        _INTEGER(duplicates),
        _INTEGER(rejected),
        _INTEGER(remembered_seconds),
    )


def _read(row: Row) -> _Row:
    first, last, known, disputed, was_committed = row
    return _Row(
        None if first is None else int(first),
        None if last is None else int(last),
        _ordinals(known),
        _ordinals(disputed),
        was_committed == b"t",
    )


def _times(instants: Sequence[Instant]) -> bytes:
    return _array(_TIME_TYPE, len(instants)) + b"".join([_TIME(8, instant - _EPOCH) for instant in instants])


def _ids(ids: Sequence[bytes]) -> bytes:
    return _array(_ID_TYPE, len(ids)) + b"".join([_ID_LENGTH + value for value in ids])


def _texts(texts: Sequence[bytes]) -> bytes:
    parts = [_array(_TEXT_TYPE, len(texts))]
    for text in texts:
        parts += (_INTEGER(len(text)), text)
    return b"".join(parts)


def _array(element: int, length: int) -> bytes:
    """One dimension, no nulls, the element's type, how many, counted from 1."""
    return _ARRAY(1, 0, element, length, 1)


def _id(text: bytes | None) -> bytes:
    return bytes.fromhex((text or b"").replace(b"-", b"").decode())


def _ordinals(array: bytes | None) -> frozenset[int]:
    """Indexes from 0, of `{1,2}`."""
    return (
        frozenset([int(number) - 1 for number in array[1:-1].split(b",")]) if array and array != b"{}" else frozenset()
    )
