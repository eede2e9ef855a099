"""`correlator producers`: which integration sends what, and what of it is wrong."""

import sys
from collections.abc import Iterator
from typing import Final

import click
import msgspec
from rich.console import Console
from rich.text import Text

from correlator.cli.database import open_migrated_database
from correlator.cli.incidents import moment
from correlator.cli.options import with_settings
from correlator.cli.report import printable
from correlator.config import CommonSettings
from correlator.correlation.producers import Producer, ProducersReport, RuleFigure, producers
from correlator.store.ledger import facts_as_of
from correlator.store.moments import read_any_moment

_MOST_LINES: Final = 5


@click.command("producers", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="One JSON object, as `GET /api/v1/health/producers` answers.")
@with_settings(CommonSettings)
def command(*, as_json: bool, settings: CommonSettings) -> None:
    """Tell who sends events, in which version, and what is wrong with them.

    Whoever was heard of last comes first.
    """
    with open_migrated_database(settings) as database, database.connect("producers", autocommit=True) as connection:
        read_any_moment(connection)
        as_of = facts_as_of(connection)
        report = producers(connection)
    if as_json:
        answer = {"facts_as_of": as_of, "looked_at": report.looked_at, "items": report.items}
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    else:
        _show(report)


def _show(report: ProducersReport) -> None:
    console = Console()
    if not report.items:
        console.print("Nobody has sent anything yet.")
        return
    for one in report.items:
        console.print(_line(one), soft_wrap=True)
        for complaint in complaints(one):
            console.print(Text(f"    {printable(complaint)}", style="yellow"), soft_wrap=True)
    looked = report.looked_at
    console.print(
        f"Looked at the {looked.jobs:,} jobs heard of last, the {looked.events:,} newest events of the log and the "
        f"{looked.rejected_events:,} newest rejected ones.",
        style="dim",
        soft_wrap=True,
    )


def _line(one: Producer) -> Text:
    line = Text(printable(one.name or "events that name no producer"), style="bold")
    if one.version is not None:
        line.append(f" {printable(one.version)}", style="cyan")
    parts = [f"{one.jobs:,} {'job' if one.jobs == 1 else 'jobs'}", f"{one.events:,} of the newest events"]
    if one.last_event_at is not None:
        parts.append(f"last at {moment(one.last_event_at)}")
    line.append(f"  {', '.join(parts)}", style="default")
    return line


def complaints(one: Producer) -> Iterator[str]:
    """What is wrong with what this producer sends, each in a line."""
    yield from _by_rule("rejected", one.rejects)
    yield from _by_rule("with a warning", one.warnings)
    if one.jobs_without_start:
        yield f"{one.jobs_without_start:,} jobs whose last run has no START"
    if one.jobs_without_end:
        yield f"{one.jobs_without_end:,} jobs with a run that never ended"
    for name in one.unmatched_names[:_MOST_LINES]:
        meant = "" if name.means is None else f"; {name.means} may be meant"
        yield f"nobody writes {name.urn}, which it tests{meant}"
    if len(one.unmatched_names) > _MOST_LINES:
        yield f"and {len(one.unmatched_names) - _MOST_LINES} more names that nobody writes; --json has them"


def _by_rule(what: str, figures: list[RuleFigure]) -> Iterator[str]:
    for figure in figures[:_MOST_LINES]:
        events = "event" if figure.events == 1 else "events"
        yield f"{figure.events:,} {events} {what} [{figure.rule}]: {figure.example}"
    if len(figures) > _MOST_LINES:
        yield f"and {len(figures) - _MOST_LINES} more rules; --json has them"
