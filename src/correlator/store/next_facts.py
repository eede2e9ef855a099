"""The fact tables once more, beside those that stand: replay fills them, and they take the others' place at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from correlator.store.migrations import known_migrations

NEXT: Final = "facts_next"
_OLD: Final = "facts_old"

# Keys and indexes that a bulk load does without. Primary keys stay: the merge looks rows up by them. So does a partial
# index by hash, of which few rows are: made afterwards it would have room for all.
_KEYS: Final = """
SELECT format('ALTER TABLE %%s DROP CONSTRAINT %%I', conrelid::regclass, conname),
       format('ALTER TABLE %%s ADD CONSTRAINT %%I %%s', conrelid::regclass, conname, pg_get_constraintdef(oid))
FROM pg_constraint WHERE connamespace = %s::regnamespace AND contype = 'f' ORDER BY conrelid, conname
"""
_INDEXES: Final = """
SELECT format('DROP INDEX %%s', indexrelid::regclass), pg_get_indexdef(indexrelid)
FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE relnamespace = %s::regnamespace
  AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u', 'x'))
  AND (indpred IS NULL OR relam <> (SELECT oid FROM pg_am WHERE amname = 'hash'))
ORDER BY indexrelid
"""
# Room for updates: most of what is loaded is over, and will not be updated.
_ROOM: Final = """
SELECT format('ALTER TABLE %%s RESET (fillfactor)', pg_class.oid::regclass),
       format('ALTER TABLE %%s SET (%%s)', pg_class.oid::regclass, option)
FROM pg_class CROSS JOIN unnest(reloptions) AS option
WHERE relnamespace = %s::regnamespace AND option LIKE 'fillfactor=%%'
  AND relname IN ('facet_history', 'job_runs', 'lineage_edges', 'run_column_mappings', 'test_results')
ORDER BY relname
"""
_PRIMARY_KEYS: Final = """
SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE relnamespace = %s::regnamespace AND indisprimary AND indrelid <> ALL (%s::regclass[]) ORDER BY indexrelid
"""
# Rows come in order of time, those of one job each on a page of its own. Questions ask for several of a job, and for
# what these read and wrote: so they are laid side by side, once, while nobody reads them.
_LAY_RUNS: Final = "CLUSTER job_runs USING job_runs_of_job"
# Not by CLUSTER: edges do not know their job, and it would make the index by hash anew, with room for all.
_TAKE_EDGES: Final = """
CREATE UNLOGGED TABLE as_they_came AS SELECT * FROM lineage_edges;
ANALYZE as_they_came (job_run_id);
ALTER TABLE lineage_edges DROP CONSTRAINT lineage_edges_pkey;
TRUNCATE lineage_edges;
"""
_LAY_EDGES: Final = """
INSERT INTO lineage_edges
SELECT edge.* FROM as_they_came AS edge LEFT JOIN job_runs AS run ON run.id = edge.job_run_id
ORDER BY run.ctid, edge.edge_type, edge.dataset_id;
DROP TABLE as_they_came;
ALTER TABLE lineage_edges ADD PRIMARY KEY (job_run_id, dataset_id, edge_type);
"""
_AS_FOR_INDEXES: Final = "SELECT set_config('work_mem', current_setting('maintenance_work_mem'), true)"
_LAID: Final = ("job_runs", "lineage_edges")
"""Their primary keys are made anew with them."""


class NextFacts:
    """Made empty and bare, filled, dressed, and put in place."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._taken_off: dict[str, str] = {}
        """By what took it off, what puts it on again."""

    def make(self) -> None:
        connection = self._connection
        with connection.transaction():
            self.drop()
            connection.execute(f"CREATE SCHEMA {NEXT}".encode())
            with _search_path(connection, NEXT):
                for migration in known_migrations():
                    if migration.makes_facts:
                        connection.execute(migration.sql.encode())
                # In the words of this search path nothing carries a schema, nor may it afterwards.
                found = [
                    row for query in (_KEYS, _INDEXES, _ROOM) for row in connection.execute(query.encode(), [NEXT])
                ]
            with _search_path(connection, NEXT):
                for take_off, put_on in found:
                    connection.execute(take_off.encode())
                    self._taken_off[take_off] = put_on

    def dress(self) -> None:
        """Give them their order, keys and indexes, now that they are full."""
        self._lay()
        with self._connection.transaction(), _search_path(self._connection, NEXT):
            while self._taken_off:
                _, put_on = self._taken_off.popitem()
                self._connection.execute(put_on.encode())
            # Ids come in no order, which leaves a third of each page of these empty.
            for (index,) in self._connection.execute(_PRIMARY_KEYS, [NEXT, list(_LAID)]).fetchall():
                self._connection.execute(f"REINDEX INDEX {index}".encode())
        for (table,) in self._connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r'", [NEXT]
        ).fetchall():
            self._connection.execute(f"ANALYZE {NEXT}.{table}".encode())

    def _lay(self) -> None:
        """Before they get their other indexes, which would be made twice, and the room for updates.

        Each step is a transaction of its own, at whose end the former rows leave the disk. If one fails, all of this is
        dropped.
        """
        with self._connection.transaction(), _search_path(self._connection, NEXT):
            self._connection.execute(self._taken_off.pop("DROP INDEX job_runs_of_job").encode())
            # By sorting: row by row through an index, each would be another page.
            self._connection.execute("SET LOCAL enable_indexscan = off")
            self._connection.execute(_LAY_RUNS)
            self._connection.execute("ALTER TABLE job_runs SET WITHOUT CLUSTER")
        with self._connection.transaction(), _search_path(self._connection, NEXT):
            self._connection.execute(_TAKE_EDGES)
        with self._connection.transaction(), _search_path(self._connection, NEXT):
            # As much memory as an index is made with: there may be hundreds of millions to sort.
            self._connection.execute(_AS_FOR_INDEXES)
            self._connection.execute(_LAY_EDGES)

    def put_in_place(self) -> None:
        """Within the caller's transaction, which holds the lock of the merges."""
        self._connection.execute(f"ALTER SCHEMA facts RENAME TO {_OLD}".encode())
        self._connection.execute(f"ALTER SCHEMA {NEXT} RENAME TO facts".encode())

    def drop(self) -> None:
        """What is not in place: what is being made, and what stood before."""
        self._connection.execute(f"DROP SCHEMA IF EXISTS {NEXT} CASCADE".encode())
        self._connection.execute(f"DROP SCHEMA IF EXISTS {_OLD} CASCADE".encode())


@contextmanager
def _search_path(connection: psycopg.Connection[Any], schema: str) -> Iterator[None]:
    connection.execute(f"SET LOCAL search_path = {schema}".encode())
    try:
        yield
    finally:
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.INERROR:
            connection.execute("SET LOCAL search_path = facts, kept")
