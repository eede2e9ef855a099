"""Where the value of a setting comes from, and what is said of one that cannot be used.

A flag goes before the environment, the environment before `correlator.toml`, and that before the default.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

from correlator.config import (
    GROUPS,
    PREFIX,
    CommonSettings,
    ListenSettings,
    ProxySettings,
    Setting,
    all_settings,
    settings_of,
)
from correlator.setting_kinds import PATH, TEXT, show_size

FILE_NAME: Final = "correlator.toml"
FILE_VARIABLE: Final = PREFIX + "CONFIG"

OTHER_VARIABLES: Final = frozenset(
    {
        FILE_VARIABLE,
        "CORRELATOR_URL",  # of `correlator demo`
        "CORRELATOR_API_KEY",
        "CORRELATOR_ALERT_SECRET",  # of `correlator alerts routes add`
        "CORRELATOR_KEY",  # of the examples in the documentation
        "CORRELATOR_CORPUS",  # of the tests
        "CORRELATOR_TEST_DATABASE_URL",
        "CORRELATOR_CHAOS",
    }
)
"""Variables that are ours, and no settings."""

# What Kubernetes tells every container of the services of its namespace. One of ours is likely to be named so.
_OF_KUBERNETES: Final = re.compile(
    r"(?:_\w+)?_(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)
_URL_OF_KUBERNETES: Final = re.compile(r"(?:tcp|udp|sctp)://")

S = TypeVar("S", bound=CommonSettings)


class SettingsError(Exception):
    """Settings cannot be used. Its text names each place, what stands there and what may."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from."""

    kind: Literal["flag", "environment", "file", "default"]
    where: str
    """The flag, the variable, the table and the file, or `default`."""

    def __str__(self) -> str:
        return self.where


DEFAULT: Final = Origin("default", "default")


@dataclass(frozen=True, slots=True)
class Value:
    """A setting with the value that it has, as it may be shown, and where that comes from."""

    setting: Setting
    shown: str
    origin: Origin


@dataclass(frozen=True)
class Loaded(Generic[S]):
    settings: S
    origins: Mapping[str, Origin]
    """Where each value comes from that is no default."""

    def values(self) -> tuple[Value, ...]:
        return tuple(
            Value(setting, self._shown(setting), self.origins.get(setting.name, DEFAULT))
            for setting in settings_of(type(self.settings))
        )

    def _shown(self, setting: Setting) -> str:
        value = getattr(self.settings, setting.name)
        return "none" if value is None else setting.kind.show(value)


def load(
    settings: type[S],
    *,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Loaded[S]:
    """The settings of one command. `flags` holds the values that were given on the command line, read already.

    `file` is one that was named and has to be there; without it `CORRELATOR_CONFIG` is asked, and then
    `correlator.toml` in the current directory read if there is one.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    problems = unknown_variables(environ)
    from_file = _read_file(file, environ, problems)
    for setting in settings_of(settings):
        tables = _tables_of(settings, setting)
        in_file = next((from_file[table, setting.name] for table in tables if (table, setting.name) in from_file), None)
        flag = (flags or {}).get(setting.name)
        text = _in_environment(setting, environ)
        if in_file is not None:
            values[setting.name], origins[setting.name] = in_file
        if text is not None:
            try:
                values[setting.name] = setting.kind.read(text)
            except ValueError:
                problems.append(_unreadable(setting, setting.variable, text))
            origins[setting.name] = Origin("environment", setting.variable)
        if flag is not None:
            values[setting.name], origins[setting.name] = flag, Origin("flag", setting.flag or setting.name)
    if problems:
        raise SettingsError("\n".join(problems))
    made = settings(**values)
    _check_together(made, origins)
    return Loaded(made, origins)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that looks like one of ours and is none."""
    known = {setting.variable for setting in all_settings()} | OTHER_VARIABLES
    sentences = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known or _is_of_kubernetes(name, environ[name]):
            continue
        # Of what is behind the beginning that all share, and which would make any two alike.
        near = get_close_matches(
            name.removeprefix(PREFIX).upper(), [other.removeprefix(PREFIX) for other in sorted(known)], 1
        )
        advice = (
            f"did you mean {PREFIX}{near[0]}?" if near else "unset it, and `correlator config` lists those that are."
        )
        sentences.append(f"{name} in the environment is not a setting; {advice}")
    return sentences


def _is_of_kubernetes(name: str, value: str) -> bool:
    rest = name.removeprefix(PREFIX.rstrip("_"))
    return bool(_OF_KUBERNETES.fullmatch(rest) or (rest.endswith("_PORT") and _URL_OF_KUBERNETES.match(value)))


def _tables_of(settings: type[CommonSettings], setting: Setting) -> tuple[str, ...]:
    """Those that may hold a setting of a command, its own first, and last what stands above all tables."""
    groups = [
        each.group
        for each in settings.__mro__
        if issubclass(each, CommonSettings) and setting.name in {field.name for field in fields(each)}
    ]
    return (*dict.fromkeys(groups), "")


def _in_environment(setting: Setting, environ: Mapping[str, str]) -> str | None:
    """What a variable holds; an empty one is none, as compose files and shells make them."""
    text = environ.get(setting.variable)
    # Kubernetes tells every container of a service named "correlator" like this; it is not about our port.
    if text is not None and setting.name == "port" and _is_of_kubernetes(setting.variable, text):
        return None
    return text or None


def settings_file(file: Path | None = None, environ: Mapping[str, str] | None = None) -> Path | None:
    """The file that `load` reads, if there is one."""
    named = _named_file(file, os.environ if environ is None else environ)
    return named or (Path(FILE_NAME) if Path(FILE_NAME).is_file() else None)


def _named_file(file: Path | None, environ: Mapping[str, str]) -> Path | None:
    return file or (Path(environ[FILE_VARIABLE]) if environ.get(FILE_VARIABLE) else None)


def _read_file(
    file: Path | None, environ: Mapping[str, str], problems: list[str]
) -> dict[tuple[str, str], tuple[object, Origin]]:
    """Values and where they stand, by table ("" for none) and name. The whole file is checked, whoever asks."""
    named = _named_file(file, environ)
    path = named or Path(FILE_NAME)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        if named is None:
            return {}
        raise SettingsError(f"There is no file {path}, which --config or {FILE_VARIABLE} names.") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} cannot be read: it is not UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not TOML: {error}.") from error
    tables = {group.group: settings_of(group) for group in GROUPS[1:]}
    found: dict[tuple[str, str], tuple[object, Origin]] = {}
    for key, value in content.items():
        if key in tables and isinstance(value, dict):
            for name, inner in value.items():
                _take(found, (key, name), inner, {setting.name: setting for setting in tables[key]}, path, problems)
        else:
            known = {setting.name: setting for setting in all_settings()}
            _take(found, ("", key), value, known, path, problems)
    return found


def _take(
    found: dict[tuple[str, str], tuple[object, Origin]],
    at: tuple[str, str],
    value: object,
    known: Mapping[str, Setting],
    path: Path,
    problems: list[str],
) -> None:
    table, name = at
    place = f"[{table}] of {path}" if table else str(path)
    setting = known.get(name)
    if setting is None:
        names = [*known, *(() if table else (group.group for group in GROUPS[1:]))]
        near = get_close_matches(name.replace("-", "_").lower(), names, 1)
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(names))}."
        problems.append(f"In {place}: {name} is not a setting; {advice}")
        return
    try:
        if setting.kind is PATH:  # from where the file is, so that it means the same wherever one stands
            value = path.absolute().parent / Path(TEXT.read(value)).expanduser()
        found[at] = setting.kind.read(value), Origin("file", place)
    except (ValueError, RuntimeError):
        problems.append(_unreadable(setting, f"{name} in {place}", value))


_LONGEST_QUOTED: Final = 60


def _unreadable(setting: Setting, where: str, value: object) -> str:
    if setting.is_secret:
        return f"{where} cannot be used; it must be {setting.kind.allowed}."
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    text = text if len(text) <= _LONGEST_QUOTED else text[:_LONGEST_QUOTED] + "…"
    return f"{where} is {text}; it must be {setting.kind.allowed}."


def _check_together(settings: CommonSettings, origins: Mapping[str, Origin]) -> None:
    """What each setting alone cannot say."""
    if not isinstance(settings, ListenSettings):
        return
    if settings.tls_certificate is None and (settings.tls_key is not None or settings.tls_key_password is not None):
        name = "tls_key" if settings.tls_key is not None else "tls_key_password"
        raise SettingsError(f"{name} (from {origins[name]}) needs tls_certificate beside it.")
    if settings.max_inflight_bytes < settings.max_request_bytes:
        raise SettingsError(
            f"max_inflight_bytes ({show_size(settings.max_inflight_bytes)}) is less than max_request_bytes "
            f"({show_size(settings.max_request_bytes)}): such a request could never be "
            "taken. Raise the one or lower the other."
        )
    if isinstance(settings, ProxySettings) and settings.max_event_bytes > settings.retention_bytes:
        raise SettingsError(
            f"max_event_bytes ({show_size(settings.max_event_bytes)}) is more than retention_bytes "
            f"({show_size(settings.retention_bytes)}): such an event could not be buffered. Raise the one or lower the "
            "other."
        )
    if isinstance(settings, ProxySettings) and 2 * (settings.partition_bytes or 0) > settings.retention_bytes:
        raise SettingsError(
            f"partition_bytes (from {origins['partition_bytes']}) is more than half of retention_bytes "
            f"({show_size(settings.retention_bytes)}): whole partitions are dropped, so there have to be some."
        )
