"""Whether the database can be used: there, new enough, migrated, and of one mind about the time."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import psycopg

from correlator.cli.database import embedded_directory, open_database, place_of
from correlator.cli.doctor.finding import Finding
from correlator.cli.options import CouldNotTellError
from correlator.config import CommonSettings
from correlator.setting_kinds import show_duration
from correlator.store.database import Database
from correlator.store.installation import EmbeddedPostgresError, wheel_installations
from correlator.store.migrations import MigrationError, pending

_OLDEST_POSTGRESQL: Final = 15
_SMALL_SKEW_SECONDS: Final = 1.0
_LARGE_SKEW_SECONDS: Final = 30.0
_FUTURE: Final = timedelta(minutes=5)
"""Clocks of producers may be that much ahead before it is worth a word."""
_MOST_COUNTED: Final = 1_000

# The times of events are what the index of known events begins with: one range of it, and no more than is counted.
_EVENTS_AHEAD: Final = """
SELECT count(*), extract(epoch FROM max(event_time) - clock_timestamp())::float8
FROM (
    SELECT event_time FROM kept.lineage_event_idempotency
    WHERE event_time > clock_timestamp() + %s
    ORDER BY event_time DESC
    LIMIT %s
) AS ahead
"""


def database(settings: CommonSettings) -> Iterator[Finding]:
    """The database, and where it answers its clock."""
    if settings.database_url is None and not embedded_directory(settings).exists():
        yield _embedded_to_come(settings)
        return
    try:
        with open_database(settings) as found:
            yield from _looked_at(found, is_embedded=settings.database_url is None)
    except CouldNotTellError as error:
        yield Finding("database", "problem", error.message, _advice(settings))


def _embedded_to_come(settings: CommonSettings) -> Finding:
    try:
        newest = wheel_installations()[0]
    except EmbeddedPostgresError as error:
        return Finding("database", "problem", str(error), None)
    said = f"The first start will make an embedded PostgreSQL {newest.version} in {embedded_directory(settings)}"
    return Finding("database", "ok", said)


def _advice(settings: CommonSettings) -> str:
    if settings.database_url is None:
        return "The embedded PostgreSQL could not be started; its own log is in log/ beside its data."
    return (
        "See that it runs and can be reached from here, and that database_url is right (`correlator config` tells it)."
    )


def _looked_at(found: Database, *, is_embedded: bool) -> Iterator[Finding]:
    with found.connect("doctor", autocommit=True) as connection:
        number = connection.info.server_version
        major = number // 10_000
        said = f"PostgreSQL {major}.{number % 10_000}, {'embedded' if is_embedded else place_of(found.url)}"
        try:
            missing = pending(found)
        except MigrationError as error:
            yield Finding("database", "problem", f"{said}: its schema is not ours.", str(error))
            return
        if major < _OLDEST_POSTGRESQL:
            advice = f"Correlator needs PostgreSQL {_OLDEST_POSTGRESQL} or newer."
            yield Finding("database", "problem", f"{said} is too old.", advice)
        elif missing:
            yield Finding(
                "database",
                "warning",
                f"{said}; {len(missing)} migrations are pending, from {missing[0]} on.",
                "`correlator migrate` applies them, as `correlator serve` and `correlator up` do when they start.",
            )
        else:
            yield Finding("database", "ok", f"{said}, up to date")
        yield clock(connection)
        if not missing:
            yield events_ahead(connection)


def clock(connection: psycopg.Connection[Any], now: Callable[[], float] = time.time) -> Finding:
    before = now()
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    after = now()
    assert row is not None  # noqa: S101 (a SELECT without FROM has a row)
    # What may be the way of the answer is not taken for a difference.
    skew = max(before - row[0], row[0] - after, 0.0)
    if skew <= _SMALL_SKEW_SECONDS:
        return Finding("clock", "ok", "This machine and the database have the same time")
    said = f"This machine and the database differ by {show_duration(round(skew, 1))}."
    advice = (
        "Have both set by NTP (timedatectl tells whether one is): the ages, lags and alerts are told by these clocks."
    )
    return Finding("clock", "problem" if skew > _LARGE_SKEW_SECONDS else "warning", said, advice)


def events_ahead(connection: psycopg.Connection[Any]) -> Finding:
    row = connection.execute(_EVENTS_AHEAD, [_FUTURE, _MOST_COUNTED]).fetchone()
    assert row is not None  # noqa: S101 (an aggregate without GROUP BY has a row)
    count, seconds = row
    if not count:
        return Finding("times of events", "ok", "No event of late is ahead of the clock")
    many = f"{_MOST_COUNTED:,} events of late or more" if count == _MOST_COUNTED else f"{count:,} events of late"
    return Finding(
        "times of events",
        "warning",
        f"{many} have times in the future, the furthest by {seconds / 3600:,.1f} hours.",
        "The clock of a sender is wrong, or it sends local time as UTC. Until that time comes such events count as the "
        "last word on their runs. `correlator producers` tells who sends.",
    )
