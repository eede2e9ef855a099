"""Executors on other machines: a real cluster gives the tables that one process gives."""

from pathlib import Path

import pytest
from benchmarks.fold import warehouse_runs
from pyspark.sql import SparkSession

from correlator.pipeline.driver import Driver, Plan
from correlator.pipeline.sources.files import FilesSource
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from correlator.rulebook.fold import fold
from correlator.store.database import Database
from correlator.store.fact_rows import read_facts
from tests.integration.conftest import Postgres, database_url, new_database
from tests.integration.pipeline.clusters import running_cluster
from tests.integration.pipeline.fingerprints import fingerprints
from tests.integration.pipeline.pipelines import run_batch
from tests.integration.store.merging import differences

_FILES, _EVENTS = 10, 4_000


@pytest.mark.long
def test_a_cluster_of_two_workers_gives_the_tables_of_one_process(
    spark: SparkSession, postgres: Postgres, migrated_template: str, data_dir: Path
) -> None:
    events = [event for _ in range(_EVENTS // 2_000) for event in warehouse_runs()]
    # Every event twice, in different files, so that equal ones meet only after the shuffle.
    files = data_dir / "events"
    files.mkdir()
    for number in range(_FILES):
        lines = [*events[number::_FILES], *events[(number + 1) % _FILES :: _FILES]]
        (files / f"{number}.jsonl").write_bytes(b"\n".join(lines) + b"\n{}\n")
    usual = {"log_source": "false", "files": str(files), "log_format": "console"}
    with (
        new_database(postgres, migrated_template) as alone,
        new_database(postgres, migrated_template) as shared,
    ):
        one, other = Database(database_url(postgres, alone)), Database(database_url(postgres, shared))
        plan = Plan(checkpoints=str(data_dir / "alone"), archive=None)
        Driver(spark, one, [FilesSource([str(files)], judge)], plan).batch()
        with running_cluster(data_dir) as cluster:
            spread = run_batch(
                usual
                | {"database_url": other.url, "data_dir": str(data_dir / "shared")}
                | {"archive_dir": str(data_dir / "archive")}
                | cluster.settings
            )
            assert spread.returncode == 0, spread.stderr
            assert cluster.executors() == {"worker-0", "worker-1"}
        assert fingerprints(one) == fingerprints(other)
        assert _totals(one) == _totals(other)
        read, applied, duplicates, rejected = _totals(one)
        assert (read, rejected) == (2 * len(events) + _FILES, _FILES)
        assert applied + duplicates == 2 * len(events)
        with other.connect("test") as connection:
            verdicts = [judge(raw) for raw in events]
            model = fold([verdict for verdict in verdicts if not isinstance(verdict, Rejection)])
            assert differences(read_facts(connection), model) == []


def _totals(database: Database) -> tuple[int, ...]:
    with database.connect("test") as connection:
        row = connection.execute("SELECT read, applied, duplicates, rejected FROM kept.pipeline_totals").fetchone()
    assert row is not None
    return tuple(row)
