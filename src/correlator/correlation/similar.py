"""What was like it before, how it ended and how long it took."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

import msgspec
from msgspec import Meta

from correlator.correlation.candidates import Candidate
from correlator.correlation.case import open_cases_about
from correlator.correlation.causes import Explanation, explain_case
from correlator.correlation.history import History
from correlator.correlation.ids import Id, id_of, uuid_of
from correlator.correlation.incidents import Incident, failures_of, incidents_of
from correlator.correlation.life import said_of
from correlator.correlation.walk import Limits

_MOST: Final = 10
_EXPLAINED: Final = 3
"""Of so many the evidence is looked at,"""
_NEAR: Final = Limits(depth=4, runs=40)
"""by a short walk, no longer than it takes."""


class SimilarTold(msgspec.Struct, frozen=True):
    id: UUID
    opened_at: datetime
    outcome: Annotated[str, Meta(description="`open`, `passed`, or the reason that a person gave.")]
    took_s: Annotated[float | None, Meta(description="Seconds until it was over; null while it is not.")]
    likeness: Annotated[
        list[str], Meta(description="`same test`, `same job`, `same dataset`, `same cause`, `same evidence`.")
    ]
    note: str | None


def similar(history: History, one: Incident, explanation: Explanation | None) -> list[SimilarTold]:
    first = _first(explanation)
    cause = None if first is None else first.job_id
    own = [] if one.dataset_id is None else list(history.classes([one.dataset_id]).values())
    names = [name for names in history.members(own).values() for name in names]
    rows = history.rows(_SIMILAR, one.subject_id, one.subject_id, names, cause, cause, one.id)
    reasons = _reasons(history, [row[0] for row in rows])
    found = []
    for id_, opened_at, resolved_at, resolved_by, subject, dataset, job, wrote in rows:
        likeness = []
        if subject == one.subject_id:
            likeness.append("same test" if one.kind == "test" else "same job")
        if dataset is not None and dataset in names:
            likeness.append("same dataset")
        if cause is not None and (job == cause or wrote):
            likeness.append("same cause")
        said = reasons.get(id_)
        outcome = "open" if resolved_at is None else "passed" if resolved_by == "pass" or said is None else said[0]
        took = None if resolved_at is None else (resolved_at - opened_at).total_seconds()
        note = None if said is None else said[1]
        found.append(SimilarTold(uuid_of(id_), opened_at, outcome, took, likeness, note))
    found.sort(key=_rank)
    return _with_evidence(history, found[:_MOST], explanation)


def _rank(one: SimilarTold) -> tuple[int, float, UUID]:
    return -len(one.likeness), -one.opened_at.timestamp(), one.id


def _with_evidence(
    history: History, found: Sequence[SimilarTold], explanation: Explanation | None
) -> list[SimilarTold]:
    """In which of the most alike the same job is to blame, by the same kind of evidence."""
    first = _first(explanation)
    alike = set() if first is None else _blamed_alike(history, [id_of(one.id) for one in found[:_EXPLAINED]], first)
    told = [
        msgspec.structs.replace(one, likeness=[*one.likeness, "same evidence"]) if one.id in alike else one
        for one in found
    ]
    return sorted(told, key=_rank)


def _blamed_alike(history: History, ids: Sequence[Id], first: Candidate) -> set[UUID]:
    """Of each no more is looked at than what this job had to do with it: to explain three would cost three pages."""
    kinds = _kinds(first)
    if not kinds or not ids:
        return set()
    failures = failures_of(history, list(incidents_of(history, ids).values()))
    limits = _as_far(first)
    cases = open_cases_about(history, list(failures.values()), first.job_id, limits)
    blamed = {id_: _first(explain_case(case, limits)) for id_, case in zip(failures, cases, strict=True) if case}
    return {uuid_of(id_) for id_, one in blamed.items() if one and one.job_id == first.job_id and kinds & _kinds(one)}


def _first(explanation: Explanation | None) -> Candidate | None:
    return explanation.candidates[0] if explanation and explanation.candidates else None


def _kinds(candidate: Candidate) -> frozenset[str]:
    """Of what speaks for it. That it took long says little."""
    return frozenset(one.kind for one in candidate.evidence) - {"duration"}


def _as_far(first: Candidate) -> Limits:
    """One step farther than the first candidate is: what went into it tells whether it was only passed on."""
    return msgspec.structs.replace(_NEAR, depth=min(_NEAR.depth, first.distance + 1))


def _reasons(history: History, incidents: Sequence[Id]) -> dict[Id, tuple[str, str | None]]:
    """Why people resolved them, and what they said to it."""
    return {
        incident: (said.reason or "resolved", said.note)
        for incident, words in said_of(history, incidents).items()
        for said in words
        if said.kind == "resolve"
    }


# Of the same test or job, on the same dataset, of the job that is named as the cause, or on what it writes: a short
# range of an index each.
_SIMILAR: Final = """
SELECT other.id, other.opened_at, other.resolved_at, other.resolved_by, coalesce(other.test_id, other.job_id),
       other.dataset_id, other.job_id, bool_or(other.kind = 'test' AND other.of_cause)
FROM (
    (SELECT *, false AS of_cause FROM {s}.incidents WHERE test_id = %s ORDER BY opened_at DESC LIMIT 20)
    UNION ALL
    (SELECT *, false FROM {s}.incidents WHERE job_id = %s ORDER BY opened_at DESC LIMIT 20)
    UNION ALL
    -- Name by name: for all at once the planner would go through all incidents in order of time.
    SELECT of_name.* FROM unnest(%s::uuid[]) AS name (id)
    CROSS JOIN LATERAL (
        SELECT *, false FROM {s}.incidents WHERE dataset_id = name.id ORDER BY opened_at DESC LIMIT 20
    ) AS of_name
    UNION ALL
    (SELECT *, false FROM {s}.incidents WHERE job_id = %s ORDER BY opened_at DESC LIMIT 20)
    UNION ALL
    SELECT of_dataset.* FROM (
        SELECT dataset_id FROM {s}.lineage_edges WHERE edge_type = 'output' AND job_run_id = (
            SELECT id FROM {s}.job_runs WHERE job_id = %s ORDER BY started_at DESC LIMIT 1
        ) LIMIT 20
    ) AS written
    CROSS JOIN LATERAL (
        SELECT *, true FROM {s}.incidents WHERE dataset_id = written.dataset_id ORDER BY opened_at DESC LIMIT 5
    ) AS of_dataset
) AS other
WHERE other.id <> %s
GROUP BY 1, 2, 3, 4, 5, 6, 7
"""
