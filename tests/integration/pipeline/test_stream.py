"""The stream under a database that comes and goes."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from correlator.pipeline.driver import Driver, Plan
from correlator.pipeline.sources.log import LogSource
from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres
from correlator.store.migrations import migrate
from tests.integration.pipeline.histories import (
    append,
    check_facts,
    check_log_archive,
    check_log_ledger,
    positions,
    warehouse,
)
from tests.integration.server.running import family, postmaster, signal_all, wait_until


@contextmanager
def streaming(spark: SparkSession, database: Database, directory: Path) -> Iterator[Driver]:
    """A stream that is stopped between two batches when the block ends."""
    plan = Plan(
        checkpoints=str(directory / "checkpoints"),
        archive=str(directory / "archive"),
        trigger=0.05,
        archive_trigger=0.5,
        archive_min_events=1,
    )
    driver = Driver(spark, database, [LogSource(database.url)], plan)
    thread = threading.Thread(target=driver.stream)
    thread.start()
    try:
        yield driver
    finally:
        driver.stop()
        thread.join()


def wait_for(database: Database, events: int) -> None:
    """Until both readers have come so far."""

    def is_read() -> bool:
        try:
            with database.connect("test") as connection:
                at = positions(connection)
        except psycopg.OperationalError:
            return False
        return at.get("facts", 0) >= events and at.get("archive", 0) >= events

    wait_until(is_read, f"facts and archive have {events} events")


def insistently(act: Callable[[], object]) -> None:
    """Until the database takes it."""

    def is_done() -> bool:
        try:
            act()
        except psycopg.OperationalError:
            return False
        return True

    wait_until(is_done, "the database is back")


def test_a_stream_goes_on_after_its_database_was_killed(spark: SparkSession, data_dir: Path) -> None:
    events = warehouse(200)
    with EmbeddedPostgres.open(data_dir / "postgres") as server:
        database = Database(server.url)
        migrate(database)
        with streaming(spark, database, data_dir):
            append(database, events[:100])
            wait_for(database, 100)
            for number in range(100, 400, 20):
                insistently(lambda part=events[number : number + 20]: append(database, part))  # type: ignore[misc]
                if number in {160, 280}:
                    process = postmaster(data_dir)
                    assert process is not None
                    signal_all(family(process), signal.SIGKILL)
            wait_for(database, 400)

        check_facts(database, events)
        check_log_ledger(database, 400)
        check_log_archive(database, data_dir / "archive", events)


def test_a_stream_whose_turn_was_taken_away_asks_for_it_again(
    spark: SparkSession, database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events = warehouse(20)
    with streaming(spark, database, tmp_path):
        append(database, events[:20])
        wait_for(database, 20)
        with database.connect("test", autocommit=True) as connection:
            ended = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = "
                "(SELECT oid FROM pg_database WHERE datname = current_database())"
            ).fetchall()
        assert ended == [(True,), (True,)]
        append(database, events[20:])
        wait_for(database, 40)

    assert "log facts" in caplog.text
    check_facts(database, events)
    check_log_ledger(database, 40)
    check_log_archive(database, tmp_path / "archive", events)
