"""`correlator migrate`: the schema of the database, up to date."""

import sys

import click
import msgspec

from correlator.cli.database import embedded_directory, open_database
from correlator.cli.options import with_settings
from correlator.config import CommonSettings
from correlator.store.migrations import known_migrations, migrate, pending


class State(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    up_to_date: bool
    applied: list[str]
    pending: list[str]


@click.command("migrate", context_settings={"help_option_names": ["-h", "--help"]})
@with_settings(CommonSettings)
@click.option("--check", is_flag=True, help="Change nothing; say whether something is pending.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of sentences.")
def command(*, settings: CommonSettings, check: bool, as_json: bool) -> None:
    """Bring the schema of the database up to date.

    `correlator serve` does the same when it starts. Of several that start at once, one does the work.

    \b
    With --json:
      {"up_to_date": true or false, "applied": [names], "pending": [names]}

    \b
    Exit code:
      0  the schema is up to date
      1  with --check: something is pending
      2  could not tell: the database does not answer, or has another history
    """  # noqa: D301 (click's mark for a paragraph that must not be wrapped anew)
    state = _checked(settings) if check else _migrated(settings)
    if as_json:
        click.echo(msgspec.json.encode(state))
    else:
        for name in state.applied:
            click.echo(f"applied {name}")
        for name in state.pending:
            click.echo(f"pending {name}")
        if not state.applied and not state.pending:
            click.echo("The schema is up to date.")
    sys.exit(0 if state.up_to_date else 1)


def _checked(settings: CommonSettings) -> State:
    # To look at a database must not make one.
    if settings.database_url is None and not embedded_directory(settings).exists():
        missing = [migration.name for migration in known_migrations()]
    else:
        with open_database(settings) as database:
            missing = pending(database)
    return State(up_to_date=not missing, applied=[], pending=missing)


def _migrated(settings: CommonSettings) -> State:
    with open_database(settings) as database:
        return State(up_to_date=True, applied=migrate(database), pending=[])
