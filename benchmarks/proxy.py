"""The proxy: what it takes to start, what it holds, how many events it acknowledges, and how soon they are forwarded.

Everything runs as a user would run it: `correlator proxy` in a process of its own with its default settings (but for
the limits that a load test would meet), SQLite on this machine's disk with `synchronous=FULL`. For the throughput the
proxy is kept on one core and writes no line for each request; load generator and backend share the others.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import requests
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.transport.http import HttpConfig, HttpTransport

from benchmarks.figures import at_least, at_most, figure
from benchmarks.load import Plan, events, prepared_load
from benchmarks.proxy_backend import Seen

COMMAND: Final = (
    *(str(Path(sys.executable).with_name("correlator")), "proxy", "--port", "0", "--rate-limit-per-address", "0"),
    *("--retention-bytes", "8GB", "--retention-hours", "240"),
)
NOWHERE: Final = "http://127.0.0.1:9"
_LISTENING: Final = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Proxy:
    def __init__(self, directory: Path, destination: str, *arguments: str) -> None:
        self._log = directory / "log"
        began = time.monotonic()
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 (our own command)
                [*COMMAND, "--data-dir", str(directory), "--destination", f"to={destination}", *arguments],
                stdout=log,
                stderr=log,
            )
        while (found := _LISTENING.search(self._log.read_text(encoding="utf-8"))) is None:
            assert self.process.poll() is None, self._log.read_text(encoding="utf-8")
            time.sleep(0.005)
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"
        urllib.request.urlopen(f"{self.url}/ready").read()  # noqa: S310
        self.start_seconds = time.monotonic() - began

    @property
    def megabytes(self) -> float:
        pages = int((Path("/proc") / str(self.process.pid) / "statm").read_text(encoding="ascii").split()[1])
        return pages * _PAGE / 1e6

    @property
    def cpu_seconds(self) -> float:
        stat = (Path("/proc") / str(self.process.pid) / "stat").read_text(encoding="utf-8")
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def lag(self) -> int:
        with urllib.request.urlopen(f"{self.url}/health") as answer:  # noqa: S310
            return int(json.load(answer)["destinations"][0]["lag_events"])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


@contextmanager
def proxy(destination: str, *arguments: str) -> Iterator[Proxy]:
    directory = Path(tempfile.mkdtemp(prefix="correlator-bench-"))
    made = Proxy(directory, destination, *arguments)
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(directory)


@contextmanager
def backend() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-m", "benchmarks.proxy_backend"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def seen_by(url: str) -> Seen:
    with urllib.request.urlopen(url) as answer:  # noqa: S310
        return msgspec.json.decode(answer.read(), type=Seen)


def on_one_core(process: int) -> None:
    """The last core for the proxy; whoever measures takes the others, where there are some."""
    cores = sorted(os.sched_getaffinity(0))
    for thread in (Path("/proc") / str(process) / "task").iterdir():
        os.sched_setaffinity(int(thread.name), {cores[-1]})


# What is measured


def start(rounds: int) -> None:
    seconds, megabytes = [], []
    for _ in range(rounds):
        with proxy(NOWHERE) as made:
            seconds.append(made.start_seconds)
            time.sleep(1)
            megabytes.append(made.megabytes)
    print(
        f"start to ready: {statistics.median(seconds):.2f} s (least {min(seconds):.2f}); idle: {max(megabytes):.0f} MB"
    )
    figure("start to ready", statistics.median(seconds), "s", at_most(1))
    figure("memory, idle", max(megabytes), "MB", at_most(60))


def memory(count: int) -> None:
    """Resident memory while the backend is away and the buffer grows."""
    with proxy(NOWHERE) as made:
        one_after_the_other = events()
        session = requests.Session()
        most = 0.0
        for begin in range(0, count, 1000):
            body = b"[" + b",".join(next(one_after_the_other) for _ in range(min(1000, count - begin))) + b"]"
            answer = session.post(
                f"{made.url}/api/v1/lineage/batch", body, headers={"Content-Type": "application/json"}, timeout=60
            )
            assert answer.status_code == 200, answer.text
            most = max(most, made.megabytes)
        assert made.lag() == count
        print(f"{count:,} events buffered: {made.megabytes:.0f} MB, {most:.0f} MB at most")
        figure(f"memory, {count:,} events buffered, at most", most, "MB", at_most(100))


def throughput(seconds: float, connections: Sequence[int]) -> None:
    """Single events, each on disk before it is answered, while they are forwarded."""
    rates = {}
    for number in connections:
        with backend() as url, proxy(url, "--log-level", "warning") as made:
            on_one_core(made.process.pid)
            plan = Plan(
                port=made.port,
                path="/api/v1/lineage",
                expected='"buffered"',
                connections=number,
                events_a_request=1,
                requests=int(15_000 * seconds),
                seconds=seconds,
            )
            with prepared_load(plan) as run:
                before = made.cpu_seconds
                outcome = run()
                ended = time.monotonic()
                behind = made.lag()
                cpu = made.cpu_seconds - before
            while made.lag():
                time.sleep(0.01)
            drained = time.monotonic() - ended
            seen = seen_by(url)
            assert seen.events == outcome.events, f"{outcome.events} acknowledged, {seen.events} arrived"
            each = cpu / outcome.events * 1e6
            rates[number] = outcome.events / outcome.seconds
            print(
                f"single events, {number} connections: {outcome.events / outcome.seconds:,.0f} acknowledged/s on one "
                f"core, p50 {outcome.p50_ms:.1f} ms, p99 {outcome.p99_ms:.1f} ms, {each:.0f} us of CPU each; "
                f"{behind:,} of {outcome.events:,} not yet forwarded at the end, {drained:.2f} s later all"
            )
    best = max(rates, key=lambda number: rates[number])
    figure(f"acknowledged on one core, {best} connections", rates[best], "events/s", at_least(5_000))


def latency(seconds: float, rate: int) -> None:
    """From the answer to the sender until the backend has the event, at a steady rate."""
    with backend() as url, proxy(url) as made:
        session = requests.Session()
        answered: dict[str, float] = {}
        began = time.monotonic()
        for number in range(int(seconds * rate)):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            mark = f"m{number}"
            answer = session.post(f"{made.url}/api/v1/lineage", json=_event(mark), timeout=60)
            answered[mark] = time.monotonic()
            assert answer.status_code == 200
        while made.lag():
            time.sleep(0.01)
        seen = seen_by(url).marks
        # The backend may have it before the answer has reached the sender.
        took = sorted(max(0.0, seen[mark] - at) * 1e3 for mark, at in answered.items())
        figure("acknowledged to received, p95", took[len(took) * 95 // 100], "ms", at_most(100))
        print(
            f"acknowledged to received by the backend, {rate} events/s: p50 {took[len(took) // 2]:.1f} ms, "
            f"p95 {took[len(took) * 95 // 100]:.1f} ms, p99 {took[len(took) * 99 // 100]:.1f} ms"
        )


def emit(count: int) -> None:
    """What the official Python client takes for one event while the backend is down."""
    with proxy(NOWHERE) as made:
        through = [_emit_seconds(made.url) for _ in range(count)]
    began = time.perf_counter()
    try:
        _emit_seconds(NOWHERE)
    except Exception as error:  # noqa: BLE001 (whatever it raises, the event is gone)
        blocked = time.perf_counter() - began
        direct = f"{blocked:.1f} s, then {type(error).__name__}: the event is lost"
    else:
        raise AssertionError("somebody listens where nobody should")
    print(
        f"openlineage-python, backend down: through the proxy p50 {statistics.median(through) * 1e3:.1f} ms, worst "
        f"{max(through) * 1e3:.1f} ms, none lost; direct {direct}"
    )
    figure("emit while the backend is away: direct takes", blocked / statistics.median(through), "times as long")


def _emit_seconds(url: str) -> float:
    client = OpenLineageClient(transport=HttpTransport(HttpConfig(url=url)))
    event = RunEvent(
        eventTime=datetime.now(UTC).isoformat(),
        run=Run(str(uuid.uuid4())),
        job=Job("benchmark", "emit"),
        eventType=RunState.START,
        producer="https://example.com/benchmark",
    )
    began = time.perf_counter()
    client.emit(event)
    return time.perf_counter() - began


def _event(mark: str) -> dict[str, Any]:
    return {
        "eventType": "RUNNING",
        "eventTime": datetime.now(UTC).isoformat(),
        "producer": "https://example.com/benchmark",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": str(uuid.uuid4())},
        "job": {"namespace": "benchmark", "name": "latency"},
        "mark": mark,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--full", action="store_true", help="at full size: a million events buffered")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", choices=["start", "memory", "throughput", "latency", "emit"])
    given = parser.parse_args()
    parts: dict[str, Callable[[], None]] = {
        "start": lambda: start(9 if given.full else 3),
        "memory": lambda: memory(1_000_000 if given.full else 100_000),
        "throughput": lambda: throughput(given.seconds, (8, 32, 64)),
        "latency": lambda: latency(given.seconds, 100),
        "emit": lambda: emit(100),
    }
    for name, part in parts.items():
        if given.only in {None, name}:
            part()


if __name__ == "__main__":
    main()
