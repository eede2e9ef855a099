"""How often the answer is right in the warehouses of a stranger: histories of a second simulator, which was written
from the design and not from the code, judged as in `benchmarks.truth`.

    python -m benchmarks.strangers --histories 60
"""

import argparse

from benchmarks.strangers.shape import drawn
from benchmarks.strangers.telling import Teller
from benchmarks.strangers.truths import history_of
from benchmarks.truth import run, table, tell_all
from correlator.demo.faults import Truth
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection


def played(seed: int) -> tuple[list[Event], list[Truth]]:
    history = history_of(drawn(seed))
    events = []
    for raw in Teller(history.world).events():
        verdict = judge(raw)
        assert not isinstance(verdict, Rejection), verdict.errors
        events.append(verdict)
    return events, history.truths


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=40)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    judgements = run(options.histories, options.first, verbose=options.verbose, play=played)
    table(judgements)
    tell_all(judgements)
