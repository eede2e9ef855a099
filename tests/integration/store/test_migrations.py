"""The schema grows by numbered steps, each applied once, in order, whole, and never changed afterwards."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias
from uuid import UUID

import msgspec
import pytest

from correlator.store.database import Database
from correlator.store.migrations import Migration, MigrationError, known_migrations, migrate, pending

Call: TypeAlias = Callable[[Database, Sequence[Migration]], list[str]]

ONE = Migration(1, "0001_one", "CREATE TABLE public.one (id integer)")
TWO = Migration(2, "0002_two", "CREATE TABLE public.two (id integer); INSERT INTO public.two VALUES (2)")
THREE = Migration(3, "0003_three", "CREATE TABLE public.three (id integer)")
BROKEN = Migration(2, "0002_two", "CREATE TABLE public.two (id integer); INSERT INTO public.two VALUES ('two')")

MIGRATE = """
import os
from correlator.store.database import Database
from correlator.store.migrations import migrate
print(*migrate(Database(os.environ["DATABASE"])))
"""


def tables(database: Database) -> set[str]:
    with database.connect("test") as connection:
        rows = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchall()
    return {name for (name,) in rows} - {"kept.migrations"}


def ledger(database: Database) -> list[tuple[int, str, str]]:
    with database.connect("test") as connection:
        return connection.execute("SELECT number, name, hash FROM kept.migrations ORDER BY number").fetchall()


def test_what_is_missing_is_applied_in_order_and_only_once(empty_database: Database) -> None:
    assert migrate(empty_database, [ONE]) == ["0001_one"]
    assert migrate(empty_database, [ONE, TWO, THREE]) == ["0002_two", "0003_three"]
    assert migrate(empty_database, [ONE, TWO, THREE]) == []

    assert tables(empty_database) == {"one", "two", "three"}
    assert ledger(empty_database) == [(step.number, step.name, step.hash) for step in (ONE, TWO, THREE)]


def test_what_would_be_applied_can_be_asked_without_doing_it(empty_database: Database) -> None:
    assert pending(empty_database, [ONE, TWO]) == ["0001_one", "0002_two"]
    assert tables(empty_database) == set()

    migrate(empty_database, [ONE])
    assert pending(empty_database, [ONE, TWO]) == ["0002_two"]
    migrate(empty_database, [ONE, TWO])
    assert pending(empty_database, [ONE, TWO]) == []


def test_correlators_own_migrations_are_numbered_without_a_gap() -> None:
    known = known_migrations()

    assert [migration.number for migration in known] == list(range(1, len(known) + 1))
    assert all(migration.name.startswith(f"{migration.number:04}_") for migration in known)


def test_correlators_own_migrations_apply_to_an_empty_database(empty_database: Database) -> None:
    names = [migration.name for migration in known_migrations()]

    assert pending(empty_database) == names
    assert migrate(empty_database) == names
    assert pending(empty_database) == []


def test_the_history_of_facets_of_older_databases_is_kept_by_the_hour(empty_database: Database) -> None:
    known = known_migrations()
    migrate(empty_database, [migration for migration in known if migration.number < 18])
    job, run, one, other = (UUID(int=number) for number in (1, 2, 3, 4))
    said = [
        ("09:59:59", 1, one),
        ("10:00", 0, one),
        ("10:59:59.999999", 3, one),
        ("10:30", 2, other),
        ("11:00", 1, None),
    ]
    with empty_database.connect("test", autocommit=True) as connection:
        for time, rank, body in said:
            connection.execute(
                "INSERT INTO facts.facet_history VALUES (%s, %s, %s, %s, %s, %s, 'job', 'sql')",
                [job, run, f"2026-05-01T{time}Z", UUID(int=9), body, rank],
            )

    migrate(empty_database, known)

    with empty_database.connect("test") as connection:
        rows = connection.execute(
            "SELECT to_char(hour, 'HH24'), to_char(first_at, 'HH24:MI:SS'), to_char(last_at, 'HH24:MI:SS'), rank, "
            "body_digest FROM facts.facet_history ORDER BY first_at"
        ).fetchall()
    assert rows == [
        ("09", "09:59:59", "09:59:59", 1, one),
        ("10", "10:00:00", "10:59:59", 3, one),
        ("10", "10:30:00", "10:30:00", 2, other),
        ("11", "11:00:00", "11:00:00", 1, UUID(int=0)),
    ]


def test_of_several_processes_that_start_at_once_one_does_the_work(empty_database: Database) -> None:
    environment = os.environ | {"DATABASE": empty_database.url}
    command = [sys.executable, "-c", MIGRATE]
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603
        for _ in range(4)
    ]
    said = [process.communicate(timeout=120) for process in started]

    assert [process.returncode for process in started] == [0] * 4, said
    applied = Counter(name for output, _ in said for name in output.split())
    assert applied == Counter(migration.name for migration in known_migrations())


def test_a_step_that_fails_leaves_nothing_and_can_be_tried_again(empty_database: Database) -> None:
    with pytest.raises(MigrationError, match=r"Migration 0002_two failed and was undone: .*\"two\""):
        migrate(empty_database, [ONE, BROKEN, THREE])

    assert tables(empty_database) == {"one"}
    assert pending(empty_database, [ONE, TWO, THREE]) == ["0002_two", "0003_three"]
    assert migrate(empty_database, [ONE, TWO, THREE]) == ["0002_two", "0003_three"]


@pytest.mark.parametrize("call", [migrate, pending])
class TestAHistoryOtherThanTheCodes:
    def refused(self, database: Database, call: Call, *migrations: Migration) -> str:
        before = tables(database), ledger(database)
        with pytest.raises(MigrationError) as refused:
            call(database, migrations)
        assert (tables(database), ledger(database)) == before
        return str(refused.value)

    def test_a_migration_that_was_changed_is_named(self, empty_database: Database, call: Call) -> None:
        migrate(empty_database, [ONE, TWO])

        sentence = self.refused(empty_database, call, msgspec.structs.replace(ONE, sql=f"{ONE.sql} "), TWO, THREE)

        assert "Migration 0001_one is not the one that was applied" in sentence
        assert "new migration" in sentence

    def test_a_migration_that_was_removed_is_named(self, empty_database: Database, call: Call) -> None:
        migrate(empty_database, [ONE, TWO])

        assert "0001_one" in self.refused(empty_database, call, TWO, THREE)

    def test_a_migration_of_a_newer_version_is_named(self, empty_database: Database, call: Call) -> None:
        migrate(empty_database, [ONE, TWO, THREE])

        sentence = self.refused(empty_database, call, ONE, TWO)

        assert "0003_three" in sentence
        assert "newer version" in sentence

    def test_a_migration_that_comes_before_the_last_applied_one_is_named(
        self, empty_database: Database, call: Call
    ) -> None:
        migrate(empty_database, [ONE, THREE])

        sentence = self.refused(empty_database, call, ONE, TWO, THREE)

        assert "Migration 0002_two was never applied" in sentence
        assert "number above" in sentence
