"""Events as lines: at the end of a file, or on standard output."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from correlator.proxy.destinations import ACCEPTED, DestinationError, Later, Options, Result, Spec

_STANDARD_OUTPUT: Final = 1
_NEWLINE: Final = b"\n"


class FileDestination:
    """JSON lines, on disk when they are accepted."""

    def __init__(self, spec: Spec) -> None:
        self._path = Path(spec.target.partition(":")[2])
        if not self._path.name:
            raise DestinationError(f"{spec.target!r} names no file.")
        Options(spec).check()
        self._descriptor: int | None = None

    def send(self, events: Sequence[bytes]) -> Sequence[Result]:
        try:
            if self._descriptor is None:
                self._descriptor = _opened(self._path)
            _write_all(self._descriptor, as_lines(events))
            os.fsync(self._descriptor)
        except OSError as error:
            self.close()
            return [Later(f"{self._path}: {error.strerror or error}")] * len(events)
        return [ACCEPTED] * len(events)

    def interrupt(self) -> None:
        """Nothing here waits for anybody."""

    def close(self) -> None:
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


class ConsoleDestination:
    def __init__(self, spec: Spec) -> None:
        Options(spec).check()

    def send(self, events: Sequence[bytes]) -> Sequence[Result]:
        try:
            _write_all(_STANDARD_OUTPUT, as_lines(events))
        except OSError as error:
            return [Later(f"standard output: {error.strerror or error}")] * len(events)
        return [ACCEPTED] * len(events)

    def interrupt(self) -> None:
        """Whoever reads the other end decides how long a line takes."""

    def close(self) -> None:
        """It is not ours."""


def make(spec: Spec, _timeout: float) -> FileDestination | ConsoleDestination:
    return FileDestination(spec) if spec.kind == "file" else ConsoleDestination(spec)


def as_lines(events: Sequence[bytes]) -> bytes:
    """One event on each line. Within JSON a line ends only where blanks may stand."""
    return b"".join([(_on_one_line(event) if _breaks(event) else event) + _NEWLINE for event in events])


def _breaks(event: bytes) -> bool:
    return b"\n" in event or b"\r" in event


def _on_one_line(event: bytes) -> bytes:
    return msgspec.json.format(event, indent=-1)


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    size = os.fstat(descriptor).st_size
    # Who was killed in the middle of a line has left half of one. The event comes again, whole.
    if size and os.pread(descriptor, 1, size - 1) != _NEWLINE:
        _write_all(descriptor, _NEWLINE)
    return descriptor


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
