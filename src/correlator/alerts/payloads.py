"""The words of an alert, and their shape for each kind of receiver: a webhook, Slack, PagerDuty."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Struct

from correlator.correlation.called import JobName
from correlator.correlation.incident_detail import IncidentDetail
from correlator.correlation.incidents import Incident
from correlator.rulebook.redaction import Redaction
from correlator.store.alert_routes import Destination, RouteKind
from correlator.store.ledger import Lag

Event: TypeAlias = Literal["opened", "acknowledged", "resolved"]

PIPELINE: Final = "pipeline:lag"
"""What an alert is about that is about no incident."""

# What receivers take. Slack: a header of 150 characters and sections of 3,000; PagerDuty: a summary of 1,024.
_SLACK_HEADER: Final = 150
_SLACK_SECTION: Final = 2_900
_LONGEST_TITLE: Final = 300
_LONGEST_FACT: Final = 1_000
_PAGERDUTY_SUMMARY: Final = 1_024
_PAGERDUTY_SEVERITIES: Final = {"critical": "critical", "warn": "warning", "warning": "warning", "info": "info"}

_redact: Final = Redaction().text


class Cause(Struct, frozen=True):
    """Of what failed, by all that is known."""

    reason: str
    job: JobName | None = None
    run_id: str | None = None


class Hurt(Struct, frozen=True):
    """How many."""

    affected: int
    """Datasets that were made of bad data."""
    at_risk: int
    """Datasets that would be made of it next."""
    consequences: int
    """Incidents that come of this one."""
    is_cut: bool
    """Whether there are more than were looked at (`impact_depth`, `impact_runs`)."""


class IncidentTold(Struct, frozen=True, kw_only=True):
    id: UUID
    kind: str
    status: str
    severity: str
    title: str
    opened_at: datetime
    last_failed_at: datetime
    resolved_at: datetime | None
    failures: int
    owner: str | None
    dataset: str | None
    job: JobName
    message: str
    cause: Cause
    hurt: Hurt


class PipelineTold(Struct, frozen=True):
    lag_events: int
    lag_seconds: float


class Alert(Struct, frozen=True, kw_only=True):
    """What somebody is told, before it has a shape."""

    key: UUID
    """By which a message that comes again is known."""
    event: Event | Literal["test"]
    about: str
    """An incident's id when it was first told of, or `pipeline:lag`."""
    title: str
    facts: Sequence[tuple[str, str]]
    """What there is to know, each with its name."""
    severity: str = "error"
    at: datetime
    """Since when it is so."""
    link: str | None = None
    incident: IncidentTold | None = None
    pipeline: PipelineTold | None = None

    @property
    def name(self) -> str:
        """What a program knows the event by."""
        if self.event == "test":
            return "test"
        if self.pipeline is not None:
            return "pipeline.late" if self.event == "opened" else "pipeline.recovered"
        return f"incident.{self.event}"

    @property
    def headline(self) -> str:
        return f"Resolved: {self.title}" if self.event == "resolved" and self.incident is not None else self.title

    @property
    def text(self) -> str:
        """All of it in plain lines."""
        lines = [self.headline, *(f"{name}: {value}" for name, value in self.facts)]
        return "\n".join([*lines, self.link] if self.link is not None else lines)


def of_incident(detail: IncidentDetail, event: Event, *, key: UUID, about: str, public_url: str | None) -> Alert:
    title = _short(detail.summary.removesuffix(f": {detail.named_cause}."), _LONGEST_TITLE)
    told = IncidentTold(
        id=detail.id,
        kind=detail.kind,
        status=detail.status,
        severity=detail.severity,
        title=title,
        opened_at=detail.opened_at,
        last_failed_at=detail.last_failed_at,
        resolved_at=detail.resolved_at,
        failures=detail.failures,
        owner=None if detail.owner is None else _short(detail.owner, _LONGEST_TITLE),
        dataset=None if detail.dataset is None else detail.dataset.urn,
        job=detail.test_run.job,
        message="" if detail.test is None else _short(detail.test.message, _LONGEST_FACT),
        cause=_cause(detail),
        hurt=_hurt(detail),
    )
    return Alert(
        key=key,
        event=event,
        about=about,
        title=title,
        facts=_over(detail, told) if event == "resolved" else _facts(told),
        severity=detail.severity,
        at=detail.opened_at,
        link=_link(public_url, detail.id),
        incident=told,
    )


def of_unexplained(incident: Incident, event: Event, *, key: UUID, about: str, public_url: str | None) -> Alert:
    """For when nothing more can be said."""
    what = "A data test" if incident.kind == "test" else "A job"
    return Alert(
        key=key,
        event=event,
        about=about,
        title=f"{what} fails" if event == "opened" else f"Resolved: {what.lower()} failed",
        facts=[
            ("Root cause", "it could not be worked out; the server's log says why"),
            ("Incident", str(incident.uuid)),
        ],
        severity=incident.severity,
        at=incident.opened_at,
        link=_link(public_url, incident.uuid),
    )


def _link(public_url: str | None, incident: UUID) -> str | None:
    return None if public_url is None else f"{public_url}/incidents/{incident}"


def of_gone(title: str, *, key: UUID, about: str, at: datetime) -> Alert:
    """An incident that somebody was told of, and that late events or a replay have shown to be none."""
    return Alert(
        key=key,
        event="resolved",
        about=about,
        title=f"Resolved: {title}",
        facts=[("How", "by what is known now, nothing failed there")],
        at=at,
    )


def of_pipeline(lag: Lag, event: Event, *, key: UUID, at: datetime, public_url: str | None) -> Alert:
    if event == "opened":
        title = "The pipeline is behind: incidents may be missing"
        facts = [
            ("Waiting", f"{lag.events:,} events of {lag.source}, the oldest for {duration(lag.seconds)}"),
            ("What to do", "see whether `correlator pipeline` (or `up`) runs, and what it logs"),
        ]
    else:
        title = "The pipeline has caught up"
        facts = [("Waiting", f"{lag.events:,} events")]
    return Alert(
        key=key,
        event=event,
        about=PIPELINE,
        title=title,
        facts=facts,
        at=at,
        link=public_url,
        pipeline=PipelineTold(lag.events, lag.seconds),
    )


def of_test(route: str, *, key: UUID, public_url: str | None) -> Alert:
    return Alert(
        key=key,
        event="test",
        about=f"test:{key}",
        title="A test of Correlator's alerts: nothing has failed",
        facts=[("Route", route)],
        severity="info",
        at=datetime.now(UTC),
        link=public_url,
    )


def rendered(alert: Alert, kind: RouteKind) -> bytes:
    shapes: dict[RouteKind, Callable[[Alert], object]] = {
        "webhook": _webhook,
        "slack": _slack,
        "pagerduty": _pagerduty,
    }
    return msgspec.json.encode(shapes[kind](alert))


def addressed(payload: bytes, destination: Destination) -> bytes:
    """With what only the one who sends it should know. It stands in no outbox."""
    if destination.kind != "pagerduty":
        return payload
    return msgspec.json.encode({"routing_key": destination.secret or "", **msgspec.json.decode(payload)})


def duration(seconds: float) -> str:
    """The two largest units, as one says it."""
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    left, parts = round(seconds), []
    for name, size in units:
        if left >= size:
            parts.append(f"{left // size} {name}")
            left %= size
    return " ".join(parts[:2]) or "0 s"


def _cause(detail: IncidentDetail) -> Cause:
    reason = _short(detail.named_cause, _LONGEST_FACT)
    best = next((one for one in detail.candidates if one.evidence), None)
    if best is not None:
        return Cause(reason, best.job, best.run_id)
    return Cause(reason) if detail.cause is None else Cause(reason, detail.cause.job, detail.cause.run_id)


def _hurt(detail: IncidentDetail) -> Hurt:
    found = detail.impact
    affected = {one.urn for one in found.affected}
    return Hurt(len(affected), len(found.at_risk), len(detail.children), found.truncated)


def _facts(told: IncidentTold) -> list[tuple[str, str]]:
    cause = told.cause
    facts = [("Root cause", cause.reason)]
    if cause.job is not None:
        run = "a run that did not happen" if cause.run_id is None else f"run {cause.run_id}"
        facts.append(("Caused by", _short(f"{cause.job.namespace}/{cause.job.name}, {run}", _LONGEST_FACT)))
    facts += [("Hurt", _hurt_words(told.hurt)), ("Owner", told.owner or "nobody is named")]
    if told.dataset is not None:
        facts.append(("Dataset", _short(told.dataset, _LONGEST_FACT)))
    if told.message:
        facts.append(("Message", told.message))
    since = f"{told.opened_at:%Y-%m-%d %H:%M} UTC"
    facts.append(("Since", f"{since}, {told.failures} failures" if told.failures > 1 else since))
    facts.append(("Incident", str(told.id)))
    return facts


def _over(detail: IncidentDetail, told: IncidentTold) -> list[tuple[str, str]]:
    said = [moment for moment in detail.timeline if moment.kind == "resolve"]
    how = said[-1].sentence if detail.resolved_by == "person" and said else "it passed again"
    facts = [("How", _short(how, _LONGEST_FACT))]
    if detail.resolved_at is not None:
        facts.append(("After", duration((detail.resolved_at - detail.opened_at).total_seconds())))
    return [*facts, ("Owner", told.owner or "nobody is named"), ("Incident", str(told.id))]


def _hurt_words(hurt: Hurt) -> str:
    if not (hurt.affected or hurt.at_risk or hurt.consequences):
        return "nobody that is known"
    words = []
    if hurt.affected:
        words.append(f"{hurt.affected} {'dataset was' if hurt.affected == 1 else 'datasets were'} made of it")
    if hurt.at_risk:
        words.append(f"{hurt.at_risk} {'is' if hurt.at_risk == 1 else 'are'} at risk")
    if hurt.consequences:
        words.append(f"{hurt.consequences} more {'failure comes' if hurt.consequences == 1 else 'failures come'} of it")
    return ", ".join([*words, "and there are more"] if hurt.is_cut else words)


class _Webhook(Struct, frozen=True):
    id: UUID
    event: str
    about: str
    severity: str
    text: str
    link: str | None
    incident: IncidentTold | None
    pipeline: PipelineTold | None


def _webhook(alert: Alert) -> _Webhook:
    return _Webhook(
        alert.key, alert.name, alert.about, alert.severity, alert.text, alert.link, alert.incident, alert.pipeline
    )


def _slack(alert: Alert) -> dict[str, Any]:
    mark = {"opened": ":red_circle:", "resolved": ":large_green_circle:"}.get(alert.event, ":information_source:")
    headline = f"{mark} {alert.headline}"
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": _cut(headline, _SLACK_HEADER), "emoji": True}},
        *(
            {"type": "section", "text": {"type": "mrkdwn", "text": f"*{name}*\n{_section(value)}"}}
            for name, value in alert.facts
        ),
    ]
    if alert.link is not None:
        link = {"type": "mrkdwn", "text": f"<{_escaped(alert.link)}|Open in Correlator>"}
        blocks.append({"type": "context", "elements": [link]})
    return {"text": _escaped(alert.text), "blocks": blocks}


def _pagerduty(alert: Alert) -> dict[str, Any]:
    actions = {"opened": "trigger", "test": "trigger", "acknowledged": "acknowledge", "resolved": "resolve"}
    event: dict[str, Any] = {"event_action": actions[alert.event], "dedup_key": alert.about}
    if event["event_action"] != "trigger":
        return event
    facts = dict(alert.facts)
    why = facts.get("Root cause")
    event["payload"] = {
        "summary": _cut(f"{alert.title}: {why}" if why else alert.title, _PAGERDUTY_SUMMARY),
        "source": _cut(facts.get("Dataset", "correlator"), _PAGERDUTY_SUMMARY),
        "severity": _PAGERDUTY_SEVERITIES.get(alert.severity.lower(), "error"),
        "timestamp": alert.at,
        "class": alert.name,
        "custom_details": facts,
    }
    event["client"] = "Correlator"
    if alert.link is not None:
        event["client_url"] = alert.link
        event["links"] = [{"href": alert.link, "text": "Open in Correlator"}]
    return event


def _short(text: str, most: int) -> str:
    """As it may be shown, and no longer than receivers take."""
    return _cut(_redact(text), most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _section(text: str) -> str:
    """What has to be escaped may take five times the room."""
    escaped = _escaped(text)
    return escaped if len(escaped) <= _SLACK_SECTION else _escaped(_cut(text, _SLACK_SECTION // 5))


def _escaped(text: str) -> str:
    """For Slack, to which these three mean something."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
