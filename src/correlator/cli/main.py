"""`correlator`: the door to every command."""

from importlib import import_module
from typing import Final

import click

from correlator import __version__

COMMANDS: Final = {
    "validate": "Judge the OpenLineage events in files.",
    "up": "Start everything on this machine: database, server and pipeline.",
    "serve": "Take OpenLineage events over HTTP and keep them.",
    "proxy": "Take events, keep them on local disk, and forward them when the backend is there.",
    "pipeline": "Turn the events of every source into facts.",
    "keys": "Make, list and revoke the keys of the server.",
    "demo": "Play three weeks of a shop, and a bad morning, into a running server.",
    "incidents": "List what is wrong, and what was.",
    "explain": "Say of an incident which run broke it, what changed, and who is hurt.",
    "alerts": "Say who is told of what, try it, and see what was told.",
    "producers": "Tell who sends events, and what is wrong with them.",
    "rejects": "Look at rejected events, and drive them in again.",
    "audit": "Check that every event is where it should be.",
    "doctor": "Check whether this machine has what Correlator needs, and say what to do.",
    "config": "Tell the settings that are in force, and where each comes from.",
    "migrate": "Bring the schema of the database up to date.",
}
"""Every command with its line in `correlator --help`; each is the `command` of the module of its name.

The lines stand here and not in the modules, so that asking for help imports none of them: `validate` alone takes most
of a second, and a command whose extra is not installed must not keep the others from working.
"""


class Commands(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (the signature is click's)
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        try:
            command: click.Command = import_module(f"correlator.cli.{cmd_name}").command
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "correlator":
                raise
            raise click.ClickException(
                f"`correlator {cmd_name}` needs the package {error.name}, which is not installed here. "
                "It comes with: pip install 'openlineage-correlator[all]'"
            ) from error
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="correlator")
def main() -> None:
    """From a red data test to the run that broke it, what changed, and who is hurt."""


if __name__ == "__main__":
    main()
