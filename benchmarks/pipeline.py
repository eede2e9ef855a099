"""The pipeline beside Spark's own floor: the same files, read, parsed whole by `from_json`, and thrown away.

Then judged, deduplicated and folded into Parquet, and once more through the driver into an empty PostgreSQL: the same
two ways both times, that of runs which a task has read whole, straight to the sink, and that of all else, through the
shuffle. All on `local[2]`, in one session, in turn; what counts are the ratios. Memory is the peak of the driver's JVM
and of all its Python processes, PostgreSQL left out.

    python -m benchmarks.pipeline --events 1000000 2000000 4000000
    python -m benchmarks.pipeline --events 1000000 --apart 50000
"""

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Self

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from benchmarks.figures import at_most, figure
from benchmarks.merge import event, new_database
from correlator.pipeline import stages
from correlator.pipeline.driver import Driver, Plan
from correlator.pipeline.fact_sink import Size
from correlator.pipeline.session import spark_session
from correlator.pipeline.sources.files import FilesSource
from correlator.rulebook.facts import Facts
from correlator.rulebook.judging import Judge

CORES = 2
EVENTS_A_FILE = 100_000
_PLACE = "00000000-0000-0000-0000-000000000000"
_TEMPLATES = 20_000
PARQUET, POSTGRES = "judged, deduplicated, folded, Parquet", "the same into PostgreSQL"
FLOOR = "floor: from_json of the whole, noop"
LIMITS = {PARQUET: (4.0, 3.0), POSTGRES: (8.0, 5.0)}
"""How many times the floor it may take, and what is aimed at."""


class Measured(msgspec.Struct, frozen=True):
    seconds: float
    peak_mb: float


def write_events(directory: Path, events: int, apart: int = 0) -> int:
    """START and COMPLETE of new runs, in files of 100,000, and say how many bytes they have.

    Between the two of a run there are START of `apart` others, and what ends then.
    """
    directory.mkdir()
    templates = [event(number, state, _PLACE) for number in range(_TEMPLATES) for state in ("START", "COMPLETE")]
    written = islice(_runs(templates, apart), events)
    size = 0
    for start in range(0, events, EVENTS_A_FILE):
        with (directory / f"events-{start:09}.jsonl").open("wb") as file:
            for line in islice(written, EVENTS_A_FILE):
                size += file.write(line)
    return size


def _runs(templates: list[bytes], apart: int) -> Iterator[bytes]:
    running: deque[tuple[int, bytes]] = deque()
    for number in count():
        place, run = number % _TEMPLATES * 2, str(uuid.uuid4()).encode()
        running.append((place + 1, run))
        yield templates[place].replace(_PLACE.encode(), run) + b"\n"
        if len(running) > apart:
            place, run = running.popleft()
            yield templates[place].replace(_PLACE.encode(), run) + b"\n"


def run_floor(spark: SparkSession, directory: Path) -> Measured:
    def work() -> None:
        sample = spark.read.json(str(next(iter(sorted(directory.iterdir())))))
        lines = spark.read.text(str(directory))
        lines.select(fn.from_json("value", sample.schema)).write.format("noop").mode("overwrite").save()

    return measure(work)


def run_parquet(spark: SparkSession, directory: Path, scratch: Path) -> Measured:
    source = FilesSource([str(directory)], Judge())
    whole = scratch / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    whole.mkdir()

    def work() -> None:
        parcels = stages.judged_and_folded(source.now(spark), source.judge, partial(written_whole, whole))
        folded = stages.folded_again(stages.brought_together(parcels, CORES))
        folded.write.mode("overwrite").parquet(str(scratch / "folded"))

    return measure(work)


@contextmanager
def written_whole(directory: Path) -> Iterator[stages.TakeWhole]:
    """Bundles of whole runs into a file of the task's own, as Spark writes those of all others."""
    with pq.ParquetWriter(directory / f"{uuid.uuid4()}.parquet", stages.ARROW, compression="snappy") as file:

        def take(facts: Facts) -> None:
            whole = Facts()
            for table, rows in facts.without_runs(stages.whole_runs(facts)):
                whole.add(table, rows)
            for batch in stages.in_arrow(stages.bundled(whole)):
                file.write_batch(batch)

        yield take


def run_postgres(spark: SparkSession, directory: Path, scratch: Path) -> Measured:
    """From the first event to the last commit. To make a database and to stop its server is not part of it."""
    with new_database() as database:
        source = FilesSource([str(directory)], Judge())
        plan = Plan(checkpoints=str(scratch / uuid.uuid4().hex), archive=None, size=Size(partitions=4 * CORES))
        measured = measure(Driver(spark, database, [source], plan).batch)
        with database.connect("benchmark") as connection:
            row = connection.execute("SELECT sum(applied) FROM kept.pipeline_batches").fetchone()
        print(f"    ({row[0] if row else 0:,} events applied)", flush=True)
    return measured


class Memory:
    """The peak of what this process and all below it hold, but for PostgreSQL, which is the user's own affair."""

    def __init__(self) -> None:
        self.peak = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        # To look at a large JVM takes of the cores that are measured: every half second it was 3 % of them.
        is_over = False
        while not is_over:
            is_over = self._stop.wait(2.0)
            self.peak = max(self.peak, sum(_resident(process) for process in below(os.getpid())) / 1e6)


def below(root: int) -> list[int]:
    """A process and all its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text(encoding="utf-8").rpartition(")")
            except OSError:
                continue
            if "(postgres" not in name:
                parents[int(entry.name)] = int(rest.split()[1])
    found, frontier = [], [root]
    while frontier:
        process = frontier.pop()
        found.append(process)
        frontier += [child for child, parent in parents.items() if parent == process]
    return found


def _resident(process: int) -> int:
    """Its own share: Spark's Python workers are forks, and have much in common."""
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def measure(work: Callable[[], object]) -> Measured:
    with Memory() as memory:
        began = time.perf_counter()
        work()
        seconds = time.perf_counter() - began
    return Measured(seconds, memory.peak)


def benchmark(sizes: Sequence[int], rounds: int, apart: int = 0) -> bool:
    scratch = Path(tempfile.mkdtemp(prefix="correlator-benchmark-"))
    spark = spark_session(f"local[{CORES}]", name="benchmark", settings={"spark.driver.memory": "2g"})
    found: dict[tuple[str, int], Measured] = {}
    try:
        warm = scratch / "warm"
        write_events(warm, 20_000)
        run_floor(spark, warm)
        run_parquet(spark, warm, scratch)
        run_postgres(spark, warm, scratch)
        for events in sizes:
            directory = scratch / f"events-{events}"
            size = write_events(directory, events, apart)
            print(
                f"\n{events:,} events, {size / events:,.0f} bytes each, {CORES} cores, {rounds} rounds, "
                f"{apart:,} other runs between a START and its COMPLETE",
                flush=True,
            )
            works: dict[str, Callable[[], Measured]] = {
                FLOOR: lambda directory=directory: run_floor(spark, directory),  # type: ignore[misc]
                PARQUET: lambda directory=directory: run_parquet(spark, directory, scratch),  # type: ignore[misc]
                POSTGRES: lambda directory=directory: run_postgres(spark, directory, scratch),  # type: ignore[misc]
            }
            taken: dict[str, list[Measured]] = {name: [] for name in works}
            for _ in range(rounds):
                for name, work in works.items():
                    taken[name].append(work())
            for name, each in taken.items():
                seconds = statistics.median(one.seconds for one in each)
                found[name, events] = Measured(seconds, max(one.peak_mb for one in each))
                ratio = seconds / found[FLOOR, events].seconds
                print(
                    f"{name:44} {seconds:8.1f} s {events / seconds:10,.0f} events/s {ratio:6.2f} x floor "
                    f"{found[name, events].peak_mb:8,.0f} MB",
                    flush=True,
                )
            shutil.rmtree(directory)
    finally:
        spark.stop()
        shutil.rmtree(scratch)
    return _judge(found, sizes)


def _judge(found: dict[tuple[str, int], Measured], sizes: Sequence[int]) -> bool:
    print()
    held = []
    for name, limits in LIMITS.items():
        for events in sizes:
            ratio = found[name, events].seconds / found[FLOOR, events].seconds
            for limit, word in zip(limits, ("at most", "aim"), strict=True):
                print(f"{'yes' if ratio <= limit else ' NO'}  {name}, {events:,} events: {word} {limit} x floor")
            held.append(ratio <= limits[0])
        first, last = sizes[0], sizes[-1]
        of_last = found[name, last].seconds
        figure(f"{last:,} events, {name}", last / of_last, "events/s")
        figure("the same, beside Spark's floor", of_last / found[FLOOR, last].seconds, "times", at_most(limits[0]))
        if first != last:
            growth = found[name, last].seconds / found[name, first].seconds / (last / first)
            memory = found[name, last].peak_mb / found[name, first].peak_mb
            print(
                f"     {name}: {last / first:.0f} times the events take {growth:.2f} of {last / first:.0f} times ",
                end="",
            )
            print(f"the time, and {memory:.2f} times the memory")
            figure(f"the same, time beside that of {first:,}", growth * last / first, "times")
            figure(f"the same, memory beside that of {first:,}", memory, "times")
    return all(held)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=[200_000])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--apart", type=int, default=0, help="runs that start between a START and its COMPLETE")
    options = parser.parse_args()
    benchmark(options.events, options.rounds, options.apart)
