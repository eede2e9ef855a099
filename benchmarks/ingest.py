"""Ingest: events per second that are judged, deduplicated, entered in the ledger and on disk before they are answered.

The server runs as `correlator serve` does by default, on the embedded PostgreSQL with fsync on, and is asked by a load
generator on the same machine: with one event in each request and with a hundred, from 1, 8 and 32 connections. The
baselines of `benchmarks.baselines` get the same events from the same generator, and use the same PostgreSQL. All take
turns, a checkpoint before each, so that a noisy minute hits all of them alike. At the end the log is counted.
"""

import argparse
import itertools
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import psycopg

from benchmarks import baselines
from benchmarks.figures import at_least, at_most, figure
from benchmarks.load import LoadError, Outcome, Plan, events, prepared_load, prepared_process
from benchmarks.rounds import Contender, microseconds, table
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.identity import content_digest, idempotency_key
from correlator.store.embedded import EmbeddedPostgres
from correlator.store.event_log import entry_of

SERVE: Final = (
    *(str(Path(sys.executable).with_name("correlator")), "serve"),
    # Everything else is as it comes: every limit but this one, and a line in the log for each request.
    *("--port", "0", "--rate-limit-per-address", "0"),
)

OURS, INSERT, DIRECT, PARSE = "correlator", "one INSERT per event", "one INSERT per event, no HTTP", "parse only"
SINGLE, BATCH = 1, 100
CONNECTIONS = (1, 8, 32)

# More than anybody has shown so far. Who reaches it is asked for less than the whole time.
MOST_A_SECOND: Final = {SINGLE: 30_000, BATCH: 80_000}
REPEATED_EVENTS: Final = 20_000
WARM_UP_SECONDS: Final = 1.0

_LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_STARTING_SECONDS: Final = 60


class Target(msgspec.Struct, frozen=True):
    """A server that can be put under load. The two maps are by the number of events in a request."""

    pid: int
    port: int
    paths: Mapping[int, str]
    expected: Mapping[int, str]
    """What an answer holds when everything in the request was dealt with."""
    may_repeat: bool = False


class Case(msgspec.Struct, frozen=True):
    events_a_request: int
    connections: int

    def __str__(self) -> str:
        what = "single events" if self.events_a_request == SINGLE else f"batches of {self.events_a_request}"
        return f"{what}, {self.connections} connection{'s' if self.connections > 1 else ''}"


class Measure(msgspec.Struct, frozen=True):
    per_second: float
    p50_ms: float
    p99_ms: float
    # CPU per event.
    server_us: float
    postgres_us: float
    generator_us: float


Results = dict[Case, dict[str, list[Measure]]]


# What is measured


class Bench:
    """Everything that runs, and what it was asked so far."""

    def __init__(self, administrator: psycopg.Connection, baseline: psycopg.Connection, baseline_url: str) -> None:
        self._administrator = administrator
        self._baseline = baseline
        self._baseline_url = baseline_url
        self._postmaster = _parent(administrator.info.backend_pid)
        self.targets: dict[str, Target] = {}
        self.acknowledged = 0

    def measure(self, name: str, case: Case, seconds: float, *, has_new_facets: bool) -> Measure:
        self._baseline.execute("TRUNCATE baseline_events")
        if name == DIRECT:
            most = int(MOST_A_SECOND[SINGLE] * seconds)
            direct = baselines.DirectPlan(self._baseline_url, case.connections, most, seconds)
            with prepared_process("benchmarks.baselines", msgspec.json.encode(direct), "direct") as run:
                measure, count = self._timed(run, None)
        else:
            target = self.targets[name]
            most = REPEATED_EVENTS if target.may_repeat else int(MOST_A_SECOND[case.events_a_request] * seconds)
            plan = Plan(
                port=target.port,
                path=target.paths[case.events_a_request],
                expected=target.expected[case.events_a_request],
                connections=case.connections,
                events_a_request=case.events_a_request,
                requests=most // case.events_a_request,
                seconds=seconds,
                may_repeat=target.may_repeat,
                has_new_facets=has_new_facets,
            )
            with prepared_load(plan) as run:
                measure, count = self._timed(run, target.pid)
        if name == OURS:
            self.acknowledged += count
        elif name != PARSE:
            _check_count(self._baseline, "SELECT count(*) FROM baseline_events", count)
        return measure

    def _timed(self, run: Callable[[], Outcome], server: int | None) -> tuple[Measure, int]:
        # What the one before has left to be written must not be the next one's burden.
        self._administrator.execute("CHECKPOINT")
        before = _cpu_of_family(server), _cpu_of_family(self._postmaster)
        outcome = run()
        after = _cpu_of_family(server), _cpu_of_family(self._postmaster)
        each = 1e6 / outcome.events
        measure = Measure(
            outcome.events / outcome.seconds,
            outcome.p50_ms,
            outcome.p99_ms,
            (after[0] - before[0]) * each,
            (after[1] - before[1]) * each,
            outcome.cpu_seconds * each,
        )
        return measure, outcome.events

    def check_log(self) -> None:
        """What was acknowledged is what there is, and the ledger says the same."""
        _check_count(self._administrator, "SELECT count(*) FROM kept.lineage_events", self.acknowledged)
        _check_count(self._administrator, "SELECT sum(stored) FROM kept.ingest_totals", self.acknowledged)


def _check_count(connection: psycopg.Connection, query: str, expected: int) -> None:
    row = connection.execute(query.encode()).fetchone()
    if row is None or row[0] != expected:
        raise LoadError(f"{expected:,} events were acknowledged, but {query} says {row[0] if row else None}.")


def _cpu_of_family(pid: int | None) -> float:
    """A process and its children: PostgreSQL's backends, the server's workers."""
    if pid is None:
        return 0.0
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    # Those that have ended meanwhile are among what their parent has waited for.
    return _cpu(pid, with_ended_children=True) + sum(_cpu(int(child)) for child in children.split())


def _cpu(pid: int, *, with_ended_children: bool = False) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(ticks) for ticks in fields[11 : 15 if with_ended_children else 13]) / _TICKS


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])


# What runs


@contextmanager
def running_bench() -> Iterator[Bench]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="correlator-bench-")))
        if os.geteuid() == 0:  # PostgreSQL then runs as another user, who has to get there
            directory.chmod(0o711)
        postgres = stack.enter_context(EmbeddedPostgres.open(directory / "postgres"))
        administrator = stack.enter_context(psycopg.connect(postgres.url, autocommit=True))
        administrator.execute("CREATE DATABASE baseline")
        baseline_url = f"{postgres.url}{'&' if '?' in postgres.url else '?'}dbname=baseline"
        baseline = stack.enter_context(psycopg.connect(baseline_url, autocommit=True))
        baseline.execute(baselines.TABLE)

        bench = Bench(administrator, baseline, baseline_url)
        our_process = stack.enter_context(server_process(directory, "serve", [*SERVE, "--data-dir", str(directory)]))
        bench.targets[OURS] = Target(
            our_process.pid,
            port := listening_port(directory, "serve", our_process),
            {SINGLE: "/api/v1/lineage", BATCH: "/api/v1/lineage/events"},
            {SINGLE: '"status":"stored"', BATCH: f'"stored":{BATCH},"duplicates":0,"failed":0,'},
        )
        wait_until_ready(port)
        for name, arguments in ((INSERT, ("insert", baseline_url, str(max(CONNECTIONS)))), (PARSE, ("parse",))):
            command = [sys.executable, "-m", "benchmarks.baselines", *arguments]
            process = stack.enter_context(server_process(directory, name, command, cwd=Path.cwd()))
            bench.targets[name] = Target(
                process.pid,
                listening_port(directory, name, process),
                {SINGLE: "/", BATCH: "/"},
                {SINGLE: '"events":1}', BATCH: f'"events":{BATCH}}}'},
                may_repeat=name == PARSE,
            )
        yield bench


@contextmanager
def server_process(
    directory: Path, name: str, command: Sequence[str], cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """What it says goes to a file: reading it while it is measured would cost what is to be measured."""
    # Neither the environment nor a file of settings that lies about may change what is measured.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CORRELATOR_")}
    with (directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 (our own programs)
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=cwd or directory,
            env=environment,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=_STARTING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def listening_port(directory: Path, name: str, process: subprocess.Popen[bytes]) -> int:
    log = directory / f"{name}.log"
    deadline = time.monotonic() + _STARTING_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := _LISTENING.search(log.read_text(encoding="utf-8", errors="replace")):
            return int(found[1])
        time.sleep(0.05)
    raise LoadError(f"{name} does not listen. It said:\n{log.read_text(encoding='utf-8', errors='replace')[-2000:]}")


def wait_until_ready(port: int) -> None:
    deadline = time.monotonic() + _STARTING_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=_STARTING_SECONDS):
                return
        except urllib.error.HTTPError as error:
            if time.monotonic() > deadline:
                raise LoadError(f"The server is not ready: {error.read().decode(errors='replace')}") from error
            time.sleep(0.05)


# What is said


def show_case(case: Case, results: Mapping[str, list[Measure]]) -> str:
    width = len(DIRECT)
    head = f"{case!s:{width}}  {'events/s':>10}  {'least':>9}  {'p50 ms':>7}  {'p99 ms':>7}"
    lines = [f"{head}  {'server':>8}  {'PostgreSQL':>10}  {'generator':>9}   µs of CPU per event"]
    for name, measures in results.items():
        rates = [measure.per_second for measure in measures]
        p50, p99, server, postgres, generator = (
            statistics.median(getattr(measure, field) for measure in measures)
            for field in ("p50_ms", "p99_ms", "server_us", "postgres_us", "generator_us")
        )
        lines.append(
            f"{name:{width}}  {statistics.median(rates):>10,.0f}  {min(rates):>9,.0f}  {p50:>7.2f}  {p99:>7.2f}"
            f"  {server:>8.1f}  {postgres:>10.1f}  {generator:>9.1f}"
        )
    lines.append(
        f"{OURS}: " + ", ".join(f"{ratio(results, name):.2f} times {name}" for name in results if name != OURS)
    )
    return "\n".join(lines)


def ratio(results: Mapping[str, list[Measure]], baseline: str) -> float:
    """Within each round, since its noise hits both; then the median."""
    pairs = zip(results[OURS], results[baseline], strict=True)
    return statistics.median(ours.per_second / other.per_second for ours, other in pairs)


def show_aims(results: Results) -> str:
    """The issue's figures beside those of this run. They are for two cores."""
    aims = []

    def median(case: Case, field: str) -> float:
        return float(statistics.median(getattr(measure, field) for measure in results[case][OURS]))

    for case in results:
        if case.connections != max(CONNECTIONS):
            continue
        if case.events_a_request == SINGLE:
            aims += [
                (f"{case}: 12,000 events/s", median(case, "per_second") >= 12_000),
                (f"{case}: 3 times {INSERT}", ratio(results[case], INSERT) >= 3),
            ]
        else:
            aims += [
                (f"{case}: 25,000 events/s", median(case, "per_second") >= 25_000),
                (f"{case}: a tenth of {PARSE}", ratio(results[case], PARSE) >= 0.1),
                (f"{case}: a fifth of {PARSE}", ratio(results[case], PARSE) >= 0.2),
            ]
    # Batches wait for each other: 32 of 100 events are 3,200 in flight, which take 128 ms at 25,000 events/s.
    singles = [case for case in results if case.events_a_request == SINGLE]
    aims += [(f"{case}: p99 under 50 ms", median(case, "p99_ms") < 50) for case in singles]
    return "\n".join(f"{'yes' if met else 'NO':>4}  {aim}" for aim, met in aims)


def tell(results: Results) -> None:
    """The same for the table of all benchmarks, with what must hold."""
    for case, by_name in results.items():
        if case.connections != max(CONNECTIONS):
            continue
        rate = statistics.median(measure.per_second for measure in by_name[OURS])
        if case.events_a_request == SINGLE:
            figure(str(case), rate, "events/s", at_least(12_000))
            figure(f"the same, beside {INSERT}", ratio(by_name, INSERT), "times", at_least(3))
            p99 = statistics.median(measure.p99_ms for measure in by_name[OURS])
            figure("the same, p99", p99, "ms", at_most(50))
        else:
            figure(str(case), rate, "events/s", at_least(25_000))
            figure(f"the same, beside {PARSE}", ratio(by_name, PARSE), "times", at_least(0.1))


def show_validation(rounds: int) -> str:
    """One core, as the server does it; the validation document counts 57 µs for all of its steps."""

    def judged(raw: bytes) -> Event:
        event = judge(raw)
        assert not isinstance(event, Rejection)
        return event

    def with_content(raw: bytes) -> tuple[bytes, bytes]:
        event = judged(raw)
        return idempotency_key(event), content_digest(event)

    def items() -> list[bytes]:
        return list(itertools.islice(events(), 2_000))

    whole = "judged, with key and digest of the bytes: all that the server does"
    times = microseconds(
        {
            "judged": Contender(judged, items),
            whole: Contender(lambda raw: entry_of(judged(raw)), items),
            "judged, with key and digest of the content": Contender(with_content, items),
        },
        rounds,
    )
    taken = statistics.median(times[whole])
    figure("an event judged, with key and digest", taken, "µs", at_most(57))
    factor = 57 / taken
    return f"{table(times, whole, 'µs per event')}\nThe validation document: 57 µs, {factor:.1f} times as much."


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="3 rounds of 1 s instead of 5 of 3 s")
    arguments.add_argument("--rounds", type=int)
    arguments.add_argument("--seconds", type=float)
    arguments.add_argument("--connections", type=int, nargs="+", default=list(CONNECTIONS))
    arguments.add_argument("--new-facets", action="store_true", help="no facet comes twice: the worst case")
    given = arguments.parse_args()
    rounds = given.rounds or (3 if given.quick else 5)
    seconds = given.seconds or (1.0 if given.quick else 3.0)

    cases = [Case(size, connections) for size in (SINGLE, BATCH) for connections in given.connections]
    results: Results = {
        case: {name: [] for name in (OURS, INSERT, DIRECT, PARSE) if name != DIRECT or case.events_a_request == SINGLE}
        for case in cases
    }
    size = statistics.mean(len(event) for event in itertools.islice(events(has_new_facets=given.new_facets), 1_000))
    print(f"{os.cpu_count()} cores, {rounds} rounds of {seconds:g} s, events of {size:,.0f} bytes\n")
    print(show_validation(rounds), flush=True)

    with running_bench() as bench:
        for case in (Case(SINGLE, 8), Case(BATCH, 8)):
            for name in bench.targets:
                bench.measure(name, case, WARM_UP_SECONDS, has_new_facets=given.new_facets)
        for _ in range(rounds):
            for case, by_name in results.items():
                for name, measures in by_name.items():
                    measures.append(bench.measure(name, case, seconds, has_new_facets=given.new_facets))
        bench.check_log()

    for case, by_name in results.items():
        print(f"\n{show_case(case, by_name)}")
    print(f"\n{bench.acknowledged:,} events were acknowledged, and the log holds each of them.\n")
    print(show_aims(results))
    tell(results)


if __name__ == "__main__":
    main()
