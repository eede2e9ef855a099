"""What it costs to turn judged events into facts with the plain fold, beside judging them."""

import argparse

from benchmarks.rounds import Contender, microseconds, table
from benchmarks.validation import next_days, sample
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.facts import Facts
from correlator.rulebook.fold import absorb


def judged(raw: bytes) -> Event:
    event = judge(raw)
    assert not isinstance(event, Rejection)
    return event


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    rounds = arguments.parse_args().rounds

    events = sample()
    facts = Facts()
    times = microseconds({"judge": Contender(judge, lambda: next_days(events))}, rounds)
    times |= microseconds(
        {"fold": Contender(lambda event: absorb(event, facts), lambda: [judged(raw) for raw in next_days(events)])},
        rounds,
    )
    print(table(times, "judge", "µs per event"))


if __name__ == "__main__":
    main()
