"""`correlator up`: everything in one process tree, from a POST to the rows, and nothing left behind."""

import json
import os
import re
import signal
from http.client import HTTPConnection
from pathlib import Path

import psycopg
import pytest

from correlator.store.database import Database
from tests.integration.cli.command import correlator
from tests.integration.cli.processes import Running, running
from tests.integration.pipeline.histories import check_facts, warehouse
from tests.integration.server.running import embedded_url, kill_postgres, postmaster, wait_until

LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
WORKS = "the pipeline works on log"


def post(up: Running, events: list[bytes]) -> None:
    found = LISTENING.search(up.log)
    assert found is not None
    connection = HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
    body = b"[" + b",".join(events) + b"]"
    connection.request("POST", "/api/v1/lineage/batch", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    told = json.loads(answer.read())
    connection.close()
    assert (answer.status, told["summary"]["successful"]) == (200, len(events)), told


def wait_for_rows(data_dir: Path, runs: int) -> Database:
    database = Database(embedded_url(data_dir))

    def are_there() -> bool:
        try:
            with database.connect("test") as connection:
                return connection.execute("SELECT FROM job_runs WHERE ended_at IS NOT NULL").rowcount >= runs
        except psycopg.OperationalError:
            return False

    wait_until(are_there, f"{runs} runs are in the tables")
    return database


@pytest.mark.long
def test_whoever_is_killed_is_started_again_everything_becomes_rows_and_nothing_is_left_behind(data_dir: Path) -> None:
    events = warehouse(40)
    arguments = ("up", "--port", "0", "--data-dir", str(data_dir), "--spark-master", "local[2]")
    try:
        with running(data_dir, *arguments) as up:
            up.wait_for_words("listening on")
            post(up, events[:20])
            wait_for_rows(data_dir, 10)

            # Of Java nobody is told that it is gone: the kernel kills the largest process when memory is short.
            os.kill(up.other("org.apache.spark.deploy.SparkSubmit"), signal.SIGKILL)
            up.wait_for_words("Spark's Java process was killed (signal 9)")
            post(up, events[20:24])
            up.wait_for_words(WORKS, times=2)

            os.kill(up.other("spawn_main"), signal.SIGKILL)
            up.wait_for_words("the pipeline has ended (by signal 9); it is started again")
            post(up, events[24:30])
            up.wait_for_words(WORKS, times=3)

            post(up, events[30:40])
            up.process.kill()
            up.process.wait()
            wait_until(lambda: not up.others("java") and not up.others("python"), "the pipeline has ended by itself")

        with running(data_dir, *arguments) as another:
            another.wait_for_words("listening on")
            post(another, events[40:])
            check_facts(wait_for_rows(data_dir, 40), events)

            assert another.stop() == 0, another.log
            assert "the pipeline has stopped" in another.log
            wait_until(lambda: another.others() == [], "no process is left")
            assert postmaster(data_dir) is None
    finally:
        kill_postgres(data_dir)


def test_nothing_to_read_is_told_before_anything_is_started(tmp_path: Path) -> None:
    told = correlator("up", "--data-dir", str(tmp_path), "--no-log-source")

    assert told.returncode == 2
    assert "There is nothing to read" in told.stderr
