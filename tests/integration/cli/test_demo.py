"""`correlator demo` as a curious person types it, against a real server."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from correlator.cli.demo_play import DemoPlay
from correlator.store.api_keys import create_key
from correlator.store.database import Database
from tests.integration.cli.command import correlator
from tests.integration.server.running import Server, running, wait_until

DAY = ("--day", "2026-05-12")


@pytest.fixture
def server(data_dir: Path, database: Database) -> Iterator[Server]:
    with running(data_dir, database=database) as server:
        yield server


def totals(database: Database) -> tuple[int, ...]:
    """Received, stored, duplicates, rejected."""
    with database.connect("test") as connection:
        row = connection.execute("SELECT received, stored, duplicates, rejected FROM ingest_totals").fetchone()
    return (0, 0, 0, 0) if row is None else tuple(row)


def latest_events(database: Database, count: int) -> list[bytes]:
    with database.connect("test") as connection:
        rows = connection.execute("SELECT raw FROM lineage_events ORDER BY position DESC LIMIT %s", [count]).fetchall()
    return [bytes(raw) for (raw,) in rows]


def test_everything_is_taken_and_a_second_time_adds_nothing(server: Server, database: Database) -> None:
    played = correlator("demo", "--url", server.url, "--fast", *DAY)
    assert (played.returncode, played.stderr) == (0, "")
    assert f"{server.url}/incidents" in played.stdout
    assert "correlator incidents" in played.stdout
    received, stored, duplicates, rejected = totals(database)
    assert stored > 5000
    assert (received, rejected) == (stored + duplicates, 0)
    last = latest_events(database, 150)
    assert any(b"dash_revenue" in raw and b'"success":false' in raw for raw in last)

    again = correlator("demo", "--url", f"{server.url}/", "--fast", *DAY)
    assert again.returncode == 0
    assert totals(database) == (2 * received, stored, received + duplicates, 0)


def test_a_server_that_wants_a_key_is_told_about_and_satisfied(server: Server, database: Database) -> None:
    with database.connect("test", autocommit=True) as connection:
        secret = create_key(connection, "demo", ["ingest"], actor="ann").secret
    wait_until(lambda: server.post("/api/v1/lineage", b"{}").status == 401, "the server wants a key")
    refused = correlator("demo", "--url", server.url, "--fast", *DAY)
    assert refused.returncode == 1
    assert "--api-key" in refused.stderr
    assert totals(database)[1] == 0

    taken = correlator("demo", "--url", server.url, "--fast", *DAY, CORRELATOR_API_KEY=secret)
    assert taken.returncode == 0
    assert secret not in taken.stdout + taken.stderr
    assert totals(database)[1] > 5000


def test_without_a_server_it_says_how_to_start_one(unused_port: int) -> None:
    alone = correlator("demo", "--url", f"http://127.0.0.1:{unused_port}")
    assert alone.returncode == 2
    assert "correlator up" in alone.stderr
    assert alone.stdout == ""


def test_an_address_that_is_none_is_told_so() -> None:
    wrong = correlator("demo", "--url", "localhost:8080")
    assert wrong.returncode == 2
    assert "http://localhost:8080" in wrong.stderr


def test_up_has_it_played_once_the_pipeline_works_and_ends_it_with_the_rest(server: Server, tmp_path: Path) -> None:
    lines: list[str] = []
    play = DemoPlay(tmp_path / "data")
    play.start(server.url, on_line=lines.append)
    assert server.get("/ready").status == 200
    assert lines == []

    play.pipeline_works()
    wait_until(lambda: any("the morning's runs begin" in line for line in lines), "three weeks are played")
    play.stop()

    assert lines[0].startswith("A shop with")
    # The morning takes a minute, and was not waited for.
    assert not any("Look here" in line for line in lines)


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that is ours, and on which nobody listens."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]
