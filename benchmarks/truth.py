"""How often the answer is right: histories with faults whose causes are known, beside the answer "the latest run of the
producing job".

The events of each history are judged, folded and merged in a few batches, without Spark; then each first failure of a
test is explained and held against the truth of the simulator.

    python -m benchmarks.truth --histories 60
"""

import argparse
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from benchmarks.figures import at_least, figure
from benchmarks.merge import new_database
from correlator.correlation.causes import Explanation
from correlator.correlation.following import follow
from correlator.correlation.history import History
from correlator.correlation.ids import Id
from correlator.correlation.incidents import explained, incidents_of
from correlator.demo.faults import Truth
from correlator.demo.scenario import Play, Scenario
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.fold import fold_batch
from correlator.rulebook.identity import job_run_key
from correlator.store.database import Database
from correlator.store.merge import Batch, merge
from correlator.store.staging import begin, prepare, stage

SOURCE = "truth"


class Judged(NamedTuple):
    truth: Truth
    explanation: Explanation | None
    seed: int
    direct: bool
    place: int | None
    """Of the root among the candidates, from 1."""
    right_job: bool
    """Whether the first candidate is a run of the root's job."""
    baseline: bool
    seconds: float


def load(connection: psycopg.Connection[Any], events: list[Event], batches: int) -> None:
    prepare(connection, SOURCE)
    size = -(-len(events) // batches)
    for number in range(batches):
        attempt = begin(connection, SOURCE)
        part = events[number * size : (number + 1) * size]
        stage(connection, attempt, fold_batch(part))
        batch = Batch(query_id=SOURCE, batch_id=number, source=SOURCE, read=0, applied=0)
        merge(connection, attempt, batch, then=follow)


def played(scenario: Scenario) -> tuple[list[Event], list[Truth]]:
    play = Play(scenario)
    events = []
    for sent in play:
        verdict = judge(sent.raw)
        assert not isinstance(verdict, Rejection), verdict.errors
        events.append(verdict)
    return events, play.truths


@contextmanager
def copy_of(database: Database) -> Iterator[psycopg.Connection[Any]]:
    """A database of its own for each history, made from an empty one. (Where a transaction is taken back instead,
    autovacuum looks at rows that nobody will see, and the plans after that are for tables without rows.)"""
    with database.connect("truth", autocommit=True) as connection:
        empty = connection.info.dbname
    name = f"truth_{uuid4().hex}"
    with psycopg.connect(database.url, dbname="postgres", autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(empty)))
        try:
            copy = Database(make_conninfo(database.url, dbname=name))
            with copy.connect("truth", autocommit=True) as connection:
                yield connection
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def judged(connection: psycopg.Connection[Any], truths: list[Truth], seed: int) -> Iterator[Judged]:
    for truth in truths:
        if not truth.is_first:
            continue
        history = History(connection)
        failure = failure_of(history, truth)
        began = time.perf_counter()
        explanation = None
        if failure is not None:
            incident = incidents_of(history, [failure])[failure]
            explanation = explained(history, incident)
        seconds = time.perf_counter() - began
        yield Judged(
            truth,
            explanation,
            seed,
            is_direct(truth, explanation),
            place_of(truth, explanation),
            right_job(truth, explanation),
            latest_is_right(history, truth),
            seconds,
        )


def failure_of(history: History, truth: Truth) -> Id | None:
    """The failure that the truth is about."""
    rows = history.rows(
        """
        SELECT failure.id FROM facts.job_runs AS run
        JOIN facts.standing_results AS said ON said.job_run_id = run.id
        JOIN facts.failures AS failure ON failure.subject_id = said.test_id AND failure.job_run_id = run.id
        JOIN facts.datasets AS dataset ON dataset.id = said.dataset_id
        WHERE run.run_id = %s AND said.test_name = %s AND said.column_name = %s AND dataset.dataset_name = %s
        """,
        truth.test_run_id,
        truth.test_name,
        truth.column,
        truth.dataset_name,
    )
    return rows[0][0] if rows else None


def is_direct(truth: Truth, explanation: Explanation | None) -> bool:
    if explanation is None or explanation.cause is None:
        return truth.direct_run_id is None
    if truth.direct_run_id is None:
        return False
    return explanation.cause.run == job_run_key(*truth.direct_job, truth.direct_run_id)


def place_of(truth: Truth, explanation: Explanation | None) -> int | None:
    for place, candidate in enumerate(explanation.candidates if explanation else (), start=1):
        if (candidate.namespace, candidate.name) != truth.root_job:
            continue
        run = None if candidate.run is None else candidate.run.run_id
        if run == truth.root_run_id or (run is not None and run == truth.onset_run_id):
            return place
    return None


def right_job(truth: Truth, explanation: Explanation | None) -> bool:
    first = next(iter(explanation.candidates if explanation else ()), None)
    return first is not None and (first.namespace, first.name) == truth.root_job


def latest_is_right(history: History, truth: Truth) -> bool:
    """What one would say without looking: the last run of the job that makes the tested table."""
    rows = history.rows(
        "SELECT run_id FROM facts.job_runs WHERE job_namespace = %s AND job_name = %s ORDER BY started_at DESC LIMIT 1",
        *truth.direct_job,
    )
    return truth.direct_job == truth.root_job and bool(rows) and rows[0][0] == truth.root_run_id


def scenario_of(seed: int) -> Scenario:
    luck = random.Random(seed)
    return Scenario(
        seed=seed,
        jobs=luck.choice([5, 10, 20, 30, 50, 80]),
        days=luck.choice([18, 21, 24]),
        faults=2,
        hourly_share=luck.choice([0.0, 0.25, 0.5]),
    )


def run(
    histories: int,
    first: int,
    *,
    verbose: bool,
    play: Callable[[int], tuple[list[Event], list[Truth]]] = lambda seed: played(scenario_of(seed)),
) -> list[Judged]:
    """`play` makes the history of a seed, and tells what is true of it."""
    found: list[Judged] = []
    with new_database() as database:
        for seed in range(first, first + histories):
            events, truths = play(seed)
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


def tell(one: Judged) -> None:
    if one.place == 1 and one.direct:
        return
    truth = one.truth
    print(f"\nseed {one.seed}: {truth.fault.value}, {truth.hops} hops, told {truth.is_told}")
    print(f"   direct {one.direct}, place {one.place}, root {truth.root_job[1]} {truth.root_run_id}")
    print(f"   test {truth.test_name}({truth.column}) on {truth.dataset_name}")
    for candidate in (one.explanation.candidates if one.explanation else [])[:4]:
        run_id = candidate.run.run_id if candidate.run else None
        mark = "*" if (candidate.namespace, candidate.name) == truth.root_job else " "
        said = [evidence.sentence[:70] for evidence in candidate.evidence]
        print(
            f" {mark} {candidate.score:.2f} d{candidate.distance} {candidate.name} {run_id}: {said} {candidate.reasons}"
        )


def table(found: list[Judged]) -> None:
    told = [one for one in found if one.truth.is_told]
    print(f"\n{len(found)} first failures, {len(told)} of which the events say enough\n")
    print(f"{'':22} {'n':>5} {'direct':>8} {'top-1':>8} {'top-3':>8} {'top-1 job':>10} {'baseline':>9}")
    groups: dict[str, list[Judged]] = defaultdict(list)
    for one in told:
        groups[one.truth.fault.value].append(one)
    for one in told:
        groups[f"{one.truth.hops} hops"].append(one)
    groups["all"] = told
    for name, of_group in groups.items():
        print(
            f"{name:22} {len(of_group):5} {share(one.direct for one in of_group):>8} "
            f"{share(one.place == 1 for one in of_group):>8} "
            f"{share(one.place is not None and one.place <= 3 for one in of_group):>8} "
            f"{share(one.right_job for one in of_group):>10} {share(one.baseline for one in of_group):>9}"
        )
    times = sorted(one.seconds for one in found)
    if times:
        middle, most = (times[int(len(times) * share)] * 1000 for share in (0.5, 0.95))
        print(f"\nan answer took {middle:.0f} ms, p95 {most:.0f} ms")


def tell_all(found: list[Judged]) -> None:
    told = [one for one in found if one.truth.is_told]
    if not told:
        return

    def percent(right: Iterable[bool]) -> float:
        return 100 * sum(right) / len(told)

    figure(f"direct cause of {len(told)} failures", percent(one.direct for one in told), "%", at_least(100))
    figure("root cause, the first named", percent(one.place == 1 for one in told), "%", at_least(90))
    among_three = percent(one.place is not None and one.place <= 3 for one in told)
    figure("root cause, among the first three", among_three, "%", at_least(98))
    figure("root cause, by naming the producer's latest run", percent(one.baseline for one in told), "%")


def share(values: Any) -> str:
    counted = Counter(values)
    total = sum(counted.values())
    return f"{counted[True] / total:.1%}" if total else "-"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=40)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    judgements = run(options.histories, options.first, verbose=options.verbose)
    table(judgements)
    tell_all(judgements)
