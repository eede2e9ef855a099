"""The end of a server: it takes nothing new, answers what it has, and goes without a fuss."""

import http.client
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres
from correlator.store.migrations import migrate
from tests.chaos.harm import interrupt_server, stop_server
from tests.chaos.rounds import Rounds
from tests.integration.events import run_event
from tests.integration.server.running import (
    Answer,
    Server,
    family,
    kill_postgres,
    postmaster,
    running,
    signal_all,
    wait_until,
)


class Sender(threading.Thread):
    """One request, in a thread of its own because it will have to wait."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.raw = json.dumps(run_event(run_id=str(uuid4()))).encode()
        self.answer: Answer | None = None
        self._server = server
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._server.post("/api/v1/lineage", self.raw, content_type="application/json")
        except (OSError, http.client.HTTPException):
            self.answer = None


def waiting(server: Server, count: int = 1) -> list[Sender]:
    """Requests that the server has taken and cannot commit."""
    senders = [Sender(server) for _ in range(count)]
    wait_until(lambda: server.get("/health").json()["waiting_events"] == count, "all wait for their commit", server)
    return senders


def raws(database: Database) -> list[bytes]:
    with database.connect("test", autocommit=True) as connection:
        rows = connection.execute("SELECT raw FROM kept.lineage_events ORDER BY position", binary=True).fetchall()
        return [bytes(raw) for (raw,) in rows]


def accepts(server: Server) -> bool:
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=10).close()
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:  # at this very moment: ask again
        return True
    return True


@contextmanager
def in_the_way(database: Database) -> Iterator[None]:
    """Nobody can append meanwhile."""
    with database.connect("in the way") as connection:
        connection.execute("SELECT FROM kept.log_head FOR UPDATE")
        yield


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("how", "times"), [("SIGTERM", 1), ("SIGTERM", 2), ("Ctrl-C", 1)])
def test_what_was_taken_is_committed_and_answered_and_nothing_new_is_taken(
    data_dir: Path, database: Database, how: str, times: int, workers: str
) -> None:
    with running(data_dir, "--workers", workers, database=database) as server:
        with in_the_way(database):
            senders = waiting(server, 5)
            for _ in range(times):
                if how == "SIGTERM":
                    server.signal(signal.SIGTERM)
                else:
                    os.killpg(server.process.pid, signal.SIGINT)
                wait_until(lambda: not accepts(server), "nothing new is taken", server)
            assert server.process.poll() is None
        assert server.wait() == 0
        for sender in senders:
            sender.join()
            assert sender.answer is not None
            assert (sender.answer.status, sender.answer.json()["status"]) == (200, "stored")
    assert sorted(raws(database)) == sorted(sender.raw for sender in senders)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_second_ctrl_c_does_not_wait_and_acknowledges_nothing(
    data_dir: Path, database: Database, workers: str
) -> None:
    with running(data_dir, "--workers", workers, database=database) as server:
        with in_the_way(database):
            (sender,) = waiting(server)
            os.killpg(server.process.pid, signal.SIGINT)
            wait_until(lambda: not accepts(server), "nothing new is taken", server)
            os.killpg(server.process.pid, signal.SIGINT)
            sender.join()
        server.wait()
    assert sender.answer is None or sender.answer.status >= 500


def test_stopped_under_load_it_loses_nothing_and_takes_its_database_with_it(data_dir: Path) -> None:
    def stop(server: Server, random: Random) -> None:
        stop_server(server, random)
        assert postmaster(data_dir) is None

    def interrupt(server: Server, random: Random) -> None:
        interrupt_server(server, random)
        assert postmaster(data_dir) is None

    rounds = Rounds(data_dir, "a quiet end")
    rounds.play([stop, interrupt])
    assert rounds.story.kept


def test_idle_connections_do_not_keep_it(data_dir: Path, database: Database) -> None:
    with running(data_dir, database=database) as server:
        idle = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        idle.request("GET", "/ping")
        idle.getresponse().read()
        silent = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        half = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        half.sendall(b"POST /api/v1/lineage HTTP/1.1\r\nHost: x\r\n")
        assert server.stop() == 0
        for connection in (idle, silent, half):
            connection.close()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_told_to_stop_as_soon_as_it_listens_it_stops(data_dir: Path, database: Database, workers: str) -> None:
    with running(data_dir, "--workers", workers, database=database, is_ready=False) as server:
        server.signal(signal.SIGTERM)
        assert server.wait(20) == 0


def test_told_to_stop_while_it_starts_it_leaves_no_database_behind(data_dir: Path) -> None:
    server = Server((), data_dir, None)
    try:
        wait_until((data_dir / "postgres" / "data" / "postmaster.pid").exists, "PostgreSQL starts", server)
        server.signal(signal.SIGTERM)
        server.wait()
        assert postmaster(data_dir) is None
    finally:
        server.kill()
        kill_postgres(data_dir)


@pytest.fixture
def elsewhere(data_dir: Path) -> Iterator[Database]:
    """A database on a server of its own, which can be stopped."""
    directory = data_dir / "elsewhere"
    directory.mkdir(mode=0o711)
    with EmbeddedPostgres.open(directory / "postgres") as postgres:
        database = Database(postgres.url)
        migrate(database)
        yield database


def test_it_stops_while_the_database_is_away(data_dir: Path) -> None:
    """The embedded one, which cannot even be started again."""
    with running(data_dir) as server:
        data = data_dir / "postgres" / "data"
        data.rename(data.with_name("moved away"))
        process = int((data.with_name("moved away") / "postmaster.pid").read_text(encoding="utf-8").split()[0])
        signal_all(family(process), signal.SIGKILL)
        wait_until(lambda: not server.is_ready(), "it is not ready", server)
        assert server.post("/api/v1/lineage", json.dumps(run_event()).encode()).status == 503
        assert server.stop() == 0


def test_it_stops_waiting_for_a_database_that_hangs_when_its_grace_is_over(data_dir: Path, elsewhere: Database) -> None:
    with running(data_dir, "--shutdown-grace", "1s", database=elsewhere) as server:
        process = postmaster(data_dir / "elsewhere")
        assert process is not None
        processes = family(process)
        signal_all(processes, signal.SIGSTOP)
        try:
            (sender,) = waiting(server)
            server.signal(signal.SIGTERM)
            sender.join()
        finally:
            signal_all(processes, signal.SIGCONT)
        assert sender.answer is not None
        assert sender.answer.status == 503
        assert sender.answer.header("Retry-After") is not None
        assert server.wait() == 0
    # It may be there or not: it was not acknowledged.
    assert raws(elsewhere) in ([], [sender.raw])
