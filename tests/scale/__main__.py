"""`python -m tests.scale`: a million events through a standalone cluster give the tables of one process."""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import click
from benchmarks.fold import warehouse_runs

from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres
from correlator.store.migrations import migrate
from tests.integration.conftest import database_url, new_database
from tests.integration.pipeline.clusters import running_cluster
from tests.integration.pipeline.fingerprints import fingerprints
from tests.integration.pipeline.pipelines import run_batch

_EVENTS_A_FILE = 50_000


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--events", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Each with one core and 1 GB.")
def command(events: int, workers: int) -> None:
    """Run a batch over the same files twice: on local[2] and on a cluster of this machine, and compare."""
    directory = Path(tempfile.mkdtemp(prefix="correlator-scale-"))
    if os.geteuid() == 0:
        directory.chmod(0o711)
    try:
        with EmbeddedPostgres.open(directory / "postgres") as server:
            _write(directory / "events", events)
            with new_database(server) as alone, new_database(server) as shared:
                one, other = Database(database_url(server, alone)), Database(database_url(server, shared))
                migrate(one)
                migrate(other)
                _run("local[2]", one, directory, {"spark_master": "local[2]"})
                with running_cluster(directory, workers) as cluster:
                    _run(f"cluster of {workers}", other, directory, cluster.settings)
                expected, found = fingerprints(one), fingerprints(other)
                click.echo(f"facts with their indexes: {_facts_bytes(one) / events:,.0f} bytes an event")
                archived = sum(path.stat().st_size for path in directory.glob("archive*local*/**/*.parquet"))
                click.echo(f"archive: {archived / events:,.0f} bytes an event")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for table, (rows, _) in expected.items():
        click.echo(f"{table:24}{rows:12,} rows  {'equal' if expected[table] == found[table] else 'DIFFERENT'}")
    if expected != found:
        sys.exit(1)


def _write(directory: Path, events: int) -> None:
    directory.mkdir()
    written = 0
    while written < events:
        with (directory / f"{written:09}.jsonl").open("wb") as file:
            in_file = 0
            while in_file < _EVENTS_A_FILE and written < events:
                lines = warehouse_runs()[: events - written]
                file.write(b"\n".join(lines) + b"\n")
                in_file += len(lines)
                written += len(lines)


def _run(name: str, database: Database, directory: Path, where: dict[str, str]) -> None:
    began = time.monotonic()
    told = run_batch(
        {
            "database_url": database.url,
            "data_dir": str(directory / name.replace(" ", "-")),
            "archive_dir": str(directory / f"archive of {name}"),
            "log_source": "false",
            "files": str(directory / "events"),
            **where,
        },
        patience=24 * 3600,
    )
    assert told.returncode == 0, told.stderr
    click.echo(f"{name}: {time.monotonic() - began:.0f} s. {told.stderr.splitlines()[-1]}")


def _facts_bytes(database: Database) -> int:
    with database.connect("test") as connection:
        row = connection.execute(
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c "
            "WHERE relnamespace = 'facts'::regnamespace AND relkind = 'r'"
        ).fetchone()
    assert row is not None
    return int(row[0])


if __name__ == "__main__":
    command()
