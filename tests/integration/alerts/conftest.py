from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from correlator.store.database import Database
from tests.integration.alerts import receivers
from tests.integration.alerts.receivers import Receiver


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.connect("test", autocommit=True) as connection:
        yield connection


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receivers.receiver() as made:
        yield made
