"""Who has to be told of what: of an incident once, when it begins and when it is over, and of a pipeline that lags.

An incident waits a moment for its root to arrive (`group_wait`): by then it is clear whether it is a consequence of
another, of which somebody is told anyway. Where the root is a run that no test looks at, the first incident that it is
named for stands for all. What is decided is written into the outbox in the same transaction.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias
from uuid import UUID, uuid4

import psycopg
from msgspec import Struct

from correlator.alerts import outbox
from correlator.alerts.payloads import PIPELINE, Alert, Event, of_gone, of_incident, of_pipeline, of_unexplained
from correlator.alerts.routes import Subject, routes_for
from correlator.config import AlertSettings
from correlator.correlation.history import History
from correlator.correlation.ignored import Ignored
from correlator.correlation.incident_detail import IncidentDetail, Reach, incident_detail
from correlator.correlation.incidents import Incident, incident_with
from correlator.store.alert_routes import AlertRoute, routes_in_use
from correlator.store.ledger import Lag, facts_as_of, lag_of_facts, lags

_Work: TypeAlias = Callable[[psycopg.Connection[Any], UUID], None]

_log = logging.getLogger("correlator.alerts")

# Of all servers on one database one decides at a time.
_LOCK: Final = "SELECT pg_try_advisory_xact_lock(4017283009)"
_AT_ONCE: Final = 20
"""Decisions between two looks at what waits to be sent: to explain an incident takes a while."""
_LOOK_AGAIN: Final = 60.0
"""Seconds until a consequence, or what is muted, is looked at again: it may be neither by then."""
_OF_ITS_AGE: Final = 0.01
"""What has waited for days is looked at less often."""
_SURE: Final = 0.5
"""The least strength of evidence for which a run counts as the reason."""

_ANYTHING: Final = """
SELECT EXISTS (SELECT FROM kept.alert_watch WHERE told_at IS NULL),
       EXISTS (SELECT FROM kept.alert_watch WHERE told_at IS NOT NULL)
"""
# Whoever waits, in the order of their time. What came after it was found is in the facts too, as far as it has come; a
# pipeline that does not move holds nobody up for ever.
_DUE: Final = """
SELECT failure_id FROM kept.alert_watch
WHERE told_at IS NULL AND due_at <= now()
  AND (seen_at + make_interval(secs => %(wait)s) <= %(as_of)s
       OR seen_at + make_interval(secs => %(wait)s + %(lag)s) <= now())
ORDER BY seen_at, failure_id LIMIT %(most)s
"""
# All at once of what is over, or too old when it came, and was never muted: a backfill may bring a hundred thousand.
_SWEEP: Final = """
DELETE FROM kept.alert_watch WHERE told_at IS NULL AND failure_id IN (
    SELECT seen.failure_id FROM kept.alert_watch AS seen
    LEFT JOIN facts.failures AS failure ON failure.id = seen.failure_id
    LEFT JOIN facts.incidents AS incident ON incident.id = failure.incident_id
    WHERE seen.told_at IS NULL AND seen.due_at <= now() AND (
        incident.id IS NULL OR incident.resolved_at IS NOT NULL
        OR (incident.opened_at < now() - make_interval(secs => %s) AND NOT seen.waits_for_another AND NOT EXISTS (
            SELECT FROM kept.incident_actions AS said
            WHERE said.subject_id = failure.subject_id AND said.kind IN ('mute', 'unmute')
        ))
    )
    LIMIT 10000
)
"""
_TAKE: Final = """
SELECT seen_at, cause, waits_for_another FROM kept.alert_watch
WHERE failure_id = %s AND told_at IS NULL FOR UPDATE SKIP LOCKED
"""
_MOVE: Final = """
INSERT INTO kept.alert_watch (failure_id, seen_at, cause, waits_for_another) VALUES (%s, %s, %s, %s)
ON CONFLICT (failure_id) DO NOTHING
"""
_FORGET: Final = "DELETE FROM kept.alert_watch WHERE failure_id = %s"
_POSTPONE: Final = "UPDATE kept.alert_watch SET due_at = now() + make_interval(secs => %s) WHERE failure_id = %s"
_WAIT: Final = """
UPDATE kept.alert_watch
SET due_at = now() + greatest(make_interval(secs => %s), (now() - seen_at) * %s), waits_for_another = true, cause = %s
WHERE failure_id = %s
"""
_TELL: Final = """
UPDATE kept.alert_watch SET told_at = now(), due_at = '-infinity', occasion = %s, title = %s, cause = %s
WHERE failure_id = %s
"""
# A root that comes after its consequence is better news, and an error is worse than a warning.
_TOLD_OF_CAUSE: Final = """
SELECT told.failure_id, told.occasion
FROM kept.alert_watch AS told
LEFT JOIN facts.failures AS failure ON failure.id = told.failure_id
LEFT JOIN facts.incidents AS incident ON incident.id = failure.incident_id
WHERE told.told_at IS NOT NULL AND told.cause = %s AND told.cause <> '' AND incident.root_id IS DISTINCT FROM %s
  AND (incident.severity IS DISTINCT FROM 'warn' OR %s = 'warn')
"""
# Another failure of the same incident of which somebody was told: the incident has begun earlier than was known then.
_TOLD: Final = """
SELECT FROM kept.alert_watch AS told JOIN facts.failures AS failure ON failure.id = told.failure_id
WHERE told.told_at IS NOT NULL AND failure.incident_id = %s LIMIT 1
"""
_LAST_MUTE: Final = """
SELECT CASE WHEN kind = 'mute' THEN until ELSE at END FROM kept.incident_actions
WHERE subject_id = %s AND kind IN ('mute', 'unmute') ORDER BY id DESC LIMIT 1
"""
_OCCASION: Final = """
SELECT coalesce(max(said.id), 0) FROM kept.incident_actions AS said
JOIN facts.failures AS failure ON failure.id = said.failure_id
WHERE said.subject_id = %s AND said.kind = 'reopen' AND failure.incident_id = %s
"""

# What was told and has changed since. A few probes for each that stands.
_STANDING: Final = """
SELECT told.failure_id, told.occasion, told.title, incident.id IS NULL OR incident.resolved_at IS NOT NULL AS is_over
FROM kept.alert_watch AS told
LEFT JOIN facts.failures AS failure ON failure.id = told.failure_id
LEFT JOIN facts.incidents AS incident ON incident.id = failure.incident_id
WHERE told.told_at IS NOT NULL AND told.due_at <= now() AND (%(only)s::uuid IS NULL OR told.failure_id = %(only)s) AND (
    incident.id IS NULL OR incident.resolved_at IS NOT NULL
    OR (told.acknowledged_at IS NULL AND EXISTS (
        SELECT FROM kept.incident_actions AS said JOIN facts.failures AS of ON of.id = said.failure_id
        WHERE said.subject_id = failure.subject_id AND said.kind = 'acknowledge' AND said.id > told.occasion
          AND of.incident_id = incident.id
          AND NOT EXISTS (
              SELECT FROM kept.incident_actions AS back
              WHERE back.subject_id = said.subject_id AND back.kind = 'unacknowledge' AND back.id > said.id
          )
    ))
)
ORDER BY told.failure_id LIMIT %(most)s
"""
_ACKNOWLEDGED: Final = "UPDATE kept.alert_watch SET acknowledged_at = now() WHERE failure_id = %s"

_ALARM: Final = "SELECT times, told_at FROM kept.pipeline_alarm FOR UPDATE"
_RAISE: Final = "UPDATE kept.pipeline_alarm SET times = times + 1, told_at = now()"
_CALL_OFF: Final = "UPDATE kept.pipeline_alarm SET told_at = NULL"


class _Seen(Struct, frozen=True):
    """That it may have to be told of."""

    at: datetime
    cause: str
    waits_for_another: bool


class _Changed(Struct, frozen=True):
    """What was told of, and is not as it was then."""

    failure_id: UUID
    occasion: int
    title: str
    is_over: bool


class Decisions:
    def __init__(self, settings: AlertSettings, reach: Reach = Reach()) -> None:  # noqa: B008 (frozen)
        self._settings = settings
        self._reach = reach

    def decide(self, connection: psycopg.Connection[Any]) -> bool:
        """On what is due, and whether there may be more. In autocommit: each decision is a transaction of its own."""
        row = connection.execute(_ANYTHING).fetchone()
        is_waiting, is_standing = (False, False) if row is None else row
        is_more = False
        if is_waiting:
            connection.execute(_SWEEP, [self._settings.alert_max_age])
            is_more = self._each(connection, self._due(connection), self._decide_on)
        if is_standing:
            rows = connection.execute(_STANDING, {"only": None, "most": _AT_ONCE}).fetchall()
            is_more |= self._each(connection, [failure for failure, *_ in rows], self._tell_change)
        return is_more

    def _each(self, connection: psycopg.Connection[Any], failures: Sequence[UUID], work: _Work) -> bool:
        """Whether there may be more for us."""
        for failure in failures:
            if not self._one(connection, failure, work):
                return False
        return len(failures) == _AT_ONCE

    def _one(self, connection: psycopg.Connection[Any], failure: UUID, work: _Work) -> bool:
        """False if it is another server's turn. Whatever is odd about one keeps nobody else from being told of."""
        try:
            with connection.transaction():
                if not _is_my_turn(connection):
                    return False
                work(connection, failure)
        except psycopg.OperationalError:
            raise
        except Exception:  # noqa: BLE001 (it is told, and the others have a right to be looked at)
            _log.exception("incident %s cannot be decided on; it is looked at again later", failure)
            connection.execute(_POSTPONE, [_LOOK_AGAIN, failure])
        return True

    def look_at_pipeline(self, connection: psycopg.Connection[Any]) -> None:
        """Tell once that it is behind, and once that it has caught up."""
        lag = lag_of_facts(lags(connection))
        # It has caught up when it is well below the limit, lest it be told again and again of a pipeline at the limit.
        is_late, is_well = lag.seconds > self._settings.alert_lag, lag.seconds <= self._settings.alert_lag / 2
        if not is_late and not is_well:
            return
        with connection.transaction():
            row = connection.execute("SELECT told_at IS NOT NULL FROM kept.pipeline_alarm").fetchone()
            was_told = row is not None and bool(row[0])
            if was_told == is_late or not _is_my_turn(connection):
                return
            row = connection.execute(_ALARM).fetchone()
            if row is None or (row[1] is not None) == is_late:
                return
            self._tell_lag(connection, lag, row[0] + is_late, is_late=is_late)

    def _tell_lag(self, connection: psycopg.Connection[Any], lag: Lag, times: int, *, is_late: bool) -> None:
        event: Event = "opened" if is_late else "resolved"
        connection.execute(_RAISE if is_late else _CALL_OFF)
        words = "is behind: %s events, the oldest has waited %.0f s" if is_late else "has caught up: %s events, %.0f s"
        _log.log(logging.WARNING if is_late else logging.INFO, f"the pipeline {words}", f"{lag.events:,}", lag.seconds)
        routes = routes_in_use(connection)
        chosen = routes_for(Subject(), routes)
        if not is_late:
            told = outbox.routes_told(connection, PIPELINE, times)
            chosen = [route for route in routes if route.id in told and route.tells_resolved]
        elif not chosen:
            _log.warning("no route of alerts is for the pipeline: one without owners and namespaces would be")
        now = datetime.now(UTC)
        for route in chosen:
            alert = of_pipeline(lag, event, key=uuid4(), at=now, public_url=self._settings.public_url)
            outbox.put(connection, alert, route, times)

    def _due(self, connection: psycopg.Connection[Any]) -> list[UUID]:
        values = {
            "wait": self._settings.group_wait,
            "lag": self._settings.alert_lag,
            "as_of": facts_as_of(connection),
            "most": _AT_ONCE,
        }
        return [failure for (failure,) in connection.execute(_DUE, values)]

    def _decide_on(self, connection: psycopg.Connection[Any], failure: UUID) -> None:
        """Within a transaction: tell, or look at it again later, or forget it until it fails again."""
        row = connection.execute(_TAKE, [failure]).fetchone()
        if row is None:
            return
        seen = _Seen(*row)
        incident = incident_with(History(connection), failure)
        if incident is None or incident.resolved_at is not None:
            connection.execute(_FORGET, [failure])
        elif incident.uuid != failure:
            # Late events have moved its beginning, and with it its name.
            connection.execute(_FORGET, [failure])
            connection.execute(_MOVE, [incident.uuid, seen.at, seen.cause, seen.waits_for_another])
        elif connection.execute(_TOLD, [incident.uuid]).fetchone() is not None:
            connection.execute(_FORGET, [failure])
        elif (left := self._muted_for(connection, incident)) > 0:
            connection.execute(_POSTPONE, [min(left, _LOOK_AGAIN), failure])
        elif incident.root_id is not None or _told_of(connection, seen.cause, incident):
            _wait(connection, incident, seen.cause)
        elif self._is_old(connection, incident, seen):
            if seen.waits_for_another:
                _wait(connection, incident)
            else:
                connection.execute(_FORGET, [failure])
        elif not self._tell(connection, incident):
            connection.execute(_FORGET, [failure])

    def _muted_for(self, connection: psycopg.Connection[Any], incident: Incident) -> float:
        muted_until = _last_mute(connection, incident)
        return 0.0 if muted_until is None else (muted_until - datetime.now(UTC)).total_seconds()

    def _is_old(self, connection: psycopg.Connection[Any], incident: Incident, seen: "_Seen") -> bool:
        """Whether it began too long ago, or the end of its mute was, until which nobody could be told.

        Of what has waited for another that counts which it said last.
        """
        began = incident.last_failed_at if seen.waits_for_another else incident.opened_at
        began = max(began, _last_mute(connection, incident) or began)
        return began < datetime.now(UTC) - timedelta(seconds=self._settings.alert_max_age)

    def _tell(self, connection: psycopg.Connection[Any], incident: Incident) -> bool:
        """False if there is nobody to tell."""
        routes = routes_in_use(connection)
        if not routes:
            return False
        detail = _explained(connection, incident.uuid, self._reach)
        if detail is not None and _is_ignored(connection, detail):
            return False
        subject = Subject(severity=incident.severity) if detail is None else _subject(detail)
        chosen = routes_for(subject, routes)
        if detail is None and not chosen:
            chosen = routes
        cause = "" if detail is None else _cause(detail)
        others = _told_of(connection, cause, incident)
        told = {route for other in others for route in outbox.routes_told(connection, str(other[0]), other[1])}
        if chosen and told.issuperset(route.id for route in chosen):
            _wait(connection, incident, cause)
            return True
        row = connection.execute(_OCCASION, [incident.subject_uuid, incident.uuid]).fetchone()
        occasion = 0 if row is None else int(row[0])
        title = ""
        for route in chosen:
            alert = self._alert(detail, "opened", incident.uuid, incident)
            title = alert.title
            outbox.put(connection, alert, route, occasion)
        connection.execute(_TELL, [occasion, title, cause, incident.uuid])
        return bool(chosen)

    def _tell_change(self, connection: psycopg.Connection[Any], failure: UUID) -> None:
        """Within a transaction: that it is over, or that somebody looks after it."""
        row = connection.execute(_STANDING, {"only": failure, "most": 1}).fetchone()
        if row is None:
            return
        changed = _Changed(*row)
        routes = self._to_tell(connection, changed)
        incident = incident_with(History(connection), failure)
        detail = _explained(connection, failure, self._reach) if incident is not None and routes else None
        event: Event = "resolved" if changed.is_over else "acknowledged"
        for route in routes:
            if incident is None:
                alert = of_gone(changed.title, key=uuid4(), about=str(failure), at=datetime.now(UTC))
            else:
                alert = self._alert(detail, event, failure, incident)
            outbox.put(connection, alert, route, changed.occasion)
        connection.execute(_FORGET if changed.is_over else _ACKNOWLEDGED, [failure])

    def _to_tell(self, connection: psycopg.Connection[Any], changed: _Changed) -> list[AlertRoute]:
        """Those that were told that it began, and want to know how it goes on."""
        told = outbox.routes_told(connection, str(changed.failure_id), changed.occasion)
        routes = [route for route in routes_in_use(connection) if route.id in told]
        if changed.is_over:
            return [route for route in routes if route.tells_resolved]
        return [route for route in routes if route.kind == "pagerduty"]

    def _alert(self, detail: IncidentDetail | None, event: Event, about: UUID, incident: Incident) -> Alert:
        url = self._settings.public_url
        if detail is None:
            return of_unexplained(incident, event, key=uuid4(), about=str(about), public_url=url)
        return of_incident(detail, event, key=uuid4(), about=str(about), public_url=url)


def _is_my_turn(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute(_LOCK).fetchone()
    return row is not None and bool(row[0])


def _explained(connection: psycopg.Connection[Any], incident: UUID, reach: Reach) -> IncidentDetail | None:
    """None where it cannot be worked out: somebody has to be told all the same."""
    try:
        with connection.transaction():
            return incident_detail(connection, incident, reach)
    except Exception:
        if connection.closed:
            raise
        _log.exception("incident %s cannot be explained; it is told without its cause", incident)
        return None


def _wait(connection: psycopg.Connection[Any], incident: Incident, cause: str = "") -> None:
    """For what it is a consequence of, of which people are told."""
    connection.execute(_WAIT, [_LOOK_AGAIN, _OF_ITS_AGE, cause, incident.uuid])


def _cause(detail: IncidentDetail) -> str:
    """The run that is named as the reason, or the one that is missing; where the evidence is weak, the version."""
    first = next(iter(detail.candidates), None)
    if first is not None and first.score >= _SURE:
        return "\n".join([first.job.namespace, first.job.name, first.run_id or ""])
    if detail.cause is None or detail.dataset is None:
        return ""
    return f"{detail.dataset.urn}\n{detail.cause.job.namespace}\n{detail.cause.job.name}\n{detail.cause.run_id}"


def _told_of(connection: psycopg.Connection[Any], cause: str, incident: Incident) -> list[tuple[UUID, int]]:
    """Other incidents of which people were told with this reason, and that are not over; with their occasion."""
    return connection.execute(_TOLD_OF_CAUSE, [cause, incident.uuid, incident.severity]).fetchall() if cause else []


def _last_mute(connection: psycopg.Connection[Any], incident: Incident) -> datetime | None:
    """When the last mute of the test or job ends, or has ended."""
    row = connection.execute(_LAST_MUTE, [incident.subject_uuid]).fetchone()
    return None if row is None else row[0]


def _is_ignored(connection: psycopg.Connection[Any], detail: IncidentDetail) -> bool:
    ignored = Ignored.load(connection)
    job = detail.test_run.job
    dataset = detail.dataset
    return ignored.hides_job(job.namespace, job.name) or (
        dataset is not None and ignored.hides_dataset(dataset.namespace, dataset.urn)
    )


def _subject(detail: IncidentDetail) -> Subject:
    namespaces = [detail.test_run.job.namespace]
    if detail.dataset is not None:
        namespaces.append(detail.dataset.namespace)
    return Subject(detail.owner, namespaces, detail.severity)
