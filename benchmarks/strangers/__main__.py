"""How often the answer is right in the warehouses of a stranger: histories of a second simulator, which was written
from the design and not from the code, judged as in `benchmarks.truth`.

    python -m benchmarks.strangers --histories 60
"""

import argparse

from benchmarks.merge import new_database
from benchmarks.strangers.shape import drawn
from benchmarks.strangers.telling import Teller
from benchmarks.strangers.truths import history_of
from benchmarks.truth import Judged, copy_of, judged, load, table, tell, tell_all
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


def run(histories: int, first: int, *, verbose: bool) -> list[Judged]:
    found: list[Judged] = []
    with new_database() as database:
        for seed in range(first, first + histories):
            events, truths = played(seed)
            if not truths:
                continue
            with copy_of(database) as connection:
                load(connection, events, 3)
                connection.execute("ANALYZE")
                of_history = list(judged(connection, truths, seed))
            found += of_history
            if verbose:
                for one in of_history:
                    tell(one)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=40)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    judgements = run(options.histories, options.first, verbose=options.verbose)
    table(judgements)
    tell_all(judgements)
