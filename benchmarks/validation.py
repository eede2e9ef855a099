"""Layer 1: what it costs to decode and fully judge an event, beside the validators that read the official schemas.

All contenders get the same kind of bytes and give the same verdict, every standard facet and all formats included.
Correlator remembers facets that it has seen, so what it gets is told apart: the next day's runs of the same pipelines
(new run ids and times), events in which every single facet is new, and the very same events again.
"""

import argparse
import json
import random
import re
import statistics
import uuid

import orjson
from tests import corpus, oracle

from benchmarks.figures import at_least, at_most, figure
from benchmarks.rounds import Contender, microseconds, table
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from correlator.rulebook.policy import CORRELATOR, SPEC, Policy

STRICT = Policy(name="spec", formats="enforce")
SMALLEST, LARGEST = 1_000, 4_000
DAYS = 20
OURS = "correlator: the next day's runs"
OURS_AGAIN, OURS_NEW = "correlator: the same events", "correlator: every facet new"
SCHEMAS, SCHEMAS_NEW = "orjson + jsonschema-rs", "orjson + jsonschema-rs: every facet new"
SLOW_SCHEMAS = "json + jsonschema"
_RUN_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def sample() -> list[bytes]:
    return [event for event in corpus.all_events() if SMALLEST <= len(event) <= LARGEST]


def next_days(events: list[bytes]) -> list[bytes]:
    """The same pipelines on other days: new run ids and times, alike in all events of a run and of its children."""
    again = []
    for _ in range(DAYS):
        moved: dict[str, str] = {}
        day = f"20{random.randint(10, 99)}-{random.randint(10, 12)}-{random.randint(10, 28)}"
        for event in events:
            text = _RUN_ID.sub(lambda match: moved.setdefault(match[0], str(uuid.uuid4())), event.decode())  # noqa: B023
            again.append(text.replace(json.loads(event)["eventTime"][:10], day).encode())
    return again


def with_new_facets(events: list[bytes]) -> list[bytes]:
    """Events whose every facet has not been seen before."""
    salted = []
    for event in events * DAYS:
        decoded = json.loads(event)
        for _, facets in oracle.facet_maps(decoded):
            for facet in facets.values():
                facet["salt"] = random.random()
        salted.append(json.dumps(decoded).encode())
    return salted


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    rounds = arguments.parse_args().rounds

    events = sample()
    size = sum(map(len, events)) / len(events)
    print(f"{len(events)} events of real producers, {size:,.0f} bytes on average; one core\n")
    for event in events:
        assert isinstance(judge(event, STRICT), Rejection) != oracle.is_valid(json.loads(event), formats=True)

    in_one_call = oracle.bundled(formats=True)
    times = microseconds(
        {
            OURS: Contender(lambda event: judge(event, CORRELATOR), lambda: next_days(events)),
            "correlator: the same, policy spec": Contender(lambda event: judge(event, SPEC), lambda: next_days(events)),
            OURS_NEW: Contender(lambda event: judge(event, SPEC), lambda: with_new_facets(events)),
            OURS_AGAIN: Contender(lambda event: judge(event, SPEC), lambda: events * DAYS),
            SCHEMAS: Contender(lambda event: in_one_call(orjson.loads(event)), lambda: next_days(events)),
            SCHEMAS_NEW: Contender(lambda event: in_one_call(orjson.loads(event)), lambda: with_new_facets(events)),
            SLOW_SCHEMAS: Contender(
                lambda event: oracle.is_valid(json.loads(event), formats=True, engine="jsonschema"), lambda: events
            ),
            "orjson alone, nothing judged": Contender(orjson.loads, lambda: next_days(events)),
            "json alone, nothing judged": Contender(json.loads, lambda: next_days(events)),
        },
        rounds,
    )
    print(table(times, OURS, "µs per event"))
    tell({name: statistics.median(values) for name, values in times.items()})


def tell(medians: dict[str, float]) -> None:
    figure("an event judged, facets that come again", medians[OURS_AGAIN], "µs", at_most(10))
    figure("an event judged, the next day's runs", medians[OURS], "µs", at_most(10))
    figure(f"the same: {SCHEMAS} takes", medians[SCHEMAS] / medians[OURS], "times as long", at_least(1))
    figure(f"the same: {SLOW_SCHEMAS} takes", medians[SLOW_SCHEMAS] / medians[OURS], "times as long", at_least(80))
    ratio = medians[SCHEMAS_NEW] / medians[OURS_NEW]
    figure(f"every facet new: {SCHEMAS} takes", ratio, "times as long", at_least(1))


if __name__ == "__main__":
    main()
