"""`correlator validate`: the events in files, judged for people and for programs."""

import gzip
import io
import os
import re
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Final, Literal, Protocol, TypeAlias, cast, get_args

import click
import msgspec
from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.segment import Segment

from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Kind, Rejection
from correlator.rulebook.policy import Formats, Policy, PolicyName
from correlator.rulebook.problems import ROOT

STANDARD_INPUT: Final = "<stdin>"
MAX_BYTES: Final = 100_000_000

INTERRUPTED: Final = 130
NOBODY_READS: Final = 141
"""What the shell reports of any program that writes into a closed pipe (128 + SIGPIPE)."""


# --- reading: where one event ends and the next begins ---------------------------------------------------------------


class UnreadableError(Exception):
    """An input, or the rest of it, cannot be read. Its text is for people."""


class Unjudged(msgspec.Struct, frozen=True, gc=False):
    """What the rulebook never sees, in the form of its problems."""

    path: str
    rule: Literal["too_large", "invalid_json"]
    message: str


Found: TypeAlias = tuple[int, int | None, bytes | Unjudged]
"""The line where an event begins, its index if it is the element of an array, and its text."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_READ_AT_ONCE = 256 * 1024
_SIDE_BY_SIDE = 2
_GZIP = b"\x1f\x8b"
_NOT_TEXT = {
    b"PAR1": "Parquet",
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"\xfd7zXZ": "compressed with xz",
    b"BZh": "compressed with bzip2",
}
_LONGEST_MAGIC = max(map(len, _NOT_TEXT))


class _Metered(io.RawIOBase):
    """The bytes of an input as they come.

    It calls `before_read` whenever it has to wait for more: the moment to show what has been found so far, so that
    the loop over the events has to watch neither clock nor buffers.
    """

    def __init__(self, source: io.BufferedIOBase, before_read: Callable[[int], None]) -> None:
        self._source = source
        self._before_read = before_read
        self._last = 0
        self._head = b""
        while len(self._head) < _LONGEST_MAGIC and (more := self._read(_LONGEST_MAGIC - len(self._head))):
            self._head += more
        self.head = self._head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the interpreter passes nothing else
        more, self._head = self._head or self._read(len(buffer)), b""
        buffer[: len(more)] = more
        return len(more)

    def _read(self, size: int) -> bytes:
        self._before_read(self._last)
        try:
            more = self._source.read1(size)
        except OSError as error:
            raise UnreadableError(_in_words(error)) from error
        self._last = len(more)
        return more


class _Gunzipped(io.RawIOBase):
    """What is in a gzip file, up to the place where it is damaged."""

    def __init__(self, source: io.BufferedIOBase) -> None:
        self._file = gzip.GzipFile(fileobj=source)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            # Not `read`, which would throw away what it has when it comes to the damage.
            more = self._file.read1(len(buffer))
        except EOFError as error:
            raise UnreadableError("the gzip file is truncated") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise UnreadableError(f"the gzip file is damaged ({error})") from error
        buffer[: len(more)] = more
        return len(more)


@contextmanager
def opened(name: str, before_read: Callable[[int], None]) -> Iterator[io.BufferedIOBase]:
    """The text of a file, or of standard input for `-`, unpacked if it is gzip whatever its name says."""
    try:
        source = cast("io.BufferedReader", sys.stdin.buffer) if name == "-" else open(name, "rb")  # noqa: PTH123, SIM115
    except OSError as error:
        raise UnreadableError(_in_words(error)) from error
    except AttributeError as error:  # `<&-` leaves no sys.stdin at all
        raise UnreadableError("it is closed") from error
    try:
        metered = _Metered(source, before_read)
        for magic, what in _NOT_TEXT.items():
            if metered.head.startswith(magic):
                raise UnreadableError(f"it is {what}; only JSON, JSON lines and gzip of them can be read")
        plain = io.BufferedReader(metered, _READ_AT_ONCE)
        yield io.BufferedReader(_Gunzipped(plain), _READ_AT_ONCE) if metered.head.startswith(_GZIP) else plain
    finally:
        if name != "-":
            source.close()


def _in_words(error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return "there is no such file"
        case IsADirectoryError():
            return "it is a directory; name the files in it"
        case PermissionError():
            return "it may not be read (permission denied)"
        case _:
            return (error.strerror or str(error)).lower()


def events_in(text: io.BufferedIOBase, max_bytes: int) -> Iterator[Found]:
    """Every event of a text: JSON lines; or JSON documents over any number of lines, whose arrays hold events.

    Which of the two it is, its first lines tell. Lines have the benefit of the doubt, because a broken line among them
    costs only itself.
    """
    before, first = 0, b""
    for before, piece in enumerate(iter(partial(text.readline, min(_READ_AT_ONCE, max_bytes + 1)), b"")):  # noqa: B007
        first = piece.removeprefix(_BYTE_ORDER_MARK)
        if first and not first.isspace():
            break
    else:
        return
    lines = iter(partial(text.readline, max_bytes + 1), b"")
    opening, objects = [first], 0
    if not first.endswith(b"\n"):
        is_document = first.lstrip().startswith(b"[")
        if not is_document:
            opening = [first + text.readline(max_bytes + 1 - len(first))]
    elif is_document := _leaves_open(first):
        # Or a broken line, and others follow: in a document, two objects never stand side by side.
        for line in lines:
            opening.append(line)
            if not line.isspace():
                is_document = not _is_object(line)
                objects += not is_document
                if is_document or objects == _SIDE_BY_SIDE:
                    break
    if is_document:
        rest = iter(partial(text.read1, _READ_AT_ONCE), b"")
        yield from _events_of_documents(chain(opening, rest), before + 1, max_bytes)
    else:
        yield from _events_of_lines(chain(opening, lines), before + 1, max_bytes, text)


def _leaves_open(text: bytes) -> bool:
    """Whether there are brackets that it opens and does not close."""
    depth = 0
    for token in _TOKENS.finditer(text):
        match token[2]:
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]":
                depth = max(depth - 1, 0)
    return depth > 0


def _is_object(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _too_large(max_bytes: int) -> Unjudged:
    return Unjudged(ROOT, "too_large", f"the event is larger than {max_bytes:,} bytes, the limit of --max-bytes")


def _events_of_lines(lines: Iterable[bytes], number: int, max_bytes: int, text: io.BufferedIOBase) -> Iterator[Found]:
    for at, line in enumerate(lines, number):
        if len(line) > max_bytes and not line.endswith(b"\n"):
            while (rest := text.readline(_READ_AT_ONCE)) and not rest.endswith(b"\n"):
                pass
            yield at, None, _too_large(max_bytes)
        elif line[0] == _OPEN_BRACE:  # nearly all
            yield at, None, line.rstrip(b"\r\n")
        elif line.lstrip().startswith(b"["):
            yield from _events_of_documents([line], at, max_bytes)
        elif not line.isspace():
            yield at, None, line.rstrip(b"\r\n")


def _events_of_documents(pieces: Iterable[bytes], line: int, max_bytes: int) -> Iterator[Found]:
    splitter = _Splitter(line, max_bytes)
    for piece in pieces:
        yield from splitter.feed(piece)
    yield from splitter.finish()


_COMMA, _OPEN_BRACE, _OPEN_BRACKET, _CLOSE_BRACKET = b",{[]"
# Everything up to the next bracket or comma outside of strings, or to the end: it always matches, so that a long string
# is never searched twice. The first group is the end of the last string in between, empty if it has none; the second is
# the bracket or comma. A string ends at the latest with its line: no JSON string goes on in the next one, and so a
# forgotten quotation mark does not turn the rest of the file inside out.
_TOKENS: Final = re.compile(
    rb"""(?: [^"\[\]{},]++ | "[^"\\\n]*+(?:\\.[^"\\\n]*+)*+("?) )*+  (?: ([\[\]{},]) | \Z )""", re.VERBOSE
)


class _Splitter:
    """Cuts a text into its values, and arrays into their elements, by nothing but brackets, commas and strings.

    Only the value that is being read is held, so that an array of any size can be judged. Whether a piece is JSON is
    for the rulebook to say; what does not belong to any value is a piece of its own, so that nothing goes unnoticed.
    """

    def __init__(self, line: int, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._line = line
        """Where what is held begins, white space included."""
        self._held = bytearray()
        self._too_large_at: int | None = None
        self._depth = 0
        self._array_at: int | None = None
        """The line of the array that we are in."""
        self._index: int | None = None
        self._in_string = False
        self._backslash = b""

    def feed(self, piece: bytes) -> Iterator[Found]:
        # A string that goes on is scanned from a quotation mark that is not kept. An escape must not be cut in two.
        piece = b'"' * self._in_string + self._backslash + piece
        start = int(self._in_string)
        whole = len(piece) - (len(piece) - len(piece.rstrip(b"\\"))) % 2
        piece, self._backslash = piece[:whole], piece[whole:]
        depth = self._depth
        for token in _TOKENS.finditer(piece):
            at = token.start(2)
            if at < 0:
                self._in_string = token.start(1) == len(piece)
                break
            byte = piece[at]
            if byte == _COMMA:
                if depth == 1 and self._index is not None:
                    yield from self._take(piece[start:at], needed=True)
                    start = at + 1
                    self._index += 1
            elif byte in b"{[":
                if depth == 0:
                    yield from self._take(piece[start:at])
                    start = at
                    if byte == _OPEN_BRACKET:
                        self._array_at, self._index = self._line, 0
                        start = at + 1
                depth += 1
            elif depth == 1:
                ends_array = self._index is not None and byte == _CLOSE_BRACKET
                yield from self._take(piece[start : at if ends_array else at + 1], needed=bool(self._index))
                start = at + 1
                self._array_at = self._index = None
                depth = 0
            elif depth:
                depth -= 1
        self._depth = depth
        self._hold(piece[start:])

    def finish(self) -> Iterator[Found]:
        array_at, is_open = self._array_at, self._depth == 1
        yield from self._take(self._backslash)
        if array_at is not None and is_open:  # deeper down, the element does not end either, and was judged for it
            yield (
                array_at,
                None,
                Unjudged(ROOT, "invalid_json", "the array that begins here is not JSON: it has no end"),
            )

    def _hold(self, text: bytes) -> None:
        self._held += text
        if len(self._held) > self._max_bytes:
            if self._too_large_at is None:
                self._too_large_at = self._first_line(self._held)
            self._line += self._held.count(b"\n")
            self._held.clear()

    def _take(self, text: bytes, *, needed: bool = False) -> Iterator[Found]:
        """What is held, with its last part; nothing if that is blank, unless it is needed there."""
        self._hold(text)
        if self._too_large_at is not None:
            yield self._too_large_at, self._index, _too_large(self._max_bytes)
        elif needed or not (self._held.isspace() or not self._held):
            yield self._first_line(self._held), self._index, bytes(self._held.strip())
        self._line += self._held.count(b"\n")
        self._held.clear()
        self._too_large_at = None

    def _first_line(self, text: bytearray) -> int:
        return self._line + text.count(b"\n", 0, len(text) - len(text.lstrip()))


# --- telling: lines, objects, the summary ----------------------------------------------------------------------------


class Finding(Protocol):
    """A Problem of the rulebook, or an Unjudged."""

    @property
    def path(self) -> str: ...
    @property
    def rule(self) -> str: ...
    @property
    def message(self) -> str: ...


class Verdict(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is told of one event; with `--json`, to the letter."""

    source: str
    line: int
    index: int | msgspec.UnsetType
    kind: Kind | None
    valid: bool
    errors: Sequence[Finding]
    warnings: Sequence[Finding]

    @property
    def place(self) -> str:
        element = "" if self.index is msgspec.UNSET else f"[{self.index}]"
        return f"{self.source}:{self.line}{element}"


class _Counts:
    __slots__ = ("events", "invalid", "warned")

    def __init__(self) -> None:
        self.events = self.invalid = self.warned = 0

    def add(self, other: "_Counts") -> None:
        self.events += other.events
        self.invalid += other.invalid
        self.warned += other.warned


class _RuleCounts:
    __slots__ = ("errors", "first", "warnings")

    def __init__(self, first: str) -> None:
        self.errors = self.warnings = 0
        self.first = first


Paint: TypeAlias = Callable[[str, str], str]
"""A text in a colour, or as it is where there are no colours."""

_MOST_PRODUCERS = 10_000
_LONGEST_PRODUCER = 300
_MOST_SHOWN = 20
_NO_PRODUCER = "(no producer)"
_OTHER_PRODUCERS = "(other producers)"


class Tally:
    """What the summary is made of. It stays small, whatever is counted."""

    def __init__(self) -> None:
        self._producers: dict[str, _Counts] = {}
        self._rules: dict[str, _RuleCounts] = {}
        self.events = 0
        self.unreadable = 0
        self.too_large = 0

    def count(self, producer: str | None) -> _Counts:
        """The counts of a producer, this event being counted."""
        self.events += 1
        name = producer[:_LONGEST_PRODUCER] if producer else _NO_PRODUCER
        counts = self._producers.get(name)
        if counts is None:
            name = name if len(self._producers) < _MOST_PRODUCERS else _OTHER_PRODUCERS
            counts = self._producers.setdefault(name, _Counts())
        counts.events += 1
        return counts

    def note(self, verdict: Verdict, counts: _Counts) -> None:
        """What is wrong with an event that was counted."""
        if verdict.errors:
            counts.invalid += 1
        if verdict.warnings:
            counts.warned += 1
        for problem in verdict.errors:
            self._rule(problem, verdict).errors += 1
            self.too_large += problem.rule == "too_large"
        for problem in verdict.warnings:
            self._rule(problem, verdict).warnings += 1

    def _rule(self, problem: Finding, verdict: Verdict) -> _RuleCounts:
        rule = self._rules.get(problem.rule)
        if rule is None:
            rule = self._rules[problem.rule] = _RuleCounts(f"{verdict.place}  {problem.message}")
        return rule

    @property
    def total(self) -> _Counts:
        total = _Counts()
        for counts in self._producers.values():
            total.add(counts)
        return total

    def summary(self, paint: Paint) -> str:
        total = self.total
        if not total.events:
            return "no events\n"
        invalid = f"{total.invalid:,} invalid"
        parts = [f"{total.events - total.invalid:,} valid", paint(invalid, "red") if total.invalid else invalid]
        if total.warned:
            parts.append(f"{total.warned:,} with warnings")
        if self.unreadable:
            parts.append(paint(f"{_number(self.unreadable, 'input')} not fully read", "red"))
        lines = [f"{_number(total.events, 'event')}: {', '.join(parts)}", "", *self._producer_table(paint)]
        if self._rules:
            lines += ["", *self._rule_table(paint)]
        return "\n".join([*lines, ""])

    def _producer_table(self, paint: Paint) -> list[str]:
        ranked = sorted(self._producers.items(), key=lambda item: (-item[1].events, item[0]))
        shown, rest = ranked[:_MOST_SHOWN], ranked[_MOST_SHOWN:]
        if rest:
            others = _Counts()
            for _, counts in rest:
                others.add(counts)
            shown.append((f"({_number(len(rest), 'more producer')})", others))
        return _table(
            ("events", "valid", "invalid", "with warnings", "producer"),
            [((c.events, c.events - c.invalid, c.invalid, c.warned), _printable(name)) for name, c in shown],
            paint,
            alarming=2,
        )

    def _rule_table(self, paint: Paint) -> list[str]:
        ranked = sorted(self._rules.items(), key=lambda item: (-item[1].errors, -item[1].warnings, item[0]))
        width = max(len(rule) for rule, _ in ranked)
        return _table(
            ("errors", "warnings", f"{'rule':{width}}  first seen"),
            [((counts.errors, counts.warnings), f"{rule:{width}}  {counts.first}") for rule, counts in ranked],
            paint,
            alarming=0,
        )


def _table(heads: Sequence[str], rows: Sequence[tuple[Sequence[int], str]], paint: Paint, alarming: int) -> list[str]:
    """Numbers first and the long text last, where it may wrap without spoiling the columns."""
    widths = [max([len(head), *(len(f"{row[0][i]:,}") for row in rows)]) for i, head in enumerate(heads[:-1])]
    lines = [paint("  ".join([*(f"{h:>{w}}" for h, w in zip(heads, widths, strict=False)), heads[-1]]), "bright_black")]
    for numbers, text in rows:
        cells = [f"{number:>{width},}" for number, width in zip(numbers, widths, strict=True)]
        if numbers[alarming]:
            cells[alarming] = paint(cells[alarming], "red")
        lines.append("  ".join([*cells, text]))
    return lines


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _printable(text: str) -> str:
    """What a file says or is called must not move the cursor."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def in_lines(verdict: Verdict, paint: Paint) -> str:
    """The event's line, and its problems below; one error alone stands in the line itself."""
    errors, warnings = verdict.errors, verdict.warnings
    if not errors and not warnings:
        return f"{verdict.place} {paint('ok', 'green')}\n"
    if len(errors) == 1 and not warnings:
        return f"{verdict.place} {paint('invalid', 'red')}  {_sentence(errors[0], paint)}\n"
    number = [_number(len(some), noun) for some, noun in ((errors, "error"), (warnings, "warning")) if some]
    lines = [f"{verdict.place} {paint('invalid', 'red') if errors else paint('ok', 'green')}  {', '.join(number)}"]
    lines += [f"    {paint('error', 'red')}    {_sentence(problem, paint)}" for problem in errors]
    lines += [f"    {paint('warning', 'yellow')}  {_sentence(problem, paint)}" for problem in warnings]
    return "\n".join([*lines, ""])


def _sentence(problem: Finding, paint: Paint) -> str:
    return f"{problem.message} {paint(f'[{problem.rule}]', 'bright_black')}"


_FIRST_SHOWN_AFTER = 0.5
_SHOWN_EVERY = 0.1
_MOST_PENDING = 64 * 1024


class _Verbatim:
    """Text that passes rich untouched: to lay out every line anew would cost more than to judge the events."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self._text)


class Screen:
    """Standard output, and the progress bar that lives below it when both end on one terminal."""

    def __init__(self, files: Sequence[str]) -> None:
        self._out = sys.stdout.buffer
        self._encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        self._pending = bytearray()
        self.has_told = False
        console = Console(file=sys.stdout)
        self._has_colours = console.is_terminal and not console.no_color
        shares_terminal = sys.stdout.isatty()
        self._lines_through_bar = console if shares_terminal else None
        self._bar_console = console if shares_terminal else Console(stderr=True)
        self._may_have_bar = sys.stderr.isatty() and not self._bar_console.is_dumb_terminal
        self._bar: Progress | None = None
        self._total = _size_of_all(files) if self._may_have_bar else None
        self._done = 0
        self._began = self._next_shown = time.monotonic()

    def paint(self, text: str, colour: str) -> str:
        return click.style(text, fg=colour) if self._has_colours else text

    def tell(self, text: str) -> None:
        self.tell_bytes(text.encode(self._encoding, "replace"))

    def tell_bytes(self, text: bytes) -> None:
        self.has_told = True
        self._pending += text
        if len(self._pending) > _MOST_PENDING:
            self.flush()

    def complain(self, message: str) -> None:
        """On standard error, in order with what was told before."""
        self.flush()
        if self._bar is not None:
            self._bar.console.print(_Verbatim(f"{message}\n"), crop=False)
        else:
            click.echo(message, err=True)

    def flush(self) -> None:
        if not self._pending:
            return
        text = bytes(self._pending)
        self._pending.clear()
        if self._bar is not None and self._lines_through_bar is not None:
            self._bar.console.print(_Verbatim(text.decode(self._encoding, "replace")), crop=False)
        else:
            self._out.write(text)
            self._out.flush()

    def advance(self, count: int, events: int) -> None:
        """So many bytes more are done with."""
        self.flush()
        self._done += count
        if not self._may_have_bar:
            return
        now = time.monotonic()
        elapsed = now - self._began
        if elapsed < _FIRST_SHOWN_AFTER or now < self._next_shown:
            return
        self._next_shown = now + _SHOWN_EVERY
        is_new = self._bar is None
        self._bar = self._bar or _bar(self._bar_console, self._total)
        self._bar.update(self._bar.task_ids[0], completed=self._done, rate=f"{events / elapsed:,.0f} events/s")
        if is_new:
            self._bar.start()
        else:
            self._bar.refresh()

    def close_bar(self) -> None:
        self._may_have_bar = False
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _bar(console: Console, total: int | None) -> Progress:
    # Drawn by the loop and not by a thread: it stands still when its pipe does, and `| less` is left in peace.
    bar = Progress(
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task("", total=total, rate="")
    return bar


def _size_of_all(files: Sequence[str]) -> int | None:
    """None if any of them ends only when it ends."""
    total = 0
    for name in files:
        try:
            status = os.fstat(sys.stdin.fileno()) if name == "-" else os.stat(name)  # noqa: PTH116
        except (OSError, ValueError, AttributeError):
            continue
        if not stat.S_ISREG(status.st_mode):
            return None
        total += status.st_size
    return total


# --- the command -----------------------------------------------------------------------------------------------------


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
        source = STANDARD_INPUT if name == "-" else _printable(click.format_filename(name))
        tally, before, line = self.tally, self.tally.events, 0
        try:
            with opened(name, lambda count: self._screen.advance(count, tally.events)) as text:
                for line, index, found in events_in(text, self._max_bytes):
                    if isinstance(found, Unjudged):
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

    def _tell(self, source: str, line: int, index: int | None, judged: Event | Rejection | Unjudged) -> None:
        errors: Sequence[Finding] = ()
        warnings: Sequence[Finding] = ()
        kind: Kind | None = None
        producer = None
        if isinstance(judged, Unjudged):
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
        _give_up_standard_output()
        sys.exit(NOBODY_READS)
    except OSError as error:  # of writing: what goes wrong in reading is told and counted where it happens
        _give_up_standard_output()
        click.echo(f"the results cannot be written: {_in_words(error)}", err=True)
        sys.exit(2)
    finally:
        screen.close_bar()
    sys.exit(INTERRUPTED if interrupted else judgement.exit_code)


def _give_up_standard_output() -> None:
    """The interpreter flushes it once more at its end, and would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
