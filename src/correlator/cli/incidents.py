"""`correlator incidents`: what is wrong, and what was."""

import sys
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import click
import msgspec
from rich.console import Console
from rich.text import Text

from correlator.cli.database import open_migrated_database
from correlator.cli.options import with_settings
from correlator.cli.report import printable
from correlator.config import CommonSettings
from correlator.correlation.incident_list import Filters, IncidentItem, incident_list
from correlator.store.ledger import facts_as_of
from correlator.store.moments import read_any_moment

STATUS_COLOURS: Final = {"open": "red", "acknowledged": "yellow", "muted": "blue", "resolved": "green"}


def incident_id(text: str) -> UUID:
    """What a command is given that is about one of them."""
    try:
        return UUID(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not the id of an incident; `correlator incidents` lists them.") from None


@click.command("incidents", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--status",
    type=click.Choice(["open", "acknowledged", "muted", "resolved", "all"]),
    default="open",
    show_default=True,
    help="How they stand.",
)
@click.option("--kind", type=click.Choice(["test", "run"]), help="Failed tests, or failed runs.")
@click.option("--severity", metavar="NAME", help="As the producer says it; else error or warn.")
@click.option("--dataset", metavar="URN", help="Of one dataset, by any of its names.")
@click.option("--job", metavar="NAMESPACE/NAME", help="Of one job: it failed, ran the test, or writes the dataset.")
@click.option("--owner", metavar="NAME", help="By the ownership facets of dataset and job.")
@click.option("--text", metavar="WORDS", help="Part of a name or a message.")
@click.option(
    "--roots/--each", default=True, show_default=True, help="Consequences under their root, or each by itself."
)
@click.option("--causes/--no-causes", default=True, show_default=True, help="Name the cause of each.")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="The most to print.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of words.")
@with_settings(CommonSettings)
def command(*, settings: CommonSettings, as_json: bool, limit: int, causes: bool, **asked: Any) -> None:
    """List incidents, the last first: unbroken streaks of failures of one test, or of one job's runs."""
    filters = Filters(**asked)
    with open_migrated_database(settings) as database, database.connect("incidents", autocommit=True) as connection:
        read_any_moment(connection)
        as_of = facts_as_of(connection)
        found = incident_list(connection, filters, limit=limit + 1, causes=causes)
    is_more, items = len(found) > limit, found[:limit]
    if as_json:
        answer = {"facts_as_of": as_of, "items": items, "is_more": is_more}
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
        return
    console = Console()
    if not items:
        is_plain = filters == Filters(status="open", roots=asked["roots"])
        console.print("Nothing is open." if is_plain else "No incident like that.")
        return
    for item in items:
        console.print(_told(item), soft_wrap=True)
    if is_more:
        console.print(f"There are more than {limit}; --limit shows more, and the filters less.")
    console.print("correlator explain ID says which run broke it, what changed, and who is hurt.", style="dim")


def _told(item: IncidentItem) -> Text:
    """Three lines, for a screen of any width: which and since when, what fails, and why."""
    line = Text(item.status, style=STATUS_COLOURS[item.status])
    line.append(f"  {moment(item.opened_at)}  {item.id}\n", style="default")
    line.append(f"  {printable(what_failed(item))}\n", style="bold")
    if item.named_cause:
        line.append(f"  {printable(item.named_cause)}\n", style="default")
    return line


def what_failed(item: IncidentItem) -> str:
    if item.test is None:
        words = f"{item.test_run.job.name} failed"
    else:
        column = f" of {item.test.column}" if item.test.column else ""
        words = f"{item.test.name}{column} on {item.dataset.name if item.dataset is not None else 'no known dataset'}"
    times = f", {item.failures} times" if item.failures > 1 else ""
    below = f", and {item.children} more by it" if item.children else ""
    return words + times + below


def moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"
