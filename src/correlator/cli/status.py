"""How a running Correlator is: one block of a terminal, drawn again in its place when something has changed."""

import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Self, TextIO

from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from correlator.cli.figures import Figures
from correlator.cli.parts import Note, Part, Parts, State

_EVERY: Final = 0.5
_BEHIND_SECONDS: Final = 2.0
"""An event that has waited less is on its way, and not worth a number that never stands still."""
_MOST_TOLD: Final = 8
_COLOURS: Final[dict[State, str]] = {
    "off": "dim",
    "starting": "yellow",
    "up": "green",
    "down": "red",
    "stopping": "yellow",
    "stopped": "dim",
}


class Status:
    """Used as a context: a thread that draws. What it is told may change at any time."""

    def __init__(self, terminal: TextIO, parts: Parts, log: Path, data: str) -> None:
        self.url: str | None = None
        """Where the server listens, once it does."""
        self.figures: Callable[[], Figures | None] = lambda: None
        self._told: deque[str] = deque(maxlen=_MOST_TOLD)
        self.is_stopping = False
        self._terminal = terminal
        self._parts = parts
        self._log = log
        self._data = data
        self._console = Console(file=terminal, force_terminal=True, highlight=False)
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False, transient=False
        )
        self._last = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="correlator-status", daemon=True)

    def __enter__(self) -> Self:
        self._fit()
        self._live.start()
        self._draw()
        self._thread.start()
        return self

    def tell(self, line: str) -> None:
        """What else there is to say, such as how far a demo is."""
        self._told.append(line)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        try:
            self._draw()
            self._live.stop()
        except OSError:  # the terminal is gone
            return

    def _run(self) -> None:
        try:
            while not self._stop.wait(_EVERY):
                self._draw()
        except OSError:  # the terminal was closed; the rest of us stops, or goes on, without it
            return

    def _fit(self) -> None:
        # Not what rich finds out itself: standard output and standard error are the log's by now.
        columns, lines = os.get_terminal_size(self._terminal.fileno())
        self._console.size = ConsoleDimensions(columns or 80, lines or 24)

    def _draw(self) -> None:
        lines = self._lines()
        drawn = f"{lines!r} {os.get_terminal_size(self._terminal.fileno())}"
        if drawn == self._last:
            return
        self._last = drawn
        self._fit()
        self._live.update(block(lines), refresh=True)

    def _lines(self) -> "Lines":
        return Lines(
            self._head(),
            figure_lines(self.figures(), self.url),
            self._parts.all(),
            self._parts.notes(),
            list(self._told),
            (f"log   {self._log}", f"data  {self._data}", "" if self.is_stopping else "Ctrl-C stops it."),
        )

    def _head(self) -> str:
        if self.is_stopping:
            return "Correlator is stopping: what it is at is finished first"
        return "Correlator is starting" if self.url is None else f"Correlator is up: {self.url}"


class Lines(NamedTuple):
    """What is drawn, before it is laid out: equal lines need not be drawn again."""

    head: str
    figures: list[tuple[str, str]]
    parts: list[Part]
    notes: list[Note]
    told: list[str]
    foot: tuple[str, ...]


def figure_lines(figures: Figures | None, url: str | None) -> list[tuple[str, str]]:
    """What each line is about, and what it says."""
    if figures is None:
        return [("events", "…"), ("facts", "…"), ("incidents", "…")]
    rate = f", {figures.events_a_second:,.0f}/s" if figures.events_a_second >= 1 else ""
    rejected = f"; {figures.rejected:,} rejected are kept: correlator rejects list" if figures.rejected else ""
    facts = "up to date"
    if figures.lag_events and figures.lag_seconds >= _BEHIND_SECONDS:
        facts = f"{figures.lag_events:,} events, {_seconds(figures.lag_seconds)} behind"
    incidents = "none open"
    if figures.incidents:
        of = "" if figures.roots == figures.incidents else f", {figures.roots:,} not consequences of others"
        where = "" if url is None else f": {url}/incidents"
        incidents = f"{figures.incidents:,} open{of}{where}"
    return [("events", f"{figures.events:,} in{rate}{rejected}"), ("facts", facts), ("incidents", incidents)]


def _seconds(seconds: float) -> str:
    if seconds < 120:  # noqa: PLR2004 (two minutes)
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"  # noqa: PLR2004 (two hours)


def block(lines: Lines) -> Group:
    head, figures, parts, notes, told, foot = lines
    grid = Table.grid(padding=(0, 2, 0, 0), expand=False)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column()
    for part in parts:
        again = "" if not part.restarts else f"started again {_times(part.restarts)}"
        words = "; ".join(filter(None, (part.words, again)))
        grid.add_row(f"  {part.name}", Text(part.state, style=_COLOURS[part.state]), _line(words, "dim"))
    shown = Table.grid(padding=(0, 2, 0, 0), expand=False)
    shown.add_column(no_wrap=True)
    shown.add_column()
    for name, words in figures:
        shown.add_row(f"  {name}", _line(words))
    noted = [_line(f"  {note.at.astimezone():%H:%M:%S}  {note.sentence}", "yellow") for note in notes]
    more = [_line(f"  {line}") for line in told]
    feet = [_line(f"  {line}", "dim") for line in foot if line]
    groups: list[list[Table | Text]] = [[_line(head, "bold")], [shown], [grid], list(noted), list(more), list(feet)]
    laid: list[Table | Text] = []
    for group in filter(None, groups):
        laid += [*([Text("")] if laid else []), *group]
    return Group(*laid)


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _line(words: str, style: str = "") -> Text:
    return Text(words, style=style, no_wrap=True, overflow="ellipsis")
