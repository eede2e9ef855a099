"""What did not come: jobs whose run failed, was late or was missing, so that something older was read instead."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from correlator.correlation.candidates import PER_STEP, Candidate, Evidence
from correlator.correlation.case import Case
from correlator.correlation.findings import Findings
from correlator.correlation.history import Run, Version
from correlator.correlation.ids import Id
from correlator.correlation.past import PastRun
from correlator.correlation.phrases import said
from correlator.correlation.walk import Step

_AFTER_OTHERS: Final = 0.35
"""What is left of the blame of a job that could not deliver because what it reads had not come."""
_FAILED_AFTER_OTHERS: Final = 0.5
_BESIDE_OTHERS: Final = 0.7
"""Where another job has written to the same table in time: as a whole it is as new as what came last."""
_EARLY: Final = 0.1
"""Of the usual time: so much earlier than usual begins who waits for nobody, because nobody came,"""
_ABOUT: Final = 0.01
"""and by so much moments differ by chance."""
_AS_BEFORE: Final = 0.2
"""What is left where it had not delivered when all was well either."""
_UNSEEN: Final = 0.5
"""Where who read the old version wrote neither less than usual nor the same once more."""


_ReadBy: TypeAlias = tuple[Id, Id, datetime, Id]
"""A version by its key, and the job that read it."""


class Trouble(msgspec.Struct, frozen=True):
    """That a job did not deliver: its run failed, or was late, or there was none."""

    job: Id
    failed: PastRun | None
    since: datetime
    """Its last good end."""
    due: datetime | None = None
    """When something was to be there again, if it did not fail."""
    distance: int = 0
    blame: float = 1.0
    """What is left of it: less where something further upstream did not deliver either."""
    is_unseen: bool = False
    """Whether who read what was there instead wrote as much as ever."""

    @property
    def weight(self) -> float:
        return self.blame * (_UNSEEN if self.is_unseen else 1.0)

    @property
    def is_of_its_own(self) -> bool:
        """Whether nothing else that did not deliver accounts for it."""
        return self.blame >= _BESIDE_OTHERS


class Undelivered(msgspec.Struct):
    troubles: dict[Id, Trouble] = msgspec.field(default_factory=dict)
    """By job."""
    stale: set[tuple[Id, Id, datetime]] = msgspec.field(default_factory=set)
    """Versions that were read although something newer was due."""

    @property
    def worst(self) -> float:
        """How much blame there is for what is missing that was there when all was well."""
        new = [trouble.weight for trouble in self.troubles.values() if trouble.blame > _AS_BEFORE]
        return max(new, default=0.0)

    def blame(self, trouble: Trouble, distance: int, blame: float) -> None:
        known = self.troubles.get(trouble.job)
        one = msgspec.structs.replace(trouble, distance=distance, blame=blame)
        if known is None or known.weight < one.weight:
            self.troubles[trouble.job] = one


def find_undelivered(case: Case, findings: Mapping[Id, Findings]) -> Undelivered:
    """Jobs that did not deliver what was read in an older version instead."""
    # Who has handed over a table is not waited for.
    retired = {one.took_over.job for one in findings.values() if one.took_over is not None}
    well = _reads_when_well(case)
    reads: list[tuple[datetime, Version, int, datetime | None, Id | None]] = [
        (step.use.at, step.version, step.distance, _read_before(case, step, well), step.use.reader)
        for step in case.bad.steps
        if step.version is not None
    ]
    if case.bad.start is not None:
        good = case.failure.good
        is_same = case.good.start is not None and case.good.start.key == case.bad.start.key
        reads.append((case.failure.at, case.bad.start, 0, good.at if is_same and good is not None else None, None))
        for version in case.bad.written_to(case.bad.start.dataset):
            # What others have written there was tested as well.
            if version.key != case.bad.start.key and case.bad.distances[version.run] == 0:
                was_there = good is not None and version.run in case.good.distances
                reads.append((case.failure.at, version, 0, good.at if was_there and good is not None else None, None))
    upstream = _upstream(case)
    found = Undelivered()
    for at, version, distance, before, reader in sorted(reads, key=lambda read: read[2]):
        run = case.runs.get(version.run)
        if run is None or run.job_id in retired:
            continue
        if reader is not None and (_is_old_news(case, findings, reader, run) or _was_there(case, version, run, at)):
            continue
        trouble = _trouble_of(case, run.job_id, version.at, at) or _not_renewed(
            case, run.job_id, version, before, at, reader
        )
        if trouble is None:
            continue
        trouble = msgspec.structs.replace(
            trouble, is_unseen=_is_unseen(case, None if reader is None else findings.get(reader))
        )
        if _was_so(case, run.job_id, version, before, at):
            found.blame(trouble, distance, _AS_BEFORE)
            continue
        found.stale.add(version.key)
        above = _troubles_above(case, run.job_id, upstream, at)
        left = _AFTER_OTHERS if trouble.failed is None else _FAILED_AFTER_OTHERS
        is_beside = case.failure.question.kind == "freshness" and _is_beside(case, version)
        found.blame(trouble, distance, left if above else _BESIDE_OTHERS if is_beside else 1.0)
        for other, steps in above:
            further = msgspec.structs.replace(other, is_unseen=trouble.is_unseen)
            is_last = not _troubles_above(case, further.job, upstream, at)
            found.blame(further, distance + steps, 1.0 if is_last else _AFTER_OTHERS)
    return found


def _is_old_news(case: Case, findings: Mapping[Id, Findings], reader: Id, writer: Run) -> bool:
    """Whether a run reads what its own job had written, for which nobody waits; or was read so when all was well."""
    read_by, start = case.runs.get(reader), case.bad.start
    if read_by is not None and read_by.job_id == writer.job_id:
        return True
    is_renewed = start is not None and start.run not in case.good.distances
    found = findings.get(reader)
    return is_renewed and found is not None and not found.is_new


def _was_there(case: Case, version: Version, writer: Run, now: datetime) -> bool:
    """Whether its writer had written a newer one by then: who reads what is older wants it so."""
    past = case.pasts[writer.job_id]
    counted = past.written.get(version.dataset)
    # Of several tables a run may write some; who does not count is taken to have written all.
    runs = past.good if counted is None else [run for run, *_ in counted]
    return any(version.at < run.ended_at <= now and run.state == "COMPLETE" for run in runs)


def _is_unseen(case: Case, reader: Findings | None) -> bool:
    """Whether a run has read what was old and wrote as much as ever, but not as much as the last time.

    Who reads yesterday's once more writes as much as yesterday, and who adds what is new finds nothing. What is joined
    to it may be old all the same: that is not seen by its amount, but by its age, and by keys that are not there yet.
    """
    if case.failure.question.kind in ("freshness", "null"):
        return False
    if reader is None or not reader.is_new or not reader.said["amount"]:
        return False
    past = case.pasts[reader.run.job_id]
    counted = [version for version in case.bad.written[reader.run.id] if version.row_count is not None]
    return not (
        reader.volumes
        or reader.unchanged
        or any(past.is_always_as_many(version, reader.run.last_moment) for version in counted)
    )


def _is_beside(case: Case, version: Version) -> bool:
    """Whether what was tested was renewed by another job."""
    start = case.bad.start
    return (
        start is not None
        and version.dataset == start.dataset
        and version.run != start.run
        and start.run not in case.good.distances
    )


def _read_before(case: Case, step: Step, well: Mapping[_ReadBy, datetime]) -> datetime | None:
    """When the same job read the same version before, on the good side."""
    reader = case.runs.get(step.use.reader)
    if reader is None or step.version is None or reader.id in case.good.distances:
        return None
    return well.get((*step.version.key, reader.job_id))


def _reads_when_well(case: Case) -> dict[_ReadBy, datetime]:
    found: dict[_ReadBy, datetime] = {}
    for step in case.good.steps:
        reader = case.runs.get(step.use.reader)
        if reader is not None and step.version is not None:
            found.setdefault((*step.version.key, reader.job_id), step.use.at)
    return found


def _expected(case: Case, reader: Id | None) -> datetime | None:
    """When a run would have begun that began earlier than usual."""
    run = None if reader is None else case.runs.get(reader)
    if run is None:
        return None
    past = case.pasts[run.job_id]
    usual = past.interval(run.started_at)
    last = next((one.started_at for one in past.good if one.started_at < run.started_at), None)
    if usual is None or last is None:
        return None
    expected = last + usual
    return expected if run.started_at < expected <= run.started_at + usual * _EARLY else None


def _not_renewed(
    case: Case, job: Id, version: Version, before: datetime | None, now: datetime, reader: Id | None
) -> Trouble | None:
    """Whether something new should have been there by now, since what was read had been read before."""
    if before is None or version.run not in case.good.distances:
        return None
    past = case.pasts[job]
    usual = past.interval(now)
    if usual is None or usual > (now - before) * (1 + _EARLY):
        return None
    # After a Friday it may be Monday's that comes next.
    rhythm = past.rhythm(version.at)
    interval = usual if rhythm is None else rhythm.interval
    due = version.at + interval
    if due > now:
        expected = _expected(case, reader)
        if expected is None or due - expected > interval * _ABOUT:
            return None
    return Trouble(job, past.failed_since(version.at, now), version.at, due)


def _was_so(case: Case, job: Id, version: Version, before: datetime | None, now: datetime) -> bool:
    """Whether it was late already when all was well, and did no harm.

    What grows older may be too old one day, but that is what a test of freshness finds; and where twice as many runs
    are missing as then, that it did no harm says little.
    """
    if before is None or case.failure.question.kind == "freshness":
        return False
    usual = case.pasts[job].interval(version.at)
    if usual and round((now - version.at) / usual) - 1 >= 2 * max(1, round((before - version.at) / usual) - 1):
        return False
    return _trouble_of(case, job, version.at, before) is not None


def _trouble_of(case: Case, job: Id, last: datetime, now: datetime) -> Trouble | None:
    past = case.pasts.get(job)
    if past is None:
        return None
    failed = past.failed_since(last, now)
    if failed is not None:
        return Trouble(job, failed, last)
    rhythm = past.rhythm(last)
    if rhythm is None or not rhythm.is_late(last, now):
        return None
    return Trouble(job, None, last, last + rhythm.interval)


def _troubles_above(case: Case, job: Id, upstream: Mapping[Id, set[Id]], now: datetime) -> list[tuple[Trouble, int]]:
    """With the number of jobs in between."""
    found: list[tuple[Trouble, int]] = []
    seen, layer, steps = {job}, [job], 0
    while layer:
        steps += 1
        layer = [above for one in layer for above in upstream.get(one, ()) if above not in seen]
        seen.update(layer)
        still = []
        for one in dict.fromkeys(layer):
            ends = case.pasts[one].ended_well(now)
            trouble = _trouble_of(case, one, ends[-1], now) if ends else None
            if trouble is not None:
                found.append((trouble, steps))
                still.append(one)
        # Beyond a job that did deliver, nobody waited.
        layer = still
    return found


def _upstream(case: Case) -> dict[Id, set[Id]]:
    """Which jobs make what a job reads."""
    found: defaultdict[Id, set[Id]] = defaultdict(set)
    for step in case.bad.steps:
        reader = case.runs.get(step.use.reader)
        writer = case.runs.get(step.version.run) if step.version is not None else None
        if reader is not None and writer is not None and writer.job_id != reader.job_id:
            found[reader.job_id].add(writer.job_id)
    return found


def blamed(case: Case, trouble: Trouble) -> Candidate:
    """What such a trouble amounts to."""
    failed = None if trouble.failed is None else _first_failure(case, trouble.job, trouble.failed)
    came = _came(case, trouble) if failed is None else None
    if came is not None and came.state in ("FAIL", "ABORT"):
        # It failed when the old version had been read already: what it was to write had not come by then either.
        last = case.pasts[trouble.job].failed_since(trouble.since, case.failure.at)
        failed, came = came if last is None else _first_failure(case, trouble.job, last), None
    run = failed or came
    of_job = run or next(run for run in case.runs.values() if run.job_id == trouble.job)
    candidate = Candidate(trouble.job, of_job.namespace, of_job.name, run, trouble.distance)
    candidate.evidence.append(_evidence(of_job.name, trouble, failed, came))
    has_failed = run is not None and (failed is not None or run.ended_at is None)
    strength = 0.9 * max(case.fit("failed") if has_failed else 0.0, case.fit("stale"))
    candidate.score = strength * trouble.weight * PER_STEP**trouble.distance
    if trouble.is_unseen:
        candidate.reasons.append("who read what was there instead wrote as much as usual")
    if trouble.blame == _AS_BEFORE:
        candidate.reasons.append("it was so when the test passed")
    elif trouble.blame == _BESIDE_OTHERS:
        candidate.reasons.append("another job has written there in time")
    elif trouble.blame < 1:
        candidate.reasons.append("something further upstream did not deliver either")
    return candidate


def _first_failure(case: Case, job: Id, failed: PastRun) -> Run:
    """Of a series of failures the first: those after it tell no more than that nobody has mended it."""
    return case.run(case.pasts[job].began_to_fail(failed).id)


def _evidence(name: str, trouble: Trouble, failed: Run | None, came: Run | None) -> Evidence:
    last = f"{trouble.since:%Y-%m-%d %H:%M}"
    if failed is not None:
        is_last = trouble.failed is None or trouble.failed.id == failed.id
        ended = f"at {failed.last_moment:%H:%M}" if is_last else f"since {failed.last_moment:%Y-%m-%d %H:%M}"
        sentence = f"{name} ended with {failed.state} {ended}{said(failed.error_message)}"
        return Evidence("run_failed", name, "COMPLETE", failed.state, f"{sentence}; what was read is from {last}")
    if came is not None and came.ended_at is None:
        began = f"{came.started_at:%Y-%m-%d %H:%M}"
        sentence = f"{name} began at {began}, and nothing was heard of its end; what was read is from {last}"
        return Evidence("unfinished_run", name, "COMPLETE", came.state, sentence)
    if came is not None:
        due, ended = f"{trouble.due:%Y-%m-%d %H:%M}", f"{came.last_moment:%Y-%m-%d %H:%M}"
        sentence = f"{name} was due about {due} and ended at {ended}, too late for the reader"
        return Evidence("late_run", name, due, ended, sentence)
    sentence = f"{name} was due again after {last}, and did not run before the data was read"
    return Evidence("missing_run", name, last, None, sentence)


def _came(case: Case, trouble: Trouble) -> Run | None:
    """The run that was to deliver, if it began at all: before the one after it was due. It may never have ended."""
    if trouble.due is None:
        return None
    until = trouble.due + (trouble.due - trouble.since) * 0.7
    rows = case.history.rows(_NEXT, trouble.job, trouble.since, until)
    return case.run(rows[0][0]) if rows else None


class Gap(msgspec.Struct, frozen=True):
    """Runs of a job that failed and were not tried again, although later ones may have ended well."""

    job: Id
    distance: int
    failed: list[PastRun]
    """The latest first."""


def find_gaps(case: Case) -> list[Gap]:
    """Since the last good version, and before it was read: what these runs were to add is not there."""
    start = case.good.start
    if start is None or case.bad.start is None:
        return []
    distances: dict[Id, int] = {}
    for run_id, distance in case.bad.distances.items():
        if run_id in case.runs:
            job = case.runs[run_id].job_id
            distances[job] = min(distance, distances.get(job, distance))
    looked_at = _last_reads(case)
    found = [
        Gap(job, distance, case.pasts[job].failed_between(start.at, looked_at.get(job, case.failure.at)))
        for job, distance in distances.items()
    ]
    return sorted((gap for gap in found if gap.failed), key=lambda gap: (gap.distance, gap.job))


def _last_reads(case: Case) -> dict[Id, datetime]:
    """By job, when what it wrote was last read by another of the trace; what was tested, by the test."""
    found: dict[Id, datetime] = {}
    for step in case.bad.steps:
        if step.version is not None and step.version.run in case.runs:
            job = case.runs[step.version.run].job_id
            found[job] = max(step.use.at, found.get(job, step.use.at))
    tested = (
        case.runs[run].job_id for run, distance in case.bad.distances.items() if not distance and run in case.runs
    )
    return found | dict.fromkeys(tested, case.failure.at)


def blamed_gap(case: Case, gap: Gap) -> Candidate:
    run = _first_failure(case, gap.job, gap.failed[-1])
    ended = f"{run.name} ended with {run.state} at {run.last_moment:%Y-%m-%d %H:%M}"
    sentence = f"{ended} and was not tried again{said(run.error_message)}"
    candidate = Candidate(gap.job, run.namespace, run.name, run, gap.distance)
    candidate.evidence.append(Evidence("run_failed", run.name, "COMPLETE", run.state, sentence))
    candidate.score = 0.75 * case.fit("failed") * PER_STEP**gap.distance
    return candidate


def left_behind(case: Case, findings: Mapping[Id, Findings]) -> Iterator[Candidate]:
    """Tries that had written something when they failed, where another wrote all of it again: it may be there twice."""
    for found in findings.values():
        if not found.is_new or found.baseline is None or not case.pasts[found.run.job_id].failed:
            continue
        for version in case.bad.written[found.run.id]:
            tries = [
                (past, rows)
                for past, rows, _ in case.pasts[found.run.job_id].written.get(version.dataset, ())
                if past.state in ("FAIL", "ABORT") and rows and found.baseline.ended_at < past.ended_at
                if past.ended_at < found.run.last_moment
            ]
            # Where there are many, one speaks for all.
            for past, rows in sorted(tries, key=lambda one: (one[0].ended_at, one[0].id))[-1:]:
                run = case.run(past.id)
                what = f"{run.name} ended with {run.state}{said(run.error_message)}"
                sentence = f"{what}; it had written {rows:,} rows, which may be there beside those of the next try"
                candidate = Candidate(run.job_id, run.namespace, run.name, run, found.distance)
                candidate.evidence.append(Evidence("run_failed", run.name, "COMPLETE", run.state, sentence))
                candidate.score = 0.6 * case.fit("more") * PER_STEP**found.distance
                yield candidate


_NEXT: Final = """
SELECT id FROM {s}.job_runs
WHERE job_id = %s AND started_at > %s AND started_at < %s
ORDER BY started_at, id LIMIT 1
"""
