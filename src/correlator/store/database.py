"""The one PostgreSQL that Correlator works with, embedded or external: where it is, and connections to it."""

from collections.abc import Callable
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

# Both schemas by their bare table names, and instants that mean the same on every machine. Said after connecting: what
# the environment says (PGTZ and its like) goes before whatever a connection string can say. Who waits for the end of
# the log must then see what the others have written; a database's own default may be stricter. And no compiling: where
# a way is switched off, as for the append, PostgreSQL before 18 takes the fine for the size of the query and compiles
# every call, which takes forty times as long as the call itself.
_SESSION: Final = (
    "SET search_path = facts, kept; SET timezone = 'UTC'; SET datestyle = 'ISO'; SET client_encoding = 'UTF8'; "
    "SET default_transaction_isolation = 'read committed'; SET jit = off"
)

_MOST_PREPARED: Final = 500
"""Statements that a connection keeps: there are some two hundred questions, and to forget one is to plan it anew."""

# A network that drops packets without a word (a firewall that forgot us, a host that is gone) is noticed within half a
# minute: the system's own limits are fifteen minutes for what was sent, and two hours for what is waited for.
_LIVENESS: Final[dict[str, Any]] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


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
        # What the URL says itself stands.
        said = conninfo_to_dict(self.url)
        liveness = {name: value for name, value in _LIVENESS.items() if name not in said}
        connection = psycopg.connect(self.url, autocommit=True, application_name=f"correlator {purpose}", **liveness)
        try:
            connection.execute(_SESSION)
            connection.prepared_max = _MOST_PREPARED
            connection.autocommit = autocommit
        except BaseException:
            connection.close()
            raise
        return connection
