"""`correlator serve`: take events over HTTP until told to stop."""

import ipaddress
import signal
import socket
import sys
from types import FrameType
from typing import Final

import click
import uvicorn

from correlator.cli.database import open_migrated_database
from correlator.cli.options import CouldNotTellError, with_settings
from correlator.config import ServerSettings
from correlator.server.app import App
from correlator.server.auth import KeyCache
from correlator.server.connections import bounded
from correlator.server.request_log import Log, capture_logging

_BACKLOG: Final = 2048
_SWITCH_INTERVAL: Final = 0.0005
"""Seconds after which one thread lets another go on. The thread that commits must not wait long for the one that
judges: the default of 5 ms is many times what a commit takes."""


@click.command("serve")
@with_settings(ServerSettings)
def command(settings: ServerSettings) -> None:
    """Take events over HTTP, judge them and keep them.

    Every event that is answered with 200 is on disk. Stops on SIGTERM or Ctrl-C, after the requests that it has.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL)
    signal.signal(signal.SIGTERM, _leave)
    log = Log(settings.log_format, settings.log_level)
    capture_logging(log)
    try:
        with open_migrated_database(settings) as database, KeyCache(database) as keys:
            if keys.is_open and not settings.insecure and not _is_loopback(settings.host):
                raise CouldNotTellError(
                    f"Without keys the server listens on this machine only, not on {settings.host}. Create a key "
                    "(correlator keys create NAME), or say --insecure if anybody who can reach it may use it."
                )
            listener = _listen(settings)
            _serve(settings, App(settings, database, keys, log), listener)
    finally:
        log.close()


def _serve(settings: ServerSettings, app: App, listener: socket.socket) -> None:
    server = uvicorn.Server(
        uvicorn.Config(
            app.edge,
            loop="uvloop",
            http=bounded(max_head_bytes=settings.max_head_bytes, head_seconds=settings.request_timeout),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, round(settings.shutdown_grace)),
            ssl_certfile=settings.tls_certificate,
            ssl_keyfile=settings.tls_key,
            ssl_keyfile_password=settings.tls_key_password,
        )
    )
    # uvicorn raises the signal that stopped it once more at the end: having been told to stop is no failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    scheme = "http" if settings.tls_certificate is None else "https"
    click.echo(f"Correlator is listening on {scheme}://{_address(listener)}", err=True)
    server.run(sockets=[listener])
    if not server.started:
        raise CouldNotTellError("The server could not start; the lines above say why.")


def _leave(_: int, __: FrameType | None) -> None:
    """Told to stop before there was anything to stop. Whatever was begun is undone on the way out."""
    sys.exit()


def _listen(settings: ServerSettings) -> socket.socket:
    """Bound before anything is said, so that the port is known and taken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        raise CouldNotTellError(
            f"Cannot listen on {settings.host}, port {settings.port}: {error.strerror or error}. "
            "Choose others with --host and --port."
        ) from error
    listener.setblocking(False)
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in addresses)
