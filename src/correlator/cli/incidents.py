"""`correlator incidents`: what is wrong, and what was."""

import sys
from datetime import datetime
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from correlator.cli.database import open_migrated_database
from correlator.cli.options import with_settings
from correlator.cli.report import printable
from correlator.config import CommonSettings
from correlator.correlation.incident_list import Filters, IncidentItem, incident_list
from correlator.store.ledger import facts_as_of
from correlator.store.moments import read_any_moment

STATUS_COLOURS: Final = {"open": "red", "acknowledged": "yellow", "muted": "blue", "resolved": "green"}
_NARROWEST: Final = 100


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
@click.option("--roots", is_flag=True, help="Without those that are consequences of others.")
@click.option("--causes/--no-causes", default=True, show_default=True, help="Name the cause of each.")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="The most to print.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
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
        words = "Nothing" if filters == Filters(status="open") else "No incident like that"
        console.print(f"{words} is open." if words == "Nothing" else f"{words}.")
        return
    console.print(_table(items, causes=causes), width=max(console.width, _NARROWEST))
    if is_more:
        console.print(f"There are more than {limit}; --limit shows more, and the filters less.")
    console.print("correlator explain ID says which run broke it, what changed, and who is hurt.", style="dim")


def _table(items: list[IncidentItem], *, causes: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("ID", "STATUS", "OPENED", "WHAT"):
        table.add_column(name, no_wrap=name != "WHAT", overflow="fold")
    if causes:
        table.add_column("CAUSE", overflow="fold")
    for item in items:
        cells = [
            Text(str(item.id)),
            Text(item.status, style=STATUS_COLOURS[item.status]),
            Text(moment(item.opened_at)),
            Text(printable(what_failed(item))),
        ]
        table.add_row(*cells, *([Text(printable(item.named_cause or ""))] if causes else []))
    return table


def what_failed(item: IncidentItem) -> str:
    if item.test is None:
        words = f"{item.test_run.job.name} failed"
    else:
        column = f" of {item.test.column}" if item.test.column else ""
        words = f"{item.test.name}{column} on {item.dataset.name if item.dataset is not None else 'no known dataset'}"
    times = f", {item.failures} times" if item.failures > 1 else ""
    below = f", {item.children} follow" if item.children else ""
    return words + times + below


def moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"
