"""Whether the ports can be had, and who has them if not."""

import errno
import http.client
import ipaddress
import json
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from correlator.cli.doctor.finding import Finding
from correlator.cli.listening import Address

_PATIENCE_SECONDS: Final = 3.0
_LONGEST_ANSWER: Final = 100_000
_LISTENS: Final = "0A"
"""The state of a socket in /proc/net/tcp."""


def port(check: str, settings: Address, part: Literal["server", "proxy"]) -> Finding:
    """Free, or taken by the part that is to have it: then it runs already."""
    where = f"{settings.host}, port {settings.port}"
    if settings.port == 0:
        return Finding(check, "ok", f"Any free port of {settings.host} will be taken.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            said = f"Cannot listen on {where}: {error.strerror or error}."
            return Finding(check, "problem", said, "Choose others with --host and --port.")
    else:
        return Finding(check, "ok", f"{where} is free")
    answering = _answering(settings)
    if answering is not None and answering[0] == part:
        return Finding(check, "ok", f"A Correlator {part}, version {answering[1]}, runs on {where}")
    holder = f"a Correlator {answering[0]}" if answering else "somebody who is no Correlator"
    process = next(_holders(settings.port), None)
    named = f" (process {process[0]}, {process[1]})" if process else ""
    return Finding(
        check,
        "problem" if part == "server" else "warning",
        f"{where} is taken by {holder}{named}.",
        f"Stop it, or choose another port: --port, CORRELATOR_PORT, or port in [{part}] of correlator.toml.",
    )


def _answering(settings: Address) -> tuple[str, str] | None:
    """Which part of Correlator answers there, and in which version."""
    host = settings.host
    with suppress(ValueError):
        if ipaddress.ip_address(host).is_unspecified:
            host = "::1" if ":" in host else "127.0.0.1"
    connection: http.client.HTTPConnection
    if settings.tls_certificate is None:
        connection = http.client.HTTPConnection(host, settings.port, timeout=_PATIENCE_SECONDS)
    else:
        # Nothing is told to it, and what it says is believed no further than its name.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, settings.port, timeout=_PATIENCE_SECONDS, context=context)
    try:
        connection.request("GET", "/health")
        said: Any = json.loads(connection.getresponse().read(_LONGEST_ANSWER))
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    if not isinstance(said, dict) or not isinstance(said.get("version"), str):
        return None
    part = "server" if "log_head" in said else "proxy" if "destinations" in said else None
    return None if part is None else (part, said["version"])


def _holders(port: int) -> Iterator[tuple[int, str]]:
    """Processes that listen there, as far as Linux lets us see them."""
    inodes = {f"socket:[{inode}]" for inode in _inodes(port)}
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        with suppress(OSError):
            if any(os.readlink(descriptor) in inodes for descriptor in (process / "fd").iterdir()):  # noqa: PTH115
                yield int(process.name), (process / "comm").read_text(encoding="utf-8", errors="replace").strip()


def _inodes(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]:
                # Number, address:port in hexadecimal, peer, state, queues, timer, retransmits, user, timeout, inode.
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]
