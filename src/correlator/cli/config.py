"""`correlator config`: the settings that are in force, and where each comes from."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import click
import msgspec

from correlator.cli.options import CouldNotTellError, config_option, with_loaded_settings
from correlator.cli.report import printable
from correlator.config import (
    GROUPS,
    AlertSettings,
    CommonSettings,
    ExplainSettings,
    PipelineSettings,
    ProxySettings,
    RedriveSettings,
    ServerSettings,
    UpSettings,
)
from correlator.setting_sources import DEFAULT, FILE_NAME, Loaded, SettingsError, Value, load, settings_file

SETTINGS: Final[Mapping[str, type[CommonSettings]]] = {
    "up": UpSettings,
    "serve": ServerSettings,
    "proxy": ProxySettings,
    "pipeline": PipelineSettings,
    "keys": CommonSettings,
    "incidents": CommonSettings,
    "explain": ExplainSettings,
    "alerts": AlertSettings,
    "producers": CommonSettings,
    "rejects": RedriveSettings,
    "audit": PipelineSettings,
    "doctor": UpSettings,
    "migrate": CommonSettings,
}
"""What each command reads. It stands here so that to tell it needs none of the commands, nor what they import."""

_HELP: Final = {"help_option_names": ["-h", "--help"]}
_WIDEST_VALUE: Final = 36

Everything: TypeAlias = Mapping[str, Loaded[Any]]
"""What was loaded, by command."""


class ShownValue(msgspec.Struct, frozen=True, rename={"origin": "from"}):
    """A setting in `--json`."""

    value: str
    origin: Literal["flag", "environment", "file", "default"]
    where: str | None


class Shown(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    file: str | None
    commands: dict[str, dict[str, ShownValue]]


class _Commands(click.Group):
    """A command for each command: it takes the same flags, and tells what they would be."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (the signature is click's)
        return list(SETTINGS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        settings = SETTINGS.get(cmd_name)
        return None if settings is None else _command_for(cmd_name, settings)


_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of lines.")


@click.group(
    "config",
    cls=_Commands,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND [FLAGS]...]",
    context_settings=_HELP,
)
@_as_json
@config_option
@click.pass_context
def command(context: click.Context, *, as_json: bool, config: Path | None) -> None:
    """Tell the settings that are in force, and where each comes from: a flag, a variable, a file, or the default.

    Those of every command, or of one. After COMMAND its own flags may stand: what it would do with them is told. Where
    commands differ, each value stands with the commands that have it. Passwords and keys are never shown.

    \b
    With --json:
      {"file": the file of settings or null,
       "commands": {COMMAND: {SETTING: {"value": as it is written, "none" for none,
                                        "from": "flag" | "environment" | "file" | "default",
                                        "where": the flag, variable or table, or null}}}}

    \b
    Exit code:
      0  told
      2  something that is set cannot be used
    """  # noqa: D301 (click's mark for a paragraph that must not be wrapped anew)
    if context.invoked_subcommand is not None:
        # Said before COMMAND, they hold for it.
        context.default_map = {context.invoked_subcommand: {"as_json": as_json, "config": config}}
        return
    everything = {}
    # The same slip is seen by every command, and told once.
    problems: dict[str, None] = {}
    for name, settings in SETTINGS.items():
        try:
            everything[name] = load(settings, file=config)
        except SettingsError as error:
            problems |= dict.fromkeys(str(error).splitlines())
    if problems:
        raise CouldNotTellError("\n".join(problems))
    _tell(everything, settings_file(config), as_json=as_json)


def _command_for(name: str, settings: type[CommonSettings]) -> click.Command:
    @click.command(name, help=f"The settings of `correlator {name}`.", context_settings=_HELP)
    @_as_json
    @click.pass_context
    @with_loaded_settings(settings)
    def one(context: click.Context, *, as_json: bool, loaded: Loaded[CommonSettings]) -> None:
        _tell({name: loaded}, settings_file(context.params["config"]), as_json=as_json)

    return one


def _tell(everything: Everything, file: Path | None, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(_shown(everything, file)))
        return
    for line in _lines(everything, file):
        click.echo(line)


def _shown(everything: Everything, file: Path | None) -> Shown:
    return Shown(
        None if file is None else str(file),
        {
            name: {
                value.setting.name: ShownValue(
                    value.shown, value.origin.kind, None if value.origin.kind == "default" else value.origin.where
                )
                for value in loaded.values()
            }
            for name, loaded in everything.items()
        },
    )


def _lines(everything: Everything, file: Path | None) -> Iterator[str]:
    yield f"File of settings: {printable(str(file)) if file else f'none ({FILE_NAME} is not in this directory)'}"
    by_group = _by_group(everything)
    width = max(len(name) for settings in by_group.values() for name in settings)
    for group, settings in by_group.items():
        users = dict.fromkeys(user for uses in settings.values() for _, users in uses for user in users)
        yield ""
        yield click.style(_heading(group, list(users)), bold=True)
        for name, uses in settings.items():
            for value, users_of_value in uses:
                whose = f"  ({', '.join(users_of_value)})" if len(uses) > 1 else ""
                origin = printable(str(value.origin)) + whose
                line = f"  {name:{width}}  {printable(value.shown):{_WIDEST_VALUE}}  {origin}"
                yield click.style(line, dim=True) if value.origin == DEFAULT else line


def _by_group(everything: Everything) -> dict[str, dict[str, list[tuple[Value, list[str]]]]]:
    """For each setting the values that it has, each with the commands that have it, by the table it belongs to."""
    found: dict[str, dict[str, list[tuple[Value, list[str]]]]] = {each.group: {} for each in GROUPS}
    for command_name, loaded in everything.items():
        for value in loaded.values():
            uses = found[value.setting.group].setdefault(value.setting.name, [])
            same = next(
                (users for other, users in uses if (other.shown, other.origin) == (value.shown, value.origin)), None
            )
            if same is None:
                uses.append((value, [command_name]))
            else:
                same.append(command_name)
    return {group: settings for group, settings in found.items() if settings}


def _heading(group: str, users: list[str]) -> str:
    if group == CommonSettings.group:
        return "every command" if len(users) > 1 else users[0]
    return f"[{group}]  {', '.join(users)}"
