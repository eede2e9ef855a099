"""Which run broke it: candidates with their evidence, ranked as a person would, with the reasons.

The version that the failing test read is compared with the one behind its last good result, and so is all that went
into them. What was there when all was well is no cause (onset). What the inputs account for was passed on, not caused
(explaining away). And what a test asks tells what can make it fail (fit).
"""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from correlator.correlation.candidates import VISIBLE, Candidate, Candidates
from correlator.correlation.case import Case, Failure, attempt, open_case
from correlator.correlation.findings import find
from correlator.correlation.history import History, Run, Version
from correlator.correlation.judging import judged, judged_between
from correlator.correlation.onset import move_to_onset
from correlator.correlation.passed_on import PassedOn
from correlator.correlation.questions import Question
from correlator.correlation.undelivered import Trouble, blamed, find_undelivered, gaps
from correlator.correlation.walk import Limits, Trace

_CONVINCING: Final = 0.4
_TOLD: Final = 5
"""Candidates of which the first run that shows it is looked for."""
_MOST: Final = 20
"""Candidates in an answer."""


class Explanation(msgspec.Struct):
    cause: Version | None
    candidates: list[Candidate]
    bad: Trace
    good: Trace
    runs: dict[UUID, Run]


WhyRed: TypeAlias = Callable[[History, Collection[UUID], datetime, datetime], Failure | None]


def explain(
    history: History,
    failure: Failure,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    *,
    why_red: WhyRed | None = None,
    further: int = 2,
) -> Explanation:
    """`why_red` says what failed first on some datasets within some time, and `further` how often that is asked."""
    case = open_case(history, failure, limits)
    if case.bad.start is None:
        return Explanation(None, [], case.bad, case.good, case.runs)
    findings = find(case)
    undelivered = find_undelivered(case)
    passed_on = PassedOn(case, findings, frozenset(undelivered.stale))
    least = 0.9 * case.fit("stale") if undelivered.troubles else 0.0
    candidates = Candidates(judged(case, findings, passed_on, least))
    asking = _Asking(limits, why_red, further)
    for trouble in undelivered.troubles.values():
        candidate = blamed(case, trouble)
        candidates.add(candidate)
        if trouble.blame == 1.0 and further > 0:
            asking.why(case, trouble, candidate, candidates)
    for candidate in [*gaps(case), *judged_between(case, findings, passed_on)]:
        candidates.add(candidate)
    ranked = candidates.ranked()
    for candidate in ranked[:_TOLD]:
        move_to_onset(case, None if candidate.run is None else findings.get(candidate.run.id), candidate)
    return Explanation(case.bad.start, ranked[:_MOST], case.bad, case.good, case.runs)


class _Asking(msgspec.Struct, frozen=True):
    """Who did not deliver may have had reasons: a red test before it, or what it read."""

    limits: Limits
    why_red: WhyRed | None
    further: int

    def why(self, case: Case, trouble: Trouble, candidate: Candidate, candidates: Candidates) -> None:
        failure = self._red(case, trouble, candidate.run) or self._failed(case, candidate.run)
        if failure is None:
            return
        answer = explain(case.history, failure, self.limits, why_red=self.why_red, further=self.further - 1)
        others = [other for other in answer.candidates if other.job_id != trouble.job]
        best = max((other.score for other in others), default=0.0)
        if best < _CONVINCING:
            return
        candidate.score *= 1 - 0.75 * best
        candidate.reasons.append("it had its reasons further upstream")
        for other in others:
            if other.score >= VISIBLE:
                other.distance += candidate.distance
                other.score *= 0.95
                candidates.add(other)

    def _red(self, case: Case, trouble: Trouble, run: Run | None) -> Failure | None:
        """It was skipped, because somebody found something."""
        if self.why_red is None or (run is not None and run.state != "ABORT"):
            return None
        above = {step.use.dataset for step in case.bad.steps}
        until = case.failure.at if run is None else run.ended_at or case.failure.at
        return self.why_red(case.history, above - {case.failure.dataset}, trouble.since, until)

    def _failed(self, case: Case, run: Run | None) -> Failure | None:
        """What it was to write, against what its job wrote when it ended well."""
        if run is None or run.state == "COMPLETE":
            return None
        outputs = case.history.outputs([run.id, *case.runs])
        bad = attempt(run, outputs[run.id])
        others = (attempt(other, outputs[other.id]) for other in case.runs.values() if other.job_id == run.job_id)
        good = next((version for version in others if version is not None), None)
        if bad is None or good is None:
            return None
        return Failure(Question("run", ""), bad.dataset, bad, good, bad.at)
