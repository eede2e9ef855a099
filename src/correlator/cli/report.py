"""What is told of judged events: a line or an object for each, and a summary of all."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from correlator.rulebook.events import Kind
from correlator.rulebook.problems import Problem


class Verdict(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is told of one event; with `--json`, to the letter."""

    source: str
    line: int
    index: int | msgspec.UnsetType
    kind: Kind | None
    valid: bool
    errors: Sequence[Problem]
    warnings: Sequence[Problem]

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

    def _rule(self, problem: Problem, verdict: Verdict) -> _RuleCounts:
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
            return "nothing could be read\n" if self.unreadable else "no events\n"
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
            [((c.events, c.events - c.invalid, c.invalid, c.warned), printable(name)) for name, c in shown],
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


def printable(text: str) -> str:
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


def _sentence(problem: Problem, paint: Paint) -> str:
    return f"{problem.message} {paint(f'[{problem.rule}]', 'bright_black')}"
