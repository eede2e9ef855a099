"""The words of an alert, and their shape for each kind of receiver."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from correlator.alerts.payloads import Alert, Event, addressed, duration, of_gone, of_incident, of_pipeline, rendered
from correlator.correlation.called import DatasetName, JobName
from correlator.correlation.incident_detail import AffectedTold, ImpactTold, IncidentDetail, RiskTold, RunTold
from correlator.correlation.summaries import CandidateTold, CauseTold, CheckTold, EvidenceTold
from correlator.correlation.timeline import Moment
from correlator.store.alert_routes import Destination, RouteKind
from correlator.store.ledger import Lag

ID = UUID(int=7)
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
STAGE, TEST = JobName("airflow", "stage"), JobName("dbt", "test")


def detail(**said: Any) -> IncidentDetail:
    evidence = EvidenceTold("volume", "staged", "1000", "3", "stage wrote 3 rows instead of 1,000")
    usual: dict[str, Any] = {
        "id": ID,
        "kind": "test",
        "status": "open",
        "severity": "error",
        "summary": "row_count failed on staged: stage wrote 3 rows instead of 1,000.",
        "named_cause": "stage wrote 3 rows instead of 1,000",
        "opened_at": NOON,
        "last_failed_at": NOON,
        "resolved_at": None,
        "resolved_by": None,
        "failures": 2,
        "owner": "team <a>",
        "assignee": None,
        "muted_until": None,
        "facts_as_of": NOON,
        "dataset": DatasetName("postgres://db:5432/staged", "postgres://db:5432", "staged"),
        "test": CheckTold("row_count", "", "1000", "3", "3 < 1000 & falling"),
        "test_run": RunTold("run-test", TEST),
        "cause": CauseTold("run-stage", STAGE, NOON, "COMPLETE"),
        "candidates": [CandidateTold(1, "run-stage", STAGE, 0, 0.9, [evidence], [], None)],
        "upstream": [],
        "upstream_truncated": False,
        "impact": ImpactTold(
            [AffectedTold("a", "r1", NOON, STAGE), AffectedTold("a", "r2", NOON, STAGE)], [RiskTold("b")], [], False
        ),
        "root_id": None,
        "children": [UUID(int=8), UUID(int=9)],
        "timeline": [],
        "similar": [],
    }
    return IncidentDetail(**(usual | said))


def alert(event: Event = "opened", url: str | None = "https://c.example", **said: Any) -> Alert:
    return of_incident(detail(**said), event, key=UUID(int=1), about=str(ID), public_url=url)


def shaped(told: Alert, kind: RouteKind) -> Any:
    return msgspec.json.decode(rendered(told, kind))


def test_the_words_name_what_failed_why_who_is_hurt_who_owns_it_and_where_to_look() -> None:
    assert alert().text.splitlines() == [
        "row_count failed on staged",
        "Root cause: stage wrote 3 rows instead of 1,000",
        "Caused by: airflow/stage, run run-stage",
        "Hurt: 1 dataset was made of it, 1 is at risk, 2 more failures come of it",
        "Owner: team <a>",
        "Dataset: postgres://db:5432/staged",
        "Message: 3 < 1000 & falling",
        "Since: 2026-05-04 12:00 UTC, 2 failures",
        f"Incident: {ID}",
        f"https://c.example/incidents/{ID}",
    ]


def test_what_is_not_known_is_said_to_be_so() -> None:
    nothing = ImpactTold([], [], [], False)
    told = alert(
        url=None,
        owner=None,
        cause=None,
        candidates=[],
        impact=nothing,
        children=[],
        named_cause="no producer is known",
        summary="row_count failed on staged: no producer is known.",
    )
    assert "Root cause: no producer is known" in told.text
    assert "Hurt: nobody that is known" in told.text
    assert "Owner: nobody is named" in told.text
    assert "http" not in told.text
    assert "Caused by" not in told.text


def test_what_was_not_counted_to_the_end_is_said_to_be_more() -> None:
    cut = ImpactTold([AffectedTold("a", "r1", NOON, STAGE)], [], [], True)
    assert "Hurt: 1 dataset was made of it, and there are more" in alert(impact=cut, children=[]).text


def test_a_run_that_did_not_happen_can_be_the_cause() -> None:
    missing = CandidateTold(1, None, STAGE, 0, 0.9, [EvidenceTold("missing", "", None, None, "no run")], [], None)
    assert "Caused by: airflow/stage, a run that did not happen" in alert(candidates=[missing]).text


def test_a_password_in_a_message_is_not_told() -> None:
    words = "cannot connect to postgres://me:hush@db/x with password 'hush'"
    told = alert(
        test=CheckTold("row_count", "", "", "", words), named_cause=words, summary=f"row_count failed: {words}."
    )
    for kind in ("webhook", "slack", "pagerduty"):
        assert b"hush" not in rendered(told, kind)


def test_a_webhook_has_the_words_and_all_that_a_program_needs() -> None:
    said = shaped(alert(), "webhook")

    assert (said["id"], said["event"], said["about"]) == (str(UUID(int=1)), "incident.opened", str(ID))
    assert said["incident"]["cause"] == {
        "reason": "stage wrote 3 rows instead of 1,000",
        "job": {"namespace": "airflow", "name": "stage"},
        "run_id": "run-stage",
    }
    assert said["incident"]["hurt"] == {"affected": 1, "at_risk": 1, "consequences": 2, "is_cut": False}
    assert said["pipeline"] is None


def test_slack_gets_plain_text_and_blocks_that_it_takes() -> None:
    said = shaped(alert(owner="x" * 5_000, named_cause="&" * 5_000), "slack")

    assert said["text"].startswith("row_count failed on staged")
    assert [block["type"] for block in said["blocks"]] == ["header", *["section"] * 8, "context"]
    assert said["blocks"][-1]["elements"][0]["text"] == f"<https://c.example/incidents/{ID}|Open in Correlator>"
    for block in said["blocks"][1:-1]:
        assert len(block["text"]["text"]) <= 3_000
    assert len(said["blocks"][0]["text"]["text"]) <= 150
    assert "&lt; 1000 &amp; falling" in said["text"]


def test_pagerduty_is_told_to_trigger_acknowledge_and_resolve_one_and_the_same() -> None:
    opened, seen, over = (shaped(alert(event), "pagerduty") for event in ("opened", "acknowledged", "resolved"))

    assert opened["event_action"] == "trigger"
    assert opened["payload"]["summary"] == "row_count failed on staged: stage wrote 3 rows instead of 1,000"
    assert opened["payload"]["source"] == "postgres://db:5432/staged"
    assert opened["payload"]["severity"] == "error"
    assert opened["links"][0]["href"] == f"https://c.example/incidents/{ID}"
    assert seen == {"event_action": "acknowledge", "dedup_key": str(ID)}
    assert over == {"event_action": "resolve", "dedup_key": opened["dedup_key"]}


@pytest.mark.parametrize(
    ("said", "expected"), [("WARN", "warning"), ("critical", "critical"), ("error", "error"), ("sev-1", "error")]
)
def test_every_severity_is_one_that_pagerduty_knows(said: str, expected: str) -> None:
    assert shaped(alert(severity=said), "pagerduty")["payload"]["severity"] == expected


def test_the_routing_key_stands_in_no_payload_before_it_is_sent() -> None:
    payload = rendered(alert(), "pagerduty")
    where = Destination("pager", "pagerduty", "https://x", "r-key")

    assert b"r-key" not in payload
    assert msgspec.json.decode(addressed(payload, where))["routing_key"] == "r-key"
    assert addressed(b"{}", Destination("hook", "webhook", "https://x", "hush")) == b"{}"


def test_that_it_is_over_says_how_and_after_which_time() -> None:
    later = NOON + timedelta(hours=2, minutes=5)
    passed = alert("resolved", resolved_at=later, resolved_by="pass")
    assert passed.text.splitlines()[:3] == [
        "Resolved: row_count failed on staged",
        "How: it passed again",
        "After: 2 h 5 min",
    ]
    said = [Moment(later, "resolve", "ada resolved it: fixed")]
    assert "How: ada resolved it: fixed" in alert("resolved", resolved_by="person", timeline=said).text
    gone = of_gone("row_count failed on staged", key=ID, about=str(ID), at=NOON)
    assert gone.text.splitlines()[0] == "Resolved: row_count failed on staged"


def test_a_pipeline_is_told_of_with_what_waits() -> None:
    late = of_pipeline(Lag("log", "facts", 1200, 400.0), "opened", key=ID, at=NOON, public_url=None)
    well = of_pipeline(Lag("log", "facts", 0, 0.0), "resolved", key=ID, at=NOON, public_url=None)

    assert "1,200 events of log, the oldest for 6 min 40 s" in late.text
    assert (late.name, well.name) == ("pipeline.late", "pipeline.recovered")
    assert shaped(late, "webhook")["pipeline"] == {"lag_events": 1200, "lag_seconds": 400.0}
    keys = {shaped(each, "pagerduty")["dedup_key"] for each in (late, well)}
    assert keys == {"pipeline:lag"}


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (59.6, "1 min"), (3661, "1 h 1 min"), (90_000, "1 d 1 h"), (172_805, "2 d 5 s")]
)
def test_times_are_told_in_two_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words
