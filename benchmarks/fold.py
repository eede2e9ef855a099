"""The first map of the pipeline: what it costs to judge events and to fold a batch of them into facts and bundles.

Three kinds of traffic, because what repeats is remembered: the next day's runs of real producers' pipelines (new run
ids and times), the same with every single facet new, and runs of a warehouse's jobs that read and write tables.
"""

import argparse
import gc
import json
import random
import statistics
import time
import uuid
from collections.abc import Callable

from benchmarks.figures import figure
from benchmarks.validation import next_days, sample, with_new_facets
from correlator.rulebook.bundles import bundles
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.facts import Facts
from correlator.rulebook.fold import fold_batch
from correlator.rulebook.identity import event_identity

_JOBS, _RUNS = 400, 1000
_PRODUCER = "https://github.com/OpenLineage/OpenLineage/tree/1.40.0/integration/warehouse"


def judged(raw: bytes) -> Event:
    event = judge(raw)
    assert not isinstance(event, Rejection), event.sentence
    return event


def _facet(document: str, version: str = "1-1-0", **members: object) -> dict[str, object]:
    return {
        "_producer": _PRODUCER,
        "_schemaURL": f"https://openlineage.io/spec/facets/{version}/{document}.json#/$defs/{document}",
        **members,
    }


def _table(number: int, **own: object) -> dict[str, object]:
    fields = [{"name": f"column_{column}", "type": "VARCHAR"} for column in range(number % 5 + 3)]
    return {
        "namespace": "postgres://warehouse:5432",
        "name": f"sales.public.table_{number}",
        "facets": {"schema": _facet("SchemaDatasetFacet", fields=fields)},
        **own,
    }


def warehouse_runs() -> list[bytes]:
    """START and COMPLETE of runs that read a table and write one, under a parent."""
    made = []
    for _ in range(_RUNS):
        job, run, parent = random.randrange(_JOBS), str(uuid.uuid4()), str(uuid.uuid4())
        day = f"2026-{random.randint(1, 12):02}-{random.randint(1, 28):02}T{random.randint(0, 23):02}"
        for event_type, minute in (("START", 10), ("COMPLETE", 50)):
            counted = {
                "outputStatistics": _facet("OutputStatisticsOutputDatasetFacet", rowCount=random.randrange(9999))
            }
            event = {
                "eventType": event_type,
                "eventTime": f"{day}:{minute}:{random.randint(0, 59):02}.{random.randint(0, 999):03}Z",
                "producer": _PRODUCER,
                "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
                "run": {
                    "runId": run,
                    "facets": {
                        "parent": _facet(
                            "ParentRunFacet",
                            run={"runId": parent},
                            job={"namespace": "warehouse", "name": f"dag_{job % 40}"},
                        )
                    },
                },
                "job": {
                    "namespace": "warehouse",
                    "name": f"dag_{job % 40}.task_{job}",
                    "facets": {
                        "jobType": _facet(
                            "JobTypeJobFacet", "2-0-3", processingType="BATCH", integration="AIRFLOW", jobType="TASK"
                        )
                    },
                },
                "inputs": [_table(job)],
                "outputs": [_table(job + 1, outputFacets=counted if event_type == "COMPLETE" else {})],
            }
            made.append(json.dumps(event, separators=(",", ":")).encode())
    return made


Work = Callable[[list[bytes]], object]


def _judge_all(events: list[bytes]) -> list[Event]:
    return [judged(raw) for raw in events]


def _identified(events: list[bytes]) -> list[Event]:
    """The first of each event."""
    return list({event_identity(event): event for event in _judge_all(events)}.values())


def _facts(events: list[bytes]) -> Facts:
    return fold_batch(_identified(events))


def _bundles(events: list[bytes]) -> object:
    return list(bundles(_facts(events)))


STEPS: dict[str, Work] = {
    "judge": _judge_all,
    "and identity": _identified,
    "and fold": _facts,
    "and bundles": _bundles,
}


def microseconds(traffic: Callable[[], list[bytes]], rounds: int) -> dict[str, list[float]]:
    """Per event, for each step with those before it, after one round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in STEPS}
    for number in range(rounds + 1):
        for name, work in STEPS.items():
            events = traffic()
            gc.collect()
            started = time.process_time()
            made = work(events)
            elapsed = time.process_time() - started
            del made
            if number > 0:
                times[name].append(elapsed * 1e6 / len(events))
    return times


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    rounds = arguments.parse_args().rounds

    corpus = sample()
    traffics: dict[str, Callable[[], list[bytes]]] = {
        "the next day's runs": lambda: next_days(corpus),
        "every facet new": lambda: with_new_facets(next_days(corpus)[: len(corpus)]),
        "runs of a warehouse": warehouse_runs,
    }
    for traffic, make in traffics.items():
        events = make()
        size = sum(map(len, events)) / len(events)
        print(f"\n{traffic}: {len(events)} events in a batch, {size:,.0f} bytes on average; µs per event")
        times = microseconds(make, rounds)
        figure(f"an event judged and folded, {traffic}", statistics.median(times["and bundles"]), "µs of CPU")
        for name, values in times.items():
            print(f"  {name:12}  {statistics.median(values):>8.2f}  least {min(values):>8.2f}")


if __name__ == "__main__":
    main()
