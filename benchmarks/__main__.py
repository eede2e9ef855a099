"""All benchmarks one after the other, then one table of what they found, which is kept in `benchmarks/results`.

python -m benchmarks                        the short form (make bench)
python -m benchmarks --full                 the long form (make bench-full)
python -m benchmarks --only ingest pages    some of them; nothing is kept
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from benchmarks import readme
from benchmarks.figures import Figure, at_most
from benchmarks.machine import this_machine
from benchmarks.report import Conditions, headlines, page
from benchmarks.suite import ROOT, SUITE, Benchmark, run

RESULTS: Final = ROOT / "benchmarks" / "results"
SHORT_MINUTES: Final = 15


def main(arguments: Sequence[str], suite: Sequence[Benchmark] = SUITE, results: Path = RESULTS) -> int:
    given = _parse(arguments, [benchmark.name for benchmark in suite])
    began, clock, load = datetime.now(UTC), time.monotonic(), os.getloadavg()[0]
    commit = _commit()
    outcomes = []
    for benchmark in suite:
        if given.only and benchmark.name not in given.only:
            continue
        _show(f"\n== {benchmark.name}\n")
        outcomes.append(run(benchmark, benchmark.full if given.full else benchmark.short, _show))
        _show(f"-- {benchmark.name}: {outcomes[-1].seconds:.0f} s, exit status {outcomes[-1].status}\n")
    took = timedelta(seconds=time.monotonic() - clock)
    total = [] if given.only else [_duration(took, is_full=given.full)]
    _show(f"\n{headlines(outcomes, total)}\n")
    if not given.only:
        machine = this_machine()
        file = results / f"{machine.slug}{'-full' if given.full else ''}.md"
        command = "make bench-full" if given.full else "make bench"
        results.mkdir(parents=True, exist_ok=True)
        file.write_text(page(outcomes, total, Conditions(machine, command, began, took, commit, load)), "utf-8")
        _show(f"\nkept in {file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}\n")
        if file == readme.PAGE:
            _show(f"{readme.refresh()}\n")
    return int(any(outcome.status for outcome in outcomes))


def _parse(arguments: Sequence[str], names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="at full size, which takes hours")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    return parser.parse_args(arguments)


def _show(text: str) -> None:
    print(text, end="", flush=True)


def _duration(took: timedelta, *, is_full: bool) -> Figure:
    return Figure("all of it", took.total_seconds() / 60, "min", None if is_full else at_most(SHORT_MINUTES))


def _commit() -> str:
    """What is measured, as far as git knows."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        # Results that were just written are not what is measured.
        has_changes = bool(_git("status", "--porcelain", "--", ".", ":!benchmarks/results"))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}, with changes" if has_changes else commit


def _git(*arguments: str) -> str:
    asked = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603, S607
    return asked.stdout.strip()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("\nIt was interrupted: nothing is kept.")
