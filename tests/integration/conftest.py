"""A real PostgreSQL for the tests: the embedded one, or the server that CORRELATOR_TEST_DATABASE_URL names.

The variable is a `postgresql://…` URI of a role that may create databases. The tests are the same for both.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from unittest.mock import patch
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from correlator.store import embedded
from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres
from correlator.store.migrations import migrate

_FOR_TESTS = {"fsync": "off", "full_page_writes": "off", "min_wal_size": "80MB", "max_wal_size": "256MB"}
_ROOM = 4 * 2**30


class Postgres(Protocol):
    """A server, by one of its databases: what is created through it is found with `database_url`."""

    @property
    def url(self) -> str: ...


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A new directory for `--data-dir`. Unlike `tmp_path` the user who runs PostgreSQL for root can get there."""
    with reachable_directory(quick_place()) as directory:
        yield directory


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    external = os.environ.get("CORRELATOR_TEST_DATABASE_URL")
    if external:
        yield Database(external)
        return
    with reachable_directory(quick_place()) as directory:
        # Nothing here is to survive the machine, only processes that are killed: nobody has to wait for the disk.
        with patch.dict(embedded._PINNED, _FOR_TESTS):  # noqa: SLF001 - what nobody else may say
            server = EmbeddedPostgres.open(directory / "postgres")
        with server:
            yield server


@pytest.fixture(scope="session")
def migrated_template(postgres: Postgres) -> Iterator[str]:
    """The name of a database with all migrations, to be copied."""
    with new_database(postgres) as name:
        migrate(Database(database_url(postgres, name)))
        yield name


@pytest.fixture
def database(postgres: Postgres, migrated_template: str) -> Iterator[Database]:
    """A database for this test alone, with all migrations."""
    with new_database(postgres, migrated_template) as name:
        yield Database(database_url(postgres, name))


@pytest.fixture
def empty_database(postgres: Postgres) -> Iterator[Database]:
    """A database for this test alone, without a single migration."""
    with new_database(postgres) as name:
        yield Database(database_url(postgres, name))


@contextmanager
def new_database(postgres: Postgres, template: str = "template1") -> Iterator[str]:
    name = f"correlator_test_{uuid4().hex}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY {}")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        # Copied without the log it takes half of the time, but only where nobody waits for the disk.
        waits = connection.execute("SHOW fsync").fetchone() == ("on",)
        strategy = sql.Literal("wal_log" if waits else "file_copy")
        connection.execute(create.format(sql.Identifier(name), sql.Identifier(template), strategy))
    try:
        yield name
    finally:
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def database_url(postgres: Postgres, name: str) -> str:
    """The server's URI with another database; of a parameter that is given twice the last one counts."""
    return f"{postgres.url}{'&' if '?' in postgres.url else '?'}dbname={name}"


def quick_place() -> Path | None:
    """A disk in memory, if it has room: the hundreds of files of a new database take a seventh of the time there.

    Who is killed loses nothing there either; that a commit reaches the disk is a setting, which has its own test.
    """
    memory = Path("/dev/shm")  # noqa: S108 - what is made there has a name of its own
    if not os.access(memory, os.W_OK | os.X_OK):
        return None
    there = os.statvfs(memory)
    has_room = there.f_bavail * there.f_frsize >= _ROOM
    return memory if has_room and not there.f_flag & os.ST_NOEXEC else None


@contextmanager
def reachable_directory(parent: Path | None = None) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="correlator-test-", dir=parent))
    try:
        if os.geteuid() == 0:
            directory.chmod(0o711)
        yield directory
    finally:
        shutil.rmtree(directory)
