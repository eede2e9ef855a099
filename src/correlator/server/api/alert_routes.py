"""Who is told of what."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from correlator.alerts.trial import try_route
from correlator.server.api.operations import Asked, Operation, conflict, missing, number_in
from correlator.server.api.pages import NextCursor
from correlator.server.api.questions import Connection
from correlator.store.alert_routes import (
    AlertRoute,
    NewRoute,
    RouteChange,
    RouteError,
    add_route,
    change_route,
    destination,
    list_routes,
    remove_route,
)


class AlertRoutes(Struct, frozen=True):
    items: list[AlertRoute]
    next_cursor: NextCursor = None


class Trial(Struct, frozen=True):
    """What became of a test message."""

    is_taken: Annotated[bool, Meta(description="Whether the receiver answered 2xx.")]
    status: Annotated[int | None, Meta(description="Of its answer; null if there was none.")]
    words: Annotated[str, Meta(description="What it answered, or why it was not asked.")]


def _list(connection: Connection, asked: Asked) -> AlertRoutes:
    del asked
    return AlertRoutes(list_routes(connection))


def _add(connection: Connection, asked: Asked) -> AlertRoute:
    try:
        return add_route(connection, asked.body, actor=asked.actor)
    except RouteError as error:
        raise conflict(str(error)) from None


def _change(connection: Connection, asked: Asked) -> AlertRoute:
    try:
        changed = change_route(connection, number_in(asked), asked.body)
    except RouteError as error:
        raise conflict(str(error)) from None
    if changed is None:
        raise missing(f"There is no route {number_in(asked)}.")
    return changed


def _remove(connection: Connection, asked: Asked) -> None:
    if not remove_route(connection, number_in(asked)):
        raise missing(f"There is no route {number_in(asked)}.")


def _test(connection: Connection, asked: Asked) -> Trial:
    found = destination(connection, number_in(asked))
    if found is None:
        raise missing(f"There is no route {number_in(asked)}.")
    outcome = try_route(found, asked.context.settings)
    return Trial(outcome.is_taken, outcome.status, outcome.words)


_PATH: Final = "/api/v1/alert-routes"

OPERATIONS: Final = (
    Operation(
        method="GET",
        path=_PATH,
        name="listAlertRoutes",
        tag="administration",
        summary="Where alerts go. Secrets are never shown.",
        scope="admin",
        answer=_list,
        answers=AlertRoutes,
    ),
    Operation(
        method="POST",
        path=_PATH,
        name="addAlertRoute",
        tag="administration",
        summary="Add a route.",
        scope="admin",
        body=NewRoute,
        example={"name": "data team", "kind": "slack", "url": "https://hooks.slack.com/services/…"},
        answer=_add,
        answers=AlertRoute,
        status=201,
        mode="write",
        refuses=(409,),
    ),
    Operation(
        method="PATCH",
        path=f"{_PATH}/{{id}}",
        name="changeAlertRoute",
        tag="administration",
        summary="Change a route. What is left out stays.",
        scope="admin",
        body=RouteChange,
        example={"is_enabled": False},
        answer=_change,
        answers=AlertRoute,
        mode="write",
        refuses=(404, 409),
    ),
    Operation(
        method="DELETE",
        path=f"{_PATH}/{{id}}",
        name="removeAlertRoute",
        tag="administration",
        summary="Remove a route, with what waits to be sent on it.",
        scope="admin",
        answer=_remove,
        answers=None,
        mode="write",
        refuses=(404,),
    ),
    Operation(
        method="POST",
        path=f"{_PATH}/{{id}}/test",
        name="testAlertRoute",
        tag="administration",
        summary="Send a message that says that it is a test, and tell what the receiver answered.",
        scope="admin",
        answer=_test,
        answers=Trial,
        mode="own",
        refuses=(404,),
    ),
)
