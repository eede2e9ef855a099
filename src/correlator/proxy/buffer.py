"""The event log on local disk: an SQLite file with a table for each partition, written by one thread.

Events are appended in one global order: that of partitions, and within one that of its rows. Whoever reads (a consumer
for each destination) has a connection of its own, and a checkpoint that says how far it is. A partition is removed
whole, when every destination is past it, or when it is too old or there is too much: that is the only way in which an
event leaves the buffer, and where a destination has not had it yet, it is counted and told.

Every step of SQLite lets another thread run, and gets its turn back only when that one pauses. So a group of events is
appended by one statement, which is a transaction of its own, and a batch read by two, however many events there are.
"""

import fcntl
import logging
import os
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from time import strftime
from typing import Final, Literal, NamedTuple, TypeAlias

from correlator.proxy.clock import Clock, Reading

FILE_NAME: Final = "buffer.db"
_LOCK_NAME: Final = "buffer.lock"
_VERSION: Final = 1
_PAGE_BYTES: Final = 8192
_WAL_PAGES: Final = 1000
"""The log before the database (WAL) is copied into it after so many pages, 8 MB."""
_MOST_AT_ONCE: Final = 2**21
"""Bytes of events in one statement, which holds them twice."""
_VACUUM_PAGES: Final = 512
"""What is given back to the disk in one step, 4 MB: an event that comes meanwhile does not wait long."""
_BUSY_SECONDS: Final = 5.0
_SEPARATOR: Final = b"\x1e"
"""A control character, which JSON has nowhere."""

_SCHEMA: Final = """
CREATE TABLE partitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never the same again
    name TEXT NOT NULL UNIQUE,
    current INTEGER NOT NULL,
    size INTEGER NOT NULL DEFAULT 0,       -- bytes of messages
    events INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL               -- seconds since 1970
) STRICT;
CREATE UNIQUE INDEX partitions_current ON partitions (current) WHERE current;
CREATE TABLE checkpoint (
    destination TEXT PRIMARY KEY,
    partition_id INTEGER NOT NULL,
    "offset" INTEGER NOT NULL              -- the last row that is settled; 0 before the first
) STRICT;
CREATE TABLE clock (                       -- as it was at the last collection
    boot_id TEXT NOT NULL,
    since_boot REAL NOT NULL,
    wall REAL NOT NULL,
    partition_id INTEGER NOT NULL          -- the current one
) STRICT;
"""

# What is short stands before the event, so that choosing a batch reads no overflow pages.
_PARTITION: Final = """
CREATE TABLE {name} (
    id INTEGER PRIMARY KEY,
    received_at REAL NOT NULL,
    size INTEGER NOT NULL,
    continue INTEGER NOT NULL,             -- 0 in the last row of a partition that is closed
    event TEXT NOT NULL
) STRICT
"""
# Where a group of events is inserted: all of them behind each other in one value, and the size of each in an array.
_GROUP: Final = "CREATE TEMP VIEW event_group AS SELECT 0.0 AS received_at, x'' AS events, '[]' AS sizes"
# The events are cut out of the value one after the other, and what the partition holds is added up: one statement for
# all of that.
_APPENDING: Final = """
CREATE TEMP TRIGGER appending INSTEAD OF INSERT ON event_group
BEGIN
    INSERT INTO {name} (received_at, size, continue, event)
    SELECT NEW.received_at, value, 1, CAST(substr(NEW.events, ends - value + 1, value) AS TEXT)
    FROM (SELECT key, value, sum(value) OVER (ORDER BY key) AS ends FROM json_each(NEW.sizes))
    ORDER BY key;
    UPDATE partitions
    SET size = size + length(NEW.events), events = events + json_array_length(NEW.sizes)
    WHERE id = {id};
END
"""
_APPEND: Final = "INSERT INTO event_group VALUES (?, ?, ?)"
_END: Final = "INSERT INTO {name} (received_at, size, continue, event) VALUES (?, 0, 0, '')"

# One index range of at most LIMIT rows; their sizes are added up without reading the events.
_CHOOSE: Final = """
SELECT max(id), count(*), min(continue), min(received_at)
FROM (
    SELECT id, continue, received_at, sum(size) OVER (ORDER BY id) AS total
    FROM {name} WHERE id > :after ORDER BY id LIMIT :most_events
)
WHERE total <= :most_bytes OR id = :after + 1
"""
_READ: Final = "SELECT group_concat(event, char(30)) FROM {name} WHERE id > ? AND id <= ? AND continue"

_log = logging.getLogger(__name__)

Why: TypeAlias = Literal["age", "size"]


class BufferLockedError(Exception):
    """Another proxy uses the buffer."""


class Position(NamedTuple):
    """How far a destination is: everything up to and including this row is settled."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Partition:
    id: int
    name: str
    is_current: bool
    size: int
    events: int
    created_at: float


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some events that follow each other in one partition."""

    partition: int
    first: int
    """The row of the first event."""
    events: Sequence[bytes]
    received_at: float
    """When the first was received."""
    is_end: bool
    """Whether the partition ends behind it."""

    @property
    def after(self) -> Position:
        """Where it ends."""
        return Position(self.partition, self.first + len(self.events) - 1)


@dataclass(frozen=True, slots=True)
class Limits:
    retention_bytes: int = 100 * 2**20
    retention_seconds: float = 24 * 3600.0
    partition_bytes: int = 100 * 2**20 // 16
    partition_seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class Dropped:
    """A partition that went before every destination had it."""

    partition: Partition
    why: Why


class Reader:
    """What one consumer reads with. It belongs to one thread."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._connection.text_factory = bytes
        self._connection.execute("PRAGMA query_only = ON")

    def read(self, partition: Partition, after: int, *, most_events: int, most_bytes: int) -> Chunk | None:
        """The next events, at least one whatever its size; None if there are none yet, or the partition is gone."""
        try:
            last, count, goes_on, received_at = self._connection.execute(
                _CHOOSE.format(name=partition.name),
                {"after": after, "most_events": most_events, "most_bytes": most_bytes},
            ).fetchone()
            if not count:
                return None
            (joined,) = self._connection.execute(_READ.format(name=partition.name), (after, last)).fetchone()
        except sqlite3.OperationalError as error:
            if is_gone(error):
                return None
            raise
        events = [] if joined is None else joined.split(_SEPARATOR)
        return Chunk(partition.id, after + 1, events, received_at, is_end=not goes_on)

    def close(self) -> None:
        self._connection.close()


class Buffer:
    """The writer's side. Everything but `partitions` and `positions`, which are values, belongs to one thread."""

    def __init__(self, directory: Path, limits: Limits, clock: Clock) -> None:
        self.path = directory / FILE_NAME
        self._limits = limits
        self._clock = clock
        self.partitions: tuple[Partition, ...] = ()
        """The oldest first; the last is the current one."""
        self.positions: dict[str, Position] = {}
        """As they are on disk."""
        self._lock = _locked(directory)
        try:
            self._connection = self._open()
        except BaseException:
            os.close(self._lock)
            raise

    # --- opening and closing

    def _open(self) -> sqlite3.Connection:
        try:
            connection = self._connected()
        except sqlite3.DatabaseError as error:
            if not is_corrupt(error):
                raise
            self._set_aside(error)
            connection = self._connected()
        return connection

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            # The first two count for a new file only.
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {2 * _WAL_PAGES * _PAGE_BYTES}")
            # Of what is temporary there is no more than a definition.
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(_GROUP)
            self._prepare(connection)
            self._load(connection)
            if self.partitions:
                _aim(connection, self.partitions[-1])
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > _VERSION:
            raise BufferLockedError(f"{self.path} was written by a newer Correlator. Use that one.")
        if version == 0:
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT")

    def _load(self, connection: sqlite3.Connection) -> None:
        rows = connection.execute("SELECT id, name, current, size, events, created_at FROM partitions ORDER BY id")
        self.partitions = tuple(
            Partition(id_, name, bool(current), size, events, created_at)
            for id_, name, current, size, events, created_at in rows
        )
        rows = connection.execute('SELECT destination, partition_id, "offset" FROM checkpoint')
        self.positions = {destination: Position(partition, offset) for destination, partition, offset in rows}
        for partition in self.partitions:
            # A file that was damaged where nobody looks every day is found out now, and not in the middle of a send.
            connection.execute(f"SELECT max(id) FROM {partition.name}").fetchone()  # noqa: S608 (a name of ours)

    def close(self) -> None:
        self._connection.close()
        os.close(self._lock)

    def open_again(self) -> None:
        """After an error of the disk: what the file says counts."""
        self._connection.close()
        self._connection = self._open()

    def begin_anew(self, error: sqlite3.Error) -> None:
        """The file is damaged. It is set aside for whoever can mend it, and a new one begun."""
        last = self.partitions[-1].id if self.partitions else 0
        self._connection.close()
        self._set_aside(error)
        self._connection = self._open()
        # Numbers go on: a checkpoint that a consumer has noted of the old file must mean nothing of the new one.
        self._connection.execute("INSERT INTO sqlite_sequence VALUES ('partitions', ?)", (last,))

    def _set_aside(self, error: sqlite3.Error) -> None:
        aside = self.path.with_name(f"{FILE_NAME}.corrupt-{strftime('%Y%m%dT%H%M%S')}-{os.getpid()}")
        for suffix in ("-wal", "-shm", ""):
            file = self.path.with_name(self.path.name + suffix)
            if file.exists():
                file.rename(aside.with_name(aside.name + suffix))
        _log.error(
            "THE BUFFER IS DAMAGED (%s). It is set aside as %s, and a new one is begun. What it held and no "
            "destination has had yet may be read from it by `sqlite3 FILE .recover`.",
            error,
            aside,
        )
        self.partitions, self.positions = (), {}

    # --- writing

    def commit(self, events: Sequence[bytes], positions: dict[str, Position]) -> None:
        """Append events, and note how far destinations are: all of it, on disk, or nothing."""
        now = self._clock.wall()
        if events and not positions and self._has_room(sum([len(event) for event in events]), now):
            # Under load nearly every time: one statement is all, and a transaction by itself.
            self.partitions = (*self.partitions[:-1], self._append(self.partitions[-1], events, now))
            return
        with _Transaction(self) as state:
            if positions:
                self._note(positions)
                state.positions = state.positions | positions
            if events:
                self._distribute(state, events, now)

    def _note(self, positions: Mapping[str, Position]) -> None:
        self._connection.executemany(
            "INSERT INTO checkpoint VALUES (?, ?, ?) ON CONFLICT (destination) DO UPDATE "
            'SET partition_id = excluded.partition_id, "offset" = excluded."offset"',
            [(destination, *position) for destination, position in positions.items()],
        )

    def _distribute(self, state: "_State", events: Sequence[bytes], now: float) -> None:
        """Append events to the current partition, and to as many more as they need."""
        begin = 0
        while begin < len(events):
            current = state.partitions[-1] if state.partitions else self._create(state, now)
            if current.events and self._is_full(current, len(events[begin]), now):
                current = self._rotate(state, now)
            most = min(_MOST_AT_ONCE, self._limits.partition_bytes - current.size - 1)
            end, size = begin + 1, len(events[begin])
            while end < len(events) and size + len(events[end]) <= most:
                size += len(events[end])
                end += 1
            state.partitions = (*state.partitions[:-1], self._append(current, events[begin:end], now))
            begin = end

    def _has_room(self, size: int, now: float) -> bool:
        """Whether so many bytes go to the current partition at once."""
        return bool(self.partitions) and size <= _MOST_AT_ONCE and not self._is_full(self.partitions[-1], size, now)

    def _append(self, current: Partition, events: Sequence[bytes], now: float) -> Partition:
        """The current partition with these events behind the others. That is a transaction, unless one is open."""
        sizes = [len(event) for event in events]
        self._connection.execute(_APPEND, (now, b"".join(events), str(sizes)))
        return replace(current, size=current.size + sum(sizes), events=current.events + len(events))

    def _is_full(self, partition: Partition, more: int, now: float) -> bool:
        # As the clock has it; one that was set is looked after in `collect`, and a rotation too early does no harm.
        return (
            partition.size + more >= self._limits.partition_bytes
            or now - partition.created_at >= self._limits.partition_seconds
        )

    def _rotate(self, state: "_State", now: float) -> Partition:
        """Close the current partition and begin the next, in the transaction that is open."""
        old = state.partitions[-1]
        self._connection.execute(_END.format(name=old.name), (now,))
        self._connection.execute("UPDATE partitions SET current = 0 WHERE id = ?", (old.id,))
        state.partitions = (*state.partitions[:-1], replace(old, is_current=False))
        return self._create(state, now)

    def _create(self, state: "_State", now: float) -> Partition:
        # Its name holds its id, which is known only afterwards.
        cursor = self._connection.execute(
            "INSERT INTO partitions (name, current, created_at) VALUES ('', 1, ?)", (now,)
        )
        id_ = cursor.lastrowid or 0
        partition = Partition(id_, f"events_{id_}", is_current=True, size=0, events=0, created_at=now)
        self._connection.execute("UPDATE partitions SET name = ? WHERE id = ?", (partition.name, id_))
        self._connection.execute(_PARTITION.format(name=partition.name))
        _aim(self._connection, partition)
        state.partitions = (*state.partitions, partition)
        return partition

    # --- removing

    @property
    def is_over_its_size(self) -> bool:
        return sum([partition.size for partition in self.partitions]) > self._limits.retention_bytes

    def collect(self, destinations: Sequence[str]) -> tuple[list[Partition], list[Dropped]]:
        """Remove the partitions that every destination is past, then those beyond the limits.

        Returns what was processed, and what was dropped.
        """
        with _Transaction(self) as state:
            self._follow_clock(state)
            now = self._clock.wall()
            current = state.partitions[-1] if state.partitions else None
            if current is not None and current.events and now - current.created_at >= self._longest_open:
                self._rotate(state, now)
            # A destination that has never noted anything is before everything.
            least = min((state.positions.get(name, Position(0, 0)).partition for name in destinations), default=0)
            closed = [partition for partition in state.partitions if not partition.is_current]
            processed = [partition for partition in closed if partition.id < least]
            # The oldest go first, always: nobody who reads finds a gap before something older.
            is_old = lambda partition: now - partition.created_at >= self._limits.retention_seconds  # noqa: E731
            dropped = [Dropped(each, "age") for each in takewhile(is_old, closed[len(processed) :])]
            kept = state.partitions[len(processed) + len(dropped) :]
            size = sum([partition.size for partition in kept])
            while size > self._limits.retention_bytes and not kept[0].is_current:
                dropped.append(Dropped(kept[0], "size"))
                size -= kept[0].size
                kept = kept[1:]
            for partition in [*processed, *[each.partition for each in dropped]]:
                self._connection.execute(f"DROP TABLE IF EXISTS {partition.name}")
                self._connection.execute("DELETE FROM partitions WHERE id = ?", (partition.id,))
            state.partitions = kept
            self._forget_others(state, destinations)
        return processed, dropped

    @property
    def _longest_open(self) -> float:
        return min(self._limits.partition_seconds, self._limits.retention_seconds)

    def _follow_clock(self, state: "_State") -> None:
        """When the clock was set, what is in the buffer has not aged by that: its times are moved along."""
        reading = self._clock.read()
        row = self._connection.execute("SELECT boot_id, since_boot, wall, partition_id FROM clock").fetchone()
        jump = 0.0 if row is None else reading.jump_since(Reading(*row[:3]))
        if jump:
            _log.warning("The clock was set by %+.0f s. The age of what is buffered does not change by that.", jump)
            # What is younger than the last look may be from before or after: it counts as new.
            state.partitions = tuple(
                replace(each, created_at=each.created_at + jump if each.id <= row[3] else reading.wall)
                for each in state.partitions
            )
            self._connection.executemany(
                "UPDATE partitions SET created_at = ? WHERE id = ?",
                [(each.created_at, each.id) for each in state.partitions],
            )
        self._connection.execute("DELETE FROM clock")
        self._connection.execute(
            "INSERT INTO clock VALUES (?, ?, ?, ?)",
            (reading.boot_id, reading.since_boot, reading.wall, state.partitions[-1].id if state.partitions else 0),
        )

    def _forget_others(self, state: "_State", destinations: Sequence[str]) -> None:
        """A destination that is no more does not hold anything, nor does it go on where it was if it comes back."""
        gone = state.positions.keys() - set(destinations)
        if gone:
            self._connection.executemany("DELETE FROM checkpoint WHERE destination = ?", [(name,) for name in gone])
            state.positions = {name: position for name, position in state.positions.items() if name not in gone}

    def give_back(self) -> bool:
        """Give some free pages back to the disk. Whether there are more."""
        (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        if free:
            # As a script: each step frees a page, and `execute` takes but one of a statement that returns no columns.
            self._connection.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
        return bool(free > _VACUUM_PAGES)

    def shrink_log(self) -> None:
        """Give back what the log before the database takes."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    @property
    def file_bytes(self) -> int:
        total = 0
        for suffix in ("", "-wal"):
            try:
                total += self.path.with_name(self.path.name + suffix).stat().st_size
            except FileNotFoundError:
                continue
        return total


class _State:
    """What the buffer will be when the transaction is committed."""

    __slots__ = ("partitions", "positions")

    def __init__(self, partitions: tuple[Partition, ...], positions: dict[str, Position]) -> None:
        self.partitions = partitions
        self.positions = positions


class _Transaction:
    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._state = _State(buffer.partitions, buffer.positions)

    def __enter__(self) -> _State:
        self._buffer._connection.execute("BEGIN IMMEDIATE")  # noqa: SLF001 (a part of it)
        return self._state

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        connection = self._buffer._connection  # noqa: SLF001
        try:
            if kind is None:
                connection.execute("COMMIT")
                self._buffer.partitions = self._state.partitions
                self._buffer.positions = self._state.positions
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _aim(connection: sqlite3.Connection, partition: Partition) -> None:
    """From now on groups of events go to this partition."""
    connection.execute("DROP TRIGGER IF EXISTS appending")
    connection.execute(_APPENDING.format(name=partition.name, id=partition.id))


def _locked(directory: Path) -> int:
    """Held until the process ends, however it does."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(directory / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise BufferLockedError(
            f"Another proxy uses the buffer in {directory}. Each needs its own: choose another with --data-dir."
        ) from error
    return lock


def is_corrupt(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def is_gone(error: sqlite3.OperationalError) -> bool:
    """Whether a partition was removed; SQLite has no code of its own for it."""
    return str(error).startswith("no such table: events_")
