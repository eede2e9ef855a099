"""`correlator audit` as an operator types it, against a real database; without Spark."""

import json
import os
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from correlator.cli.main import main
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from correlator.store.database import Database
from correlator.store.event_log import EventLog, Group, entry_of
from correlator.store.merge import FACTS, Batch, Span, advance, advance_in_log, merge
from correlator.store.retention import ARCHIVE, fold_pipeline_ledger
from correlator.store.staging import begin, prepare
from tests.integration.events import run_event


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect("test", autocommit=True) as connection:
        prepare(connection, "log")
        yield connection


@pytest.fixture
def audit(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command within this process, which must not start Spark."""

    def refuse(_: object, **__: object) -> SparkSession:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("correlator.cli.audit.session_of", refuse)

    def run(*arguments: str, code: int = 0) -> Result:
        ours: dict[str, str | None] = {name: None for name in os.environ if name.startswith("CORRELATOR_")}
        said: dict[str, str | None] = {"CORRELATOR_DATABASE_URL": database.url, "CORRELATOR_DATA_DIR": str(tmp_path)}
        result = CliRunner().invoke(main, ["audit", *arguments], env=ours | said, catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    return run


def append(connection: psycopg.Connection, count: int, source: str = "http") -> None:
    verdicts = [judge(json.dumps(run_event(run_id=str(uuid.uuid4()))).encode()) for _ in range(count)]
    entries = [entry_of(verdict) for verdict in verdicts if not isinstance(verdict, Rejection)]
    EventLog(connection).append(Group(uuid.uuid4(), source, entries))


def merged(connection: psycopg.Connection, batch_id: int, first: int, last: int, **changes: Any) -> None:
    """As the pipeline leaves it: the ledger, and the facts' reader."""
    usual: dict[str, Any] = {
        "query_id": "query",
        "batch_id": batch_id,
        "source": "log",
        "read": last - first + 1,
        "applied": last - first + 1,
        "first_position": first,
        "last_position": last,
        "reader": FACTS,
        "seconds": 0.25,
    }
    merge(connection, begin(connection, "log"), Batch(**(usual | changes)))


def archived(connection: psycopg.Connection, archive: Path, first: int, last: int, rows: int | None = None) -> Path:
    """As the archive leaves it: a directory, its row, and its reader."""
    name = f"source=log/batch={first:09d}-query"
    count = last - first + 1 if rows is None else rows
    day = archive / name / "day=2026-11-16"
    day.mkdir(parents=True)
    table = pa.table({"position": pa.array(range(first, first + count), pa.int64()), "raw": pa.array([b"{}"] * count)})
    pq.write_table(table, day / "part-0.zstd.parquet")
    (archive / name / "_SUCCESS").touch()
    connection.execute(
        "INSERT INTO kept.archive_batches (source, directory, events, rejected, first_position, last_position) "
        "VALUES ('log', %s, %s, 0, %s, %s)",
        [name, last - first + 1, first, last],
    )
    advance_in_log(connection, ARCHIVE, last)
    return archive / name


def test_a_new_installation_is_in_order(audit: Any) -> None:
    assert "Every event is where it should be." in audit().output


def test_events_that_are_stored_merged_and_archived_are_where_they_should_be(
    connection: psycopg.Connection, audit: Any, tmp_path: Path
) -> None:
    append(connection, 6)
    append(connection, 4, "redrive")
    merged(connection, 0, 1, 7)
    archived(connection, tmp_path / "archive", 1, 3)
    archived(connection, tmp_path / "archive", 4, 5)

    lines = audit().output

    assert "positions 1 to 10 are kept" in lines
    assert "the log is read up to position 7, 3 events" in lines
    assert "the log is archived up to position 5, 5 events" in lines
    assert "2 directories with 5 events are as they should be" in lines
    told = json.loads(audit("--json").output)
    assert told["balanced"] is True
    assert told["sources"] == [
        {"source": "http", "received": 6, "stored": 6, "duplicates": 0, "rejected": 0, "missing": 0},
        {"source": "redrive", "received": 4, "stored": 4, "duplicates": 0, "rejected": 0, "missing": 0},
    ]
    assert [(check["name"], check["outcome"]) for check in told["checks"]] == [
        ("log", "ok"),
        ("facts", "ok"),
        ("archive", "ok"),
    ]


def test_positions_that_are_gone_from_the_log_are_named(connection: psycopg.Connection, audit: Any) -> None:
    append(connection, 20)
    append(connection, 20, "redrive")
    connection.execute("DELETE FROM kept.lineage_events WHERE position IN (5, 7, 8, 39, 40)")

    lines = audit(code=1).output

    assert "The log has no position 5, 7 to 8, 39 to 40: 5 events lost" in lines
    told = json.loads(audit("--json", code=1).output)
    assert told["balanced"] is False
    assert [(source["source"], source["missing"]) for source in told["sources"]] == [("http", 3), ("redrive", 2)]


def test_a_day_of_the_log_that_was_dropped_too_early_is_told(connection: psycopg.Connection, audit: Any) -> None:
    append(connection, 8)
    merged(connection, 0, 1, 2)
    connection.execute("DELETE FROM kept.lineage_events WHERE position < 6")

    lines = audit(code=1).output

    assert "The log begins at position 6, and the reader 'facts' has read up to 2: positions 3 to 5 were" in lines
    assert "although nothing was ever archived: 5 events are gone" in lines


def test_what_every_reader_has_passed_may_be_dropped(
    connection: psycopg.Connection, audit: Any, tmp_path: Path
) -> None:
    append(connection, 8)
    merged(connection, 0, 1, 8)
    archived(connection, tmp_path / "archive", 1, 8)
    connection.execute("DELETE FROM kept.lineage_events WHERE position < 6")
    assert "positions 6 to 8 are kept" in audit().output
    connection.execute("DELETE FROM kept.lineage_events")
    assert "up to position 8, of which none is kept any more" in audit().output


def test_a_ledger_of_the_server_that_does_not_reach_the_head_is_told(
    connection: psycopg.Connection, audit: Any
) -> None:
    for count in (3, 4, 5):
        append(connection, count)
    connection.execute("DELETE FROM kept.ingest_batches WHERE first_position = 4")
    lines = audit(code=1).output
    assert "The log's head is 12, and its ledger tells of 8 stored events, with nothing about position 4 to 7" in lines


def test_a_reader_that_is_ahead_of_the_log_is_told(connection: psycopg.Connection, audit: Any) -> None:
    append(connection, 3)
    merged(connection, 0, 1, 9)
    lines = audit(code=1).output
    assert "The reader 'facts' is at position 9, and the log ends at 3" in lines


def test_positions_that_no_batch_has_read_are_named(connection: psycopg.Connection, audit: Any) -> None:
    append(connection, 30)
    merged(connection, 0, 3, 10)
    merged(connection, 1, 9, 12)  # repeated under another checkpoint: no harm
    merged(connection, 2, 21, 30)

    lines = audit(code=1).output

    assert "No batch of the pipeline has read position 1 to 2, 13 to 20 of the log" in lines
    assert "10 events may be missing in the facts" in lines


def test_old_batches_are_added_up_by_day_and_the_audit_still_holds(connection: psycopg.Connection, audit: Any) -> None:
    append(connection, 40)
    for number in range(8):
        merged(connection, number, 5 * number + 1, 5 * number + 5, applied=3, duplicates=1, rejected=1)
    connection.execute("UPDATE kept.pipeline_batches SET committed_at = now() - interval '3 days'")
    before = audit().output

    # The last batch of a query may be repeated, and stays.
    assert fold_pipeline_ledger(connection, timedelta(days=2), chunk=3) == 7
    merged(connection, 7, 36, 40, applied=3, duplicates=1, rejected=1)

    assert connection.execute("SELECT batch_id FROM kept.pipeline_batches").fetchall() == [(7,)]
    after = audit().output
    assert after == before
    assert "40 read = 24 applied + 8 duplicate + 8 rejected, in 8 batches" in after


def test_what_no_batch_has_read_stays_a_hole_when_its_day_is_added_up(
    connection: psycopg.Connection, audit: Any
) -> None:
    append(connection, 40)
    for number in (0, 1, 3, 4):
        merged(connection, number, 5 * number + 1, 5 * number + 5)
    merged(connection, 5, 26, 30, read=4, applied=4)
    merged(connection, 6, 31, 40)
    connection.execute("UPDATE kept.pipeline_batches SET committed_at = now() - interval '3 days'")

    assert fold_pipeline_ledger(connection, timedelta(days=2)) == 4

    lines = audit(code=1).output
    assert "No batch of the pipeline has read position 11 to 15 of the log" in lines
    assert "Batch 5 of query query read 4 events of the positions 26 to 30, which are 5" in lines


def test_a_ledger_that_was_tampered_with_is_told(connection: psycopg.Connection, audit: Any) -> None:
    append(connection, 4)
    merged(connection, 0, 1, 2)
    merged(connection, 1, 3, 4)
    connection.execute("UPDATE kept.pipeline_batches SET applied = 1, rejected = 1 WHERE batch_id = 0")
    assert "Of the source log the ledger's batches tell of 4 events read" in audit(code=1).output


def test_a_gap_and_an_overlap_in_the_archive_are_told(
    connection: psycopg.Connection, audit: Any, tmp_path: Path
) -> None:
    append(connection, 20)
    archived(connection, tmp_path / "archive", 1, 6)
    archived(connection, tmp_path / "archive", 5, 8)
    archived(connection, tmp_path / "archive", 12, 20)

    lines = audit(code=1).output

    assert "begins at position 5, and what was archived before it goes to 6: 2 events are archived twice" in lines
    assert "No directory of the archive has position 9 to 11 of the log" in lines


def test_directories_that_are_gone_damaged_or_short_are_named(
    connection: psycopg.Connection, audit: Any, tmp_path: Path
) -> None:
    append(connection, 20)
    archive = tmp_path / "archive"
    gone = archived(connection, archive, 1, 5)
    damaged = archived(connection, archive, 6, 10)
    archived(connection, archive, 11, 15, rows=4)
    archived(connection, archive, 16, 20)
    gone.rename(tmp_path / "elsewhere")
    (damaged / "day=2026-11-16" / "part-0.zstd.parquet").write_bytes(b"PAR1 it was")

    lines = audit(code=1).output

    assert "source=log/batch=000000001-query of the archive (positions 1 to 5) is gone, with 5 events." in lines
    assert "(positions 6 to 10) is damaged, and 5 events with it" in lines
    assert "(positions 11 to 15) holds 4 events where its row says 5" in lines
    told = json.loads(audit("--json", code=1).output)
    assert told["checks"][2]["missing"] == 11


def test_a_directory_that_belongs_to_no_finished_batch_is_told_and_not_wrong(
    connection: psycopg.Connection, audit: Any, tmp_path: Path
) -> None:
    append(connection, 5)
    archived(connection, tmp_path / "archive", 1, 5)
    (tmp_path / "archive" / "source=log" / "batch=000000009-query").mkdir()
    assert "1 directory of the archive without a finished batch" in audit().output


def test_files_that_have_changed_since_they_were_read_are_named_with_the_command_that_reads_them_again(
    connection: psycopg.Connection, audit: Any, tmp_path: Path
) -> None:
    files = tmp_path / "in coming"
    (files / "deep").mkdir(parents=True)
    for name in ("same.jsonl", "grown.jsonl", "new.jsonl", "gone.jsonl", "deep/touched.jsonl.gz", "_hidden", ".too"):
        (files / name).write_text("{}\n")
    (files / "empty.jsonl").touch()
    read = [path for path in sorted(files.rglob("*.jsonl*")) if path.name not in {"new.jsonl", "empty.jsonl"}]
    with connection.transaction():
        for path in read:
            status = path.stat()
            modified = connection.execute("SELECT to_timestamp(%s / 1000.0)", [status.st_mtime_ns // 1_000_000])
            at = (modified.fetchone() or ())[0]
            advance(connection, "files", FACTS, [Span(path.as_uri(), 1, None, None, status.st_size, at)])
    assert "not read yet" in audit("--files", str(files)).output

    with (files / "grown.jsonl").open("a") as file:
        file.write("{}\n")
    os.utime(files / "deep" / "touched.jsonl.gz", (1, 1))
    (files / "gone.jsonl").unlink()

    lines = audit("--files", str(files), code=1).output

    assert f"{files}/grown.jsonl has grown by 3 bytes since it was read" in lines
    assert f"correlator pipeline batch --again {files}/grown.jsonl" in lines
    assert f"{files}/deep/touched.jsonl.gz was written again since it was read" in lines
    assert f"not read yet, or without an event: {files}/new.jsonl\n" in lines
    assert f"read, and gone or no longer among the files: {files}/gone.jsonl\n" in lines
    assert "same.jsonl" not in lines
    assert "5 files, 3 read, 1 waiting" in lines


def test_what_was_lost_at_a_source_is_told_until_somebody_has_taken_note(
    connection: psycopg.Connection, audit: Any
) -> None:
    connection.execute(
        "INSERT INTO kept.source_losses (source, reader, origin, sentence, events) "
        "VALUES ('kafka', 'facts', 'events/0', 'offsets 3 to 7 of events/0 are lost', 5)"
    )
    assert "for the facts: offsets 3 to 7 of events/0 are lost. Take note with" in audit(code=1).output
    assert json.loads(audit("--json", "--settle", code=1).output)["checks"][-1]["missing"] == 5
    assert "offsets 3 to 7 of events/0 are lost (settled)" in audit().output


def test_what_could_not_be_looked_at_is_neither_well_nor_wrong(
    connection: psycopg.Connection, audit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_: object, **__: object) -> SparkSession:
        raise OSError("no way there")

    monkeypatch.setattr("correlator.cli.audit.session_of", closed)
    append(connection, 1)
    lines = audit("--archive-dir", "s3a://bucket/archive", "--files", str(tmp_path), code=2).output
    assert "The archive s3a://bucket/archive could not be looked at: no way there" in lines
    assert "Nothing was found missing, but not everything could be looked at." in lines
