"""What the pipeline makes of its sources: every event once, every file once, and what is broken aside."""

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

from correlator.pipeline.archive import Archive
from correlator.pipeline.driver import Driver, Plan, Turn
from correlator.pipeline.event_log import EventLogSource
from correlator.pipeline.fact_sink import Done
from correlator.pipeline.places import HadoopPlaces
from correlator.pipeline.sources import Source
from correlator.pipeline.sources.files import FilesSource
from correlator.pipeline.sources.log import LogSource
from correlator.rulebook.decode import judge
from correlator.store.database import Database
from tests.integration.pipeline.histories import (
    append,
    archived,
    check_facts,
    check_log_archive,
    check_log_ledger,
    warehouse,
    write_lines,
    write_parquet,
)

Run = Callable[..., list[Done]]


@pytest.fixture
def run(spark: SparkSession, database: Database, tmp_path: Path) -> Run:
    """Process what there is, and say what was read."""

    def batch(*sources: Source) -> list[Done]:
        done: list[Done] = []
        Driver(spark, database, sources, plan(tmp_path), on_done=done.append).batch()
        return [each for each in done if each.tally.read]

    return batch


def plan(directory: Path, patience: float = 120.0, turn_patience: float = 30.0) -> Plan:
    return Plan(
        checkpoints=str(directory / "checkpoints"),
        archive=str(directory / "archive"),
        patience=patience,
        turn_patience=turn_patience,
    )


def forget_last_commits(directory: Path) -> None:
    """As if the process had died after everything was written, and before Spark knew."""
    for commits in (directory / "checkpoints").glob("*/commits"):
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)


def rejected(database: Database) -> list[bytes]:
    with database.connect("test") as connection:
        return sorted(raw for (raw,) in connection.execute("SELECT raw FROM kept.rejected_events"))


def ledger(database: Database, source: str) -> list[tuple[int, ...]]:
    with database.connect("test") as connection:
        return connection.execute(
            "SELECT read, applied, duplicates, rejected FROM kept.pipeline_batches "
            "WHERE source = %s AND read > 0 ORDER BY committed_at",
            [source],
        ).fetchall()


def test_the_log_is_read_once_and_archived_once(run: Run, database: Database, tmp_path: Path) -> None:
    events = warehouse(30)
    append(database, events[:50])
    log = LogSource(database.url)

    assert [each.tally.read for each in run(log)] == [50]
    assert run(log) == []
    append(database, events[50:])
    assert [each.tally.read for each in run(log)] == [10]

    check_facts(database, events)
    check_log_ledger(database, 60)
    check_log_archive(database, tmp_path / "archive", events)


def test_a_run_that_ended_well_leaves_nothing_to_be_removed_from_the_archive(
    run: Run, database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = LogSource(database.url)
    more = FilesSource([str(tmp_path / "more.jsonl")], judge)
    append(database, warehouse(1))
    write_lines(tmp_path / "more.jsonl", [b"broken"])

    with caplog.at_level("INFO", "correlator.pipeline.archive"):
        for _ in range(3):
            run(log, more)

    assert caplog.messages == []
    with database.connect("test") as connection:
        known = [directory for (directory,) in connection.execute("SELECT directory FROM kept.archive_batches")]
    there = [str(path.relative_to(tmp_path / "archive")) for path in (tmp_path / "archive").glob("*/*")]
    assert sorted(there) == sorted(known)
    assert len(known) == 2


def test_a_batch_that_spark_repeats_changes_nothing(run: Run, database: Database, tmp_path: Path) -> None:
    events = warehouse(30)
    append(database, events)
    log = LogSource(database.url, max_events=25, events_a_task=10, parallelism=2)
    run(log)
    for _ in range(2):
        forget_last_commits(tmp_path)
        run(log)

    check_facts(database, events)
    check_log_ledger(database, 60)
    check_log_archive(database, tmp_path / "archive", events)


def test_checkpoints_that_are_lost_lose_and_repeat_nothing_of_the_log(
    run: Run, database: Database, tmp_path: Path
) -> None:
    events = warehouse(30)
    log = LogSource(database.url)
    append(database, events[:25])
    run(log)
    shutil.rmtree(tmp_path / "checkpoints")
    append(database, events[25:])

    assert [each.tally.read for each in run(log)] == [35]
    check_facts(database, events)
    check_log_ledger(database, 60)
    check_log_archive(database, tmp_path / "archive", events)


def test_a_checkpoint_that_is_ahead_of_the_database_makes_nobody_skip_an_event(run: Run, database: Database) -> None:
    append(database, warehouse(5))
    run(LogSource(database.url))
    with database.connect("test", autocommit=True) as connection:
        connection.execute("UPDATE kept.log_readers SET position = 3")

    assert [each.tally.read for each in run(LogSource(database.url))] == [7]


def test_a_reader_that_is_sent_beyond_what_was_merged_refuses_and_says_what_to_do(database: Database) -> None:
    append(database, warehouse(5))
    options = {"url": database.url, "reader": "facts", "maxevents": "5", "minevents": "1", "maxdelay": "0"}
    source = EventLogSource({**options, "parallelism": "1", "eventsatask": "5"})
    stream = source.streamReader(StructType())

    with pytest.raises(RuntimeError, match="remove the checkpoint"):
        stream.latestOffset({"position": 3}, ReadMaxRows(5))
    stream.stop()


def test_files_of_every_kind_are_read_and_what_is_broken_is_put_aside_once(
    run: Run, database: Database, tmp_path: Path
) -> None:
    # By its name it might be a file.
    directory = tmp_path / "events.v1"
    (directory / "2026" / "11").mkdir(parents=True)
    events = warehouse(20)
    broken = [b"{", b'{"eventType": "START"}', b'{"a": "\xff\xfe"}', b"no JSON at all", b"nor here"]
    write_lines(directory / "plain.jsonl", [b"", *events[:5], b"  \t ", b"", broken[0], broken[1]])
    write_lines(directory / "packed.jsonl.gz", [*events[5:10], broken[2]])
    write_lines(directory / "notes.txt", broken[3:])
    write_lines(directory / "2026" / "11" / "deep.ndjson", events[10:15])
    (directory / "windows.json").write_bytes(b"\xef\xbb\xbf" + b"\r\n".join([*events[15:20], b"", b""]))
    (directory / "empty.jsonl").write_bytes(b"")
    (directory / "blank.jsonl").write_bytes(b"\n\r\n   \n" + 40 * b" " + b"\n\xef\xbb\xbf\n")
    (directory / "last-line-open.jsonl").write_bytes(b"\n".join(events[20:25]))
    write_parquet(directory / "binary.parquet", events[25:30])
    write_parquet(directory / "text.parquet", events[30:], pa.string())
    # Once more what others have said.
    write_parquet(directory / "2026" / "again.snappy.parquet", events[:3])
    files = FilesSource([str(directory)], judge)

    done = run(files)

    check_facts(database, events)
    assert rejected(database) == sorted(broken)
    assert ledger(database, "files") == [(48, 40, 3, 5)]
    assert [each.tally.read for each in done] == [48]
    check_files_archive(database, tmp_path / "archive", [*events, *events[:3]])

    # Nothing new; then the same batch again; then everything again.
    assert run(files) == []
    forget_last_commits(tmp_path)
    assert [each.tally.read for each in run(files)] == [48]
    assert ledger(database, "files") == [(48, 40, 3, 5)]
    check_files_archive(database, tmp_path / "archive", [*events, *events[:3]])
    shutil.rmtree(tmp_path / "checkpoints")
    run(files)
    check_facts(database, events)
    assert rejected(database) == sorted(broken)


def check_files_archive(database: Database, archive: Path, raws: Sequence[bytes]) -> None:
    with database.connect("test") as connection:
        manifest = connection.execute(
            "SELECT directory, events FROM kept.archive_batches WHERE source = 'files'"
        ).fetchall()
    assert sum(events for _, events in manifest) == len(raws)
    assert sorted(row["raw"] for name, _ in manifest for row in archived(archive / name)) == sorted(raws)


def test_single_files_can_be_named_and_parquet_may_have_a_column_of_another_name(
    run: Run, database: Database, tmp_path: Path
) -> None:
    events = warehouse(10)
    write_lines(tmp_path / "one.jsonl", events[:6])
    write_lines(tmp_path / "two.jsonl.gz", events[6:10])
    write_parquet(tmp_path / "three.parquet", events[10:], column="body")
    paths = [str(tmp_path / name) for name in ("one.jsonl", "two.jsonl.gz", "three.parquet")]

    run(FilesSource(paths, judge, column="body"))

    check_facts(database, events)
    assert sum(read for read, *_ in ledger(database, "files")) == 20


def test_of_a_part_of_the_log_without_events_nothing_is_read(spark: SparkSession, database: Database) -> None:
    append(database, warehouse(3))

    log = LogSource(database.url)

    assert log.between(spark, 2, 2).count() == 0
    assert log.between(spark, 2, 4).count() == 2


def test_an_archive_may_lie_where_letters_would_be_a_pattern_elsewhere(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    events = warehouse(3)
    write_lines(tmp_path / "events.jsonl", events)
    archive = tmp_path / "archive [1] of {a,b}*?"
    files = FilesSource([str(tmp_path / "events.jsonl")], judge)

    Driver(spark, database, [files], msgspec.structs.replace(plan(tmp_path), archive=str(archive))).batch()

    check_files_archive(database, archive, events)
    kept = Archive(database, str(archive))
    assert sorted(row["raw"] for row in kept.read(spark, kept.batches()).collect()) == sorted(events)
    names = [batch.directory for batch in kept.batches()]
    assert sum(int(rows) for rows in HadoopPlaces(spark).rows(str(archive), names).values()) == len(events)


def test_events_of_the_log_and_of_files_are_one_history(run: Run, database: Database, tmp_path: Path) -> None:
    events = warehouse(10)
    append(database, events[::2])
    write_lines(tmp_path / "others.jsonl", events[1::2] + events[:4])

    run(LogSource(database.url), FilesSource([str(tmp_path / "others.jsonl")], judge))

    check_facts(database, events)
    assert ledger(database, "log") == [(10, 10, 0, 0)]
    # Two of them are in the file twice.
    assert ledger(database, "files") == [(14, 12, 2, 0)]


def test_who_comes_second_waits_for_the_first_and_says_so(
    run: Run, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    append(database, warehouse(5))
    waiting = threading.Event()
    caplog.handler.addFilter(lambda line: "another process" not in line.getMessage() or tell(waiting))

    with Turn(database, "log facts", threading.Event()):
        second = threading.Thread(target=run, args=[LogSource(database.url)])
        second.start()
        assert waiting.wait(60)
        with database.connect("test") as connection:
            assert connection.execute("SELECT FROM job_runs").fetchall() == []
    second.join()

    check_facts(database, warehouse(5))


def test_a_batch_run_leaves_a_source_to_the_process_that_goes_on_reading_it(
    spark: SparkSession, database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events = warehouse(10)
    append(database, events[:10])
    write_lines(tmp_path / "others.jsonl", events[10:])
    sources: list[Source] = [LogSource(database.url), FilesSource([str(tmp_path / "others.jsonl")], judge)]

    with Turn(database, "log facts", threading.Event()):
        Driver(spark, database, sources, plan(tmp_path, turn_patience=0.0)).batch()

    assert "log facts: the other process goes on; what there is to read is left to it" in caplog.text
    assert ledger(database, "log") == []
    assert ledger(database, "files") == [(10, 10, 0, 0)]


def tell(event: threading.Event) -> bool:
    event.set()
    return True


def test_a_database_that_is_not_there_is_told_in_its_own_words(spark: SparkSession, tmp_path: Path) -> None:
    nowhere = Database("postgresql://nobody@localhost:1/nothing")

    with pytest.raises(psycopg.OperationalError, match="port 1"):
        Driver(spark, nowhere, [LogSource(nowhere.url)], plan(tmp_path, patience=0.0)).batch()


def test_each_reader_of_the_log_has_a_source_of_its_own(spark: SparkSession, database: Database) -> None:
    # Of one that they share Spark may change what it is just sending to a task of the other.
    log = LogSource(database.url)
    plans = [str(log.arrivals(spark, reader)._jdf.queryExecution()) for reader in ("facts", "archive")]  # noqa: SLF001
    assert ["correlator_log_facts" in plan for plan in plans] == [True, False]
    assert ["correlator_log_archive" in plan for plan in plans] == [False, True]
