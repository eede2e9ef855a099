"""Signing in with a browser: what the cookie is good for, and for whom."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from correlator.store.api_keys import create_key
from correlator.store.database import Database
from tests.integration.events import run_event
from tests.integration.server.running import Answer, Server, running, wait_until


@pytest.fixture
def server(data_dir: Path, database: Database) -> Iterator[Server]:
    with running(data_dir, database=database) as server:
        yield server


def key(server: Server, name: str, *scopes: str) -> str:
    with server.database.connect("test", autocommit=True) as connection:
        secret = create_key(connection, name, scopes, actor="test").secret  # type: ignore[arg-type]  # checked by the database
    wait_until(lambda: server.get("/api/v1/jobs").status == 401, "the server wants a key")
    wait_until(lambda: server.get("/api/v1/jobs", authorization=f"Bearer {secret}").status != 401, "it is known")
    return secret


def sign_in(server: Server, secret: str, **headers: str) -> Answer:
    body = json.dumps({"key": secret}).encode()
    return server.post("/api/v1/session", body, content_type="application/json", **headers)


def cookie_of(answered: Answer) -> str:
    return (answered.header("set-cookie") or "").partition(";")[0]


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(server: Server) -> None:
    answered = sign_in(server, key(server, "ann", "read", "act"))
    assert answered.status == 200
    assert answered.json()["scopes"] == ["read", "act"]
    said = answered.header("set-cookie") or ""
    for word in ("HttpOnly", "SameSite=Strict", "Path=/api", "Max-Age=604800"):
        assert word in said
    assert "Secure" not in said
    behind_https = sign_in(server, key(server, "bob", "read"), x_forwarded_proto="https")
    assert "Secure" in (behind_https.header("set-cookie") or "")


def test_it_reads_and_acts_from_pages_of_this_server_alone(server: Server) -> None:
    cookie = cookie_of(sign_in(server, key(server, "ann", "read", "act")))
    assert server.get("/api/v1/jobs", cookie=cookie).status == 200
    assert server.get("/api/v1/session", cookie=cookie).json()["name"] == "ann"

    path = "/api/v1/incidents/7c7e1b80-9ec6-b1f4-991c-1471a19e5eb2/actions"
    deed = b'{"action": "acknowledge"}'
    said = {"content_type": "application/json", "cookie": cookie}
    assert server.post(path, deed, **said).status == 403
    assert server.post(path, deed, **said, origin="https://evil.example").status == 403
    assert server.post(path, deed, **said, origin=server.url).status == 404  # it may; there is no such incident
    assert server.post(path, deed, **said, sec_fetch_site="same-origin").status == 404
    assert server.post(path, deed, **said, sec_fetch_site="cross-site").status == 403


def test_it_sends_no_events(server: Server) -> None:
    secret = key(server, "all", "read", "ingest")
    cookie = cookie_of(sign_in(server, secret))
    event = json.dumps(run_event()).encode()
    said = {"content_type": "application/json", "origin": server.url}
    assert server.post("/api/v1/lineage", event, cookie=cookie, **said).status == 401
    assert server.post("/api/v1/lineage", event, authorization=f"Bearer {secret}", **said).status == 200


def test_a_key_that_may_not_read_cannot_sign_in(server: Server) -> None:
    assert sign_in(server, key(server, "airflow", "ingest")).status == 403
    refused = sign_in(server, "corr_nobody")
    assert refused.status == 401
    assert refused.header("set-cookie") is None
    assert server.post("/api/v1/session", b"{}", content_type="application/json").status == 422


def test_pages_of_other_sites_sign_nobody_in_or_out(server: Server) -> None:
    secret = key(server, "ann", "read")
    assert sign_in(server, secret, origin="https://evil.example").status == 403
    assert server.request("DELETE", "/api/v1/session", None, origin="https://evil.example").status == 403
    gone = server.request("DELETE", "/api/v1/session", None, origin=server.url)
    assert gone.status == 204
    assert "Max-Age=0" in (gone.header("set-cookie") or "")


def test_a_server_without_keys_says_that_it_is_open(server: Server) -> None:
    told = server.get("/api/v1/session").json()
    assert (told["is_open"], told["name"]) == (True, "anybody")
    assert "act" in told["scopes"]
