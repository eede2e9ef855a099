"""Messages on their way. What is written here was decided; from here it is sent until it is taken or given up.

Whoever sends a message leases it: nobody else takes it before its time is over, so two servers on one database never
send the same, and what a process had when it died is sent by another. All times are the database's.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import psycopg
from msgspec import Struct
from psycopg.rows import class_row

from correlator.alerts.payloads import Alert, rendered
from correlator.store.alert_routes import AlertRoute, Destination, RouteKind
from correlator.store.moments import Moment

State: TypeAlias = Literal["pending", "sent", "failed"]

_PUT: Final = """
INSERT INTO kept.alert_outbox (route_id, about, event, occasion, title, payload, key)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT ON CONSTRAINT alert_outbox_once DO NOTHING
"""

# The first that waits on each route, unless something about the same waits before it: a probe of an index each.
_LEASE: Final = """
WITH due AS MATERIALIZED (
    SELECT DISTINCT ON (message.route_id) message.id
    FROM kept.alert_outbox AS message JOIN kept.alert_routes AS route ON route.id = message.route_id
    WHERE message.sent_at IS NULL AND message.given_up_at IS NULL AND message.due_at <= now() AND route.is_enabled
      AND (message.leased_until IS NULL OR message.leased_until <= now())
      AND message.route_id <> ALL (%(busy)s::bigint[])
      AND NOT EXISTS (
          SELECT FROM kept.alert_outbox AS before
          WHERE before.route_id = message.route_id AND before.about = message.about AND before.id < message.id
            AND before.sent_at IS NULL AND before.given_up_at IS NULL
      )
    ORDER BY message.route_id, message.id
), taken AS MATERIALIZED (
    SELECT id FROM kept.alert_outbox
    WHERE id IN (SELECT id FROM due) AND sent_at IS NULL AND given_up_at IS NULL AND due_at <= now()
      AND (leased_until IS NULL OR leased_until <= now())
    ORDER BY id LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
)
UPDATE kept.alert_outbox AS message
SET leased_until = now() + make_interval(secs => %(lease)s), attempts = message.attempts + 1
FROM taken, kept.alert_routes AS route
WHERE message.id = taken.id AND route.id = message.route_id
RETURNING route.name, route.kind, route.url, route.secret, message.id, message.route_id, message.key, message.event,
          message.title, message.payload, message.attempts,
          extract(epoch FROM now() - message.created_at)::float8 AS age
"""

_SENT: Final = """
WITH message AS (
    UPDATE kept.alert_outbox SET sent_at = now(), given_up_at = NULL, leased_until = NULL, last_error = NULL
    WHERE id = %s AND sent_at IS NULL
    RETURNING id
)
UPDATE kept.alert_totals SET sent = sent + 1 WHERE EXISTS (SELECT FROM message)
"""

_POSTPONE: Final = """
UPDATE kept.alert_outbox SET due_at = now() + make_interval(secs => %s), leased_until = NULL, last_error = %s
WHERE id = %s AND sent_at IS NULL
"""
_HOLD_ROUTE: Final = """
UPDATE kept.alert_outbox SET due_at = greatest(due_at, now() + make_interval(secs => %s))
WHERE route_id = %s AND sent_at IS NULL AND given_up_at IS NULL
"""

# With what was to follow it.
_GIVE_UP: Final = """
WITH message AS (
    UPDATE kept.alert_outbox SET given_up_at = now(), leased_until = NULL, last_error = %(words)s
    WHERE id = %(id)s AND sent_at IS NULL AND given_up_at IS NULL
    RETURNING id, route_id, about, occasion
), following AS (
    UPDATE kept.alert_outbox AS next
    SET given_up_at = now(), last_error = 'The message that it follows was given up.'
    FROM message
    WHERE next.route_id = message.route_id AND next.about = message.about AND next.occasion = message.occasion
      AND next.id > message.id AND next.sent_at IS NULL AND next.given_up_at IS NULL
    RETURNING next.id
)
UPDATE kept.alert_totals
SET failed = failed + (SELECT count(*) FROM message) + (SELECT count(*) FROM following)
"""

# Those that were told that it began, and have not been given up on.
_TOLD: Final = """
SELECT message.route_id FROM kept.alert_outbox AS message
WHERE message.about = %s AND message.occasion = %s AND message.event = 'opened' AND message.given_up_at IS NULL
"""

_STATE: Final = (
    "CASE WHEN message.sent_at IS NOT NULL THEN 'sent' WHEN message.given_up_at IS NOT NULL THEN 'failed' "
    "ELSE 'pending' END"
)
_LIST: Final = f"""
SELECT message.id, {_STATE} AS state, route.name AS route, route.kind, message.event, message.about, message.title,
       message.created_at, message.attempts, CASE WHEN {_STATE} = 'pending' THEN message.due_at END AS due_at,
       message.sent_at, message.given_up_at, message.last_error
FROM kept.alert_outbox AS message JOIN kept.alert_routes AS route ON route.id = message.route_id
WHERE (%(state)s::text IS NULL OR {_STATE} = %(state)s) AND (%(before)s::bigint IS NULL OR message.id < %(before)s)
ORDER BY message.id DESC LIMIT %(limit)s
"""  # noqa: S608 (constants of this module)

_RETRY: Final = """
UPDATE kept.alert_outbox SET given_up_at = NULL, due_at = now(), created_at = now(), attempts = 0
WHERE sent_at IS NULL AND (given_up_at IS NOT NULL OR (last_error IS NOT NULL AND due_at > now()))
  AND (%(ids)s::bigint[] IS NULL OR id = ANY (%(ids)s::bigint[]))
"""

_FIGURES: Final = """
SELECT totals.sent, totals.failed, waiting.pending, waiting.oldest
FROM kept.alert_totals AS totals, (
    SELECT count(*) AS pending, coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 AS oldest
    FROM kept.alert_outbox WHERE sent_at IS NULL AND given_up_at IS NULL
) AS waiting
"""

# Whoever was told that something began is told when it is over: until then it has to be known.
_FORGET: Final = """
DELETE FROM kept.alert_outbox WHERE id IN (
    SELECT id FROM kept.alert_outbox
    WHERE coalesce(sent_at, given_up_at) < now() - %s
      AND about NOT IN (SELECT failure_id::text FROM kept.alert_watch WHERE told_at IS NOT NULL)
    ORDER BY id LIMIT 1000
)
"""
# Nobody has looked at it for so long that nobody will.
_FORGET_UNSEEN: Final = """
DELETE FROM kept.alert_watch WHERE told_at IS NULL AND seen_at < now() - %s
"""


class Message(Struct, frozen=True):
    """One that was leased."""

    destination: Destination
    id: int
    route_id: int
    key: UUID
    event: str
    title: str
    payload: bytes
    attempts: int
    age: float
    """Seconds since it was written."""


class Listed(Struct, frozen=True, kw_only=True):
    """One as it may be shown."""

    id: int
    state: State
    route: str
    kind: RouteKind
    event: str
    about: str
    title: str
    created_at: Moment
    attempts: int
    due_at: Moment | None
    sent_at: Moment | None
    given_up_at: Moment | None
    last_error: str | None


class Figures(Struct, frozen=True):
    sent: int
    failed: int
    pending: int
    oldest_seconds: float
    """How long the oldest of them has waited."""


def put(connection: psycopg.Connection[Any], alert: Alert, route: AlertRoute, occasion: int = 0) -> bool:
    """Within the transaction that decides. False if this route was told already."""
    values = [
        route.id,
        alert.about,
        alert.event,
        occasion,
        alert.title,
        rendered(alert, route.kind),
        alert.key,
    ]
    return connection.execute(_PUT, values).rowcount == 1


def routes_told(connection: psycopg.Connection[Any], about: str, occasion: int = 0) -> set[int]:
    return {route for (route,) in connection.execute(_TOLD, [about, occasion])}


def lease(connection: psycopg.Connection[Any], *, busy: Collection[int], most: int, seconds: float) -> list[Message]:
    """Some that are due, at most one for each route that is not busy."""
    rows = connection.execute(_LEASE, {"busy": list(busy), "most": most, "lease": seconds})
    return [Message(Destination(*row[:4]), *row[4:]) for row in rows]


def taken(connection: psycopg.Connection[Any], message: Message) -> None:
    connection.execute(_SENT, [message.id])


def postpone(
    connection: psycopg.Connection[Any], message: Message, words: str, seconds: float, *, whole_route: bool
) -> None:
    connection.execute(_POSTPONE, [seconds, words, message.id])
    if whole_route:
        connection.execute(_HOLD_ROUTE, [seconds, message.route_id])


def give_up(connection: psycopg.Connection[Any], message: Message, words: str) -> None:
    connection.execute(_GIVE_UP, {"id": message.id, "words": words})


def listed(
    connection: psycopg.Connection[Any], *, state: State | None = None, limit: int = 50, before: int | None = None
) -> list[Listed]:
    """The newest first; those before a number."""
    with connection.cursor(row_factory=class_row(Listed)) as cursor:
        return cursor.execute(_LIST.encode(), {"state": state, "limit": limit, "before": before}).fetchall()


def retry(connection: psycopg.Connection[Any], ids: Collection[int] | None = None) -> int:
    """What was given up, or waits after an error, is due at once and as good as new. Says how many."""
    return connection.execute(_RETRY, {"ids": None if ids is None else list(ids)}).rowcount


def figures(connection: psycopg.Connection[Any]) -> Figures:
    row = connection.execute(_FIGURES).fetchone()
    assert row is not None  # noqa: S101 (one row, always)
    return Figures(*row)


def forget(connection: psycopg.Connection[Any], kept: timedelta) -> None:
    """What was done with longer ago."""
    for query in (_FORGET, _FORGET_UNSEEN):
        connection.execute(query, [kept])
