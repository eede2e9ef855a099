"""A real `correlator serve` in a process of its own, and what a test does to it."""

import fcntl
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from correlator.store.database import Database

PATIENCE = 120
"""Seconds for what takes one: nothing is measured with it."""

_LISTENING = re.compile(r"listening on (http://\S+:(\d+))")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers.items() if key.lower() == name.lower()), None)


class Server:
    """One server process. Its database is an external one, or the embedded one in `data_dir`."""

    def __init__(self, arguments: tuple[str, ...], data_dir: Path, database_url: str | None) -> None:
        self.data_dir = data_dir
        self._external = database_url
        number = len(list(data_dir.glob("serve-*.log")))
        self.log_file = data_dir / f"serve-{number}.log"
        command = [sys.executable, "-m", "correlator.cli.main", "serve", "--port", "0", "--data-dir", str(data_dir)]
        # One process, which a test can kill, unless it asks for more.
        command += ["--workers", "1"]
        if database_url is not None:
            command += ["--database-url", database_url]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("CORRELATOR_")}
        with self.log_file.open("wb") as log:
            # A session of its own: what is sent to its process group does not reach the tests.
            self.process = subprocess.Popen(  # noqa: S603 (our own command)
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=inherited,
                cwd=data_dir,
                start_new_session=True,
            )
        self.url = ""
        self.port = 0

    # Beginning and end

    def wait_for_line(self) -> None:
        """Return when it says that it listens."""

        def said() -> bool:
            found = _LISTENING.search(self.log)
            if found is not None:
                self.url, self.port = found[1], int(found[2])
                return True
            code = self.process.poll()
            assert code is None, f"the server has ended with {code}:\n{self.last_words}"
            return False

        wait_until(said, "the server listens")

    def wait_until_ready(self) -> None:
        wait_until(self.is_ready, "the server is ready", self)

    def is_ready(self) -> bool:
        with suppress(OSError, http.client.HTTPException):
            return self.get("/ready").status == 200
        return False

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = PATIENCE) -> int:
        """The exit code, when it has ended."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the server has not ended after {seconds:g} s:\n{self.last_words}") from None

    def stop(self) -> int:
        """As an operator does."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """As the kernel does, when there is no memory left."""
        self.process.kill()
        self.process.wait()

    # What it says

    @property
    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    @property
    def last_words(self) -> str:
        return "\n".join(self.log.splitlines()[-40:])

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, None, **headers)

    def post(self, path: str, body: bytes, **headers: str) -> Answer:
        return self.request("POST", path, body, **headers)

    def request(self, method: str, path: str, body: bytes | None = None, /, **headers: str) -> Answer:
        """One request on a connection of its own. `content_type` stands for `Content-Type`, and so on."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    @property
    def resident_bytes(self) -> int:
        """Memory that the process holds."""
        told = subprocess.run(  # noqa: S603
            ["ps", "-o", "rss=", "-p", str(self.process.pid)],  # noqa: S607
            check=True,
            capture_output=True,
            text=True,
        )
        return int(told.stdout) * 1024

    # Its database

    @property
    def database(self) -> Database:
        return Database(self._external or embedded_url(self.data_dir))


@contextmanager
def running(
    data_dir: Path, *arguments: str, database: Database | None = None, is_ready: bool = True
) -> Iterator[Server]:
    """A server that is there when the block begins, and gone when it ends, be it by force."""
    server = Server(arguments, data_dir, None if database is None else database.url)
    try:
        server.wait_for_line()
        if is_ready:
            server.wait_until_ready()
        yield server
    finally:
        server.kill()
        if database is None:
            kill_postgres(data_dir)


def wait_until(is_so: Callable[[], bool], what: str, server: Server | None = None) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"not after {PATIENCE} s: {what}" + (f"\n{server.last_words}" if server else ""))
        time.sleep(0.01)


# The embedded PostgreSQL, seen from outside: nobody joins it, so that only the server looks after it.


def embedded_url(data_dir: Path) -> str:
    """Where the server of this directory listens, as it has written down itself."""
    lines = (data_dir / "postgres" / "data" / "postmaster.pid").read_text(encoding="utf-8").splitlines()
    return f"postgresql:///correlator?host={quote(lines[4], safe='')}&port={lines[3]}&user=correlator"


def postmaster(data_dir: Path) -> int | None:
    """Its process, if it lives."""
    with suppress(FileNotFoundError, IndexError, ValueError):
        lines = (data_dir / "postgres" / "data" / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        if not _has_no_server(data_dir):
            return int(lines[0])
    return None


def family(process: int) -> list[int]:
    """A process and its children."""
    told = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], check=True, capture_output=True, text=True)  # noqa: S607
    pairs = [(int(pid), int(parent)) for pid, parent in (line.split() for line in told.stdout.splitlines())]
    return [process, *(pid for pid, parent in pairs if parent == process)]


def signal_all(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def kill_postgres(data_dir: Path) -> None:
    """At once and all of it, so that nothing is left of a test."""
    while (process := postmaster(data_dir)) is not None:
        signal_all(family(process), signal.SIGKILL)
        wait_until(lambda: _has_no_server(data_dir), "PostgreSQL is gone")


def backends_of(connection: psycopg.Connection, purpose: str) -> list[int]:
    """The processes that serve this purpose of the server's."""
    rows = connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()",
        [f"correlator {purpose}"],
    ).fetchall()
    return [pid for (pid,) in rows]


def _has_no_server(data_dir: Path) -> bool:
    """Every process of PostgreSQL holds this lock (see `correlator.store.embedded`)."""
    with (data_dir / "postgres" / "server.lock").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
