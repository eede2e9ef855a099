"""Histories: the same for the same seed, told in events that are accepted, with truths that hold."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from correlator.demo.faults import FaultKind, Truth
from correlator.demo.scenario import History, Play, Scenario, simulate
from correlator.demo.simulation import Noise
from correlator.demo.telling import Quirks
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from tests.unit.demo.histories import Told, history, without_faults

SMALL = Scenario(seed=11, jobs=12, days=8, faults=1)


def test_equal_scenarios_give_equal_histories() -> None:
    one, other = simulate(SMALL), simulate(SMALL)
    assert one.events == other.events
    assert one.truths == other.truths
    assert one.events != simulate(replace(SMALL, seed=12)).events


def test_a_history_does_not_hang_on_the_order_of_a_set() -> None:
    program = (
        "import hashlib\n"
        "from correlator.demo.scenario import Scenario, simulate\n"
        "events = simulate(Scenario(seed=11, jobs=12, days=8, faults=1)).events\n"
        "print(hashlib.sha256(b''.join(each.raw for each in events)).hexdigest())\n"
    )
    told = {
        subprocess.run(  # noqa: S603 (our own program)
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert told == {hashlib.sha256(b"".join(each.raw for each in simulate(SMALL).events)).hexdigest()}


@pytest.mark.parametrize("seed", range(8))
def test_every_event_is_accepted_and_no_facet_is_doubtful(seed: int) -> None:
    for sent in Play(Scenario(seed=seed, jobs=(5, 9, 16, 25)[seed % 4], days=5, faults=1)):
        verdict = judge(sent.raw)
        assert not isinstance(verdict, Rejection)
        # What older integrations of Great Expectations do, and some companies still have.
        assert {problem.path for problem in verdict.warnings} <= {"eventTime"}


def test_events_come_in_the_order_in_which_they_are_sent() -> None:
    moments = [sent.at for sent in simulate(SMALL).events]
    assert moments == sorted(moments)


@pytest.mark.parametrize("kind", FaultKind)
def test_every_kind_of_fault_is_noticed_and_explained(kind: FaultKind) -> None:
    made = history(kind)
    assert {truth.fault for truth in made.truths} == {kind}
    assert 1 in {truth.hops for truth in made.truths}
    assert made.unexplained == 0


@pytest.mark.parametrize("kind", FaultKind)
def test_without_the_fault_every_test_passes(kind: FaultKind) -> None:
    scenario = Scenario(seed=5, jobs=14, days=12, kinds=(kind,), hops=(0, 1, 2), hourly_share=0.1)
    made = simulate(scenario)
    assert made.truths
    harmless = without_faults(made, scenario)
    assert sum(1 for _ in harmless.events()) > 0
    assert (harmless.truths, harmless.unexplained) == ([], 0)


def test_a_fault_changes_nothing_that_does_not_depend_on_it() -> None:
    scenario = Scenario(seed=5, jobs=14, days=12, kinds=(FaultKind.VOLUME_DROP,), quirks=Quirks(0, 0, 0))
    made = simulate(scenario)
    (fault,) = made.faults
    before = [sent.raw for sent in made.events if sent.at < fault.begins]
    harmless = [sent.raw for sent in without_faults(made, scenario).events()]
    assert before
    assert harmless[: len(before)] == before


@pytest.mark.parametrize("kind", FaultKind)
def test_the_events_tell_the_failure_and_the_run_whose_write_was_read(kind: FaultKind) -> None:
    made = history(kind)
    told = Told(made.events)
    for truth in made.truths:
        assert told.has_failed_result(truth)
        if truth.is_told:
            assert told.direct_cause(truth) == truth.direct_run_id


def test_the_root_of_a_failed_run_has_failed() -> None:
    made = history(FaultKind.FAILED_RUN)
    told = Told(made.events)
    for truth in made.truths:
        assert truth.root_run_id is not None
        run = told.runs[truth.root_run_id]
        assert run.job == truth.root_job
        assert run.states & {"FAIL", "ABORT"}


def test_a_run_that_never_was_has_no_id_and_leaves_a_gap() -> None:
    made = history(FaultKind.MISSING_RUN)
    told = Told(made.events)
    truth = made.truths[0]
    assert truth.root_run_id is None
    (fault,) = made.faults
    starts = [run.started / 1e6 for run in told.runs.values() if run.job == truth.root_job]
    assert starts
    assert not [at for at in starts if fault.begins <= at < fault.ends]


def test_code_that_broke_something_reads_differently() -> None:
    made = next(each for each in _histories(FaultKind.CODE_CHANGE) if _tells_sql(each))
    truth = made.truths[0]
    told = Told(made.events)
    assert truth.onset_run_id is not None
    before = [run for run in told.runs.values() if run.job == truth.root_job]
    texts = {run.events[0]["run"]["runId"]: run.events[-1]["job"]["facets"]["sql"]["query"] for run in before}
    ordered = sorted(before, key=lambda run: run.started)
    index = next(i for i, run in enumerate(ordered) if run.events[0]["run"]["runId"] == truth.onset_run_id)
    previous = ordered[index - 1].events[0]["run"]["runId"]
    assert texts[previous] != texts[truth.onset_run_id]


def _histories(kind: FaultKind) -> list[History]:
    return [history(kind, seed) for seed in range(0, 60, 20)]


def _tells_sql(made: History) -> bool:
    return made.company.jobs[made.faults[0].job].voice.sql


def test_what_was_asked_for_is_late_repeated_or_left_out() -> None:
    quiet = replace(SMALL, quirks=Quirks(late=0, duplicates=0, missing_starts=0))
    plain = simulate(quiet).events
    assert len({sent.raw for sent in plain}) == len(plain)

    repeated = simulate(replace(quiet, quirks=Quirks(late=0, duplicates=0.2, missing_starts=0))).events
    assert {sent.raw for sent in repeated} == {sent.raw for sent in plain}
    assert 1.1 < len(repeated) / len(plain) < 1.3

    late = simulate(replace(quiet, quirks=Quirks(late=0.2, duplicates=0, missing_starts=0))).events
    usual = {sent.raw: sent.at for sent in plain}
    assert {sent.raw for sent in late} == set(usual)
    assert 0.1 < sum(sent.at - usual[sent.raw] > 250 for sent in late) / len(late) < 0.3

    headless = simulate(replace(quiet, quirks=Quirks(late=0, duplicates=0, missing_starts=0.2))).events
    missing = {sent.raw for sent in plain} - {sent.raw for sent in headless}
    assert {json.loads(raw)["eventType"] for raw in missing} <= {"START", "RUNNING"}
    assert missing


def test_a_company_of_fifty_jobs_changes_something_several_times_a_day() -> None:
    made = simulate(Scenario(seed=2, jobs=50, days=6, faults=0, hourly_share=0.0))
    changes = 0
    seen: dict[tuple[str, str], str] = {}
    for sent in made.events:
        event = json.loads(sent.raw)
        if "run" not in event or event["eventType"] == "START":
            continue
        facets = event["job"]["facets"]
        parameters = event["run"]["facets"].get("executionParameters")
        said = json.dumps([facets.get("sql"), facets.get("sourceCodeLocation"), parameters])
        job = (event["job"]["namespace"], event["job"]["name"])
        changes += job in seen and seen[job] != said
        seen[job] = said
    assert changes / 6 > 2


def test_some_runs_fail_once_and_succeed_under_the_same_parent() -> None:
    made = simulate(Scenario(seed=4, jobs=20, days=8, faults=0, noise=Noise(retries=0.2)))
    told = Told(made.events)
    failed = {(run.job, run.parent) for run in told.runs.values() if "FAIL" in run.states and run.parent}
    succeeded = {(run.job, run.parent) for run in told.runs.values() if "COMPLETE" in run.states and run.parent}
    assert failed & succeeded


def test_a_later_failure_of_a_streak_is_not_its_first() -> None:
    made = next(m for m in map(_of_days, range(40)) if any(not truth.is_first for truth in m.truths))
    by_test: dict[tuple[str, str, str, str], list[Truth]] = {}
    for truth in made.truths:
        key = (truth.dataset_namespace, truth.dataset_name, truth.test_name, truth.column)
        by_test.setdefault(key, []).append(truth)
    for streak in by_test.values():
        assert [truth.is_first for truth in streak] == [True] + [False] * (len(streak) - 1)


def _of_days(seed: int) -> History:
    return simulate(Scenario(seed=seed, jobs=8, days=8, kinds=(FaultKind.CODE_CHANGE,), hops=(0, 1), hourly_share=0.0))
