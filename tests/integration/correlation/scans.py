"""How much of which tables a question reads, and how, as PostgreSQL counts it."""

from collections.abc import Callable, Collection

import psycopg


def read_whole(connection: psycopg.Connection, tables: Collection[str], ask: Callable[[], object]) -> list[str]:
    """Those of some tables that a question has read from end to end."""
    counted = _counted(connection, "seq_scan", ask)
    return [name for name in tables if counted[name]]


def looked_up(connection: psycopg.Connection, tables: Collection[str], ask: Callable[[], object]) -> list[str]:
    """Those of some tables of which a question has found rows by an index."""
    counted = _counted(connection, "idx_scan", ask)
    return [name for name in tables if counted[name]]


def rows_read(connection: psycopg.Connection, tables: Collection[str], ask: Callable[[], object]) -> dict[str, int]:
    """Rows of each table that a question has looked at; not those that it took from an index alone."""
    counted = _counted(connection, "seq_tup_read + coalesce(idx_tup_fetch, 0)", ask)
    return {name: counted[name] for name in tables}


def _counted(connection: psycopg.Connection, what: str, ask: Callable[[], object]) -> dict[str, int]:
    """What a question adds to a count of each table."""
    with connection.transaction():
        before = _counts(connection, what)
        ask()
        after = _counts(connection, what)
    return {name: count - before[name] for name, count in after.items()}


def _counts(connection: psycopg.Connection, what: str) -> dict[str, int]:
    query = f"SELECT relname, {what} FROM pg_stat_xact_user_tables WHERE schemaname = 'facts'"  # noqa: S608
    return {name: count or 0 for name, count in connection.execute(query.encode())}
