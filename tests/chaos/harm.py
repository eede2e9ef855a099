"""What is done to a server under load, and how long it is left so."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

import psycopg

from tests.integration.server.running import Server, backends_of, family, kill_postgres, postmaster, signal_all

Harm = Callable[[Server, Random], None]


def kill_server(server: Server, _: Random) -> None:
    server.kill()


def kill_postmaster(server: Server, _: Random) -> None:
    if (process := postmaster(server.data_dir)) is not None:
        signal_all([process], signal.SIGKILL)


def kill_backend(server: Server, random: Random) -> None:
    """One backend that dies takes all others with it, and PostgreSQL recovers."""
    with suppress(psycopg.OperationalError, FileNotFoundError), server.database.connect("chaos") as connection:
        if processes := backends_of(connection, "group commit"):
            signal_all([random.choice(processes)], signal.SIGKILL)


def end_connections(server: Server, _: Random) -> None:
    with suppress(psycopg.OperationalError, FileNotFoundError), server.database.connect("chaos") as connection:
        for process in backends_of(connection, "group commit"):
            connection.execute("SELECT pg_terminate_backend(%s)", [process])


def kill_all(server: Server, _: Random) -> None:
    server.kill()
    kill_postgres(server.data_dir)


def kill_server_and_backend(server: Server, random: Random) -> None:
    """The next server comes while PostgreSQL is recovering."""
    kill_backend(server, random)
    server.kill()


def stop_server(server: Server, _: Random) -> None:
    assert server.stop() == 0, server.last_words


def interrupt_server(server: Server, _: Random) -> None:
    """Ctrl-C: the terminal tells the whole process group."""
    os.killpg(server.process.pid, signal.SIGINT)
    assert server.wait() == 0, server.last_words


def stop_postgres(server: Server, _: Random) -> None:
    """As an administrator does who knows nothing of Correlator."""
    if (process := postmaster(server.data_dir)) is not None:
        signal_all([process], signal.SIGINT)


def pause_postgres(server: Server, random: Random) -> None:
    if (process := postmaster(server.data_dir)) is None:
        return
    processes = family(process)
    signal_all(processes, signal.SIGSTOP)
    time.sleep(random.uniform(0.5, 5))
    signal_all(processes, signal.SIGCONT)


def pause_server(server: Server, random: Random) -> None:
    server.signal(signal.SIGSTOP)
    time.sleep(random.uniform(0.5, 3))
    server.signal(signal.SIGCONT)


HARMS: tuple[Harm, ...] = (
    kill_server,
    kill_postmaster,
    kill_backend,
    end_connections,
    kill_all,
    kill_server_and_backend,
    stop_server,
    interrupt_server,
    stop_postgres,
    pause_postgres,
    pause_server,
)
