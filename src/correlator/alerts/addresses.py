"""Where alerts may go: a name is resolved once, every address that it has is checked, and what was checked is used.

Whoever may set up a route could otherwise have the server ask what only the server can reach: its own machine, the
network behind it, the metadata of a cloud.
"""

import ipaddress
import socket
from typing import Final, TypeAlias
from urllib.parse import urlsplit

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# Networks whose addresses carry one of IPv4, to which the way leads in the end.
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")


class AddressError(Exception):
    """An address that no alert may go to, or none at all. The text says which and what to do."""


def resolved(host: str, port: int, *, allow_private: bool) -> list[tuple[str, int]]:
    """The addresses of a host, each of which may be connected to. Raises AddressError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise AddressError(f"{host} cannot be resolved: {words}.") from None
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    for address in addresses:
        # One that is forbidden among others is no accident.
        _check(host, ipaddress.ip_address(address.partition("%")[0]), allow_private=allow_private)
    if not addresses:
        raise AddressError(f"{host} has no address.")
    return [(address, port) for address in addresses]


def foreseen(url: str, *, allow_private: bool) -> str | None:
    """Why nothing will ever get there, where that can be told without asking anyone."""
    host = urlsplit(url).hostname or ""
    try:
        _check(host, ipaddress.ip_address("127.0.0.1" if host == "localhost" else host), allow_private=allow_private)
    except AddressError as error:
        return str(error)
    except ValueError:
        pass  # a name, whose address may be another tomorrow
    return None


def _check(host: str, address: Address, *, allow_private: bool) -> None:
    meant = _meant(address)
    shown = f"{host} is {address}" if str(address) != host else host
    if meant.is_multicast or meant.is_link_local or meant.is_unspecified or _is_unused(meant):
        raise AddressError(f"{shown}: alerts never go to link-local, multicast or reserved addresses.")
    if not meant.is_global and not allow_private:
        raise AddressError(f"{shown}: a private address, to which alerts do not go unless alerts_allow_private is set.")


def _meant(address: Address) -> Address:
    """What an address leads to, if it carries another one."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_unused(address: Address) -> bool:
    # Of IPv6 whole regions count as reserved in which this machine's own address lies.
    return isinstance(address, ipaddress.IPv4Address) and address.is_reserved
