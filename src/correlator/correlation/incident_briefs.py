"""Incidents in a line or two each: what caused it, why, and how many are hurt. What a list shows beside the failure."""

from collections.abc import Sequence
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
import psycopg
from msgspec import Meta

from correlator.correlation.called import JobName
from correlator.correlation.causes import Explanation
from correlator.correlation.history import History
from correlator.correlation.ids import id_of
from correlator.correlation.incident_impact import impact_of
from correlator.correlation.incidents import explained, incidents_of
from correlator.correlation.summaries import named_cause

MOST_BRIEFS: Final = 50
_MOST_REASONS: Final = 3


class RootCause(msgspec.Struct, frozen=True):
    run_id: Annotated[str | None, Meta(description="Null for a run that should have been there and was not.")]
    job: JobName
    distance: Annotated[int, Meta(description="Jobs between it and what failed.")]
    score: Annotated[float, Meta(description="The strength of the evidence; no probability.")]
    why: Annotated[list[str], Meta(description="What speaks for it, the strongest first.")]


class IncidentBrief(msgspec.Struct, frozen=True):
    id: UUID
    sentence: Annotated[str, Meta(description="The cause in one line, or that none is known.")]
    root_cause: RootCause | None
    affected: Annotated[int, Meta(ge=0, description="Datasets that were made of what failed.")]
    at_risk: Annotated[int, Meta(ge=0, description="Datasets that would be, at the next run.")]
    truncated: Annotated[bool, Meta(description="Whether more are affected than were counted.")]


def incident_briefs(connection: psycopg.Connection[Any], ids: Sequence[UUID]) -> list[IncidentBrief]:
    """In the order in which they were asked for; what there is not is left out."""
    history = History(connection)
    found = incidents_of(history, [id_of(id_) for id_ in ids])
    briefs = []
    for id_ in dict.fromkeys(ids):
        incident = found.get(id_of(id_))
        if incident is None:
            continue
        explanation = explained(history, incident)
        impact, risks = impact_of(history, incident, explanation)
        run = history.runs([incident.job_run_id]).get(incident.job_run_id)
        briefs.append(
            IncidentBrief(
                id_,
                named_cause(explanation, run),
                _root_cause(explanation),
                len({one.dataset for one in impact.affected}),
                len(risks),
                impact.is_cut,
            )
        )
    return briefs


def _root_cause(explanation: Explanation | None) -> RootCause | None:
    if explanation is None or not explanation.candidates:
        return None
    best = explanation.candidates[0]
    return RootCause(
        None if best.run is None else best.run.run_id,
        JobName(best.namespace, best.name),
        best.distance,
        round(best.score, 4),
        [evidence.sentence for evidence in best.evidence[:_MOST_REASONS]],
    )
