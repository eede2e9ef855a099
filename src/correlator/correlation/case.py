"""A failure and all that is compared to explain it: the version that failed, the last good one, what went into both."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from correlator.correlation.history import History, Output, Run, Use, Version
from correlator.correlation.past import JobPast, pasts
from correlator.correlation.questions import FIT, Question
from correlator.correlation.walk import Limits, Trace, walk


class Failure(msgspec.Struct, frozen=True):
    """What is to be explained."""

    question: Question
    dataset: UUID
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
    runs: dict[UUID, Run]
    """Of both traces."""
    pasts: dict[UUID, JobPast]
    """Of the jobs of these runs, up to the failure."""
    names: dict[UUID, str]
    """Of the datasets of the bad trace, by their class."""

    def fit(self, finding: str) -> float:
        """How well such a finding explains a failure of this kind."""
        return FIT[finding][self.failure.question.kind]

    def name(self, dataset: UUID) -> str:
        return self.names.get(dataset) or "its input"

    def run(self, id_: UUID) -> Run:
        """One that is known to be there, whether it is of the traces or not."""
        return self.history.runs([id_])[id_]


def attempt(run: Run, outputs: Sequence[Output]) -> Version | None:
    """What a run wrote, or was to write: the first of it, since one is as good as another."""
    for out in outputs[:1]:
        return Version(out.dataset, run.id, run.last_moment, out.name, out.row_count, out.byte_size, None, "attempt")
    return None


def open_case(history: History, failure: Failure, limits: Limits) -> Case:
    sides = (failure.bad, failure.good)
    bound = iter(history.bind([side for side in sides if isinstance(side, Use)]))
    starts = [next(bound) if isinstance(side, Use) else side for side in sides]
    bad, good = walk(history, [(start, failure.question.columns) for start in starts], limits, others=True)
    runs = history.runs([*bad.distances, *good.distances])
    written = [
        (runs[run].job_id, version.dataset) for run in bad.written if run in runs for version in bad.written[run]
    ]
    past = pasts(history, {run.job_id for run in runs.values()}, failure.at, written)
    return Case(history, failure, bad, good, runs, past, _names(history, bad))


def _names(history: History, bad: Trace) -> dict[UUID, str]:
    versions = [version for written in bad.written.values() for version in written]
    wanted = list({version.written_as for version in versions})
    names = dict(history.rows("SELECT id, dataset_name FROM {s}.datasets WHERE id = ANY (%s::uuid[])", wanted))
    found: dict[UUID, str] = {}
    for version in versions:
        found.setdefault(version.dataset, names.get(version.written_as, ""))
    unwritten = history.names({step.use.dataset for step in bad.steps if step.version is None})
    return {**unwritten, **found}
