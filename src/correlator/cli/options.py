"""Settings as options of a command."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from correlator.config import CommonSettings, Setting, settings_of
from correlator.setting_kinds import FLAG
from correlator.setting_sources import FILE_NAME, FILE_VARIABLE, Loaded, SettingsError, load

R = TypeVar("R")

SETTINGS_OF_COMMAND: Final = "correlator_settings"
"""The attribute of a command's function that says what settings it has."""


class CouldNotTellError(click.ClickException):
    """Ends a command that can say neither yes nor no: one sentence, exit code 2."""

    exit_code = 2


def with_settings(settings: type[CommonSettings]) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Gives a command an option for each setting, and its function the settings as the argument `settings`."""

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        @wraps(function)
        def call(*args: Any, loaded: Loaded[CommonSettings], **others: Any) -> R:
            return function(*args, settings=loaded.settings, **others)

        return with_loaded_settings(settings)(call)

    return decorate


def with_loaded_settings(settings: type[CommonSettings]) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """The same, with where each value comes from: the argument is `loaded`."""

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        known = settings_of(settings)

        @wraps(function)
        def call(*args: Any, config: Path | None, **others: Any) -> R:
            flags = {setting.name: others.pop(setting.name, None) for setting in known}
            try:
                loaded = load(settings, flags=flags, file=config)
            except SettingsError as error:
                raise CouldNotTellError(str(error)) from error
            return function(*args, loaded=loaded, **others)

        call.__dict__[SETTINGS_OF_COMMAND] = settings
        command: Callable[..., R] = call
        for setting in reversed(known):
            if setting.flag is not None:
                command = _option(setting, setting.flag)(command)
        return config_option(command)

    return decorate


def config_option(command: Callable[..., R]) -> Callable[..., R]:
    return click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help=f"A file of settings.  [env: {FILE_VARIABLE}; default: {FILE_NAME} if there is one]",
    )(command)


def _option(setting: Setting, flag: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    words = f"{setting.help}  [env: {setting.variable}; default: {setting.default}]"
    if setting.kind is FLAG:
        return click.option(f"{flag}/--no-{flag.removeprefix('--')}", setting.name, default=None, help=words)

    def read(_: click.Context, __: click.Parameter, value: str | tuple[str, ...] | None) -> object:
        try:
            return None if value is None or value == () else setting.kind.read(value)
        except ValueError as error:
            quoted = "" if setting.is_secret else f" not {value!r}"
            raise click.BadParameter(f"it takes {setting.kind.allowed},{quoted}".rstrip(",") + ".") from error

    return click.option(
        flag,
        setting.name,
        callback=read,
        metavar=setting.kind.metavar,
        help=words,
        multiple=setting.kind.is_repeated,
    )
