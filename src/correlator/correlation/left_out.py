"""Runs that were left out: a job ended well, then not when it was due, then well again.

By the time a test looks all is as it should be, and what was left out is lost, or the next run has done it beside its
own share. Few say how much that was.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

import msgspec

from correlator.correlation.candidates import PER_STEP, Candidate, Evidence
from correlator.correlation.case import Case
from correlator.correlation.findings import Findings
from correlator.correlation.ids import Id
from correlator.correlation.past import PastRun
from correlator.correlation.phrases import said
from correlator.correlation.usual import odd

_LEFT_OUT: Final = 1.5
"""Times as long as usual from one to the next: what is less has come late and was not left out."""
_MOST_SHARES: Final = 1.5
"""So many times what was left undone, at most: more than that has other reasons."""
_SEEN: Final = 0.75
_SILENT: Final = 0.6
"""Of a run after it that does not say how much it did."""
_AS_USUAL: Final = 0.35
"""Of one that did as much as ever, or far more than it had to."""


class LeftOut(msgspec.Struct, frozen=True):
    """That something is missing between two runs of a job which both ended well."""

    found: Findings
    """The run of the trace by which it was found."""
    since: datetime
    """The last good end before."""
    due: datetime
    failed: PastRun | None
    """The last of those that failed; None if there was none at all when one was due."""
    most: float
    """So many times as much as usual the one that followed may have had to do."""
    is_made_up: bool
    """Whether that one wrote more than usual, or larger sums, and about as much as it had to."""
    is_silent: bool
    """Whether it does not say how much it wrote."""


def find_left_out(case: Case, findings: Mapping[Id, Findings]) -> dict[Id, LeftOut]:
    """By run of the trace the first since the run of its job that was behind the last good result."""
    found: dict[Id, LeftOut] = {}
    for run, one in findings.items():
        left = _left_out(case, one) if one.is_new and one.baseline is not None else None
        if left is not None:
            found[run] = left
    return found


def _left_out(case: Case, one: Findings) -> LeftOut | None:
    past = case.pasts[one.run.job_id]
    if one.baseline is None:
        return None
    usual = past.interval(one.baseline.ended_at)
    if usual is None:
        return None
    good = past.good_between(one.baseline.ended_at, one.run.last_moment)
    for before, after in pairwise(reversed(good)):
        time = after.started_at - before.ended_at
        if time < _LEFT_OUT * usual and after.id != one.run.id:
            continue
        rhythm = past.rhythm(before.ended_at)
        if rhythm is None or not rhythm.is_late(before.ended_at, after.started_at):
            continue
        shares = time / rhythm.interval
        is_own = after.id == one.run.id
        done, most = _times_as_much(one), _MOST_SHARES * shares
        is_made_up = is_own and 0 < done <= most
        is_a_run_late = time - rhythm.interval >= usual * (_LEFT_OUT - 1)
        if shares < _LEFT_OUT and not (is_made_up and is_a_run_late):
            continue
        return LeftOut(
            one,
            before.ended_at,
            before.ended_at + rhythm.interval,
            # Not by when the next one began, for who tells of its end alone began then; and not a try of that one.
            next(iter(past.failed_between(before.ended_at, after.ended_at)), None),
            most,
            is_made_up,
            is_silent=not one.said["amount"] or _is_always_as_many(case, one),
        )
    return None


def left_out_before(case: Case, one: Findings, runs: Sequence[PastRun]) -> Iterator[tuple[LeftOut, PastRun]]:
    """The last of what was left out among former runs, the first of which comes first; and the one that followed.

    It may have been made up for by what was well when the test passed, and still be missing, or be there too much, in
    what is made of more than one run.
    """
    past = case.pasts[one.run.job_id]
    for after, before in pairwise(reversed(runs)):
        usual = past.interval(before.ended_at)
        if usual is None or after.started_at - before.ended_at < _LEFT_OUT * usual:
            continue
        rhythm = past.rhythm(before.ended_at)
        if rhythm is None or not rhythm.is_late(before.ended_at, after.started_at):
            continue
        failed = next(iter(past.failed_between(before.ended_at, after.ended_at)), None)
        due = before.ended_at + rhythm.interval
        most = _MOST_SHARES * (after.started_at - before.ended_at) / rhythm.interval
        is_made_up = _has_made_up(case, one, after, most)
        silent = not one.said["amount"] or _is_always_as_many(case, one)
        yield LeftOut(one, before.ended_at, due, failed, most, is_made_up, silent), after
        return


def _has_made_up(case: Case, one: Findings, run: PastRun, most: float) -> bool:
    """Whether a former run wrote more than usual, and about as much as it had to."""
    past = case.pasts[one.run.job_id]
    for version in case.bad.written[one.run.id]:
        rows = next((rows for each, rows, _ in past.written.get(version.dataset, ()) if each.id == run.id), None)
        found = (
            None if rows is None else odd(run.ended_at, float(rows), past.rows_before(version.dataset, run.ended_at))
        )
        if found is not None and found.score > 0 and found.amount <= most * max(found.usual, 1):
            return True
    return False


def _times_as_much(one: Findings) -> float:
    """As usual; of rows, or of what they sum up where there are as many as ever."""
    rows = [odd.amount / max(odd.usual, 1) for _, odd in one.volumes.values() if odd.score > 0]
    sums = [change.growth for changes in one.metrics.values() for change in changes if change.growth > 1]
    return max([*rows, *sums], default=0.0)


def _is_always_as_many(case: Case, one: Findings) -> bool:
    past, written = case.pasts[one.run.job_id], case.bad.written[one.run.id]
    counted = [version for version in written if version.row_count is not None]
    return bool(counted) and all(past.is_always_as_many(each, one.run.last_moment) for each in counted)


def blamed_for_rest(case: Case, left: LeftOut) -> Candidate:
    """The run that never was, or the first of those that failed."""
    of_job, distance = left.found.run, left.found.distance
    failed = None if left.failed is None else case.run(case.pasts[of_job.job_id].began_to_fail(left.failed).id)
    candidate = Candidate(of_job.job_id, of_job.namespace, of_job.name, failed, distance)
    since = f"{left.since:%Y-%m-%d %H:%M}"
    if failed is None:
        sentence = f"{of_job.name} was due again after {since}, and did not run before the one that made up for it"
        candidate.evidence.append(Evidence("missing_run", of_job.name, since, None, sentence))
    else:
        ended = f"{failed.name} ended with {failed.state} at {failed.last_moment:%Y-%m-%d %H:%M}"
        sentence = f"{ended}{said(failed.error_message)}; what it had left undone was for the next one"
        candidate.evidence.append(Evidence("run_failed", failed.name, "COMPLETE", failed.state, sentence))
    if left.is_made_up:
        strength = _SEEN * max(case.fit("more"), case.fit("values") if left.found.metrics else 0.0)
    else:
        strength = (_SILENT if left.is_silent else _AS_USUAL) * max(case.fit("more"), case.fit("less"))
    candidate.score = strength * PER_STEP**distance
    return candidate
