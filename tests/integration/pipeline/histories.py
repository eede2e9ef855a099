"""Events as the sources hold them, and what has to be true of the tables afterwards."""

import gzip
import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.fold import fold
from correlator.store.database import Database
from correlator.store.event_log import EventLog, Group, entry_of
from correlator.store.fact_rows import read_facts
from tests.integration.events import run_event
from tests.integration.store.merging import check_what_is_derived, differences


def raws_of(history: Iterable[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(event).encode() for event in history]


def warehouse(runs: int, name: str = "load") -> list[bytes]:
    """Runs that begin and end, each reading a table and writing another."""
    return raws_of(
        run_event(
            state,
            run_id=f"00000000-0000-4000-8000-{run:012x}",
            event_time=f"2026-11-01T{run // 60 % 24:02}:{run % 60:02}:{second:02}Z",
            job=f"{name}.{run % 7}",
            inputs=[{"namespace": "postgres://db:5432", "name": f"shop.public.{name}_{run % 5}"}],
        )
        for run in range(runs)
        for state, second in (("START", 0), ("COMPLETE", 30))
    )


def accepted(raws: Iterable[bytes]) -> list[Event]:
    return [verdict for raw in raws if not isinstance(verdict := judge(raw), Rejection)]


# Into the sources


def append(database: Database, raws: Iterable[bytes]) -> int:
    """Into the log, as the server does, and say how many were new to it."""
    with database.connect("test", autocommit=True) as connection:
        group = Group(uuid4(), "http", [entry_of(event) for event in accepted(raws)])
        return sum(EventLog(connection).append(group))


def write_lines(file: Path, raws: Iterable[bytes]) -> None:
    """JSON lines, packed if the name says so."""
    content = b"".join(raw + b"\n" for raw in raws)
    _move_into_place(file, gzip.compress(content) if file.suffix == ".gz" else content)


def write_parquet(file: Path, raws: Sequence[bytes], kind: pa.DataType | None = None, column: str = "raw") -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({column: pa.array(raws, pa.binary()).cast(kind or pa.binary())}), sink)
    _move_into_place(file, sink.getvalue().to_pybytes())


def _move_into_place(file: Path, content: bytes) -> None:
    """A stream may look at any moment, and a file counts from when it is seen first."""
    hidden = file.with_name(f".{file.name}")
    hidden.write_bytes(content)
    hidden.rename(file)


# Out of the tables


def check_facts(database: Database, raws: Iterable[bytes]) -> None:
    """The tables are what the plain fold makes of these events."""
    expected = fold(accepted(raws))
    with database.connect("test") as connection:
        assert differences(expected, read_facts(connection)) == []
        check_what_is_derived(connection, expected)


def read_by_now(database: Database) -> int:
    """How many events the ledger has, of all sources."""
    with database.connect("test") as connection:
        row = connection.execute("SELECT coalesce(sum(read), 0)::bigint FROM kept.pipeline_batches").fetchone()
    assert row is not None
    return int(row[0])


def check_log_ledger(database: Database, events: int) -> None:
    """Every position is in one batch, and every batch says what became of each that it read."""
    with database.connect("test") as connection:
        batches = connection.execute(
            "SELECT first_position, last_position, read, applied + duplicates + rejected FROM kept.pipeline_batches "
            "WHERE source = 'log' AND read > 0 ORDER BY first_position"
        ).fetchall()
        readers = positions(connection)
    check_without_gaps([(first, last) for first, last, _, _ in batches], events)
    assert all(read == last - first + 1 == told for first, last, read, told in batches)
    assert readers["facts"] == events


def positions(connection: psycopg.Connection) -> dict[str, int]:
    """How far each reader of the log is."""
    return {reader: int(at) for reader, at in connection.execute("SELECT reader, position FROM kept.log_readers")}


def check_without_gaps(spans: Sequence[tuple[int, int]], events: int) -> None:
    assert [spans[0][0], spans[-1][1]] == [1, events], spans
    assert [(last, first) for (_, last), (first, _) in pairwise(spans) if first != last + 1] == []


def check_log_archive(database: Database, directory: Path, raws: Iterable[bytes]) -> None:
    """The archive has every event of the log once, and what its manifest says of each directory is so."""
    with database.connect("test") as connection:
        manifest = connection.execute(
            "SELECT directory, events, first_position, last_position FROM kept.archive_batches "
            "WHERE source = 'log' ORDER BY first_position"
        ).fetchall()
        readers = positions(connection)
    raws = list(raws)
    found = [(one["position"], one["raw"]) for name, *_ in manifest for one in archived(directory / name)]

    check_without_gaps([(first, last) for _, _, first, last in manifest], len(raws))
    assert [len(archived(directory / name)) for name, *_ in manifest] == [events for _, events, _, _ in manifest]
    assert sorted(position for position, _ in found) == list(range(1, len(raws) + 1))
    assert sorted(raw for _, raw in found) == sorted(raws)
    assert readers["archive"] == len(raws)


def archived(directory: Path) -> list[dict[str, Any]]:
    files = sorted(directory.rglob("*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
