"""Several worker processes as one server: started together, started again when they die, stopped together.

Each listens on the same port with a socket of its own (SO_REUSEPORT), and the kernel gives every connection to one of
them. (One socket for all, with whoever is first taking the connection, was tried: often one worker took them all.)
"""

import asyncio
import logging
import math
import os
import pickle
import signal
import socket
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Final

from correlator.config import ServerSettings
from correlator.http.metrics import Metric, process_gauges
from correlator.server.metrics import restarts_of_embedded, restarts_of_workers
from correlator.server.shared_figures import PUBLISH_SECONDS, SharedFigures
from correlator.server.worker import HELD_BACK, READY, Assignment
from correlator.store.database import Database

_MOST_BY_DEFAULT: Final = 4
"""One PostgreSQL appends for all of them, and has work of its own to do."""
_ATTEMPTS: Final = 3
"""At the start. A worker that has worked before is started again for ever."""
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 10.0
_STEADY_SECONDS: Final = 30.0
"""Who lived that long did not die of its start."""
_GOODBYE_SECONDS: Final = 15.0
"""Beyond the time that requests have: for the last commits, and for writing down when keys were used."""

_log = logging.getLogger(__name__)


class WorkersError(Exception):
    """The workers cannot be started. Its text says what to do."""


def number_of_workers(settings: ServerSettings) -> int:
    return settings.workers or min(usable_cores(), _MOST_BY_DEFAULT)


def usable_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """The cores that this process may use: those it is bound to, and no more than its container has."""
    if not hasattr(os, "sched_getaffinity"):
        # Not Linux: there one socket gets all connections, so several workers would be of no use.
        return 1
    cores = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):  # no container, or "max"
        time_, period = quota.read_text(encoding="ascii").split()
        cores = min(cores, math.ceil(int(time_) / int(period)))
    return max(1, cores)


def share_of(settings: ServerSettings, workers: int) -> ServerSettings:
    """What one worker may hold, so that all together hold what is set. The largest request always has room."""
    return replace(
        settings,
        max_inflight_bytes=max(settings.max_inflight_bytes // workers, settings.max_request_bytes),
        max_waiting_events=max(
            settings.max_waiting_events // workers, min(settings.max_batch_events, settings.max_waiting_events)
        ),
    )


class Workers:
    """The workers of one server. `reserved` is bound to their address, and not listened on."""

    def __init__(self, settings: ServerSettings, count: int, database: Database, reserved: socket.socket) -> None:
        self._count = count
        self._settings = share_of(settings, count)
        self._database = database
        self._reserved = reserved
        self._running: dict[int, Process] = {}
        self._ready: set[int] = set()
        self._restarts = restarts_of_workers()
        self._on_lost: Callable[[str], None] = lambda _: None

    def run(self, *, on_ready: Callable[[], None], on_lost: Callable[[str], None] = lambda _: None) -> None:
        """Until SIGTERM or SIGINT; `on_ready` is called when all take requests for the first time.

        `on_lost` is told of each worker that has ended and is started again.
        """
        self._on_lost = on_lost
        with tempfile.TemporaryDirectory(prefix="correlator-workers-", ignore_cleanup_errors=True) as directory:
            asyncio.run(self._run(Path(directory), on_ready))

    async def _run(self, directory: Path, on_ready: Callable[[], None]) -> None:
        self._is_up = asyncio.Event()
        self._stop = asyncio.Event()
        self._failure: str | None = None
        self._heed_signals()
        publishing = asyncio.create_task(self._publish(directory))
        keeping = [asyncio.create_task(self._keep(place, directory)) for place in range(self._count)]
        stopping = asyncio.create_task(self._stop.wait())
        starting = asyncio.create_task(self._is_up.wait())
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not self._stop.is_set():
            on_ready()
        await stopping
        starting.cancel()
        publishing.cancel()
        self._reserved.close()
        self._tell_all(signal.SIGTERM)
        _, late = await asyncio.wait(keeping, timeout=self._settings.shutdown_grace + _GOODBYE_SECONDS)
        if late:
            _log.warning("%d workers do not end and are killed", len(late))
            self._tell_all(signal.SIGKILL)
            await asyncio.wait(late)
        for task in keeping:
            task.result()
        if self._failure is not None:
            raise WorkersError(self._failure)

    def _heed_signals(self) -> None:
        loop = asyncio.get_running_loop()

        def heed(number: int) -> None:
            if number == signal.SIGINT and self._stop.is_set():
                self._tell_all(signal.SIGINT)
            self._stop.set()

        def handle(number: int, _: FrameType | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(heed, number)

        # Not the loop's own way: its end would bring back the defaults, by which a second signal ends the process
        # before the database has been stopped.
        for number in HELD_BACK:
            signal.signal(number, handle)

    def _tell_all(self, number: signal.Signals) -> None:
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)

    async def _keep(self, place: int, directory: Path) -> None:
        """Somebody at this place, until all are told to stop."""
        pause, attempts = _FIRST_PAUSE, 0
        while not self._stop.is_set():
            began = time.monotonic()
            process = await self._start(place, directory)
            is_ready = await self._wait_until_ready(place, process)
            code = await process.wait()
            del self._running[place]
            self._ready.discard(place)
            if self._stop.is_set():
                return
            attempts += 1
            if not is_ready and not self._is_up.is_set() and attempts == _ATTEMPTS:
                self._failure = (
                    f"A worker has ended {_ATTEMPTS} times before it could work, the last time {_how(code)}. What it "
                    "said stands above. With --workers 1 the server runs in one process."
                )
                self._stop.set()
                return
            if time.monotonic() - began > _STEADY_SECONDS:
                pause = _FIRST_PAUSE
            _log.error("worker %d (process %d) has ended %s and is started again", place, process.pid, _how(code))
            self._on_lost(f"worker {place} has ended {_how(code)}")
            self._restarts.add()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _start(self, place: int, directory: Path) -> Process:
        address = self._reserved.getsockname()
        assignment = Assignment(place, self._settings, self._database.url, self._reserved.family, address, directory)
        # A Ctrl-C is for all processes of a terminal. It has to wait until the new one can take it.
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
        try:
            process = await asyncio.create_subprocess_exec(
                # Whatever lies in the current directory is not ours (-P).
                *(sys.executable, "-P", "-m", "correlator.server.worker"),
                stdin=PIPE,
                stdout=PIPE,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
        self._running[place] = process
        if process.stdin is not None:
            # It stays open: its end tells the worker that we are gone.
            process.stdin.write(pickle.dumps(assignment))
        if self._stop.is_set():
            process.send_signal(signal.SIGTERM)
        return process

    async def _wait_until_ready(self, place: int, process: Process) -> bool:
        if process.stdout is None or await process.stdout.readline() != READY:
            return False
        self._ready.add(place)
        if len(self._ready) == self._count:
            self._is_up.set()
        return True

    async def _publish(self, directory: Path) -> None:
        """What only this process knows."""
        metrics: list[Metric] = [
            self._restarts,
            restarts_of_embedded(lambda: self._database.restarts),
            *process_gauges(),
        ]
        figures = SharedFigures(directory, "server")
        while True:
            figures.publish([metric.family() for metric in metrics])
            await asyncio.sleep(PUBLISH_SECONDS)


def _how(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"
