"""Every fact anew: the same tables, whatever the archive holds and whatever arrives meanwhile."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from correlator.pipeline.archive import Archive
from correlator.pipeline.driver import Driver, Plan
from correlator.pipeline.fact_sink import Done, FactSink, Size
from correlator.pipeline.replay import Replay, ReplayError
from correlator.pipeline.sources import Source
from correlator.pipeline.sources.files import FilesSource
from correlator.pipeline.sources.log import LogSource
from correlator.rulebook.decode import judge
from correlator.store.database import Database
from tests.integration.alerts.shop import ago
from tests.integration.pipeline.histories import append, check_facts, warehouse, write_lines
from tests.unit.rulebook.histories import assertions, dataset, run_json

SHOP, BANK, LATE = warehouse(12, "shop"), warehouse(9, "bank"), warehouse(5, "late")

_SHAPE = """
SELECT conname AS name, pg_get_constraintdef(oid) AS said FROM pg_constraint WHERE connamespace = 'facts'::regnamespace
UNION ALL
SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'facts'
UNION ALL
SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal AND tgrelid = 'facts.job_runs'::regclass
ORDER BY 1, 2
"""
_KEPT = "SELECT reader, position FROM kept.log_readers ORDER BY 1"


def rows(database: Database, query: str) -> list[Any]:
    with database.connect("test") as connection:
        return connection.execute(query.encode()).fetchall()


class Pipeline:
    """The log and a directory of files, with their archive."""

    def __init__(self, spark: SparkSession, database: Database, directory: Path) -> None:
        self.spark = spark
        self.database = database
        self.files = directory / "files"
        self.files.mkdir()
        self.archive = directory / "archive"
        self.log = LogSource(database.url, events_a_task=10, parallelism=2)
        self.sources: list[Source] = [self.log, FilesSource([str(self.files)], judge)]
        self.plan = Plan(checkpoints=str(directory / "checkpoints"), archive=str(self.archive))

    def run(self, *, archive: bool = True) -> None:
        plan = self.plan if archive else Plan(checkpoints=self.plan.checkpoints, archive=None)
        Driver(self.spark, self.database, self.sources, plan).batch()

    def replay(self, on_done: Callable[[Done], None] = lambda _: None) -> None:
        Replay(
            self.spark,
            self.database,
            self.sources,
            Archive(self.database, str(self.archive)),
            size=Size(small_events=10, partitions=2),
            batch_events=15,
            on_done=on_done,
        ).run()


@pytest.fixture
def pipeline(spark: SparkSession, database: Database, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, database, tmp_path)


def test_replay_makes_the_same_tables_of_archive_log_and_files(pipeline: Pipeline) -> None:
    database = pipeline.database
    failed = failed_check("raw", 20)
    append(database, [*SHOP, failed])
    write_lines(pipeline.files / "bank.jsonl", BANK)
    pipeline.run()
    assert watched(database) == 1
    # What only the facts have read so far.
    append(database, LATE)
    write_lines(pipeline.files / "late.jsonl.gz", warehouse(3, "packed"))
    pipeline.run(archive=False)
    shape, kept, ledger = (rows(database, q) for q in (_SHAPE, _KEPT, "TABLE kept.pipeline_batches"))
    with database.connect("test") as connection:
        connection.execute("TRUNCATE facts.lineage_edges; UPDATE facts.jobs SET facets = '{}'")
        connection.execute("DELETE FROM kept.alert_watch")

    pipeline.replay()

    check_facts(database, [*SHOP, failed, *BANK, *LATE, *warehouse(3, "packed")])
    assert watched(database) == 0, "a replay tells nobody of what it finds"
    assert rows(database, _SHAPE) == shape
    assert rows(database, _KEPT) == kept
    assert rows(database, "TABLE kept.pipeline_batches") == ledger
    assert rows(database, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'facts%'") == [("facts",)]


def test_what_arrives_and_is_merged_during_a_replay_is_not_lost(pipeline: Pipeline) -> None:
    database = pipeline.database
    append(database, SHOP)
    pipeline.run()
    sink = FactSink(database, pipeline.log)
    late = iter([LATE, warehouse(4, "later")])

    def meanwhile(_: Done) -> None:
        """After a part of the replay: the server takes events, and the pipeline merges them."""
        events = next(late, None)
        if events is not None:
            before = rows(database, "SELECT position FROM kept.log_readers WHERE reader = 'facts'")[0][0]
            append(database, events)
            sink.apply(pipeline.log.between(pipeline.spark, before, before + len(events)), "live", before)

    with closing(sink):
        pipeline.replay(meanwhile)

    check_facts(database, [*SHOP, *LATE, *warehouse(4, "later")])
    # The tables are other ones now, and the pipeline goes on with them.
    append(database, BANK)
    pipeline.run()
    check_facts(database, [*SHOP, *LATE, *warehouse(4, "later"), *BANK])


def test_a_replay_that_cannot_read_everything_changes_nothing(pipeline: Pipeline) -> None:
    database = pipeline.database
    append(database, SHOP)
    pipeline.run()
    rmtree(next((pipeline.archive / "source=log").iterdir()))

    with pytest.raises(Exception, match="Path does not exist"):
        pipeline.replay()

    check_facts(database, SHOP)
    assert rows(database, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'facts%'") == [("facts",)]


def test_a_replay_without_a_source_that_only_has_its_events_is_refused(pipeline: Pipeline) -> None:
    write_lines(pipeline.files / "bank.jsonl", BANK)
    pipeline.run(archive=False)
    pipeline.sources = [pipeline.log]

    with pytest.raises(ReplayError, match=r"bank\.jsonl, which the archive does not hold yet"):
        pipeline.replay()

    check_facts(pipeline.database, BANK)


def failed_check(table: str, minutes_ago: float) -> bytes:
    tested = dataset(table, inputFacets=assertions({"assertion": "unique", "success": False}))
    event = run_json("COMPLETE", ago(minutes_ago), run=str(uuid4()), job=f"test.{table}", inputs=[tested])
    return json.dumps(event).encode()


def watched(database: Database) -> int:
    """Incidents that somebody is to be told of."""
    return int(rows(database, "SELECT count(*) FROM kept.alert_watch")[0][0])
