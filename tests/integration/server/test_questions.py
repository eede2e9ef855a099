"""The threads and connections that questions are answered with."""

import asyncio

import psycopg
import pytest

from correlator.http.problems import HttpProblem
from correlator.server.api.questions import Questions
from correlator.store.database import Database


def questions(database: Database) -> Questions:
    return Questions(database, connections=2, timeout=60.0, patience=60.0)


def test_a_server_that_stops_ends_what_the_database_does_for_a_question(database: Database) -> None:
    async def stopped_in_the_middle() -> None:
        asked = questions(database)
        slow = asyncio.create_task(asked.ask(lambda connection: connection.execute("SELECT pg_sleep(600)")))
        with database.connect("test", autocommit=True) as connection:
            while not _is_sleeping(connection):  # noqa: ASYNC110 (what another process does)
                await asyncio.sleep(0.01)
            asked.close()
            with pytest.raises(HttpProblem) as told:
                await slow
            assert told.value.kind.status == 503
            assert not _is_sleeping(connection)

    asyncio.run(stopped_in_the_middle())


def _is_sleeping(connection: psycopg.Connection) -> bool:
    row = connection.execute(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(600)' "
        "AND datname = current_database() AND application_name = 'correlator questions')"
    ).fetchone()
    return row is not None and bool(row[0])


def test_a_question_reads_one_moment_and_writes_nothing(database: Database) -> None:
    async def asked_and_answered() -> None:
        asked = questions(database)

        def twice(connection: psycopg.Connection) -> list[object]:
            before = connection.execute("SELECT count(*) FROM kept.ignored_names").fetchone()
            with database.connect("test", autocommit=True) as other:
                other.execute("INSERT INTO kept.ignored_names (kind, pattern, created_by) VALUES ('job', 'x', 'me')")
            return [before, connection.execute("SELECT count(*) FROM kept.ignored_names").fetchone()]

        assert await asked.ask(twice) == [(0,), (0,)]
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            await asked.ask(lambda connection: connection.execute("DELETE FROM kept.ignored_names"))
        await asked.ask(lambda connection: connection.execute("DELETE FROM kept.ignored_names"), "write")
        asked.close()

    asyncio.run(asked_and_answered())
