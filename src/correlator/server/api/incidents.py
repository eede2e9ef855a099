"""Incidents: lists, all about one, what people do about them; and whether a dataset is safe to read."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from correlator.correlation.history import History
from correlator.correlation.incident_briefs import MOST_BRIEFS, IncidentBrief, incident_briefs
from correlator.correlation.incident_detail import IncidentDetail, Kind, incident_detail, reach_of
from correlator.correlation.incident_list import (
    Counts,
    Filters,
    IncidentItem,
    Place,
    Sort,
    Statistics,
    incident_counts,
    incident_list,
    sort_key,
    statistics,
)
from correlator.correlation.life import (
    Action,
    ActionKind,
    InvalidActionError,
    Reason,
    SenselessActionError,
    Status,
    UnknownIncidentError,
    act,
    standings,
)
from correlator.correlation.verdict import Verdict, verdict
from correlator.rulebook.redaction import Redaction
from correlator.server.answers import Moment
from correlator.server.api.operations import Asked, MovedError, Operation, conflict, invalid, missing
from correlator.server.api.pages import NextCursor, Page, after, cursor_of, cut
from correlator.server.api.questions import Connection
from correlator.store.ledger import facts_as_of

_USUAL_TIME: Final = timedelta(days=90)


class IncidentsQuery(Page, frozen=True, forbid_unknown_fields=True, kw_only=True):
    status: Literal["open", "acknowledged", "muted", "resolved", "all"] = "all"
    severity: Annotated[
        str | None, Meta(description="As the producer says it; where it says none, `error` or `warn`.")
    ] = None
    kind: Annotated[Kind | None, Meta(description="Failed tests, or failed runs.")] = None
    dataset: Annotated[str | None, Meta(description="The URN of a dataset, by any of its names.")] = None
    job: Annotated[
        str | None, Meta(description="`namespace/name` of the job that failed, ran the test or writes the dataset.")
    ] = None
    owner: Annotated[str | None, Meta(description="By the ownership facets: of the dataset, else of the job.")] = None
    assignee: str | None = None
    producer: Annotated[str | None, Meta(description="A part of the URI of who reported the failure.")] = None
    since: Annotated[Moment | None, Meta(description="Opened then or later.")] = None
    until: Annotated[Moment | None, Meta(description="Opened before.")] = None
    q: Annotated[str | None, Meta(description="A part of a name or of a message.")] = None
    roots: Annotated[bool, Meta(description="Without those that are consequences of others.")] = False
    root: Annotated[UUID | None, Meta(description="Only the consequences of this one.")] = None
    sort: Sort = "-opened_at"
    causes: Annotated[
        bool, Meta(description="Name the cause of each in one line: that takes as long as so many pages of incidents.")
    ] = False

    @property
    def filters(self) -> Filters:
        return Filters(
            status=self.status,
            severity=self.severity,
            kind=self.kind,
            dataset=self.dataset,
            job=self.job,
            owner=self.owner,
            assignee=self.assignee,
            producer=self.producer,
            since=self.since,
            until=self.until,
            text=self.q,
            roots=self.roots,
            root=self.root,
        )


class Incidents(Struct, frozen=True):
    facts_as_of: Moment
    items: list[IncidentItem]
    next_cursor: NextCursor


class CountsAnswer(Struct, frozen=True):
    facts_as_of: Moment
    counts: Counts


class BriefsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    ids: Annotated[
        str, Meta(min_length=1, max_length=40 * MOST_BRIEFS, description=f"Up to {MOST_BRIEFS}, with commas between.")
    ]


class Briefs(Struct, frozen=True):
    facts_as_of: Moment
    items: Annotated[list[IncidentBrief], Meta(description="Of those that there are.")]


class StatisticsQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    since: Annotated[
        Moment | None, Meta(description="Opened then or later; 90 days before `until`, if it is not said.")
    ] = None
    until: Annotated[Moment | None, Meta(description="Opened before; now, if it is not said.")] = None


class StatisticsAnswer(Struct, frozen=True):
    facts_as_of: Moment
    statistics: Statistics


class ActionBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    action: ActionKind
    assignee: Annotated[str | None, Meta(description="For `assign`: who looks after it.")] = None
    until: Annotated[Moment | None, Meta(description="For `mute`: when it ends.")] = None
    reason: Annotated[Reason | None, Meta(description="For `resolve`.")] = None
    note: Annotated[str | None, Meta(description="What there is to say; a `comment` needs one.")] = None


class ActionAnswer(Struct, frozen=True, kw_only=True):
    """The incident as it stands then."""

    id: UUID
    status: Status
    assignee: str | None
    muted_until: datetime | None
    resolved_at: datetime | None
    resolved_by: str | None
    root_id: UUID | None


def _incidents(connection: Connection, asked: Asked) -> Incidents:
    query: IncidentsQuery = asked.query
    as_of = facts_as_of(connection)
    found = incident_list(
        connection,
        query.filters,
        sort=query.sort,
        after=after(query.cursor, Place),
        limit=query.limit + 1,
        causes=query.causes,
    )
    page, last = cut(found, query.limit)
    hidden = asked.context.redaction.text
    page = [replace(one, message=hidden(one.message), actual=hidden(one.actual)) for one in page]
    return Incidents(as_of, page, None if last is None else cursor_of(sort_key(last, query.sort)))


def _counts(connection: Connection, asked: Asked) -> CountsAnswer:
    query: IncidentsQuery = asked.query
    as_of = facts_as_of(connection)
    return CountsAnswer(as_of, incident_counts(connection, query.filters))


def _briefs(connection: Connection, asked: Asked) -> Briefs:
    query: BriefsQuery = asked.query
    as_of = facts_as_of(connection)
    try:
        ids = [UUID(each) for each in query.ids.split(",")]
    except ValueError:
        raise invalid("ids: an id of an incident is a UUID; several have a comma between them.") from None
    if len(ids) > MOST_BRIEFS:
        raise invalid(f"ids: {len(ids)} are too many; {MOST_BRIEFS} can be asked for at once.")
    return Briefs(as_of, incident_briefs(connection, ids))


def _statistics(connection: Connection, asked: Asked) -> StatisticsAnswer:
    query: StatisticsQuery = asked.query
    as_of = facts_as_of(connection)
    until = query.until or datetime.now(UTC)
    since = query.since or until - _USUAL_TIME
    return StatisticsAnswer(as_of, statistics(connection, since, until))


def _incident(connection: Connection, asked: Asked) -> IncidentDetail:
    failure = _id(asked)
    try:
        found = incident_detail(connection, failure, reach_of(asked.context.settings))
    except UnknownIncidentError as error:
        raise missing(str(error)) from None
    if found.id != failure:
        raise MovedError(f"/api/v1/incidents/{found.id}")
    return _redacted(found, asked.context.redaction)


def _redacted(found: IncidentDetail, redaction: Redaction) -> IncidentDetail:
    """Messages and SQL may hold what nobody should read here."""

    def hidden(text: str | None) -> str | None:
        return None if text is None else redaction.text(text)

    return replace(
        found,
        summary=redaction.text(found.summary),
        test=None
        if found.test is None
        else replace(found.test, actual=redaction.text(found.test.actual), message=redaction.text(found.test.message)),
        candidates=[
            replace(
                candidate,
                evidence=[
                    replace(
                        one, before=hidden(one.before), after=hidden(one.after), sentence=redaction.text(one.sentence)
                    )
                    for one in candidate.evidence
                ],
            )
            for candidate in found.candidates
        ],
        timeline=[replace(one, sentence=redaction.text(one.sentence)) for one in found.timeline],
    )


def _act(connection: Connection, asked: Asked) -> ActionAnswer:
    body: ActionBody = asked.body
    said = {name: value for name, value in msgspec.structs.asdict(body).items() if name != "action"}
    try:
        incident = act(connection, _id(asked), Action(kind=body.action, **said), asked.actor)
    except UnknownIncidentError as error:
        raise missing(str(error)) from None
    except InvalidActionError as error:
        raise invalid(str(error)) from None
    except SenselessActionError as error:
        raise conflict(str(error)) from None
    standing = standings(History(connection), [incident])[incident.id]
    return ActionAnswer(
        id=incident.uuid,
        status=standing.status,
        assignee=standing.assignee,
        muted_until=None if standing.muted is None else standing.muted.until,
        resolved_at=incident.resolved_at,
        resolved_by=incident.resolved_by,
        root_id=incident.root_uuid,
    )


def _verdict(connection: Connection, asked: Asked) -> Verdict:
    return verdict(connection, asked.path["urn"], asked.context.settings.verdict_max_lag)


def _id(asked: Asked) -> UUID:
    try:
        return UUID(asked.path["id"])
    except ValueError:
        raise missing(f"There is no incident {asked.path['id'][:100]!r}: an id is a UUID.") from None


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/incidents",
        name="listIncidents",
        tag="incidents",
        summary="What is wrong, and what was.",
        description="An incident is an unbroken streak of failures of one test, or of one job's runs.",
        scope="read",
        query=IncidentsQuery,
        answer=_incidents,
        answers=Incidents,
    ),
    Operation(
        method="GET",
        path="/api/v1/incidents/counts",
        name="countIncidents",
        tag="incidents",
        summary="How many there are, by status, severity and kind.",
        description="It takes the filters of the list; order and pages say nothing here.",
        scope="read",
        query=IncidentsQuery,
        answer=_counts,
        answers=CountsAnswer,
    ),
    Operation(
        method="GET",
        path="/api/v1/incidents/briefs",
        name="getIncidentBriefs",
        tag="incidents",
        summary="The cause of some incidents in one line each, and how many are hurt.",
        description="What a list shows of each. It takes as long as so many pages of incidents: ask for a few.",
        scope="read",
        query=BriefsQuery,
        answer=_briefs,
        answers=Briefs,
    ),
    Operation(
        method="GET",
        path="/api/v1/incidents/statistics",
        name="getIncidentStatistics",
        tag="incidents",
        summary="How long people took to acknowledge and to resolve, by owner and by week.",
        scope="read",
        query=StatisticsQuery,
        answer=_statistics,
        answers=StatisticsAnswer,
    ),
    Operation(
        method="GET",
        path="/api/v1/incidents/{id}",
        name="getIncident",
        tag="incidents",
        summary="All about one: its cause with evidence, who is hurt, what happened.",
        description="The id of any of its failures leads there, by 308 if it is not the first.",
        scope="read",
        answer=_incident,
        answers=IncidentDetail,
        moves=True,
        refuses=(404,),
    ),
    Operation(
        method="POST",
        path="/api/v1/incidents/{id}/actions",
        name="actOnIncident",
        tag="incidents",
        summary="Acknowledge, assign, mute, resolve, comment; or take that back.",
        description="What makes no sense for the incident as it stands is answered 409.",
        scope="act",
        body=ActionBody,
        answer=_act,
        answers=ActionAnswer,
        mode="write",
        refuses=(404, 409),
    ),
    Operation(
        method="GET",
        path="/api/v1/datasets/{urn:path}/verdict",
        name="getVerdict",
        tag="incidents",
        summary="Is it safe to read?",
        description="By its tests, those of what it was made of, and who writes it.",
        scope="read",
        answer=_verdict,
        answers=Verdict,
    ),
)
