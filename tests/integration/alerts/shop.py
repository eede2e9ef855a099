"""A small shop whose tests fail now: raw → staged → mart, told of as the pipeline tells."""

from datetime import UTC, datetime
from typing import Any

import psycopg

from correlator.alerts.decisions import Decisions
from correlator.config import AlertSettings
from correlator.store.alert_routes import AlertRoute, NewRoute, add_route
from correlator.store.database import Database
from tests.integration.correlation.stories import checked, owned, ran, tell
from tests.unit.rulebook.histories import BEGINNING

Connection = psycopg.Connection[Any]


def ago(minutes: float) -> float:
    """A moment as stories have it."""
    return (datetime.now(UTC) - BEGINNING).total_seconds() / 60 - minutes


def open_shop(connection: Connection, *, end: float = 0) -> None:
    """All is well, and then a load goes wrong; `end` is how long ago all of this ended."""
    tell(
        connection,
        ran("load", "load good", ago(end + 90), ago(end + 89), writes=[owned("raw", "team-raw")]),
        checked("raw", "raw good", ago(end + 88), good=True),
        ran("stage", "stage good", ago(end + 86), ago(end + 85), reads=["raw"], writes=["staged"]),
        checked("staged", "staged good", ago(end + 84), good=True),
        ran("load", "load bad", ago(end + 30), ago(end + 29), writes=[owned("raw", "team-raw")]),
        ran("stage", "stage bad", ago(end + 28), ago(end + 27), reads=["raw"], writes=["staged"]),
        ran("mart", "mart bad", ago(end + 26), ago(end + 25), reads=["staged"], writes=["mart"]),
    )


def raw_fails(connection: Connection, name: str = "raw bad", minutes: float = 20, **said: Any) -> None:
    tell(connection, checked("raw", name, ago(minutes), good=False, **said))


def staged_fails(connection: Connection, name: str = "staged bad", minutes: float = 18) -> None:
    tell(connection, checked("staged", name, ago(minutes), good=False))


def raw_passes(connection: Connection, minutes: float = 5) -> None:
    tell(connection, checked("raw", "raw good again", ago(minutes), good=True))


def settings(**said: Any) -> AlertSettings:
    """Nothing has to be waited for, and this machine may be told."""
    usual: dict[str, Any] = {"alerts_allow_private": True, "alert_backoff": 0.01, "alert_backoff_max": 0.02}
    return AlertSettings(**(usual | said))


def add(connection: Connection, name: str = "all", url: str = "http://127.0.0.1:9/", **said: Any) -> AlertRoute:
    new = NewRoute(**{"name": name, "kind": "webhook", "url": url, "secret": "hush", **said})
    return add_route(connection, new, actor="test")


def let_time_pass(connection: Connection, seconds: float = 3600) -> None:
    """For all that was seen, and for all that waits to be sent."""
    connection.execute("UPDATE kept.alert_watch SET seen_at = seen_at - make_interval(secs => %s)", [seconds])
    connection.execute(
        "UPDATE kept.alert_watch SET due_at = due_at - make_interval(secs => %s) WHERE due_at > '-infinity'", [seconds]
    )


def decide(connection: Connection, **said: Any) -> None:
    """After what there is to wait for; twice, since what is decided must stand."""
    let_time_pass(connection)
    for _ in range(2):
        while Decisions(settings(**said)).decide(connection):
            pass


def told(connection: Connection) -> list[tuple[str, str, str]]:
    """Route, event and title of all that was decided, in order."""
    query = (
        "SELECT route.name, message.event, message.title FROM kept.alert_outbox AS message "
        "JOIN kept.alert_routes AS route ON route.id = message.route_id ORDER BY message.id"
    )
    return connection.execute(query).fetchall()


def connected(database: Database) -> Connection:
    return database.connect("test", autocommit=True)
