"""Time passes: pipelines are launched, jobs read and write, somebody deploys, faults strike, tests look."""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Final

from correlator.demo.faults import Fault, Truth
from correlator.demo.luck import Luck, number_of, run_id
from correlator.demo.parts import DAY, HOUR, Check, Company, Job, Pipeline
from correlator.demo.runs import Code, Launch, Look, Result, Run, Seen
from correlator.demo.telling import Quirks, Sent, Teller, snapshot_of
from correlator.demo.world import (
    BrokenColumnError,
    Column,
    Content,
    Why,
    derived,
    extracted,
    look,
    not_refreshed,
    season,
    struck,
    together,
    usual_columns,
    usual_contents,
)

_GAP: Final = 12.0
"""Seconds from one job to the next of its pipeline."""
_TRANSIENT: Final = (
    "connection reset by peer",
    "could not obtain lock on relation",
    "the worker was evicted: out of memory",
    "429 Too Many Requests",
)
_BAD_VALUES: Final = {
    "lookback_days": "0",
    "currency": "USD",
    "min_amount": "1000",
    "timezone": "America/New_York",
    "sample_rate": "0.05",
}
_LASTING: Final = (
    "permission denied for schema raw",
    "division by zero",
    "No space left on device",
    "java.lang.OutOfMemoryError: GC overhead limit exceeded",
    "authentication failed for user loader",
)


@dataclass(frozen=True)
class Noise:
    """Whatever happens in a company every day and does no harm."""

    changes: float = 0.08
    """Deploys and changed settings for each job and day."""
    engine_upgrades: float = 0.06
    """For each tool and day."""
    retries: float = 0.012
    """The share of runs that fail once and succeed when tried again."""
    slow_runs: float = 0.01
    reruns: float = 0.01
    """The share of daily launches that somebody repeats some hours later."""
    rows: float = 0.05
    """How far the rows of a source stray from day to day."""


@dataclass(slots=True)
class _Version:
    content: Content
    at: float
    run: Run | None


@dataclass
class _TableState:
    versions: deque[_Version]
    owed: Why | None = None
    """Why it was not written when it should have been."""
    gaps: deque[tuple[float, Why]] = field(default_factory=lambda: deque(maxlen=30))

    @property
    def last(self) -> _Version:
        return self.versions[-1]


@dataclass
class _JobState:
    index: int
    columns: dict[str, Column]
    code: Code
    engine: str
    parameters: dict[str, str]
    faults: list[Fault]
    extra: tuple[str, ...] = ()
    deliveries: int = 0
    onsets: dict[int, str] = field(default_factory=dict)
    """For each fault the first run that it struck."""


class Simulation:
    """One history. `events` may be iterated once; `truths` is complete when it is exhausted."""

    def __init__(
        self,
        company: Company,
        *,
        seed: int,
        begins: float,
        ends: float,
        faults: Sequence[Fault] = (),
        noise: Noise | None = None,
        quirks: Quirks | None = None,
    ) -> None:
        self.company = company
        self.truths: list[Truth] = []
        self.unexplained = 0
        """Failed tests that no fault explains: there should be none."""
        self._seed = seed
        self._begins = begins
        self._ends = ends
        self._noise = noise or Noise()
        self._queue: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self._teller = Teller(company, Luck(f"telling/{seed}"), quirks or Quirks())
        self._failing: set[tuple[str, int]] = set()
        self._now = begins
        deploys = Luck(f"deploys/{seed}")
        self._deploys = deploys
        self._engines = {tool: company.flavour.get(tool, "1.0.0") for tool in ("airflow", "dbt", "spark", "plain")}
        self._commits = {job.repository: _commit(deploys) for job in company.jobs.values()}
        self._jobs = {
            job.key: _JobState(
                index,
                usual_columns(job),
                Code(1, self._commits[job.repository]),
                self._engines[job.tool],
                dict(job.parameters),
                [fault for fault in faults if fault.job == job.key],
            )
            for index, job in enumerate(company.jobs.values())
        }
        self._tables = self._first_tables()
        self._checks_of: dict[str, list[Check]] = {}
        for check in company.checks.values():
            self._checks_of.setdefault(check.table, []).append(check)
        for pipeline in company.pipelines.values():
            self._at(begins + pipeline.offset, partial(self._launch_on_schedule, pipeline))
        for check in company.checks.values():
            if check.manner == "schedule":
                self._at(begins + check.offset, partial(self._look_on_schedule, check))
        for fault in faults:
            self._at(fault.begins, partial(self._begin_fault, fault))
            self._at(fault.ends, partial(self._end_fault, fault))
        self._at(begins, self._pass_a_day)
        if company.flavour.get("catalogue"):
            self._teller.catalogued(begins)

    def events(self) -> Iterator[Sent]:
        """In the order in which they are sent."""
        while self._queue:
            self._now, _, happen = heapq.heappop(self._queue)
            happen(self._now)
            yield from self._teller.due(self._now)
        yield from self._teller.due(float("inf"))

    def _at(self, when: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._queue, (when, next(self._order), happen))

    def _first_tables(self) -> dict[str, _TableState]:
        tables = {}
        for table, content in usual_contents(self.company).items():
            period = self.company.producers[table].period
            writes = 24 if period < DAY else 1
            ago = [self._begins - period * number for number in range(writes, 0, -1)]
            versions = (_Version(replace(content, newest=at), at, None) for at in ago)
            tables[table] = _TableState(deque(versions, maxlen=40))
        return tables

    # Launches

    def _launch_on_schedule(self, pipeline: Pipeline, now: float) -> None:
        if now + pipeline.period < self._ends:
            self._at(now + pipeline.period, partial(self._launch_on_schedule, pipeline))
        random = self._chance(number_of(pipeline.key), now + 1)
        if pipeline.period == DAY and random.has(self._noise.reruns):
            again = now + random.uniform(2, 6) * HOUR
            if again < self._ends:
                self._at(again, partial(self._launch, pipeline))
        self._launch(pipeline, now)

    def _launch(self, pipeline: Pipeline, now: float) -> None:
        random = self._chance(number_of(pipeline.key), now)
        launch = Launch(
            pipeline,
            run_id(now, random),
            run_id(now - 20, random),
            self._engines[pipeline.tool],
            now - (now - self._begins - pipeline.offset) % pipeline.period - pipeline.offset,
            now,
            {key: len(self.company.upstream_within(self.company.jobs[key])) for key in pipeline.jobs},
            len(pipeline.jobs),
        )
        self._teller.launched(launch)
        for key, others in launch.waiting.items():
            if not others:
                self._at(
                    now + _GAP * random.uniform(0.2, 1), partial(self._begin, launch, self.company.jobs[key], 1, "")
                )

    def _begin(self, launch: Launch, job: Job, attempt: int, given_id: str, now: float) -> None:
        """A job of a launch starts: it reads what is there."""
        state = self._jobs[job.key]
        random = self._chance(state.index, launch.started + attempt)
        identity = given_id or run_id(now, random)
        fault = next((each for each in state.faults if each.strikes(now)), None)
        if fault is not None and fault.moment == "missing":
            why = self._why(fault, job, None)
            self._owe(job, why)
            self._done(launch, job, None, now)
            return
        if fault is not None and fault.moment == "late" and not given_id:
            why = self._why(fault, job, identity)
            self._owe(job, why, with_those_that_wait=True)
            self._at(now + fault.delay, partial(self._begin, launch, job, attempt, identity))
            return
        run = Run(identity, job, launch, attempt, now, [], state.code, state.engine, tuple(state.parameters.items()))
        slow = random.uniform(1.6, 2.2) if random.has(self._noise.slow_runs) else 1.0
        seconds = job.usual_seconds * random.lognormvariate(0, 0.15) * slow
        is_unlucky = random.has(self._noise.retries) and attempt == 1 and job.retries > 0
        why_failed: Why | None = None
        try:
            run.written = self._written(job, run, random, now, fault)
        except BrokenColumnError as broken:
            why_failed = broken.why
            words = 'column "{}" does not exist' if broken.is_gone else 'invalid input syntax for column "{}"'
            self._fail(run, words.format(broken.column))
        else:
            if fault is not None:
                why_failed = self._suffer(run, run.written, fault)
            elif is_unlucky:
                run.written = None
                self._fail(run, random.choice(_TRANSIENT))
        if run.error:
            seconds *= random.uniform(0.1, 0.6)
        run.ended = now + max(seconds, 1.0)
        self._teller.started(run)
        self._at(run.ended, partial(self._end, run, why_failed))

    def _suffer(self, run: Run, written: Content, fault: Fault) -> Why | None:
        """What a fault makes of a run, and why if that is a failure."""
        why = self._why(fault, run.job, run.run_id)
        if fault.effects:
            run.written = struck(written, fault.effects, why)
        match fault.moment:
            case "fails" if fault.is_aborted:
                run.written = None
                self._fail(run, "cancelled by the operator", "ABORT")
            case "fails":
                run.written = None
                self._fail(run, _LASTING[self._jobs[run.job.key].index % len(_LASTING)])
            case "fails_halfway":
                self._fail(run, "lost connection while writing")
            case _:
                return None
        return why

    def _fail(self, run: Run, words: str, state: str = "FAIL") -> None:
        run.error, run.state = words, state

    def _written(self, job: Job, run: Run, random: Luck, now: float, fault: Fault | None) -> Content:
        state = self._jobs[job.key]
        if not job.is_extract:
            run.reads = [self._read(job, each.table, now) for each in job.inputs]
            noise = random.lognormvariate(0, 0.01)
            return derived(job, state.columns, [each.content for each in run.reads], noise, state.extra)
        last = self._tables[job.output].last
        if fault is not None and fault.moment == "undelivered":
            run.source_version = f"v{state.deliveries}"
            why = self._why(fault, job, run.run_id)
            return replace(last.content, newest_why=why, is_sound=False)
        state.deliveries += 1
        run.source_version = f"v{state.deliveries}"
        day = self._chance(state.index, now - now % DAY)
        share = season(self.company, now, job.period) * day.lognormvariate(0, self._noise.rows)
        share *= random.lognormvariate(0, self._noise.rows / 2)
        return extracted(job, state.columns, now, share, state.extra)

    def _read(self, job: Job, table: str, now: float) -> Seen:
        """What is there when somebody reads, be it old."""
        state = self._tables[table]
        period = self.company.producers[table].period
        if period < job.period:
            since = now - job.period
            versions = [each.content for each in state.versions if each.at > since] or [state.last.content]
            gap = next((why for at, why in reversed(state.gaps) if at > since), None)
            whole = together(versions, max(job.period // period, len(versions)) if gap else len(versions), gap)
            return Seen(self.company.tables[table], whole.rows, whole, "")
        content = state.last.content
        if state.owed is not None:
            content = not_refreshed(content, state.owed)
        writer = state.last.run
        snapshot = "" if writer is None else snapshot_of(writer.run_id)
        return Seen(self.company.tables[table], content.rows, content, snapshot)

    def _end(self, run: Run, why_failed: Why | None, now: float) -> None:
        """A run ends: what it wrote is there now."""
        job, launch = run.job, run.launch
        if run.written is not None:
            state = self._tables[job.output]
            state.versions.append(_Version(run.written, now, run))
            state.owed = None
            for check in self._checks_of.get(job.output, ()):
                if check.manner == "own_output":
                    run.own_results = self._results(check, now, run, run.run_id)
        self._teller.finished(run)
        if run.error:
            if run.attempt <= job.retries and run.written is None and run.state != "ABORT":
                pause = 20.0 if job.period < DAY else 120.0
                self._at(now + pause, partial(self._begin, launch, job, run.attempt + 1, ""))
                return
            launch.has_failed = True
            if why_failed is not None and run.written is None:
                self._owe(job, why_failed)
        stopped_by: Why | None = None
        for check in self._checks_of.get(job.output, ()):
            if run.error or run.written is None:
                continue  # what comes after a failure in its own pipeline does not run
            if check.manner == "dbt":
                if not launch.pipeline.stops_at_failed_tests:
                    launch.dbt_checks.append(check)
                    continue
                stopped_by = self._look(check, launch, now + 2) or stopped_by
            elif check.manner == "task":
                self._at(now + _GAP, partial(self._look_in_launch, check, launch))
        blocked = why_failed if run.error else stopped_by
        self._done(launch, job, blocked, now, is_blocking=bool(run.error) or stopped_by is not None)

    def _done(self, launch: Launch, job: Job, why: Why | None, now: float, *, is_blocking: bool = False) -> None:
        """Whoever waits for a job goes on, or will not run at all."""
        launch.open -= 1
        for key in self.company.within[job.key]:
            launch.waiting[key] -= 1
            if is_blocking:
                launch.blocked[key] = _further(why)
            if launch.waiting[key] == 0:
                follower = self.company.jobs[key]
                if key in launch.blocked:
                    reason = launch.blocked[key]
                    if reason is not None:
                        self._owe(follower, reason)
                    self._teller.skipped(launch, follower, run_id(now, self._chance(self._jobs[key].index, now)), now)
                    self._done(launch, follower, reason, now, is_blocking=True)
                else:
                    self._at(now + _GAP, partial(self._begin, launch, follower, 1, ""))
        if launch.open == 0:
            launch.open = -1
            self._at(now + _GAP * 2, partial(self._end_launch, launch))

    def _end_launch(self, launch: Launch, now: float) -> None:
        for check in launch.dbt_checks:
            self._look(check, launch, now)
        launch.ended = now + 5
        self._teller.ended(launch)

    def _owe(self, job: Job, why: Why, *, with_those_that_wait: bool = False) -> None:
        state = self._tables[job.output]
        state.owed = why
        state.gaps.append((self._now, why))
        if with_those_that_wait:
            for key in self.company.within[job.key]:
                self._owe(self.company.jobs[key], why.further(), with_those_that_wait=True)

    def _why(self, fault: Fault, job: Job, identity: str | None) -> Why:
        onsets = self._jobs[job.key].onsets
        if identity is None:
            return Why(fault, job.key, None, None)
        return Why(fault, job.key, identity, onsets.setdefault(id(fault), identity))

    # Looks

    def _look_on_schedule(self, check: Check, now: float) -> None:
        if now + check.period < self._ends:
            self._at(now + check.period, partial(self._look_on_schedule, check))
        self._look(check, None, now)

    def _look_in_launch(self, check: Check, launch: Launch, now: float) -> None:
        self._look(check, launch, now)

    def _look(self, check: Check, launch: Launch | None, now: float) -> Why | None:
        """The first reason for a failure that is not only a warning."""
        results = self._results(check, now, None, "")
        self._teller.looked(Look(check, launch, now, self._tables[check.table].last.content, results))
        failed = [each for each in results if not each.finding.passed and each.test.severity != "warn"]
        if launch is not None and failed:
            launch.has_failed = True
        return next((each.finding.why for each in failed if each.finding.why is not None), None)

    def _results(self, check: Check, now: float, run: Run | None, own_id: str) -> list[Result]:
        table = self._tables[check.table]
        version = table.last
        mode = self._mode(check)
        random = self._chance(number_of(check.key), now)
        shared = own_id or run_id(now, random)
        found = []
        for index, test in enumerate(check.tests):
            identity = run_id(now + index, random) if mode == "structured_logs" else shared
            finding = look(test, version.content, now, table.owed)
            result = Result(identity, test, finding)
            found.append(result)
            key = (check.key, index)
            if finding.passed:
                self._failing.discard(key)
            elif finding.why is None:
                self.unexplained += 1
            else:
                self.truths.append(
                    self._truth(check, result, run or version.run, now, is_first=key not in self._failing)
                )
                self._failing.add(key)
        return found

    def _mode(self, check: Check) -> str:
        if check.manner != "dbt":
            return ""
        return self.company.pipelines[self.company.producers[check.table].pipeline].mode

    def _truth(self, check: Check, result: Result, writer: Run | None, now: float, *, is_first: bool) -> Truth:
        why = result.finding.why
        if why is None:
            raise AssertionError("only what has a reason has a truth")
        table = self.company.tables[check.table]
        dataset = table.written_as if check.manner in ("own_output", "dbt") else table.read_as
        root = self.company.jobs[why.job]
        producer = self.company.producers[check.table]
        return Truth(
            fault=why.fault.kind,
            hops=why.hops,
            dataset_namespace=dataset.namespace,
            dataset_name=dataset.name,
            test_name=self._teller.test_name(check, result.test),
            column=self._teller.told_column(check, result.test),
            test_run_id=result.run_id,
            failed_at=now,
            direct_job=(producer.told_as.namespace, producer.told_as.name),
            direct_run_id=None if writer is None else writer.run_id,
            root_job=(root.told_as.namespace, root.told_as.name),
            root_run_id=why.run_id,
            onset_run_id=why.onset_run_id,
            is_told=is_told(root, why.fault),
            is_first=is_first,
        )

    # Changes

    def _pass_a_day(self, now: float) -> None:
        """Whatever people change on this day."""
        if now + DAY < self._ends:
            self._at(now + DAY, self._pass_a_day)
        random, noise = self._deploys, self._noise
        for tool, version in self._engines.items():
            if random.has(noise.engine_upgrades):
                upgraded = _next_version(version)
                self._at(now + random.uniform(0, DAY), partial(self._upgrade, tool, upgraded))
        for job in self.company.jobs.values():
            if random.has(noise.changes):
                kind = random.choices(("code", "parameter", "column"), (0.7, 0.2, 0.1))[0]
                drawn = random.getrandbits(64)
                self._at(now + random.uniform(0, DAY), partial(self._change, job, kind, drawn))

    def _upgrade(self, tool: str, version: str, _now: float) -> None:
        self._engines[tool] = version
        for job in self.company.jobs.values():
            if job.tool == tool:
                self._jobs[job.key].engine = version

    def _change(self, job: Job, kind: str, drawn: int, now: float) -> None:
        state = self._jobs[job.key]
        match kind:
            case "code":
                self._deploy(job, f"{Luck(drawn).getrandbits(160):040x}", state.code.bug)
            case "parameter":
                name = ("parallelism", "batch_size", "log_level")[drawn % 3]
                state.parameters[name] = f"{2 ** (drawn % 7)}"
            case _:
                state.extra = (*state.extra, f"added_{len(state.extra) + 1}")
                if job.voice.sql:
                    self._deploy(job, f"{Luck(drawn).getrandbits(160):040x}", state.code.bug)
        self._teller.changed(job, now)

    def _deploy(self, job: Job, commit: str, bug: Fault | None) -> None:
        """New code of one job. Where many jobs share a repository and say its commit, all of them seem to change."""
        state = self._jobs[job.key]
        state.code = Code(state.code.revision + 1, commit, bug)
        if is_monorepo(job.repository):
            for other in self.company.jobs.values():
                if other.repository == job.repository and other is not job:
                    theirs = self._jobs[other.key]
                    theirs.code = replace(theirs.code, commit=commit)

    def _begin_fault(self, fault: Fault, now: float) -> None:
        job, state = self.company.jobs[fault.job], self._jobs[fault.job]
        random = Luck(f"{self._seed}/{fault.job}/{fault.begins}")
        match fault.carrier:
            case "code":
                self._deploy(job, _commit(random), fault)
            case "engine":
                version = _next_version(state.engine)
                if fault.is_shared:
                    self._upgrade(job.tool, version, now)
                state.engine = version
            case "parameter":
                name, value = _bad_parameter(job)
                state.parameters[name] = value
            case "source" if fault.is_announced and job.source is not None:
                self._teller.announced(job, struck_columns(fault, state.columns), now)
            case _:
                pass

    def _end_fault(self, fault: Fault, now: float) -> None:
        """Somebody has found out and puts it right."""
        job, state = self.company.jobs[fault.job], self._jobs[fault.job]
        random = Luck(f"{self._seed}/{fault.job}/{fault.ends}")
        match fault.carrier:
            case "code":
                self._deploy(job, _commit(random), None)
            case "engine":
                state.engine = _next_version(state.engine)
                if fault.is_shared:
                    self._upgrade(job.tool, state.engine, now)
            case "parameter":
                name, _ = _bad_parameter(job)
                before = dict(job.parameters).get(name)
                if before is None:
                    del state.parameters[name]
                else:
                    state.parameters[name] = before
            case _:
                pass

    def _chance(self, index: int, moment: float) -> Luck:
        """Luck that hangs on who and when alone: a fault elsewhere does not change it."""
        mixed = (self._seed * 1_000_003 + index) * 0x9E3779B97F4A7C15 + int(moment)
        return Luck(mixed & 0xFFFFFFFFFFFFFFFF)


def is_monorepo(repository: str) -> bool:
    """Whether every commit to a repository is told of all the jobs in it."""
    return bool(number_of(repository) % 2)


def is_told(root: Job, fault: Fault) -> bool:
    """Whether the events of the root's job show what has become of it, and of no other job the same."""
    voice = root.voice
    if fault.touches_rows and voice.rows:
        return True
    if fault.touches_schema and voice.schema:
        return True
    if fault.effects and voice.metrics and not fault.touches_schema:
        return True
    match fault.carrier:
        case "code":
            return voice.sql or (voice.commit and not is_monorepo(root.repository))
        case "engine":
            return voice.engine and not fault.is_shared
        case "parameter":
            return voice.parameters
        case "source":
            return fault.moment == "undelivered" and voice.versions
        case "moment":
            return fault.moment in ("fails", "missing", "late")


def struck_columns(fault: Fault, columns: dict[str, Column]) -> dict[str, Column]:
    why = Why(fault, fault.job, None, None)
    return struck(Content(0.0, 0.0, columns), fault.effects, why).columns


def _bad_parameter(job: Job) -> tuple[str, str]:
    """A setting of the job that can do harm, and a value that does."""
    harmful = [name for name, _ in job.parameters if name in _BAD_VALUES]
    name = harmful[0] if harmful else "limit"
    return name, _BAD_VALUES.get(name, "100")


def _commit(random: Luck) -> str:
    return f"{random.getrandbits(160):040x}"


def _next_version(version: str) -> str:
    *front, last = version.split(".")
    return ".".join([*front, str(int(last) + 1)])


def _further(why: Why | None) -> Why | None:
    return None if why is None else why.further()
