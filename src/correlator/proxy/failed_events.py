"""Events that go nowhere: refused here because they do not comply, or by a backend for good. Their bytes are kept.

Whoever keeps them is a `FailedEventHandler`. There are three (`log`, `file`, `sqlite`), and any class of yours that has
the method, named `module:Class`. One that raises changes no answer and loses nothing: what it did not take is put into
the dead letters of the proxy.
"""

import base64
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from correlator.proxy.dead_letters import DeadLetters
from correlator.rulebook.problems import Problem
from correlator.setting_kinds import parse_size

Stage: TypeAlias = Literal["request", "destination"]

_FILE_NAME: Final = "failed-events.jsonl"
_FILE_BYTES: Final = 50_000_000
_FILES_KEPT: Final = 5
_CLOSE_SECONDS: Final = 10.0
_MOST_PENDING: Final = 16 * 2**20
"""Bytes of events that may wait for slow handlers while their senders have long been answered."""

_log = logging.getLogger(__name__)


class FailedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that goes no further, byte for byte as it came, and why."""

    raw: bytes
    reason: str
    """In words."""
    failed_at: float
    """Seconds since 1970."""
    stage: Stage
    """`request`: it was refused by the proxy. `destination`: it was taken, and a backend refused it for good."""
    problems: tuple[Problem, ...] = ()
    """Of an event that was refused by the proxy: every reason, with its place and its rule."""
    destination: str | None = None
    status: int | None = None
    """What the backend answered, and in which words."""
    answer: str | None = None
    correlation_id: str | None = None
    """Of the request that brought it."""
    sent_by: str | None = None
    """The name of the key of who sent it."""


@runtime_checkable
class FailedEventHandler(Protocol):
    """What a class of yours needs. It is made once, without arguments, and called by one thread."""

    def handle(self, events: Sequence[FailedEvent]) -> None:
        """Keep these events. Return when that is done; raise when it cannot be done."""


class HandlerError(Exception):
    """A handler that cannot be used. Its text is for people."""


class LogHandler:
    """A line in the log for each, with the whole event in it: whoever reads the log can read the events."""

    def handle(self, events: Sequence[FailedEvent]) -> None:
        for event in events:
            _log.error("failed event (%s): %s: %s", event.stage, event.reason, as_line(event).decode())


class FileHandler:
    """JSON lines, on disk before `handle` returns; a file that is full is renamed, the oldest goes."""

    def __init__(self, path: Path, max_bytes: int = _FILE_BYTES, kept: int = _FILES_KEPT) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._kept = kept

    def handle(self, events: Sequence[FailedEvent]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data = b"".join([as_line(event) + b"\n" for event in events])
        with suppress(FileNotFoundError):
            if self._path.stat().st_size + len(data) > self._max_bytes:
                self._rotate()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            except OSError:
                # Half a line would spoil the next one too.
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)

    def _rotate(self) -> None:
        for number in range(self._kept - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            if older.exists():
                older.rename(self._path.with_name(f"{self._path.name}.{number + 1}"))
        self._path.rename(self._path.with_name(f"{self._path.name}.1"))


class SqliteHandler:
    """The dead letters, which can be listed and driven in again: `correlator proxy failed`."""

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters

    def handle(self, events: Sequence[FailedEvent]) -> None:
        self._letters.add(events)


def as_line(event: FailedEvent) -> bytes:
    """One JSON object. The event as text, or, where it is no UTF-8, in base64."""
    content = {name: value for name, value in msgspec.structs.asdict(event).items() if value not in (None, ())}
    try:
        content["raw"] = event.raw.decode()
    except UnicodeDecodeError:
        del content["raw"]
        content["raw_base64"] = base64.b64encode(event.raw).decode()
    return msgspec.json.encode(content)


def make_handler(text: str, directory: Path, letters: DeadLetters) -> FailedEventHandler:
    """As it stands in the settings: `log`, `sqlite`, `file[:PATH][;max_bytes=SIZE][;keep=N]`, `module:Class`."""
    what, *options = text.split(";")
    if what == "log":
        return LogHandler()
    if what == "sqlite":
        return SqliteHandler(letters)
    if what == "file" or what.startswith("file:"):
        return _file_handler(what.partition(":")[2], dict(option.partition("=")[::2] for option in options), directory)
    module, colon, name = what.partition(":")
    if not colon:
        raise HandlerError(f"{text!r} is no handler of failed events: there are log, file, sqlite and module:Class.")
    try:
        handler = getattr(import_module(module), name)()
    except Exception as error:
        raise HandlerError(f"The handler of failed events {what} cannot be made: {error!r}.") from error
    if not isinstance(handler, FailedEventHandler):
        raise HandlerError(f"{what} has no method `handle(events)`, so it is no handler of failed events.")
    return handler


def _file_handler(path: str, options: dict[str, str], directory: Path) -> FileHandler:
    unknown = options.keys() - {"max_bytes", "keep"}
    if unknown:
        raise HandlerError(f"The handler file has no option {min(unknown)}; there are max_bytes and keep.")
    try:
        size = parse_size(options.get("max_bytes", str(_FILE_BYTES)))
        kept = int(options.get("keep", _FILES_KEPT))
    except ValueError as error:
        raise HandlerError(f"An option of the handler file cannot be used: {error}.") from error
    return FileHandler(Path(path) if path else directory / _FILE_NAME, size, max(1, kept))


class FailedEvents:
    """Hands events to every handler, in a thread of its own: none of them can hold up a request or a queue."""

    def __init__(
        self,
        handlers: Sequence[tuple[str, FailedEventHandler]],
        letters: DeadLetters,
        *,
        on_failure: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._handlers = handlers
        self._letters = letters
        self._on_failure = on_failure
        self._pending: deque[tuple[Sequence[FailedEvent], Future[bool]]] = deque()
        self._pending_bytes = 0
        self._news = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="failed events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._news:
            self._is_closing = True
            self._news.notify()
        self._thread.join(_CLOSE_SECONDS)
        self._letters.close()

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the handlers that whoever brings more had better wait too."""
        return self._pending_bytes > _MOST_PENDING

    def hand_over(self, events: Sequence[FailedEvent]) -> "Future[bool]":
        """Tells later whether somebody has kept them."""
        future: Future[bool] = Future()
        with self._news:
            self._pending.append((events, future))
            self._pending_bytes += sum(len(event.raw) for event in events)
            self._news.notify()
        return future

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._pending and not self._is_closing:
                    self._news.wait()
                group = list(self._pending)
                self._pending.clear()
            if not group:
                return
            is_kept = self._keep([event for events, _ in group for event in events])
            with self._news:
                self._pending_bytes -= sum(len(event.raw) for events, _ in group for event in events)
            for _, future in group:
                future.set_result(is_kept)

    def _keep(self, events: Sequence[FailedEvent]) -> bool:
        is_kept = has_failed = is_in_letters = False
        for name, handler in self._handlers:
            try:
                handler.handle(events)
                is_kept = True
                is_in_letters = is_in_letters or isinstance(handler, SqliteHandler)
            except Exception as error:  # noqa: BLE001 (whatever somebody's own handler raises)
                has_failed = True
                self._on_failure(name)
                _log.error("The handler of failed events %s has not taken %d: %r", name, len(events), error)
        if is_in_letters or not has_failed:
            return is_kept
        try:
            self._letters.add(events)
        except Exception as error:  # noqa: BLE001 (the last resort is below)
            _log.error("The dead letters have not taken %d failed events: %r", len(events), error)
        else:
            return True
        if not is_kept:
            # An event in the buffer stays there. One that was refused at the door is nowhere else.
            LogHandler().handle([event for event in events if event.stage == "request"])
        return is_kept


def now() -> float:
    return time.time()
