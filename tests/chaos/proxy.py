"""The proxy under harm: senders that do not give up, a real backend that comes and goes, and what must have arrived."""

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from correlator.store.database import Database
from tests.integration.events import run_event
from tests.integration.pipeline.brokers import free_ports
from tests.integration.pipeline.fingerprints import fingerprints
from tests.integration.proxy.proxies import ONE, Proxy
from tests.integration.server.running import Server, running

_SENDERS = 4
_STATES = ("START", "RUNNING", "COMPLETE")
_LOG = b"SELECT raw FROM kept.lineage_events ORDER BY position"


@dataclass(frozen=True)
class Acknowledged:
    mark: str
    sent_at: float
    """Of the attempt that was answered."""
    answered_at: float
    raw: bytes


class Senders:
    """Several connections, each with one event after the other, sent until it is answered 200."""

    def __init__(self, port: int, name: str, *, pause: float = 0.0) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.findings: list[str] = []
        self._port = port
        self._pause = pause
        self._is_over = threading.Event()
        self._is_abandoned = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=[f"{name}.{number}"]) for number in range(_SENDERS)]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Begin nothing new; what was begun is sent until it is answered."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def abandon(self) -> None:
        """Leave everything as it is."""
        self._is_abandoned.set()
        self.finish()

    def _run(self, name: str) -> None:
        number = 0
        while not self._is_over.is_set():
            state = _STATES[number % 3]
            mark = f"{name}.{number}"
            raw = json.dumps(
                run_event(
                    state,
                    run_id=f"{name}.{number // 3}",
                    event_time=f"2026-11-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z",
                    job=f"job {name}",
                    mark=mark,
                )
            ).encode()
            self._send(mark, raw)
            number += 1
            self._is_over.wait(self._pause)

    def _send(self, mark: str, raw: bytes) -> None:
        while not self._is_abandoned.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            sent_at = time.monotonic()
            try:
                connection.request("POST", ONE, raw, {"Content-Type": "application/json"})
                response = connection.getresponse()
                body = response.read()
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)
                continue
            finally:
                connection.close()
            if response.status == 200:
                self.acknowledged.append(Acknowledged(mark, sent_at, time.monotonic(), raw))
                return
            self.findings.append(f"{mark}: {response.status} {body[:200]!r}")
            return


class ProxyRounds:
    """Rounds of load on one buffer and one backend."""

    def __init__(
        self, directory: Path, database: Database, seed: str, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self._directory = directory
        self._database = database
        self._seed = seed
        self._random = Random(seed)
        self._tell = tell
        self._backend_port, self._proxy_port = free_ports(2)
        self._backend: Server | None = None
        self._proxy: Proxy | None = None
        self.acknowledged: list[Acknowledged] = []
        self.kills = 0

    def close(self) -> None:
        if self._proxy is not None:
            self._proxy.kill()
        if self._backend is not None:
            self._backend.kill()

    def play_kills(self, rounds: int) -> None:
        """kill -9 of the proxy at random moments, a few in each round, whether the backend is there or not."""
        for number in range(1, rounds + 1):
            self._start_backend()
            self._start_proxy()
            senders = Senders(self._proxy_port, f"{self._seed}.{number}")
            with _finishing(senders):
                for _ in range(self._random.randint(1, 3)):
                    self._pause(0.05, 0.6)
                    if self._random.random() < 0.4:
                        self._stop_backend()
                    self._kill_proxy()
                    self._start_proxy()
                    self._start_backend()
                self._pause(0.05, 0.4)
            self._judge(senders)
            self._tell(
                f"round {number}: the proxy was killed {self.kills} times so far; {len(self.acknowledged):,} events "
                "were acknowledged, and all of them arrived, in order"
            )

    def play_outages(self, rounds: int) -> None:
        """The backend goes and comes back; the proxy stays."""
        self._start_proxy()
        for number in range(1, rounds + 1):
            senders = Senders(self._proxy_port, f"{self._seed}.{number}")
            with _finishing(senders):
                self._start_backend()
                self._pause(0.2, 0.5)
                self._stop_backend()
                self._pause(0.3, 0.8)
                self._start_backend()
                self._pause(0.1, 0.2)
            self._judge(senders)

    def log(self) -> list[bytes]:
        """What the backend has stored, in the order in which it came."""
        with self._database.connect("chaos") as connection:
            return [bytes(raw) for (raw,) in connection.execute(_LOG).fetchall()]

    def _judge(self, senders: Senders) -> None:
        assert not senders.findings, "\n".join(senders.findings)
        self.acknowledged += senders.acknowledged
        proxy = self._proxy
        assert proxy is not None
        proxy.wait_until_forwarded()
        check(self.acknowledged, self.log())

    # --- what is started and stopped

    def _start_backend(self) -> None:
        if self._backend is None:
            arguments = ("--port", str(self._backend_port))
            self._backend = Server(arguments, self._directory, self._database.url)
            self._backend.wait_for_line()
            self._backend.wait_until_ready()

    def _stop_backend(self) -> None:
        if self._backend is not None:
            if self._random.random() < 0.5:
                self._backend.kill()
            else:
                self._backend.stop()
            self._backend = None

    def _start_proxy(self) -> None:
        if self._proxy is None:
            arguments = (
                *("--port", str(self._proxy_port), "--destination", f"http://127.0.0.1:{self._backend_port}"),
                # Small ones, so that there is rotation and removal all the time.
                *("--partition-bytes", "20kB", "--destination-batch-events", "50"),
            )
            self._proxy = Proxy(self._directory, arguments)
            self._proxy.wait_for_line()

    def _kill_proxy(self) -> None:
        if self._proxy is not None:
            self._proxy.kill()
            self._proxy = None
            self.kills += 1

    def _pause(self, least: float, most: float) -> None:
        time.sleep(self._random.uniform(least, most))


@contextmanager
def _finishing(senders: Senders) -> Iterator[None]:
    """However the block ends, nobody goes on sending."""
    try:
        yield
    except BaseException:
        senders.abandon()
        raise
    senders.finish()


def send_directly(directory: Path, database: Database, acknowledged: list[Acknowledged]) -> None:
    """What an undisturbed run leaves: the same events, straight to a server."""
    with running(directory, database=database) as server:
        for begin in range(0, len(acknowledged), 500):
            events = b",".join(each.raw for each in acknowledged[begin : begin + 500])
            answer = server.post("/api/v1/lineage/batch", b"[" + events + b"]", content_type="application/json")
            assert answer.status == 200, answer.body


def facts_of(directory: Path, database: Database) -> dict[str, tuple[int, int]]:
    """All fact tables, when the pipeline has been over the log, by a number each."""
    directory.mkdir()
    command = [sys.executable, "-m", "correlator.cli.main", "pipeline", "batch", "--no-archive"]
    subprocess.run(  # noqa: S603 (our own command)
        [*command, "--data-dir", str(directory), "--database-url", database.url], check=True, capture_output=True
    )
    return fingerprints(database)


def check(acknowledged: list[Acknowledged], log: list[bytes]) -> None:
    """Everything that was acknowledged is there, once, and nothing stands before what was acknowledged before it."""
    place = {json.loads(raw)["mark"]: number for number, raw in enumerate(log)}
    assert len(place) == len(log), "an event is stored twice"
    missing = [each.mark for each in acknowledged if each.mark not in place]
    assert not missing, f"{len(missing)} acknowledged events never arrived, among them {missing[:5]}"
    latest = 0.0
    for each in sorted(acknowledged, key=lambda each: place[each.mark]):
        # Somebody before it in the log was sent when this one had long been answered.
        assert each.answered_at >= latest, f"{each.mark} came after an event that was sent later"
        latest = max(latest, each.sent_at)
    stored = set(log)
    assert all(each.raw in stored for each in acknowledged), "an event has other bytes than it was sent with"
