"""What all benchmarks found: one table of their headline figures, and the page that is kept."""

import re
import socket
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

import msgspec

from benchmarks.figures import Figure
from benchmarks.machine import Machine
from benchmarks.suite import Outcome

_HEAD: Final = ("benchmark", "figure", "value", "aim", "")
_LONGEST_REASON: Final = 100
# Of an absolute path. What follows a word or another slash is a fraction or an address.
_DIRECTORIES: Final = re.compile(r"(?:(?<=file:)/+|(?<![\w/.~])/)(?:[\w.@+~-]+/)+")


class Conditions(msgspec.Struct, frozen=True):
    """Under which all of it was measured."""

    machine: Machine
    command: str
    began: datetime
    took: timedelta
    commit: str
    load: float
    """How many processes wanted a core in the minute before it began."""


def headlines(outcomes: Iterable[Outcome], total: Sequence[Figure] = ()) -> str:
    """Markdown that can be read in a terminal too."""
    rows = list(chain(*map(_rows, outcomes))) + [_row("all", figure) for figure in total]
    cells = [_HEAD, *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _rows(outcome: Outcome) -> list[tuple[str, ...]]:
    rows = [_row(outcome.benchmark, figure) for figure in outcome.figures]
    if outcome.status != 0:
        rows.append((outcome.benchmark, _reason(outcome), "", "", "failed"))
    elif not rows:
        rows.append((outcome.benchmark, "no figure was told", "", "", ""))
    return rows


def _row(benchmark: str, figure: Figure) -> tuple[str, ...]:
    aim = "" if figure.aim is None else f"{figure.aim} {figure.unit}"
    verdict = "" if figure.aim is None else "held" if figure.aim.is_held_by(figure.value) else "missed"
    return (benchmark, figure.name, f"{rounded(figure.value)} {figure.unit}", aim, verdict)


def rounded(value: float) -> str:
    """Three digits say all that such a measurement knows."""
    size = abs(value)
    return f"{value:,.{0 if size >= 100 else 1 if size >= 10 else 2}f}"


def _reason(outcome: Outcome) -> str:
    last = next(filter(None, reversed([line.strip() for line in outcome.said.splitlines()])), "it said nothing")
    short = last if len(last) <= _LONGEST_REASON else f"{last[:_LONGEST_REASON]}…"
    return f"exit status {outcome.status}: {without_places(short)}"


def page(outcomes: Sequence[Outcome], total: Sequence[Figure], conditions: Conditions) -> str:
    """For `benchmarks/results`."""
    machine = conditions.machine
    described = {
        "CPU": f"{machine.cpu}, {machine.cores_told}",
        "memory": f"{machine.memory_gb:.0f} GB",
        "Python": machine.python,
        "Java": machine.java,
        "PostgreSQL": machine.postgres,
        "date": f"{conditions.began:%Y-%m-%d %H:%M} UTC",
        "commit": conditions.commit,
        "command": f"`{conditions.command}`, {conditions.took.total_seconds() / 60:.1f} minutes",
        "load before it began": f"{conditions.load:.2f}",
    }
    parts = [
        f"# Figures of {machine.cpu}, {machine.cores_told}",
        "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in described.items())]),
        "How to read them: [benchmarks](../../docs/benchmarks.md). Below the table is all that each benchmark said.",
        headlines(outcomes, total),
    ]
    for outcome in outcomes:
        parts += [
            f"## {outcome.benchmark}",
            f"`{outcome.command}`, {outcome.seconds:.0f} s",
            f"````text\n{without_places(outcome.said).strip()}\n````",
        ]
    return "\n\n".join(parts) + "\n"


def without_places(text: str) -> str:
    """Without the directories and the name of this machine: errors tell them, and no reader needs them."""
    named = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "this-machine", text)
    return _DIRECTORIES.sub("…/", named)
