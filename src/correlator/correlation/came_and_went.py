"""What came and went: changes of code, settings, columns and amounts that were over before the last run that was read.

A day is made of hours, and the trace knows the last of them alone. By then somebody may have noticed, and the hours
between are in what the test looked at all the same. And where rows are only ever added, what was wrong a week ago is
still there when a sum has grown beyond its bounds. A change may also have come before the last good result and be there
since: a day of which an hour was bad may pass. It is asked where nothing else explains much, for all jobs at once.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any, Final

import msgspec

from correlator.correlation.candidates import PER_STEP, Candidate, Evidence
from correlator.correlation.case import Case
from correlator.correlation.changes import (
    CODE,
    NOT_SET,
    CodeChange,
    SettingChange,
    code_changes,
    schema_change,
    setting_changes,
)
from correlator.correlation.earlier import began
from correlator.correlation.findings import Findings, OddRuns
from correlator.correlation.ids import Id
from correlator.correlation.judging import code_sentence, commonness, direction, schema_words, volume_evidence
from correlator.correlation.left_out import blamed_for_rest, left_out_before
from correlator.correlation.past import JobPast, PastRun, facets_at, past_facets, run_facets, varied
from correlator.correlation.usual import odd

_FEWEST: Final = 2
_MOST: Final = 48
"""Runs of a job that are looked at, the latest: two days of hours."""
_MOST_OF_ALL: Final = 200
"""Of all jobs together: each is a few probes of an index."""
_NOTABLE: Final = 0.1
"""Of an amount: by less nobody is harmed."""
_A_GAP: Final = 1.5
_SINCE_WELL: Final = 0.5
"""As of a change without an effect that is seen; but somebody has taken it back."""
_BEFORE: Final = 0.35
"""Of what was there, or over, when the test passed last,"""
_EACH_TIME: Final = 0.25
"""what is left of that with each time that it had passed already: once may have been too early to notice,"""
_STILL_HELD: Final = 0.05
"""and at least, of what a table that only grows may hold for ever."""
_AFTER_OTHERS: Final = 0.5
"""Who was left out while others above were has waited for them, most likely."""
_UNNOTICED: Final = "it was so before the last good result, which had not noticed"
_HABIT: Final = 0.34
"""What has changed in more than every third run says nothing."""


class _Former(msgspec.Struct, frozen=True):
    """The runs of a job before the one that was read."""

    found: Findings
    baseline: PastRun
    runs: list[PastRun]
    """The first one first."""


class _Stretch(msgspec.Struct, frozen=True):
    """Runs of a job one after the other that were not as those around them."""

    first: PastRun
    last: PastRun


class _Change(msgspec.Struct, frozen=True):
    """When, to what, and for how long."""

    former: _Former
    stretch: _Stretch
    evidence: Evidence
    strength: float
    is_there: bool = False
    """Whether it still stands."""

    @property
    def is_since(self) -> bool:
        """Whether it came after the last good result."""
        return self.stretch.first.ended_at > self.former.baseline.ended_at


def came_and_went(case: Case, findings: Mapping[Id, Findings]) -> list[Candidate]:
    """Of each job at most one."""
    former = _former(case, findings)
    if not former:
        return []
    changes = [*_amounts(case, former), *_code(case, former), *_settings(case, former), *_schemas(case, former)]
    # What many have in common did most of them no harm.
    shared = Counter((one.evidence.kind, one.evidence.before, one.evidence.after) for one in changes if one.is_there)
    first: dict[Id, Candidate] = {}
    for change in changes:
        if case.failure.question.kind == "freshness" and not change.is_since:
            # What has come after it is newer.
            continue
        number = shared[change.evidence.kind, change.evidence.before, change.evidence.after] if change.is_there else 1
        candidate = _candidate(case, change, number)
        known = first.get(candidate.job_id)
        if known is None or known.score < candidate.score:
            first[candidate.job_id] = candidate
    return [*first.values(), *_left_out(case, former)]


def _left_out(case: Case, former: Sequence[_Former]) -> Iterator[Candidate]:
    """What is missing since the last good result is known already."""
    asked = [(one.found, [run for run in one.runs if run.ended_at <= one.baseline.ended_at]) for one in former]
    found = [left for of_run, runs in asked for left in left_out_before(case, of_run, runs)]
    for left, after in found:
        candidate = blamed_for_rest(case, left)
        candidate.score *= _share_before(case, after)
        candidate.reasons.append(_UNNOTICED)
        if any(
            other.found.distance > candidate.distance and other.since < after.ended_at and left.since < then.ended_at
            for other, then in found
        ):
            candidate.score *= _AFTER_OTHERS
            candidate.reasons.append("something further upstream was left out at the time, too")
        yield candidate


def _former(case: Case, findings: Mapping[Id, Findings]) -> list[_Former]:
    new = [one for one in findings.values() if one.is_new and one.baseline is not None]
    found: list[_Former] = []
    left, most = _MOST_OF_ALL, max(_MOST_OF_ALL // max(len(new), 1), _MOST // 4)
    for one in sorted(new, key=lambda each: (each.distance, each.run.id)):
        runs = case.pasts[one.run.job_id].good_before(one.run.last_moment)[: min(_MOST, most, left)]
        if len(runs) >= _FEWEST and one.baseline is not None:
            found.append(_Former(one, one.baseline, runs[::-1]))
            left -= len(runs)
    return found


def _episode(former: _Former, differs: Mapping[Id, bool]) -> _Stretch | None:
    """The last stretch that was not as it is now, if it was as now before that, too."""
    stretch: _Stretch | None = None
    for past in reversed(former.runs):
        if differs[past.id]:
            stretch = _Stretch(past, past if stretch is None else stretch.last)
        elif stretch is not None:
            return stretch
    return None


def _stay(former: _Former, stood: Mapping[Id, object]) -> _Stretch | None:
    """The stretch that has not ended, if it began when all was well; `stood` is None where it was as it is now.

    Not of who writes what is tested: that was seen as a whole when it passed.
    """
    stretch: _Stretch | None = None
    if former.found.distance == 0:
        return None
    for past in reversed(former.runs):
        if stood[past.id] is not None:
            break
        stretch = _Stretch(past, past if stretch is None else stretch.last)
    else:
        return None
    changed = sum(one != other for one, other in pairwise(stood[past.id] for past in former.runs))
    if stretch is None or stretch.first.ended_at > former.baseline.ended_at or changed > _HABIT * len(former.runs):
        return None
    return stretch


def _before(former: _Former, stretch: _Stretch) -> PastRun:
    return former.runs[former.runs.index(stretch.first) - 1]


def _amounts(case: Case, former: Sequence[_Former]) -> Iterator[_Change]:
    """Those since the last good result are known already."""
    for one in former:
        past = case.pasts[one.found.run.job_id]
        wanted = {run.id for run in one.runs if run.ended_at <= one.baseline.ended_at}
        for version in case.bad.written[one.found.run.id] if not one.found.volumes else ():
            written = [
                (run, rows)
                for run, rows, _ in past.written.get(version.dataset, ())
                if run.id in wanted and rows is not None
            ]
            middle = median([rows for _, rows in written]) if written else 0
            # To say what is odd for its hour and weekday is dear, and most are as all the others.
            written = [(run, rows) for run, rows in written if abs(rows - middle) > _NOTABLE * middle]
            for run, rows in sorted(written, key=lambda each: (each[0].ended_at, each[0].id), reverse=True):
                strange = odd(run.ended_at, float(rows), past.rows_before(version.dataset, run.ended_at))
                if strange is not None and not _came_after_a_gap(past, run):
                    start, _ = began(past, version.dataset, OddRuns(run, strange))
                    evidence = volume_evidence(case, version.dataset, "rows", start.odd)
                    strength = start.odd.strength * case.fit(direction(start.odd))
                    yield _Change(one, _Stretch(start.first, run), evidence, strength)
                    break


def _came_after_a_gap(past: JobPast, run: PastRun) -> bool:
    """Whether it had to do what others had left undone: that is as it should be."""
    ends, usual = past.ended_well(run.started_at), past.interval(run.ended_at)
    return bool(ends) and usual is not None and run.started_at - ends[-1] > _A_GAP * usual


def _code(case: Case, former: Sequence[_Former]) -> Iterator[_Change]:
    windows = [(one.found.run.job_id, one.runs[0].started_at, one.found.run.last_moment) for one in former]
    jobs = varied(case.history, "job", windows, CODE)
    former = [one for one in former if one.found.run.job_id in jobs]
    asked = [
        (one.found.run.job_id, moment)
        for one in former
        for moment in (*(past.ended_at for past in one.runs), one.found.run.last_moment)
    ]
    code = facets_at(case.history, "job", asked, CODE)
    for one in former:
        job = one.found.run.job_id
        now = code[job, one.found.run.last_moment]
        changes = {past.id: _changed(code[job, past.ended_at], now) for past in one.runs}
        episode = _episode(one, {run: change is not None for run, change in changes.items()})
        change = None if episode is None else changes[episode.first.id]
        if episode is not None and change is not None:
            sentence = "the code changed, and was changed back before the last run that was read"
            evidence = Evidence("code", one.found.run.name, change.after, change.before, sentence)
            yield _Change(one, episode, evidence, case.fit("code"))
        stay = _stay(one, {run: change and (change.facet, change.before) for run, change in changes.items()})
        change = None if stay is None else changes[_before(one, stay).id]
        if stay is not None and change is not None:
            evidence = Evidence("code", one.found.run.name, change.before, change.after, code_sentence(change))
            yield _Change(one, stay, evidence, case.fit("code"), is_there=True)


def _changed(stood: Mapping[str, Any], now: Mapping[str, Any]) -> CodeChange | None:
    return next((change for change in code_changes(stood, now) if change.is_notable), None) if stood != now else None


def _settings(case: Case, former: Sequence[_Former]) -> Iterator[_Change]:
    facets = run_facets(case.history, [one.found.run.id for one in former])
    facets |= past_facets(case.history, [(one.found.run.job_id, one.runs) for one in former])
    for one in former:
        run = one.found.run
        now = facets.get(run.id) or {}
        changes = {
            past.id: {
                (change.facet, change.path): change
                for change in setting_changes(facets.get(past.id) or {}, now, [], run.started_at - past.started_at)
                # What is set at times only is told by all the runs before, which are not looked at together here.
                if NOT_SET not in (change.before, change.after)
            }
            for past in one.runs
        }
        for key in sorted({key for of_run in changes.values() for key in of_run}):
            of_key = {run_id: of_run.get(key) for run_id, of_run in changes.items()}
            seen = {change.before for change in of_key.values() if change is not None}
            episode = _episode(one, {run_id: change is not None for run_id, change in of_key.items()})
            change = None if episode is None else of_key[episode.first.id]
            # What has many values is another from run to run.
            if episode is not None and change is not None and len(seen) == 1:
                sentence = f"{change.path} of {change.facet} was {change.before}, before that and later {change.after}"
                evidence = Evidence(_kind(change), run.name, change.after, change.before, sentence)
                yield _Change(one, episode, evidence, case.fit("setting"))
            stay = _stay(one, {run_id: change and change.before for run_id, change in of_key.items()})
            change = None if stay is None else of_key[_before(one, stay).id]
            if stay is not None and change is not None:
                sentence = f"{change.path} of {change.facet} is {change.after}, was {change.before}"
                evidence = Evidence(_kind(change), run.name, change.before, change.after, sentence)
                yield _Change(one, stay, evidence, case.fit("setting"), is_there=True)


def _kind(change: SettingChange) -> str:
    return "engine" if change.is_engine else "parameter"


def _schemas(case: Case, former: Sequence[_Former]) -> Iterator[_Change]:
    told = [*_written(case, former), *_read(case, former)]
    windows = [(one.name, one.former.runs[0].started_at, one.at) for one in told]
    datasets = varied(case.history, "dataset", windows, ["schema"])
    told = [one for one in told if one.name in datasets]
    asked = [(one.name, moment) for one in told for moment in (*(past.ended_at for past in one.former.runs), one.at)]
    schemas = facets_at(case.history, "dataset", asked, ["schema"])
    for one in told:
        now = schemas[one.name, one.at].get("schema")
        changes = {
            past.id: schema_change(now, schemas[one.name, past.ended_at].get("schema")) for past in one.former.runs
        }
        episode = _episode(one.former, {run: bool(change.broken) for run, change in changes.items()})
        if episode is not None:
            words = schema_words(changes[episode.first.id])
            sentence = f"schema{one.whose} changed, and was changed back later: {words}"
            evidence = Evidence("schema", case.names.get(one.dataset, ""), None, None, sentence)
            yield _Change(one.former, episode, evidence, case.fit("schema"))


class _Told(msgspec.Struct, frozen=True):
    """A dataset whose columns the runs of a job may tell of."""

    former: _Former
    dataset: Id
    name: Id
    at: datetime
    whose: str = ""


def _written(case: Case, former: Sequence[_Former]) -> Iterator[_Told]:
    for one in former:
        for version in case.bad.written[one.found.run.id]:
            yield _Told(one, version.dataset, version.written_as, version.at)


def _read(case: Case, former: Sequence[_Former]) -> Iterator[_Told]:
    """What nobody is known to write."""
    for one in former:
        for step in case.bad.reads_of(one.found.run.id):
            for name in case.history.members([step.use.dataset])[step.use.dataset] if step.version is None else ():
                whose = f" of {case.name(step.use.dataset)}, which it reads,"
                yield _Told(one, step.use.dataset, name, one.found.run.last_moment, whose)


def _candidate(case: Case, change: _Change, number: int) -> Candidate:
    """`number` jobs have changed in the same way."""
    one, stretch = change.former, change.stretch
    run = case.run(stretch.first.id)
    candidate = Candidate(run.job_id, run.namespace, run.name, run, one.found.distance, evidence=[change.evidence])
    if change.is_since:
        share = _SINCE_WELL
    elif change.is_there:
        share = _share_before(case, stretch.first)
    else:
        share = max(_share_before(case, stretch.last), _STILL_HELD)
    candidate.score = share * change.strength / commonness(number) * PER_STEP**one.found.distance
    if not change.is_there:
        candidate.reasons.append("what it wrote may be in what was read, beside that of later runs")
    if not change.is_since:
        candidate.reasons.append(_UNNOTICED)
    return candidate


def _share_before(case: Case, run: PastRun) -> float:
    """Less with each time that what was tested was made after a run, and passed."""
    start = case.good.start
    tested = None if start is None else case.runs.get(start.run)
    if start is None or tested is None:
        return _BEFORE
    passed = sum(run.ended_at < past.ended_at <= start.at for past in case.pasts[tested.job_id].good)
    return _BEFORE * _EACH_TIME ** max(0, passed - 1)
