"""`correlator pipeline` in processes of its own."""

from pathlib import Path

import pytest

from correlator.store.database import Database
from tests.integration.cli.command import correlator
from tests.integration.cli.processes import running
from tests.integration.pipeline.histories import append, check_facts, check_log_ledger, warehouse, write_lines
from tests.integration.pipeline.pipelines import QUICKLY
from tests.integration.server.running import wait_until


def test_a_batch_run_reads_what_there_is_and_a_second_one_nothing(database: Database, tmp_path: Path) -> None:
    events = warehouse(20)
    append(database, events[:30])
    write_lines(tmp_path / "more.jsonl", [*events[30:], b"broken"])
    arguments = (
        *("pipeline", "batch", "--database-url", database.url, "--data-dir", str(tmp_path)),
        *("--files", str(tmp_path / "more.jsonl"), "--spark-master", "local[2]", "--spark-conf", QUICKLY),
    )

    first, second = correlator(*arguments), correlator(*arguments)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "41 events read" in first.stderr
    assert "40 applied, 0 duplicate, 1 rejected" in first.stderr
    assert "0 events read" in second.stderr
    assert "Traceback" not in first.stderr + second.stderr
    check_facts(database, events)
    check_log_ledger(database, 30)


@pytest.mark.long
def test_a_second_process_waits_until_the_first_was_told_to_stop_and_then_takes_over(
    database: Database, tmp_path: Path
) -> None:
    events = warehouse(20)
    arguments = (
        *("--database-url", database.url, "--data-dir", str(tmp_path)),
        *("--spark-master", "local[2]", "--spark-conf", QUICKLY),
    )
    append(database, events[:30])
    with running(tmp_path, "pipeline", "stream", *arguments) as first:
        first.wait_for_words("the pipeline works on log")
        with running(tmp_path, "pipeline", "batch", *arguments) as second:
            second.wait_for_words("log facts: another process works on it; waiting for it to end")
            assert first.stop() == 0, first.log
            assert "the pipeline has stopped" in first.log
            wait_until(lambda: first.others() == [], "no process is left")
            append(database, events[30:])
            assert second.wait() == 0, second.log

    check_facts(database, events)
    check_log_ledger(database, 40)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--trigger", "soon"], "--trigger"),
        (["--no-log-source"], "There is nothing to read"),
        (["--spark-conf", "nonsense"], "--spark-conf"),
        (["--pipeline-batch-events", "0"], "--pipeline-batch-events"),
        (["--database-url", "nonsense"], "database"),
    ],
)
def test_settings_that_make_no_sense_are_told_in_a_sentence(tmp_path: Path, arguments: list[str], words: str) -> None:
    told = correlator("pipeline", "stream", "--data-dir", str(tmp_path), *arguments)

    assert told.returncode == 2
    assert words in told.stderr
    assert "Traceback" not in told.stderr


def test_an_embedded_database_and_executors_elsewhere_do_not_go_together(data_dir: Path) -> None:
    told = correlator("pipeline", "batch", "--data-dir", str(data_dir), "--spark-master", "spark://elsewhere:7077")

    assert told.returncode == 2
    assert "Name a PostgreSQL server that its executors can reach" in told.stderr


def test_files_that_are_not_there_are_told(database: Database, tmp_path: Path) -> None:
    told = correlator(
        *("pipeline", "batch", "--database-url", database.url, "--data-dir", str(tmp_path), "--no-log-source"),
        *("--files", str(tmp_path / "nowhere"), "--spark-master", "local[1]", "--spark-conf", QUICKLY),
    )

    assert told.returncode == 2
    assert "nowhere" in told.stderr
    assert "Traceback" not in told.stderr
