"""The schema of the database, brought up to date step by step.

A step is a numbered `.sql` file and runs in one transaction. What was applied is remembered with its hash, so that a
database never runs on a history other than the one that the code was written for.
"""

from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Final

import msgspec
import psycopg

from correlator.store.database import Database

# Any number will do that nobody else locks in this database.
_LOCK: Final = 4_017_283_001

# In the schema that everything else is in: in `public` an ordinary role may not create anything.
_LEDGER: Final = """
CREATE SCHEMA IF NOT EXISTS kept;
CREATE TABLE IF NOT EXISTS kept.migrations (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    hash       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


class MigrationError(Exception):
    """The database's history and the code's do not go together."""


class Migration(msgspec.Struct, frozen=True):
    number: int
    name: str
    sql: str

    @property
    def hash(self) -> str:
        return sha256(self.sql.encode()).hexdigest()

    @property
    def makes_facts(self) -> bool:
        """Whether it makes or changes fact tables, and nothing else, wherever the search path leads: see 0003."""
        return self.name.split("_", 1)[1].startswith("facts")


def known_migrations() -> list[Migration]:
    """Those that this version of Correlator brings, in order."""
    found = []
    for file in files("correlator.store").joinpath("migrations").iterdir():
        if file.name.endswith(".sql"):
            name = file.name.removesuffix(".sql")
            found.append(Migration(int(name.split("_", 1)[0]), name, file.read_text(encoding="utf-8")))
    return sorted(found, key=lambda migration: migration.number)


def migrate(database: Database, migrations: Sequence[Migration] | None = None) -> list[str]:
    """Apply what is missing and return the names. Of several processes that start at once one does the work."""
    known = known_migrations() if migrations is None else migrations
    with database.connect("migrate", autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        # In autocommit, so that a database that is up to date is not written to at all.
        if not _has_ledger(connection):
            connection.execute(_LEDGER)
        missing = _missing(known, _applied(connection))
        for migration in missing:
            with connection.transaction():
                _apply(connection, migration)
    return [migration.name for migration in missing]


def pending(database: Database, migrations: Sequence[Migration] | None = None) -> list[str]:
    """The names of what `migrate` would apply."""
    known = known_migrations() if migrations is None else migrations
    with database.connect("migrate --check", autocommit=True) as connection:
        applied = _applied(connection) if _has_ledger(connection) else []
    return [migration.name for migration in _missing(known, applied)]


def _has_ledger(connection: psycopg.Connection) -> bool:
    row = connection.execute("SELECT to_regclass('kept.migrations') IS NOT NULL").fetchone()
    return row is not None and bool(row[0])


def _applied(connection: psycopg.Connection) -> list[tuple[int, str, str]]:
    return connection.execute("SELECT number, name, hash FROM kept.migrations ORDER BY number").fetchall()


def _missing(known: Sequence[Migration], applied: list[tuple[int, str, str]]) -> list[Migration]:
    by_number = {migration.number: migration for migration in known}
    for number, name, applied_hash in applied:
        migration = by_number.get(number)
        if migration is None and number < max(by_number, default=0):
            raise MigrationError(
                f"Migration {name} was applied to this database, and its file is missing here. Restore it: "
                "migrations that have landed stay."
            )
        if migration is None:
            raise MigrationError(
                f"The database has migration {name}, which this version of Correlator does not know. "
                "It was made by a newer version: use that version, or a database of its own."
            )
        if migration.hash != applied_hash:
            raise MigrationError(
                f"Migration {migration.name} is not the one that was applied to this database as {name}: a migration "
                "never changes after it has landed. Restore the file, and put the change into a new migration."
            )
    last = max((number for number, _, _ in applied), default=0)
    missing = [migration for migration in known if migration.number not in {number for number, _, _ in applied}]
    for migration in missing:
        if migration.number < last:
            raise MigrationError(
                f"Migration {migration.name} was never applied to this database, though later ones were. "
                "Give it a number above all that have landed."
            )
    return missing


def _apply(connection: psycopg.Connection, migration: Migration) -> None:
    try:
        connection.execute(migration.sql.encode())
    except psycopg.Error as error:
        raise MigrationError(f"Migration {migration.name} failed and was undone: {error}") from error
    connection.execute(
        "INSERT INTO kept.migrations (number, name, hash) VALUES (%s, %s, %s)",
        [migration.number, migration.name, migration.hash],
    )
