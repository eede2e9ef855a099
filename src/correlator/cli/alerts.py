"""`correlator alerts`: who is told of what, whether it works, and what was told."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, get_args

import click
import msgspec
import psycopg

from correlator.alerts import outbox
from correlator.alerts.addresses import foreseen
from correlator.alerts.outbox import Listed, State
from correlator.alerts.trial import try_route
from correlator.cli.actor import actor
from correlator.cli.database import open_migrated_database
from correlator.cli.options import with_settings
from correlator.cli.report import printable
from correlator.config import AlertSettings, CommonSettings
from correlator.store.alert_routes import (
    AlertRoute,
    NewRoute,
    RouteError,
    RouteKind,
    add_route,
    destination,
    list_routes,
    remove_route,
)

_HELP: Final = {"help_option_names": ["-h", "--help"]}
_PAGERDUTY: Final = "https://events.pagerduty.com/v2/enqueue"


@click.group("alerts", context_settings=_HELP)
def command() -> None:
    """Say who is told of what, try it, and see what was told.

    Alerts are sent by `correlator serve` and `correlator up`. A change of the routes is effective at once.

    \b
    Exit code of each:
      0  done
      1  refused: the name is taken, there is no such route, the receiver does not take the test
      2  could not tell: the database does not answer; wrong usage
    """  # noqa: D301 (click's mark for a paragraph that must not be wrapped anew)


@command.command("test", context_settings=_HELP)
@click.argument("route", required=False)
@click.option("--json", "as_json", is_flag=True, help='One JSON object, {"items": [answers]}, instead of sentences.')
@with_settings(AlertSettings)
def test(*, route: str | None, as_json: bool, settings: AlertSettings) -> None:
    """Send a message that says that it is a test, and tell what the receiver answers.

    ROUTE is a name; without it every route is tried that is in use.
    """
    with _connection(settings) as connection:
        chosen = [each for each in list_routes(connection) if each.name == route or (route is None and each.is_enabled)]
        found = [(each, destination(connection, each.id)) for each in chosen]
    if not found:
        _refuse("There is no route to try." if route is None else f"There is no route named {route!r}.")
    answers: list[dict[str, Any]] = []
    for each, where in found:
        if where is None:
            continue
        outcome = try_route(where, settings)
        answers.append(
            {"route": each.name, "is_taken": outcome.is_taken, "status": outcome.status, "words": outcome.words}
        )
        if not as_json:
            said = "took it" if outcome.is_taken else "did not take it"
            click.echo(f"{printable(each.name)} ({each.url}) {said}: {printable(outcome.words)}")
    if as_json:
        click.echo(msgspec.json.encode({"items": answers}))
    if not all(answer["is_taken"] for answer in answers):
        sys.exit(1)


@command.command("list", context_settings=_HELP)
@click.option("--state", type=click.Choice(get_args(State)), help="How they stand.  [default: all]")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The most to print.")
@click.option("--json", "as_json", is_flag=True, help='One JSON object, {"items": [alerts]}, instead of a table.')
@with_settings(CommonSettings)
def list_(*, state: State | None, limit: int, as_json: bool, settings: CommonSettings) -> None:
    """Show what was told and what is on its way, the newest first."""
    with _connection(settings) as connection:
        found = outbox.listed(connection, state=state, limit=limit)
    if as_json:
        click.echo(msgspec.json.encode({"items": found}))
    elif found:
        for each in found:
            click.echo("\n".join(_told(each)))
    else:
        click.echo("Nobody was told of anything." if state is None else f"No alert is {state}.")


@command.command("retry", context_settings=_HELP)
@click.argument("ids", metavar="[ID]...", type=int, nargs=-1)
@click.option("--json", "as_json", is_flag=True, help='One JSON object, {"retried": N}, instead of a sentence.')
@with_settings(CommonSettings)
def retry(*, ids: tuple[int, ...], as_json: bool, settings: CommonSettings) -> None:
    """Send again what was given up, or waits after an error; all of it, or those of the IDs that `list` shows."""
    with _connection(settings) as connection:
        count = outbox.retry(connection, ids or None)
    if as_json:
        click.echo(msgspec.json.encode({"retried": count}))
    else:
        click.echo(f"{count} to be sent again, by the server that runs, at once.")
    if ids and count < len(set(ids)):
        _refuse(
            f"{len(set(ids)) - count} of these are no alerts that failed: `correlator alerts list` shows which are."
        )


@command.group("routes", context_settings=_HELP)
def routes() -> None:
    """Say who is told of what.

    A route is for an incident if all that it names fits: one of the owners, one of the namespaces (of the dataset or
    the job), one of the severities. * stands for any characters, ? for one. What is for no other route goes to the
    default ones.
    """


@routes.command("add", context_settings=_HELP)
@click.argument("name")
@click.option("--kind", type=click.Choice(get_args(RouteKind)), required=True, help="What the receiver understands.")
@click.option("--url", metavar="URL", help=f"Where it is.  [default for pagerduty: {_PAGERDUTY}]")
@click.option(
    "--secret",
    envvar="CORRELATOR_ALERT_SECRET",
    metavar="TEXT",
    help="Signs a webhook, and is made up and shown once if you give none; the routing key of PagerDuty. Other users "
    "of the machine can read arguments: better in the environment.  [env: CORRELATOR_ALERT_SECRET]",
)
@click.option("--owner", "owners", multiple=True, metavar="PATTERN", help="Only for incidents of this owner.")
@click.option("--namespace", "namespaces", multiple=True, metavar="PATTERN", help="Only for this namespace.")
@click.option("--severity", "severities", multiple=True, metavar="PATTERN", help="Only for this severity.")
@click.option("--default", "is_default", is_flag=True, help="For what no other route is for.")
@click.option(
    "--resolved/--no-resolved", "tells_resolved", default=True, show_default=True, help="Tell when it is over, too."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of sentences.")
@with_settings(AlertSettings)
def add(*, url: str | None, as_json: bool, settings: AlertSettings, **said: Any) -> None:
    """Add a route. `correlator alerts test NAME` tries it."""
    if url is None and said["kind"] != "pagerduty":
        raise click.UsageError("--url is missing: where the receiver is.")
    try:
        new = msgspec.convert({**said, "url": url or _PAGERDUTY}, NewRoute, strict=False)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        raise click.UsageError(f"{where.strip('`') or 'the route'}: {message}.") from None
    with _connection(settings) as connection:
        route = add_route(connection, new, actor=actor())
    if trouble := foreseen(new.url, allow_private=settings.alerts_allow_private):
        click.echo(f"The route was added, but as things stand nothing will reach it. {trouble}", err=True)
    if as_json:
        click.echo(msgspec.json.encode(route))
        return
    click.echo(f"The route {printable(route.name)!r} is for {_purpose(route)}.")
    if isinstance(route.secret, str):
        click.echo("What is sent is signed with this secret, shown now and never again:")
        click.echo(f"\n  {route.secret}\n")


@routes.command("list", context_settings=_HELP)
@click.option("--json", "as_json", is_flag=True, help='One JSON object, {"items": [routes]}, instead of lines.')
@with_settings(CommonSettings)
def list_of_routes(*, as_json: bool, settings: CommonSettings) -> None:
    """Show all routes, without what is secret about them."""
    with _connection(settings) as connection:
        found = list_routes(connection)
    if as_json:
        click.echo(msgspec.json.encode({"items": found}))
        return
    for route in found:
        use = "" if route.is_enabled else ", not in use"
        click.echo(f"{printable(route.name)}  {route.kind} {printable(route.url)}, for {_purpose(route)}{use}")
    if not found:
        click.echo("There are no routes: nobody is told of anything. `correlator alerts routes add` makes one.")


@routes.command("remove", context_settings=_HELP)
@click.argument("name")
@with_settings(CommonSettings)
def remove(*, name: str, settings: CommonSettings) -> None:
    """Remove a route, with what waits to be sent on it."""
    with _connection(settings) as connection:
        found = next((route for route in list_routes(connection) if route.name == name), None)
        is_gone = found is not None and remove_route(connection, found.id)
    if not is_gone:
        _refuse(f"There is no route named {name!r}.")
    click.echo(f"The route {printable(name)!r} is gone.")


@contextmanager
def _connection(settings: CommonSettings) -> Iterator[psycopg.Connection[Any]]:
    try:
        with (
            open_migrated_database(settings) as database,
            database.connect("alerts command", autocommit=True) as connection,
        ):
            yield connection
    except RouteError as error:
        _refuse(str(error))


def _refuse(sentence: str) -> NoReturn:
    click.echo(f"Error: {sentence}", err=True)
    sys.exit(1)


def _purpose(route: AlertRoute) -> str:
    said = [
        f"{name} {' or '.join(map(printable, patterns))}"
        for name, patterns in (
            ("owner", route.owners),
            ("namespace", route.namespaces),
            ("severity", route.severities),
        )
        if patterns
    ]
    what = " and ".join(said) or "everything"
    return f"{what}, where no other route is" if route.is_default else what


def _told(message: Listed) -> Sequence[str]:
    at = message.sent_at or message.given_up_at or message.created_at
    lines = [
        f"{message.state}  {_minute(at)}  {message.id}  {message.event} on {printable(message.route)}",
        f"  {printable(message.title)}",
    ]
    if message.last_error:
        attempts = f"{message.attempts} attempt{'s' if message.attempts != 1 else ''}"
        again = "" if message.due_at is None else f", again at {message.due_at.astimezone(UTC):%H:%M:%S} UTC"
        lines.append(f"  {attempts}{again}: {printable(message.last_error)}")
    return lines


def _minute(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
