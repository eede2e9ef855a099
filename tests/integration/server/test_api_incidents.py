"""Incidents over HTTP."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from correlator.store.api_keys import create_key
from correlator.store.database import Database
from tests.integration.conftest import Postgres, database_url, new_database
from tests.integration.correlation.stories import checked, ran, run_id, tell, urn
from tests.integration.server.serving import Client, serving

INCIDENTS = "/api/v1/incidents"


@pytest.fixture(scope="module")
def database(postgres: Postgres, migrated_template: str) -> Iterator[Database]:
    """A shop of which two tables are bad and one was."""
    with new_database(postgres, migrated_template) as name:
        database = Database(database_url(postgres, name))
        with database.connect("test", autocommit=True) as connection:
            tell(
                connection,
                ran("load", "load 0", 0, 1, writes=["raw"]),
                checked("raw", "good", 2, good=True),
                ran("load", "load 1", 10, 11, writes=["raw"]),
                checked("raw", "first", 12, good=False),
                checked("raw", "second", 14, good=False),
                ran("stage", "stage 1", 13, 15, reads=["raw"], writes=["staged"]),
                ran("mart", "mart 0", 5, 6, reads=["staged"], writes=["mart"]),
                checked("other", "other bad", 20, good=False),
                checked("third", "third bad", 30, good=False),
                checked("third", "third good", 31, good=True),
            )
        yield database


@pytest.fixture(scope="module")
def client(database: Database) -> Iterator[Client]:
    with serving(database) as client:
        yield client


def got(client: Client, path: str) -> Any:
    answer = client.ask("GET", path)
    assert answer.status == 200, answer.body
    return answer.json()


def on(client: Client, table: str) -> Any:
    (item,) = got(client, f"{INCIDENTS}?dataset={quote(urn(table), safe='')}&limit=1")["items"]
    return item


def test_the_list_is_of_the_last_first_and_goes_page_by_page(client: Client) -> None:
    whole = got(client, INCIDENTS)
    assert [item["dataset"]["name"] for item in whole["items"]] == ["third", "other", "raw"]
    assert whole["next_cursor"] is None

    first = got(client, f"{INCIDENTS}?limit=2")
    second = got(client, f"{INCIDENTS}?limit=2&cursor={first['next_cursor']}")
    assert first["items"] + second["items"] == whole["items"]
    assert second["next_cursor"] is None


def test_filters_and_counts_agree(client: Client) -> None:
    assert len(got(client, f"{INCIDENTS}?status=resolved")["items"]) == 1
    counts = got(client, f"{INCIDENTS}/counts")["counts"]
    assert counts["status"] == {"open": 2, "acknowledged": 0, "muted": 0, "resolved": 1}


@pytest.mark.parametrize(
    ("query", "words"),
    [("status=broken", "status"), ("cursor=x", "cursor"), ("limit=0", "limit"), ("colour=red", "colour")],
)
def test_a_question_that_cannot_be_is_answered_422_with_words(client: Client, query: str, words: str) -> None:
    answer = client.ask("GET", f"{INCIDENTS}?{query}")

    assert answer.status == 422
    assert words in answer.json()["detail"]


def test_the_detail_has_the_shape_that_page_and_terminal_count_on(client: Client) -> None:
    detail = got(client, f"{INCIDENTS}/{on(client, 'raw')['id']}")

    assert detail.keys() >= {
        *("id", "kind", "status", "severity", "opened_at", "last_failed_at", "resolved_at", "owner", "facts_as_of"),
        *("dataset", "test", "test_run", "cause", "candidates", "impact", "root_id", "children", "timeline", "similar"),
    }
    assert detail["dataset"] == {"urn": urn("raw"), "namespace": "postgres://db:5432", "name": "raw"}
    assert detail["test"].keys() == {"name", "column", "expected", "actual", "message"}
    assert detail["test_run"] == {"run_id": run_id("first"), "job": {"namespace": "airflow", "name": "test.raw"}}
    assert detail["cause"] == {
        "run_id": run_id("load 1"),
        "job": {"namespace": "airflow", "name": "load"},
        "wrote_at": "2026-05-04T10:11:00Z",
        "state": "COMPLETE",
    }
    candidate = detail["candidates"][0]
    assert candidate.keys() >= {"rank", "run_id", "job", "distance", "score", "evidence"}
    assert (candidate["rank"], candidate["run_id"]) == (1, run_id("load 1"))
    (affected,) = detail["impact"]["affected"]
    assert (affected["urn"], affected["run_id"]) == (urn("staged"), run_id("stage 1"))
    assert [risk["urn"] for risk in detail["impact"]["at_risk"]] == [urn("mart")]
    assert [moment["kind"] for moment in detail["timeline"]] == ["passed", "failed", "failed"]


def test_any_failure_leads_to_its_incident(client: Client, database: Database) -> None:
    incident = on(client, "raw")["id"]
    with database.connect("test") as connection:
        rows = connection.execute(
            "SELECT id FROM failures WHERE incident_id = %s AND id <> %s", [incident, incident]
        ).fetchall()

    answer = client.ask("GET", f"{INCIDENTS}/{rows[0][0]}")

    assert (answer.status, answer.headers["location"]) == (308, f"{INCIDENTS}/{incident}")


@pytest.mark.parametrize("incident", ["7f0f5c1e-64e7-4d43-9f3d-0f2b8f8a1c11", "INC-12345"])
def test_an_incident_that_is_not_there_is_404_with_words(client: Client, incident: str) -> None:
    for answer in (
        client.ask("GET", f"{INCIDENTS}/{incident}"),
        client.post(f"{INCIDENTS}/{incident}/actions", {"action": "acknowledge"}),
    ):
        assert answer.status == 404
        assert incident in answer.json()["detail"]


def test_people_act_and_what_makes_no_sense_is_409(client: Client) -> None:
    path = f"{INCIDENTS}/{on(client, 'other')['id']}"
    actions = f"{path}/actions"

    assert client.post(actions, {"action": "acknowledge", "note": "I look"}).json()["status"] == "acknowledged"
    again = client.post(actions, {"action": "acknowledge"})
    assert again.status == 409
    assert "acknowledged already" in again.json()["detail"]
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert client.post(actions, {"action": "mute", "until": until}).json()["status"] == "muted"
    assert client.post(actions, {"action": "unmute"}).json()["status"] == "acknowledged"
    assert client.post(actions, {"action": "assign", "assignee": "bob"}).json()["assignee"] == "bob"
    resolved = client.post(actions, {"action": "resolve", "reason": "fixed"}).json()
    assert (resolved["status"], resolved["resolved_by"]) == ("resolved", "person")
    assert client.post(actions, {"action": "reopen"}).json()["status"] == "open"
    assert client.post(actions, {"action": "comment", "note": "done"}).status == 200
    told = [moment for moment in got(client, path)["timeline"] if "actor" in moment]
    assert [moment["kind"] for moment in told] == [
        *("acknowledge", "mute", "unmute", "assign", "resolve", "reopen", "comment")
    ]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"action": "dance"}, "action"),
        ({"action": "resolve"}, "reason is required"),
        ({"action": "mute", "until": "2020-01-01T00:00:00Z"}, "in the past"),
        ({"action": "mute", "until": "tomorrow"}, "until"),
        ({}, "action"),
        ({"action": "comment", "note": "x", "colour": "red"}, "colour"),
    ],
)
def test_an_action_that_cannot_be_is_422_with_words(client: Client, body: dict[str, Any], words: str) -> None:
    answer = client.post(f"{INCIDENTS}/{on(client, 'raw')['id']}/actions", body)

    assert answer.status == 422
    assert words in answer.json()["detail"]


def test_verdicts_and_statistics(client: Client) -> None:
    assert got(client, f"/api/v1/datasets/{quote(urn('raw'), safe='')}/verdict")["verdict"] == "unsafe"
    assert got(client, f"/api/v1/datasets/{urn('third')}/verdict")["verdict"] == "safe"
    assert got(client, "/api/v1/datasets/nobody/verdict")["verdict"] == "unknown"
    statistics = got(client, f"{INCIDENTS}/statistics?since=2026-05-01T00:00:00Z&until=2026-06-01T00:00:00Z")
    assert statistics["statistics"]["all"]["incidents"] == 3


def test_reading_takes_the_scope_read_and_acting_the_scope_act(postgres: Postgres, migrated_template: str) -> None:
    with new_database(postgres, migrated_template) as name:
        database = Database(database_url(postgres, name))
        with database.connect("test", autocommit=True) as connection:
            tell(connection, checked("raw", "bad", 2, good=False))
            reader = create_key(connection, "reader", {"read"}, actor="test").secret
            actor = create_key(connection, "ada", {"read", "act"}, actor="test").secret
        with serving(database) as client:
            assert client.ask("GET", INCIDENTS).status == 401
            items = client.ask("GET", INCIDENTS, authorization=f"Bearer {reader}").json()["items"]
            path = f"{INCIDENTS}/{items[0]['id']}"
            said = {"action": "acknowledge"}
            assert client.post(f"{path}/actions", said, authorization=f"Bearer {reader}").status == 403
            assert client.post(f"{path}/actions", said, authorization=f"Bearer {actor}").status == 200
            timeline = client.ask("GET", path, authorization=f"Bearer {actor}").json()["timeline"]
            assert [moment["actor"] for moment in timeline if "actor" in moment] == ["ada"]
