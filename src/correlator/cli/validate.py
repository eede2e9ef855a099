"""`correlator validate`: the events in files, judged for people and for programs."""

import sys
from collections.abc import Sequence
from typing import Final, get_args

import click
import msgspec

from correlator.cli.event_files import UnreadableError, events_in, in_words, opened
from correlator.cli.report import Tally, Verdict, in_lines, printable
from correlator.cli.screen import Screen, give_up_standard_output
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Kind, Rejection
from correlator.rulebook.policy import Formats, Policy, PolicyName
from correlator.rulebook.problems import Problem

STANDARD_INPUT: Final = "<stdin>"
MAX_BYTES: Final = 100_000_000

INTERRUPTED: Final = 130
NOBODY_READS: Final = 141
"""What the shell reports of any program that writes into a closed pipe (128 + SIGPIPE)."""


class Judgement:
    """One call of the command: files in, words and an exit code out."""

    def __init__(self, screen: Screen, policy: Policy, max_bytes: int, *, as_json: bool, quiet: bool) -> None:
        self._screen = screen
        self._policy = policy
        self._max_bytes = max_bytes
        self._as_json = as_json
        self._quiet = quiet
        self._encode = msgspec.json.Encoder().encode
        self.tally = Tally()

    def read(self, name: str) -> None:
        source = STANDARD_INPUT if name == "-" else printable(click.format_filename(name))
        tally, before, line = self.tally, self.tally.events, 0
        try:
            with opened(name, lambda count: self._screen.advance(count, tally.events)) as text:
                for line, index, found in events_in(text, self._max_bytes):
                    if isinstance(found, Problem):
                        self._tell(source, line, index, found)
                        continue
                    judged = judge(found, self._policy)
                    if self._quiet and not isinstance(judged, Rejection) and not judged.warnings:
                        tally.count(judged.producer)
                    else:
                        self._tell(source, line, index, judged)
        except UnreadableError as error:
            tally.unreadable += 1
            where = f"{source}, after line {line:,}" if line else source
            self._screen.complain(f"{where}: cannot be read: {error}")
        else:
            if tally.events == before:
                self._screen.complain(f"{source}: there are no events in it")

    def _tell(self, source: str, line: int, index: int | None, judged: Event | Rejection | Problem) -> None:
        errors: Sequence[Problem] = ()
        warnings: Sequence[Problem] = ()
        kind: Kind | None = None
        producer = None
        if isinstance(judged, Problem):  # never reached the rulebook
            errors = (judged,)
        else:
            kind, producer, warnings = judged.kind, judged.producer, judged.warnings
            if isinstance(judged, Rejection):
                errors = judged.errors
        verdict = Verdict(
            source=source,
            line=line,
            index=msgspec.UNSET if index is None else index,
            kind=kind,
            valid=not errors,
            errors=errors,
            warnings=warnings,
        )
        counts = self.tally.count(producer)
        if errors or warnings:
            self.tally.note(verdict, counts)
        if errors or not self._quiet:
            if self._as_json:
                self._screen.tell_bytes(self._encode(verdict) + b"\n")
            else:
                self._screen.tell(in_lines(verdict, self._screen.paint))

    def finish(self) -> None:
        self._screen.flush()
        self._screen.close_bar()
        if not self._as_json:
            if self._screen.has_told:
                self._screen.tell("\n")
            self._screen.tell(self.tally.summary(self._screen.paint))
            self._screen.flush()

    @property
    def exit_code(self) -> int:
        if self.tally.unreadable or self.tally.too_large:
            return 2
        return 1 if self.tally.total.invalid else 0


@click.command("validate", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=click.Path(allow_dash=True))
@click.option(
    "--policy",
    "policy_name",
    type=click.Choice(get_args(PolicyName)),
    default="correlator",
    show_default=True,
    help="How strict: as the official schemas, or as Correlator's server.",
)
@click.option(
    "--formats",
    type=click.Choice(get_args(Formats)),
    default="warn",
    show_default=True,
    help="Whether a broken uuid, uri or date-time is a warning or an error.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per event instead of lines and summary.")
@click.option("-q", "--quiet", is_flag=True, help="Of the events, only those with errors.")
@click.option(
    "--max-bytes",
    type=click.IntRange(min=1),
    default=MAX_BYTES,
    show_default=True,
    metavar="N",
    help="Do not judge events larger than this.",
)
def command(
    *, files: tuple[str, ...], policy_name: PolicyName, formats: Formats, as_json: bool, quiet: bool, max_bytes: int
) -> None:
    """Judge the OpenLineage events in files.

    A FILE holds JSON lines, or JSON documents over any number of lines, each an event or an array of events; gzip is
    unpacked, whatever the name of the file. `-` is standard input.

    Every event gets a line with its errors and warnings below; at the end stand the counts by producer and by rule.

    \b
    With --json, each event gets one line on standard output, and nothing else is printed there:
      {"source":   the file as named, or "<stdin>",
       "line":     where the event begins, from 1,
       "index":    its place in its array, from 0; absent outside of arrays,
       "kind":     "run", "job", "dataset", or null if it cannot be told,
       "valid":    true or false,
       "errors":   [{"path", "rule", "message"}, …],
       "warnings": [{"path", "rule", "message"}, …]}

    \b
    Exit code:
      0    all events are valid (also when there are none)
      1    some are invalid
      2    something could not be judged: a file that cannot be read, or not
           to its end, or an event larger than --max-bytes; wrong usage
      130  interrupted; what was judged so far is reported
      141  nobody reads the output any more
    """  # noqa: D301 (click's mark for a paragraph that must not be wrapped anew)
    screen = Screen(files)
    judgement = Judgement(screen, Policy(name=policy_name, formats=formats), max_bytes, as_json=as_json, quiet=quiet)
    interrupted = False
    try:
        try:
            for name in files:
                judgement.read(name)
        except KeyboardInterrupt:
            interrupted = True
            screen.complain("interrupted" if as_json else "interrupted; so far:")
        judgement.finish()
    except BrokenPipeError:
        give_up_standard_output()
        sys.exit(NOBODY_READS)
    except OSError as error:  # of writing: what goes wrong in reading is told and counted where it happens
        give_up_standard_output()
        click.echo(f"the results cannot be written: {in_words(error)}", err=True)
        sys.exit(2)
    finally:
        screen.close_bar()
    sys.exit(INTERRUPTED if interrupted else judgement.exit_code)
