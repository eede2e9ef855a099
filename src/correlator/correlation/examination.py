"""Look at every run of the bad trace, each beside the same job's run on the good side."""

from collections import defaultdict
from datetime import datetime
from typing import Final

from correlator.correlation.case import Case
from correlator.correlation.contents import find_changes_of_schemas, find_changes_of_sources, find_unchanged
from correlator.correlation.findings import Findings, Pair
from correlator.correlation.history import Run
from correlator.correlation.ids import Id
from correlator.correlation.metrics import find_metrics
from correlator.correlation.odd_amounts import find_amounts, find_between
from correlator.correlation.past import PastRun
from correlator.correlation.profiled_hours import find_profiled_hours
from correlator.correlation.red_tests import find_red_tests
from correlator.correlation.set_up import (
    find_changes_of_inputs,
    find_changes_of_set_up,
    find_repeat,
    find_take_over,
)

_OLDER: Final = 4


def examine(case: Case) -> dict[Id, Findings]:
    new_ways = _new_ways(case)
    found = {
        run_id: Findings(
            run,
            distance,
            _baseline(case, run),
            is_new=run_id in new_ways,
            is_new_way=run_id in new_ways and run_id in case.good.distances,
        )
        for run_id, distance in case.bad.distances.items()
        if (run := case.runs.get(run_id)) is not None and (case.about is None or run_id in case.about)
    }
    new = [one for one in found.values() if one.is_new]
    pairs = [_pair(case, one, one.baseline) for one in new if one.baseline is not None]
    find_changes_of_set_up(case, pairs)
    find_changes_of_inputs(case, pairs)
    find_changes_of_schemas(case, pairs)
    find_metrics(case, pairs)
    find_profiled_hours(case, pairs)
    find_changes_of_sources(case, pairs)
    find_unchanged(case, pairs)
    for one in new:
        find_amounts(case, one)
        if one.baseline is None:
            find_take_over(case, one)
    for pair in pairs:
        find_between(case, pair)
        find_repeat(case, pair)
    find_red_tests(case, found)
    return found


def _new_ways(case: Case) -> set[Id]:
    """Runs by which something came in that had not come that way when all was well.

    One that stands on both sides is among them where another job had read it then: the one in question had read what
    was before it.
    """
    if case.bad.start is None:
        return set()
    read: defaultdict[tuple[Id, tuple[Id, Id, datetime]], set[Id]] = defaultdict(set)
    for step in case.good.steps:
        reader = case.runs.get(step.use.reader)
        if step.version is not None and reader is not None:
            read[reader.job_id, step.version.key].add(reader.id)
    first = [run for run, distance in case.bad.distances.items() if not distance and run not in case.good.distances]
    found, left = set(first), first
    while left:
        run = case.runs.get(left.pop())
        for step in case.bad.reads_of(run.id) if run is not None else ():
            version = step.version
            if run is None or version is None or version.run in found:
                continue
            # Of a run that stands on both sides, what it read is compared with what was read by the one before it.
            if read[run.job_id, version.key] - {run.id}:
                continue
            # What a job adds to was there when all was well, and so was all that went into it.
            if version.run in case.good.distances and _is_of_job(case, version.run, run.job_id):
                continue
            found.add(version.run)
            left.append(version.run)
    return found


def _is_of_job(case: Case, run: Id, job: Id) -> bool:
    return run in case.runs and case.runs[run].job_id == job


def _pair(case: Case, found: Findings, before: PastRun) -> Pair:
    return Pair(found, before, case.pasts[found.run.job_id].good_before(before.ended_at)[:_OLDER])


def _baseline(case: Case, run: Run) -> PastRun | None:
    """The run of the same job behind the last good result; else its last good one before."""
    past = case.pasts[run.job_id]
    of_job = next((p for p in past.runs if p.id in case.good.distances and p.id != run.id), None)
    if of_job is not None:
        return of_job
    start = case.good.start
    before = [p for p in past.good if p.ended_at <= run.last_moment and p.id != run.id]
    well = (p for p in before if start is None or p.ended_at <= start.at)
    return next(well, next(iter(before), None))
