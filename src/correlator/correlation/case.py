"""A failure and all that is compared to explain it: the version that failed, the last good one, what went into both."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from correlator.correlation.history import History, Output, Run, Use, Version
from correlator.correlation.ids import Id
from correlator.correlation.past import JobPast, pasts
from correlator.correlation.questions import FIT, Question
from correlator.correlation.walk import Limits, Trace, walk


class Failure(msgspec.Struct, frozen=True):
    """What is to be explained."""

    question: Question
    dataset: Id
    """By its class."""
    bad: Use | Version
    """The read of the first failing result; of a run that failed, what it was to write."""
    good: Use | Version | None
    """The same for the last good one before it."""
    at: datetime


class Case(msgspec.Struct, frozen=True):
    history: History
    failure: Failure
    bad: Trace
    good: Trace
    runs: dict[Id, Run]
    """Of both traces."""
    pasts: dict[Id, JobPast]
    """Of the jobs of these runs, up to the failure."""
    names: dict[Id, str]
    """Of the datasets of the bad trace, by their class."""
    about: frozenset[Id] | None = None
    """The runs of the bad trace that are looked at; None for all. Of the jobs of others no past is known."""

    def fit(self, finding: str) -> float:
        """How well such a finding explains a failure of this kind."""
        return FIT[finding][self.failure.question.kind]

    def name(self, dataset: Id) -> str:
        return self.names.get(dataset) or "its input"

    def run(self, id_: Id) -> Run:
        """One that is known to be there, whether it is of the traces or not."""
        return self.history.runs([id_])[id_]


def attempt(run: Run, outputs: Sequence[Output]) -> Version | None:
    """What a run wrote, or was to write: the first of it, since one is as good as another."""
    for out in outputs[:1]:
        return Version(out.dataset, run.id, run.last_moment, out.name, out.row_count, out.byte_size, None, "attempt")
    return None


def open_case(history: History, failure: Failure, limits: Limits) -> Case:
    ((bad, good),) = _traces(history, [failure], limits)
    runs = history.runs([*bad.distances, *good.distances])
    past = pasts(history, {run.job_id for run in runs.values()}, failure.at, _written(bad, runs))
    return Case(history, failure, bad, good, runs, past, _names(history, bad))


def open_cases_about(history: History, failures: Sequence[Failure], job: Id, limits: Limits) -> list[Case | None]:
    """Of each failure no more than what a job had to do with it, and who wrote what that had read; None if nothing."""
    return [
        _case_about(history, failure, bad, good, job)
        for failure, (bad, good) in zip(failures, _traces(history, failures, limits), strict=True)
    ]


def _case_about(history: History, failure: Failure, bad: Trace, good: Trace, job: Id) -> Case | None:
    runs = history.runs([*bad.distances, *good.distances])
    own = [run for run in bad.distances if run in runs and runs[run].job_id == job]
    if not own:
        return None
    about = frozenset([*own, *(step.version.run for run in own for step in bad.reads_of(run) if step.version)])
    looked_at = {id_: run for id_, run in runs.items() if id_ in about}
    past = pasts(history, {run.job_id for run in looked_at.values()}, failure.at, _written(bad, looked_at))
    return Case(history, failure, bad, good, runs, defaultdict(JobPast, past), _names(history, bad), about)


def _traces(history: History, failures: Sequence[Failure], limits: Limits) -> list[tuple[Trace, Trace]]:
    """The bad and the good one of each, all by one walk."""
    sides = [(failure, side) for failure in failures for side in (failure.bad, failure.good)]
    bound = iter(history.bind([side for _, side in sides if isinstance(side, Use)]))
    starts = [(next(bound) if isinstance(side, Use) else side, one.question.columns) for one, side in sides]
    traces = walk(history, starts, limits, others=True)
    sides_of_each = list(zip(traces[::2], traces[1::2], strict=True))
    for bad, good in sides_of_each:
        _find_who_stopped(history, bad, good)
    return sides_of_each


def _find_who_stopped(history: History, bad: Trace, good: Trace) -> None:
    """Jobs that had written a table beside others when all was well, and none of its last writes since.

    What they wrote last is still in it, and may be older than it should be.
    """
    shared = {dataset: versions for dataset, versions in good.by_dataset().items() if len(versions) > 1}
    written = bad.by_dataset() if shared else {}
    asked = [
        (job, name, max(version.at for version in written[dataset]))
        for dataset, versions in shared.items()
        if dataset in written
        for job in sorted(_jobs_of(history, versions) - _jobs_of(history, written[dataset]))
        for name in history.members([dataset])[dataset]
    ]
    for version in history.last_by_jobs(asked):
        bad.join(version)


def _jobs_of(history: History, versions: Sequence[Version]) -> set[Id]:
    return {run.job_id for run in history.runs(version.run for version in versions).values()}


def _written(bad: Trace, runs: Mapping[Id, Run]) -> list[tuple[Id, Id]]:
    """By jobs the datasets that went into what failed."""
    return [(runs[run].job_id, version.dataset) for run in bad.written if run in runs for version in bad.written[run]]


def _names(history: History, bad: Trace) -> dict[Id, str]:
    versions = [version for written in bad.written.values() for version in written]
    wanted = list({version.written_as for version in versions})
    names = dict(history.rows("SELECT id, dataset_name FROM {s}.datasets WHERE id = ANY (%s::uuid[])", wanted))
    found: dict[Id, str] = {}
    for version in versions:
        found.setdefault(version.dataset, names.get(version.written_as, ""))
    unwritten = history.names({step.use.dataset for step in bad.steps if step.version is None})
    return {**unwritten, **found}
