"""uvicorn as we run it, in the one process or in each worker."""

import gc
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final, Protocol

import uvicorn

from correlator.http.connections import bounded
from correlator.http.edge import Edge

BACKLOG: Final = 2048
SWITCH_INTERVAL: Final = 0.0005
"""Seconds after which one thread lets another go on. The event loop must not wait long for a thread that does what is
rare: the default of 5 ms is many times what a commit takes."""
COLLECTED_AFTER: Final = (20_000, 20, 20)
"""How many new objects a collection of garbage waits for, and its generations for each other. A request leaves no
cycles behind, but its objects count while it waits for its commit: with Python's own 700 the server would search
through them for a fifth of its time."""


def collect_rarely() -> None:
    """Garbage, in a process that answers for long."""
    # Modules and all that was made at the start stay; no collection has to look at them again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


class Listening(Protocol):
    """As settings have it."""

    @property
    def max_head_bytes(self) -> int: ...
    @property
    def request_timeout(self) -> float: ...
    @property
    def shutdown_grace(self) -> float: ...
    @property
    def tls_certificate(self) -> Path | None: ...
    @property
    def tls_key(self) -> Path | None: ...
    @property
    def tls_key_password(self) -> str | None: ...


class HttpServer(uvicorn.Server):
    """Runs until SIGTERM or SIGINT, and finishes the requests that it has. A second SIGINT does not wait for them."""

    def __init__(self, settings: Listening, edge: Edge, *, on_started: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                edge,
                loop="uvloop",
                http=bounded(max_head_bytes=settings.max_head_bytes, head_seconds=settings.request_timeout, edge=edge),
                ws="none",
                lifespan="on",
                log_config=None,
                log_level="warning",
                access_log=False,
                backlog=BACKLOG,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=max(1, round(settings.shutdown_grace)),
                ssl_certfile=settings.tls_certificate,
                ssl_keyfile=settings.tls_key,
                ssl_keyfile_password=settings.tls_key_password,
            )
        )
        self._on_started = on_started

    def serve_on(self, listener: socket.socket) -> None:
        # Before uvicorn does the same, so that no signal is missed, and for good: uvicorn puts back what it found and
        # raises the signal once more at its end. Having been told to stop is no failure.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.handle_exit)
        self.run(sockets=[listener])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as it is called
        # One Ctrl-C reaches a worker twice: as SIGINT from the terminal and as SIGTERM from its parent, which may be
        # faster, or come while this is at work. Only who asks twice himself is not made to wait.
        is_second = sig == signal.SIGINT and sig in self._captured_signals
        self._captured_signals.append(sig)
        self.should_exit = True
        if is_second:
            self.force_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        collect_rarely()
        self._on_started()
