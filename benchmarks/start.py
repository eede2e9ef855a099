"""How long it takes until Correlator is ready: the server answers, and the pipeline works.

    python -m benchmarks.start            `correlator up` with the data that an earlier one has left
    python -m benchmarks.start --clone    also `make up` in a new clone of what is committed here

The clone has no environment, no packages and no pages; packages come from the caches of pip and npm as far as they are
there. If they were cold, run it again.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.figures import at_most, figure
from benchmarks.freshness import Watch, send
from benchmarks.running import PATIENCE, Running, data_directory, running, up_command, wait_until
from benchmarks.suite import ROOT
from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres

SECOND_START_SECONDS = 15
CLONE_SECONDS = 180
_CLONE_PATIENCE = 1800.0


def ready(up: Running, began: float, patience: float = PATIENCE) -> tuple[int, float]:
    """The port, and how long it has taken."""
    port = up.wait_until_ready(patience)
    return port, time.monotonic() - began


def starts(rounds: int) -> None:
    # `make setup` does that in the background, and may not be through.
    make = [sys.executable, "-m", "correlator.pipeline.class_archive"]
    archive = subprocess.run(make, check=False, capture_output=True)  # noqa: S603 (our own module)
    print(f"with{'' if archive.returncode == 0 else 'out'} an archive of Spark's classes")
    with data_directory() as place:
        data = place / "data"
        began = time.monotonic()
        with running(up_command(data), place / "first.log") as up:
            port, first = ready(up, began)
            print(f"first start, with a new database: {first:.1f} s")
            leave_facts(port, data)
        seconds = []
        for number in range(rounds):
            began = time.monotonic()
            with running(up_command(data), place / f"again-{number}.log") as up:
                seconds.append(ready(up, began)[1])
            print(f"another start, with the same data: {seconds[-1]:.1f} s")
    figure("first start of correlator up, to ready", first, "s")
    figure("another with the same data, median", statistics.median(seconds), "s", at_most(SECOND_START_SECONDS))


def leave_facts(port: int, data: Path) -> None:
    """So that the next start has something to go on with."""
    with EmbeddedPostgres.open(data / "postgres") as server:
        watch = Watch(Database(server.url))
        sent = send(port, 200, 1, 0)
        wait_until(lambda: watch.position >= len(sent))
        watch.stop()


def clone() -> None:
    with data_directory() as place:
        began = time.monotonic()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(place / "clone")], check=True)  # noqa: S603, S607
        with running(
            ["make", "--directory", str(place / "clone"), "up"],
            place / "make.log",
            CORRELATOR_DATA_DIR=str(place / "data"),
            CORRELATOR_PORT="0",
            # The archive of Spark's classes is that of the clone; the packages are those of everyone.
            PIP_CACHE_DIR=pip_cache(),
            XDG_CACHE_HOME=str(place / "cache"),
        ) as up:
            took = ready(up, began, _CLONE_PATIENCE)[1]
    print(f"from nothing (git clone, make up) to ready: {took:.0f} s")
    figure("from nothing (git clone, make up) to ready", took, "s", at_most(CLONE_SECONDS))


def pip_cache() -> str:
    asked = subprocess.run([sys.executable, "-m", "pip", "cache", "dir"], check=True, capture_output=True, text=True)
    return asked.stdout.strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often it is started again")
    parser.add_argument("--clone", action="store_true", help="also from a clone, which takes minutes")
    options = parser.parse_args()
    starts(options.rounds)
    if options.clone:
        clone()
