"""What happened to an incident, in order of time: results, people's words, runs that name it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

import msgspec
from msgspec import Meta

from correlator.correlation.called import JobName
from correlator.correlation.history import History
from correlator.correlation.ids import uuid_of
from correlator.correlation.incidents import Incident
from correlator.correlation.life import Said, Standing
from correlator.correlation.phrases import first_line, said

_MOST_FAILURES: Final = 100


class Moment(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something on the timeline."""

    at: datetime
    kind: Annotated[
        str,
        Meta(
            description="`passed`, `failed`, `run` (one that names the incident in its `correlator_incidentContext`), "
            "or the kind of an action."
        ),
    ]
    sentence: str
    failure_id: UUID | None = None
    run_id: str | None = None
    job: JobName | None = None
    actor: str | None = None
    assignee: str | None = None
    until: datetime | None = None
    reason: str | None = None
    note: str | None = None


def timeline(history: History, incident: Incident, words: Sequence[Said], standing: Standing) -> list[Moment]:
    """`words` are what people said to it."""
    moments = [_word(one) for one in words]
    if standing.muted is not None and all(one.id != standing.muted.id for one in words):
        moments.append(_word(standing.muted))
    moments += [*_failures(history, incident), *_passes(history, incident), *_mentions(history, incident)]
    return sorted(moments, key=lambda moment: (moment.at, moment.kind != "passed"))


def _failures(history: History, incident: Incident) -> Iterator[Moment]:
    rows = history.rows(_FAILURES, incident.id, _MOST_FAILURES)
    for failure, at, run_id, namespace, name, state, message in rows:
        what = f"{namespace}/{name}: {state}" if incident.kind == "run" else f"The test failed in {name}"
        yield Moment(at, "failed", what + said(message), uuid_of(failure), run_id, JobName(namespace, name))


def _passes(history: History, incident: Incident) -> Iterator[Moment]:
    query = _PASSES_OF_TEST if incident.kind == "test" else _PASSES_OF_JOB
    subject = incident.subject_id
    for at, run_id, namespace, name in history.rows(query, subject, incident.opened_at, subject, incident.resolved_at):
        what = "It passed" if at < incident.opened_at else "It passed again"
        yield Moment(at, "passed", f"{what} in {name}", run_id=run_id, job=JobName(namespace, name))


def _mentions(history: History, incident: Incident) -> Iterator[Moment]:
    for at, run_id, namespace, name, state in history.rows(_MENTIONS, incident.id):
        what = f"A run of {name} names this incident; it is {state}"
        yield Moment(at, "run", what, run_id=run_id, job=JobName(namespace, name))


def _word(one: Said) -> Moment:
    words: Mapping[str, str] = {
        "acknowledge": f"{one.actor} acknowledged it",
        "unacknowledge": f"{one.actor} took the acknowledgement back",
        "assign": f"{one.actor} assigned it to {one.assignee}",
        "unassign": f"{one.actor} assigned it to nobody",
        "mute": f"{one.actor} muted it until {one.until:%Y-%m-%d %H:%M} UTC" if one.until else "",
        "unmute": f"{one.actor} took the mute back",
        "resolve": f"{one.actor} resolved it: {(one.reason or '').replace('_', ' ')}",
        "reopen": f"{one.actor} reopened it",
        "comment": f"{one.actor} wrote: {first_line(one.note or '')}",
    }
    return Moment(
        one.at,
        one.kind,
        words[one.kind],
        uuid_of(one.failure_id),
        actor=one.actor,
        assignee=one.assignee,
        until=one.until,
        reason=one.reason,
        note=one.note,
    )


_FAILURES: Final = """
SELECT failure.id, failure.at, run.run_id, run.job_namespace, run.job_name, run.current_state,
       coalesce(nullif(said.message, ''), nullif(implied.message, ''), run.error_message, '')
FROM {s}.failures AS failure JOIN {s}.job_runs AS run ON run.id = failure.job_run_id
LEFT JOIN {s}.test_results AS said ON said.job_run_id = run.id AND said.test_id = failure.subject_id
LEFT JOIN {s}.implied_results AS implied ON implied.job_run_id = run.id AND implied.test_id = failure.subject_id
WHERE failure.incident_id = %s ORDER BY failure.at, failure.id LIMIT %s
"""

# The last before it began, and the one that ended it.
_PASSES_OF_TEST: Final = """
SELECT said.event_time, run.run_id, run.job_namespace, run.job_name FROM (
    (SELECT event_time, job_run_id FROM {s}.standing_results
     WHERE test_id = %s AND status = 'pass' AND event_time < %s ORDER BY event_time DESC, job_run_id DESC LIMIT 1)
    UNION ALL
    (SELECT event_time, job_run_id FROM {s}.standing_results
     WHERE test_id = %s AND status = 'pass' AND event_time = %s ORDER BY job_run_id LIMIT 1)
) AS said JOIN {s}.job_runs AS run ON run.id = said.job_run_id
"""
_PASSES_OF_JOB: Final = """
SELECT ended_at, run_id, job_namespace, job_name FROM (
    (SELECT * FROM {s}.job_runs WHERE job_id = %s AND current_state = 'COMPLETE' AND ended_at < %s
     ORDER BY ended_at DESC, id DESC LIMIT 1)
    UNION ALL
    (SELECT * FROM {s}.job_runs WHERE job_id = %s AND current_state = 'COMPLETE' AND ended_at = %s ORDER BY id LIMIT 1)
) AS run
"""

_MENTIONS: Final = """
SELECT coalesce(run.ended_at, run.started_at), run.run_id, run.job_namespace, run.job_name, run.current_state
FROM {s}.failures AS failure JOIN {s}.incident_mentions AS mention ON mention.failure_id = failure.id
JOIN {s}.job_runs AS run ON run.id = mention.job_run_id
WHERE failure.incident_id = %s
ORDER BY 1 LIMIT 50
"""
