"""The one PostgreSQL that Correlator works with, embedded or external: where it is, and connections to it."""

from collections.abc import Callable
from typing import Final

import psycopg
from psycopg.rows import TupleRow

# Both schemas by their bare table names, and instants that mean the same on every machine. Said after connecting: what
# the environment says (PGTZ and its like) goes before whatever a connection string can say.
_SESSION: Final = (
    "SET search_path = facts, kept; SET timezone = 'UTC'; SET datestyle = 'ISO'; SET client_encoding = 'UTF8'"
)


class Database:
    """Where the database is. A connection is made when somebody needs one."""

    def __init__(self, url: str, restarts: Callable[[], int] = lambda: 0) -> None:
        self.url = url
        self._restarts = restarts

    @property
    def restarts(self) -> int:
        """How often we had to start its server again; 0 where that is not our affair."""
        return self._restarts()

    def connect(self, purpose: str, *, autocommit: bool = False) -> psycopg.Connection[TupleRow]:
        """A connection of its own; `purpose` is what an operator reads in `pg_stat_activity`."""
        connection = psycopg.connect(
            self.url, autocommit=True, application_name=f"correlator {purpose}", connect_timeout=10
        )
        try:
            connection.execute(_SESSION)
            connection.autocommit = autocommit
        except BaseException:
            connection.close()
            raise
        return connection
