"""The audit of what the pipeline has really done, and files that are read again."""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from correlator.config import PipelineSettings
from correlator.pipeline.again import read_again
from correlator.pipeline.archive import Archive
from correlator.pipeline.assembly import archive_directory, plan_of, sources_of
from correlator.pipeline.audit import Audit, audit, check_topics
from correlator.pipeline.driver import Driver
from correlator.pipeline.fact_sink import FactSink
from correlator.pipeline.places import HadoopPlaces, LocalPlaces
from correlator.pipeline.sources.files import FilesSource
from correlator.pipeline.sources.log import LogSource
from correlator.pipeline.sources.topics import Extent, Topic
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from correlator.store.audit import Check, OriginRead
from correlator.store.database import Database
from correlator.store.event_log import EventLog, Group, entry_of
from correlator.store.ledger import lag_of_facts, lags, source_totals
from tests.integration.events import run_event


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect("test", autocommit=True) as connection:
        yield connection


def texts(count: int, job: str = "load") -> list[bytes]:
    return [json.dumps(run_event(run_id=str(uuid4()), job=job)).encode() for _ in range(count)]


def append(connection: psycopg.Connection, raws: Sequence[bytes]) -> None:
    verdicts = [judge(raw) for raw in raws]
    entries = [entry_of(verdict) for verdict in verdicts if not isinstance(verdict, Rejection)]
    EventLog(connection).append(Group(uuid4(), "http", entries))


def process_log(spark: SparkSession, database: Database, settings: PipelineSettings, end: int) -> None:
    """One batch of facts, and two of the archive. A stream of the log would start a process for each reader."""
    log = LogSource(database.url)
    sink = FactSink(database, log)
    sink.apply(log.between(spark, 0, end), "query", 0)
    sink.close()
    archive = Archive(database, archive_directory(settings)).sink(log)
    archive.write(log.between(spark, 0, end // 2), "batch=000000000-query")
    archive.write(log.between(spark, end // 2, end), "batch=000000001-query")


def process_files(spark: SparkSession, database: Database, settings: PipelineSettings) -> None:
    Driver(spark, database, sources_of(settings, database, spark), plan_of(settings, spark)).batch()


def problems(found: Audit) -> list[str]:
    return [sentence for check in found.checks for sentence in (*check.wrong, *check.unknown)]


def test_what_the_pipeline_has_read_is_balanced_and_a_file_that_grows_is_told_until_it_is_read_again(
    spark: SparkSession, database: Database, connection: psycopg.Connection, tmp_path: Path
) -> None:
    files = tmp_path / "in coming"
    files.mkdir()
    grows, packed, rows = files / "grows.jsonl", files / "packed.jsonl.gz", files / "rows.parquet"
    grows.write_bytes(b"\n".join([*texts(3, "a"), b"{}", b""]))
    packed.write_bytes(gzip.compress(b"\n".join(texts(2, "b"))))
    pq.write_table(pa.table({"raw": pa.array(texts(2, "c"), pa.binary())}), rows)
    append(connection, texts(50))
    settings = PipelineSettings(data_dir=tmp_path, database_url=database.url, files=(str(files),), log_source=False)
    process_log(spark, database, settings, 50)
    process_files(spark, database, settings)

    found = audit(database, settings, lambda: spark, deep=True)

    assert problems(found) == []
    assert [check.said for check in found.checks if check.name == "files"] == ["3 files, 3 read, 0 waiting"]
    assert {one.source: (one.received, one.stored, one.rejected, one.missing) for one in found.sources} == {
        "http": (50, 50, 0, 0),
        "files": (8, 7, 1, 0),
    }
    assert lag_of_facts(lags(connection)).events == 0
    assert all(totals.seconds > 0 for totals in source_totals(connection))

    with grows.open("ab") as file:
        file.write(b"\n".join([*texts(2, "late"), b""]))
    assert [sentence.partition(" since")[0] for sentence in problems(audit(database, settings, lambda: spark))] == [
        f"{grows} has grown by {2 * len(texts(1, 'late')[0]) + 2:,} bytes"
    ]
    process_files(spark, database, settings)
    assert len(problems(audit(database, settings, lambda: spark))) == 1

    read_again(spark, database, FilesSource([str(grows)], judge), plan_of(settings, spark))

    found = audit(database, settings, lambda: spark, deep=True)
    assert problems(found) == []
    assert connection.execute("SELECT count(*) FROM facts.jobs").fetchone() == (5,)
    assert connection.execute("SELECT count(*) FROM facts.job_runs").fetchone() == (59,)
    assert connection.execute("SELECT count(*) FROM kept.rejected_events").fetchone() == (1,)
    assert connection.execute(
        "SELECT read, applied, rejected FROM kept.pipeline_batches WHERE query_id LIKE 'again-%%'"
    ).fetchall() == [(6, 5, 1)]

    # As the documentation says it can be read.
    archive = str(tmp_path / "archive")
    assert spark.read.parquet(archive).count() == pq.read_table(archive).num_rows == 50 + 7 + 5

    grows.write_bytes(b"\n")
    assert len(problems(audit(database, settings, lambda: spark))) == 1
    read_again(spark, database, FilesSource([str(grows)], judge), plan_of(settings, spark))
    assert problems(audit(database, settings, lambda: spark)) == []


def test_hadoop_sees_what_this_machine_sees(spark: SparkSession, tmp_path: Path) -> None:
    files = tmp_path / "100% ünusual (1)+2"
    for name in ("a b.jsonl", "c%20d.jsonl", "deep/e.jsonl", "_temporary/f.jsonl", ".g.jsonl", "h/_i"):
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_text("{}\n")
    table = pa.table({"position": pa.array([1, 2], pa.int64()), "raw": pa.array([b"1", b"2"])})
    for name in ("source=log/batch=1-q/day=2026-11-16/p.parquet", "source=log/batch=1-q/day=2026-11-17/p.parquet"):
        (tmp_path / name).parent.mkdir(parents=True)
        pq.write_table(table, tmp_path / name)
    (tmp_path / "source=log" / "batch=2-q").mkdir()
    remote, local = HadoopPlaces(spark), LocalPlaces()

    assert sorted(remote.files(str(files))) == sorted(local.files(str(files)))
    assert [Path(file.key).name for file in sorted(local.files(f"{files}/*.jsonl"))] == ["a b.jsonl", "c%20d.jsonl"]
    assert sorted(remote.files(f"file://{tmp_path}/*")) == sorted(local.files(f"file:{tmp_path}/*"))
    directories = ["source=log/batch=1-q", "source=log/batch=2-q"]
    assert (
        remote.rows(str(tmp_path), directories)
        == local.rows(str(tmp_path), directories)
        == {
            "source=log/batch=1-q": 4,
            "source=log/batch=2-q": 0,
        }
    )
    assert remote.directories(f"{tmp_path}/source=log") == local.directories(f"{tmp_path}/source=log")
    assert remote.directories(f"{tmp_path}/none") == local.directories(f"{tmp_path}/none") == []


def test_offsets_that_expired_before_they_were_read_are_missing_and_those_that_wait_are_not() -> None:
    read = [
        OriginRead("facts", "events/0", 9, None, None, "A"),
        OriginRead("archive", "events/0", 4, None, None, "A"),
        OriginRead("facts", "events/1", 9, None, None, "A"),
        OriginRead("facts", "events/2", 9, None, None, "A"),
        OriginRead("facts", "old/0", 3, None, None, "B"),
    ]
    check = Check("kafka")
    extents = {0: Extent(0, 15), 1: Extent(12, 20), 2: Extent(0, 5), 3: Extent(0, 7)}
    check_topics(check, {"events": Topic("events", "A", extents)}, read)

    assert len(check.wrong) == 2
    assert "For the facts: offsets 10 to 11 of events/1 are lost" in check.wrong[0]
    assert "For the facts: events/2 ends before offset 5" in check.wrong[1]
    assert check.missing == 2
    assert check.said == "4 partitions, 20 messages behind, the archive 30"
    assert check.notes == ["partitions that were read and that the broker does not have: old/0"]
