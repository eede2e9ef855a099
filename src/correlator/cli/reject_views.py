"""How rejected events are shown: a table, one in full, a line of JSON, the sentences about a redrive."""

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from rich.cells import cell_len, set_cell_size

from correlator.cli.report import printable
from correlator.store.redrive import Outcome
from correlator.store.rejects import RejectedEvent, RejectTotals, WholeRejectedEvent

LONGEST_ON_TERMINAL: Final = 20_000
"""Characters of an event that `show` puts on a terminal."""
MOST_REFUSED_TOLD: Final = 20
MOST_REFUSED_IN_JSON: Final = 1_000

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_GAP: Final = "  "
_NUMBERS: Final = (0, 3)
_FIRST_TO_CUT: Final = 5
"""Where room is short, the longest of the columns from this one on gives way."""
_HEX_A_LINE: Final = 16


# --- many


def table(events: Sequence[RejectedEvent], width: int | None) -> Iterator[str]:
    """A line for each. Where the width is limited, cells are cut, and the sentence has a line of its own below."""
    if not events:
        return
    heads = ["ID", "WHEN (UTC)", "LAYER", "SIZE", "REDRIVEN", "RULE", "PATH", "PRODUCER"]
    rows = [heads, *map(_cells, events)]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    while width and sum(widths) + len(_GAP) * len(widths[:-1]) > width and max(widths[_FIRST_TO_CUT:]) > 1:
        widest = max(range(_FIRST_TO_CUT, len(widths)), key=widths.__getitem__)
        widths[widest] -= 1
    indent = " " * (widths[0] + len(_GAP))
    yield _GAP.join([*_fitted(heads, widths), "" if width else "SENTENCE"])[:width].rstrip()
    for event, row in zip(events, rows[1:], strict=True):
        line = _GAP.join(_fitted(row, widths))
        sentence = printable(event.sentence)
        if width:
            yield line[:width].rstrip()
            yield _cut(indent + sentence, width)
        else:
            yield f"{line}{_GAP}{sentence}"


def _cells(event: RejectedEvent) -> list[str]:
    return [
        str(event.id),
        f"{event.rejected_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        str(event.layer),
        size(event.bytes),
        "no" if event.redriven_at is None else "yes",
        printable(event.rule),
        printable(event.path),
        printable(event.producer or ""),
    ]


def _fitted(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        cell.rjust(width) if column in _NUMBERS else set_cell_size(_cut(cell, width), width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"


def closing(shown: Sequence[RejectedEvent], cursor: int | None, totals: RejectTotals) -> Iterator[str]:
    if not shown:
        yield "There are no rejected events." if not totals.events else "No rejected event is like that."
    else:
        yield ""
    kept = f"{number(totals.events, 'rejected event')} kept in all, {size(totals.bytes)}"
    if shown or totals.events:
        yield f"{len(shown):,} shown; {kept}."
    if cursor is not None:
        yield f"There are more: add --before {cursor} for the next, or a larger --limit."
    if totals.capped_events:
        yield (
            f"Lost: the oldest {totals.capped_events:,} ({size(totals.capped_bytes)}) were removed before their time, "
            f"last at {moment(totals.last_capped_at)}, because all took more than rejects_max_bytes of the server. "
            "Raise it to keep more."
        )


# --- one


def in_full(event: WholeRejectedEvent, most: int | None) -> Iterator[str]:
    """For people; of the event at most so many characters."""
    yield f"Rejected event {event.id}"
    facts = {
        "rejected": moment(event.rejected_at),
        "layer": "1 (one event)" if event.layer == 1 else f"{event.layer} (the run cycle)",
        "source": event.source,
        "sent by": "no key" if event.sent_by is None else f"the key {event.sent_by!r}",
        "correlation id": event.correlation_id or "none",
        "kind": event.kind or "cannot be told",
        "producer": event.producer or "cannot be told",
        "size": f"{event.bytes:,} bytes",
        "redriven": _redriven(event),
    }
    for name, value in facts.items():
        yield f"  {name + ':':16}{printable(value)}"
    yield ""
    yield "Reason:" if len(event.problems) == 1 else "Reasons:"
    for problem in event.problems:
        yield f"  {printable(problem.message)} [{printable(problem.rule)}, at {printable(problem.path)}]"
    yield ""
    what, text = _readable(event.raw)
    yield f"The event, {what}:"
    yield text if most is None or len(text) <= most else text[:most]
    if most is not None and len(text) > most:
        yield f"… and {len(text) - most:,} characters more: correlator rejects show {event.id} | less"


def is_harmless(raw: bytes) -> bool:
    """Whether a terminal shows it and does nothing else."""
    try:
        return all(character.isprintable() or character in "\n\t" for character in raw.decode())
    except UnicodeDecodeError:
        return False


def _redriven(event: RejectedEvent) -> str:
    if event.redriven_at is None:
        return "no"
    where = "the log had it already" if event.redriven_as is None else f"position {event.redriven_as:,} of the log"
    return f"{moment(event.redriven_at)}, {where}"


def _readable(raw: bytes) -> tuple[str, str]:
    """What it is, and how a terminal can show it: nothing of it is obeyed, everything of it can be seen."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return "which is not UTF-8, in hexadecimal", "\n".join(_hexadecimal(raw))
    formatted = _formatted(raw, indent=2)
    what = "which is not JSON, as text" if formatted is None else "laid out anew"
    return what, "".join(
        # As JSON writes them.
        character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]
        for character in (text if formatted is None else formatted.decode())
    )


def _hexadecimal(raw: bytes) -> Iterator[str]:
    for at in range(0, len(raw), _HEX_A_LINE):
        part = raw[at : at + _HEX_A_LINE]
        letters = "".join(chr(byte) if chr(byte).isascii() and chr(byte).isprintable() else "." for byte in part)
        yield f"{at:08x}  {part.hex(' '):{3 * _HEX_A_LINE}} {letters}"


def _formatted(raw: bytes, indent: int) -> bytes | None:
    """Other white space, the same values to the letter; None if it is no JSON."""
    try:
        raw.decode()
        return msgspec.json.format(raw.removeprefix(_BYTE_ORDER_MARK), indent=indent)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# --- for programs


def as_line(event: WholeRejectedEvent) -> bytes:
    """All that is known, as a line of JSON."""
    members: dict[str, Any] = msgspec.structs.asdict(event)
    raw = members.pop("raw")
    try:
        members["raw"] = raw.decode()
    except UnicodeDecodeError:
        members["raw_base64"] = b64encode(raw).decode()
    return msgspec.json.encode(members) + b"\n"


def events_in(raw: bytes) -> list[bytes] | None:
    """The event as one line, or of an array each; None if something is no JSON object."""
    text = raw.removeprefix(_BYTE_ORDER_MARK).strip(b" \t\r\n")
    if b"\n" in text or b"\r" in text:
        text = _formatted(text, indent=-1) or b""
    elif _formatted(text, indent=-1) is None:
        return None
    parts = [bytes(part) for part in msgspec.json.decode(text, type=list[msgspec.Raw])] if text[:1] == b"[" else [text]
    return [part + b"\n" for part in parts] if parts and all(part[:1] == b"{" for part in parts) else None


# --- redriving


class Refused(msgspec.Struct, frozen=True):
    id: int
    problems: Sequence[Any]


class RedriveTally:
    """What a redrive came to. It stays small, whatever is counted."""

    def __init__(self, *, dry_run: bool) -> None:
        self._dry_run = dry_run
        self.judged = self.accepted = self.stored = self.duplicates = self.still_refused = 0
        self.layer_2 = self.arrays = self.split_off = self.already_redriven = 0
        self.not_found: list[int] = []
        self._refused: list[Refused] = []

    def add(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self.judged += 1
            self.stored += outcome.stored
            self.duplicates += outcome.duplicates
            if outcome.is_accepted:
                self.accepted += 1
                self.layer_2 += outcome.layer == 2  # noqa: PLR2004 (the run cycle)
            else:
                self.still_refused += 1
                if len(self._refused) < MOST_REFUSED_IN_JSON:
                    self._refused.append(Refused(outcome.id, outcome.problems))
            if outcome.split_off is not None:
                self.arrays += 1
                self.split_off += outcome.split_off

    def summary(self) -> dict[str, object]:
        """What `--json` prints."""
        return {
            "dry_run": self._dry_run,
            "judged": self.judged,
            "accepted": self.accepted,
            "stored": self.stored,
            "duplicates": self.duplicates,
            "still_refused": self.still_refused,
            "layer_2_accepted": self.layer_2,
            "arrays": self.arrays,
            "split_off": self.split_off,
            "already_redriven": self.already_redriven,
            "not_found": self.not_found,
            "refused": self._refused,
        }

    def sentences(self) -> Iterator[str]:
        if not self.judged:
            yield "There is nothing to redrive."
        else:
            accepted = f"{self.accepted:,} accepted"
            if self._dry_run:
                accepted = f"{self.accepted:,} would be accepted"
            elif self.accepted:
                accepted += f" ({self.stored:,} stored, {number(self.duplicates, 'duplicate')})"
            yield f"{number(self.judged, 'rejected event')} judged: {accepted}, {self.still_refused:,} still refused."
        yield from self._told_refused()
        if self.layer_2:
            yield (
                f"{self.layer_2:,} of the accepted had been refused with their whole request, for a broken run cycle "
                "(layer 2). Now each was judged by itself, as single events are. Where they contradict each other, the "
                "run shows it."
            )
        if self.arrays:
            verb = "would be" if self._dry_run else "are"
            was = "was an array" if self.arrays == 1 else "were arrays"
            yield (
                f"{self.arrays:,} of the accepted {was}, taken apart: "
                f"{self.split_off:,} of the elements {verb} rejected events of their own."
            )
        if self.already_redriven:
            yield f"{self.already_redriven:,} had been redriven before and {self._left_alone}."

    def _told_refused(self) -> Iterator[str]:
        told = self._refused[:MOST_REFUSED_TOLD]
        for refused in told:
            first, *others = refused.problems
            more = f" (and {len(others):,} more)" if others else ""
            yield f"  {refused.id}  {printable(first.message)} [{first.rule}]{more}"
        if self.still_refused > len(told):
            yield f"  … and {self.still_refused - len(told):,} more; --json tells of {MOST_REFUSED_IN_JSON:,}."

    @property
    def _left_alone(self) -> str:
        return "was left alone" if self.already_redriven == 1 else "were left alone"


# --- words


def number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(count: int) -> str:
    """With three digits or so; 12.3 kB."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5 or unit == "GB":  # noqa: PLR2004 (what rounds to 1000 is 1 of the next)
            break
        amount /= 1000
    return f"{amount:,.0f} {unit}" if unit == "B" or amount >= 99.95 else f"{amount:.1f} {unit}"  # noqa: PLR2004


def moment(at: datetime | None) -> str:
    return "never" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
