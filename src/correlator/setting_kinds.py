"""How the value of a setting is written and read: sizes, times, addresses and the like."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

T = TypeVar("T")

Bytes: TypeAlias = int
Seconds: TypeAlias = float
Network: TypeAlias = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """How a value is written: in a file as TOML has it, elsewhere as text."""

    allowed: str
    """Completes "it must be …"."""
    metavar: str
    read: Callable[[object], T]
    """Raises ValueError when it cannot."""
    show: Callable[[T], str]
    is_repeated: bool = False
    """Whether its flag may be given several times."""


_SIZE: Final = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?)\s*(?:([kmgt])(i?))?b?", re.IGNORECASE)
_DURATION: Final = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?)\s*(ms|[smhd]?)", re.IGNORECASE)
_UNIT_SECONDS: Final = {
    "ms": Decimal("0.001"),
    "": Decimal(1),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_SHOWN_IN_DAYS: Final = 2 * 86400
_LAST_PORT: Final = 65535
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


def parse_size(text: str) -> Bytes:
    """32MB is 32,000,000 bytes and 32MiB 33,554,432, as SI and IEC have it; case does not matter."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a size")
    number, unit, binary = found.groups(default="")
    power = " kmgt".index(unit.lower() or " ")
    return int(Decimal(number.replace("_", "")) * (1024 if binary else 1000) ** power)


def parse_duration(text: str) -> Seconds:
    """500ms, 30s, 5m, 24h, 7d, or a number of seconds."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a time")
    number, unit = found.groups()
    return float(Decimal(number.replace("_", "")) * _UNIT_SECONDS[unit.lower()])


def show_size(size: Bytes) -> str:
    for factor, suffix in (("1000", "B"), ("1024", "iB")):
        for power in (4, 3, 2, 1):
            unit = int(factor) ** power
            if size and size % unit == 0:
                return f"{size // unit}{' kMGT'[power] if suffix == 'B' else ' KMGT'[power]}{suffix}"
    return str(size)


def show_duration(seconds: Seconds) -> str:
    if seconds >= _SHOWN_IN_DAYS and seconds % 86400 == 0:
        return f"{seconds / 86400:.0f}d"
    for unit, suffix in ((3600, "h"), (60, "m")):
        if seconds >= unit and seconds % unit == 0 and seconds != unit:
            return f"{seconds / unit:.0f}{suffix}"
    return f"{show_number(seconds)}s"


def show_number(number: float) -> str:
    return f"{number:.3f}".rstrip("0").rstrip(".")


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError(value)
    return value.strip()


def _secret(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = _text(value).lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(value)
    return word in _TRUE


def _number(value: object, convert: Callable[[str], float]) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number: float = value
    else:
        number = convert(_text(value))
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def whole(minimum: int, maximum: int | None = None) -> Kind[int]:
    def read(value: object) -> int:
        number = _number(value, int)
        if number != int(number) or number < minimum or (maximum is not None and number > maximum):
            raise ValueError(value)
        return int(number)

    limits = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
    return Kind(f"a whole number {limits}", "N", read, str)


def _rate(value: object) -> float:
    number = _number(value, float)
    if number < 0:
        raise ValueError(value)
    return number


def _size(value: object) -> Bytes:
    size = _number(value, parse_size)
    if size < 1 or size != int(size):
        raise ValueError(value)
    return int(size)


def _duration(value: object) -> Seconds:
    seconds = _number(value, parse_duration)
    if seconds <= 0:
        raise ValueError(value)
    return float(seconds)


def one_of(choices: tuple[str, ...]) -> Kind[Any]:
    def read(value: object) -> str:
        word = _text(value).lower()
        if word not in choices:
            raise ValueError(value)
        return word

    return Kind(f"{', '.join(choices[:-1])} or {choices[-1]}", "|".join(choices), read, str)


def _path(value: object) -> Path:
    path = value if isinstance(value, Path) else Path(_text(value))
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:  # `~nobody/…`
        raise ValueError(value) from error


def _items(value: object) -> list[str]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list):
        raise ValueError(value)  # noqa: TRY004 (what every reader here raises)
    return [_text(item) for item in items]


def _networks(value: object) -> tuple[Network, ...]:
    return tuple(ip_network(item) for item in _items(value))


def _origins(value: object) -> tuple[str, ...]:
    origins = _items(value)
    for origin in origins:
        parts = urlsplit(origin)
        # Browsers send nothing but scheme, host and port; anything else would never match.
        if origin != "*" and (not parts.scheme or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}"):
            raise ValueError(value)
    return tuple(origin.lower() for origin in origins)


def _url(value: object) -> str:
    url = _text(value)
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(value)
    return url.rstrip("/")


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_items(value))


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    """As a table in the file, elsewhere with a comma between two pairs. A comma inside a value needs the table."""
    if isinstance(value, dict):
        return tuple(
            (_text(key), str(item).lower() if isinstance(item, bool) else str(item)) for key, item in value.items()
        )
    pairs = []
    for item in _items(value):
        key, equals, rest = item.partition("=")
        if not equals or not key.strip():
            raise ValueError(value)
        pairs.append((key.strip(), rest.strip()))
    return tuple(pairs)


def _repeated(value: object) -> tuple[str, ...]:
    """One for each flag; in the environment with blanks between them, since a comma may be part of one."""
    items = value.split() if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        raise ValueError(value)  # noqa: TRY004 (what every reader here raises)
    return tuple(_text(item) for item in items)


def _hours(value: object) -> float:
    number = _number(value, float)
    if number <= 0:
        raise ValueError(value)
    return number


def _endpoint(value: object) -> tuple[str, int]:
    host, colon, port = _text(value).rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) <= _LAST_PORT:
        raise ValueError(value)
    return host.removeprefix("[").removesuffix("]"), int(port)


# Rather one too many than one too few: fs.azure.account.key.HOST holds a key, ssl.truststore.location none.
_TELLING: Final = re.compile(
    r"passw|passphrase|secret|jaas|token|credential|signature|\bsas\b|key(?!_file)", re.IGNORECASE
)


def _shown_text(text: str) -> str:
    return without_password(text) if "://" in text else text


def _shown_pair(key: str, value: str) -> str:
    return f"{key}={'***' if _TELLING.search(key) else _shown_text(value)}"


def _shown_pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return _shown_items([_shown_pair(key, value) for key, value in pairs])


def _shown_destination(text: str) -> str:
    """The target, and of its options those that hold nothing to hide."""
    target, *options = text.split(";")
    pairs = [_shown_pair(key, value) for key, _, value in (option.partition("=") for option in options)]
    return ";".join([_shown_text(target), *pairs])


def _shown_texts(texts: Sequence[str]) -> str:
    return _shown_items([_shown_text(text) for text in texts])


def _shown_items(items: Sequence[object]) -> str:
    return ", ".join(str(item) for item in items) or "none"


def without_password(url: str) -> str:
    """A database URL, or the same as `key=value` pairs, that may be shown."""
    if "://" not in url:
        return re.sub(r"(password\s*=\s*)('(?:\\.|[^'\\])*'?|(?:\\.|[^\s\\])+)", r"\1***", url, flags=re.IGNORECASE)
    scheme, _, rest = url.partition("://")
    # Up to the last @ before the path, since a password that was not encoded may itself hold one.
    authority, slash, tail = rest.partition("/")
    user_and_password, at, host = authority.rpartition("@")
    if not at and "@" in tail:  # an unencoded slash in the password: what is what cannot be told
        return f"{scheme}://***"
    user, colon, _ = user_and_password.partition(":")
    path, question, query = tail.partition("?")
    if question:
        pairs = parse_qsl(query, keep_blank_values=True)
        query = urlencode([(key, "***" if _TELLING.search(key) else value) for key, value in pairs], safe="*/")
    return f"{scheme}://{user}{':***' if colon else ''}{at}{host}{slash}{path}{question}{query}"


TEXT: Final[Kind[str]] = Kind("a text", "TEXT", _text, _shown_text)
FLAG: Final[Kind[bool]] = Kind("true or false", "", _flag, lambda value: str(value).lower())
RATE: Final[Kind[float]] = Kind("a number of at least 0", "N", _rate, show_number)
BYTES: Final[Kind[Bytes]] = Kind("a size such as 32MB, 100MiB or 5000 (bytes)", "SIZE", _size, show_size)
TIME: Final[Kind[Seconds]] = Kind("a time such as 30s, 5m, 24h, 7d or 90 (seconds)", "TIME", _duration, show_duration)
PATH: Final[Kind[Path]] = Kind("a path", "PATH", _path, str)
NETWORKS: Final[Kind[tuple[Network, ...]]] = Kind(
    "addresses or networks with a comma between them, such as 10.0.0.5,192.168.0.0/16",
    "ADDRESSES",
    _networks,
    lambda networks: _shown_items(
        [network.network_address if network.num_addresses == 1 else network for network in networks]
    ),
)
ORIGINS: Final[Kind[tuple[str, ...]]] = Kind(
    "origins with a comma between them, such as https://ui.example.com,http://localhost:3000, or *",
    "ORIGINS",
    _origins,
    _shown_items,
)
URL: Final[Kind[str]] = Kind("a URL such as https://correlator.example.com", "URL", _url, without_password)
TEXTS: Final[Kind[tuple[str, ...]]] = Kind("texts with a comma between them", "TEXTS", _texts, _shown_texts)
PAIRS: Final[Kind[tuple[tuple[str, str], ...]]] = Kind(
    "pairs key=value with a comma between them; in the file also a table", "PAIRS", _pairs, _shown_pairs
)
HASHES: Final[Kind[tuple[tuple[str, str], ...]]] = replace(
    PAIRS, show=lambda pairs: _shown_items([f"{name}=***" for name, _ in pairs])
)
DATABASE_URL: Final[Kind[str]] = Kind("a PostgreSQL URL, postgresql://user@host/name", "URL", _text, without_password)
SECRET: Final[Kind[str]] = Kind("a text that is not empty", "TEXT", _secret, lambda _: "set")
REPEATED: Final[Kind[tuple[str, ...]]] = Kind(
    "texts, each with a flag of its own; in the environment with blanks between them, in the file an array",
    "TEXT",
    _repeated,
    _shown_texts,
    is_repeated=True,
)
DESTINATIONS: Final[Kind[tuple[str, ...]]] = replace(
    REPEATED, show=lambda texts: _shown_items([_shown_destination(text) for text in texts])
)
HOURS: Final[Kind[float]] = Kind("a number of hours above 0", "HOURS", _hours, show_number)
ENDPOINT: Final[Kind[tuple[str, int]]] = Kind(
    "a host and a port, HOST:PORT", "HOST:PORT", _endpoint, lambda endpoint: f"{endpoint[0]}:{endpoint[1]}"
)
