"""A terminal, or what stands in for one: lines on standard output with a progress bar that stays out of their way."""

import os
import stat
import sys
import time
from collections.abc import Sequence

import click
from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.segment import Segment

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


def give_up_standard_output() -> None:
    """The interpreter flushes it once more at its end, and would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
