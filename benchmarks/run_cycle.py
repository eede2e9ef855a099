"""Layer 2: what it costs to put the events of one run in order and to follow its states, per event."""

import argparse
import json
import random
import statistics
from functools import partial

from benchmarks.figures import at_most, figure
from benchmarks.rounds import Contender, microseconds, table
from correlator.rulebook.decode import judge
from correlator.rulebook.events import RunEvent
from correlator.rulebook.run_cycle import is_single_run_batch, validate_event_sequence

LENGTHS = (2, 10, 100)


def run_of(length: int, *, in_order: bool) -> list[RunEvent]:
    """A run from START to COMPLETE, as nearly all clients send it, or as a bad network delivers it."""
    events = []
    for number in range(length):
        state = "START" if number == 0 else "COMPLETE" if number == length - 1 else "RUNNING"
        event = judge(
            json.dumps(
                {
                    "eventType": state,
                    "eventTime": f"2026-01-01T{number // 60:02}:{number % 60:02}:00Z",
                    "producer": "https://example.com/producer",
                    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json",
                    "run": {"runId": "550e8400-e29b-41d4-a716-446655440000"},
                    "job": {"namespace": "benchmark", "name": "job"},
                }
            ).encode()
        )
        assert isinstance(event, RunEvent)
        events.append(event)
    if not in_order:
        random.shuffle(events)
    return events


def follow(events: list[RunEvent]) -> None:
    if is_single_run_batch(events):
        validate_event_sequence(events)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    rounds = arguments.parse_args().rounds

    times: dict[str, list[float]] = {}
    for in_order in (True, False):
        for length in LENGTHS:
            name = f"{length} events, {'in order' if in_order else 'shuffled'}"
            batches = [run_of(length, in_order=in_order) for _ in range(20_000 // length)]
            measured = microseconds({name: Contender(follow, partial(list, batches))}, rounds)
            times[name] = [value / length for value in measured[name]]
    print(table(times, f"{LENGTHS[0]} events, in order", "µs per event"))
    for order in ("in order", "shuffled"):
        slowest = max(statistics.median(values) for name, values in times.items() if name.endswith(order))
        figure(f"run cycle of an event, {order}, the slowest length", slowest, "µs", at_most(1))


if __name__ == "__main__":
    main()
