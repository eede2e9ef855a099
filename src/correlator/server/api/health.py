"""How well things are."""

from datetime import timedelta
from typing import Annotated, Final
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from correlator.correlation.health import (
    ContradictingRun,
    Received,
    RejectReason,
    contradictions,
    received,
    reject_reasons,
)
from correlator.correlation.known_causes import KnownCauses, known_causes
from correlator.correlation.missing_runs import MissingRun, missing_runs
from correlator.correlation.patterns import Pattern
from correlator.correlation.producers import LookedAt, Producer, RuleFigure, producers
from correlator.correlation.suggestions import MOST_ORPHANS, Orphan, orphans
from correlator.server.answers import Moment
from correlator.server.api.operations import Asked, Operation
from correlator.server.api.pages import NextCursor, Page, after, cursor_of, cut
from correlator.server.api.patterns import NewPattern, add
from correlator.server.api.questions import Connection
from correlator.store.ledger import facts_as_of, lags, source_totals
from correlator.store.rejects import reject_totals


class PipelineSource(Struct, frozen=True, kw_only=True):
    """What the pipeline made of all that it read of a source: read = applied + duplicates + rejected."""

    source: str
    batches: int
    read: int
    applied: int
    duplicates: int
    rejected: int
    last_batch_seconds: float
    last_batch_at: Moment


class Ledger(Struct, frozen=True):
    facts_as_of: Moment
    received: list[Received]
    pipeline: list[PipelineSource]


class ReaderLag(Struct, frozen=True):
    source: Annotated[str, Meta(description="`log`, or another source that can tell, such as `kafka`.")]
    reader: Annotated[str, Meta(description="`facts`, or `archive`.")]
    events: Annotated[int, Meta(ge=0, description="Events that it has not read yet.")]
    seconds: Annotated[float, Meta(ge=0, description="How long the oldest of them has waited.")]


class LagAnswer(Struct, frozen=True):
    facts_as_of: Moment
    readers: Annotated[list[ReaderLag], Meta(description="Who is furthest behind first.")]
    last_batch_at: Annotated[Moment | None, Meta(description="When anything was merged last, from any source.")]


class RejectsHealth(Struct, frozen=True):
    kept: Annotated[int, Meta(description="Rejected events that can still be looked at.")]
    kept_bytes: int
    capped: Annotated[int, Meta(description="Removed before their time, for want of room (rejects_max_bytes).")]
    reasons: Annotated[list[RejectReason], Meta(description="Of the newest that were not driven in again.")]


class Producers(Struct, frozen=True):
    facts_as_of: Moment
    looked_at: LookedAt
    items: list[Producer]


class Contradictions(Struct, frozen=True):
    facts_as_of: Moment
    items: list[ContradictingRun]
    next_cursor: NextCursor


class OrphansQuery(Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MOST_ORPHANS)] = 50


class Orphans(Struct, frozen=True):
    facts_as_of: Moment
    items: list[Orphan]


class CausesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    days: Annotated[int, Meta(ge=1, le=366, description="How far to look back.")] = 30


class CausesHealth(Struct, frozen=True):
    facts_as_of: Moment
    causes: KnownCauses


class MissingRunsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class MissingRuns(Struct, frozen=True):
    facts_as_of: Moment
    items: list[MissingRun]


def _ledger(connection: Connection, asked: Asked) -> Ledger:
    del asked
    as_of = facts_as_of(connection)
    sources = [
        PipelineSource(
            source=each.source,
            batches=each.batches,
            read=each.read,
            applied=each.applied,
            duplicates=each.duplicates,
            rejected=each.rejected,
            last_batch_seconds=each.seconds,
            last_batch_at=each.committed_at,
        )
        for each in source_totals(connection)
    ]
    return Ledger(as_of, received(connection), sources)


def _lag(connection: Connection, asked: Asked) -> LagAnswer:
    del asked
    as_of = facts_as_of(connection)
    last = max((totals.committed_at for totals in source_totals(connection)), default=None)
    found = [ReaderLag(lag.source, lag.reader, max(0, lag.events), lag.seconds) for lag in lags(connection)]
    return LagAnswer(as_of, found, last)


def _rejects(connection: Connection, asked: Asked) -> RejectsHealth:
    totals = reject_totals(connection)
    show = asked.context.redaction.text
    reasons = [msgspec.structs.replace(each, example=show(each.example)) for each in reject_reasons(connection)]
    return RejectsHealth(totals.events, totals.bytes, totals.capped_events, reasons)


def _producers(connection: Connection, asked: Asked) -> Producers:
    as_of = facts_as_of(connection)
    report = producers(connection)
    show = asked.context.redaction.text

    def shown(figures: list[RuleFigure]) -> list[RuleFigure]:
        return [msgspec.structs.replace(figure, example=show(figure.example)) for figure in figures]

    items = [
        msgspec.structs.replace(each, warnings=shown(each.warnings), rejects=shown(each.rejects))
        for each in report.items
    ]
    return Producers(as_of, report.looked_at, items)


def _contradictions(connection: Connection, asked: Asked) -> Contradictions:
    query: Page = asked.query
    as_of = facts_as_of(connection)
    before = after(query.cursor, tuple[Moment, UUID, str])
    page, last = cut(contradictions(connection, limit=query.limit + 1, before=before), query.limit)
    cursor = None if last is None else cursor_of((last.at, UUID(last.id[:32]), last.kind))
    return Contradictions(as_of, page, cursor)


def _orphans(connection: Connection, asked: Asked) -> Orphans:
    query: OrphansQuery = asked.query
    return Orphans(facts_as_of(connection), orphans(connection, query.limit))


def _causes(connection: Connection, asked: Asked) -> CausesHealth:
    query: CausesQuery = asked.query
    as_of = facts_as_of(connection)
    return CausesHealth(as_of, known_causes(connection, as_of - timedelta(days=query.days)))


def _missing_runs(connection: Connection, asked: Asked) -> MissingRuns:
    query: MissingRunsQuery = asked.query
    as_of = facts_as_of(connection)
    return MissingRuns(as_of, missing_runs(connection, as_of, query.limit))


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/health/ledger",
        name="getLedger",
        tag="health",
        summary="What came in, and what became of it.",
        scope="read",
        answer=_ledger,
        answers=Ledger,
    ),
    Operation(
        method="GET",
        path="/api/v1/health/lag",
        name="getLag",
        tag="health",
        summary="How far the facts are behind what was stored.",
        scope="read",
        answer=_lag,
        answers=LagAnswer,
    ),
    Operation(
        method="GET",
        path="/api/v1/health/rejects",
        name="getRejectsHealth",
        tag="health",
        summary="What was refused, by reason and producer.",
        scope="read",
        answer=_rejects,
        answers=RejectsHealth,
    ),
    Operation(
        method="GET",
        path="/api/v1/health/producers",
        name="listProducers",
        tag="health",
        summary="Who sends, in which version, and what of it is wrong; whoever was heard of last first.",
        scope="read",
        answer=_producers,
        answers=Producers,
    ),
    Operation(
        method="GET",
        path="/api/v1/health/contradictions",
        name="listContradictions",
        tag="health",
        summary="Runs that said what cannot all be true, the newest first.",
        scope="read",
        query=Page,
        answer=_contradictions,
        answers=Contradictions,
    ),
    Operation(
        method="GET",
        path="/api/v1/health/orphans",
        name="listOrphans",
        tag="health",
        summary="Tested datasets that nobody is known to write, with patterns that would tell who does.",
        scope="read",
        query=OrphansQuery,
        answer=_orphans,
        answers=Orphans,
    ),
    Operation(
        method="GET",
        path="/api/v1/health/causes",
        name="getCausesHealth",
        tag="health",
        summary="Of how many failed tests it is known who wrote what they read.",
        scope="read",
        query=CausesQuery,
        answer=_causes,
        answers=CausesHealth,
    ),
    Operation(
        method="GET",
        path="/api/v1/health/missing-runs",
        name="listMissingRuns",
        tag="health",
        summary="Jobs whose next run is overdue by the moments that their runs are for (nominalTime).",
        scope="read",
        query=MissingRunsQuery,
        answer=_missing_runs,
        answers=MissingRuns,
    ),
    Operation(
        method="POST",
        path="/api/v1/health/orphans/accept",
        name="acceptSuggestion",
        tag="health",
        summary="Take a suggestion: it becomes a pattern, effective at once and on all history.",
        scope="admin",
        body=NewPattern,
        example={"pattern": "warehouse/{table}", "target": "postgres://db:5432/shop.public.{table}"},
        answer=add,
        answers=Pattern,
        status=201,
        mode="write",
        refuses=(409,),
    ),
)
