"""Statements that an event loop calls."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from correlator.store.database import Database
from correlator.store.statement import LoopConnection, Row


class Interrupted:
    """libpq, in a process that is made to wait by others for its turn between sending the last and reading."""

    def __init__(self, pgconn: psycopg.pq.abc.PGconn) -> None:
        self._pgconn = pgconn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pgconn, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_pgconn":
            super().__setattr__(name, value)
        else:
            setattr(self._pgconn, name, value)

    def consume_input(self) -> None:
        if self._pgconn.flush() == 0:
            time.sleep(0.1)
        self._pgconn.consume_input()


@pytest.mark.parametrize("seen", [lambda pgconn: pgconn, Interrupted])
def test_the_answer_to_a_large_statement_is_heard_however_quickly_it_comes(
    database: Database, seen: Callable[[Any], Any]
) -> None:
    large = b"x" * 20_000_000

    async def call() -> list[list[Row]]:
        connection = LoopConnection(database.connect("test", autocommit=True))
        statement = connection.prepare(b"SELECT length($1)", [psycopg.adapters.types["bytea"].oid])
        connection._pgconn = seen(connection._pgconn)  # noqa: SLF001 (there is no other way to be that slow)
        connection.start()
        try:
            return [await asyncio.wait_for(connection.call(statement, [large]), 30) for _ in range(3)]
        finally:
            connection.close()

    assert asyncio.run(call()) == [[(b"20000000",)]] * 3
