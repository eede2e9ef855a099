"""Where events go: what each kind of destination has in common, and how one is written in the settings.

    [NAME=]TARGET[;OPTION=VALUE]…

`prod=https://lineage.example.com;key_file=/run/secrets/key` has the name `prod`, under which its checkpoint is kept,
its metrics are counted and its failures are told. Without a name the target is the name.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final, Protocol, TypeAlias
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Accepted:
    """The destination has the event."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The destination does not want this event, now or later."""

    reason: str
    status: int | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Later:
    """The event is to be sent again."""

    reason: str
    retry_after: float | None = None
    """Seconds for which the destination has asked."""
    is_misdirected: bool = False
    """Whether somebody has to do something: a wrong key, a wrong address."""


Result: TypeAlias = Accepted | Refused | Later
ACCEPTED: Final = Accepted()


class Destination(Protocol):
    """It is called by one thread, and may block; `interrupt` may be called by another."""

    def send(self, events: Sequence[bytes]) -> Sequence[Result]:
        """Send events in this order; a result for each. None is sent after one that has to wait, unless with it."""

    def interrupt(self) -> None:
        """Do not wait for an answer any longer: the proxy stops."""

    def close(self) -> None: ...


class DestinationError(Exception):
    """What the settings say of a destination cannot be used. Its text is for people."""


@dataclass(frozen=True)
class Spec:
    name: str
    kind: str
    target: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


_NAME: Final = re.compile(r"([A-Za-z][A-Za-z0-9_.-]{0,62})=(?=(?:https?://|kafka:|file:|console$|console;))")
_KINDS: Final = {"http": "http", "https": "http", "kafka": "kafka", "file": "file", "console": "console"}
_MODULES: Final = {"http": "http", "kafka": "kafka", "file": "lines", "console": "lines"}


def parse(text: str) -> Spec:
    """As it stands in the settings."""
    named = _NAME.match(text)
    target, *options = text[named.end() if named else 0 :].split(";")
    kind = _KINDS.get(target.partition(":")[0])
    if kind is None:
        raise DestinationError(
            f"{target!r} is no destination. There are http://HOST and https://HOST, kafka:HOST:PORT/TOPIC, file:PATH "
            "and console."
        )
    pairs = {}
    for option in filter(None, map(str.strip, options)):
        key, equals, value = option.partition("=")
        if not equals:
            raise DestinationError(f"{option!r}, an option of the destination {target}, is not written OPTION=VALUE.")
        pairs[key.strip()] = value.strip()
    shown = _without_password(target)
    return Spec(named[1] if named else shown, kind, target, pairs)


def parse_all(texts: Sequence[str]) -> list[Spec]:
    specs = [parse(text) for text in texts]
    if not specs:
        raise DestinationError("The proxy needs at least one --destination, such as http://localhost:8080.")
    names = [spec.name for spec in specs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DestinationError(f"Two destinations are named {twice[0]}: give each a name of its own, NAME=TARGET.")
    return specs


Make: TypeAlias = Callable[[Spec, float], Destination]


def make(spec: Spec, timeout: float) -> Destination:
    """The destination itself. What it needs is imported now, and only for this kind."""
    maker: Make = import_module(f"{__name__}.{_MODULES[spec.kind]}").make
    return maker(spec, timeout)


class Options:
    """The options of a destination, each taken once; what is left over nobody knows."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._left = dict(spec.options)

    def text(self, name: str, default: str | None = None) -> str | None:
        return self._left.pop(name, default)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._left.pop(name, None)
        if value is None:
            return default
        if value.lower() not in {"true", "false"}:
            raise DestinationError(f"The option {name} of the destination {self._spec.name} is true or false.")
        return value.lower() == "true"

    def rest(self) -> dict[str, str]:
        left, self._left = self._left, {}
        return left

    def check(self, *known: str) -> None:
        if self._left:
            raise DestinationError(
                f"The destination {self._spec.name} has no option {next(iter(self._left))}; there are "
                f"{', '.join(known) or 'none'}."
            )


def _without_password(target: str) -> str:
    if "://" not in target:
        return target
    parts = urlsplit(target)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
