"""Questions over HTTP: a real server, its threads and its database."""

import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest
from msgspec.structs import replace

from correlator.alerts import outbox
from correlator.alerts.payloads import of_test
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from correlator.rulebook.fold import fold
from correlator.store.alert_routes import NewRoute, add_route
from correlator.store.database import Database
from correlator.store.staging import prepare
from tests.integration.alerts.receivers import receiver
from tests.integration.events import run_event as small_event
from tests.integration.server.running import wait_until
from tests.integration.server.serving import Answer, Client, serving
from tests.integration.store.merging import SOURCE, apply
from tests.unit.rulebook.histories import DB, dataset, run_event


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect("test", autocommit=True) as connection:
        prepare(connection, SOURCE)
        yield connection


@pytest.fixture
def client(database: Database) -> Iterator[Client]:
    with serving(database) as client:
        yield client


def get(client: Client, path: str, status: int = 200) -> Any:
    answer = client.ask("GET", path)
    assert answer.status == status, answer.body
    return answer.json()


def send(client: Client, method: str, path: str, body: Any = None) -> Answer:
    raw = None if body is None else json.dumps(body).encode()
    return client.ask(method, path, raw, content_type="application/json")


def test_names_are_found_in_paths_however_many_slashes_they_hold(
    client: Client, connection: psycopg.Connection
) -> None:
    event = small_event("COMPLETE", job="a/b?c%d#é")
    event["job"]["namespace"] = "spark://h:7077/x"
    stored = json.dumps(event).encode()
    assert client.post("/api/v1/lineage", stored).status == 200
    apply_all(connection)

    namespace, name = quote("spark://h:7077/x", safe=""), quote("a/b?c%d#é", safe="")
    assert get(client, f"/api/v1/jobs/{namespace}/{name}")["job"]["name"] == "a/b?c%d#é"
    assert len(get(client, f"/api/v1/jobs/{namespace}/{name}/runs")["items"]) == 1
    urn = "postgres://db:5432/shop.public.orders"
    for path in (urn, quote(urn, safe="")):
        assert get(client, f"/api/v1/datasets/{path}")["dataset"]["urn"] == urn
    assert get(client, f"/api/v1/lineage?node={quote('job:spark://h:7077/x/a/b?c%d#é')}")["graph"]["nodes"]
    assert "percent-encoded" in get(client, "/api/v1/jobs/a/b", 404)["detail"]
    head = client.ask("HEAD", "/api/v1/jobs")
    assert (head.status, head.body) == (200, b"")
    wrong = client.ask("POST", "/api/v1/jobs")
    assert (wrong.status, wrong.headers["allow"]) == (405, "GET, HEAD")


def apply_all(connection: psycopg.Connection) -> None:
    """What the pipeline does with the log."""
    rows = connection.execute("SELECT position, raw FROM kept.lineage_events ORDER BY position").fetchall()
    verdicts = [judge(raw) for _, raw in rows]
    events = [verdict for verdict in verdicts if not isinstance(verdict, Rejection)]
    last = rows[-1][0]
    apply(connection, fold(events), reader="facts", first_position=1, last_position=last, read=last, applied=last)


def test_every_page_of_a_list_is_reached_by_its_cursor(client: Client, connection: psycopg.Connection) -> None:
    events = [run_event("COMPLETE", number, run=str(number), outputs=[dataset(f"t{number}")]) for number in range(7)]
    apply(connection, fold(events))

    for path, name in (("/api/v1/datasets", "name"), ("/api/v1/jobs/airflow/etl.orders/runs", "run_id")):
        seen, cursor = [], ""
        while cursor is not None:
            page = get(client, f"{path}?limit=3" + (f"&cursor={cursor}" if cursor else ""))
            seen += [item[name] for item in page["items"]]
            cursor = page["next_cursor"]
        assert len(seen) == len(set(seen)) == 7


def test_facts_are_as_of_the_first_event_that_is_not_in_them(client: Client, connection: psycopg.Connection) -> None:
    before = get(client, "/api/v1/jobs")["facts_as_of"]
    client.post("/api/v1/lineage", small_event("COMPLETE"))
    (received,) = connection.execute("SELECT received_at FROM kept.lineage_events").fetchone() or ()
    behind = get(client, "/api/v1/jobs")["facts_as_of"]
    assert before < behind
    assert behind == received.isoformat().replace("+00:00", "Z")
    assert get(client, "/api/v1/health/lag")["readers"] == [
        {"source": "log", "reader": "facts", "events": 1, "seconds": pytest.approx(0, abs=120)}
    ]

    apply_all(connection)

    assert get(client, "/api/v1/jobs")["facts_as_of"] > behind
    ledger = get(client, "/api/v1/health/ledger")
    assert ledger["received"][0]["stored"] == ledger["pipeline"][0]["applied"] == 1


def test_patterns_and_ignored_names_are_set_up(client: Client, connection: psycopg.Connection) -> None:
    apply(connection, fold([run_event("COMPLETE", outputs=[dataset("orders", "warehouse")])]))
    pattern = {"pattern": "warehouse/{t}", "target": f"{DB}/{{t}}"}

    made = send(client, "POST", "/api/v1/health/orphans/accept", pattern)
    assert made.status == 201
    assert made.json()["created_by"] == "anybody"
    assert send(client, "POST", "/api/v1/patterns", pattern).status == 409
    assert "no partner" in send(client, "POST", "/api/v1/patterns", {"pattern": "{", "target": "x"}).json()["detail"]
    assert get(client, "/api/v1/datasets/warehouse/orders")["dataset"]["called"] == f"{DB}/orders"
    number = made.json()["id"]
    changed = send(client, "PUT", f"/api/v1/patterns/{number}", pattern | {"target": "x/{t}"})
    assert changed.json()["target"] == "x/{t}"
    assert send(client, "DELETE", f"/api/v1/patterns/{number}").status == 204
    assert send(client, "DELETE", f"/api/v1/patterns/{number}").status == 404
    assert get(client, "/api/v1/patterns")["items"] == []

    hidden = send(client, "POST", "/api/v1/ignored", {"kind": "namespace", "pattern": "ware*"})
    assert hidden.status == 201
    assert get(client, "/api/v1/datasets")["items"] == []
    assert send(client, "DELETE", f"/api/v1/ignored/{hidden.json()['id']}").status == 204
    assert len(get(client, "/api/v1/datasets")["items"]) == 1


def test_a_route_of_alerts_never_shows_where_it_leads_or_what_signs_it(client: Client) -> None:
    route = {"name": "team", "kind": "slack", "url": "https://me:hush@hooks.example/T/hush", "secret": "hush"}
    made = send(client, "POST", "/api/v1/alert-routes", route)
    assert made.status == 201
    number = made.json()["id"]
    listed = client.ask("GET", "/api/v1/alert-routes")
    changed = send(client, "PATCH", f"/api/v1/alert-routes/{number}", {"owners": ["shop"], "is_enabled": False})
    for answer in (made, listed, changed):
        assert b"hush" not in answer.body
    assert changed.json()["url"] == "https://hooks.example/…"
    assert (changed.json()["has_secret"], changed.json()["owners"]) == (True, ["shop"])
    assert send(client, "POST", "/api/v1/alert-routes", route).status == 409
    assert send(client, "PATCH", f"/api/v1/alert-routes/{number}", {"secret": None}).json()["has_secret"] is False
    assert send(client, "DELETE", f"/api/v1/alert-routes/{number}").status == 204
    assert b"hush" not in send(client, "POST", "/api/v1/alert-routes", {**route, "url": "hush"}).body


def test_a_webhook_without_a_secret_gets_one_that_is_shown_once(client: Client) -> None:
    route = {"name": "hook", "kind": "webhook", "url": "https://hooks.example/T"}
    made = send(client, "POST", "/api/v1/alert-routes", route).json()
    assert (len(made["secret"]) > 30, made["has_secret"]) == (True, True)

    (listed,) = get(client, "/api/v1/alert-routes")["items"]
    assert "secret" not in listed
    assert (listed["is_default"], listed["tells_resolved"]) == (False, True)
    given = send(client, "POST", "/api/v1/alert-routes", {**route, "name": "given", "secret": "hush"})
    assert "secret" not in given.json()
    pager = send(client, "POST", "/api/v1/alert-routes", {**route, "name": "pager", "kind": "pagerduty"})
    assert (pager.status, "routing key" in pager.json()["detail"]) == (409, True)


def test_a_route_is_tried_and_what_was_told_is_listed_and_sent_again(
    database: Database, connection: psycopg.Connection
) -> None:
    with receiver() as heard, serving(database, alerts_allow_private=True) as client:
        made = add_route(connection, NewRoute(name="hook", kind="webhook", url=heard.url), actor="test")
        tried = send(client, "POST", f"/api/v1/alert-routes/{made.id}/test")
        assert (tried.status, tried.json()) == (200, {"is_taken": True, "status": 200, "words": "200 OK: ok"})
        assert heard.received[0].json()["event"] == "test"
        assert send(client, "POST", "/api/v1/alert-routes/999/test").status == 404

        for _ in range(3):
            alert = replace(of_test("hook", key=uuid4(), public_url=None), event="opened")
            outbox.put(connection, alert, made)
        first = get(client, "/api/v1/alerts?limit=2")
        second = get(client, f"/api/v1/alerts?limit=2&cursor={first['next_cursor']}")
        items = [*first["items"], *second["items"]]
        assert (len(items), second["next_cursor"]) == (3, None)
        assert {item["state"] for item in items} == {"pending"}

        number = items[0]["id"]
        assert send(client, "POST", f"/api/v1/alerts/{number}/retry").status == 404
        connection.execute("UPDATE kept.alert_outbox SET given_up_at = now() WHERE id = %s", [number])
        connection.execute("UPDATE kept.alert_totals SET sent = 7, failed = 1")
        assert [item["id"] for item in get(client, "/api/v1/alerts?state=failed")["items"]] == [number]
        wait_until(lambda: "correlator_alerts_pending 2" in metrics(client), "it is counted")
        told = metrics(client)
        assert 'correlator_alerts_total{outcome="sent"} 7' in told
        assert 'correlator_alerts_total{outcome="failed"} 1' in told
        assert "correlator_alerts_oldest_pending_seconds" in told
        assert send(client, "POST", f"/api/v1/alerts/{number}/retry").status == 204
        assert get(client, "/api/v1/alerts?state=failed")["items"] == []


def metrics(client: Client) -> str:
    return client.ask("GET", "/metrics").body.decode()


def test_refused_events_are_looked_at_and_driven_in_again(client: Client, connection: psycopg.Connection) -> None:
    bad = small_event() | {"job": {"namespace": "tests"}, "password": "hush"}
    assert client.post("/api/v1/lineage", bad).status == 422
    (reject,) = get(client, "/api/v1/rejects?rule=required")["items"]
    whole = get(client, f"/api/v1/rejects/{reject['id']}")
    assert (whole["event"]["password"], whole["event"]["eventType"]) == ("***", "START")
    assert whole["problems"]
    (reason,) = get(client, "/api/v1/health/rejects")["reasons"]
    assert reason["events"] == 1

    still = send(client, "POST", "/api/v1/rejects/redrive", {"ids": [reject["id"]]}).json()["items"]
    assert [item["accepted"] for item in still] == [False]
    connection.execute("UPDATE kept.rejected_events SET raw = %s", [json.dumps(small_event()).encode()])
    rehearsed = send(client, "POST", "/api/v1/rejects/redrive", {"ids": [reject["id"]], "dry_run": True})
    assert rehearsed.json()["items"][0]["accepted"]
    done = send(client, "POST", "/api/v1/rejects/redrive", {"ids": [reject["id"]]}).json()["items"]
    assert (done[0]["accepted"], done[0]["stored"]) == (True, 1)
    assert get(client, "/api/v1/rejects?not_redriven=true")["items"] == []


def test_the_first_key_locks_the_server_and_its_secret_is_shown_once(client: Client) -> None:
    made = send(client, "POST", "/api/v1/keys", {"name": "admin", "scopes": ["admin", "read"]})
    assert made.status == 201
    secret = made.json()["secret"]
    while client.ask("GET", "/api/v1/jobs").status == 200:
        pass
    assert client.ask("GET", "/api/v1/jobs").status == 401
    assert client.ask("GET", "/api/v1/jobs", authorization=f"Bearer {secret}").status == 200
    listed = client.ask("GET", "/api/v1/keys", x_api_key=secret)
    assert secret.encode() not in listed.body
    again = client.post("/api/v1/keys", {"name": "admin", "scopes": ["read"]}, x_api_key=secret)
    assert again.status == 409
    other = client.post("/api/v1/keys", {"name": "reader", "scopes": ["read"]}, x_api_key=secret).json()
    revoked = client.ask("DELETE", f"/api/v1/keys/{other['key']['id']}", x_api_key=secret)
    assert revoked.json()["revoked_at"] is not None
    assert client.ask("DELETE", "/api/v1/keys/999", x_api_key=secret).status == 404


def test_when_all_connections_are_busy_a_question_is_told_to_come_back_and_events_are_not(
    database: Database,
) -> None:
    with (
        serving(database, query_connections=1, query_patience=0.2, query_timeout=60.0) as client,
        database.connect("in the way") as blocker,
    ):
        get(client, "/api/v1/jobs")
        blocker.execute("LOCK TABLE facts.jobs IN ACCESS EXCLUSIVE MODE")
        slow = threading.Thread(target=client.ask, args=["GET", "/api/v1/jobs"])
        slow.start()
        answer = client.ask("GET", "/api/v1/datasets")
        while answer.status != 503:
            answer = client.ask("GET", "/api/v1/datasets")
        assert "query_connections" in answer.json()["detail"]
        assert int(answer.headers["retry-after"]) >= 1
        assert client.post("/api/v1/lineage", small_event()).status == 200
        blocker.rollback()
        slow.join()
        get(client, "/api/v1/datasets")


def test_a_question_that_takes_too_long_is_ended(database: Database) -> None:
    with (
        serving(database, query_timeout=0.2) as client,
        database.connect("in the way") as blocker,
    ):
        blocker.execute("LOCK TABLE facts.jobs IN ACCESS EXCLUSIVE MODE")
        answer = client.ask("GET", "/api/v1/jobs")
        assert answer.status == 503
        assert "query_timeout" in answer.json()["detail"]
        blocker.rollback()
        get(client, "/api/v1/jobs")


def test_questions_survive_a_database_that_drops_their_connections(
    client: Client, connection: psycopg.Connection
) -> None:
    get(client, "/api/v1/jobs")
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'correlator questions' AND datname = current_database()"
    )
    get(client, "/api/v1/jobs")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/v1/jobs?limit=0", "limit: Expected `int` >= 1"),
        ("/api/v1/jobs?limit=501", "limit"),
        ("/api/v1/jobs?limt=5", "no parameter 'limt'"),
        ("/api/v1/jobs?limit=5&limit=6", "twice"),
        ("/api/v1/jobs?cursor=x", "cursor"),
        ("/api/v1/search", "`q`"),
        ("/api/v1/lineage?node=x", "write dataset:URN"),
        ("/api/v1/lineage?node=dataset:x&as_of=yesterday", "no moment"),
        ("/api/v1/lineage?node=dataset:x&as_of=2026-05-04T10:00:00", "as_of"),
        ("/api/v1/search?q=%00", "NUL"),
    ],
)
def test_what_cannot_be_asked_is_told_in_words(client: Client, path: str, words: str) -> None:
    assert words in get(client, path, 422)["detail"]


def test_a_year_that_python_does_not_know_breaks_no_answer(client: Client, connection: psycopg.Connection) -> None:
    apply(connection, fold([run_event("COMPLETE", outputs=[dataset("a")])]))
    connection.execute("UPDATE jobs SET first_event_at = '0044-03-15 BC', last_event_at = '12026-01-01'")
    job = get(client, "/api/v1/jobs/airflow/etl.orders")["job"]
    assert (job["first_event_at"][:4], job["last_event_at"][:4]) == ("0001", "9999")


def test_the_metrics_tell_questions_apart_by_their_declared_paths(client: Client) -> None:
    get(client, "/api/v1/jobs/a/b", 404)
    get(client, "/api/v1/search?q=x")
    get(client, "/api/v1/nothing", 404)
    told = client.ask("GET", "/metrics").body.decode()
    assert 'endpoint="/api/v1/jobs/{namespace}/{name}",status="404"' in told
    assert 'endpoint="/api/v1/search",status="200"' in told
    assert 'endpoint="other",status="404"' in told
