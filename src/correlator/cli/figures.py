"""What a running Correlator has done so far, read from its database every second."""

import threading
import time
from collections import deque
from typing import Any, Final, NamedTuple, Self

import psycopg

from correlator.alerts import outbox
from correlator.cli.parts import Parts
from correlator.correlation.incident_list import Filters, incident_counts
from correlator.store.alert_routes import routes_in_use
from correlator.store.database import Database
from correlator.store.ledger import LOG, lag_of_facts, lags, source_totals

_EVERY: Final = 1.0
_RATE_SECONDS: Final = 10.0
_PATIENCE: Final = "SET statement_timeout = '5s'"
_LATE: Final = 60.0

_KEPT: Final = """
SELECT head.position, rejects.events FROM kept.log_head AS head, kept.reject_totals AS rejects
"""


class Figures(NamedTuple):
    events: int
    """Stored by the server, or read from Kafka and files."""
    events_a_second: float
    rejected: int
    """Rejected events that are kept."""
    lag_events: int
    lag_seconds: float
    incidents: int
    """Open ones."""
    roots: int
    """Those among them that are no consequence of another."""


class FigureWatch:
    """Used as a context: a thread that looks, and that tells how the database and the alerts are."""

    def __init__(self, database: Database, parts: Parts, *, sends_alerts: bool) -> None:
        self.figures: Figures | None = None
        self._database = database
        self._parts = parts
        self._sends_alerts = sends_alerts
        self._restarts = database.restarts
        self._seen: deque[tuple[float, int]] = deque()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="correlator-figures", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(10)
        if self._sends_alerts:
            self._parts.tell("alerts", "stopped")

    def _run(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        while not self._stopping.is_set():
            try:
                if connection is None:
                    connection = self._database.connect("status", autocommit=True)
                    connection.execute(_PATIENCE)
                self._look(connection)
                version = connection.info.parameter_status("server_version") or ""
                self._parts.tell("database", "up", f"PostgreSQL {version.partition(' ')[0]}")
            except psycopg.Error as error:
                self._parts.tell("database", "down", str(error).strip().partition("\n")[0])
                self._parts.tell("alerts", "down" if self._sends_alerts else "off", "waits for the database")
                if connection is not None:
                    connection.close()
                connection = None
            self._look_for_restarts()
            self._stopping.wait(_EVERY)
        if connection is not None:
            connection.close()

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        row = connection.execute(_KEPT).fetchone()
        stored, rejected = (0, 0) if row is None else row
        others = sum(totals.read for totals in source_totals(connection) if totals.source != LOG)
        lag = lag_of_facts(lags(connection))
        counts = incident_counts(connection, Filters(status="open"))
        events = stored + others
        self.figures = Figures(
            events, self._rate(events), rejected, max(0, lag.events), lag.seconds, counts.total, counts.roots
        )
        if self._sends_alerts:
            self._parts.tell("alerts", "up", _alerts(len(routes_in_use(connection)), outbox.figures(connection)))
        else:
            self._parts.tell("alerts", "off", "--no-send-alerts")

    def _rate(self, events: int) -> float:
        now = time.monotonic()
        self._seen.append((now, events))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _RATE_SECONDS:  # noqa: PLR2004 (from the first to the last)
            self._seen.popleft()
        began, had = self._seen[0]
        return (events - had) / (now - began) if now > began else 0.0

    def _look_for_restarts(self) -> None:
        for _ in range(self._restarts, self._database.restarts):
            self._parts.note("the database had died and was started again", restarted="database")
        self._restarts = self._database.restarts


def _alerts(routes: int, figures: outbox.Figures) -> str:
    if figures.pending and figures.oldest_seconds > _LATE:
        return f"{figures.pending:,} wait for a receiver that does not take them: correlator alerts list"
    if not routes:
        return "nobody is told yet: correlator alerts routes add"
    return f"{routes} route{'s' if routes > 1 else ''}, {figures.sent:,} sent"
