"""Exactly once in effect: whoever is killed, and whenever, the tables end as if nothing had happened."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from correlator.store.database import Database
from tests.integration.pipeline.crashing import POINTS
from tests.integration.pipeline.histories import (
    append,
    check_facts,
    check_log_archive,
    check_log_ledger,
    positions,
    warehouse,
)
from tests.integration.pipeline.pipelines import QUICKLY
from tests.integration.server.running import wait_until

chaos = pytest.mark.skipif(
    "CORRELATOR_CHAOS" not in os.environ, reason="a start of Spark for each point, some minutes: make chaos"
)

PATIENCE = 600
EVENTS_A_ROUND = 40
KILLS = 8 if "CORRELATOR_CHAOS" in os.environ else 1

ARCHIVE_POINTS = ("while the archive is written", "before the archive's row", "after the archive's row")
TELLING = ("in the middle of the merge", "after the merge is committed", *ARCHIVE_POINTS)


class Rounds:
    """Crashes one after the other on one database and one data directory, with new events in each."""

    def __init__(self, database: Database, directory: Path, *options: str) -> None:
        self.database = database
        self.directory = directory
        self.events = warehouse(10_000)
        self.sent: list[bytes] = []
        self.arguments = (
            *("--database-url", database.url, "--data-dir", str(directory), "--spark-master", "local[2]"),
            *("--spark-conf", QUICKLY, "--archive-min-events", "1", *options),
        )

    def send(self, count: int = EVENTS_A_ROUND) -> None:
        raws = self.events[len(self.sent) : len(self.sent) + count]
        assert append(self.database, raws) == count
        self.sent += raws

    def crash(self, point: str) -> None:
        self.send()
        code, said = run("-m", "tests.integration.pipeline.crashing", point, "pipeline", "batch", *self.arguments)
        assert code == -signal.SIGKILL, f"not killed {point}, but ended with {code}:\n{said}"

    def forget_checkpoints(self) -> None:
        shutil.rmtree(self.directory / "checkpoints")

    def finish(self) -> None:
        """One undisturbed run, and everything is as it would have been without the others."""
        self.send()
        code, said = run("-m", "correlator.cli.main", "pipeline", "batch", *self.arguments)
        assert code == 0, said
        check_facts(self.database, self.sent)
        check_log_ledger(self.database, len(self.sent))
        check_log_archive(self.database, self.directory / "archive", self.sent)


@pytest.mark.long
def test_a_stream_that_is_killed_at_any_moment_under_load_leaves_nothing_out_and_nothing_double(
    database: Database, tmp_path: Path
) -> None:
    rounds = Rounds(database, tmp_path)
    random = Random("always the same")
    for _ in range(KILLS):
        with streaming(*rounds.arguments) as process:
            rounds.send()
            # From here on it works: after the first batch, at a moment that nobody has chosen.
            wait_until(lambda: facts_position(database) >= len(rounds.sent), "a batch is merged")
            moment = time.monotonic() + random.uniform(0, 2)
            while time.monotonic() < moment:
                rounds.send(4)
            os.killpg(process.pid, signal.SIGKILL)
    rounds.finish()


def facts_position(database: Database) -> int:
    with database.connect("test") as connection:
        return positions(connection).get("facts", 0)


@contextmanager
def streaming(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(  # noqa: S603 (our own command)
        [sys.executable, "-m", "correlator.cli.main", "pipeline", "stream", "--trigger", "0.05", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(*arguments: str) -> tuple[int, str]:
    """In a process group of its own, all of which is gone afterwards."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CORRELATOR_")}
    process = subprocess.Popen(  # noqa: S603 (our own command)
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=inherited,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        raise AssertionError(f"not ended after {PATIENCE} s:\n{said}") from None
    return process.returncode, said


@chaos
def test_a_driver_that_is_killed_at_any_point_leaves_nothing_out_and_nothing_double(
    database: Database, tmp_path: Path
) -> None:
    rounds = Rounds(database, tmp_path)
    for point in POINTS:
        rounds.crash(point)
    rounds.finish()


@chaos
@pytest.mark.parametrize("points", [TELLING], ids=["telling"])
def test_the_same_when_the_checkpoints_are_lost_each_time(
    database: Database, tmp_path: Path, points: Sequence[str]
) -> None:
    # Every batch the way of a large one: merged while it is staged.
    rounds = Rounds(database, tmp_path, "--small-batch-events", "0")
    for point in points:
        rounds.crash(point)
        rounds.forget_checkpoints()
    rounds.finish()
