"""The cause of an incident in few words, and each candidate as an answer tells it."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from correlator.correlation.called import DatasetName, JobName
from correlator.correlation.candidates import Candidate
from correlator.correlation.causes import Explanation
from correlator.correlation.history import Run
from correlator.correlation.phrases import first_line


class CheckTold(msgspec.Struct, frozen=True):
    name: str
    column: str
    expected: str
    actual: str
    message: str


class CauseTold(msgspec.Struct, frozen=True):
    run_id: str
    job: JobName
    wrote_at: Annotated[datetime | None, Meta(description="Null for a run that failed and wrote nothing.")]
    state: str


class EvidenceTold(msgspec.Struct, frozen=True):
    kind: str
    subject: str
    before: str | None
    after: str | None
    sentence: str


class CandidateTold(msgspec.Struct, frozen=True):
    rank: int
    run_id: Annotated[str | None, Meta(description="Null for a run that should have been there and was not.")]
    job: JobName
    distance: Annotated[int, Meta(description="Jobs between it and what failed.")]
    score: float
    evidence: list[EvidenceTold]
    reasons: Annotated[list[str], Meta(description="Why it ranks where it does, beyond the evidence.")]
    owner: str | None


def cause_of(explanation: Explanation | None) -> CauseTold | None:
    version = None if explanation is None else explanation.cause
    run = None if version is None or explanation is None else explanation.runs.get(version.run)
    if version is None or run is None:
        return None
    wrote_at = None if version.kind == "attempt" and run.state != "COMPLETE" else version.at
    return CauseTold(run.run_id, JobName(run.namespace, run.name), wrote_at, run.state)


def candidate_told(rank: int, one: Candidate, owner: str | None = None) -> CandidateTold:
    return CandidateTold(
        rank,
        None if one.run is None else one.run.run_id,
        JobName(one.namespace, one.name),
        one.distance,
        round(one.score, 4),
        [EvidenceTold(e.kind, e.subject, e.before, e.after, e.sentence) for e in one.evidence],
        list(one.reasons),
        owner,
    )


def what_failed(test: CheckTold | None, dataset: DatasetName | None, run: Run) -> str:
    if test is None:
        return f"{run.name} ended with {run.state}"
    column = f" of column {test.column}" if test.column else ""
    return f"{test.name}{column} failed on {dataset.name if dataset is not None else 'a dataset that is not named'}"


def named_cause(explanation: Explanation | None, run: Run | None = None) -> str:
    """The first candidate in one line."""
    if explanation is None or explanation.cause is None:
        return "no producer is known"
    best = explanation.candidates[0] if explanation.candidates else None
    if best is None or not best.evidence:
        writer = explanation.runs.get(explanation.cause.run)
        if writer is not None and run is not None and writer.id == run.id and run.error_message:
            return first_line(run.error_message)
        return f"{writer.name} wrote it, and nothing odd is known of it" if writer is not None else "its run is unknown"
    strongest = best.evidence[0]
    return strongest.sentence if best.name in strongest.sentence else f"{best.name}: {strongest.sentence}"
