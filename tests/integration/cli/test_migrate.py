"""`correlator migrate` against real databases: empty, up to date, changed, away."""

import json
from pathlib import Path

from correlator.store.database import Database
from correlator.store.migrations import known_migrations
from tests.integration.cli.command import correlator

NAMES = [migration.name for migration in known_migrations()]


def test_an_empty_database_is_brought_up_to_date_once(empty_database: Database) -> None:
    url = ("--database-url", empty_database.url)
    before = correlator("migrate", "--check", *url)
    assert (before.returncode, before.stderr) == (1, "")
    assert before.stdout.splitlines() == [f"pending {name}" for name in NAMES]
    done = correlator("migrate", *url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"applied {name}" for name in NAMES]
    for arguments in (("migrate", *url), ("migrate", "--check", *url)):
        again = correlator(*arguments)
        assert (again.returncode, again.stdout) == (0, "The schema is up to date.\n")


def test_programs_get_json(empty_database: Database) -> None:
    url = ("--json", "--database-url", empty_database.url)
    assert json.loads(correlator("migrate", "--check", *url).stdout) == {
        "up_to_date": False,
        "applied": [],
        "pending": NAMES,
    }
    assert json.loads(correlator("migrate", *url).stdout) == {"up_to_date": True, "applied": NAMES, "pending": []}


def test_a_database_with_another_history_is_refused_and_left_alone(database: Database) -> None:
    with database.connect("test") as connection:
        connection.execute("UPDATE kept.migrations SET hash = 'other' WHERE number = 1")
    for arguments in (("migrate",), ("migrate", "--check")):
        refused = correlator(*arguments, "--database-url", database.url)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert NAMES[0] in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_database_that_does_not_answer_is_told_with_exit_code_2() -> None:
    for arguments in (("migrate",), ("migrate", "--check")):
        failed = correlator(*arguments, "--database-url", "postgresql://ann:geheim@127.0.0.1:1/lineage")
        assert (failed.returncode, failed.stdout) == (2, "")
        assert "The database 'lineage' at 127.0.0.1, port 1 does not answer: " in failed.stderr
        assert "geheim" not in failed.stderr
        assert "Traceback" not in failed.stderr


def test_to_look_at_an_embedded_database_does_not_make_one(data_dir: Path) -> None:
    looked = correlator("migrate", "--check", "--data-dir", str(data_dir))
    assert looked.returncode == 1
    assert list(data_dir.iterdir()) == []


def test_the_embedded_database_is_made_where_there_is_none(data_dir: Path) -> None:
    done = correlator("migrate", "--data-dir", str(data_dir))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"applied {name}" for name in NAMES]
    assert correlator("migrate", "--check", "--data-dir", str(data_dir)).returncode == 0
