"""`correlator keys`: who may talk to the server."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import click
import msgspec
import psycopg

from correlator.cli.actor import actor
from correlator.cli.database import open_migrated_database
from correlator.cli.options import with_settings
from correlator.config import CommonSettings, ServerSettings
from correlator.key_scopes import SCOPES, Scope
from correlator.setting_kinds import parse_duration
from correlator.store.api_keys import ApiKey, ApiKeyError, NewApiKey, create_key, list_keys, revoke_key

_EXAMPLE_URL: Final = f"http://localhost:{ServerSettings.port}"
_HELP: Final = {"help_option_names": ["-h", "--help"]}


class ShownKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key in `--json`."""

    key: str | msgspec.UnsetType = msgspec.UNSET
    """The secret; only ever in the answer of `create`."""
    name: str
    prefix: str
    scopes: list[Scope]
    state: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


@click.group("keys", context_settings=_HELP)
def command() -> None:
    """Make, list and revoke the keys of the server.

    As long as no key was ever made, the server takes every request, and listens on this machine only. A running server
    sees a change within seconds.

    \b
    Scopes, none of which includes another:
      ingest  send events
      read    ask for incidents, lineage, jobs, datasets, health
      act     acknowledge, assign, mute and resolve incidents
      admin   keys, patterns, alert routes, rejected events

    \b
    Exit code of each:
      0  done
      1  refused: the name is taken, there is no such key
      2  could not tell: the database does not answer; wrong usage
    """  # noqa: D301 (click's mark for a paragraph that must not be wrapped anew)


def _expiry(_: click.Context, __: click.Parameter, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.now(UTC) + timedelta(seconds=parse_duration(text))
    except OverflowError as error:
        raise click.BadParameter(f"{text!r} is further away than any calendar goes.") from error
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(
            f"it takes a time such as 90d or 12h, or a date such as 2030-01-31, not {text!r}."
        ) from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


@command.command("create", context_settings=_HELP)
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    default=["ingest"],
    show_default=True,
    help="What the key may do; give it again for more.",
)
@click.option(
    "--expires",
    "expires_at",
    callback=_expiry,
    metavar="TIME",
    help="When it ends: after a time (90d, 12h) or on a date (2030-01-31).  [default: never]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of sentences.")
@with_settings(CommonSettings)
def create(
    *, name: str, scopes: tuple[Scope, ...], expires_at: datetime | None, as_json: bool, settings: CommonSettings
) -> None:
    """Make a key and show it, this once.

    NAME says whose it is; it is the actor of whatever is done with the key.
    """
    with _connection(settings) as connection:
        is_first = not list_keys(connection)
        new = create_key(connection, name, set(scopes), expires_at=expires_at, actor=actor())
    if as_json:
        click.echo(msgspec.json.encode(_shown(new.key, new.secret)))
    else:
        click.echo("\n".join(_introduction(new, is_first=is_first)))


@command.command("list", context_settings=_HELP)
@click.option("--json", "as_json", is_flag=True, help='One JSON object, {"items": [keys]}, instead of a table.')
@with_settings(CommonSettings)
def list_(*, as_json: bool, settings: CommonSettings) -> None:
    """Show all keys there ever were, by the beginnings of their secrets."""
    with _connection(settings) as connection:
        keys = list_keys(connection)
    if as_json:
        click.echo(msgspec.json.encode({"items": [_shown(key) for key in keys]}))
    elif keys:
        click.echo("\n".join(_table(keys)))
    else:
        click.echo("There are no keys: the server takes every request. `correlator keys create NAME` makes one.")


@command.command("revoke", context_settings=_HELP)
@click.argument("key", metavar="NAME|PREFIX")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a sentence.")
@with_settings(CommonSettings)
def revoke(*, key: str, as_json: bool, settings: CommonSettings) -> None:
    """End a key for good; running servers refuse it within seconds."""
    with _connection(settings) as connection:
        revoked = revoke_key(connection, key, actor=actor())
    if as_json:
        click.echo(msgspec.json.encode(_shown(revoked)))
    else:
        click.echo(f"The key {revoked.name!r} ({revoked.prefix}…) is revoked since {_minute(revoked.revoked_at)}.")


@contextmanager
def _connection(settings: CommonSettings) -> Iterator[psycopg.Connection]:
    try:
        with open_migrated_database(settings) as database, database.connect("keys command") as connection:
            yield connection
    except ApiKeyError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)


def _shown(key: ApiKey, secret: str | msgspec.UnsetType = msgspec.UNSET) -> ShownKey:
    return ShownKey(
        key=secret,
        name=key.name,
        prefix=key.prefix,
        scopes=key.scopes,
        state=key.state(datetime.now(UTC)),
        created_at=key.created_at,
        created_by=key.created_by,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        last_used_at=key.last_used_at,
    )


def _introduction(new: NewApiKey, *, is_first: bool) -> Iterator[str]:
    key = new.key
    until = "never expires" if key.expires_at is None else f"expires {_minute(key.expires_at)}"
    yield f"The key {key.name!r} has the scope {', '.join(key.scopes)} and {until}. It is shown now and never again:"
    yield f"\n  {new.secret}\n"
    yield "Send it with every request, in either header:"
    yield f"  Authorization: Bearer {new.secret}"
    yield f"  X-API-Key: {new.secret}"
    if "ingest" in key.scopes:
        auth = {"type": "api_key", "apiKey": new.secret}
        transport = msgspec.json.encode({"type": "http", "url": _EXAMPLE_URL, "auth": auth}).decode()
        yield "\nAirflow, dbt and every other OpenLineage client take it from the environment:"
        yield f"  export OPENLINEAGE__TRANSPORT='{transport}'"
    if is_first:
        yield "\nIt is the first key: within seconds the server takes no request without one any more."


def _table(keys: Sequence[ApiKey]) -> Iterator[str]:
    now = datetime.now(UTC)
    rows = [("NAME", "KEY", "SCOPES", "STATE", "CREATED", "EXPIRES", "LAST USED")]
    rows += [
        (
            key.name,
            key.prefix + "…",
            ",".join(key.scopes),
            key.state(now),
            _minute(key.created_at),
            _minute(key.expires_at),
            _minute(key.last_used_at),
        )
        for key in keys
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _minute(at: datetime | None) -> str:
    return "never" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
