"""What lists, pages and searches cost as the catalogue and its history grow.

The same questions of a small and of a large database: jobs in layers as in `benchmarks.lineage`, each with `--runs`
runs, filled straight into the tables. One connection; each question is asked many times, of another job each time.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable

import psycopg

from benchmarks.figures import at_most, figure
from benchmarks.lineage import Layers, fill
from benchmarks.merge import new_database
from correlator.correlation.datasets import DatasetQuestion, find_dataset, list_datasets
from correlator.correlation.jobs import JobQuestion, find_job, list_jobs
from correlator.correlation.lineage import graph
from correlator.correlation.producers import producers
from correlator.correlation.runs import find_run
from correlator.correlation.search import search
from correlator.correlation.starts import find_start
from correlator.http.listener import collect_rarely
from correlator.rulebook.identity import canonical_job_run_id
from correlator.rulebook.redaction import Redaction

OPEN = Redaction()


def questions(connection: psycopg.Connection, shape: Layers, chance: random.Random) -> dict[str, Callable[[], object]]:
    def layer() -> int:
        return chance.randrange(2, shape.layers)

    def number() -> int:
        return chance.randrange(shape.width)

    def job() -> str:
        return f"layer_{layer()}.job_{number()}"

    def run() -> object:
        canonical = canonical_job_run_id(shape.namespace, job(), f"run-{chance.randrange(shape.runs)}")
        return find_run(connection, canonical, OPEN)

    return {
        "a page of jobs": lambda: list_jobs(connection, JobQuestion(), limit=51),
        "a page of jobs, by words": lambda: list_jobs(connection, JobQuestion(q=f"job {number()}"), limit=51),
        "a page of datasets": lambda: list_datasets(connection, DatasetQuestion(), limit=51),
        "a job": lambda: find_job(connection, shape.namespace, job(), OPEN),
        "a run": run,
        "a dataset": lambda: find_dataset(connection, shape.urn(layer(), number()), OPEN),
        "search: one table": lambda: search(connection, f"layer {layer()} table {number()}"),
        "search: what everything is called": lambda: search(connection, "table"),
        "lineage, one step both ways": lambda: graph(
            connection, find_start(connection, f"dataset:{shape.urn(layer(), number())}"), depth=1
        ),
        "all producers": lambda: producers(connection),
    }


def measured(shape: Layers, rounds: int) -> dict[str, list[float]]:
    with new_database() as database, database.connect("benchmark", autocommit=True) as connection:
        fill(connection, shape)
        connection.execute("VACUUM ANALYZE")
        asked = questions(connection, shape, random.Random(7))
        times: dict[str, list[float]] = {name: [] for name in asked}
        for _ in range(rounds + 5):
            for name, question in asked.items():
                began = time.perf_counter()
                question()
                times[name].append((time.perf_counter() - began) * 1e3)
    return {name: values[5:] for name, values in times.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--jobs", type=int, nargs=2, default=(1_000, 20_000), help="in the small and the large one")
    arguments.add_argument("--runs", type=int, nargs=2, default=(10, 50), help="of each job")
    arguments.add_argument("--rounds", type=int, default=50)
    given = arguments.parse_args()
    # As in the server, whose answers these are.
    collect_rarely()
    small, large = (Layers("bench", 10, jobs // 10, runs) for jobs, runs in zip(given.jobs, given.runs, strict=True))
    first, second = measured(small, given.rounds), measured(large, given.rounds)
    sizes = [f"{shape.layers * shape.width * shape.runs:,} runs" for shape in (small, large)]
    print(f"{'':36}{sizes[0]:>24}{sizes[1]:>24}")
    print(f"{'':36}{'p50 ms':>12}{'p95 ms':>12}{'p50 ms':>12}{'p95 ms':>12}{'ratio':>8}")
    rows: dict[str, list[float]] = {}
    for name, values in first.items():
        cells = [
            cell
            for each in (values, second[name])
            for cell in (statistics.median(each), sorted(each)[len(each) * 95 // 100])
        ]
        rows[name] = [*cells, cells[2] / cells[0]]
        print(f"{name:36}" + "".join(f"{cell:12.2f}" for cell in cells) + f"{cells[2] / cells[0]:8.2f}")
    for place, size in ((1, sizes[0]), (3, sizes[1])):
        slowest = max(rows, key=lambda name: rows[name][place])
        figure(f"{size}, the slowest p95: {slowest}", rows[slowest][place], "ms", at_most(100))
    steepest = max(rows, key=lambda name: rows[name][-1])
    figure(f"{sizes[1]} beside {sizes[0]}, the most: {steepest}", rows[steepest][-1], "times", at_most(2))


if __name__ == "__main__":
    main()
