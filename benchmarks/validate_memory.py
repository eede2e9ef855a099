"""What `correlator validate` needs for a large file of JSON lines: peak memory, events a second.

The events are made up: runs of many jobs with the facets that producers usually send, each run with its own id, times
and row counts. It fails if the command ever held more than the limit.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    job_type_job,
    nominal_time_run,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    sql_job,
)
from openlineage.client.serde import Serde

from benchmarks.figures import at_most, figure

MEGABYTE = 1024 * 1024
LIMIT_MEGABYTES = 150
JOBS = 200
COLUMNS = ("id", "customer_id", "ordered_at", "amount")
PRODUCER = "https://github.com/OpenLineage/OpenLineage/tree/1.54.0/integration/{}"
RUN_ID, PARENT_ID = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
EVENT_TIME, NOMINAL_TIME = "2001-01-01T01:01:01.001Z", "2002-02-02T02:02:02.002Z"
ROWS = 1_234_567


class Figures(msgspec.Struct, frozen=True):
    events: int
    megabytes: float
    seconds: float
    peak_megabytes: float

    def __str__(self) -> str:
        return (
            f"{self.events:,} events, {self.megabytes:,.0f} MB\n"
            f"peak resident memory  {self.peak_megabytes:8,.1f} MB  (limit {LIMIT_MEGABYTES})\n"
            f"events per second     {self.events / self.seconds:8,.0f}\n"
            f"seconds               {self.seconds:8,.1f}"
        )


def template(number: int, state: RunState) -> bytes:
    """An event of a job, with placeholders for what differs from run to run."""
    producer = PRODUCER.format(("dbt", "spark", "airflow")[number % 3])
    source, target = f"shop.raw.orders_{number}", f"shop.mart.orders_{number}"
    fields = [schema_dataset.SchemaDatasetFacetFields(name=column, type="varchar") for column in COLUMNS]
    warehouse = "postgres://warehouse.example.com:5432"
    event = RunEvent(
        eventTime=EVENT_TIME,
        eventType=state,
        producer=producer,
        run=Run(
            RUN_ID,
            facets={
                "nominalTime": nominal_time_run.NominalTimeRunFacet(nominalStartTime=NOMINAL_TIME),
                "parent": parent_run.ParentRunFacet(
                    run=parent_run.Run(PARENT_ID), job=parent_run.Job("shop", f"daily_{number % 20}")
                ),
                "processing_engine": processing_engine_run.ProcessingEngineRunFacet(version="3.5.1", name="spark"),
            },
        ),
        job=Job(
            "shop",
            f"daily_{number % 20}.orders_{number}",
            facets={
                "jobType": job_type_job.JobTypeJobFacet(processingType="BATCH", integration="DBT", jobType="MODEL"),
                "sql": sql_job.SQLJobFacet(query=f"insert into {target} select {', '.join(COLUMNS)} from {source}"),  # noqa: S608
            },
        ),
        inputs=[
            InputDataset(
                warehouse,
                source,
                facets={"schema": schema_dataset.SchemaDatasetFacet(fields=fields)},
            )
        ],
        outputs=[
            OutputDataset(
                warehouse,
                target,
                facets={
                    "schema": schema_dataset.SchemaDatasetFacet(fields=fields),
                    "columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet(
                        fields={
                            column: column_lineage_dataset.Fields(
                                inputFields=[column_lineage_dataset.InputField(warehouse, source, column)]
                            )
                            for column in COLUMNS[:2]
                        }
                    ),
                },
                outputFacets={
                    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                        rowCount=ROWS
                    )
                },
            )
        ],
    )
    return Serde.to_json(event).encode() + b"\n"


def events() -> Iterator[bytes]:
    """Endless days of the same jobs."""
    templates = [[template(number, state) for state in (RunState.START, RunState.COMPLETE)] for number in range(JOBS)]
    day = datetime(2026, 1, 1, tzinfo=UTC)
    while True:
        day += timedelta(days=1)
        parents = [str(uuid.uuid4()) for _ in range(20)]
        for number, of_job in enumerate(templates):
            run, rows = str(uuid.uuid4()), random.randrange(10**6, 10**7)
            for minute, text in enumerate(of_job):
                moment = day + timedelta(minutes=number % 60 + minute, milliseconds=number)
                told = {
                    RUN_ID: run,
                    PARENT_ID: parents[number % 20],
                    EVENT_TIME: moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                    NOMINAL_TIME: day.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                    str(ROWS): str(rows),
                }
                event = text
                for placeholder, value in told.items():
                    event = event.replace(placeholder.encode(), value.encode())
                yield event


def write_events(path: Path, size: int) -> int:
    """As many as fit; how many they were."""
    count = written = 0
    with path.open("wb") as file:
        for event in events():
            if written + len(event) > size:
                return count
            written += file.write(event)
            count += 1
    raise AssertionError


def measure(path: Path, count: int) -> Figures:
    command = [sys.executable, "-m", "correlator.cli.main", "validate", "-q", str(path)]
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603
    assert child.stdout is not None
    with child.stdout:
        told = child.stdout.read().decode()
    # A child's figures begin with those of the process that started it, so this one must stay the smaller of the two.
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    assert child.returncode == 0, told
    assert f"{count:,} events: {count:,} valid, 0 invalid\n" in told, told
    return Figures(count, path.stat().st_size / MEGABYTE, seconds, usage.ru_maxrss * 1024 / MEGABYTE)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--megabytes", type=int, default=1024)
    megabytes = arguments.parse_args().megabytes
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "events.jsonl"
        figures = measure(path, write_events(path, megabytes * MEGABYTE))
    print(figures)
    figure(f"memory for a file of {megabytes:,} MB, peak", figures.peak_megabytes, "MB", at_most(LIMIT_MEGABYTES))
    figure("correlator validate", figures.events / figures.seconds, "events/s")
    sys.exit(figures.peak_megabytes > LIMIT_MEGABYTES)


if __name__ == "__main__":
    main()
