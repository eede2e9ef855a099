"""The log of a command whose terminal shows something else: a process of its own writes it into files of bounded size.

All that this process and its children say on standard output and standard error goes through one pipe: log lines,
Spark's own, the last words of an interpreter. So nobody has to agree with anybody on when a file is full, and what is
said by who is left when the command itself was killed is written too. The writer ends when the last of them has.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TextIO

NAME: Final = "correlator.log"
_OUTPUTS: Final = (1, 2)
_CHUNK: Final = 64 * 1024
_GOODBYE_SECONDS: Final = 5.0


@contextmanager
def lines_in_files(directory: Path, *, most_bytes: int, files: int) -> Iterator[TextIO]:
    """Within it everything that is said goes to files in the directory; what is given is the terminal itself."""
    _make(directory)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace") as terminal:
        kept = [os.dup(output) for output in _OUTPUTS]
        writer = subprocess.Popen(  # noqa: S603 (our own, in our own interpreter)
            [sys.executable, "-P", "-m", __name__, str(directory / NAME), str(most_bytes), str(files)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            # A Ctrl-C is for all processes of the terminal's group. This one ends when there is nothing left to write.
            process_group=0,
        )
        pipe = writer.stdin.fileno() if writer.stdin is not None else -1
        for output in _OUTPUTS:
            os.dup2(pipe, output)
        try:
            yield terminal
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            for output, was in zip(_OUTPUTS, kept, strict=True):
                os.dup2(was, output)
                os.close(was)
            if writer.stdin is not None:
                writer.stdin.close()
            with suppress(subprocess.TimeoutExpired):  # somebody of ours still has something to say
                writer.wait(_GOODBYE_SECONDS)


def _make(directory: Path) -> None:
    """Private, for it tells who sends what. As root the way to it is one that the database's user can pass."""
    mode = 0o711 if os.geteuid() == 0 else 0o700
    for path in reversed([path for path in directory.parents if not path.exists()]):
        with suppress(FileExistsError):
            path.mkdir(mode)
            path.chmod(mode)
    with suppress(FileExistsError):
        directory.mkdir(0o700)


class LogFiles:
    """A file that lines are added to. A full one becomes the first of the old ones, and the last of those goes."""

    def __init__(self, path: Path, *, most_bytes: int, files: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._files = files
        self._lost = 0
        self._open()

    def add(self, chunk: bytes) -> None:
        if self._size + len(chunk) > self._most_bytes and self._size:
            # A line that was begun in a file ends in it.
            end = 0 if self._is_at_line_start else chunk.find(b"\n") + 1
            self._write(chunk[:end])
            chunk = chunk[end:]
            if self._is_at_line_start:
                self._turn()
        self._write(chunk)

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._size = os.fstat(self._file).st_size
        self._is_at_line_start = True

    def _turn(self) -> None:
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{number}") for number in range(1, self._files))]
        with suppress(OSError):
            for newer, older in zip(reversed(names[:-1]), reversed(names[1:]), strict=True):
                if newer.exists():
                    newer.replace(older)
            if self._files == 1:
                self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._open()

    def _write(self, chunk: bytes) -> None:
        if not chunk:
            return
        told = f"{self._lost:,} bytes of the log could not be written here.\n".encode() if self._lost else b""
        try:
            for part in filter(None, (told, chunk)):
                os.write(self._file, part)
        except OSError:
            # A full disk. Those who speak must not be made to wait for it.
            self._lost += len(chunk)
            return
        self._lost = 0
        self._size += len(told) + len(chunk)
        self._is_at_line_start = chunk.endswith(b"\n")


def main(path: str, most_bytes: str, files: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    log = LogFiles(Path(path), most_bytes=int(most_bytes), files=int(files))
    while chunk := os.read(0, _CHUNK):
        log.add(chunk)


if __name__ == "__main__":
    main(*sys.argv[1:])
