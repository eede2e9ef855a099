"""What the whole closure of a lineage graph costs: the answer itself, and over HTTP's JSON.

A chain of 5 jobs with 24 runs each, 2,000 jobs in 10 layers and 6,000 jobs in 20 layers with `--runs` runs each. All
jobs of the first layer read one source, one more job reads all that the last layer writes, and every job between reads
two datasets of the layer above. Asked from the source downwards, from the end upwards, and from a dataset in the middle
both ways; one connection, after one question that does not count.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import psycopg

from benchmarks.figures import at_most, figure
from benchmarks.merge import new_database
from correlator.correlation.lineage import Direction, Graph, graph
from correlator.correlation.starts import find_start
from correlator.http.listener import collect_rarely
from correlator.rulebook.identity import canonical_job_run_id, dataset_key, job_key
from correlator.store.last_runs import note_all_last_runs

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
NO_ORDER = bytes(25)


class Layers(msgspec.Struct, frozen=True):
    """A graph in layers."""

    name: str
    layers: int
    width: int
    runs: int

    @property
    def namespace(self) -> str:
        return f"bench-{self.name}"

    @property
    def source(self) -> str:
        return f"{self.namespace}/source"

    @property
    def report(self) -> str:
        return f"{self.namespace}/report"

    def urn(self, layer: int, number: int) -> str:
        return f"{self.namespace}/layer_{layer}.table_{number % self.width}"

    def jobs(self) -> Iterator[tuple[str, list[str], str]]:
        """Name, inputs, output."""
        for layer in range(1, self.layers + 1):
            for number in range(self.width):
                above = (
                    {self.urn(layer - 1, number), self.urn(layer - 1, number * 2 + 1)} if layer > 1 else {self.source}
                )
                yield f"layer_{layer}.job_{number}", sorted(above), self.urn(layer, number)
        if self.width > 1:
            yield "report", [self.urn(self.layers, number) for number in range(self.width)], self.report


def fill(connection: psycopg.Connection, shape: Layers) -> None:
    """Straight into the tables, as the merge leaves them."""
    urns = {urn for _, inputs, output in shape.jobs() for urn in (*inputs, output)}
    with connection.transaction(), connection.cursor() as cursor:
        # Foreign keys are not looked up: what is filled in here fits.
        cursor.execute("SET LOCAL session_replication_role = replica")
        with cursor.copy(
            "COPY datasets (id, canonical_dataset_id, dataset_namespace, dataset_name, named_order) FROM STDIN"
        ) as copy:
            for urn in urns:
                copy.write_row((dataset_key(urn).hex(), urn, shape.namespace, urn.partition("/")[2], NO_ORDER))
        with cursor.copy("COPY jobs (id, job_namespace, job_name) FROM STDIN") as copy:
            for name, _, _ in shape.jobs():
                copy.write_row((job_key(shape.namespace, name).hex(), shape.namespace, name))
        with cursor.copy(
            "COPY job_runs (id, job_id, first_event_at, first_start_at, complete_at, event_time, current_state, "
            "event_type, canonical_job_run_id, job_namespace, job_name, run_id, producer, last_event_order) FROM STDIN"
        ) as copy:
            for number, (name, _, _) in enumerate(shape.jobs()):
                job = job_key(shape.namespace, name).hex()
                for run in range(shape.runs):
                    at = BEGAN + timedelta(hours=run, seconds=number)
                    run_id = f"run-{run}"
                    canonical = canonical_job_run_id(shape.namespace, name, run_id)
                    end = at + timedelta(minutes=5)
                    moments = (at, at, end, end)
                    names = (canonical, shape.namespace, name, run_id)
                    row = (canonical[:32], job, *moments, "COMPLETE", "COMPLETE", *names, "benchmark", NO_ORDER)
                    copy.write_row(row)
        with cursor.copy(
            "COPY lineage_edges (job_run_id, dataset_id, edge_type, first_event_at, last_event_at, origin, used_at) "
            "FROM STDIN"
        ) as copy:
            for number, (name, inputs, output) in enumerate(shape.jobs()):
                for run in range(shape.runs):
                    at = BEGAN + timedelta(hours=run, seconds=number)
                    key = canonical_job_run_id(shape.namespace, name, f"run-{run}")[:32]
                    for urn in inputs:
                        copy.write_row((key, dataset_key(urn).hex(), "input", at, at, 2, at))
                    copy.write_row((key, dataset_key(output).hex(), "output", at, at, 2, at + timedelta(minutes=5)))
        with cursor.copy("COPY dataset_jobs (dataset_id, job_id, edge_type) FROM STDIN") as copy:
            for name, inputs, output in shape.jobs():
                job = job_key(shape.namespace, name).hex()
                for urn in inputs:
                    copy.write_row((dataset_key(urn).hex(), job, "input"))
                copy.write_row((dataset_key(output).hex(), job, "output"))
        note_all_last_runs(connection)


def ask(connection: psycopg.Connection, urn: str, direction: Direction) -> Graph:
    with connection.transaction():
        start = find_start(connection, f"dataset:{urn}")
        return graph(connection, start, direction=direction, depth=100)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=5, help="of each job in the large graphs")
    arguments.add_argument("--rounds", type=int, default=20)
    given = arguments.parse_args()
    # The milliseconds are those that the whole closure may take.
    shapes = {
        Layers("chain", 5, 1, 24): 100,
        Layers("2,000 jobs in 10 layers", 10, 200, given.runs): 100,
        Layers("6,000 jobs in 20 layers", 20, 300, given.runs): 200,
    }
    # As in the server, whose answers these are.
    collect_rarely()
    with new_database() as database, database.connect("benchmark", autocommit=True) as connection:
        for shape in shapes:
            fill(connection, shape)
        connection.execute("ANALYZE")
        print(f"{'the whole closure':44}{'nodes':>8}{'edges':>8}{'p50 ms':>10}{'p95 ms':>10}{'JSON ms':>10}")
        for shape, limit in shapes.items():
            slowest = 0.0
            end = shape.report if shape.width > 1 else shape.urn(shape.layers, 0)
            middle = shape.urn(shape.layers // 2, 0)
            asked: tuple[tuple[str, Direction], ...] = ((shape.source, "down"), (end, "up"), (middle, "both"))
            for urn, direction in asked:
                found = ask(connection, urn, direction)
                times, encoding = [], []
                for _ in range(given.rounds):
                    began = time.perf_counter()
                    found = ask(connection, urn, direction)
                    done = time.perf_counter()
                    msgspec.json.encode(found)
                    times.append((done - began) * 1e3)
                    encoding.append((time.perf_counter() - done) * 1e3)
                name = f"{shape.name}, {direction}"
                p95 = sorted(times)[len(times) * 95 // 100]
                slowest = max(slowest, statistics.median(times))
                print(
                    f"{name:44}{len(found.nodes):8,}{len(found.edges):8,}{statistics.median(times):10.1f}"
                    f"{p95:10.1f}{statistics.median(encoding):10.1f}"
                )
            figure(f"{shape.name}: the whole closure, slowest direction, p50", slowest, "ms", at_most(limit))


if __name__ == "__main__":
    main()
