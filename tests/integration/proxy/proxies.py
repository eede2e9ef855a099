"""A real `correlator proxy` in a process of its own."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.events import run_event
from tests.integration.server.running import PATIENCE, Answer, wait_until

_LISTENING = re.compile(r"listening on (https?://\S+:(\d+)),")
ONE, BATCH, EVENTS = "/api/v1/lineage", "/api/v1/lineage/batch", "/api/v1/lineage/events"


def event(mark: object, **extra: Any) -> dict[str, Any]:
    return run_event("RUNNING", mark=mark, **extra)


def broken(mark: object) -> dict[str, Any]:
    return {name: value for name, value in event(mark).items() if name != "job"}


class Proxy:
    def __init__(
        self,
        data_dir: Path,
        arguments: Sequence[str],
        environ: Mapping[str, str] | None = None,
        log_dir: Path | None = None,
    ) -> None:
        self.data_dir = data_dir
        data_dir.mkdir(exist_ok=True)
        log_dir = log_dir or data_dir
        self.log_file = log_dir / f"proxy-{len(list(log_dir.glob('proxy-*.log')))}.log"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("CORRELATOR_")}
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 (our own command)
                [
                    *(sys.executable, "-m", "correlator.cli.main", "proxy", "--data-dir", str(data_dir)),
                    *("--port", "0", "--retry-longest", "300ms", "--retry-first", "20ms"),
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**inherited, **(environ or {})},
                cwd=data_dir,
                start_new_session=True,
            )
        self.port = 0

    def wait_for_line(self) -> None:
        def said() -> bool:
            found = _LISTENING.search(self.log)
            if found is not None:
                self.port = int(found[2])
                return True
            code = self.process.poll()
            assert code is None, f"the proxy has ended with {code}:\n{self.log}"
            return False

        wait_until(said, "the proxy listens")

    @property
    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, None, **headers)

    def post(self, value: Any, path: str = ONE, **headers: str) -> Answer:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.request("POST", path, body, **{"content_type": "application/json", **headers})

    def health(self) -> Any:
        return self.get("/health").json()

    def destination(self, name: str | None = None) -> Any:
        """What its health says of a destination; of the only one if it has no name."""
        return next(each for each in self.health()["destinations"] if name is None or each["name"] == name)

    def wait_until_forwarded(self) -> None:
        wait_until(lambda: all(each["lag_events"] == 0 for each in self.health()["destinations"]), "all is forwarded")

    def wait_for_words(self, words: str) -> None:
        try:
            wait_until(lambda: words in self.log, f"it says {words!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from None

    @property
    def resident_bytes(self) -> int:
        pages = (Path("/proc") / str(self.process.pid) / "statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def proxy(
    data_dir: Path, *arguments: str, environ: Mapping[str, str] | None = None, log_dir: Path | None = None
) -> Iterator[Proxy]:
    started = Proxy(data_dir, arguments, environ, log_dir)
    try:
        started.wait_for_line()
        yield started
    finally:
        started.kill()
