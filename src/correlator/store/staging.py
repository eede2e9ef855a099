"""Where folded rows wait for their merge: copied by many tasks at once, each through a connection of its own.

A source has a set of tables of its own, made when the pipeline starts on it, because sources merge by turns but copy
at the same time. Every row carries the number of the attempt that it was copied for: what an earlier attempt or a task
that was given up has left behind is read past, until the tables are swept.
"""

import secrets
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial
from hashlib import sha256
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec
import psycopg
from psycopg.errors import LockNotAvailable

from correlator.rulebook import facts as f
from correlator.rulebook.facts import Key, Row, Table
from correlator.store import rejects as rejects_kept
from correlator.store.fact_rows import BY_NAME, COLUMN_MAPPINGS, RUN_COLUMN_MAPPINGS, ColumnMappings, FactTable
from correlator.store.rejects import Reject

FactRow: TypeAlias = tuple[Table, Key, Row]

MOST_HELD_BYTES: Final = 4 * 2**20
"""A task holds so much before it copies."""
SWEPT_FROM_BYTES: Final = 2 * 2**20
"""A table is emptied when it has grown to this: for a few rows that costs more than to read past them."""
PATIENCE_MS: Final = 2_000
"""How long a sweep waits for a task that was given up and still copies."""


PARTS: Final = 2**16
"""An attempt has room for so many parts."""


class Attempt(msgspec.Struct, frozen=True):
    """One attempt at a batch of a source. Tasks are given it, wherever they run."""

    slot: str
    number: int
    """Every row that is staged carries it, or one of the numbers after it: see `part`."""

    def part(self, task: int) -> int:
        """What a task writes beside its rows, so that they can be merged while others still copy theirs."""
        return self.number + task % PARTS


def prepare(connection: psycopg.Connection[Any], source: str) -> None:
    """Make the staging tables of a source, if they are not there."""
    with connection.transaction():
        for table in BY_NAME.values():
            connection.execute(_create(_slot(source), table).encode())
        connection.execute(_create_rejects(_slot(source)).encode())
        connection.execute(_create_touched(_slot(source)).encode())


def begin(connection: psycopg.Connection[Any], source: str) -> Attempt:
    """A new attempt at a batch, by a number that none ever had: tasks of an earlier one may still be copying.

    The database remembers it where it keeps what is staged. A crash of the server, or a change to its standby, empties
    both, and then `merge` finds the attempt gone.
    """
    attempt = Attempt(_slot(source), secrets.randbits(47) * PARTS)
    with connection.transaction():
        connection.execute(_BEGIN, msgspec.structs.asdict(attempt))
    return attempt


_BEGIN: Final = """
INSERT INTO staging.attempts VALUES (%(slot)s, %(number)s)
ON CONFLICT (slot) DO UPDATE SET number = excluded.number
"""


def stage(
    connection: psycopg.Connection[Any],
    attempt: Attempt,
    rows: Iterable[FactRow],
    most_bytes: int = MOST_HELD_BYTES,
    *,
    task: int = 0,
) -> int:
    """Copy rows into staging as one part of it, in one transaction, and say how many.

    Every key but those of column edges comes once: rows of one key are folded before they are staged. When a task is
    tried again its rows may be there twice.
    """
    part = attempt.part(task)
    staged = _Staged(attempt.slot, part)
    with connection.transaction():
        for table, key, row in rows:
            if staged.add(table.name, key, row) > most_bytes:
                staged.copy(connection)
        staged.copy(connection)
        is_whole = f"INSERT INTO {staged_touched(attempt.slot)} (attempt, kind) VALUES (%s, 'p')"  # noqa: S608
        connection.execute(is_whole.encode(), [part])
    return staged.rows


def parts(connection: psycopg.Connection[Any], attempt: Attempt) -> set[int]:
    """The numbers of those that are there, whole."""
    staged = staged_touched(attempt.slot)
    query = f"SELECT DISTINCT attempt FROM {staged} WHERE {of_attempt()} AND kind = 'p'"  # noqa: S608
    return {part for (part,) in connection.execute(query.encode(), [attempt.number], prepare=True)}


def of_attempt(row: str = "") -> str:
    """Whether a row that was staged belongs to an attempt, whatever its part, in SQL. The parameter is its number."""
    return f"{row}{'.' if row else ''}attempt / {PARTS} = %s::bigint / {PARTS}"


def stage_rejects(
    connection: psycopg.Connection[Any], attempt: Attempt, source: str, rejects: Iterable[tuple[bytes, Reject]]
) -> None:
    """Copy rejected events into staging, each with the id of its arrival."""
    columns = ", ".join(["attempt", "arrival", *rejects_kept.COLUMNS])
    query = f"COPY {staged_rejects(attempt.slot)} ({columns}) FROM STDIN (FORMAT binary)"
    with connection.transaction(), connection.cursor().copy(query.encode()) as copy:
        copy.set_types(["int8", "uuid", *rejects_kept.COLUMNS.values()])
        for arrival, reject in rejects:
            copy.write_row((attempt.number, UUID(bytes=arrival), *rejects_kept.row_of(source, reject)[0]))


class _Staged:
    """Rows on their way into staging, as records of a binary COPY."""

    def __init__(self, slot: str, part: int) -> None:
        self.rows = 0
        self._slot = slot
        self._encoders = {name: partial(encode, BY_NAME[name].head(part)) for name, encode in _encoders().items()}
        self._records: dict[str, list[bytes]] = {name: [] for name in BY_NAME}
        self._size = 0
        self._mappings = ColumnMappings()
        self._of_run: dict[bytes, set[bytes]] = {}
        self._copied: set[bytes] = set()

    def add(self, table: str, key: Key, row: Row) -> int:
        """Take a row in, and say how many bytes wait to be copied."""
        self.rows += 1
        if table == f.COLUMN_EDGES.name:
            self._add_column_edge(key)
        else:
            record = self._encoders[table](key, row)
            self._records[table].append(record)
            self._size += len(record)
        return self._size

    def _add_column_edge(self, key: Key) -> None:
        run, mapping = key[0], key[1:]
        one = self._mappings.id_of(mapping)
        of_run = self._of_run.get(run)
        if of_run is None:
            of_run = self._of_run[run] = set()
        of_run.add(one)
        self._size += 2 * len(one)
        if one not in self._copied:
            self._copied.add(one)
            self._add(COLUMN_MAPPINGS, (one, *mapping))

    def _add(self, table: FactTable, key: Key) -> None:
        record = self._encoders[table.name](key, {})
        self._records[table.name].append(record)
        self._size += len(record)

    def copy(self, connection: psycopg.Connection[Any]) -> None:
        for said in self._of_run.items():
            self._add(RUN_COLUMN_MAPPINGS, said)
        for name, records in self._records.items():
            if records:
                with connection.cursor().copy(_copy(self._slot, BY_NAME[name]).encode()) as copy:
                    copy.write(b"".join([_COPY_HEADER, *records, _COPY_TRAILER]))
                records.clear()
        self._of_run.clear()
        self._copied.clear()
        self._size = 0


@cache
def _encoders() -> dict[str, Callable[[bytes, Key, Row], bytes]]:
    return {name: table.encoder() for name, table in BY_NAME.items()}


_COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_TRAILER: Final = b"\xff\xff"


def sweep(connection: psycopg.Connection[Any], attempt: Attempt, patience_ms: int = PATIENCE_MS) -> None:
    """Empty the staging tables of a source, where that is worth it. Between batches: it takes whatever is there."""
    tables = [staged_table(attempt.slot, table) for table in BY_NAME.values()]
    tables += [staged_rejects(attempt.slot), staged_touched(attempt.slot)]
    sizes = connection.execute(_SIZES, [tables]).fetchall()
    grown = [name for name, size in sizes if size > SWEPT_FROM_BYTES]
    if not grown:
        return
    try:
        with connection.transaction():
            connection.execute("SELECT set_config('lock_timeout', %s, true)", [str(patience_ms)])
            connection.execute(f"TRUNCATE {', '.join(grown)}".encode())
    except LockNotAvailable:
        return


_SIZES: Final = "SELECT name, pg_total_relation_size(name::regclass) FROM unnest(%s::text[]) AS name"


@lru_cache(maxsize=64)
def _slot(source: str) -> str:
    """A name for the tables of a source. Another version of Correlator, with other columns, has other tables."""
    columns = ", ".join(column.declared for table in BY_NAME.values() for column in table.columns)
    return f"s{sha256(f'{source} {columns}'.encode()).hexdigest()[:12]}"


def staged_table(slot: str, table: FactTable) -> str:
    return f"staging.{slot}_{table.name}"


def staged_rejects(slot: str) -> str:
    return f"staging.{slot}_rejects"


def staged_touched(slot: str) -> str:
    """What a merge touches, for what is worked out of the facts: see `incidents`."""
    return f"staging.{slot}_touched"


def _create_touched(slot: str) -> str:
    return (
        f"CREATE UNLOGGED TABLE IF NOT EXISTS {staged_touched(slot)} "
        '(attempt bigint, kind "char", id uuid, at timestamptz) WITH (autovacuum_enabled = off)'
    )


def _create_rejects(slot: str) -> str:
    columns = ", ".join(["attempt bigint", "arrival uuid", *(f"{n} {t}" for n, t in rejects_kept.COLUMNS.items())])
    return (
        f"CREATE UNLOGGED TABLE IF NOT EXISTS {staged_rejects(slot)} ({columns}) WITH (autovacuum_enabled = off); "
        f"ALTER TABLE {staged_rejects(slot)} ALTER COLUMN raw SET STORAGE EXTERNAL"
    )


def _create(slot: str, table: FactTable) -> str:
    name = staged_table(slot, table)
    columns = ", ".join(["attempt bigint", *(column.declared for column in table.columns)])
    # Compressing what is read once and thrown away would cost more than all the rest.
    stored = ", ".join(f"ALTER COLUMN {column.name} SET STORAGE EXTERNAL" for column in table.columns if column.is_long)
    create = f"""
        CREATE UNLOGGED TABLE {name} ({columns}) WITH (autovacuum_enabled = off, toast_tuple_target = 8160);
    """
    alter = f"ALTER TABLE {name} {stored};" if stored else ""
    return f"DO $$ BEGIN IF to_regclass('{name}') IS NULL THEN {create} {alter} END IF; END $$"


def _copy(slot: str, table: FactTable) -> str:
    columns = ", ".join(["attempt", *(column.name for column in table.columns)])
    return f"COPY {staged_table(slot, table)} ({columns}) FROM STDIN (FORMAT binary)"
