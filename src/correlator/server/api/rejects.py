"""Refused events: to look at, and to drive in again."""

import json
from datetime import timedelta
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from correlator.rulebook.identity import decoded
from correlator.rulebook.redaction import Redaction
from correlator.server.answers import Moment
from correlator.server.api.operations import Asked, Operation, missing, number_in
from correlator.server.api.pages import NextCursor, Page, after, cursor_of, cut
from correlator.server.api.questions import Connection
from correlator.store.redrive import Redrive
from correlator.store.rejects import Reason, RejectedEvent, Selection, list_rejects, read_rejects

_MOST_REDRIVEN: Final = 1_000


class RejectBrief(Struct, frozen=True, kw_only=True):
    id: int
    rejected_at: Moment
    source: str
    layer: int
    rule: str
    path: str
    sentence: str
    kind: str | None
    producer: str | None
    sent_by: str | None
    correlation_id: str | None
    bytes: int
    redriven_at: Moment | None
    redriven_as: int | None


class RejectsQuery(Page, frozen=True, forbid_unknown_fields=True, kw_only=True):
    rule: Annotated[str | None, Meta(description="Among the reasons.")] = None
    layer: Annotated[int, Meta(ge=1, le=3)] | None = None
    producer: Annotated[str | None, Meta(description="A part of it, in any case.")] = None
    source: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    not_redriven: Annotated[bool, Meta(description="Only those that were not driven in again.")] = False


class Rejects(Struct, frozen=True):
    items: list[RejectBrief]
    next_cursor: NextCursor


class RejectAnswer(Struct, frozen=True):
    reject: RejectBrief
    problems: list[Reason]
    event: Annotated[Any, Meta(description="The event with its secrets hidden; a text where it is not even JSON.")]


class Redriving(Struct, frozen=True, forbid_unknown_fields=True):
    ids: Annotated[
        list[Annotated[int, Meta(ge=1, le=2**63 - 1)]],
        Meta(min_length=1, max_length=_MOST_REDRIVEN, description="Of rejected events."),
    ]
    dry_run: Annotated[bool, Meta(description="Only say what would become of them.")] = False


class RedriveOutcome(Struct, frozen=True):
    id: int
    accepted: bool
    stored: int
    duplicates: int
    problems: Annotated[list[Reason], Meta(description="Why it is refused still.")]


class Redriven(Struct, frozen=True):
    items: Annotated[
        list[RedriveOutcome], Meta(description="Those that there are and that were not driven in again before.")
    ]


def _list(connection: Connection, asked: Asked) -> Rejects:
    query: RejectsQuery = asked.query
    selection = Selection(
        rules=None if query.rule is None else (query.rule,),
        layer=query.layer,
        producer=query.producer,
        source=query.source,
        since=query.since,
        until=query.until,
        not_redriven=query.not_redriven,
    )
    before = after(query.cursor, Annotated[int, Meta(ge=0, le=2**63 - 1)])  # type: ignore[arg-type]  # Annotated is a type
    found = list_rejects(connection, selection, limit=query.limit + 1, before=before)
    page, last = cut(found, query.limit)
    redaction = asked.context.redaction
    return Rejects([_brief(each, redaction) for each in page], None if last is None else cursor_of(last.id))


def _one(connection: Connection, asked: Asked) -> RejectAnswer:
    found = read_rejects(connection, [number_in(asked)])
    if not found:
        raise missing(f"There is no rejected event {number_in(asked)}; it may have been removed for its age.")
    redaction = asked.context.redaction
    return RejectAnswer(_brief(found[0], redaction), list(found[0].problems), _event(found[0].raw, redaction))


def _redrive(connection: Connection, asked: Asked) -> Redriven:
    said: Redriving = asked.body
    settings = asked.context.settings
    redrive = Redrive(connection, asked.context.judge, timedelta(seconds=settings.idempotency_window))
    outcomes = redrive.rehearse(said.ids) if said.dry_run else redrive(said.ids)
    return Redriven(
        [
            RedriveOutcome(
                each.id,
                each.is_accepted,
                0 if said.dry_run else each.stored,
                each.duplicates,
                [Reason(problem.path, problem.rule, problem.message) for problem in each.problems],
            )
            for each in outcomes
        ]
    )


def _brief(event: RejectedEvent, redaction: Redaction) -> RejectBrief:
    fields = {name: getattr(event, name) for name in RejectBrief.__struct_fields__}
    return RejectBrief(**{**fields, "sentence": redaction.text(event.sentence)})


def _event(raw: bytes, redaction: Redaction) -> Any:
    try:
        value = decoded(raw)
    except (msgspec.DecodeError, json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        return redaction.text(raw.decode(errors="replace"))
    return redaction.facets({"": value})[""]


_PATH: Final = "/api/v1/rejects"

OPERATIONS: Final = (
    Operation(
        method="GET",
        path=_PATH,
        name="listRejects",
        tag="administration",
        summary="Events that were refused, the newest first.",
        scope="admin",
        query=RejectsQuery,
        answer=_list,
        answers=Rejects,
    ),
    Operation(
        method="POST",
        path=f"{_PATH}/redrive",
        name="redriveRejects",
        tag="administration",
        summary="Judge refused events again; what passes now goes into the log.",
        scope="admin",
        body=Redriving,
        example={"ids": [1, 2], "dry_run": True},
        answer=_redrive,
        answers=Redriven,
        mode="own",
    ),
    Operation(
        method="GET",
        path=f"{_PATH}/{{id}}",
        name="getReject",
        tag="administration",
        summary="One refused event, with every reason.",
        scope="admin",
        answer=_one,
        answers=RejectAnswer,
        refuses=(404,),
    ),
)
