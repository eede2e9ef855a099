"""What commands need that listen: an address that is bound, and told."""

import ipaddress
import signal
import socket
from pathlib import Path
from types import FrameType
from typing import Protocol

from correlator.cli.options import CouldNotTellError


class Address(Protocol):
    """As settings have it."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def tls_certificate(self) -> Path | None: ...


def end_at_once(_: int, __: FrameType | None) -> None:
    """Told to stop while it starts: whatever is open already is closed."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise SystemExit(0)


def bind(settings: Address) -> socket.socket:
    """Bound before anything is said, so that the port is known and taken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise cannot_listen(settings, error) from error
    listener.setblocking(False)
    return listener


def cannot_listen(settings: Address, error: OSError) -> CouldNotTellError:
    return CouldNotTellError(
        f"Cannot listen on {settings.host}, port {settings.port}: {error.strerror or error}. "
        "Choose others with --host and --port."
    )


def url_of(settings: Address, listener: socket.socket) -> str:
    scheme = "http" if settings.tls_certificate is None else "https"
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_loopback(host: str) -> bool:
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in addresses)
