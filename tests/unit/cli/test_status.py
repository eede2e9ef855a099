"""The block that `correlator up` shows is the one that README and tutorial show."""

import io
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from correlator.cli.figures import Figures
from correlator.cli.parts import Note, Part
from correlator.cli.status import Lines, block, figure_lines

ROOT = Path(__file__).parents[3]
URL = "http://127.0.0.1:8080"
PARTS = [
    Part("database", "up", "PostgreSQL 18.4", 0),
    Part("server", "up", URL, 0),
    Part("pipeline", "up", "reads log", 0),
    Part("alerts", "up", "nobody is told yet: correlator alerts routes add", 0),
]
QUIET = Figures(0, 0.0, 0, 0, 0.0, 0, 0)


def drawn(lines: Lines, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(block(lines))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def shown_in(page: str) -> str:
    (shown,) = re.findall(
        r"^```text\n(Correlator is up: .+?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    )
    return str(shown).rstrip("\n")


def foot(place: str) -> tuple[str, ...]:
    return f"log   {place}/logs/correlator.log", f"data  {place}", "Ctrl-C stops it."


def test_the_tutorial_shows_what_one_sees() -> None:
    lines = Lines(
        f"Correlator is up: {URL}", figure_lines(QUIET, URL), PARTS, [], [], foot("~/.local/share/correlator")
    )
    assert drawn(lines) == shown_in("docs/tutorial.md")


def test_the_readme_shows_what_one_sees_of_the_demo() -> None:
    shown = shown_in("README.md")
    told = re.findall(r"^  ((?:A shop|21 days|Then|The morning|4 tests|  http|  correlator).*)$", shown, re.MULTILINE)
    figures = Figures(8864, 0.0, 0, 0, 0.0, 4, 2)
    lines = Lines(
        f"Correlator is up: {URL}", figure_lines(figures, URL), PARTS, [], told, foot("~/.local/share/correlator-demo")
    )
    assert drawn(lines) == shown


@pytest.mark.parametrize(
    ("figures", "line", "words"),
    [
        (QUIET._replace(events=12, events_a_second=0.4), "events", "12 in"),
        (QUIET._replace(events=1234567, events_a_second=1234.5), "events", "1,234,567 in, 1,234/s"),
        (QUIET._replace(events=3, rejected=2), "events", "3 in; 2 rejected are kept: correlator rejects list"),
        (QUIET._replace(lag_events=1, lag_seconds=0.2), "facts", "up to date"),
        (QUIET._replace(lag_events=1234, lag_seconds=75.0), "facts", "1,234 events, 75 s behind"),
        (QUIET._replace(lag_events=9, lag_seconds=7300.0), "facts", "9 events, 2 h behind"),
        (QUIET._replace(incidents=1, roots=1), "incidents", f"1 open: {URL}/incidents"),
    ],
)
def test_figures_are_told_in_words(figures: Figures, line: str, words: str) -> None:
    assert dict(figure_lines(figures, URL))[line] == words


def test_before_anything_is_known_nothing_is_claimed() -> None:
    assert {words for _, words in figure_lines(None, None)} == {"…"}


def test_what_was_started_again_and_why_stands_below_the_parts() -> None:
    at = datetime(2026, 11, 16, 9, 30, 1, tzinfo=UTC)
    parts = [*PARTS[:2], Part("pipeline", "down", "next try in 2 s", 2), PARTS[3]]
    text = drawn(
        Lines("Correlator is up", figure_lines(QUIET, URL), parts, [Note(at, "the pipeline has ended")], [], ())
    )

    assert "  pipeline  down  next try in 2 s; started again twice" in text
    assert re.search(r"\n  \d\d:\d\d:01  the pipeline has ended$", text)


def test_on_a_narrow_terminal_lines_are_cut_and_none_is_wrapped() -> None:
    lines = Lines("Correlator is up", figure_lines(QUIET, URL), PARTS, [], ["word " * 50], foot("/x" * 100))
    assert len(drawn(lines, width=50).splitlines()) == len(drawn(lines, width=500).splitlines())
    assert max(map(len, drawn(lines, width=50).splitlines())) <= 50
