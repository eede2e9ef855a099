"""What happens in a warehouse, hour by hour: runs, retries, writes and checks, with the faults that are at work.

The same seed gives the same luck in a world with a fault and in one without it, so that the difference between the two
is what the fault did.
"""

import bisect
import heapq
import random
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count

from benchmarks.strangers.contents import EMPTY, Content, Effect, MissingColumnError, made, struck, together
from benchmarks.strangers.shape import DAY, HOUR, Check, Job, Test, Warehouse
from correlator.demo.faults import FaultKind

BEFORE = 3
"""Days that were there before the first event."""


@dataclass(frozen=True, slots=True)
class Fault:
    kind: FaultKind
    job: str
    begins: float
    ends: float
    carrier: str
    """`source`, `code`, `engine`, `parameter`; or what befalls runs: `fails`, `never`, `stale`, `partly`, `halfway`."""
    effects: tuple[Effect, ...] = ()
    is_shared: bool = False
    """Every job with the same engine was upgraded at that moment; the others came to no harm."""


@dataclass(slots=True)
class Run:
    job: Job
    slot: float
    start: float
    end: float
    run_id: str
    state: str = "COMPLETE"
    written: Content | None = None
    source: Content | None = None
    parents: list["Run"] = field(default_factory=list)
    """The runs that wrote what it read."""
    code: str = ""
    engine: str = ""
    parameters: str = ""
    source_version: str = ""
    is_struck: bool = False
    results: list["Result"] = field(default_factory=list)


@dataclass(slots=True)
class Result:
    check: Check
    test: Test
    run_id: str
    start: float
    value: float
    bound_to: Run | None
    passed: bool = True
    seen: Content = EMPTY


@dataclass(slots=True)
class Written:
    ends: list[float] = field(default_factory=list)
    parts: list[Content] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    whole: list[Content] = field(default_factory=list)

    def add(self, run: Run, content: Content, *, is_log: bool) -> None:
        at = bisect.bisect_right(self.ends, run.end)
        whole = together([self.whole[-1], content]) if is_log and self.whole else content
        self.ends.insert(at, run.end)
        self.parts.insert(at, content)
        self.runs.insert(at, run)
        self.whole.insert(at, whole)

    def until(self, now: float) -> int:
        return bisect.bisect_right(self.ends, now)


class World:
    def __init__(self, warehouse: Warehouse, faults: tuple[Fault, ...] = ()) -> None:
        self.warehouse, self.faults = warehouse, faults
        self.tables: dict[str, Written] = {name: Written() for name in warehouse.tables}
        self.runs: list[Run] = []
        self.checked: list[tuple[Check, float, str, Run | None, list[Result]]] = []
        self._status: dict[tuple[str, float], str] = {}
        self._since: dict[str, float] = {}
        self._last_source: dict[str, tuple[Content, str]] = {}
        self._deploys = {job.name: self._moments(job.name, "deploy", 0.02) for job in warehouse.jobs}
        self._settings = {job.name: self._moments(job.name, "setting", 0.01) for job in warehouse.jobs}
        self._upgrades = {each: self._moments(each, "upgrade", 0.05) for each in ("spark", "dbt", "airflow", "quiet")}
        self._repo = self._moments("repo", "push", 0.4)
        self._after: dict[str, list[Check]] = defaultdict(list)
        for check in warehouse.checks:
            self._after[check.table].append(check)
        self._live()

    def luck(self, *what: object) -> random.Random:
        return random.Random("/".join(map(str, (self.warehouse.seed, *what))))

    def _moments(self, name: str, kind: str, share: float) -> list[float]:
        """When something harmless happens, a day with such and such a chance."""
        luck = self.luck(name, kind)
        return [d * DAY + luck.uniform(8, 18) for d in range(-BEFORE, self.warehouse.days) if luck.random() < share]

    def _live(self) -> None:
        tick = count()
        queue: list[tuple[float, int, Job | Check, float, int]] = []
        for job in self.warehouse.jobs:
            slots = int((self.warehouse.days + BEFORE) * DAY / job.every)
            for number in range(slots):
                slot = number * job.every - BEFORE * DAY
                luck = self.luck(job.name, slot, "start")
                late = luck.uniform(0.3, 1.0) if job.every == DAY and luck.random() < 0.003 else 0.0
                start = slot + job.at + late + luck.uniform(0, 0.01)
                heapq.heappush(queue, (start, next(tick), job, slot, 1))
        for check in self.warehouse.checks:
            if check.when == "daily":
                for day in range(self.warehouse.days):
                    heapq.heappush(queue, (day * DAY + check.at, next(tick), check, day * DAY, 1))
        while queue:
            now, _, what, slot, attempt = heapq.heappop(queue)
            if isinstance(what, Check):
                self._check(what, now, None)
                continue
            run = self._run(what, slot, now, attempt)
            if run is None:
                continue
            if run.state == "FAIL" and attempt < what.tries and run.written is None:
                wait = 0.008 if what.every == HOUR else 0.06
                heapq.heappush(queue, (run.end + wait, next(tick), what, slot, attempt + 1))
            elif run.state == "COMPLETE":
                for check in self._after[what.output]:
                    if check.when == "own":
                        run.results = self._results(check, run.end, run, run.run_id)
                    elif check.when == "after":
                        heapq.heappush(queue, (run.end + 0.006, next(tick), check, slot, 1))

    def _fault(self, job: Job, slot: float) -> Fault | None:
        for fault in self.faults:
            if fault.job == job.name and fault.begins <= slot < fault.ends:
                return fault
        return None

    def _run(self, job: Job, slot: float, start: float, attempt: int) -> Run | None:
        fault = self._fault(job, slot)
        carrier = fault.carrier if fault else ""
        if carrier == "never":
            self._status[job.name, slot] = "missing"
            return None
        luck = self.luck(job.name, slot, attempt)
        took = job.hours * luck.uniform(0.8, 1.25) * (3.0 if luck.random() < 0.004 else 1.0)
        run_id = str(uuid.UUID(int=self.luck(job.name, slot, attempt, "id").getrandbits(128), version=4))
        run = Run(job, slot, start, start + took, run_id, is_struck=fault is not None)
        run.code, run.engine, run.parameters = self._set_up(job, slot, start, fault)
        self.runs.append(run)
        if job.waits and self._blocked(job, slot):
            self._status[job.name, slot] = "skipped"
            run.state, run.end, run.is_struck = "SKIPPED", start + 0.001, False
            return run
        is_transient = attempt < job.tries and luck.random() < 0.02
        try:
            run.written = self._work(job, slot, run, fault)
        except MissingColumnError:
            run.state = "FAIL"
        if carrier == "fails" or is_transient:
            run.state, run.written = "FAIL", None
        if carrier == "halfway" and run.state == "COMPLETE":
            run.state = "FAIL"
        if run.state == "FAIL":
            run.end = start + took * luck.uniform(0.3, 0.9)
        self._status[job.name, slot] = "ok" if run.state == "COMPLETE" else "failed"
        if run.written is not None:
            self.tables[job.output].add(run, run.written, is_log=self.warehouse.tables[job.output].is_log)
            self._since[job.name] = start
        return run

    def _set_up(self, job: Job, slot: float, start: float, fault: Fault | None) -> tuple[str, str, str]:
        carrier = fault.carrier if fault else ""
        code = f"rev {bisect.bisect(self._deploys[job.name], start)}" + (" + where" if carrier == "code" else "")
        engine = f"3.{bisect.bisect(self._upgrades[job.dialect], start)}.1"
        shared = any(
            other.carrier == "engine" and other.is_shared and other.begins <= slot < other.ends
            for other in self.faults
            if self._dialect(other.job) == job.dialect
        )
        if carrier == "engine" or shared:
            engine = "4.0.0"
        setting = str(100 + bisect.bisect(self._settings[job.name], start))
        return code, engine, "off" if carrier == "parameter" else setting

    def _dialect(self, name: str) -> str:
        return next(job.dialect for job in self.warehouse.jobs if job.name == name)

    def repo_version(self, now: float) -> str:
        broken = sum(1 for each in self.faults if each.carrier == "code" and each.begins <= now)
        return f"{bisect.bisect(self._repo, now)}.{broken}"

    def _blocked(self, job: Job, slot: float) -> bool:
        for name in job.inputs:
            for writer in self.warehouse.writers(name):
                same = writer.pipeline == job.pipeline and writer.every == job.every
                if same and self._status.get((writer.name, slot), "ok") in ("failed", "skipped"):
                    return True
        return False

    def _work(self, job: Job, slot: float, run: Run, fault: Fault | None) -> Content:
        usual: dict[str, dict[str, str]] = {}
        inputs: dict[str, Content] = {}
        carrier = fault.carrier if fault else ""
        effects = fault.effects if fault else ()
        if job.source is not None:
            usual[""] = dict(self.warehouse.tables[job.output].columns)
            inputs[""] = self._delivery(job, slot, run, fault)
        for name in job.inputs:
            usual[name] = dict(self.warehouse.tables[name].columns)
            inputs[name] = self._read(job, name, run)
        content = made(job, inputs, usual)
        if carrier in ("code", "engine", "parameter", "partly", "halfway"):
            content = struck(content, effects)
        return content

    def _delivery(self, job: Job, slot: float, run: Run, fault: Fault | None) -> Content:
        luck = self.luck(job.name, slot, "delivery")
        day = (slot + BEFORE * DAY) / DAY
        rows = job.base * (1 + job.growth) ** day * luck.lognormvariate(0, 0.05)
        if job.every == HOUR:
            rows *= (0.5 + abs(12 - (slot % DAY)) / 12) / 24
        if self.warehouse.is_weekend(slot):
            rows *= job.weekend
        columns = dict(self.warehouse.tables[job.output].columns)
        rows = float(max(1, round(rows)))
        content = Content(rows, rows * luck.uniform(9.8, 10.2), columns, {}, {}, 0.0, 1.0, slot)
        version = f"v{slot:.0f}"
        if fault and fault.carrier == "stale" and job.name in self._last_source:
            content, version = self._last_source[job.name]
            if self.warehouse.tables[job.output].is_log:
                content = Content(0.0, 0.0, content.columns, {}, {}, 0.0, 1.0, content.as_of)
        else:
            self._last_source[job.name] = content, version
        if fault and fault.carrier == "source":
            content = struck(content, fault.effects)
        run.source, run.source_version = content, version
        return content

    def _read(self, job: Job, name: str, run: Run) -> Content:
        written = self.tables[name]
        until = written.until(run.start)
        if not until:
            return Content(0.0, 0.0, dict(self.warehouse.tables[name].columns), {}, {}, 0.0, 1.0, -BEFORE * DAY)
        if not self.warehouse.tables[name].is_log or job.reads_whole or name in job.lookups:
            run.parents.append(written.runs[until - 1])
            return written.whole[until - 1]
        since = written.until(self._since.get(job.name, run.start - DAY))
        run.parents += written.runs[since:until] or [written.runs[until - 1]]
        new = written.parts[since:until]
        if new:
            return together(new)
        last = written.parts[until - 1]
        return Content(0.0, 0.0, last.columns, {}, {}, 0.0, 1.0, last.as_of)

    def _check(self, check: Check, now: float, own: Run | None) -> None:
        written = self.tables[check.table]
        until = written.until(now)
        if not until or now < 0:
            return
        run_id = str(uuid.UUID(int=self.luck(check.name, round(now, 2), "check").getrandbits(128), version=4))
        bound = written.runs[until - 1]
        self.checked.append((check, now, run_id, bound, self._results(check, now, own, run_id)))

    def _results(self, check: Check, now: float, own: Run | None, run_id: str) -> list[Result]:
        written = self.tables[check.table]
        until = written.until(now)
        table = self.warehouse.tables[check.table]
        seen = written.whole[until - 1]
        if table.is_log:
            # Who checks after each write looks at what it wrote, and not at the one before because it came early.
            every = min(job.every for job in self.warehouse.writers(check.table))
            window = DAY if check.when == "daily" else every / 2
            parts = written.parts[written.until(now - window) : until]
            whole = seen
            seen = together(parts) if parts else Content(0.0, 0.0, whole.columns, {}, {}, 0.0, 1.0, whole.as_of)
        bound = own or written.runs[until - 1]
        usual = dict(table.columns)
        return [
            Result(check, test, run_id, now, measure(test, seen, usual, now), bound, seen=seen) for test in check.tests
        ]


def measure(test: Test, seen: Content, usual: dict[str, str], now: float) -> float:
    """One number for each test. For most, 0 is good; counts, sums and ages have bounds."""
    match test.kind:
        case "row_count":
            return seen.rows
        case "sum_between":
            return seen.amount
        case "freshness":
            return now - seen.as_of
        case "columns_match":
            return float(seen.columns != usual)
        case "unique":
            return seen.twice
        case "accepted_values":
            return seen.odd.get(test.column, 0.0) if test.column in seen.columns else 1.0
    return seen.nulls.get(test.column, 0.0) if test.column in seen.columns else 1.0
