"""`correlator audit`: whether every event is where it should be."""

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from typing import Final

import click
import msgspec
from pyspark.sql import SparkSession

from correlator.cli.database import open_migrated_database
from correlator.cli.options import with_settings
from correlator.cli.report import printable
from correlator.config import PipelineSettings
from correlator.pipeline.assembly import session_of
from correlator.pipeline.audit import Audit, audit
from correlator.store.audit import Outcome, settle_losses

_EXIT_CODES: Final[dict[Outcome, int]] = {"ok": 0, "wrong": 1, "unknown": 2}
_COLOURS: Final[dict[Outcome, str]] = {"ok": "green", "wrong": "red", "unknown": "yellow"}
_VERDICTS: Final[dict[Outcome, str]] = {
    "ok": "Every event is where it should be.",
    "wrong": "Something is missing or wrong.",
    "unknown": "Nothing was found missing, but not everything could be looked at.",
}


@click.command("audit", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--deep", is_flag=True, help="Read every event of the archive too, with Spark.")
@click.option(
    "--settle", is_flag=True, help="Take note of what is told as lost at a source: the next audit does not mind it."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of lines.")
@with_settings(PipelineSettings)
def command(*, deep: bool, settle: bool, as_json: bool, settings: PipelineSettings) -> None:
    """Check that every event is where it should be, from its arrival to the facts and the archive.

    It changes no event and no fact, and may run while events come in. It looks at the log, at the ledgers of the
    server and of the pipeline, at the archive's files, and at files and topics where the settings name some. How far
    something is behind is told, and is not wrong.

    \b
    With --json:
      {"balanced": whether all is well,
       "sources": [{"source", "received", "stored", "duplicates", "rejected",
                    "missing"}, …],
       "checks":  [{"name", "outcome": "ok" | "wrong" | "unknown", "said",
                    "wrong": [sentences], "unknown": [sentences],
                    "notes": [sentences], "missing"}, …]}

    \b
    Exit code:
      0  every event is where it should be
      1  something is missing or wrong
      2  it could not be told
    """  # noqa: D301 (click's mark for a paragraph that must not be wrapped anew)
    # Spark's warnings are about itself.
    logging.getLogger("pyspark").setLevel(logging.ERROR)
    with ExitStack() as stack:
        database = stack.enter_context(open_migrated_database(settings))

        @cache
        def session() -> SparkSession:
            spark = session_of(settings, is_short=not deep)
            stack.callback(spark.stop)
            return spark

        found = audit(database, settings, session, deep=deep)
        if settle:
            with database.connect("audit", autocommit=True) as connection:
                settle_losses(connection)
    if as_json:
        click.echo(msgspec.json.encode(_as_json(found)))
    else:
        for line in _lines(found):
            click.echo(line)
    sys.exit(_EXIT_CODES[found.outcome])


def _as_json(found: Audit) -> dict[str, object]:
    return {
        "balanced": found.outcome == "ok",
        "sources": found.sources,
        "checks": [
            {
                "name": check.name,
                "outcome": check.outcome,
                "said": check.said,
                "wrong": check.wrong,
                "unknown": check.unknown,
                "notes": check.notes,
                "missing": check.missing,
            }
            for check in found.checks
        ],
    }


def _lines(found: Audit) -> Iterator[str]:
    """A line for each check, what is wrong with it below, then the sources and the verdict."""
    name_width = max(len(check.name) for check in found.checks)
    for check in found.checks:
        outcome = click.style(f"{check.outcome:7}", fg=_COLOURS[check.outcome])
        yield f"{check.name:{name_width}}  {outcome}  {printable(check.said)}".rstrip()
        indent = " " * (name_width + 2)
        yield from (f"{indent}! {printable(sentence)}" for sentence in check.wrong)
        yield from (f"{indent}? {printable(sentence)}" for sentence in check.unknown)
        yield from (f"{indent}- {printable(sentence)}" for sentence in check.notes)
    if found.sources:
        yield ""
        yield from _table(found)
    yield ""
    yield click.style(_VERDICTS[found.outcome], fg=_COLOURS[found.outcome])


def _table(found: Audit) -> Iterator[str]:
    rows = [["SOURCE", "RECEIVED", "STORED", "DUPLICATE", "REJECTED", "MISSING"]]
    for source in found.sources:
        counts = (source.received, source.stored, source.duplicates, source.rejected, source.missing)
        rows.append([printable(source.source), *(f"{count:,}" for count in counts)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells])
