"""One database for all tests here: each takes back what it did."""

from collections.abc import Iterator

import psycopg
import pytest

from correlator.store.database import Database
from correlator.store.staging import prepare
from tests.integration.conftest import Postgres, database_url, new_database
from tests.integration.store.merging import SOURCE


@pytest.fixture(scope="module")
def shared(postgres: Postgres, migrated_template: str) -> Iterator[psycopg.Connection]:
    with (
        new_database(postgres, migrated_template) as name,
        Database(database_url(postgres, name)).connect("test", autocommit=True) as connection,
    ):
        prepare(connection, SOURCE)
        yield connection


@pytest.fixture
def connection(shared: psycopg.Connection) -> Iterator[psycopg.Connection]:
    with shared.transaction(force_rollback=True):
        yield shared
