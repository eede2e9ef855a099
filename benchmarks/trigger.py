"""What layer 3, the trigger on `job_runs`, costs per updated row: the same updates with the trigger and without it.

One statement updates all rows, as a merge does, on the embedded PostgreSQL with fsync on. The table is filled anew for
every round and every contender.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg

from benchmarks.figures import figure
from benchmarks.rounds import Contender, microseconds, table
from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres
from correlator.store.migrations import migrate

FILL = """
INSERT INTO job_runs (
    id, job_id, first_event_at, first_start_at, complete_at, event_time, current_state, event_type,
    canonical_job_run_id, job_namespace, job_name, run_id, producer, last_event_order, state_history, facets
)
SELECT
    left(run.hash, 32)::uuid, left(md5((number %% 1000)::text), 32)::uuid, now(), now(),
    CASE %(state)s WHEN 'COMPLETE' THEN now() END, now(), %(state)s, %(state)s,
    run.hash, 'airflow', 'job ' || number %% 1000, left(run.hash, 36), 'https://example.com/producer',
    %(order)s, jsonb_build_array(jsonb_build_object('event_time', now(), 'state', %(state)s)),
    '{"nominalTime": {"nominalStartTime": "2026-05-04T10:00:00Z"}}'
FROM generate_series(1, %(rows)s) AS number
CROSS JOIN LATERAL (SELECT encode(sha256(number::text::bytea), 'hex') AS hash) AS run
"""

END = """
UPDATE job_runs SET
    current_state = 'COMPLETE', complete_at = now(), event_type = 'COMPLETE', event_time = now(),
    state_history = state_history || jsonb_build_object('event_time', now(), 'state', 'COMPLETE')
"""

TOUCH = """
UPDATE job_runs SET current_state = 'COMPLETE', facets = facets || '{"late": {"said": 1}}'
"""


@contextmanager
def filled_database() -> Iterator[psycopg.Connection]:
    with tempfile.TemporaryDirectory(prefix="correlator-bench-") as directory:
        if os.geteuid() == 0:  # the server then runs as another user, who has to get there
            Path(directory).chmod(0o711)
        with EmbeddedPostgres.open(Path(directory) / "postgres") as server:
            database = Database(server.url)
            migrate(database)
            with database.connect("benchmark", autocommit=True) as connection:
                yield connection


def prepare(
    connection: psycopg.Connection, rows: int, state: str, switch: str, update: str
) -> list[Callable[[], object]]:
    """A table of runs in one state with the trigger on or off, and the one thing to do with it."""
    connection.execute("TRUNCATE job_runs CASCADE")
    connection.execute(FILL, {"rows": rows, "state": state, "order": bytes(25)})
    connection.execute(f"ALTER TABLE job_runs {switch} TRIGGER job_run_state_validation".encode())
    connection.execute("VACUUM ANALYZE job_runs")
    connection.execute("CHECKPOINT")
    return [partial(connection.execute, update.encode())]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--rows", type=int, default=100_000)
    given = arguments.parse_args()

    with filled_database() as connection:
        contenders = {
            f"{change}, {'without' if switch == 'DISABLE' else 'with'} the trigger": Contender[Callable[[], object]](
                lambda update: update(), partial(prepare, connection, given.rows, state, switch, update)
            )
            for change, state, update in (
                ("START → COMPLETE", "START", END),
                ("COMPLETE → COMPLETE", "COMPLETE", TOUCH),
            )
            for switch in ("DISABLE", "ENABLE ALWAYS")
        }
        times = {
            name: [elapsed / given.rows for elapsed in rounds]
            for name, rounds in microseconds(contenders, given.rounds).items()
        }
    for change in ("START", "COMPLETE"):
        pair = {name: values for name, values in times.items() if name.startswith(change)}
        print(table(pair, next(iter(pair)), "µs per row"))
        print()
        without, with_it = map(statistics.median, pair.values())
        figure(f"a row from {change} to COMPLETE, with the trigger", with_it, "µs")
        figure("the same, beside without it", with_it / without, "times")


if __name__ == "__main__":
    main()
