"""Which run broke it: candidates with their evidence, ranked as a person would, with the reasons.

The version that the failing test read is compared with the one behind its last good result, and so is all that went
into them. What was there when all was well is no cause (onset). What the inputs account for was passed on, not caused
(explaining away). And what a test asks tells what can make it fail (fit).
"""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from correlator.correlation.came_and_went import came_and_went
from correlator.correlation.candidates import PER_STEP, VISIBLE, Candidate, Candidates, each_once
from correlator.correlation.case import Case, Failure, attempt, open_case
from correlator.correlation.earlier import Earlier, earlier
from correlator.correlation.examination import examine
from correlator.correlation.history import History, Run, Version
from correlator.correlation.ids import Id
from correlator.correlation.judging import judged
from correlator.correlation.left_out import blamed_for_rest, find_left_out
from correlator.correlation.onset import move_to_onset
from correlator.correlation.passed_on import PassedOn
from correlator.correlation.questions import Question
from correlator.correlation.undelivered import blamed, blamed_gap, find_gaps, find_undelivered, left_behind
from correlator.correlation.walk import Limits, Trace

_CONVINCING: Final = 0.4
_SUFFICIENT: Final = 0.5
"""Where one scores as much, nobody looks for what was over before."""
_TOLD: Final = 5
"""Candidates of which the first run that shows it is looked for."""
_ASKED: Final = 4
"""Reasons for reasons that are asked for at one level: each is a walk of its own."""
_WORTH_A_LOOK: Final = 0.1
_LEAST_LEFT: Final = 0.3
"""Of a run whose oddity another of its job had passed on already: it may have more to be said against it."""
_MOST: Final = 20
"""Candidates in an answer."""


class Explanation(msgspec.Struct):
    cause: Version | None
    candidates: list[Candidate]
    bad: Trace
    good: Trace
    runs: dict[Id, Run]


WhyRed: TypeAlias = Callable[[History, Collection[Id], datetime, datetime], Failure | None]


def explain(
    history: History,
    failure: Failure,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    *,
    why_red: WhyRed | None = None,
    further: int = 2,
) -> Explanation:
    """`why_red` says what failed first on some datasets within some time, and `further` how often that is asked."""
    return explain_case(open_case(history, failure, limits), limits, why_red=why_red, further=further)


def explain_case(case: Case, limits: Limits, *, why_red: WhyRed | None = None, further: int = 0) -> Explanation:
    if case.bad.start is None:
        return Explanation(None, [], case.bad, case.good, case.runs)
    findings = examine(case)
    undelivered = find_undelivered(case, findings)
    missed = find_gaps(case)
    gaps = {gap.job: [run.ended_at for run in gap.failed] for gap in missed}
    left_out = find_left_out(case, findings)
    made_up = {run: left.most for run, left in left_out.items() if left.is_made_up or left.is_silent}
    for left in left_out.values():
        if not left.is_made_up:
            gaps.setdefault(left.found.run.job_id, []).append(left.due)
    passed_on = PassedOn(case, findings, frozenset(undelivered.stale), gaps, made_up)
    least = 0.9 * case.fit("stale") * undelivered.worst
    candidates = Candidates(judged(case, findings, passed_on, least))
    asking = _Asking(case, limits, why_red, further)
    for trouble in undelivered.troubles.values():
        candidate = candidates.add(blamed(case, trouble))
        if trouble.is_of_its_own:
            asking.why_undelivered(candidate, trouble.since, candidates)
    for gap in missed:
        asking.why_failed(candidates.add(blamed_gap(case, gap)), candidates)
    for left in left_out.values():
        candidates.add(blamed_for_rest(case, left))
    for candidate in left_behind(case, findings):
        candidates.add(candidate)
    for odd in earlier(case, findings, passed_on):
        asking.why_odd(odd, candidates)
    if candidates.best < _SUFFICIENT and case.about is None:
        for candidate in came_and_went(case, findings):
            candidates.add(candidate)
    ranked = candidates.ranked()
    for candidate in ranked[:_TOLD]:
        move_to_onset(case, None if candidate.run is None else findings.get(candidate.run.id), candidate)
    return Explanation(case.bad.start, each_once(ranked)[:_MOST], case.bad, case.good, case.runs)


class _Asking:
    """Who did not deliver, or is odd and not of the trace, may have reasons of its own: they are asked for in turn."""

    def __init__(self, case: Case, limits: Limits, why_red: WhyRed | None, further: int) -> None:
        self._case = case
        self._limits = limits
        self._why_red = why_red
        self._further = further
        self._left = _ASKED if further > 0 else 0
        self._asked: set[Id] = set()

    def why_undelivered(self, candidate: Candidate, since: datetime, candidates: Candidates) -> None:
        """A red test before it, or what it read."""
        red = self._red(candidate.run, since)
        if red is not None:
            self._ask(red, candidate, candidates)
        else:
            self.why_failed(candidate, candidates)

    def why_failed(self, candidate: Candidate, candidates: Candidates) -> None:
        """What it read. Who else writes the same table has nothing to do with it."""
        self._ask(self._failed(candidate.run), candidate, candidates, nearest=1)

    def why_odd(self, odd: Earlier, candidates: Candidates) -> None:
        """What went into it is not of the trace."""
        standing = candidates.add(odd.candidate)
        if not odd.is_alone:
            return
        bad, good = self._written(odd.run, odd.dataset), self._written(odd.well, odd.dataset)
        if bad is None:
            return
        question = Question(self._case.failure.question.kind, "")
        for other in self._answer(Failure(question, odd.dataset, bad, good, bad.at)):
            other.distance += standing.distance
            if other.run is not None and other.run.id == odd.run:
                # It may turn out to have passed it on, and then those of the series after it have as well.
                last = candidates.of(odd.of)
                if last is not None and last is not standing and other.score < standing.score:
                    last.score *= max(_LEAST_LEFT, other.score / standing.score)
                standing.score = min(standing.score, other.score)
                standing.evidence, standing.reasons = other.evidence, [*standing.reasons, *other.reasons]
            elif other.score >= VISIBLE:
                other.score *= 0.95 * PER_STEP**standing.distance
                candidates.add(other)

    def _ask(self, failure: Failure | None, candidate: Candidate, candidates: Candidates, nearest: int = 0) -> None:
        if candidate.run is not None:
            if candidate.run.id in self._asked:
                return
            self._asked.add(candidate.run.id)
        answer = [] if failure is None else self._answer(failure)
        others = [other for other in answer if other.job_id != candidate.job_id and other.distance >= nearest]
        best = max((other.score for other in others), default=0.0)
        if best >= _CONVINCING:
            candidate.score *= 1 - 0.75 * best
            candidate.reasons.append("it had its reasons further upstream")
        for other in others:
            # One that convinces nobody is still what there is to look at next.
            if other.score >= VISIBLE or (other.score == best >= _WORTH_A_LOOK):
                other.distance += candidate.distance
                other.score *= 0.95
                candidates.add(other)

    def _answer(self, failure: Failure) -> list[Candidate]:
        if self._left == 0:
            return []
        self._left -= 1
        history, further = self._case.history, self._further - 1
        return explain(history, failure, self._limits, why_red=self._why_red, further=further).candidates

    def _red(self, run: Run | None, since: datetime) -> Failure | None:
        """It was skipped, because somebody found something."""
        if self._why_red is None or (run is not None and run.state != "ABORT"):
            return None
        failure = self._case.failure
        above = {step.use.dataset for step in self._case.bad.steps} - {failure.dataset}
        until = failure.at if run is None else run.ended_at or failure.at
        return self._why_red(self._case.history, above, since, until)

    def _failed(self, run: Run | None) -> Failure | None:
        """What it was to write, against what its job wrote when it last ended well."""
        if run is None or run.state == "COMPLETE":
            return None
        past = self._case.pasts[run.job_id]
        well = next((one for one in past.good if one.ended_at < run.last_moment), None)
        bad = self._written(run.id)
        good = None if well is None else self._written(well.id)
        if bad is None or good is None:
            return None
        return Failure(Question("run", ""), bad.dataset, bad, good, bad.at)

    def _written(self, run: Id, dataset: Id | None = None) -> Version | None:
        outputs = self._case.history.outputs([run])[run]
        return attempt(self._case.run(run), [out for out in outputs if dataset in (None, out.dataset)])
