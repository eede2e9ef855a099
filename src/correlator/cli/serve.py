"""`correlator serve`: take events over HTTP until told to stop."""

import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from correlator.alerts.runner import AlertRunner
from correlator.cli.database import open_migrated_database, place_of
from correlator.cli.listening import bind, cannot_listen, end_at_once, is_loopback, url_of
from correlator.cli.options import CouldNotTellError, with_settings
from correlator.config import ServerSettings
from correlator.correlation.incident_detail import reach_of
from correlator.http.listener import BACKLOG, SWITCH_INTERVAL, HttpServer
from correlator.http.request_log import Log, capture_logging
from correlator.server.app import App
from correlator.server.auth import KeyCache
from correlator.server.workers import Workers, WorkersError, number_of_workers
from correlator.store.database import Database

_log = logging.getLogger(__name__)


@click.command("serve")
@with_settings(ServerSettings)
def command(settings: ServerSettings) -> None:
    """Take events over HTTP, judge them and keep them.

    Every event that is answered with 200 is on disk. Stops on SIGTERM or Ctrl-C, after the requests that it has.
    """
    with prepared(settings) as (database, log):
        serve(settings, database, log)


@contextmanager
def prepared(settings: ServerSettings) -> Iterator[tuple[Database, Log]]:
    """What a server needs before it can listen, closed again whatever happens."""
    for file in (settings.tls_certificate, settings.tls_key):
        if file is not None and not file.is_file():
            raise CouldNotTellError(f"There is no file {file}, which tls_certificate or tls_key names.")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end_at_once)
    log = Log(settings.log_format, settings.log_level)
    capture_logging(log)
    try:
        with open_migrated_database(settings) as database:
            yield database, log
    finally:
        log.close()


def _say_where(url: str) -> None:
    click.echo(f"Correlator is listening on {url}", err=True)


def serve(
    settings: ServerSettings,
    database: Database,
    log: Log,
    *,
    on_listening: Callable[[str], None] = _say_where,
    on_lost: Callable[[str], None] = lambda _: None,
) -> None:
    """Until told to stop. `on_listening` is told where, and `on_lost` of each worker that had to be started again."""
    workers = number_of_workers(settings)
    _log.info("workers: %d, database: %s", workers, place_of(database.url))
    # Beside the workers and not in each of them: one is enough.
    with AlertRunner(database, settings, reach_of(settings)):
        if workers == 1:
            _serve_alone(settings, database, log, on_listening)
        else:
            _serve_with(workers, settings, database, on_listening, on_lost)


def _serve_alone(settings: ServerSettings, database: Database, log: Log, on_listening: Callable[[str], None]) -> None:
    sys.setswitchinterval(SWITCH_INTERVAL)
    with KeyCache(database) as keys:
        _check_exposure(settings, keys)
        listener = bind(settings)
        try:
            listener.listen(BACKLOG)
        except OSError as error:
            raise cannot_listen(settings, error) from error
        url = url_of(settings, listener)
        server = HttpServer(settings, App(settings, database, keys, log).edge, on_started=lambda: on_listening(url))
        server.serve_on(listener)


def _serve_with(
    workers: int,
    settings: ServerSettings,
    database: Database,
    on_listening: Callable[[str], None],
    on_lost: Callable[[str], None],
) -> None:
    with KeyCache(database) as keys:
        _check_exposure(settings, keys)
    # Taken as a port is that belongs to one; only then opened for our own workers. Nobody else's get in beside them.
    reserved = bind(settings)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    url = url_of(settings, reserved)
    try:
        Workers(settings, workers, database, reserved).run(on_ready=lambda: on_listening(url), on_lost=on_lost)
    except WorkersError as error:
        raise CouldNotTellError(str(error)) from error


def _check_exposure(settings: ServerSettings, keys: KeyCache) -> None:
    if keys.is_open and not settings.insecure and not is_loopback(settings.host):
        raise CouldNotTellError(
            f"Without keys the server listens on this machine only, not on {settings.host}. Create a key "
            "(correlator keys create NAME), or say --insecure if anybody who can reach it may use it."
        )
