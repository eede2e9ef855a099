"""Who is told of what. What a route is addressed and signed with is never shown again."""

import secrets
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import psycopg
from msgspec import UNSET, Meta, Struct, UnsetType, structs
from psycopg.errors import UniqueViolation
from psycopg.rows import dict_row

from correlator.store.moments import Moment

RouteKind: TypeAlias = Literal["webhook", "slack", "pagerduty"]

_COLUMNS: Final = (
    "id, name, kind, url, secret IS NOT NULL AS has_secret, owners, namespaces, severities, is_default, "
    "tells_resolved, is_enabled, created_at, created_by"
)
_LIST: Final = f"SELECT {_COLUMNS} FROM kept.alert_routes ORDER BY name"  # noqa: S608 (a constant)
_ADD: Final = f"""
INSERT INTO kept.alert_routes (
    name, kind, url, secret, owners, namespaces, severities, is_default, tells_resolved, is_enabled, created_by
)
VALUES (
    %(name)s, %(kind)s, %(url)s, %(secret)s, %(owners)s, %(namespaces)s, %(severities)s, %(is_default)s,
    %(tells_resolved)s, %(is_enabled)s, %(actor)s
)
RETURNING {_COLUMNS}
"""  # noqa: S608
_FIND: Final = "SELECT name, kind, url, secret FROM kept.alert_routes WHERE id = %s"
_SECRET_BYTES: Final = 32


class RouteError(Exception):
    """A route that cannot be; the message says why."""


class AlertRoute(Struct, frozen=True, kw_only=True):
    """A route as it may be shown."""

    id: int
    name: str
    kind: RouteKind
    url: Annotated[str, Meta(description="Without its path and query: these may be a secret.")]
    has_secret: bool
    owners: Annotated[
        list[str], Meta(description="For these only; empty for all. `*` is any characters, `?` one of them.")
    ]
    namespaces: Annotated[list[str], Meta(description="Of the dataset that failed, or of the job.")]
    severities: list[str]
    is_default: Annotated[bool, Meta(description="For what no other route is for.")]
    tells_resolved: Annotated[bool, Meta(description="Whether it is also told when an incident is over.")]
    is_enabled: bool
    created_at: Moment
    created_by: str
    secret: Annotated[
        str | UnsetType,
        Meta(description="What signs a webhook, where none was given: in the answer that makes the route, this once."),
    ] = UNSET

    def __repr__(self) -> str:
        return f"AlertRoute(name={self.name!r})"


class Destination(Struct, frozen=True):
    """Where a message goes, with all that must not be shown."""

    name: str
    kind: RouteKind
    url: str
    secret: str | None

    def __repr__(self) -> str:
        return f"Destination(name={self.name!r})"


class NewRoute(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    kind: RouteKind
    url: Annotated[str, Meta(max_length=2_000, pattern="^https?://[^/]")]
    secret: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1_000)] | None,
        Meta(description="Signs a webhook, made up where none is given; the routing key of PagerDuty."),
    ] = None
    owners: list[str] = []
    namespaces: list[str] = []
    severities: list[str] = []
    is_default: bool = False
    tells_resolved: bool = True
    is_enabled: bool = True

    def __repr__(self) -> str:
        return f"NewRoute(name={self.name!r})"


class RouteChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays."""

    name: Annotated[str, Meta(min_length=1, max_length=100)] | UnsetType = UNSET
    url: Annotated[str, Meta(max_length=2_000, pattern="^https?://[^/]")] | UnsetType = UNSET
    secret: Annotated[str, Meta(min_length=1, max_length=1_000)] | UnsetType | None = UNSET
    owners: list[str] | UnsetType = UNSET
    namespaces: list[str] | UnsetType = UNSET
    severities: list[str] | UnsetType = UNSET
    is_default: bool | UnsetType = UNSET
    tells_resolved: bool | UnsetType = UNSET
    is_enabled: bool | UnsetType = UNSET

    def __repr__(self) -> str:
        return "RouteChange(…)"


def list_routes(connection: psycopg.Connection[Any]) -> list[AlertRoute]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return [_shown(row) for row in cursor.execute(_LIST.encode())]


def add_route(connection: psycopg.Connection[Any], route: NewRoute, *, actor: str) -> AlertRoute:
    """Of a webhook without a secret one is made up, and shown in what is returned: nobody can read it again."""
    if route.kind == "pagerduty" and route.secret is None:
        raise RouteError("PagerDuty takes nothing without a routing key: give the integration's key as the secret.")
    made_up = secrets.token_urlsafe(_SECRET_BYTES) if route.kind == "webhook" and route.secret is None else None
    values = {**structs.asdict(route), "secret": route.secret or made_up, "actor": actor}
    added = _written(connection, _ADD, values, route.name)
    assert added is not None  # noqa: S101 (RETURNING)
    return added if made_up is None else structs.replace(added, secret=made_up)


def routes_in_use(connection: psycopg.Connection[Any]) -> list[AlertRoute]:
    return [route for route in list_routes(connection) if route.is_enabled]


def destination(connection: psycopg.Connection[Any], number: int) -> Destination | None:
    """None if there is no such route."""
    row = connection.execute(_FIND, [number]).fetchone()
    return None if row is None else Destination(*row)


def change_route(connection: psycopg.Connection[Any], number: int, change: RouteChange) -> AlertRoute | None:
    """None if there is no such route."""
    said = {name: value for name, value in structs.asdict(change).items() if value is not UNSET}
    sets = ", ".join(f"{name} = %({name})s" for name in said) or "name = name"
    query = f"UPDATE kept.alert_routes SET {sets} WHERE id = %(id)s RETURNING {_COLUMNS}"  # noqa: S608 (our own fields)
    return _written(connection, query, {**said, "id": number}, str(said.get("name", "")))


def remove_route(connection: psycopg.Connection[Any], number: int) -> bool:
    return connection.execute("DELETE FROM kept.alert_routes WHERE id = %s", [number]).rowcount == 1


def _written(connection: psycopg.Connection[Any], query: str, values: dict[str, Any], name: str) -> AlertRoute | None:
    try:
        with connection.transaction(), connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(query.encode(), values).fetchone()
    except UniqueViolation:
        raise RouteError(f"There is already a route named {name!r}.") from None
    return None if row is None else _shown(row)


def _shown(row: dict[str, Any]) -> AlertRoute:
    parts = urlsplit(row["url"])
    host = parts.netloc.rpartition("@")[2]
    return AlertRoute(**{**row, "url": f"{parts.scheme}://{host}/…"})
