"""The sink's half in SQL: what it costs to stage folded rows and to merge them, per event and per row.

Each event is a run of its own, as in the worst case: one row for the run, one for each input and output, and one for
each facet whose history is kept. Then the same batch once more, which changes nothing; a second event for each of the
runs; and small batches as the live pipeline has them, on top of all that. One connection, the embedded PostgreSQL with
fsync on.
"""

import argparse
import gc
import json
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks.figures import figure
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.facts import Facts
from correlator.rulebook.fold import fold
from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres
from correlator.store.merge import Batch, merge
from correlator.store.migrations import migrate
from correlator.store.staging import begin, prepare, stage, sweep

SOURCE = "benchmark"
JOBS, DATASETS = 1_000, 3_000
LIVE = (1, 10, 200)
_PRODUCER = "https://github.com/OpenLineage/OpenLineage/tree/1.54.0/integration/airflow"


def facet(name: str, **members: object) -> dict[str, object]:
    url = f"https://openlineage.io/spec/facets/1-0-0/{name}.json"
    return {"_producer": _PRODUCER, "_schemaURL": url, **members}


def event(number: int, state: str, run: str) -> bytes:
    """About 1.7 KB, of which most comes again with the job's next run."""
    job, minute = number % JOBS, number // JOBS
    hour, day = minute // 60, 1 + minute // 1440
    end = "30" if state == "COMPLETE" else "00"
    fields = [{"name": f"column_{n}", "type": "VARCHAR"} for n in range(6)]
    return json.dumps(
        {
            "eventType": state,
            "eventTime": f"2026-05-{day:02}T{hour % 24:02}:{minute % 60:02}:{end}.{job:03}Z",
            "producer": _PRODUCER,
            "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
            "run": {
                "runId": run,
                "facets": {
                    "parent": facet(
                        "ParentRunFacet",
                        run={"runId": str(uuid.UUID(int=minute))},
                        job={"namespace": "airflow", "name": f"dag_{job // 10}"},
                    ),
                    "nominalTime": facet("NominalTimeRunFacet", nominalStartTime=f"2026-05-{day:02}T00:00:00Z"),
                },
            },
            "job": {
                "namespace": "airflow",
                "name": f"dag_{job // 10}.task_{job}",
                "facets": {"sql": facet("SQLJobFacet", query=f"call load_table_{job}(day => current_date)")},
            },
            "inputs": [{"namespace": "postgres://db:5432", "name": f"shop.public.table_{(job * 7) % DATASETS}"}],
            "outputs": [
                {
                    "namespace": "postgres://db:5432",
                    "name": f"shop.public.table_{job}",
                    "facets": {"schema": facet("SchemaDatasetFacet", fields=fields)},
                    "outputFacets": {"outputStatistics": facet("OutputStatisticsOutputDatasetFacet", rowCount=number)},
                }
            ],
        }
    ).encode()


def judged(raw: bytes) -> Event:
    verdict = judge(raw)
    assert not isinstance(verdict, Rejection), verdict.sentence
    return verdict


def runs(count: int) -> list[str]:
    return [str(uuid.uuid4()) for _ in range(count)]


def folded(first: int, state: str, of_runs: list[str]) -> Facts:
    return fold(judged(event(first + number, state, run)) for number, run in enumerate(of_runs))


@contextmanager
def new_database() -> Iterator[Database]:
    with tempfile.TemporaryDirectory(prefix="correlator-bench-") as directory:
        if os.geteuid() == 0:  # the server then runs as another user, who has to get there
            Path(directory).chmod(0o711)
        with EmbeddedPostgres.open(Path(directory) / "postgres") as server:
            database = Database(server.url)
            migrate(database)
            yield database


class Sink:
    """A source's way into the tables."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._batches = 0
        prepare(connection, SOURCE)

    def apply(self, facts: Facts, events: int) -> tuple[float, float]:
        """Seconds to stage, and to merge."""
        self._batches += 1
        attempt = begin(self._connection, SOURCE)
        staging = timed(lambda: stage(self._connection, attempt, facts))
        batch = Batch(query_id="benchmark", batch_id=self._batches, source=SOURCE, read=events, applied=events)
        merging = timed(lambda: merge(self._connection, attempt, batch))
        sweep(self._connection, attempt)
        return staging, merging


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def report(name: str, staging: float, merging: float, rows: int, events: int) -> None:
    print(
        f"{name:44}{staging / events * 1e6:12.1f}{merging / events * 1e6:12.1f}"
        f"{rows / staging:14,.0f}{rows / merging:14,.0f}"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=int, default=100_000)
    arguments.add_argument("--batch", type=int, default=100_000, help="events in a batch")
    arguments.add_argument("--live", type=int, default=50, help="batches of each small size")
    given = arguments.parse_args()

    with new_database() as database, database.connect("benchmark", autocommit=True) as connection:
        sink = Sink(connection)
        size = len(event(0, "COMPLETE", str(uuid.uuid4())))
        of_runs = runs(given.events)
        firsts = range(0, given.events, given.batch)

        def bulk(name: str, state: str) -> float:
            staging = merging = rows = 0.0
            for first in firsts:
                facts = folded(first, state, of_runs[first : first + given.batch])
                gc.collect()
                took = sink.apply(facts, given.batch)
                staging, merging, rows = staging + took[0], merging + took[1], rows + len(facts)
            report(name, staging, merging, int(rows), given.events)
            each: float = (staging + merging) / given.events * 1e6
            return each

        print(f"{given.events:,} events of {size:,} bytes in batches of {given.batch:,}")
        print(f"{'':44}{'µs an event':>24}{'rows a second':>28}")
        print(f"{'':44}{'stage':>12}{'merge':>12}{'stage':>14}{'merge':>14}")
        first_time = bulk("into empty tables, each event a run", "START")
        figure("staged and merged, each event a new run", first_time, "µs an event")
        again = bulk("the same batches again", "START")
        figure("the same batches again take", again / first_time, "times as long")
        bulk("another event for each of the runs", "COMPLETE")
        bulk("the same batches again", "COMPLETE")
        print(f"\n{'live, on top of that':44}{'p50 ms':>24}{'p95 ms':>14}")
        number = given.events
        for count in LIVE:
            times = []
            for _ in range(given.live):
                times.append(sum(sink.apply(folded(number, "START", runs(count)), count)) * 1e3)
                number += count
            ordered = sorted(times)
            name = f"batches of {count}"
            p95 = ordered[len(times) * 95 // 100]
            print(f"{name:44}{statistics.median(times):24.1f}{p95:14.1f}")
            figure(f"live, a batch of {count}, p95", p95, "ms")


if __name__ == "__main__":
    main()
