"""How runs were set up: code, engine, parameters and what they read, theirs and of those that started them."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import msgspec

from correlator.correlation.case import Case
from correlator.correlation.changes import CODE, CodeChange, code_changes, setting_changes
from correlator.correlation.findings import Findings, InputChange, Pair, Repeat, TakeOver
from correlator.correlation.history import Run
from correlator.correlation.ids import Id
from correlator.correlation.past import PastRun, facets_at, run_facets

_VERSION: Final = "sourceCodeLocation"
_MOST_WINDOWS: Final = 9
_FEWEST_WINDOWS: Final = 3
"""Of so few it cannot be said what is a habit."""
_STEADY: Final = 2
"""So many runs before must have read the same, lest every day has inputs of its own."""


class _Twin(msgspec.Struct, frozen=True):
    """Two runs of one job to be compared: those of a pair, or those that started them."""

    now: Run
    then: Run
    older: list[Id]
    whose: str = ""
    """The job, if it is the one that started the run in question."""

    @property
    def apart(self) -> timedelta:
        return self.now.started_at - self.then.started_at


def find_changes_of_set_up(case: Case, pairs: Sequence[Pair]) -> None:
    """Of code, engine and parameters."""
    twins = [(pair, twin) for pair, of_pair in zip(pairs, _twins(case, pairs), strict=True) for twin in of_pair]
    ends = {pair.found.run.id: (pair.found.run.last_moment, pair.before.ended_at) for pair in pairs}
    asked = [(twin.now.job_id, moment) for pair, twin in twins for moment in ends[pair.found.run.id]]
    code = facets_at(case.history, "job", asked, CODE)
    facets = run_facets(case.history, {run.id for _, twin in twins for run in (twin.now, twin.then)})
    # What was before tells what changes from run to run anyway: it is asked for where something has changed at all.
    changed = [twin for _, twin in twins if setting_changes(*_compared(facets, twin), [], twin.apart)]
    facets |= run_facets(case.history, {run for twin in changed for run in twin.older})
    for pair, twin in twins:
        now, then = ends[pair.found.run.id]
        job = twin.now.job_id
        pair.found.code += [
            msgspec.structs.replace(change, whose=twin.whose)
            for change in code_changes(code[job, then], code[job, now])
        ]
        older = [facets.get(run) or {} for run in twin.older]
        pair.found.settings += [
            msgspec.structs.replace(change, whose=twin.whose)
            for change in setting_changes(*_compared(facets, twin), older, twin.apart)
        ]
    _find_habits(case, pairs)


def _find_habits(case: Case, pairs: Sequence[Pair]) -> None:
    """How often versions of code changed in as much time before: who shares a repository has a new one every day."""
    # Of those that have the same one now, the nearest speaks for all: it may be every job there is.
    deployed: dict[str, Pair] = {}
    for pair in sorted(pairs, key=lambda pair: pair.found.distance):
        for change in pair.found.code:
            if _is_version(change):
                deployed.setdefault(change.after, pair)
    moments = {version: list(_windows(case, pair)) for version, pair in deployed.items()}
    asked = [(pair.found.run.job_id, moment) for version, pair in deployed.items() for moment in moments[version]]
    code = facets_at(case.history, "job", asked, [_VERSION])
    habits: dict[str, float] = {}
    for version, pair in deployed.items():
        stood = [code[pair.found.run.job_id, moment].get(_VERSION) for moment in moments[version]]
        known = [body for body in stood if body is not None]
        if len(known) > _FEWEST_WINDOWS:
            changed = sum(bool(code_changes({_VERSION: one}, {_VERSION: other})) for one, other in pairwise(known))
            habits[version] = changed / (len(known) - 1)
    for pair in pairs if habits else ():
        pair.found.code = [
            msgspec.structs.replace(change, habit=habits.get(change.after, 0.0)) if _is_version(change) else change
            for change in pair.found.code
        ]


def _is_version(change: CodeChange) -> bool:
    return change.facet == _VERSION and not change.whose


def _windows(case: Case, pair: Pair) -> Iterator[datetime]:
    """From the run that it is compared with backwards, each as long as the time between the two."""
    good = case.pasts[pair.found.run.job_id].good
    length = pair.found.run.last_moment - pair.before.ended_at
    moment = pair.before.ended_at
    for _ in range(_MOST_WINDOWS):
        if length <= timedelta(0) or moment < good[-1].ended_at:
            return
        yield moment
        moment -= length


def _compared(facets: Mapping[Id, dict[str, Any]], twin: _Twin) -> tuple[dict[str, Any], dict[str, Any]]:
    return facets.get(twin.then.id) or {}, facets.get(twin.now.id) or {}


def _twins(case: Case, pairs: Sequence[Pair]) -> Iterator[list[_Twin]]:
    """Each pair, and the runs that started it: tasks and applications know of code, and their children of tables."""
    runs = case.history.runs(run for pair in pairs for run in (pair.found.run.id, pair.before.id))
    above = case.history.runs(run.parent for run in runs.values() if run.parent is not None)
    for pair in pairs:
        now, then = runs[pair.found.run.id], runs[pair.before.id]
        found = [_Twin(now, then, [past.id for past in pair.older])]
        starter, former = (above.get(run.parent or run.id) for run in (now, then))
        if starter is not None and former is not None and starter.job_id == former.job_id and starter.id != former.id:
            starters = {past.parent for past in pair.older if past.parent is not None} - {former.id}
            found.append(_Twin(starter, former, sorted(starters), starter.name))
        yield found


def find_changes_of_inputs(case: Case, pairs: Sequence[Pair]) -> None:
    """Where a job always read the same: who reads something else was told to."""
    steady = [pair for pair in pairs if len(pair.older) >= _STEADY]
    read = _read(case, [run for pair in steady for run in (pair.found.run.id, pair.before.id)])
    # Who names no input at all may have said it in an event that is lost.
    differ = [
        (pair, now, then)
        for pair in steady
        if (now := read[pair.found.run.id]) and (then := read[pair.before.id]) and now != then
    ]
    read_before = _read(case, [past.id for pair, _, _ in differ for past in pair.older])
    changed = [
        (pair, sorted(then - now), sorted(now - then))
        for pair, now, then in differ
        if all(read_before[past.id] == then for past in pair.older)
    ]
    names = case.history.names(dataset for _, gone, new in changed for dataset in (*gone, *new))
    for pair, gone, new in changed:
        told = [tuple(names.get(dataset) or "a dataset" for dataset in some) for some in (gone, new)]
        pair.found.inputs = InputChange(*told)


def _read(case: Case, runs: Sequence[Id]) -> dict[Id, set[Id]]:
    return {run: {use.dataset for use in uses} for run, uses in case.history.inputs(runs).items()}


def find_take_over(case: Case, found: Findings) -> None:
    """Where a job has no past, and another wrote the same before."""
    for version in case.bad.written[found.run.id]:
        for former in case.good.written_to(version.dataset):
            run = case.runs.get(former.run)
            if run is not None and run.job_id != found.run.job_id:
                found.took_over = TakeOver(run.job_id, run.name, version.dataset)


def find_repeat(case: Case, pair: Pair) -> None:
    """By the moments that runs say they are for."""
    run = pair.found.run
    good = [past for past in case.pasts[run.job_id].good if past.nominal_time is not None]
    former: list[PastRun] = []
    for past in sorted(good, key=lambda past: (past.ended_at, past.id)):
        if past.nominal_time is None or past.ended_at > run.last_moment:
            continue
        if past.ended_at > pair.before.ended_at and former:
            last = former[-1].nominal_time or past.nominal_time
            if past.nominal_time < last or any(one.nominal_time == past.nominal_time for one in former):
                pair.found.repeated = Repeat(past, past.nominal_time, last)
                return
        former.append(past)
