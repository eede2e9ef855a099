"""Connections of the tasks to the database. Spark's Python workers live on from task to task, and so do these."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from correlator.store.database import Database

_idle: defaultdict[str, list[psycopg.Connection]] = defaultdict(list)


@contextmanager
def connection_to(url: str) -> Iterator[psycopg.Connection]:
    """One in autocommit that this process has left over, if it still answers, else a new one."""
    connection = _left_over(url) or Database(url).connect("pipeline", autocommit=True)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    _idle[url].append(connection)


def _left_over(url: str) -> psycopg.Connection | None:
    while _idle[url]:
        connection = _idle[url].pop()
        if _answers(connection):
            return connection
    return None


def _answers(connection: psycopg.Connection) -> bool:
    try:
        connection.execute("SELECT")
    except psycopg.Error:
        connection.close()
        return False
    return True
