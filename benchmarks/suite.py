"""All benchmarks, in their short and in their full form, and how one of them is run."""

import codecs
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.figures import FILE, Figure, figures_in

ROOT: Final = Path(__file__).parents[1]
_LOOK_SECONDS: Final = 0.2


class Benchmark(msgspec.Struct, frozen=True):
    """A module that is a program, and its arguments in the two forms."""

    module: str
    short: tuple[str, ...] = ()
    full: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.module.rpartition(".")[2]


# All short forms together are to take less than a quarter of an hour on two cores that do nothing else.
SUITE: Final = (
    Benchmark("benchmarks.validation", full=("--rounds", "9")),
    Benchmark("benchmarks.run_cycle", full=("--rounds", "9")),
    Benchmark("benchmarks.fold", short=("--rounds", "3"), full=("--rounds", "9")),
    Benchmark("benchmarks.validate_memory", short=("--megabytes", "100"), full=("--megabytes", "1024")),
    Benchmark("benchmarks.trigger", short=("--rounds", "3", "--rows", "20000"), full=("--rounds", "9")),
    Benchmark("benchmarks.ingest", short=("--quick", "--connections", "1", "32")),
    Benchmark("benchmarks.merge", short=("--events", "30000", "--batch", "30000")),
    Benchmark("benchmarks.lineage"),
    # What a million runs cost is seen by the incidents; filling them in takes most of the time.
    Benchmark("benchmarks.catalogue", short=("--jobs", "1000", "8000")),
    Benchmark("benchmarks.incidents", short=("--rounds", "50"), full=("--full",)),
    # Seeds beyond those that the ranking was made with.
    Benchmark(
        "benchmarks.truth",
        short=("--histories", "5", "--first", "501"),
        full=("--histories", "60", "--first", "501"),
    ),
    Benchmark("benchmarks.pipeline", full=("--events", "1000000", "2000000", "4000000")),
    Benchmark("benchmarks.freshness", short=("--seconds", "20"), full=("--seconds", "60")),
    Benchmark("benchmarks.start", full=("--rounds", "5", "--clone")),
    Benchmark("benchmarks.proxy", short=("--seconds", "3"), full=("--full",)),
    Benchmark("benchmarks.pages", short=("--visits", "10"), full=("--visits", "50")),
)


class Outcome(msgspec.Struct, frozen=True):
    benchmark: str
    command: str
    status: int
    seconds: float
    said: str
    figures: tuple[Figure, ...]


def run(benchmark: Benchmark, arguments: tuple[str, ...], show: Callable[[str], object]) -> Outcome:
    """In a process of its own. What it says is shown as it comes, errors included."""
    # A file, not a pipe: something that a failed benchmark leaves behind cannot keep us waiting for its end.
    with tempfile.TemporaryDirectory(prefix="correlator-bench-") as directory:
        figures, output = Path(directory) / "figures.jsonl", Path(directory) / "output"
        began = time.monotonic()
        with output.open("wb") as file, output.open("rb") as told:
            process = subprocess.Popen(  # noqa: S603 (our own modules)
                [sys.executable, "-u", "-m", benchmark.module, *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, FILE: str(figures)},
            )
            # A letter may come in two halves.
            decode = codecs.getincrementaldecoder("utf-8")("replace").decode
            said = []
            try:
                has_ended = False
                while not has_ended:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_LOOK_SECONDS)
                    # Asked before reading, so that the last words are read too.
                    has_ended = process.returncode is not None
                    said.append(decode(told.read(), has_ended))
                    show(said[-1])
            finally:
                # Ctrl-C reaches it as well, and it has servers to stop.
                process.wait()
        return Outcome(
            benchmark=benchmark.name,
            command=" ".join(("python", "-m", benchmark.module, *arguments)),
            status=process.returncode,
            seconds=time.monotonic() - began,
            said="".join(said),
            figures=tuple(figures_in(figures)),
        )
