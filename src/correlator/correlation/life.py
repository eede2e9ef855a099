"""The life of an incident: what people say and do about it, an append-only log.

Each word is said of a failure and belongs to the incident that has this failure now, so late events move incidents and
not words. A mute is of the test or job, outlasts its incidents and ends when it says. A person's resolve cuts the
streak; reopening takes the cut back.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
import psycopg

from correlator.correlation import groups
from correlator.correlation.history import History
from correlator.correlation.ids import Id, uuid_of
from correlator.correlation.incidents import Incident, incident_with
from correlator.store import incidents as streaks
from correlator.store.alert_watch import see
from correlator.store.merge import lock_merges

Status: TypeAlias = Literal["open", "acknowledged", "muted", "resolved"]
ActionKind: TypeAlias = Literal[
    "acknowledge", "unacknowledge", "assign", "unassign", "mute", "unmute", "resolve", "reopen", "comment"
]
Reason: TypeAlias = Literal["fixed", "expected", "false_alarm", "not_worth_fixing", "duplicate", "other"]

LONGEST_NOTE: Final = 10_000
LONGEST_NAME: Final = 200
_OF_WHAT_LASTS: Final = ("acknowledge", "unacknowledge", "assign", "unassign", "resolve")


class UnknownIncidentError(Exception):
    """There is no such failure."""


class InvalidActionError(Exception):
    """What was asked for lacks something, or says something that cannot be."""


class SenselessActionError(Exception):
    """What was asked for makes no sense for the incident as it is."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody does."""

    kind: ActionKind
    assignee: str | None = None
    until: datetime | None = None
    reason: Reason | None = None
    note: str | None = None


class Said(msgspec.Struct, frozen=True):
    """What somebody did."""

    id: int
    failure_id: Id
    at: datetime
    actor: str
    kind: ActionKind
    assignee: str | None
    until: datetime | None
    reason: str | None
    note: str | None


class Standing(msgspec.Struct, frozen=True):
    """How an incident stands with people."""

    status: Status
    assignee: str | None = None
    acknowledged: Said | None = None
    muted: Said | None = None
    """A mute that has not ended."""


def act(
    connection: psycopg.Connection[Any], failure_id: UUID, action: Action, actor: str, now: datetime | None = None
) -> Incident:
    """Do it, all or nothing. The answer is the incident as it is then, under an id that may be another one.

    Raises UnknownIncidentError, InvalidActionError or SenselessActionError.
    """
    now = now or datetime.now(UTC)
    _check(action, now)
    with connection.transaction():
        if action.kind in ("resolve", "reopen"):
            # They change what the merge derives.
            lock_merges(connection)
        history = History(connection)
        incident = incident_of(history, failure_id)
        connection.execute(_LOCK, [str(incident.subject_uuid)])
        standing = standings(history, [incident], now)[incident.id]
        _refuse(action, incident, standing)
        said_on = failure_id if failure_id != incident.uuid else _last_failure(history, incident)
        cancels = _cut(history, incident) if action.kind == "reopen" else None
        # Clocks differ: what has failed by now is resolved with it.
        at = max(now, incident.last_failed_at) if action.kind == "resolve" else now
        note = action.note.strip() if action.note else None
        values = (
            said_on,
            incident.subject_uuid,
            at,
            actor,
            action.kind,
            action.assignee,
            action.until,
            action.reason,
            note,
        )
        connection.execute(_SAY, [*values, cancels])
        if action.kind in ("resolve", "reopen"):
            groups.attach(connection, streaks.derive(connection, [incident.subject_uuid]))
        after = incident_of(History(connection), said_on)
        if action.kind == "reopen" and after.resolved_at is not None:
            raise SenselessActionError(
                f"It cannot be reopened: what failed has passed since, at {_time(after.resolved_at)}. When it fails "
                "again, that is a new incident."
            )
        if action.kind == "reopen":
            see(connection, [after.uuid])
        return after


def incident_of(history: History, failure_id: UUID) -> Incident:
    found = incident_with(history, failure_id)
    if found is None:
        raise UnknownIncidentError(f"There is no incident {failure_id}, and no failure of this id.")
    return found


def standings(history: History, incidents: Sequence[Incident], now: datetime | None = None) -> dict[Id, Standing]:
    words = said_of(history, [one.id for one in incidents])
    return standings_by(history, incidents, words, now or datetime.now(UTC))


def standings_by(
    history: History, incidents: Sequence[Incident], words: Mapping[Id, Sequence[Said]], now: datetime
) -> dict[Id, Standing]:
    """By what people have said of each."""
    mutes = _mutes(history, {one.subject_id for one in incidents}, now)
    return {one.id: _standing(one, words[one.id], mutes.get(one.subject_id)) for one in incidents}


def said_of(history: History, incidents: Iterable[Id]) -> dict[Id, list[Said]]:
    """What was said about each, in order."""
    found: dict[Id, list[Said]] = {incident: [] for incident in incidents}
    for incident, *rest in history.rows(_SAID, list(found)) if found else ():
        found[incident].append(Said(*rest))
    return found


def _standing(incident: Incident, words: Sequence[Said], muted: Said | None) -> Standing:
    acknowledged: Said | None = None
    assignee: str | None = None
    for said in words:
        match said.kind:
            case "acknowledge":
                acknowledged = acknowledged or said
            case "reopen" | "unacknowledge":
                acknowledged = None
            case "assign" | "unassign":
                assignee = said.assignee
    status: Status = "open"
    if incident.resolved_at is not None:
        status = "resolved"
    elif muted is not None:
        status = "muted"
    elif acknowledged is not None:
        status = "acknowledged"
    return Standing(status, assignee, acknowledged, muted)


def _mutes(history: History, subjects: Iterable[Id], now: datetime) -> dict[Id, Said]:
    """The last word on each that has been muted: a mute that still holds."""
    found = {}
    for subject, *rest in history.rows(_MUTES, list(subjects)):
        said = Said(*rest)
        if said.kind == "mute" and said.until is not None and said.until > now:
            found[subject] = said
    return found


def _check(action: Action, now: datetime) -> None:
    """Whether what was asked for can be read as anything."""
    match action.kind:
        case "assign" if not (action.assignee and action.assignee.strip()):
            raise InvalidActionError("assignee is required: who is to look after the incident.")
        case "mute" if action.until is None:
            raise InvalidActionError("until is required: a mute ends, for example 2026-12-01T08:00:00Z.")
        case "mute" if action.until is not None and action.until <= now:
            raise InvalidActionError(f"until lies in the past: {_time(action.until)}. Nothing would be muted.")
        case "resolve" if action.reason is None:
            raise InvalidActionError(
                "reason is required: fixed, expected, false_alarm, not_worth_fixing, duplicate or other."
            )
        case "comment" if not (action.note and action.note.strip()):
            raise InvalidActionError("note is required: a comment says something.")
    allowed = {"assign": "assignee", "mute": "until", "resolve": "reason"}
    for name in ("assignee", "until", "reason"):
        if getattr(action, name) is not None and allowed.get(action.kind) != name:
            raise InvalidActionError(f"{name} says nothing for the action {action.kind}.")
    if action.note is not None and len(action.note) > LONGEST_NOTE:
        raise InvalidActionError(f"note has {len(action.note):,} characters; {LONGEST_NOTE:,} are allowed.")
    if action.assignee is not None and len(action.assignee) > LONGEST_NAME:
        raise InvalidActionError(f"assignee has {len(action.assignee):,} characters; {LONGEST_NAME} are allowed.")


def _refuse(action: Action, incident: Incident, standing: Standing) -> None:
    """What makes no sense now."""
    if incident.resolved_at is not None and action.kind in _OF_WHAT_LASTS:
        by = "a later pass" if incident.resolved_by == "pass" else "a person"
        raise SenselessActionError(f"It is resolved already, by {by}, since {_time(incident.resolved_at)}.")
    match action.kind:
        case "acknowledge" if standing.acknowledged is not None:
            said = standing.acknowledged
            raise SenselessActionError(f"It is acknowledged already, by {said.actor} at {_time(said.at)}.")
        case "unacknowledge" if standing.acknowledged is None:
            raise SenselessActionError("It is not acknowledged.")
        case "unassign" if standing.assignee is None:
            raise SenselessActionError("It is assigned to nobody.")
        case "assign" if standing.assignee == action.assignee:
            raise SenselessActionError(f"It is assigned to {action.assignee} already.")
        case "mute" if standing.muted is not None and standing.muted.until == action.until:
            raise SenselessActionError("It is muted until then already.")
        case "unmute" if standing.muted is None:
            raise SenselessActionError("It is not muted.")
        case "reopen" if incident.resolved_at is None:
            raise SenselessActionError("It is not resolved.")
        case "reopen" if incident.resolved_by == "pass":
            raise SenselessActionError(
                "A later pass has ended it, and no person: when it fails again, that is a new incident."
            )


def _last_failure(history: History, incident: Incident) -> UUID:
    """Who speaks of an incident has seen it as it is now."""
    rows = history.rows(_LAST_FAILURE, incident.id)
    return uuid_of(rows[0][0])


def _cut(history: History, incident: Incident) -> int:
    rows = history.rows(_CUT, incident.subject_id, incident.resolved_at)
    action: int = rows[0][0]
    return action


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


# Whoever else acts on the same test or job waits.
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('incident ' || %s, 0))"

_SAY: Final = """
INSERT INTO kept.incident_actions (failure_id, subject_id, at, actor, kind, assignee, until, reason, note, cancels)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""

# What was said of the test or job, of which one probe each tells whether it is said of this incident.
_SAID: Final = """
SELECT failure.incident_id, said.id, said.failure_id, said.at, said.actor, said.kind, said.assignee, said.until,
       said.reason, said.note
FROM {s}.incidents AS incident
JOIN kept.incident_actions AS said ON said.subject_id = coalesce(incident.test_id, incident.job_id)
JOIN {s}.failures AS failure ON failure.id = said.failure_id AND failure.incident_id = incident.id
WHERE incident.id = ANY (%s::uuid[])
ORDER BY failure.incident_id, said.id
"""

_MUTES: Final = """
SELECT asked.subject_id, said.* FROM unnest(%s::uuid[]) AS asked (subject_id)
CROSS JOIN LATERAL (
    SELECT id, failure_id, at, actor, kind, assignee, until, reason, note FROM kept.incident_actions AS said
    WHERE said.subject_id = asked.subject_id AND said.kind IN ('mute', 'unmute') ORDER BY said.id DESC LIMIT 1
) AS said
"""

_LAST_FAILURE: Final = "SELECT id FROM {s}.failures WHERE incident_id = %s ORDER BY at DESC, job_run_id DESC LIMIT 1"

_CUT: Final = "SELECT action_id FROM kept.incident_cuts WHERE subject_id = %s AND at = %s ORDER BY action_id LIMIT 1"
