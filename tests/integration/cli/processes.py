"""A command that goes on, in a session of its own, and what is left of it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.integration.server.running import PATIENCE, wait_until


class Running:
    def __init__(self, log_file: Path, arguments: tuple[str, ...]) -> None:
        self._log_file = log_file
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("CORRELATOR_")}
        with log_file.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 (our own command)
                [sys.executable, "-m", "correlator.cli.main", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=inherited,
                cwd=log_file.parent,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._log_file.read_text(encoding="utf-8", errors="replace")

    def wait_for_words(self, words: str, times: int = 1) -> None:
        def are_said() -> bool:
            assert self.process.poll() is None or words in self.log, f"ended, and never said {words!r}:\n{self.log}"
            return self.log.count(words) >= times

        try:
            wait_until(are_said, f"it says {words!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from None

    def stop(self) -> int:
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended after {PATIENCE} s:\n{self.log}") from None

    def others(self, words: str = "") -> list[int]:
        """The processes of its session but itself: children, and theirs; those whose command has these words."""
        return list(self._others(words))

    def other(self, words: str) -> int:
        """The one process whose command has these words. A child that it is about to start bears them too, until it
        has a command of its own."""
        parents = self._others(words)
        (found,) = [pid for pid, parent in parents.items() if parent not in parents]
        return found

    def _others(self, words: str) -> dict[int, int]:
        told = subprocess.run(
            ["ps", "-A", "-ww", "-o", "pid=,ppid=,sess=,stat=,args="],  # noqa: S607
            check=True,
            capture_output=True,
            text=True,
        )
        rows = [line.split(maxsplit=4) for line in told.stdout.splitlines()]
        return {
            int(pid): int(parent)
            for pid, parent, session, state, *command in rows
            if int(session) == self.process.pid != int(pid) and state[0] != "Z" and words in " ".join(command)
        }


@contextmanager
def running(directory: Path, *arguments: str) -> Iterator[Running]:
    """Whatever the test has left of it is killed."""
    number = len(list(directory.glob("command-*.log")))
    command = Running(directory / f"command-{number}.log", arguments)
    try:
        yield command
    finally:
        for process in [command.process.pid, *command.others()]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        command.process.wait()
