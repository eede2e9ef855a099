"""A Correlator that a benchmark starts as people do, and what it says."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

PATIENCE: Final = 120.0
_GOODBYE_SECONDS: Final = 90.0


@contextmanager
def data_directory() -> Iterator[Path]:
    """One that PostgreSQL can enter: its user is another one if this is root."""
    directory = Path(tempfile.mkdtemp(prefix="correlator-benchmark-"))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def up_command(directory: Path) -> list[str]:
    return [sys.executable, "-m", "correlator.cli.main", "up", "--port", "0", "--data-dir", str(directory)]


class Running:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    def wait_until_ready(self, patience: float = PATIENCE) -> int:
        """Until the server answers and the pipeline works. The port of the server."""
        port = self._wait_for(r"listening on http://127\.0\.0\.1:(\d+)", patience)
        self._wait_for(r"the pipeline works()", patience)
        return int(port)

    def _wait_for(self, pattern: str, patience: float) -> str:
        found: list[str] = []

        def is_said() -> bool:
            has_ended = self.process.poll() is not None
            said = self._log.read_text(encoding="utf-8", errors="replace")
            found.extend(match[1] for match in re.finditer(pattern, said))
            assert found or not has_ended, f"it has ended before it was ready:\n{said}"
            return bool(found)

        wait_until(is_said, patience)
        return found[0]


@contextmanager
def running(command: Sequence[str], log: Path, **environment: str) -> Iterator[Running]:
    """Afterwards it is told to stop, and nothing is left of it."""
    with log.open("wb") as file:
        process = subprocess.Popen(  # noqa: S603 (our own commands)
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=os.environ | environment,
            start_new_session=True,
        )
    try:
        yield Running(process, log)
    finally:
        process.terminate()
        process.wait(_GOODBYE_SECONDS)
        # What make has put into the background does not end with it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.05)
