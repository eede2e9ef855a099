"""The dead-letter table: an SQLite file of its own, so that a command can read it beside a proxy that runs."""

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from correlator.proxy.failed_events import FailedEvent

FILE_NAME: Final = "failed-events.db"
_BUSY_SECONDS: Final = 10.0

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS failed_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    failed_at REAL NOT NULL,       -- seconds since 1970
    stage TEXT NOT NULL,
    destination TEXT,
    status INTEGER,
    reason TEXT NOT NULL,
    problems TEXT NOT NULL,        -- JSON
    answer TEXT,
    correlation_id TEXT,
    sent_by TEXT,
    redriven_at REAL,
    size INTEGER NOT NULL,
    raw BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS failed_events_waiting ON failed_events (id) WHERE redriven_at IS NULL;
"""
_COLUMNS: Final = (
    "id, failed_at, stage, destination, status, reason, answer, correlation_id, sent_by, redriven_at, size"
)


_LIST: Final = f"""
SELECT {_COLUMNS} FROM failed_events WHERE (? OR redriven_at IS NULL) AND id < ? ORDER BY id DESC LIMIT ?
"""  # noqa: S608 (a constant)
_NEXT: Final = f"""
SELECT {_COLUMNS}, raw FROM failed_events
WHERE redriven_at IS NULL AND id > :after AND id <= :last
    AND (:ids IS NULL OR id IN (SELECT value FROM json_each(:ids)))
ORDER BY id LIMIT 1
"""  # noqa: S608


class DeadLetter(msgspec.Struct, frozen=True):
    """A failed event, but for its bytes."""

    id: int
    failed_at: float
    stage: str
    destination: str | None
    status: int | None
    reason: str
    answer: str | None
    correlation_id: str | None
    sent_by: str | None
    redriven_at: float | None
    size: int


class DeadLetters:
    """Opened when the first one comes. Several threads may use it, one at a time."""

    def __init__(self, directory: Path, *, max_bytes: int = 1_000_000_000, max_seconds: float = 30 * 86400.0) -> None:
        self.path = directory / FILE_NAME
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._connection: sqlite3.Connection | None = None
        self._in_use = threading.RLock()
        self.removed = 0
        """Letters that were removed for their age or for want of room."""

    def add(self, events: "Sequence[FailedEvent]") -> None:
        """On disk when it returns."""
        rows = [
            (
                event.failed_at,
                event.stage,
                event.destination,
                event.status,
                event.reason,
                msgspec.json.encode(event.problems).decode(),
                event.answer,
                event.correlation_id,
                event.sent_by,
                len(event.raw),
                event.raw,
            )
            for event in events
        ]
        with self._in_use:
            connection = self._opened()
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(
                    "INSERT INTO failed_events (failed_at, stage, destination, status, reason, problems, answer, "
                    "correlation_id, sent_by, size, raw) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    rows,
                )
                self._remove_old(connection)
                connection.execute("COMMIT")
            except sqlite3.Error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self.close()
                raise

    def _remove_old(self, connection: sqlite3.Connection) -> None:
        removed = connection.execute(
            "DELETE FROM failed_events WHERE failed_at < ?", (time.time() - self._max_seconds,)
        ).rowcount
        (size,) = connection.execute("SELECT coalesce(sum(size), 0) FROM failed_events").fetchone()
        while size > self._max_bytes:
            oldest = connection.execute("SELECT id, size FROM failed_events ORDER BY id LIMIT 1").fetchone()
            connection.execute("DELETE FROM failed_events WHERE id = ?", (oldest[0],))
            size -= oldest[1]
            removed += 1
        self.removed += removed

    def list(self, *, with_redriven: bool = False, limit: int = 100, before: int | None = None) -> list[DeadLetter]:
        """The newest first."""
        with self._in_use:
            rows = self._opened().execute(
                _LIST,
                (with_redriven, 2**63 - 1 if before is None else before, limit),
            )
            return [DeadLetter(*row) for row in rows]

    def waiting(self, ids: Sequence[int] | None) -> Iterator[tuple[DeadLetter, bytes]]:
        """Those of these numbers, or all that were not driven in again, the oldest first.

        Those that are there now: one that fails again while they are read is not among them.
        """
        after = 0
        with self._in_use:
            (last,) = self._opened().execute("SELECT coalesce(max(id), 0) FROM failed_events").fetchone()
        while True:
            with self._in_use:
                numbers = None if ids is None else msgspec.json.encode(list(ids)).decode()
                row = self._opened().execute(_NEXT, {"after": after, "last": last, "ids": numbers}).fetchone()
            if row is None:
                return
            letter = DeadLetter(*row[:-1])
            yield letter, row[-1]
            after = letter.id

    def mark_redriven(self, id_: int) -> None:
        with self._in_use:
            self._opened().execute("UPDATE failed_events SET redriven_at = ? WHERE id = ?", (time.time(), id_))

    def close(self) -> None:
        with self._in_use:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.executescript(_SCHEMA)
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection
