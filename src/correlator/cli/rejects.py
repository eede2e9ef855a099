"""`correlator rejects`: the events that were refused, to look at, to take out, and to drive in again."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, Final, TypeVar

import click
import msgspec
import psycopg
from rich.console import Console

from correlator.cli import reject_views as views
from correlator.cli.database import open_migrated_database
from correlator.cli.event_files import in_words
from correlator.cli.options import CouldNotTellError, with_settings
from correlator.cli.screen import give_up_standard_output
from correlator.cli.validate import INTERRUPTED, NOBODY_READS
from correlator.config import CommonSettings, RedriveSettings
from correlator.rulebook.judging import Judge
from correlator.rulebook.naming import storable
from correlator.setting_kinds import parse_duration
from correlator.store.redrive import Redrive
from correlator.store.rejects import (
    Selection,
    WholeRejectedEvent,
    chunks,
    list_rejects,
    read_rejects,
    reject_totals,
)

_HELP: Final = {"help_option_names": ["-h", "--help"]}
_NUMBER: Final = click.IntRange(1, 2**63 - 1)
_MOST_IDS_NAMED: Final = 20

R = TypeVar("R")


@click.group("rejects", context_settings=_HELP)
def command() -> None:
    """Look at rejected events, and drive them in again.

    Every event that is refused is kept as it was received, with the reasons, until it is too old
    (rejects_retention of the server) or there are too many (rejects_max_bytes). Events may hold secrets: show and
    export print them as they are.

    \b
    Layers:
      1  one event: it breaks a rule by itself
      2  the run cycle: its request told of a run that cannot have gone this way
    """  # noqa: D301 (click's mark for a paragraph that must not be wrapped anew)


def _moment(_: click.Context, __: click.Parameter, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.now(UTC) - timedelta(seconds=parse_duration(text))
    except OverflowError as error:
        raise click.BadParameter(f"{text!r} ago is further back than any calendar goes.") from error
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(
            f"it takes a time ago such as 24h or 7d, or a date such as 2030-01-31 or 2030-01-31T12:00, not {text!r}."
        ) from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _with_filters(function: Callable[..., R]) -> Callable[..., R]:
    """Gives a command the options that select, and its function the argument `selection`."""

    @wraps(function)
    def call(
        *args: Any,
        rules: tuple[str, ...],
        layer: int | None,
        producer: str | None,
        source: str | None,
        since: datetime | None,
        until: datetime | None,
        **others: Any,
    ) -> R:
        selection = Selection(
            rules=tuple(storable(rule) for rule in rules) or None,
            layer=layer,
            producer=None if producer is None else storable(producer),
            source=None if source is None else storable(source),
            since=since,
            until=until,
        )
        return function(*args, selection=selection, **others)

    when = partial(click.option, callback=_moment, metavar="TIME")
    options = [
        click.option(
            "--rule", "rules", multiple=True, metavar="RULE", help="With this rule among the reasons; any, if repeated."
        ),
        click.option("--layer", type=click.IntRange(1, 2), help="Refused by this layer.  [1 or 2]", metavar="N"),
        click.option("--producer", metavar="TEXT", help="With this text in the producer, in capitals or not."),
        click.option("--source", metavar="NAME", help="That came this way: http, redrive."),
        when("--since", help="Refused since: a time ago (24h, 7d) or a date (2030-01-31)."),
        when("--until", help="Refused before: the same."),
    ]
    decorated: Callable[..., R] = call
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


_NOT_REDRIVEN: Final = click.option("--not-redriven", is_flag=True, help="Without those that were redriven.")


@command.command("list", context_settings=_HELP)
@_with_filters
@_NOT_REDRIVEN
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, metavar="N", help="At most so many."
)
@click.option("--before", type=_NUMBER, metavar="ID", help="Go on from here: only those before this one.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@with_settings(CommonSettings)
def list_(
    *,
    selection: Selection,
    not_redriven: bool,
    limit: int,
    before: int | None,
    as_json: bool,
    settings: CommonSettings,
) -> None:
    """Show rejected events, the newest first.

    On a terminal, long cells are cut to its width; into a pipe or a file they go whole.

    \b
    With --json:
      {"items":       [{"id", "rejected_at", "source", "layer", "rule", "path",
                        "sentence", "kind", "producer", "sent_by",
                        "correlation_id", "bytes", "redriven_at",
                        "redriven_as"}, …],
       "next_cursor": for --before, or null at the end,
       "totals":      {"events", "bytes", "capped_events", "capped_bytes",
                       "last_capped_at"}}
    """  # noqa: D301
    selection = msgspec.structs.replace(selection, not_redriven=not_redriven)
    with _connection(settings) as connection:
        found = list_rejects(connection, selection, limit=limit + 1, before=before)
        totals = reject_totals(connection)
    shown = found[:limit]
    cursor = shown[-1].id if len(found) > limit else None
    with _standard_output() as out:
        if as_json:
            out.write(msgspec.json.encode({"items": shown, "next_cursor": cursor, "totals": totals}) + b"\n")
            return
        console = Console(file=sys.stdout)
        lines = views.table(shown, console.width if console.is_terminal else None)
        text = "\n".join([*lines, *views.closing(shown, cursor, totals), ""])
        out.write(text.encode(sys.stdout.encoding, "replace"))


@command.command("show", context_settings=_HELP)
@click.argument("number", metavar="ID", type=_NUMBER)
@click.option("--raw", "as_raw", is_flag=True, help="The event alone, to the byte.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: the members of export.")
@with_settings(CommonSettings)
def show(*, number: int, as_raw: bool, as_json: bool, settings: CommonSettings) -> None:
    """Show a rejected event with all reasons.

    Exit code 1: there is none with this ID.
    """
    if as_raw and as_json:
        raise click.UsageError("--raw and --json exclude each other.")
    with _connection(settings) as connection:
        found = read_rejects(connection, [number])
    if not found:
        click.echo(f"Error: {_nothing_under([number])}", err=True)
        sys.exit(1)
    (event,) = found
    if as_raw and sys.stdout.isatty() and not views.is_harmless(event.raw):
        raise CouldNotTellError(
            "The event holds characters that a terminal would obey. Send it to a file or through a pipe: "
            f"correlator rejects show {number} --raw > FILE"
        )
    with _standard_output() as out:
        if as_raw:
            out.write(event.raw)
        elif as_json:
            out.write(views.as_line(event))
        else:
            most = views.LONGEST_ON_TERMINAL if sys.stdout.isatty() else None
            out.write(("\n".join([*views.in_full(event, most), ""])).encode(sys.stdout.encoding, "replace"))


@command.command("redrive", context_settings=_HELP)
@click.argument("numbers", metavar="[ID]…", type=_NUMBER, nargs=-1)
@click.option("--all", "all_", is_flag=True, help="All that were not redriven before.")
@_with_filters
@click.option("--dry-run", is_flag=True, help="Judge them, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of sentences.")
@with_settings(RedriveSettings)
def redrive(
    *,
    numbers: tuple[int, ...],
    all_: bool,
    selection: Selection,
    dry_run: bool,
    as_json: bool,
    settings: RedriveSettings,
) -> None:
    """Judge rejected events again, and store those that pass now.

    Say which: IDs, or options that select, or --all. The oldest come first; what was redriven before is left alone, so
    it does no harm to interrupt it or to run it twice. An event that the log has already is accepted as a duplicate.
    What is still refused stays as it is, and the reasons of today are shown.

    Each event is judged by itself. One that was refused with its whole request for a broken run cycle (layer 2) is
    therefore accepted. Of an array that was sent where one event belongs, the elements are judged.

    \b
    With --json:
      {"dry_run", "judged", "accepted", "stored", "duplicates",
       "still_refused", "layer_2_accepted",
       "arrays", "split_off":  arrays that were taken apart, and their elements
                               that are rejected events of their own now,
       "already_redriven", "not_found": [ids],
       "refused": [{"id", "problems": [{"path", "rule", "message"}, …]}, …],
                  the first 1,000 of them}

    \b
    Exit code:
      0  all were accepted, now or before (also when there are none)
      1  some are still refused
      2  could not tell: there is none with an ID, the database does not answer;
         what was done before that stays done
    """  # noqa: D301
    filtered = selection != Selection()
    if sum([bool(numbers), all_, filtered]) != 1:
        raise click.UsageError(
            "Say which: IDs, or options that select, or --all"
            + (" (one of these ways)." if numbers or all_ or filtered else ".")
        )
    tally = views.RedriveTally(dry_run=dry_run)
    with _connection(settings) as connection:
        drive = Redrive(connection, Judge.within(settings), timedelta(seconds=settings.idempotency_window))
        attempt = drive.rehearse if dry_run else drive
        try:
            if numbers:
                _look_up(connection, numbers, tally)
                selection = Selection(ids=numbers)
            selection = msgspec.structs.replace(selection, not_redriven=True)
            for chunk in chunks(connection, selection):
                tally.add(attempt(chunk))
        except (psycopg.Error, KeyboardInterrupt) as error:
            if tally.judged:
                click.echo("\n".join(["So far:", *tally.sentences()]), err=True)
            if isinstance(error, KeyboardInterrupt):
                sys.exit(INTERRUPTED)
            raise
    with _standard_output() as out:
        if as_json:
            out.write(msgspec.json.encode(tally.summary()) + b"\n")
        else:
            out.write("\n".join([*tally.sentences(), ""]).encode(sys.stdout.encoding, "replace"))
    if tally.not_found:
        raise CouldNotTellError(_nothing_under(tally.not_found))
    sys.exit(1 if tally.still_refused or tally.split_off else 0)


@command.command("export", context_settings=_HELP)
@_with_filters
@_NOT_REDRIVEN
@click.option(
    "-o",
    "--output",
    type=click.Path(allow_dash=True),
    default="-",
    help="The file to write, whole or not at all; - is standard output.  [default: -]",
)
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@click.option("--events-only", is_flag=True, help="The events themselves, one on a line, to mend and send again.")
@with_settings(CommonSettings)
def export(
    *,
    selection: Selection,
    not_redriven: bool,
    output: str,
    force: bool,
    events_only: bool,
    settings: CommonSettings,
) -> None:
    """Write rejected events as JSON lines, the oldest first.

    \b
    Each line is what list --json has, and:
      "problems":    [{"path", "rule", "message"}, …]
      "raw":         the event as text, or, if it is not UTF-8,
      "raw_base64":  the event in base64

    With --events-only each line is an event as it was sent, on one line; arrays are taken apart. What is no JSON object
    cannot be written like this and is left out, which is said on standard error.
    """  # noqa: D301
    selection = msgspec.structs.replace(selection, not_redriven=not_redriven)
    count = size = 0
    left_out: list[int] = []
    left_out_count = 0
    with _connection(settings) as connection, _written(output, force=force) as out:
        for event in _all(connection, selection):
            lines = views.events_in(event.raw) if events_only else [views.as_line(event)]
            if lines is None:
                left_out_count += 1
                left_out += [event.id] if len(left_out) < _MOST_IDS_NAMED else []
                continue
            for line in lines:
                size += out.write(line)
            count += 1
    where = "" if output == "-" else f" to {output}"
    click.echo(f"{views.number(count, 'rejected event')} ({views.size(size)}) written{where}.", err=True)
    if left_out_count:
        named = ", ".join(map(str, left_out)) + (", …" if left_out_count > len(left_out) else "")
        click.echo(
            f"{views.number(left_out_count, 'rejected event')} left out, being no JSON object: {named}. "
            "An export without --events-only has them.",
            err=True,
        )


def _all(connection: psycopg.Connection, selection: Selection) -> Iterator[WholeRejectedEvent]:
    for chunk in chunks(connection, selection):
        yield from read_rejects(connection, chunk)


def _look_up(connection: psycopg.Connection, numbers: tuple[int, ...], tally: views.RedriveTally) -> None:
    known = {event.id: event for event in list_rejects(connection, Selection(ids=numbers), limit=len(numbers))}
    tally.not_found = sorted(set(numbers) - known.keys())
    tally.already_redriven = sum(event.redriven_at is not None for event in known.values())


def _nothing_under(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:_MOST_IDS_NAMED])) + (", …" if len(numbers) > _MOST_IDS_NAMED else "")
    return (
        f"There is no rejected event {named}. Old ones are removed (rejects_retention, rejects_max_bytes); "
        "correlator rejects list shows what there is."
    )


@contextmanager
def _connection(settings: CommonSettings) -> Iterator[psycopg.Connection]:
    with (
        open_migrated_database(settings) as database,
        database.connect("rejects command", autocommit=True) as connection,
    ):
        yield connection


@contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    """In bytes. Whoever does not read on (`| head`) is no trouble."""
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        give_up_standard_output()
        sys.exit(NOBODY_READS)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        give_up_standard_output()
        raise CouldNotTellError(f"Standard output cannot be written: {in_words(error)}.") from error


@contextmanager
def _written(output: str, *, force: bool) -> Iterator[IO[bytes]]:
    """A file that is there whole or not at all, and only for who wrote it, because events may hold secrets."""
    if output == "-":
        with _standard_output() as out:
            yield out
        return
    target = Path(os.path.realpath(output))
    _check_target(target, output, force=force)
    try:
        temporary = NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False)  # noqa: SIM115
    except OSError as error:
        raise CouldNotTellError(f"{output} cannot be written: {in_words(error)}.") from error
    try:
        with temporary:
            yield temporary.file
            temporary.flush()
            os.fsync(temporary.fileno())
        _check_target(target, output, force=force)
        Path(temporary.name).replace(target)
    except OSError as error:
        raise CouldNotTellError(f"{output} cannot be written: {in_words(error)}.") from error
    except KeyboardInterrupt:
        click.echo(f"Interrupted; {output} was not written.", err=True)
        sys.exit(INTERRUPTED)
    finally:
        Path(temporary.name).unlink(missing_ok=True)


def _check_target(target: Path, output: str, *, force: bool) -> None:
    if target.exists() and not target.is_file():
        raise CouldNotTellError(f"{output} is no file. Name one, or - for standard output.")
    if target.exists() and not force:
        raise CouldNotTellError(f"{output} is there already. Choose another name, or replace it with --force.")
