"""The bodies of the proxy's answers."""

from datetime import datetime
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from correlator.rulebook.problems import Problem


class Buffered(Struct, frozen=True):
    """The event is on the proxy's disk, and will be forwarded."""

    status: Literal["buffered"]
    correlation_id: str
    warnings: list[Problem] | UnsetType = UNSET


class BatchSummary(Struct, frozen=True):
    received: int
    successful: int
    failed: int
    retriable: int
    non_retriable: int


class FailedEvent(Struct, frozen=True):
    index: int
    reason: str
    retriable: bool


class BatchAnswer(Struct, frozen=True):
    """The batch contract of OpenLineage. Every event that is not listed as failed is on the proxy's disk."""

    status: Literal["success", "partial_success"]
    summary: BatchSummary
    failed_events: list[FailedEvent]
    correlation_id: str


class EventResult(Struct, frozen=True):
    index: int
    status: Literal[200, 400]
    outcome: Literal["success", "error"]
    message: str
    error: str | UnsetType = UNSET
    errors: list[Problem] | UnsetType = UNSET
    warnings: list[Problem] | UnsetType = UNSET


class EventsSummary(Struct, frozen=True):
    total: int
    success: int
    failed: int


class EventsAnswer(Struct, frozen=True):
    correlation_id: str
    timestamp: datetime
    stored: int
    duplicates: int
    failed: int
    results: list[EventResult]
    summary: EventsSummary


class Ping(Struct, frozen=True):
    status: Literal["ok"] = "ok"


class Ready(Struct, frozen=True):
    status: Literal["ready"] = "ready"


class BufferHealth(Struct, frozen=True):
    events: int
    """Held at the moment, also those that every destination has had but that are not removed yet."""
    bytes: int
    file_bytes: int
    partitions: int
    oldest_seconds: float


class DestinationHealth(Struct, frozen=True):
    name: str
    state: Literal["ok", "retrying", "misdirected"]
    reason: str | None
    lag_events: int
    lag_seconds: float
    sent: int
    failed: int
    retried: int
    dropped: int


class Health(Struct, frozen=True):
    """`degraded`: events cannot be kept, or a destination does not take any."""

    status: Literal["ok", "degraded"]
    version: str
    uptime_seconds: float
    trouble: str | None
    buffer: BufferHealth
    destinations: list[DestinationHealth]
