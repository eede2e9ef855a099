"""How soon an event that was answered 200 is a fact, and what a pipeline costs that has nothing to do.

`correlator up` on embedded defaults; one sender at a steady rate; an event is a fact when the transaction that merged
it has committed. Then silence, and the CPU that server and pipeline take in it.
"""

import argparse
import http.client
import os
import statistics
import threading
import time
import uuid
from pathlib import Path

from benchmarks.figures import at_most, figure
from benchmarks.merge import event
from benchmarks.pipeline import below
from benchmarks.running import data_directory, running, up_command, wait_until
from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> dict[int, float]:
    """Of a process and of all below it, each by itself: some may end while others are watched."""
    found: dict[int, float] = {}
    for process in below(root):
        try:
            fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        found[process] = (int(fields[11]) + int(fields[12])) / _TICKS
    return found


class Watch:
    """When each position of the log was merged."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stop = threading.Event()
        self.seen: list[tuple[int, float]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with self._database.connect("benchmark", autocommit=True) as connection:
            while not self._stop.wait(0.005):
                row = connection.execute("SELECT position FROM kept.log_readers WHERE reader = 'facts'").fetchone()
                now = time.perf_counter()
                if row and (not self.seen or self.seen[-1][0] < row[0]):
                    self.seen.append((row[0], now))

    @property
    def position(self) -> int:
        return self.seen[-1][0] if self.seen else 0


def send(port: int, rate: float, seconds: float, first: int) -> list[float]:
    """When each event was answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    answered = []
    began = time.perf_counter()
    for number in range(round(rate * seconds)):
        body = event(first + number, "COMPLETE", str(uuid.uuid4()))
        wait = began + number / rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        connection.request("POST", "/api/v1/lineage", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        answered.append(time.perf_counter())
    return answered


def benchmark(rate: float, seconds: float, idle: float) -> None:
    with data_directory() as directory, running(up_command(directory), directory / "up.log") as up:
        port = up.wait_until_ready()
        with EmbeddedPostgres.open(directory / "postgres") as server:
            watch = Watch(Database(server.url))
            # The first batches start Python workers and compile; nobody is measured by them.
            warm = send(port, 50, 10, 0)
            wait_until(lambda: watch.position >= len(warm))
            answered = send(port, rate, seconds, 10_000)
            wait_until(lambda: watch.position >= len(warm) + len(answered))
            watch.stop()
            lags = _lags(answered, len(warm), watch.seen)
            # Java goes on compiling for a while.
            time.sleep(15)
            before = cpu_seconds(up.process.pid)
            time.sleep(idle)
            taken = cpu_seconds(up.process.pid)
            share = sum(seconds - before.get(process, 0.0) for process, seconds in taken.items()) / idle
    cuts = statistics.quantiles(lags, n=100)
    print(f"{rate:.0f} events/s for {seconds:.0f} s: POST answered to merged row visible")
    print(f"  p50 {cuts[49] * 1000:.0f} ms, p95 {cuts[94] * 1000:.0f} ms, p99 {cuts[98] * 1000:.0f} ms")
    print(f"idle for {idle:.0f} s: {share * 100:.1f} % of a core (server and pipeline, PostgreSQL left out)")
    print(f"{'yes' if cuts[94] < 1 else ' NO'}  p95 under 1 s")
    print(f"{'yes' if share < 0.05 else ' NO'}  idle under 5 % of a core")
    figure(f"answered to merged, {rate:.0f} events/s, p50", cuts[49] * 1000, "ms")
    figure(f"answered to merged, {rate:.0f} events/s, p95", cuts[94] * 1000, "ms", at_most(1000))
    figure("server and pipeline with nothing to do", share * 100, "% of a core", at_most(5))


def _lags(answered: list[float], before: int, seen: list[tuple[int, float]]) -> list[float]:
    found = []
    steps = iter(seen)
    position, at = next(steps)
    for number, when in enumerate(answered, start=before + 1):
        while position < number:
            position, at = next(steps)
        found.append(max(0.0, at - when))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--idle", type=float, default=20)
    options = parser.parse_args()
    benchmark(options.rate, options.seconds, options.idle)
