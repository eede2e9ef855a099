"""An ordinary event is served without ASGI. Nobody can tell, whatever comes before, between and after it."""

import json
import logging
import re
import socket
from collections.abc import Iterator

import pytest

from correlator.store.database import Database
from tests.integration.events import run_event
from tests.integration.server.serving import Client, serving

PING = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def nothing_fails_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Not even when the connections and the server end."""
    yield
    records = [*caplog.get_records("call"), *caplog.get_records("teardown")]
    assert [record.getMessage() for record in records if record.levelno >= logging.ERROR] == []


@pytest.fixture
def client(database: Database) -> Iterator[Client]:
    with serving(database) as client:
        yield client


@pytest.fixture
def connection(client: Client) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        yield connection


def event(job: str) -> bytes:
    return json.dumps(run_event(job=job)).encode()


def request(body: bytes, *headers: str, target: str = "/api/v1/lineage") -> bytes:
    lines = [f"POST {target} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def everything(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def told(answered: bytes) -> list[str]:
    """What each answer says, in their order."""
    return [word.decode() for word in re.findall(rb'"status":\s?"?(\w+)', answered)]


def jobs(database: Database) -> list[str]:
    with database.connect("test") as connection:
        rows = connection.execute("SELECT raw FROM lineage_events ORDER BY position", binary=True).fetchall()
    return [json.loads(raw)["job"]["name"] for (raw,) in rows]


def waiting_events(client: Client) -> int:
    return int(client.ask("GET", "/health").json()["waiting_events"])


def test_answers_come_in_the_order_of_what_was_sent_at_once(connection: socket.socket, database: Database) -> None:
    connection.sendall(request(event("a")) + request(event("a")) + PING + request(b"{}") + request(event("b")) + LAST)
    assert told(everything(connection)) == ["stored", "duplicate", "ok", "422", "stored", "ok"]
    assert jobs(database) == ["a", "b"]


@pytest.mark.parametrize("size", [1, 50, 400])
def test_an_event_may_come_in_pieces(connection: socket.socket, database: Database, size: int) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    whole = request(event("a")) + request(event("b")) + LAST
    for begin in range(0, len(whole), size):
        connection.sendall(whole[begin : begin + size])
    assert told(everything(connection)) == ["stored", "stored", "ok"]
    assert jobs(database) == ["a", "b"]


def test_both_ways_answer_alike(client: Client, connection: socket.socket) -> None:
    connection.sendall(request(event("a"), "X-Correlation-ID: same") + PING)
    connection.sendall(request(event("b"), "X-Correlation-ID: same", target="/api/v1/lineage?usual") + LAST)
    short, _, usual, _ = re.split(rb"(?<=})(?=HTTP/1.1 )", everything(connection))
    assert b"stored" in short
    assert short == usual
    page = client.ask("GET", "/metrics").body
    assert b'correlator_events_total{endpoint="/api/v1/lineage",outcome="stored"} 2\n' in page
    assert b'correlator_http_requests_total{endpoint="/api/v1/lineage",status="200"} 2\n' in page


def test_the_connection_is_closed_for_who_says_so(connection: socket.socket) -> None:
    connection.sendall(request(event("a"), "Connection: close"))
    assert told(everything(connection)) == ["stored"]


@pytest.mark.parametrize("after", [b"", PING])
def test_an_event_is_stored_though_its_sender_is_gone(client: Client, database: Database, after: bytes) -> None:
    with database.connect("in the way") as lock:
        lock.execute("SELECT FROM kept.log_head FOR UPDATE")
        with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
            connection.sendall(request(event("a")) + after)
            while waiting_events(client) == 0:
                pass
        lock.rollback()
    while b'{endpoint="/api/v1/lineage",status="200"} 1\n' not in client.ask("GET", "/metrics").body:
        pass
    assert jobs(database) == ["a"]
    assert client.ask("GET", "/health").json()["in_flight_bytes"] == 0


def test_half_an_event_whose_sender_is_gone_is_told_in_the_metrics(client: Client, database: Database) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        connection.sendall(request(event("a"))[:-10])
    while b'status="499"' not in client.ask("GET", "/metrics").body:
        pass
    assert jobs(database) == []


def test_a_connection_may_end_after_any_answer(client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        connection.sendall(request(event("a")))
        assert told(connection.recv(65_536)) == ["stored"]
    assert client.ask("GET", "/ping").status == 200
