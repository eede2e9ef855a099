"""The bodies of answers. The OpenAPI document is made from these, so what is documented is what is sent."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from correlator.rulebook.problems import Problem

Moment = Annotated[datetime, Meta(tz=True)]
Count = Annotated[int, Meta(ge=0)]
CorrelationId = Annotated[
    str, Meta(description="The request's `X-Correlation-ID`, or one that was made for it; also a response header.")
]
Warnings = Annotated[
    list[Problem] | UnsetType,
    Meta(description="What is odd about the event without being a reason to refuse it. Absent where nothing is."),
]


class Stored(Struct, frozen=True):
    """The answer to one event: it is on disk, now or already before."""

    status: Literal["stored", "duplicate"]
    correlation_id: CorrelationId
    warnings: Warnings = UNSET


class BatchSummary(Struct, frozen=True):
    received: Count
    successful: Count
    failed: Count
    retriable: Count
    non_retriable: Count


class FailedEvent(Struct, frozen=True):
    index: Annotated[int, Meta(ge=0, description="The event's place in the array that was sent, from 0.")]
    reason: str
    retriable: bool


class BatchAnswer(Struct, frozen=True):
    """The batch contract of OpenLineage. Every event that is not listed as failed is on disk."""

    status: Literal["success", "partial_success"]
    summary: BatchSummary
    failed_events: list[FailedEvent]
    correlation_id: CorrelationId


class EventResult(Struct, frozen=True):
    index: Annotated[int, Meta(ge=0, description="The event's place in the array that was sent, from 0.")]
    status: Annotated[Literal[200, 422], Meta(description="What the event alone would have been answered.")]
    outcome: Literal["success", "error"]
    message: Annotated[str, Meta(description="`stored`, `duplicate`, or why the event was refused.")]
    error: Annotated[str | UnsetType, Meta(description="Why the event was refused. Absent where it was not.")] = UNSET
    errors: Annotated[list[Problem] | UnsetType, Meta(description="Every reason, with its place and its rule.")] = UNSET
    warnings: Warnings = UNSET


class EventsSummary(Struct, frozen=True):
    total: Count
    success: Count
    failed: Count


class EventsAnswer(Struct, frozen=True):
    """One result for each event, in the order in which they were sent."""

    correlation_id: CorrelationId
    timestamp: Moment
    stored: Count
    duplicates: Count
    failed: Count
    results: list[EventResult]
    summary: EventsSummary


class Ping(Struct, frozen=True):
    """The process lives and its event loop turns. Nothing else was looked at."""

    status: Literal["ok"] = "ok"


class Ready(Struct, frozen=True):
    """Events can be stored now. When they cannot, the answer is a problem document with status 503."""

    status: Literal["ready"] = "ready"


class PipelineHealth(Struct, frozen=True):
    """How far the facts are behind what has been stored."""

    lag_events: Annotated[
        int, Meta(ge=0, description="Events that are not in the facts yet, of the source whose events wait longest.")
    ]
    lag_seconds: Annotated[float, Meta(ge=0, description="How long the oldest of them has waited.")]
    last_batch_at: Annotated[
        Moment | None, Meta(description="When the pipeline last merged anything, from any source; null for never.")
    ]


class Health(Struct, frozen=True):
    """What an operator looks at first."""

    status: Literal["ok", "degraded"]
    version: str
    database: Literal["up", "down"]
    uptime_seconds: Annotated[float, Meta(ge=0)]
    workers: Annotated[int, Meta(ge=0, description="Processes that take requests; the figures are those of all.")]
    waiting_events: Count
    in_flight_bytes: Count
    log_head: Annotated[
        int | None, Meta(description="The position of the newest event in the log; null while that is not known.")
    ]
    pipeline: Annotated[PipelineHealth | None, Meta(description="Null while that is not known.")]


class ProblemDocument(Struct, frozen=True):
    """RFC 9457. Programs compare `type`; people read `detail`."""

    type: Annotated[str, Meta(pattern="^urn:correlator:problem:[a-z-]+$")]
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    detail: str
    instance: Annotated[str, Meta(description="The path of the request.")]
    correlation_id: CorrelationId


class InvalidEvent(ProblemDocument, frozen=True):
    """The refusal of one event, with every reason."""

    errors: list[Problem]
    warnings: Warnings = UNSET


class BrokenRunCycle(ProblemDocument, frozen=True):
    """The refusal of a batch whose events, all of one run, cannot follow each other; `detail` names the transition."""

    rule: Literal["duplicate_start", "backward_transition", "terminal_state_immutable"]


class InvalidEvents(ProblemDocument, frozen=True):
    """The refusal of a whole batch, with what `EventsAnswer` would have said of each event."""

    timestamp: Moment
    stored: Count
    duplicates: Count
    failed: Count
    results: list[EventResult]
    summary: EventsSummary
