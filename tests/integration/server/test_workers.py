"""Several worker processes are one server: whatever happens to one of them, nothing that was acknowledged is lost."""

import http.client
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest

from correlator.store.api_keys import create_key, revoke_key
from correlator.store.database import Database
from tests.chaos.load import Load
from tests.chaos.story import Story
from tests.chaos.verdict import Verdict
from tests.integration.events import run_event
from tests.integration.server.running import Answer, Server, family, running, signal_all, wait_until

TWO = ("--workers", "2")


class Connection:
    """One that stays open, and with it the worker at its other end."""

    def __init__(self, server: Server) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        # The ids that a process makes begin alike.
        self.worker = str(self.ask("GET", "/ping").header("X-Correlation-ID")).partition("-")[0]

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        self._connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        response = self._connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())

    def send(self, raw: bytes, **headers: str) -> Answer:
        return self.ask("POST", "/api/v1/lineage", raw, **headers)

    def close(self) -> None:
        self._connection.close()


@contextmanager
def one_to_each(server: Server, workers: int = 2) -> Iterator[list[Connection]]:
    """A connection to each worker."""
    found: dict[str, Connection] = {}
    try:
        while len(found) < workers:
            connection = Connection(server)
            found.setdefault(connection.worker, connection)
            if found[connection.worker] is not connection:
                connection.close()
        yield list(found.values())
    finally:
        for connection in found.values():
            connection.close()


@contextmanager
def loaded(server: Server, clients: int = 6) -> Iterator[Story]:
    """Under load; at the end everything is answered, and has been looked for."""
    story = Story()
    load = Load(story, server.port, "workers", clients)
    load.start()
    try:
        wait_for(story, 50)
        yield story
    except BaseException:
        load.abandon()
        raise
    load.finish()
    assert findings(server.database, story) == []


def wait_for(story: Story, more: int) -> None:
    """Until so many more events have been answered."""
    enough = story.answered + more
    wait_until(lambda: story.answered >= enough, "events are answered")


def findings(database: Database, story: Story) -> list[str]:
    with database.connect("test", autocommit=True) as connection:
        return Verdict(story).findings(connection)


def workers_of(server: Server) -> list[int]:
    return family(server.process.pid)[1:]


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    # Where nobody waits for orphans, they stay behind as this.
    return state != "Z"


def new_event() -> bytes:
    return json.dumps(run_event(run_id=str(uuid4()))).encode()


def figure(metrics: Answer, sample: str) -> float:
    found = re.search(rf"^{re.escape(sample)} (\S+)$", metrics.body.decode(), re.MULTILINE)
    return 0 if found is None else float(found[1])


STORED = 'correlator_events_total{endpoint="/api/v1/lineage",outcome="stored"}'


def test_whatever_worker_takes_an_event_it_is_stored_once_in_one_log(data_dir: Path, database: Database) -> None:
    with running(data_dir, "--workers", "3", database=database) as server, loaded(server) as story:
        assert len(workers_of(server)) == 3
        wait_for(story, 500)


def test_of_the_same_event_at_two_workers_at_the_same_moment_one_is_stored(data_dir: Path, database: Database) -> None:
    events = [new_event() for _ in range(40)]
    told: list[list[str]] = [[], []]
    together = threading.Barrier(2)

    def send(connection: Connection, answers: list[str]) -> None:
        for event in events:
            together.wait(60)
            answers.append(connection.send(event).json()["status"])

    with running(data_dir, *TWO, database=database) as server, one_to_each(server) as connections:
        threads = [threading.Thread(target=send, args=each) for each in zip(connections, told, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [sorted(pair) for pair in zip(*told, strict=True)] == [["duplicate", "stored"]] * len(events)


def test_a_worker_that_is_killed_is_replaced_and_its_figures_are_kept(data_dir: Path, database: Database) -> None:
    with running(data_dir, *TWO, database=database) as server:
        with loaded(server) as story:
            before = workers_of(server)
            # Who is asked hears of what the other has counted up to a second later.
            wait_until(lambda: figure(server.get("/metrics"), STORED) > 0, "events are counted", server)
            counted = figure(server.get("/metrics"), STORED)
            os.kill(before[0], signal.SIGKILL)
            wait_for(story, 50)

            def is_replaced() -> bool:
                # A connection that had been given to the killed worker is reset.
                with suppress(ConnectionError):
                    return (
                        server.get("/health").json()["workers"] == 2
                        and figure(server.get("/metrics"), "correlator_worker_restarts_total") == 1
                        and len(workers_of(server)) == 2
                    )
                return False

            wait_until(is_replaced, "a new worker works", server)
            assert before[0] not in workers_of(server)
            assert before[1] in workers_of(server)
            wait_until(lambda: figure(server.get("/metrics"), STORED) > counted, "more is counted", server)
        assert f"worker 0 (process {before[0]})" in server.log or f"worker 1 (process {before[0]})" in server.log
        assert server.stop() == 0


def test_when_the_server_itself_is_killed_its_workers_go_and_the_next_takes_port_and_data(data_dir: Path) -> None:
    with running(data_dir, *TWO) as server:
        workers = workers_of(server)
        event = new_event()
        assert server.post("/api/v1/lineage", event, content_type="application/json").status == 200
        server.kill()
        wait_until(lambda: not any(map(is_alive, workers)), "the workers are gone", server)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port), timeout=10)
        with running(data_dir, *TWO, "--port", str(server.port)) as again:
            assert again.port == server.port
            answer = again.post("/api/v1/lineage", event, content_type="application/json")
            assert answer.json()["status"] == "duplicate"
            assert again.stop() == 0


@pytest.mark.parametrize("how", ["SIGTERM", "Ctrl-C"])
def test_told_to_stop_under_load_all_workers_answer_what_they_have(
    data_dir: Path, database: Database, how: str
) -> None:
    with running(data_dir, *TWO, database=database) as server:
        story = Story()
        load = Load(story, server.port, "stopped", 6)
        load.start()
        try:
            wait_for(story, 100)
            workers = workers_of(server)
            if how == "SIGTERM":
                server.signal(signal.SIGTERM)
            else:
                os.killpg(server.process.pid, signal.SIGINT)
            assert server.wait() == 0
            assert not any(map(is_alive, workers))
        finally:
            load.abandon()
        assert "Traceback" not in server.log
    assert findings(database, story) == []


def test_a_port_that_is_taken_is_not_shared_with_another_server(data_dir: Path, database: Database) -> None:
    with running(data_dir, *TWO, database=database) as server:
        other = Server((*TWO, "--port", str(server.port)), data_dir, database.url)
        try:
            assert other.wait() == 2
            assert "Address already in use" in other.log
        finally:
            other.kill()


def test_every_worker_tells_the_figures_of_all(data_dir: Path, database: Database) -> None:
    with running(data_dir, *TWO, database=database) as server, one_to_each(server) as connections:
        for connection in connections:
            for _ in range(5):
                assert connection.send(new_event()).status == 200

        def counted() -> list[float]:
            return [figure(connection.ask("GET", "/metrics"), STORED) for connection in connections]

        wait_until(lambda: counted() == [10, 10], "each has counted all", server)
        for connection in connections:
            metrics = connection.ask("GET", "/metrics")
            assert figure(metrics, "correlator_workers") == 2
            assert figure(metrics, "correlator_database_up") == 1
            assert figure(metrics, "correlator_worker_restarts_total") == 0
            assert connection.ask("GET", "/health").json()["workers"] == 2


def test_a_revoked_key_is_refused_by_every_worker(data_dir: Path, database: Database) -> None:
    with database.connect("test", autocommit=True) as administrator:
        secret = create_key(administrator, "sender", ["ingest"], actor="test").secret
        with running(data_dir, *TWO, database=database) as server, one_to_each(server) as connections:

            def answers() -> set[int]:
                return {connection.send(new_event(), **{"X-API-Key": secret}).status for connection in connections}

            assert answers() == {200}
            revoke_key(administrator, "sender", actor="test")
            wait_until(lambda: answers() == {401}, "the key is refused", server)


def test_when_workers_cannot_start_the_server_says_so_and_ends(data_dir: Path, database: Database) -> None:
    certificate = data_dir / "empty.pem"
    certificate.touch()
    server = Server((*TWO, "--tls-certificate", str(certificate)), data_dir, database.url)
    try:
        assert server.wait() == 2
        assert "A worker has ended 3 times before it could work" in server.log
    finally:
        server.kill()


def test_restarts_of_the_embedded_database_are_counted(data_dir: Path) -> None:
    with running(data_dir, *TWO) as server:
        process = int((data_dir / "postgres" / "data" / "postmaster.pid").read_text(encoding="utf-8").split()[0])
        signal_all([process], signal.SIGKILL)
        wait_until(
            lambda: figure(server.get("/metrics"), "correlator_embedded_restarts_total") == 1, "it is counted", server
        )
        wait_until(server.is_ready, "it is ready again", server)
