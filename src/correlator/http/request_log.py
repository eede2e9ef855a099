"""Log lines: one for each request, and those of the package's own loggers, through one writer.

Nothing on the way of a request waits for a terminal or a pipe. Lines gather in memory, and a thread of its own writes
them; it does nothing else, because a thread that works takes turns with the event loop, and each turn costs more than a
line. When nobody takes the lines they are dropped, counted, and the count is told as soon as possible. A line never
holds a body, a query string or a key, and no text from outside can begin a line of its own.
"""

import atexit
import logging
import os
import select
import threading
import time
import traceback
from collections import deque
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import msgspec

from correlator.http.exchange import Request

LogFormat: TypeAlias = Literal["console", "json"]

_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_STDERR = 2
_FLUSH_SECONDS = 0.1
_FLUSH_LINES = 500
"""So many lines (about 100 KB) are written without waiting for the rest of the tenth of a second."""
_MOST_PENDING = 20_000
_MOST_IN_ONE_WRITE = 64 * 1024
_LONGEST_PATH = 300
_FIRST_BAD, _FIRST_FAILED = 400, 500


class RequestLine(msgspec.Struct, omit_defaults=True, gc=False):
    """What is told of one request. `status` 499 is a client that went away before it was answered."""

    time: float | str
    level: str
    correlation_id: str
    method: str
    path: str
    status: int
    duration_ms: float
    client: str
    bytes_in: int = 0
    key: str | None = None
    received: int | None = None
    stored: int | None = None
    duplicates: int | None = None
    rejected: int | None = None
    problem: str | None = None
    """The kind of problem that was answered, not its words: those may quote an event."""
    logger: str = ""


class MessageLine(msgspec.Struct, omit_defaults=True, gc=False):
    """What a logger has said."""

    time: float | str
    level: str
    logger: str
    message: str
    correlation_id: str | None = None
    exception: str | None = None


Line: TypeAlias = RequestLine | MessageLine
_encode = msgspec.json.Encoder().encode


class Log:
    """Where lines go. It belongs to a whole process; `close` (or the process's end) writes what is left."""

    def __init__(
        self,
        log_format: LogFormat = "console",
        level: str = "info",
        *,
        descriptor: int | None = None,
        most_pending: int = _MOST_PENDING,
    ) -> None:
        self._format = _as_json if log_format == "json" else _as_text
        self.level = _LEVELS[level]
        self._tells_success = self.level <= _LEVELS["info"]
        self._tells_refusal = self.level <= _LEVELS["warning"]
        # Raw, not sys.stderr: its lock, held by a write that blocks, would stop every thread that prints.
        self._descriptor = _STDERR if descriptor is None else descriptor
        self._most_pending = most_pending
        self._pending: deque[bytes] = deque()
        self._dropped = 0
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._write_for_ever, name="log", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def dropped(self) -> int:
        """Lines that could not be written since this was last told in the log."""
        return self._dropped

    def request(self, request: Request, status: int, seconds: float, problem: str | None = None) -> None:
        """One line for a request that is over."""
        if status < _FIRST_BAD:
            if not self._tells_success:
                return
            level = "info"
        elif status < _FIRST_FAILED:
            if not self._tells_refusal:
                return
            level = "warning"
        else:
            level = "error"
        line = RequestLine(
            time.time(),
            level,
            request.correlation_id,
            request.method,
            request.path,
            status,
            seconds * 1000.0,
            request.client,
            request.bytes_in,
        )
        if request.caller is not None and request.caller.key_id is not None:
            line.key = request.caller.name
        if request.events is not None:
            line.received, line.stored, line.duplicates, line.rejected = request.events
        line.problem = problem
        self.put(line)

    def put(self, line: Line) -> None:
        pending = self._pending
        waiting = len(pending)
        if waiting >= self._most_pending:
            self._dropped += 1
            return
        pending.append(self._format(line))
        if waiting == 0:
            self._wake.set()
        elif waiting == _FLUSH_LINES:
            self._hurry.set()

    def close(self, timeout: float = 2.0) -> None:
        """Write what is left, but wait no longer than this for somebody to take it."""
        self._is_closed = True
        self._wake.set()
        self._hurry.set()
        self._thread.join(timeout)
        atexit.unregister(self.close)

    def _write_for_ever(self) -> None:
        while True:
            self._wake.wait()
            # What comes within the next moment goes out with the same write.
            self._hurry.wait(_FLUSH_SECONDS)
            self._hurry.clear()
            self._wake.clear()
            self._flush()
            if self._is_closed and not self._pending:
                return

    def _flush(self) -> None:
        chunk: list[bytes] = []
        size = 0
        while True:
            try:
                line = self._pending.popleft()
            except IndexError:
                break
            chunk.append(line)
            size += len(chunk[-1])
            if size >= _MOST_IN_ONE_WRITE:
                self._write(chunk)
                chunk, size = [], 0
        self._write(chunk)

    def _write(self, lines: list[bytes]) -> None:
        if not lines:
            return
        dropped, self._dropped = self._dropped, 0
        if dropped:
            lines = [*lines, self._format(_dropped_line(dropped))]
        data = memoryview(b"".join(lines))
        try:
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except BlockingIOError:  # whoever shares the terminal has made it so
                    select.select([], [self._descriptor], [])
        except OSError:
            # Nobody reads any more. The server has better to do than to stop for that.
            self._dropped += dropped + len(lines)


class LogHandler(logging.Handler):
    """Lets the ordinary loggers write through the same writer."""

    def __init__(self, log: Log) -> None:
        super().__init__(log.level)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            exception = None
            if record.exc_info and record.exc_info[1] is not None:
                exception = "".join(traceback.format_exception(record.exc_info[1]))
            self._log.put(
                MessageLine(
                    record.created,
                    record.levelname.lower(),
                    record.name,
                    record.getMessage(),
                    getattr(record, "correlation_id", None),
                    exception,
                )
            )
        except Exception:  # noqa: BLE001 - as every handler: what cannot be logged must not stop what was to be told
            self.handleError(record)


def capture_logging(log: Log) -> None:
    """Everything that is said through `logging` goes to this log, and nowhere else. uvicorn's lines too."""
    root = logging.getLogger()
    root.handlers[:] = [LogHandler(log)]
    root.setLevel(log.level)
    logging.captureWarnings(capture=True)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        theirs = logging.getLogger(name)
        theirs.handlers.clear()
        theirs.propagate = True
    # A request has its line already.
    logging.getLogger("uvicorn.access").disabled = True


def _dropped_line(count: int) -> MessageLine:
    message = f"{count:,} log lines could not be written and are lost: nobody read them fast enough."
    return MessageLine(time.time(), "warning", __name__, message)


def _moment(line: Line) -> str:
    seconds, milliseconds = divmod(int(float(line.time) * 1000), 1000)
    return f"{_second(seconds)}.{milliseconds:03}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _as_json(line: Line) -> bytes:
    line.time = _moment(line)
    if isinstance(line, RequestLine):
        line.path = line.path[:_LONGEST_PATH]
        line.duration_ms = round(line.duration_ms, 3)
        line.logger = "correlator.request"
    try:
        return _encode(line) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate: not from a client (the parser wants ASCII), so this may be slow
        return _encode({name: _printable(value) for name, value in msgspec.structs.asdict(line).items()}) + b"\n"


def _as_text(line: Line) -> bytes:
    if isinstance(line, RequestLine):
        asked = _asked(line.level, line.method, line.path[:_LONGEST_PATH], line.status)
        counts = _counts(line.received, line.stored, line.duplicates, line.rejected)
        sender = _sender(line.client, line.key, line.problem)
        text = (
            f"{_moment(line)} {asked} {line.duration_ms:.1f} ms{counts} · {line.bytes_in} bytes · {sender} · "
            f"[{line.correlation_id}]"
        )
    else:
        told = f" [{line.correlation_id}]" if line.correlation_id else ""
        text = f"{_moment(line)} {line.level:<7} {line.logger}: {_printable(line.message)}{told}"
        if line.exception is not None:
            text += "".join(f"\n    | {_printable(each)}" for each in line.exception.splitlines())
    return (text + "\n").encode("utf-8", "replace")


# What most lines have in common is made once.


@lru_cache(maxsize=1024)
def _asked(level: str, method: str, path: str, status: int) -> str:
    return f"{level:<7} {method} {_printable(path)} {status}"


@lru_cache(maxsize=1024)
def _counts(received: int | None, stored: int | None, duplicates: int | None, rejected: int | None) -> str:
    if received is None:
        return ""
    return f" · {received} received ({stored} stored, {duplicates} duplicate, {rejected} rejected)"


@lru_cache(maxsize=1024)
def _sender(client: str, key: str | None, problem: str | None) -> str:
    told_key = "" if key is None else f" · key {_printable(key)}"
    return f"from {_printable(client)}{told_key}{'' if problem is None else f' · {problem}'}"


def _printable(value: Any) -> Any:
    """Text in which nothing moves a terminal's cursor or ends a line."""
    if not isinstance(value, str) or value.isprintable():
        return value
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in value
    )
