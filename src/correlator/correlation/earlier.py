"""Odd runs before those of the trace: what a job wrote a while ago may be in what the next one read.

A daily job reads what an hourly one wrote since its last run, and the trace knows the last of these alone. A job may
also have been odd for a while before a test could notice: then what is odd began before the last good result.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

import msgspec

from correlator.correlation.candidates import PER_STEP, Candidate
from correlator.correlation.case import Case
from correlator.correlation.findings import Findings, OddRuns
from correlator.correlation.ids import Id
from correlator.correlation.judging import EXTREME, direction, metric_evidence, metric_weight, volume_evidence
from correlator.correlation.passed_on import PassedOn
from correlator.correlation.past import JobPast, PastRun
from correlator.correlation.usual import oddity

_BACK: Final = 72
"""Runs that the beginning of a series of odd ones is looked for in."""
_DAY: Final = timedelta(days=1)
_UNNOTICED: Final = 0.85
"""What is left where the test passed in spite of it."""


class Earlier(msgspec.Struct, frozen=True):
    """The first of a series of odd runs, if it is not of the trace."""

    candidate: Candidate
    of: Id
    """The run of the trace that it was found by."""
    run: Id
    well: Id
    """The last run of the job that was not odd."""
    dataset: Id
    is_alone: bool = True
    """Whether it is odd by itself, and not only together with those that followed."""


def earlier(case: Case, findings: Mapping[Id, Findings], passed_on: PassedOn) -> Iterator[Earlier]:
    for found in findings.values():
        if not found.is_new or found.baseline is None:
            continue
        past = case.pasts[found.run.job_id]
        odd_ones = {dataset: (odd, "between") for dataset, odd in found.between.items()}
        for dataset, (word, odd) in found.volumes.items():
            own = next((run for run, *_ in past.written.get(dataset, ()) if run.id == found.run.id), None)
            if own is not None and word == "rows":
                odd_ones[dataset] = (OddRuns(own, odd), "itself")
        for dataset, (odd_one, where) in odd_ones.items():
            if passed_on.volume(found.run.id, odd_one.odd) is not None:
                continue
            first, well = began(past, dataset, odd_one)
            is_unnoticed = first.first.ended_at <= found.baseline.ended_at
            if well is not None and (where == "between" or is_unnoticed):
                candidate = _candidate(case, found, dataset, first)
                if is_unnoticed:
                    candidate.score *= _UNNOTICED
                    candidate.reasons.append("it began before the last good result, which had not noticed yet")
                yield Earlier(candidate, found.run.id, first.first.id, well.id, dataset, is_alone=first.number == 1)
        yield from _held(case, found, past, passed_on)


def _held(case: Case, found: Findings, past: JobPast, passed_on: PassedOn) -> Iterator[Earlier]:
    """By what the columns held of what they wrote."""
    for dataset, (run, news) in found.metrics_between.items():
        changes = [change for change in news if passed_on.metric(found.run.id, change) is None]
        well = next((one for one in past.good if one.ended_at < run.ended_at), None)
        if well is None or not changes:
            continue
        of_run = case.run(run.id)
        candidate = Candidate(of_run.job_id, of_run.namespace, of_run.name, of_run, found.distance)
        candidate.evidence += [metric_evidence(case, dataset, change) for change in changes]
        reach = case.bad.columns.get(dataset)
        strength = max(metric_weight(case, change, reach) * case.fit(change.what) for change in changes)
        candidate.score = strength * PER_STEP**found.distance
        yield Earlier(candidate, found.run.id, run.id, well.id, dataset)


def began(past: JobPast, dataset: Id, odd: OddRuns) -> tuple[OddRuns, PastRun | None]:
    """The first of the odd runs that this one is the last of, and the last one before that was not odd.

    What is usual is told by runs of the day before or older: after some hours an odd series is like itself.
    """
    former = [
        (one, rows)
        for one, rows, _ in past.written.get(dataset, ())
        if one.ended_at < odd.first.ended_at and one.state == "COMPLETE" and rows is not None
    ]
    former.sort(key=lambda each: (each[0].ended_at, each[0].id), reverse=True)
    for one, rows in former[:_BACK]:
        usual = past.rows_before(dataset, one.ended_at, one.ended_at - _DAY)
        theirs = oddity(one.ended_at, float(rows), usual)
        if theirs is None or not theirs.strength or theirs.score * odd.odd.score < 0:
            return odd, one
        odd = OddRuns(one, theirs)
    return odd, None


def _candidate(case: Case, found: Findings, dataset: Id, runs: OddRuns) -> Candidate:
    run, odd = case.run(runs.first.id), runs.odd
    candidate = Candidate(run.job_id, run.namespace, run.name, run, found.distance)
    candidate.evidence.append(volume_evidence(case, dataset, "rows", odd, runs=runs.number))
    fit = case.fit(direction(odd))
    if abs(odd.log_ratio) > EXTREME:
        fit = max(fit, case.fit("broken"))
    candidate.score = 0.8 * odd.strength * fit * PER_STEP**found.distance
    return candidate
