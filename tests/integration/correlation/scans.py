"""Which tables a question reads from end to end, as PostgreSQL counts it."""

from collections.abc import Callable, Collection

import psycopg


def read_whole(connection: psycopg.Connection, tables: Collection[str], ask: Callable[[], object]) -> list[str]:
    """Those of some tables that a question has read from end to end."""
    with connection.transaction():
        before = _scans(connection)
        ask()
        after = _scans(connection)
    return [name for name in tables if after[name] > before[name]]


def _scans(connection: psycopg.Connection) -> dict[str, int]:
    rows = connection.execute("SELECT relname, seq_scan FROM pg_stat_xact_user_tables WHERE schemaname = 'facts'")
    return {name: count or 0 for name, count in rows}
