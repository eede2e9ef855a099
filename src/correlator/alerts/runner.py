"""The thread that tells: it looks, decides, and sends, until it is stopped.

It survives a database that goes away, and forgets nothing that a receiver has said meanwhile: what was taken is written
down before anything else is sent.
"""

import logging
import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final, Self

import psycopg

from correlator.alerts import outbox
from correlator.alerts.decisions import Decisions
from correlator.alerts.delivery import Outcome, send
from correlator.alerts.outbox import Message
from correlator.alerts.payloads import addressed
from correlator.config import AlertSettings
from correlator.correlation.incident_detail import Reach
from correlator.store.database import Database
from correlator.store.moments import read_any_moment

_log = logging.getLogger("correlator.alerts")

_SENDERS: Final = 4
"""Receivers that are talked to at once; each has one message at a time."""
_BEYOND_TIMEOUT: Final = 60.0
"""For a name that takes long to resolve, and for writing down what became of it."""
_PATIENCE: Final = "SET statement_timeout = '30s'"
_LOOKS_A_LAG: Final = 5
_DOUBLINGS: Final = 20


class AlertRunner:
    """Used as a context: it runs within it. Several on one database share the work."""

    def __init__(
        self,
        database: Database,
        settings: AlertSettings,
        reach: Reach = Reach(),  # noqa: B008 (frozen)
        *,
        pause: float = 1.0,
    ) -> None:
        self._database = database
        self._settings = settings
        self._pause = pause
        self._decisions = Decisions(settings, reach)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="correlator-alerts", daemon=True)
        self._senders = ThreadPoolExecutor(_SENDERS, "correlator-alerts")
        self._sending: dict[Future[Outcome], Message] = {}
        self._looks = 0

    def __enter__(self) -> Self:
        if self._settings.send_alerts:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(self._settings.alert_timeout + 10)
        self._senders.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        is_away = False
        while not self._stopping.is_set():
            try:
                if connection is None:
                    connection = self._database.connect("alerts", autocommit=True)
                    connection.execute(_PATIENCE)
                    read_any_moment(connection)
                is_more = self._look(connection)
                is_away = False
                if is_more:
                    continue
            except psycopg.Error as error:
                if not is_away:
                    _log.warning("alerts have to wait: %s", str(error).strip().partition("\n")[0])
                is_away = True
                if connection is not None:
                    connection.close()
                connection = None
            except Exception:  # noqa: BLE001 (the next look may go well; a thread that is gone tells nobody anything)
                _log.exception("alerts could not be looked after; they are again in a moment")
            self._rest()
        if connection is not None:
            self._finish(connection)
            connection.close()

    def _look(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether there is more to do at once."""
        self._write_down(connection)
        is_more = self._decisions.decide(connection)
        if self._looks % _LOOKS_A_LAG == 0:
            self._decisions.look_at_pipeline(connection)
        self._looks += 1
        self._dispatch(connection)
        return is_more

    def _rest(self) -> None:
        """Until it is time to look again, or a message is through."""
        if self._sending:
            wait(self._sending, self._pause, return_when="FIRST_COMPLETED")
        else:
            self._stopping.wait(self._pause)

    def _dispatch(self, connection: psycopg.Connection[Any]) -> None:
        free = _SENDERS - len(self._sending)
        if free <= 0 or self._stopping.is_set():
            return
        busy = {message.route_id for message in self._sending.values()}
        seconds = self._settings.alert_timeout + _BEYOND_TIMEOUT
        for message in outbox.lease(connection, busy=busy, most=free, seconds=seconds):
            self._sending[self._senders.submit(self._send, message)] = message

    def _send(self, message: Message) -> Outcome:
        return send(
            message.destination,
            addressed(message.payload, message.destination),
            key=str(message.key),
            timeout=self._settings.alert_timeout,
            allow_private=self._settings.alerts_allow_private,
        )

    def _write_down(self, connection: psycopg.Connection[Any]) -> None:
        """What became of what was sent. What the database did not take is kept and written down later."""
        for future in [future for future in self._sending if future.done()]:
            self._write_down_one(connection, self._sending[future], _outcome(future))
            del self._sending[future]

    def _write_down_one(self, connection: psycopg.Connection[Any], message: Message, outcome: Outcome) -> None:
        if outcome.is_taken:
            outbox.taken(connection, message)
            _log.info("route %r took: %s (%s)", message.destination.name, message.title, message.event)
            return
        pause = self._backoff(message.attempts)
        if outcome.retry_after is not None:
            pause = max(pause, outcome.retry_after)
        left = self._settings.alert_give_up - message.age
        if left <= 0:
            outbox.give_up(connection, message, outcome.words)
            _log.error(
                "an alert is given up after %d attempts (alert_give_up): %r on route %r: %s; "
                "`correlator alerts retry` tries again",
                message.attempts,
                message.title,
                message.destination.name,
                outcome.words,
            )
            return
        whole_route = outcome.retry_after is not None
        outbox.postpone(connection, message, outcome.words, min(pause, left), whole_route=whole_route)
        if message.attempts == 1:
            _log.warning("route %r does not take alerts: %s; tried again", message.destination.name, outcome.words)

    def _backoff(self, attempts: int) -> float:
        """Twice as long each time, and never all at the same moment."""
        doubled = self._settings.alert_backoff * 2.0 ** min(attempts - 1, _DOUBLINGS)
        return min(doubled, self._settings.alert_backoff_max) * random.uniform(0.5, 1.0)  # noqa: S311 (no secret)

    def _finish(self, connection: psycopg.Connection[Any]) -> None:
        """What is on its way is waited for, so that nobody sends it again."""
        wait(self._sending, self._settings.alert_timeout)
        try:
            self._write_down(connection)
        except psycopg.Error as error:
            _log.warning("what became of an alert could not be written down: %s", str(error).partition("\n")[0])


def _outcome(future: Future[Outcome]) -> Outcome:
    error = future.exception()
    if error is None:
        return future.result()
    _log.error("an alert could not be sent, by a fault of ours", exc_info=error)
    return Outcome(is_taken=False, words=f"It could not be sent: {type(error).__name__}.")
