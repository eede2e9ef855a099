"""One of several worker processes of a server. `workers` starts it and tells it what to do on its standard input.

The input stays open as long as the one who started it lives. Its end is the one sign of a death that no process can
fail to give: the worker then finishes as if it had been told to, so that nobody keeps the port.
"""

import asyncio
import logging
import os
import pickle
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg

from correlator.config import ServerSettings
from correlator.http.listener import SWITCH_INTERVAL, HttpServer
from correlator.http.request_log import Log, capture_logging
from correlator.server.app import App
from correlator.server.auth import KeyCache
from correlator.server.shared_figures import SharedFigures
from correlator.store.database import Database

READY: Final = b"ready\n"
"""What a worker says on its standard output when it takes requests."""
HELD_BACK: Final = (signal.SIGTERM, signal.SIGINT)
"""Signals that are blocked when a worker starts, until it can deal with them."""
_INPUT, _OUTPUT = 0, 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Assignment:
    """Everything that a worker is told. It goes through a pipe, because it holds passwords."""

    place: int
    settings: ServerSettings
    database_url: str
    family: int
    address: tuple[str | int, ...]
    """Where to listen, beside the others."""
    directory: Path
    """Where the figures of all workers are."""


def main() -> int:
    try:
        assignment: Assignment = pickle.load(sys.stdin.buffer)  # noqa: S301 (our own, from who started us)
    except EOFError:  # and who is gone already
        return 1
    settings = assignment.settings
    sys.setswitchinterval(SWITCH_INTERVAL)
    log = Log(settings.log_format, settings.log_level)
    capture_logging(log)
    try:
        _work(assignment, log)
    except (psycopg.Error, OSError) as error:
        _log.error("worker %d cannot work: %s", assignment.place, " ".join(str(error).split()))
        return 1
    finally:
        log.close()
    return 0


def _work(assignment: Assignment, log: Log) -> None:
    database = Database(assignment.database_url)
    figures = SharedFigures(assignment.directory, f"worker-{assignment.place}")
    with KeyCache(database) as keys:

        def tell() -> None:
            asyncio.get_running_loop().add_reader(_INPUT, end)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
            os.write(_OUTPUT, READY)

        def end() -> None:
            asyncio.get_running_loop().remove_reader(_INPUT)
            _log.warning("the process that started worker %d is gone: the worker ends", assignment.place)
            server.should_exit = True
            shutil.rmtree(assignment.directory, ignore_errors=True)

        app = App(assignment.settings, database, keys, log, figures)
        server = HttpServer(assignment.settings, app.edge, on_started=tell)
        server.serve_on(_listen(assignment))


def _listen(assignment: Assignment) -> socket.socket:
    listener = socket.socket(assignment.family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(assignment.address)
    listener.setblocking(False)
    # It is asyncio that begins to listen, when the database has been reached: before, connections go to the others.
    return listener


if __name__ == "__main__":
    sys.exit(main())
