"""What has to be done now and then beside the requests: forgetting, folding, dropping, and saying so."""

import logging
import threading
from datetime import timedelta
from typing import Final

import msgspec
import psycopg

from correlator.alerts import outbox
from correlator.correlation.incident_list import Unresolved, unresolved_counts
from correlator.store import retention
from correlator.store.database import Database
from correlator.store.ledger import Lag, SourceTotals, lags, source_totals

_log = logging.getLogger("correlator.server.housekeeping")

# Of all servers on one database one keeps house.
_LOCK: Final = 4_017_283_002
_LEDGER_KEPT: Final = timedelta(days=2)

_LOOK: Final = """
SELECT head.position, rejects.events, rejects.bytes, rejects.capped_events, rejects.capped_bytes
FROM kept.log_head AS head, kept.reject_totals AS rejects
"""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """How long, and how much."""

    idempotency: timedelta = timedelta(hours=24)
    log: timedelta = timedelta(days=7)
    rejects: timedelta = timedelta(days=30)
    reject_bytes: int = 1_000_000_000
    alerts: timedelta = timedelta(days=30)


class Sight(msgspec.Struct, frozen=True):
    """What was last seen in the database."""

    log_head: int
    rejected_events: int
    rejected_bytes: int
    capped_events: int
    capped_bytes: int
    pipeline: list[SourceTotals]
    lags: list[Lag]
    alerts: outbox.Figures
    incidents: list[Unresolved]


class Housekeeping:
    """A thread that looks every few seconds and cleans up every minute."""

    def __init__(self, database: Database, kept: Kept, *, look: float = 2.0, clean: float = 60.0) -> None:
        self._database = database
        self._kept = kept
        self._look = look
        self._looks_a_clean = max(1, round(clean / look))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="correlator-housekeeping", daemon=True)
        self.sight: Sight | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        connection: psycopg.Connection | None = None
        looks = 0
        is_away = False
        while not self._stop.is_set():
            try:
                if connection is None:
                    connection = self._database.connect("housekeeping", autocommit=True)
                self.sight = _sight(connection)
                # More rejects than they may take cannot wait for the minute to end.
                if looks % self._looks_a_clean == 0 or self.sight.rejected_bytes > self._kept.reject_bytes:
                    self.clean(connection)
                looks += 1
                is_away = False
            except psycopg.Error as error:
                if not is_away:
                    _log.warning("housekeeping has to wait: %s", str(error).strip().partition("\n")[0])
                is_away = True
                if connection is not None:
                    connection.close()
                connection = None
            self._stop.wait(self._look)
        if connection is not None:
            connection.close()

    def clean(self, connection: psycopg.Connection) -> None:
        row = connection.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK]).fetchone()
        if row is None or not row[0]:
            return
        try:
            # Tomorrow's before anybody needs it.
            connection.execute("SELECT kept.ensure_log_partition(now() + interval '1 day')")
            retention.forget_keys(connection, self._kept.idempotency)
            retention.fold_ledger(connection, _LEDGER_KEPT)
            retention.fold_pipeline_ledger(connection, _LEDGER_KEPT)
            retention.drop_old_rejects(connection, self._kept.rejects)
            capped = retention.cap_rejects(connection, self._kept.reject_bytes)
            if capped.events:
                _log.warning(
                    "rejected events took more than %s bytes (rejects_max_bytes): the oldest %s (%s bytes) are gone",
                    f"{self._kept.reject_bytes:,}",
                    f"{capped.events:,}",
                    f"{capped.bytes:,}",
                )
            outbox.forget(connection, self._kept.alerts)
            for day in retention.drop_log_days(connection, self._kept.log):
                _log.info("the log's day %s was dropped: every reader and the archive have it", day)
        finally:
            if not connection.closed:
                connection.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])


def _sight(connection: psycopg.Connection) -> Sight:
    row = connection.execute(_LOOK).fetchone()
    assert row is not None  # noqa: S101 (two tables of one row each)
    return Sight(
        *(*row, source_totals(connection), lags(connection), outbox.figures(connection), unresolved_counts(connection))
    )
