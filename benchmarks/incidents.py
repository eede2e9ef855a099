"""What it costs to ask for incidents, their causes and their victims, as history grows.

Warehouses of 100 jobs in 10 layers, every job once an hour, every table tested by the run that writes it; of 200 runs
one begins a streak of three failed tests, and a third of the streaks' jobs had changed their code. A million runs are a
hundred such warehouses, where ten thousand are one; ten million are more of them, and longer: three weeks, so that what
is usual is judged by as many runs as ever. The tables are filled as a replay does it, and incidents derived.
One connection; each question is asked many times, of another incident each time. A list is a page of ten, of which the
small history has as many; the newest are a page of fifty. What is measured is a server that has been up for a while:
what was loaded is written out, and all files of the database were read once, and are in memory as far as they fit. What
a page of an incident costs before that, right after the load, is told beside it.
"""

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import msgspec
import psycopg

from benchmarks.figures import at_most, figure
from benchmarks.lineage import BEGAN, NO_ORDER
from benchmarks.merge import new_database
from correlator.correlation.incident_detail import incident_detail
from correlator.correlation.incident_list import Filters, incident_counts, incident_list
from correlator.correlation.lineage import graph
from correlator.correlation.starts import find_start
from correlator.http.listener import collect_rarely
from correlator.rulebook.identity import dataset_key, job_key
from correlator.store.incidents import derive_all
from correlator.store.last_runs import note_all_last_runs
from correlator.store.next_facts import NEXT, NextFacts

LAYERS, WIDTH = 10, 10
_NOT_COUNTED = 5
"""Rounds in which statements are planned."""
_PIECE = 1 << 24
_LONGEST_WAIT_S = 600
PAGE = 10
"""So many are listed where the small history has no more: what is told of one costs as much as finding it."""


DETAIL = "an incident: cause, evidence, impact"
FIRST = "an incident, right after the load"
"""Most of what it needs may have to come from the disk."""


class Size(msgspec.Struct, frozen=True):
    warehouses: int
    runs: int

    @property
    def all_runs(self) -> int:
        return self.warehouses * LAYERS * WIDTH * self.runs


SIZES = (Size(1, 100), Size(100, 100), Size(200, 500))


def namespace(warehouse: int) -> str:
    return f"warehouse_{warehouse}"


def urn(warehouse: int, layer: int, number: int) -> str:
    return f"{namespace(warehouse)}/layer_{layer}.table_{number % WIDTH}"


_RUNS = """
INSERT INTO job_runs (id, job_id, first_event_at, first_start_at, complete_at, event_time, current_state, event_type,
    has_results, canonical_job_run_id, job_namespace, job_name, run_id, producer, last_event_order)
SELECT left(made.canonical, 32)::uuid, job.id, made.at, made.at, made.done, made.done, 'COMPLETE', 'COMPLETE', true,
    made.canonical, job.namespace, job.name, left(made.canonical, 32)::uuid::text, 'benchmark', %(order)s
FROM planned AS job
CROSS JOIN generate_series(0, %(runs)s - 1) AS run
CROSS JOIN LATERAL (
    SELECT encode(sha256((job.id::text || run)::bytea), 'hex') AS canonical,
        %(began)s + run * interval '1 hour' + job.layer * interval '5 minutes' AS at,
        %(began)s + run * interval '1 hour' + job.layer * interval '5 minutes' + interval '3 minutes' AS done
) AS made
ORDER BY run, job.layer
"""
_EDGES = """
INSERT INTO lineage_edges (job_run_id, dataset_id, edge_type, first_event_at, last_event_at, origin, used_at, row_count)
SELECT run.id, edge.dataset_id, edge.edge_type, run.started_at, run.ended_at, 2,
    CASE edge.edge_type WHEN 'input' THEN run.started_at ELSE run.ended_at END,
    CASE edge.edge_type WHEN 'output' THEN 100000 + hashtext(run.run_id) %% 5000 END
FROM job_runs AS run JOIN dataset_jobs AS edge USING (job_id)
"""
# Every 200th run of a job begins a streak; when, is different for each job.
_RESULTS = """
INSERT INTO test_results (test_id, job_run_id, dataset_id, event_time, of_own_output, status, test_name, column_name,
    parameters, severity, expected, actual, message, description, result_order)
SELECT test.id, run.id, test.dataset_id, run.ended_at, true,
    CASE WHEN (extract(epoch FROM run.started_at)::bigint / 3600 + job.place) %% 200 < 3 THEN 'fail' ELSE 'pass' END,
    test.test_name, '', '', 'error', '', '', '', '', %(order)s
FROM job_runs AS run
JOIN planned AS job ON job.id = run.job_id
JOIN data_tests AS test ON test.dataset_id = job.output
"""
_CODE = """
INSERT INTO facet_history (entity_id, job_run_id, body_digest, hour, first_at, last_at, rank, entity_kind, facet_key)
SELECT run.job_id, run.id, body.digest, date_bin('1 hour', run.started_at, 'epoch'), run.started_at, run.ended_at, 3,
    'job', 'sourceCode'
FROM job_runs AS run
JOIN planned AS job ON job.id = run.job_id
JOIN facet_bodies AS body ON body.body ->> 'sourceCode' =
    'version ' || ((extract(epoch FROM run.started_at)::bigint / 3600 + job.place) / 600) %% 2
"""


def fill(connection: psycopg.Connection, size: Size) -> None:
    """Straight into tables without indexes, which are made when all is there, as a replay does it."""
    chance = random.Random("always the same")
    following = NextFacts(connection)
    following.make()
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL search_path = {NEXT}, kept".encode())
        cursor.execute(
            "CREATE TEMP TABLE planned (id uuid, namespace text, name text, layer int, output uuid, place int)"
        )
        for warehouse in range(size.warehouses):
            with cursor.copy(
                "COPY datasets (id, canonical_dataset_id, dataset_namespace, dataset_name, named_order) FROM STDIN"
            ) as copy:
                for layer in range(LAYERS + 1):
                    for number in range(WIDTH):
                        name = urn(warehouse, layer, number)
                        row = (dataset_key(name).hex(), name, namespace(warehouse), name.partition("/")[2], NO_ORDER)
                        copy.write_row(row)
            with cursor.copy("COPY planned FROM STDIN") as copy:
                for layer in range(1, LAYERS + 1):
                    for number in range(WIDTH):
                        job = f"layer_{layer}.job_{number}"
                        key = job_key(namespace(warehouse), job).hex()
                        output = dataset_key(urn(warehouse, layer, number)).hex()
                        copy.write_row((key, namespace(warehouse), job, layer, output, chance.randrange(200)))
            with cursor.copy("COPY dataset_jobs (dataset_id, job_id, edge_type) FROM STDIN") as copy:
                for layer in range(1, LAYERS + 1):
                    for number in range(WIDTH):
                        key = job_key(namespace(warehouse), f"layer_{layer}.job_{number}").hex()
                        for read in {number % WIDTH, (number * 2 + 1) % WIDTH}:
                            copy.write_row((dataset_key(urn(warehouse, layer - 1, read)).hex(), key, "input"))
                        copy.write_row((dataset_key(urn(warehouse, layer, number)).hex(), key, "output"))
        cursor.execute("INSERT INTO jobs (id, job_namespace, job_name) SELECT id, namespace, name FROM planned")
        cursor.execute("""
            INSERT INTO data_tests (id, dataset_id, test_name, column_name, parameters)
            SELECT md5(output::text)::uuid, output, 'rows are plausible', '', '' FROM planned
        """)
        cursor.execute("""
            INSERT INTO facet_bodies (digest, body)
            SELECT md5(version::text)::uuid, jsonb_build_object('language', 'SQL', 'sourceCode', 'version ' || version)
            FROM generate_series(0, 1) AS version
        """)
        cursor.execute("ANALYZE planned")
        given = {"order": NO_ORDER, "began": BEGAN, "runs": size.runs}
        for statement in (_RUNS, _EDGES, _RESULTS, _CODE):
            cursor.execute(statement.encode(), given)
    following.dress()
    with connection.transaction():
        note_all_last_runs(connection, NEXT)
        derive_all(connection, NEXT)
        following.put_in_place()
    following.drop()
    connection.execute("VACUUM ANALYZE")


def questions(
    connection: psycopg.Connection, size: Size, ids: list[UUID], chance: random.Random
) -> dict[str, Callable[[], object]]:
    def dataset() -> str:
        return urn(chance.randrange(size.warehouses), chance.randrange(2, LAYERS), chance.randrange(WIDTH))

    def listed(filters: Filters) -> object:
        return incident_list(connection, filters, limit=PAGE)

    return {
        DETAIL: lambda: incident_detail(connection, chance.choice(ids)),
        "incidents, the newest": lambda: incident_list(connection, Filters()),
        "incidents, open": lambda: listed(Filters(status="open")),
        "incidents of a dataset": lambda: listed(Filters(dataset=dataset())),
        "incidents by a part of a name": lambda: listed(Filters(text=dataset().rpartition(".")[2])),
        "incidents that nobody has": lambda: listed(Filters(text="no such name")),
        "how many incidents": lambda: incident_counts(connection, Filters()),
        "lineage, two steps both ways": lambda: graph(
            connection, find_start(connection, f"dataset:{dataset()}"), depth=2
        ),
        "lineage, all of it": lambda: graph(connection, find_start(connection, f"dataset:{dataset()}"), depth=100),
    }


def measured(size: Size, rounds: int) -> tuple[int, dict[str, list[float]]]:
    with new_database() as database, database.connect("benchmark", autocommit=True) as connection:
        fill(connection, size)
        ids = [id_ for (id_,) in connection.execute("SELECT id FROM incidents ORDER BY id")]
        asked = questions(connection, size, ids, random.Random(7))
        first = timed(connection, {FIRST: asked[DETAIL]}, rounds)
        settle(connection)
        read_files(connection)
        return len(ids), timed(connection, asked, rounds) | first


def timed(
    connection: psycopg.Connection, asked: dict[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
    """Milliseconds of each question, asked in turn."""
    times: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(rounds + _NOT_COUNTED):
        for name, question in asked.items():
            began = time.perf_counter()
            with connection.transaction():
                question()
            times[name].append((time.perf_counter() - began) * 1e3)
    return {name: values[_NOT_COUNTED:] for name, values in times.items()}


def settle(connection: psycopg.Connection) -> None:
    """Wait until the server has written out what was loaded, and looks at none of it any more by itself."""
    connection.execute("CHECKPOINT")
    busy = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'"
    for _ in range(_LONGEST_WAIT_S):
        if connection.execute(busy.encode()).fetchone() == (0,):
            return
        time.sleep(1)


def read_files(connection: psycopg.Connection) -> None:
    """So that the system has them in memory, as far as they fit; what the load has logged is of no use there."""
    ((directory,),) = connection.execute("SHOW data_directory").fetchall()
    for file in (Path(directory) / "pg_wal").iterdir():
        if file.is_file() and hasattr(os, "posix_fadvise"):
            with file.open("rb", buffering=0) as log:
                os.posix_fadvise(log.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    for file in (Path(directory) / "base").rglob("*"):
        if file.is_file():
            with file.open("rb", buffering=0) as contents:
                while contents.read(_PIECE):
                    pass


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--full", action="store_true", help="ten million runs as well")
    arguments.add_argument("--rounds", type=int, default=100)
    given = arguments.parse_args()
    # As in the server, whose answers these are.
    collect_rarely()
    sizes = SIZES if given.full else SIZES[:2]
    found = [measured(size, given.rounds) for size in sizes]
    print(f"{'':40}" + "".join(f"{f'{size.all_runs:,} runs':>20}" for size in sizes))
    print(f"{'':40}" + "".join(f"{f'{number:,} incidents':>20}" for number, _ in found))
    print(f"{'':40}" + "".join(f"{'p50 ms':>10}{'p95 ms':>10}" for _ in sizes) + f"{'ratio':>8}")
    rows: dict[str, list[tuple[float, float]]] = {}
    for name in found[0][1]:
        rows[name] = cells = [
            (statistics.median(times[name]), statistics.quantiles(times[name], n=20)[-1]) for _, times in found
        ]
        ratio = cells[-1][0] / cells[0][0]
        print(f"{name:40}" + "".join(f"{p50:10.2f}{p95:10.2f}" for p50, p95 in cells) + f"{ratio:8.2f}")
    tell(rows, [f"{size.all_runs:,} runs" for size in sizes])


def tell(rows: dict[str, list[tuple[float, float]]], sizes: list[str]) -> None:
    """Of p50 and p95 of each question at each size: what is slowest, and what grows most."""
    first = rows[FIRST]
    rows = {name: cells for name, cells in rows.items() if name != FIRST}
    ratios = {name: cells[-1][0] / cells[0][0] for name, cells in rows.items()}
    steepest = max(ratios, key=lambda name: ratios[name])
    for place, size in enumerate(sizes):
        p95s = {name: cells[place][1] for name, cells in rows.items()}
        slowest = max(p95s, key=lambda name: p95s[name])
        figure(f"{size}, the slowest p95: {slowest}", p95s[slowest], "ms", at_most(100))
    figure(f"{sizes[-1]}, p95: {DETAIL}", rows[DETAIL][-1][1], "ms", at_most(100))
    figure(f"{sizes[-1]}, p95: {FIRST}", first[-1][1], "ms")
    figure(f"{sizes[-1]} beside {sizes[0]}, the most: {steepest}", ratios[steepest], "times", at_most(2))


if __name__ == "__main__":
    main()
