"""More than the database takes: requests are sent away in words, memory stays bounded, and all is well afterwards."""

import http.client
import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import pytest

from correlator.store.database import Database
from tests.integration.events import run_event
from tests.integration.server.running import (
    PATIENCE,
    Answer,
    Server,
    backends_of,
    family,
    postmaster,
    running,
    signal_all,
    wait_until,
)

MOST_WAITING = 50


@pytest.fixture
def server(data_dir: Path, database: Database) -> Iterator[Server]:
    with running(
        data_dir, "--max-waiting-events", str(MOST_WAITING), "--commit-timeout", "6s", database=database
    ) as server:
        yield server


@contextmanager
def in_the_way(database: Database) -> Iterator[None]:
    """Nobody can append meanwhile."""
    with database.connect("in the way") as connection:
        connection.execute("SELECT FROM kept.log_head FOR UPDATE")
        yield


def event(**extra: Any) -> bytes:
    return json.dumps(run_event(run_id=str(uuid4()), **extra)).encode()


def send(server: Server, raw: bytes) -> Answer:
    return server.post("/api/v1/lineage", raw, content_type="application/json")


def is_busy(answer: Answer) -> bool:
    """503 as it has to be."""
    document = answer.json()
    assert answer.header("Content-Type") == "application/problem+json"
    assert int(answer.header("Retry-After") or 0) >= 1
    assert document["type"] == "urn:correlator:problem:unavailable"
    return bool(answer.status == document["status"] == 503)


def stored(database: Database) -> Counter[bytes]:
    with database.connect("test", autocommit=True) as connection:
        rows = connection.execute("SELECT raw FROM kept.lineage_events", binary=True).fetchall()
        return Counter(bytes(raw) for (raw,) in rows)


def ledger(database: Database) -> tuple[int, int, int, int]:
    with database.connect("test", autocommit=True) as connection:
        row = connection.execute("SELECT received, stored, duplicates, rejected FROM kept.ingest_totals").fetchone()
        assert row is not None
        return row


def waiting_events(server: Server) -> int:
    count = server.get("/health").json()["waiting_events"]
    assert isinstance(count, int)
    return count


def test_beyond_the_limit_requests_are_sent_away_and_the_rest_is_kept(server: Server, database: Database) -> None:
    """The database is slow, not dead: whoever waits is answered in the end."""
    events = [event() for _ in range(MOST_WAITING + 20)]
    with ThreadPoolExecutor(len(events)) as pool:
        with in_the_way(database):
            sent = [pool.submit(send, server, raw) for raw in events]
            wait_until(lambda: sum(answer.done() for answer in sent) == 20, "20 are sent away", server)
            assert waiting_events(server) == MOST_WAITING
            assert server.get("/ping").status == 200
            for answer in sent:
                if answer.done():
                    assert is_busy(answer.result())
                    assert "max_waiting_events" in answer.result().json()["detail"]
        answers = [answer.result() for answer in sent]
    assert Counter(answer.status for answer in answers) == {200: MOST_WAITING, 503: 20}
    accepted = [raw for raw, answer in zip(events, answers, strict=True) if answer.status == 200]
    assert stored(database) == Counter(accepted)
    # Who was sent away comes again; who was not, too.
    outcomes = Counter(send(server, raw).json()["status"] for raw in events)
    assert outcomes == {"duplicate": MOST_WAITING, "stored": 20}
    assert stored(database) == Counter(events)
    assert ledger(database) == (len(events) + MOST_WAITING, len(events), MOST_WAITING, 0)


def test_a_batch_that_is_larger_than_the_limit_passes_when_nobody_waits(server: Server, database: Database) -> None:
    events = [event() for _ in range(3 * MOST_WAITING)]
    body = b"[" + b",".join(events) + b"]"
    answer = server.post("/api/v1/lineage/batch", body, content_type="application/json")
    assert answer.json()["summary"]["successful"] == len(events)
    assert stored(database) == Counter(events)


def test_a_lock_that_is_not_let_go_of_is_told_and_nothing_is_stored_twice(server: Server, database: Database) -> None:
    """Somebody's transaction holds the end of the log for longer than anybody should wait."""
    raw = event()
    with ThreadPoolExecutor(2) as pool, in_the_way(database):
        first, second = pool.submit(send, server, raw), pool.submit(send, server, event())
        assert is_busy(first.result())
        assert is_busy(second.result())
        assert server.get("/ping").status == 200
    wait_until(server.is_ready, "it is ready", server)
    assert send(server, raw).status == 200
    assert stored(database)[raw] == 1


def test_a_connection_that_breaks_is_made_again_and_nobody_notices(server: Server, database: Database) -> None:
    # Many, because it depends on what is on its way when the connection breaks.
    events = [event() for _ in range(200)]
    with database.connect("test", autocommit=True) as connection:
        for raw in events:
            for process in backends_of(connection, "group commit"):
                connection.execute("SELECT pg_terminate_backend(%s)", [process])
            assert send(server, raw).json()["status"] == "stored"
    assert stored(database) == Counter(events)


class Insistence:
    """Clients that send without end, new events all the time, and give up on each after a moment."""

    def __init__(self, server: Server, clients: int) -> None:
        self.outcomes: Counter[int] = Counter()
        self.acknowledged: list[bytes] = []
        self._server = server
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=2)
        while not self._is_over.wait(0.02):
            raw = event(padding="x" * 100_000)
            try:
                connection.request("POST", "/api/v1/lineage", raw)
                response = connection.getresponse()
                response.read()
                status = response.status
            except (OSError, http.client.HTTPException):
                connection.close()
                status = 0
            with self._lock:
                self.outcomes[status] += 1
                if status == 200:
                    self.acknowledged.append(raw)
        connection.close()


def test_a_database_that_hangs_is_told_and_afterwards_everything_works_again(data_dir: Path) -> None:
    """Every process of PostgreSQL stands still, as on a disk that does not answer."""
    events = [event(padding="x" * 100_000) for _ in range(MOST_WAITING)]
    limits = ("--max-waiting-events", str(MOST_WAITING), "--commit-timeout", "4s")
    with running(data_dir, *limits) as server, ThreadPoolExecutor(MOST_WAITING) as pool:
        for raw in events:
            assert send(server, raw).status == 200
        process = postmaster(data_dir)
        assert process is not None
        processes = family(process)
        before = server.resident_bytes
        signal_all(processes, signal.SIGSTOP)
        try:
            waiting = [pool.submit(send, server, event()) for _ in range(MOST_WAITING // 2)]
            with Insistence(server, 4) as others:
                wait_until(lambda: others.outcomes[503] > 0, "others are sent away", server)
                wait_until(lambda: server.get("/ready").status == 503, "it is not ready", server)
                assert server.get("/ping").status == 200
                # Whoever waits is told as well, though nobody knows what will become of it.
                assert all(is_busy(answer.result(PATIENCE)) for answer in waiting)
                assert waiting_events(server) <= MOST_WAITING
                assert is_busy(send(server, events[0]))
                # What waits has 5 MB at most; the rest is a generous measure of everything else.
                assert server.resident_bytes - before < 100_000_000
        finally:
            signal_all(processes, signal.SIGCONT)
        server.wait_until_ready()
        wait_until(lambda: waiting_events(server) == 0, "nobody waits any more", server)
        assert Counter(send(server, raw).json()["status"] for raw in events) == {"duplicate": len(events)}
        kept = stored(server.database)
        assert set(kept.values()) == {1}
        assert not Counter([*events, *others.acknowledged]) - kept
        received, in_log, duplicates, rejected = ledger(server.database)
        assert (received, in_log, rejected) == (in_log + duplicates, kept.total(), 0)
        assert server.stop() == 0


def test_a_database_that_only_reads_is_away(server: Server, database: Database) -> None:
    """As a standby is after a failover, or a database whose provider holds it still for want of room."""
    with database.connect("test", autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
        end = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'correlator group commit'"
        )
        connection.execute(end.encode() + b" AND datname = current_database()")
        wait_until(lambda: server.get("/ready").status == 503, "it is not ready", server)
        answer = server.post("/api/v1/lineage", event(), content_type="application/json")
        assert (answer.status, "retry-after" in answer.headers) == (503, True)
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only'.encode())
    wait_until(lambda: server.get("/ready").status == 200, "it is ready again", server)
    assert server.post("/api/v1/lineage", event(), content_type="application/json").status == 200
