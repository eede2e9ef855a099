"""A command on a pseudo terminal: what stands on its screen, and keys that are pressed."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.integration.server.running import PATIENCE, wait_until

_COLUMNS, _ROWS = 120, 40
# Makes its standard input the terminal of its session, so that Ctrl-C is a signal, and becomes the command.
_BEGIN = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
_PIECES = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)|\x1b")


class Terminal:
    def __init__(self, arguments: tuple[str, ...], **environment: str) -> None:
        self.raw = b""
        """Everything that was ever written to it."""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("CORRELATOR_")}
        command = [sys.executable, "-m", "correlator.cli.main", *arguments]
        self.process = subprocess.Popen(  # noqa: S603 (our own command)
            [sys.executable, "-c", _BEGIN, *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=inherited | {"TERM": "xterm-256color"} | environment,
            start_new_session=True,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def screen(self) -> str:
        """The lines as one sees them, whatever was written over."""
        lines = [""]
        row = 0
        for code, letter, move, text in _PIECES.findall(self.raw.decode(errors="replace")):
            if move == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif letter == "A":
                row = max(0, row - int(code or 1))
            elif letter == "K":
                lines[row] = ""
            elif text:
                lines[row] += text
        return "\n".join(line.rstrip() for line in lines)

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def wait_for(self, words: str | re.Pattern[str]) -> str:
        """What stands there, when these words do."""
        pattern = re.compile(re.escape(words)) if isinstance(words, str) else words
        self._wait(lambda: pattern.search(self.screen) is not None, f"the screen shows {pattern.pattern!r}")
        return self.screen

    def wait(self) -> int:
        self._wait(lambda: self.process.poll() is not None, "the command has ended")
        self._reader.join(PATIENCE)
        return self.process.returncode

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        def is_so_or_over() -> bool:
            is_over = self.process.poll() is not None
            return is_so() or is_over

        try:
            wait_until(is_so_or_over, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.screen}") from None
        if self.process.poll() is not None:
            self._reader.join(PATIENCE)
        assert is_so(), f"it has ended, and never: {what}\n{self.screen}"

    def _read(self) -> None:
        with suppress(OSError):  # nobody has the terminal open any more
            while chunk := os.read(self._master, 65536):
                self.raw += chunk

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        os.close(self._master)


@contextmanager
def terminal(*arguments: str, **environment: str) -> Iterator[Terminal]:
    opened = Terminal(arguments, **environment)
    try:
        yield opened
    finally:
        opened.close()
