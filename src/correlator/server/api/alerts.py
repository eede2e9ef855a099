"""What was told, and what is on its way."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from correlator.alerts.outbox import Listed, State, listed, retry
from correlator.server.api.operations import Asked, Operation, missing, number_in
from correlator.server.api.pages import CursorText, Limit, NextCursor, after, cursor_of, cut
from correlator.server.api.questions import Connection


class AlertsQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    state: Annotated[State | None, Meta(description="`failed` are those that were given up.")] = None
    limit: Limit = 50
    cursor: CursorText = None


class Alerts(Struct, frozen=True):
    items: list[Listed]
    next_cursor: NextCursor


def _list(connection: Connection, asked: Asked) -> Alerts:
    query: AlertsQuery = asked.query
    before = after(query.cursor, Annotated[int, Meta(ge=0, le=2**63 - 1)])  # type: ignore[arg-type]  # Annotated is a type
    page, last = cut(listed(connection, state=query.state, limit=query.limit + 1, before=before), query.limit)
    return Alerts(page, None if last is None else cursor_of(last.id))


def _retry(connection: Connection, asked: Asked) -> None:
    if not retry(connection, [number_in(asked)]):
        raise missing(f"There is no alert {number_in(asked)} that failed, or waits after an error.")


_PATH: Final = "/api/v1/alerts"

OPERATIONS: Final = (
    Operation(
        method="GET",
        path=_PATH,
        name="listAlerts",
        tag="administration",
        summary="What was told and what is on its way, the newest first.",
        scope="admin",
        query=AlertsQuery,
        answer=_list,
        answers=Alerts,
    ),
    Operation(
        method="POST",
        path=f"{_PATH}/{{id}}/retry",
        name="retryAlert",
        tag="administration",
        summary="Send again what was given up, or waits after an error.",
        scope="admin",
        answer=_retry,
        answers=None,
        mode="write",
        refuses=(404,),
    ),
)
