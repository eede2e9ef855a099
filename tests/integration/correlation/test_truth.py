"""Answers held against a simulator that knows the causes. The whole table is in `benchmarks/truth.py`."""

from benchmarks.truth import Judged, copy_of, judged, load, played

from correlator.demo.scenario import Scenario
from correlator.store.database import Database

SEEDS = range(31, 35)


def test_the_direct_cause_is_always_right_and_the_root_nearly_always_among_the_first_three(database: Database) -> None:
    found: list[Judged] = []
    for seed in SEEDS:
        events, truths = played(Scenario(seed=seed, jobs=12, days=16, faults=1))
        with copy_of(database) as connection:
            load(connection, events, 3)
            found += judged(connection, truths, seed)

    told = [one for one in found if one.truth.is_told]
    assert len(told) >= 3
    assert [one.truth for one in told if not one.direct] == []
    wrong = [(one.seed, one.truth.fault, one.place) for one in told if one.place is None or one.place > 3]
    assert len(wrong) <= len(told) // 20, wrong


def test_the_answers_do_not_depend_on_the_order_of_arrival(database: Database) -> None:
    events, truths = played(Scenario(seed=41, jobs=8, days=15, faults=1))
    answers = []
    for order in (events, events[::-1], events[::2] + events[1::2]):
        with copy_of(database) as connection:
            load(connection, order, 2)
            answers.append(
                [
                    (one.truth.test_run_id, c.namespace, c.name, c.run and c.run.run_id, round(c.score, 9))
                    for one in judged(connection, truths, 41)
                    for c in (one.explanation.candidates if one.explanation else ())
                ]
            )

    assert answers[0]
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]
