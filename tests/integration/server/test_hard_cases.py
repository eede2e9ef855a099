"""What has stopped or starved a server once: each is answered, and costs what it should."""

import json
import socket
import threading
import uuid
from typing import Any

import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from correlator.store.database import Database
from tests.integration.server.serving import serving


def event(**others: Any) -> dict[str, Any]:
    return {
        "eventType": "OTHER",
        "eventTime": "2026-01-01T00:00:00Z",
        "run": {"runId": str(uuid.uuid4())},
        "job": {"namespace": "n", "name": "j"},
        "producer": "https://example.com/p",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        **others,
    }


def raw_exchange(port: int, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(sent)
        answer = b""
        while b"}" not in answer:
            answer += connection.recv(65536)
        return answer


@pytest.mark.parametrize("protocol", ["h2c", "TLS/1.2", "websocket"])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_the_body_of_a_request_that_offers_another_protocol_is_read(
    database: Database, protocol: str, *, is_chunked: bool
) -> None:
    body = json.dumps(event()).encode()
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if is_chunked else body
    framing = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % len(body)
    head = (
        b"POST /api/v1/lineage HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: Upgrade\r\nUpgrade: " + protocol.encode() + b"\r\n" + framing + b"\r\n\r\n"
    )
    with serving(database) as client:
        assert b'"status":"stored"' in raw_exchange(client.port, head + framed)
        # And the connection goes on.
        assert raw_exchange(client.port, (head + framed) * 2).count(b'"status":"duplicate"') >= 1


def test_ten_thousand_ways_to_tell_one_key_are_stored_and_hold_nobody_up(database: Database) -> None:
    run = {"runId": str(uuid.uuid4())}
    facet = {"_producer": "https://example.com/p", "_schemaURL": "https://example.com/s"}
    batch = [
        event(run=run, job={"namespace": "n", "name": "j", "facets": {"x": {**facet, "v": number}}})
        for number in range(10_000)
    ]
    with serving(database) as client:
        assert client.post("/api/v1/lineage/batch", batch).json()["summary"]["successful"] == len(batch)
        again = client.post("/api/v1/lineage/events", batch[:10]).json()
        assert again["duplicates"] == 10


def test_the_answer_to_a_batch_of_endless_faults_is_bounded(database: Database) -> None:
    fields: dict[str, Any] = {"k" * 100_000: {"inputFields": [{}] * 300}}
    facet = {
        "_producer": "https://example.com/p",
        "_schemaURL": "https://openlineage.io/spec/facets/1-2-0/ColumnLineageDatasetFacet.json",
        "fields": fields,
    }
    outputs = [{"namespace": "a", "name": "b", "facets": {"columnLineage": facet}}]
    with serving(database) as client:
        answer = client.post("/api/v1/lineage/events", [event(outputs=outputs) for _ in range(100)])
        assert answer.status == 200
        assert len(answer.body) < 10_000_000


def test_a_day_that_somebody_else_is_making_is_waited_for(database: Database) -> None:
    with serving(database) as client, database.connect("test") as other:
        other.execute("SELECT kept.ensure_log_partition('2031-05-05T00:00:01Z')")
        with database.connect("test", autocommit=True) as admin:
            admin.execute("UPDATE kept.log_head SET received_at = '2031-05-05T00:00:01Z'")
            statuses: list[int] = []
            sender = threading.Thread(
                target=lambda: statuses.append(client.post("/api/v1/lineage", event()).status), daemon=True
            )
            sender.start()
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            while admin.execute(waiting).fetchone() == (0,):
                pass
        other.commit()
        sender.join(10)
    assert statuses == [200]


def test_a_database_that_takes_no_writes_is_503(database: Database) -> None:
    with serving(database) as client:
        name = sql.Identifier(str(conninfo_to_dict(database.url)["dbname"]))
        with database.connect("test", autocommit=True) as admin:
            admin.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            try:
                answer = client.post("/api/v1/lineage", event())
            finally:
                admin.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))
        assert answer.status == 503
        assert "retry-after" in answer.headers
