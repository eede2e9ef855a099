"""P2 through Spark: whatever the order, the repetitions, the batches and the sources, the tables are the plain fold."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from correlator.pipeline.driver import Driver, Plan
from correlator.pipeline.fact_sink import FactSink, Size
from correlator.pipeline.sources import Source
from correlator.pipeline.sources.files import FilesSource
from correlator.pipeline.sources.log import LogSource
from correlator.rulebook.decode import judge
from correlator.store.database import Database
from tests.integration.conftest import Postgres, database_url, new_database
from tests.integration.pipeline.histories import (
    append,
    check_facts,
    raws_of,
    read_by_now,
    write_lines,
    write_parquet,
)
from tests.integration.server.running import wait_until
from tests.property.test_fold_properties import HISTORIES, written_otherwise
from tests.unit.rulebook.histories import Json

LONGER = st.tuples(HISTORIES, HISTORIES).map(lambda parts: parts[0] + parts[1])
PLACES = ("log", "lines", "gzip", "parquet")

dozens = settings(
    max_examples=12,
    deadline=None,
    # What fails here fails in the scope without Spark too, where an example is made small in no time.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def fresh(postgres: Postgres, migrated_template: str, tmp_path: Path) -> Any:
    """A database and a directory for each example."""

    @contextmanager
    def make() -> Iterator[tuple[Database, Path]]:
        with TemporaryDirectory(dir=tmp_path) as directory, new_database(postgres, migrated_template) as name:
            yield Database(database_url(postgres, name)), Path(directory)

    return make


class Told:
    """A history as it is told: by whom, in which order and how often."""

    def __init__(self, history: list[Json], data: st.DataObject) -> None:
        self.raws = raws_of(history)
        again = data.draw(st.lists(st.sampled_from(history), max_size=4), label="again")
        repeated = [written_otherwise(event).replace("\n", " ").encode() for event in again]
        events = data.draw(st.permutations(self.raws + repeated), label="order")
        parts: list[list[bytes]] = [[] for _ in range(data.draw(st.integers(1, 3), label="batches"))]
        for event in events:
            data.draw(st.sampled_from(parts)).append(event)
        self.parts = [(data.draw(st.sampled_from(PLACES), label="place"), part) for part in parts]


@given(history=LONGER, data=st.data())
@dozens
def test_any_order_duplication_split_and_source_gives_equal_tables(
    spark: SparkSession, fresh: Any, history: list[Json], data: st.DataObject
) -> None:
    told = Told(history, data)
    size = Size(small_events=data.draw(st.sampled_from([0, 5_000]), label="small"), partitions=3)
    with fresh() as (database, directory):
        # As many tasks as there are events, or one.
        log = LogSource(database.url, events_a_task=data.draw(st.sampled_from([1, 5_000]), label="task"))
        files = FilesSource([str(directory)], judge)
        sinks = {"log": FactSink(database, log, size=size), "files": FactSink(database, files, size=size)}
        position = 0
        for number, (place, raws) in enumerate(told.parts):
            if place == "log":
                end = position + append(database, raws)
                arrivals, position = log.between(spark, position, end), end
            else:
                arrivals = files.now(spark, [str(put(directory, number, place, raws))])
            sink = sinks["log" if place == "log" else "files"]
            for _ in range(data.draw(st.integers(1, 2), label="times")):
                sink.apply(arrivals, f"query {number}", number)
        for sink in sinks.values():
            sink.close()

        check_facts(database, told.raws)


def put(directory: Path, number: int, place: str, raws: list[bytes]) -> Path:
    if place == "parquet":
        file = directory / f"{number}.parquet"
        write_parquet(file, raws)
    else:
        file = directory / f"{number}.jsonl{'.gz' if place == 'gzip' else ''}"
        write_lines(file, raws)
    return file


@pytest.mark.parametrize("way", ["batch", "stream"])
@given(history=HISTORIES, data=st.data())
@settings(dozens, max_examples=2)
def test_a_stream_and_batches_over_the_same_sources_give_equal_tables(
    spark: SparkSession, fresh: Any, way: str, history: list[Json], data: st.DataObject
) -> None:
    told = Told(history, data)
    with fresh() as (database, directory):
        events = directory / "events"
        events.mkdir()
        sources: list[Source] = [LogSource(database.url), FilesSource([str(events)], judge)]
        plan = Plan(checkpoints=str(directory / "checkpoints"), archive=None, trigger=0.05, patience=120.0)
        stream = Driver(spark, database, sources, plan)
        streaming = threading.Thread(target=stream.stream)
        if way == "stream":
            streaming.start()
        expected = 0
        for number, (place, raws) in enumerate(told.parts):
            if place == "log":
                expected += append(database, raws)
            else:
                put(events, number, place, raws)
                expected += len(raws)
            if way == "batch":
                Driver(spark, database, sources, plan).batch()
        wait_until(lambda: read_by_now(database) >= expected, "everything is read")
        stream.stop()
        if way == "stream":
            streaming.join()

        check_facts(database, told.raws)
