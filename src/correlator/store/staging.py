"""Where folded rows wait for their merge: copied by many tasks at once, each through a connection of its own.

A source has a set of tables of its own, made when the pipeline starts on it, because sources merge by turns but copy
at the same time. What is copied together is a part, and is merged by itself. Every row carries the number of its part,
which tells the attempt that it was copied for: what an earlier attempt or a task that was given up has left behind is
read past, until the tables are swept.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from hashlib import sha256
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec
import psycopg
from psycopg.errors import LockNotAvailable

from correlator.rulebook import facts as f
from correlator.rulebook.facts import Key, Row, Table
from correlator.rulebook.runs import LONG_RUNNING
from correlator.store import rejects as rejects_kept
from correlator.store.fact_rows import (
    BY_NAME,
    COLUMN_MAPPINGS,
    DATASET_JOBS,
    JOB_CHILDREN,
    LAST_OF_JOBS,
    RUN_COLUMN_MAPPINGS,
    ColumnMappings,
    FactTable,
    parent_key,
)
from correlator.store.rejects import Reject

FactRow: TypeAlias = tuple[Table, Key, Row]

MOST_HELD_BYTES: Final = 4 * 2**20
"""A task holds so much before it copies."""
SWEPT_FROM_BYTES: Final = 2 * 2**20
"""A table is emptied when it has grown to this: for a few rows that costs more than to read past them."""
_AT_ONCE: Final = 1_000
"""Rows are made records in such numbers: in between it is seen how much is held."""
STAGED_IN_ORDER: Final = (f.JOB_RUNS.name, f.LINEAGE_EDGES.name, f.FACET_HISTORY.name)
"""Sorted by their keys, with which records begin, so that neighbours are inserted together."""
PATIENCE_MS: Final = 2_000
"""How long a sweep waits for a task that was given up and still copies."""


TASKS: Final = 2**20
PARTS_OF_A_TASK: Final = 2**12
PARTS: Final = TASKS * PARTS_OF_A_TASK
"""An attempt has room for so many parts."""


class Attempt(msgspec.Struct, frozen=True):
    """One attempt at a batch of a source. Tasks are given it, wherever they run."""

    slot: str
    number: int
    """Every row that is staged carries it, or one of the numbers after it: see `part`."""

    def part(self, task: int = 0, count: int = 0) -> int:
        """The number of a part, by the task that stages it and how many it has staged before.

        A task that is tried again is another: what the first has staged may have been merged.
        """
        return self.number + task % TASKS * PARTS_OF_A_TASK + count % PARTS_OF_A_TASK


def prepare(connection: psycopg.Connection[Any], source: str) -> None:
    """Make the staging tables of a source, if they are not there."""
    with connection.transaction():
        for table in BY_NAME.values():
            connection.execute(_create(_slot(source), table).encode())
        connection.execute(_create_rejects(_slot(source)).encode())
        connection.execute(_create_touched(_slot(source)).encode())


def begin(connection: psycopg.Connection[Any], source: str) -> Attempt:
    """A new attempt at a batch, by another number than those before: tasks of an earlier one may still be copying.

    The database remembers it where it keeps what is staged. A crash of the server, or a change to its standby, empties
    both, and then `merge` finds the attempt gone.
    """
    slot = _slot(source)
    # The first one's number is drawn, because the database may have forgotten those before it.
    drawn = {"slot": slot, "drawn": secrets.randbits(30), "parts": PARTS}
    with connection.transaction():
        (number,) = connection.execute(_BEGIN, drawn).fetchall()[0]
    return Attempt(slot, number)


_BEGIN: Final = """
INSERT INTO staging.attempts AS last VALUES (%(slot)s, %(drawn)s::bigint * %(parts)s)
ON CONFLICT (slot) DO UPDATE SET number = (last.number / %(parts)s + 1) %% (2^31)::bigint * %(parts)s
RETURNING number
"""


def stage(
    connection: psycopg.Connection[Any],
    attempt: Attempt,
    rows: Iterable[FactRow],
    most_bytes: int = MOST_HELD_BYTES,
    *,
    number: int | None = None,
) -> int:
    """Copy rows into staging as a part of it, and say how many."""
    with part(connection, attempt, attempt.part() if number is None else number, most_bytes) as staged:
        for table, key, row in rows:
            staged.add(table, [(key, row)])
    return staged.rows


@contextmanager
def part(
    connection: psycopg.Connection[Any], attempt: Attempt, number: int, most_bytes: int = MOST_HELD_BYTES
) -> Iterator["Part"]:
    """Rows that are copied in one transaction; as soon as it has ended well, they can be merged.

    A run is in it once: a number is used once, and a task that is tried again has others.
    """
    staged = Part(connection, attempt.slot, number, most_bytes)
    with connection.transaction():
        yield staged
        staged.copy()
        is_whole = f"INSERT INTO {staged_touched(attempt.slot)} (attempt, kind) VALUES (%s, 'p')"  # noqa: S608
        connection.execute(is_whole.encode(), [number])


def parts(connection: psycopg.Connection[Any], attempt: Attempt) -> set[int]:
    """The numbers of those that are there, whole."""
    staged = staged_touched(attempt.slot)
    query = f"SELECT attempt FROM {staged} WHERE kind = 'p' AND attempt BETWEEN %s AND %s"  # noqa: S608
    bounds = [attempt.number, attempt.number + PARTS - 1]
    return {number for (number,) in connection.execute(query.encode(), bounds, prepare=True)}


def of_attempt(row: str = "", number: str = "%s") -> str:
    """Whether a row that was staged belongs to an attempt, whatever its part, in SQL, by the attempt's number."""
    return f"{row}{'.' if row else ''}attempt / {PARTS} = {number}::bigint / {PARTS}"


def probed(table: str, row: str, on: str) -> str:
    """Joins what a fact table has for each staged row, each found by a key, in SQL: `row` is what it is called.

    Said so that the planner has no other choice. Of a table that was empty when it looked it believes that it still is,
    and would as soon read all of it for every row that was staged.
    """
    return f"CROSS JOIN LATERAL (SELECT * FROM {table} AS {row} WHERE {on} OFFSET 0) AS {row}"  # noqa: S608


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


class Part:
    """Rows on their way into staging, as records of a binary COPY.

    Every key but those of column edges comes once: rows of one key are folded before they are staged. A run comes
    before what is said of its use of datasets.
    """

    def __init__(self, connection: psycopg.Connection[Any], slot: str, number: int, most_bytes: int) -> None:
        self.rows = 0
        self._connection = connection
        self._slot = slot
        self._most_bytes = most_bytes
        self._encoders = {name: partial(encode, BY_NAME[name].head(number)) for name, encode in _encoders().items()}
        self._records: dict[str, list[bytes]] = {name: [] for name in BY_NAME}
        self._size = 0
        self._mappings = ColumnMappings()
        self._of_run: dict[bytes, set[bytes]] = {}
        self._copied: set[bytes] = set()
        self._job_of: dict[bytes, bytes] = {}
        self._uses: set[tuple[bytes, bytes, str]] = set()
        self._children: set[tuple[str, str, bytes]] = set()
        self._last_of: dict[bytes, tuple[int, bytes]] = {}
        self._may_be_streams: set[bytes] = set()

    def add(self, table: Table, rows: Sequence[tuple[Key, Row]]) -> None:
        for start in range(0, len(rows), _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            self.rows += len(some)
            if table is f.COLUMN_EDGES:
                for key, _ in some:
                    self._add_column_edge(key)
            else:
                self._add_records(table, some)
            if self._size > self._most_bytes:
                self.copy()

    def _add_records(self, table: Table, rows: Sequence[tuple[Key, Row]]) -> None:
        encode = self._encoders[table.name]
        records = [encode(key, row) for key, row in rows]
        self._records[table.name] += records
        self._size += sum(map(len, records))
        if table is f.LINEAGE_EDGES:
            for (run, dataset, role), _ in rows:
                # Of a run that is not there the merge will say so.
                self._uses.add((dataset, self._job_of.get(run, b""), role))
        elif table is f.JOB_RUNS:
            for (run,), row in rows:
                self._add_of_job(run, row)

    def _add_of_job(self, run: bytes, row: Row) -> None:
        job = self._job_of[run] = row["identity"][1]
        if (parent := row.get("parent")) is not None:
            self._children.add((*parent[_PARENT_JOB], job))
        last = (row["complete"][0] if "complete" in row else _NEVER, run)
        if last > self._last_of.get(job, _NONE):
            self._last_of[job] = last
        if _may_be_stream(row):
            self._may_be_streams.add(job)

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

    def copy(self) -> None:
        for said in self._of_run.items():
            self._add(RUN_COLUMN_MAPPINGS, said)
        for use in self._uses:
            self._add(DATASET_JOBS, use)
        for namespace, name, job in self._children:
            if name is not None:
                self._add(JOB_CHILDREN, (parent_key(namespace, name), job))
        for job, (at, run) in self._last_of.items():
            self._add(LAST_OF_JOBS, (job, run, None if at == _NEVER else at, job in self._may_be_streams))
        for name in STAGED_IN_ORDER:
            self._records[name].sort()
        for name, records in self._records.items():
            if records:
                with self._connection.cursor().copy(_copy(self._slot, BY_NAME[name]).encode()) as copy:
                    copy.write(b"".join([_COPY_HEADER, *records, _COPY_TRAILER]))
                records.clear()
        self._of_run.clear()
        self._uses.clear()
        self._children.clear()
        self._last_of.clear()
        self._may_be_streams.clear()
        self._copied.clear()
        self._size = 0


_PARENT_JOB: Final = slice(5, 7)
"""Where what a run says of its parent has the namespace and the name of its job."""
_PROCESSING_TYPE: Final = 3
_NEVER: Final = -(2**63)
_NONE: Final = (_NEVER, b"")


def _may_be_stream(row: Row) -> bool:
    """Whether it says of its run something that makes one a stream that stands while it is RUNNING."""
    if (kind := row.get("type")) is not None and kind[_PROCESSING_TYPE].upper() in LONG_RUNNING:
        return True
    for _, _, state in row.get("states", ()):  # noqa: SIM110 (for every run that there is: `any` takes twice as long)
        if state == "RUNNING":
            return True
    return False


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
    return f"s{sha256(f'{source} {columns} by part'.encode()).hexdigest()[:12]}"


def staged_table(slot: str, table: FactTable) -> str:
    return f"staging.{slot}_{table.name}"


def staged_rejects(slot: str) -> str:
    return f"staging.{slot}_rejects"


def staged_touched(slot: str) -> str:
    """What a merge touches, for what is worked out of the facts: see `incidents`."""
    return f"staging.{slot}_touched"


def _create_touched(slot: str) -> str:
    name = staged_touched(slot)
    create = f"""
        CREATE UNLOGGED TABLE {name} (attempt bigint, kind "char", id uuid, at timestamptz)
        WITH (autovacuum_enabled = off);
        CREATE INDEX ON {name} (attempt);
        CREATE INDEX ON {name} (attempt) WHERE kind = 'p';
    """
    return f"DO $$ BEGIN IF to_regclass('{name}') IS NULL THEN {create} END IF; END $$"


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
    # A part is read without those beside it, of which a large batch has many.
    index = f"CREATE INDEX ON {name} (attempt);"
    return f"DO $$ BEGIN IF to_regclass('{name}') IS NULL THEN {create} {alter} {index} END IF; END $$"


def _copy(slot: str, table: FactTable) -> str:
    columns = ", ".join(["attempt", *(column.name for column in table.columns)])
    return f"COPY {staged_table(slot, table)} ({columns}) FROM STDIN (FORMAT binary)"
