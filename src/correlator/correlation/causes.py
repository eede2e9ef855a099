"""Which run broke it: candidates with their evidence, ranked as a person would, with the reasons.

The version that the failing test read is compared with the one behind its last good result, and so is all that went
into them. What was there when all was well is no cause (onset). What the inputs account for was passed on, not caused
(explaining away). And what a test asks tells what can make it fail (fit). A change alone is weak, because many harmless
ones happen every day; a change with an effect is strong.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from correlator.correlation.changes import (
    CODE,
    CodeChange,
    MetricChange,
    SchemaChange,
    SettingChange,
    code_changes,
    metric_changes,
    rows_of,
    schema_change,
    setting_changes,
)
from correlator.correlation.history import History, Output, Run, Use, Version
from correlator.correlation.past import JobPast, PastRun, facets_at, pasts, run_facets
from correlator.correlation.questions import FIT, Question
from correlator.correlation.usual import Oddity, Sample, cadence, oddity
from correlator.correlation.walk import Limits, Step, Trace, walk

_EXPLAINED: Final = 0.12
"""What is left of an effect that the inputs account for."""
_SHARE: Final = 0.4
"""What goes in explains what comes out when it changed by at least so much of it, on the scale of logarithms."""
_EXTREME: Final = 1.2
"""Less than a third, or more than three times."""
_VISIBLE: Final = 0.3
_MUCH: Final = 8.0
"""Times as much, or as little: nobody tunes a setting by that."""
_CONVINCING: Final = 0.4
_PER_STEP: Final = 0.97
_TOLD: Final = 5
_ALIVE: Final = 6
"""So many counts, nearly all different, are those of a table that changes with every run."""
_NOBODY: Final = UUID(int=0)
_MINUTE: Final = 60
_HOUR: Final = 3600
_MOST: Final = 20
"""Candidates in an answer."""


class Evidence(msgspec.Struct, frozen=True):
    kind: str
    subject: str
    """A job, a run or a dataset, by its name."""
    before: str | None
    after: str | None
    sentence: str


class Candidate(msgspec.Struct):
    job_id: UUID
    namespace: str
    name: str
    run: Run | None
    """None for a run that is missing."""
    distance: int
    score: float = 0.0
    evidence: list[Evidence] = msgspec.field(default_factory=list)
    reasons: list[str] = msgspec.field(default_factory=list)
    """Why it ranks where it does, beyond the evidence."""


class Failure(msgspec.Struct, frozen=True):
    """What is to be explained."""

    question: Question
    dataset: UUID
    """By its class."""
    bad: Use | Version
    """The read of the first failing result; of a run that failed, what it was to write."""
    good: Use | Version | None
    """The same for the last good one before it."""
    at: datetime


class Explanation(msgspec.Struct):
    cause: Version | None
    candidates: list[Candidate]
    bad: Trace
    good: Trace
    runs: dict[UUID, Run]


WhyRed: TypeAlias = Callable[[History, Collection[UUID], datetime, datetime], Failure | None]


class _Findings(msgspec.Struct):
    """What is odd about one run of the bad trace."""

    run: Run
    distance: int
    baseline: PastRun | None = None
    is_new: bool = True
    code: list[CodeChange] = msgspec.field(default_factory=list)
    settings: list[SettingChange] = msgspec.field(default_factory=list)
    schemas: dict[UUID, SchemaChange] = msgspec.field(default_factory=dict)
    volumes: dict[UUID, tuple[str, Oddity]] = msgspec.field(default_factory=dict)
    metrics: dict[UUID, list[MetricChange]] = msgspec.field(default_factory=dict)
    between: dict[UUID, tuple[PastRun, Oddity]] = msgspec.field(default_factory=dict)
    """Of earlier runs that went into what the next job read."""
    counted: set[UUID] = msgspec.field(default_factory=set)
    """Datasets of which the run says how much it wrote."""
    unchanged: list[str] = msgspec.field(default_factory=list)
    """Signs that what it read was what its last run had read already."""
    duration: Oddity | None = None
    is_partial: bool = False


class _Trouble(msgspec.Struct, frozen=True):
    """That a job did not deliver: its run failed, or was late, or there was none."""

    job: UUID
    failed: PastRun | None
    since: datetime
    """Its last good end."""
    due: datetime | None = None
    """When something was to be there again, if it did not fail."""


def explain(
    history: History,
    failure: Failure,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    *,
    why_red: WhyRed | None = None,
    further: int = 2,
) -> Explanation:
    """`why_red` says what failed first on some datasets within some time, and `further` how often that is asked."""
    return Explaining(history, failure, limits, why_red, further).answer()


class Explaining:
    """One question on its way to an answer."""

    def __init__(
        self, history: History, failure: Failure, limits: Limits, why_red: WhyRed | None = None, further: int = 0
    ) -> None:
        self._history = history
        self._failure = failure
        self._limits = limits
        self._why_red = why_red
        self._further = further
        bad, good = self._starts()
        columns = failure.question.columns
        self._bad, self._good = walk(history, [(bad, columns), (good, columns)], limits)
        self._runs = history.runs([*self._bad.distances, *self._good.distances])
        self._pasts = pasts(history, {run.job_id for run in self._runs.values()}, failure.at)
        self._names: dict[UUID, str] = {}
        self._findings: dict[UUID, _Findings] = {}
        self._shared: Counter[tuple[str, str, str]] = Counter()
        self._stale: set[tuple[UUID, UUID, datetime]] = set()
        """Versions that were read although something newer was due."""
        self._effects: dict[UUID, float] = {}
        """The strongest effect of each run that nothing above it explains."""

    def _starts(self) -> tuple[Version | None, Version | None]:
        sides = (self._failure.bad, self._failure.good)
        bound = iter(self._history.bind([side for side in sides if isinstance(side, Use)]))
        bad, good = (next(bound) if isinstance(side, Use) else side for side in sides)
        return bad, good

    def answer(self) -> Explanation:
        cause = self._bad.start
        if cause is None:
            return Explanation(None, [], self._bad, self._good, self._runs)
        self._find()
        self._name()
        troubles = self._troubles()
        if troubles:
            self._effects[_NOBODY] = 0.9 * FIT["stale"][self._failure.question.kind]
        for found in self._findings.values():
            self._judge(found)
        candidates = {("run", run): self._judge(found) for run, found in self._findings.items()}
        for trouble, distance, weight in troubles:
            candidate = self._trouble(trouble, distance, weight)
            _add(candidates, candidate)
            if self._further > 0 and weight == 1.0:
                self._ask_why(trouble, candidate, candidates)
        for candidate in [*self._gaps(), *self._between()]:
            _add(candidates, candidate)
        ranked = sorted(
            candidates.values(), key=lambda c: (-c.score, c.distance, c.namespace, c.name, str(c.run and c.run.id))
        )
        for candidate in ranked[:_TOLD]:
            self._find_onset(candidate)
        return Explanation(cause, ranked[:_MOST], self._bad, self._good, self._runs)

    def _between(self) -> Iterable[Candidate]:
        """Runs of which more than one went into what the next job read: those before the last may be the odd ones."""
        kind = self._failure.question.kind
        for found in self._findings.values():
            for dataset, (run, odd) in found.between.items():
                known = self._history.runs([run.id])[run.id]
                candidate = Candidate(known.job_id, known.namespace, known.name, known, found.distance)
                sentence = f"{_count(odd.amount)} rows written, {odd.amount / max(odd.usual, 1):.0%} of what is usual"
                explained = self._explains_volume(found.run.id, odd)
                candidate.evidence.append(
                    Evidence("volume", self._names.get(dataset, ""), _count(odd.usual), _count(odd.amount), sentence)
                )
                fit = FIT["less" if odd.score < 0 else "more"][kind]
                if abs(odd.log_ratio) > _EXTREME:
                    fit = max(fit, FIT["broken"][kind])
                strength = 0.8 * odd.strength * fit * (_EXPLAINED if explained else 1.0)
                candidate.score = strength * _PER_STEP**found.distance
                yield candidate

    def _find_between(self) -> None:
        for found in self._findings.values():
            if not found.is_new or found.baseline is None:
                continue
            past = self._pasts[found.run.job_id]
            for version in self._bad.written[found.run.id]:
                if version.dataset in found.volumes:
                    continue
                odd = next(iter(self._odd_between(past, version, found.baseline, found.run)), None)
                if odd is not None:
                    found.between[version.dataset] = odd

    def _odd_between(
        self, past: JobPast, version: Version, baseline: PastRun, last: Run
    ) -> Iterable[tuple[PastRun, Oddity]]:
        """The odd runs of a job after one of its runs and before another, the first one first."""
        written = past.written.get(version.dataset, ())
        for run, rows, _ in sorted(written, key=lambda one: (one[0].ended_at, one[0].id)):
            if baseline.ended_at < run.ended_at <= _end(last) and rows is not None and run.state == "COMPLETE":
                odd = oddity(run.ended_at, float(rows), past.rows_before(version.dataset, run.id))
                if odd is not None and odd.strength:
                    yield run, odd

    def _find_onset(self, candidate: Candidate) -> None:
        """Where the job ran several times since all was well: the first of its runs that shows what the last does."""
        run = candidate.run
        found = self._findings.get(run.id) if run is not None else None
        if run is None or found is None or found.baseline is None or not found.is_new:
            return
        past = self._pasts[run.job_id]
        between = [p for p in past.good if found.baseline.ended_at < p.ended_at < _end(run)]
        if not between:
            return
        first: PastRun | None = None
        for version in self._bad.written[run.id] if found.volumes else ():
            first = next((odd_run for odd_run, _ in self._odd_between(past, version, found.baseline, run)), None)
        if first is None and found.code:
            first = self._first_with_code(found, sorted(between, key=lambda p: p.ended_at))
        if first is None and found.settings:
            first = self._first_with_setting(found, sorted(between, key=lambda p: p.ended_at))
        if first is not None and first.id != run.id:
            candidate.run = self._history.runs([first.id])[first.id]
            candidate.reasons.append(
                f"the first of its runs that shows it; what was read is of the run that ended at {_end(run):%H:%M}"
            )

    def _first_with_code(self, found: _Findings, between: Sequence[PastRun]) -> PastRun | None:
        job = found.run.job_id
        code = facets_at(self._history, "job", [(job, p.ended_at) for p in between] + [(job, _end(found.run))], CODE)
        now = code[job, _end(found.run)]
        return next((p for p in between if not code_changes(code[job, p.ended_at], now)), None)

    def _first_with_setting(self, found: _Findings, between: Sequence[PastRun]) -> PastRun | None:
        facets = run_facets(self._history, [found.run.id, *(p.id for p in between)])
        wanted = {(change.facet, change.path) for change in found.settings}
        for past in between:
            changed = setting_changes(facets.get(past.id) or {}, facets.get(found.run.id) or {}, [])
            if not wanted & {(change.facet, change.path) for change in changed}:
                return past
        return None

    def _ask_why(self, trouble: _Trouble, candidate: Candidate, candidates: dict[tuple[str, UUID], Candidate]) -> None:
        """Who did not deliver may have had reasons: a red test before it, or what it read."""
        run = candidate.run
        red = None
        if (run is None or run.state == "ABORT") and self._why_red is not None:
            # It was skipped, because somebody found something.
            above = {step.use.dataset for step in self._bad.steps}
            until = self._failure.at if run is None else run.ended_at or self._failure.at
            red = self._why_red(self._history, above - {self._failure.dataset}, trouble.since, until)
        if red is None:
            if run is None or run.state == "COMPLETE":
                return
            outputs = self._history.outputs([run.id, *self._runs])
            made = [
                _attempt(run, outputs[run.id]),
                *(_attempt(r, outputs[r.id]) for r in self._runs.values() if r.job_id == run.job_id),
            ]
            versions = [version for version in made if version is not None]
            if not versions[1:]:
                return
            question = Question("run", "")
            red = Failure(question, versions[0].dataset, versions[0], versions[1], versions[0].at)
        answer = explain(self._history, red, self._limits, why_red=self._why_red, further=self._further - 1)
        others = [other for other in answer.candidates if other.job_id != trouble.job]
        best = max((other.score for other in others), default=0.0)
        if best < _CONVINCING:
            return
        candidate.score *= 1 - 0.75 * best
        candidate.reasons.append("it had its reasons further upstream")
        for other in others:
            if other.score >= _VISIBLE:
                other.distance += candidate.distance
                other.score *= 0.95
                _add(candidates, other)

    def _gaps(self) -> Iterable[Candidate]:
        """Runs that failed since the last good version and were not tried again: what they were to add is not there."""
        start = self._good.start
        if start is None or self._bad.start is None:
            return
        distances: dict[UUID, int] = {}
        for run_id, distance in self._bad.distances.items():
            if run_id in self._runs:
                job = self._runs[run_id].job_id
                distances[job] = min(distance, distances.get(job, distance))
        kind = self._failure.question.kind
        for job, distance in distances.items():
            # Of a series of failures the first.
            for failed in self._pasts[job].failed_between(start.at, self._failure.at)[-1:]:
                run = self._history.runs([failed.id])[failed.id]
                error = f": {_first_line(run.error_message)}" if run.error_message else ""
                sentence = (
                    f"{run.name} ended with {run.state} at {_end(run):%Y-%m-%d %H:%M} and was not tried again{error}"
                )
                candidate = Candidate(job, run.namespace, run.name, run, distance)
                candidate.evidence.append(Evidence("run_failed", run.name, "COMPLETE", run.state, sentence))
                candidate.score = 0.75 * FIT["failed"][kind] * _PER_STEP**distance
                yield candidate

    # What is odd

    def _find(self) -> None:
        """Look at every run of the bad trace."""
        for run_id, distance in self._bad.distances.items():
            run = self._runs.get(run_id)
            if run is not None:
                found = _Findings(run, distance, is_new=run_id not in self._good.distances)
                found.baseline = self._baseline(run)
                found.is_partial = run.state in ("FAIL", "ABORT")
                self._findings[run_id] = found
        self._find_changes()
        self._find_amounts()
        self._find_between()
        self._shared = Counter(
            (change.facet, change.path, change.after) for f in self._findings.values() for change in f.settings
        )

    def _baseline(self, run: Run) -> PastRun | None:
        """The run of the same job behind the last good result; else its last good one before."""
        past = self._pasts[run.job_id]
        of_job = [p for p in past.runs if p.id in self._good.distances and p.id != run.id]
        if of_job:
            return of_job[0]
        start = self._good.start
        before = [p for p in past.good if p.id != run.id and p.ended_at <= (run.ended_at or run.started_at)]
        well = [p for p in before if start is None or p.ended_at <= start.at]
        return next(iter(well or before), None)

    def _find_changes(self) -> None:
        pairs = [(f, f.baseline) for f in self._findings.values() if f.is_new and f.baseline is not None]
        jobs = [(f.run.job_id, _end(f.run)) for f, _ in pairs] + [(f.run.job_id, b.ended_at) for f, b in pairs]
        code = facets_at(self._history, "job", jobs, CODE)
        older = {
            f.run.id: [p.id for p in self._pasts[f.run.job_id].good if p.ended_at < b.ended_at][:4] for f, b in pairs
        }
        asked = (
            {f.run.id for f, _ in pairs} | {b.id for _, b in pairs} | {o for of_run in older.values() for o in of_run}
        )
        facets = run_facets(self._history, asked)
        datasets: list[tuple[UUID, datetime]] = []
        for f, b in pairs:
            for version in self._bad.written[f.run.id]:
                datasets += [(version.written_as, version.at), (version.written_as, b.ended_at)]
                datasets += [(version.written_as, self._ends(o)) for o in older[f.run.id]]
        schemas = facets_at(self._history, "dataset", datasets, ["schema", "dataQualityMetrics"])
        for f, b in pairs:
            f.code = code_changes(code[f.run.job_id, b.ended_at], code[f.run.job_id, _end(f.run)])
            f.settings = setting_changes(
                facets.get(b.id) or {}, facets.get(f.run.id) or {}, [facets.get(o) or {} for o in older[f.run.id]]
            )
            for version in self._bad.written[f.run.id]:
                change = schema_change(
                    schemas[version.written_as, b.ended_at].get("schema"),
                    schemas[version.written_as, version.at].get("schema"),
                )
                if change:
                    f.schemas[version.dataset] = change
                metrics = metric_changes(
                    schemas[version.written_as, b.ended_at].get("dataQualityMetrics"),
                    schemas[version.written_as, version.at].get("dataQualityMetrics"),
                    [schemas[version.written_as, self._ends(o)].get("dataQualityMetrics") for o in older[f.run.id]],
                )
                if metrics:
                    f.metrics[version.dataset] = metrics
                if version.row_count is None:
                    told = [
                        (at, rows_of(schemas[version.written_as, at].get("dataQualityMetrics")))
                        for at in (b.ended_at, *(self._ends(o) for o in older[f.run.id]))
                    ]
                    rows = rows_of(schemas[version.written_as, version.at].get("dataQualityMetrics"))
                    samples = [Sample(at, float(amount)) for at, amount in told if amount is not None]
                    odd = oddity(version.at, float(rows), samples) if rows is not None else None
                    if rows is not None:
                        f.counted.add(version.dataset)
                    if odd is not None and odd.strength:
                        f.volumes[version.dataset] = ("rows", odd)
        self._find_unchanged(pairs)

    def _ends(self, run: UUID) -> datetime:
        return next(past.ended_at for of_job in self._pasts.values() for past in of_job.runs if past.id == run)

    def _find_unchanged(self, pairs: Sequence[tuple[_Findings, PastRun]]) -> None:
        """Runs that read the same as the last time: the same version by its name, the same number of rows."""
        asked = [
            run
            for f, _ in pairs
            for run in (
                f.run.id,
                *[p.id for p in self._pasts[f.run.job_id].good if p.ended_at < _end(f.run) and p.id != f.run.id][:3],
            )
        ]
        versions: defaultdict[UUID, dict[UUID, str]] = defaultdict(dict)
        for run, dataset, version in self._history.rows(_VERSIONS_READ, list(dict.fromkeys(asked))):
            versions[run][dataset] = version
        for f, _ in pairs:
            past = self._pasts[f.run.job_id]
            former = [p for p in past.good if p.ended_at < _end(f.run) and p.id != f.run.id]
            if not former:
                continue
            for dataset, version in versions[f.run.id].items():
                seen = [versions[p.id].get(dataset) for p in former[:3]]
                if seen[0] == version and len(seen) > 1 and seen[1] != version:
                    f.unchanged.append(f"it read version {version[:40]} of its input, as its last run did")
            for version in self._bad.written[f.run.id]:
                counts = [s.amount for s in past.rows_before(version.dataset, f.run.id)[:_ALIVE]]
                is_alive = len(counts) >= _ALIVE and len(set(counts)) >= _ALIVE - 1
                if version.row_count and is_alive and version.row_count == counts[0]:
                    f.unchanged.append(f"it wrote {version.row_count:,} rows, exactly as many as its last run")

    def _find_amounts(self) -> None:
        for found in self._findings.values():
            if not found.is_new:
                continue
            past = self._pasts[found.run.job_id]
            for version in self._bad.written[found.run.id]:
                for word, amount, before in (
                    ("rows", version.row_count, past.rows_before(version.dataset, found.run.id)),
                    ("bytes", version.byte_size, past.bytes_before(version.dataset, found.run.id)),
                ):
                    if amount is not None:
                        found.counted.add(version.dataset)
                    odd = oddity(version.at, float(amount), before) if amount is not None else None
                    if odd is not None and odd.strength and version.dataset not in found.volumes:
                        found.volumes[version.dataset] = (word, odd)
            if found.run.ended_at is not None:
                seconds = (found.run.ended_at - found.run.started_at).total_seconds()
                odd = oddity(found.run.ended_at, seconds, past.durations_before(found.run.id))
                found.duration = odd if odd is not None and odd.strength else None

    # What did not come

    def _troubles(self) -> list[tuple[_Trouble, int, float]]:
        """Jobs that did not deliver what was read in an older version instead, with what is left of the blame."""
        reads = [
            (step.use.at, step.version, step.distance, self._read_before(step))
            for step in self._bad.steps
            if step.version is not None
        ]
        if self._bad.start is not None:
            good = self._failure.good
            is_same = self._good.start is not None and self._good.start.key == self._bad.start.key
            reads.append((self._failure.at, self._bad.start, 0, good.at if is_same and good is not None else None))
        upstream = self._upstream()
        found: dict[UUID, tuple[_Trouble, int, float]] = {}
        for at, version, distance, before in sorted(reads, key=lambda read: read[2]):
            run = self._runs.get(version.run)
            if run is None:
                continue
            trouble = self._trouble_of(run.job_id, version.at, at) or self._not_renewed(run.job_id, version, before, at)
            if trouble is None:
                continue
            self._stale.add(version.key)
            above = self._troubles_above(run.job_id, upstream, at)
            weight = 1.0 if not above else (0.35 if trouble.failed is None else 0.5)
            _keep(found, trouble, distance, weight)
            for further, steps in above:
                is_last = not self._troubles_above(further.job, upstream, at)
                _keep(found, further, distance + steps, 1.0 if is_last else 0.35)
        return list(found.values())

    def _read_before(self, step: Step) -> datetime | None:
        """When the same job read the same version before, on the good side."""
        reader = self._runs.get(step.use.reader)
        if reader is None or step.version is None or reader.id in self._good.distances:
            return None
        for other in self._good.steps:
            run = self._runs.get(other.use.reader)
            same = other.version is not None and other.version.key == step.version.key
            if same and run is not None and run.job_id == reader.job_id:
                return other.use.at
        return None

    def _not_renewed(self, job: UUID, version: Version, before: datetime | None, now: datetime) -> _Trouble | None:
        """Whether something new should have been there by now, since what was read had been read before."""
        if before is None or version.run not in self._good.distances:
            return None
        usual = self._pasts[job].interval(now)
        if usual is None or usual > (now - before) * 1.1:
            return None
        return _Trouble(job, self._pasts[job].failed_since(version.at, now), version.at, version.at + usual)

    def _trouble_of(self, job: UUID, last: datetime, now: datetime) -> _Trouble | None:
        past = self._pasts.get(job)
        if past is None:
            return None
        failed = past.failed_since(last, now)
        if failed is not None:
            return _Trouble(job, failed, last)
        rhythm = cadence([moment for moment in past.ended_well() if moment <= last], last)
        if rhythm is None or not rhythm.is_late(last, now):
            return None
        return _Trouble(job, None, last, last + rhythm.interval)

    def _troubles_above(
        self, job: UUID, upstream: Mapping[UUID, set[UUID]], now: datetime
    ) -> list[tuple[_Trouble, int]]:
        found: list[tuple[_Trouble, int]] = []
        seen, layer, steps = {job}, [job], 0
        while layer:
            steps += 1
            layer = [above for one in layer for above in upstream.get(one, ()) if above not in seen]
            seen.update(layer)
            still = []
            for one in dict.fromkeys(layer):
                ends = [end for end in self._pasts[one].ended_well() if end <= now]
                trouble = self._trouble_of(one, ends[-1], now) if ends else None
                if trouble is not None:
                    found.append((trouble, steps))
                    still.append(one)
            # Beyond a job that did deliver, nobody waited.
            layer = still
        return found

    def _upstream(self) -> dict[UUID, set[UUID]]:
        """Which jobs make what a job reads."""
        found: defaultdict[UUID, set[UUID]] = defaultdict(set)
        for step in self._bad.steps:
            reader = self._runs.get(step.use.reader)
            writer = self._runs.get(step.version.run) if step.version is not None else None
            if reader is not None and writer is not None and writer.job_id != reader.job_id:
                found[reader.job_id].add(writer.job_id)
        return found

    def _trouble(self, trouble: _Trouble, distance: int, weight: float) -> Candidate:
        kind = self._failure.question.kind
        run = self._history.runs([trouble.failed.id])[trouble.failed.id] if trouble.failed is not None else None
        late = self._late(trouble) if run is None else None
        told = run or late or next(run for run in self._runs.values() if run.job_id == trouble.job)
        candidate = Candidate(trouble.job, told.namespace, told.name, run or late, distance)
        last = f"{trouble.since:%Y-%m-%d %H:%M}"
        if run is not None:
            error = f": {_first_line(run.error_message)}" if run.error_message else ""
            candidate.evidence.append(
                Evidence(
                    "run_failed",
                    told.name,
                    "COMPLETE",
                    run.state,
                    f"{told.name} ended with {run.state} at {_end(run):%H:%M}{error}; what was read is from {last}",
                )
            )
        elif late is not None:
            due = f"{trouble.due:%Y-%m-%d %H:%M}"
            sentence = (
                f"{told.name} was due about {due} and ended at {_end(late):%Y-%m-%d %H:%M}, too late for the reader"
            )
            candidate.evidence.append(Evidence("late_run", told.name, due, f"{_end(late):%Y-%m-%d %H:%M}", sentence))
        else:
            candidate.evidence.append(
                Evidence(
                    "missing_run",
                    told.name,
                    last,
                    None,
                    f"{told.name} was due again after {last}, and did not run before the data was read",
                )
            )
        strength = 0.9 * max(FIT["failed"][kind] if run is not None else 0.0, FIT["stale"][kind])
        candidate.score = strength * weight * _PER_STEP**distance
        if weight < 1:
            candidate.reasons.append("something further upstream did not deliver either")
        return candidate

    def _late(self, trouble: _Trouble) -> Run | None:
        """The run that was to deliver, if it came at all: before the one after it was due."""
        if trouble.due is None:
            return None
        until = trouble.due + (trouble.due - trouble.since) * 0.7
        rows = self._history.rows(_NEXT, trouble.job, trouble.since, until)
        return self._history.runs([rows[0][0]])[rows[0][0]] if rows else None

    # What it amounts to

    def _judge(self, found: _Findings) -> Candidate:
        run, kind = found.run, self._failure.question.kind
        candidate = Candidate(run.job_id, run.namespace, run.name, run, found.distance)
        if not found.is_new:
            candidate.reasons.append("it was there when the test passed")
            candidate.score = 0.01 * _PER_STEP**found.distance
            return candidate
        reach = self._reach(run.id)
        effects = [
            *self._volume_effects(found, candidate),
            *self._schema_effects(found, candidate, reach),
            *self._metric_effects(found, candidate, reach),
            *self._stale_effects(found, candidate),
        ]
        causes = [*self._code_causes(found, candidate, reach), *self._setting_causes(found, candidate)]
        parts = [strength * FIT[name][kind] for name, strength in effects]
        strongest = self._effects[run.id] = max(parts, default=0.0)
        # A change without an effect is less likely where another has one.
        elsewhere = max((effect for other, effect in self._effects.items() if other != run.id), default=0.0)
        doubt = 1.0 if strongest > _VISIBLE else 1 - 0.6 * elsewhere
        if effects and strongest < _VISIBLE and (found.volumes or found.metrics):
            # What is odd about it came from elsewhere.
            doubt *= 0.6
        parts += [strength * FIT[name][kind] * doubt for name, strength in causes]
        if strongest > _VISIBLE and causes:
            parts.append(0.5)
            candidate.reasons.append("what changed goes with an effect")
        if found.is_partial:
            parts.append(0.85 * FIT["failed"][kind])
            candidate.evidence.insert(
                0,
                Evidence(
                    "run_failed",
                    run.name,
                    "COMPLETE",
                    run.state,
                    f"{run.name} ended with {run.state}"
                    + (f": {_first_line(run.error_message)}" if run.error_message else ""),
                ),
            )
        if found.duration is not None:
            parts.append(0.05)
            before, after = found.duration.usual, found.duration.amount
            candidate.evidence.append(
                Evidence(
                    "duration",
                    run.name,
                    _time(before),
                    _time(after),
                    f"it took {_time(after)}, usually {_time(before)}",
                )
            )
        parts.append(0.06 if found.distance == 0 else 0.02)
        score = 0.0
        for part in parts:
            score = _or(score, part)
        if reach is not None and not reach:
            score *= 0.3
            candidate.reasons.append("nothing of it is said to reach the column")
        candidate.score = score * _PER_STEP**found.distance
        return candidate

    def _reach(self, run: UUID) -> frozenset[str] | None:
        """The columns of what a run wrote that went into the one that is tested; None for not known."""
        reached: frozenset[str] = frozenset()
        for version in self._bad.written[run]:
            columns = self._bad.columns.get(version.dataset)
            if columns is None:
                return None
            reached |= columns
        return reached

    def _volume_effects(self, found: _Findings, candidate: Candidate) -> Iterable[tuple[str, float]]:
        for dataset, (word, odd) in found.volumes.items():
            explained = self._explains_volume(found.run.id, odd)
            share = f"{odd.amount / max(odd.usual, 1):.0%} of what is usual"
            candidate.evidence.append(
                Evidence(
                    "volume",
                    self._names.get(dataset, ""),
                    _count(odd.usual),
                    _count(odd.amount),
                    f"{_count(odd.amount)} {word} written, {share}"
                    + (f"; {explained} accounts for it" if explained else ""),
                )
            )
            if explained:
                candidate.reasons.append("the amount was passed on, not caused here")
            yield ("less" if odd.score < 0 else "more"), odd.strength * (_EXPLAINED if explained else 0.85)
            if not explained and abs(odd.log_ratio) > _EXTREME:
                yield "broken", 0.6

    def _explains_volume(self, run: UUID, odd: Oddity, seen: frozenset[UUID] = frozenset()) -> str | None:
        """What went into it that had changed in the same way: directly, or through runs that do not count."""
        for step in self._bad.reads_of(run):
            above = self._findings.get(step.version.run) if step.version is not None else None
            if above is None or step.version is None or above.run.id in seen:
                continue
            if step.version.key in self._stale or above.is_partial:
                return f"{self._names.get(step.use.dataset) or 'its input'}, which is not whole,"
            name = self._names.get(step.use.dataset) or "its input"
            theirs = above.volumes.get(step.use.dataset) or above.between.get(step.use.dataset)
            if theirs is not None and theirs[1].log_ratio * odd.log_ratio > 0:
                if abs(theirs[1].log_ratio) > _SHARE * abs(odd.log_ratio):
                    return name
            elif step.use.dataset in above.counted:
                continue
            further = self._explains_volume(above.run.id, odd, seen | {run})
            if further is not None:
                return further
        return None

    def _schema_effects(
        self, found: _Findings, candidate: Candidate, reach: frozenset[str] | None
    ) -> Iterable[tuple[str, float]]:
        for dataset, change in found.schemas.items():
            words = [f"{name} is gone" for name in change.removed]
            words += [f"{name} is {after}, was {before}" for name, before, after in change.retyped]
            words += [f"{name} is new" for name in change.added]
            explained = self._explains_schema(found.run.id, change)
            candidate.evidence.append(
                Evidence(
                    "schema",
                    self._names.get(dataset, ""),
                    ", ".join([*change.removed, *(f"{n}: {b}" for n, b, _ in change.retyped)]),
                    ", ".join([*change.added, *(f"{n}: {a}" for n, _, a in change.retyped)]),
                    f"schema changed: {', '.join(words)}"
                    + (f"; {explained} had changed so before" if explained else ""),
                )
            )
            if not change.broken:
                yield "schema", 0.08
            elif explained:
                candidate.reasons.append("the column vanished further upstream")
                yield "schema", 0.85 * _EXPLAINED
            else:
                column = self._failure.question.column
                hits = reach is None or bool(reach & change.broken) or column in change.broken
                yield "schema", 0.85 if hits else 0.4

    def _explains_schema(self, run: UUID, change: SchemaChange) -> str | None:
        for step in self._bad.reads_of(run):
            above = self._findings.get(step.version.run) if step.version is not None else None
            theirs = above.schemas.get(step.use.dataset) if above is not None else None
            if theirs is not None and theirs.broken and (theirs.broken & change.broken or theirs.added):
                return self._names.get(step.use.dataset, "its input")
        return None

    def _metric_effects(
        self, found: _Findings, candidate: Candidate, reach: frozenset[str] | None
    ) -> Iterable[tuple[str, float]]:
        for dataset, changes in found.metrics.items():
            for change in changes:
                explained = self._explains_metric(found.run.id, change.what)
                words = "of it are null" if change.what == "nulls" else "on average"
                before, after = _amount(change.what, change.before), _amount(change.what, change.after)
                candidate.evidence.append(
                    Evidence(
                        change.what,
                        f"{self._names.get(dataset, '')}.{change.column}",
                        before,
                        after,
                        f"{change.column}: {after} {words}, was {before}"
                        + (f"; so it was in {explained}" if explained else ""),
                    )
                )
                hits = reach is None or change.column in reach or change.column == self._failure.question.column
                yield change.what, (0.85 if hits else 0.3) * (_EXPLAINED if explained else 1.0)

    def _explains_metric(self, run: UUID, what: str) -> str | None:
        for step in self._bad.reads_of(run):
            above = self._findings.get(step.version.run) if step.version is not None else None
            if above is None:
                continue
            if any(change.what == what for change in above.metrics.get(step.use.dataset, ())):
                return self._names.get(step.use.dataset) or "its input"
        return None

    def _stale_effects(self, found: _Findings, candidate: Candidate) -> Iterable[tuple[str, float]]:
        for sentence in found.unchanged:
            candidate.evidence.append(Evidence("unchanged", found.run.name, None, None, sentence))
        if found.unchanged:
            old = [
                step
                for step in self._bad.reads_of(found.run.id)
                if step.version is not None
                and (step.version.key in self._stale or step.version.run in self._good.distances)
            ]
            if old:
                candidate.reasons.append("what it read had not changed either")
            # Equal counts alone may be chance, or the nature of the table.
            strength = 0.8 if any("version" in sentence for sentence in found.unchanged) else 0.5
            yield "stale", strength * (_EXPLAINED if old else 1.0)

    def _code_causes(
        self, found: _Findings, candidate: Candidate, reach: frozenset[str] | None
    ) -> Iterable[tuple[str, float]]:
        wanted = {name.lower() for name in reach or ()} | {self._failure.question.column.lower()} - {""}
        strengths = []
        for change in found.code:
            candidate.evidence.append(
                Evidence("code", found.run.name, change.before, change.after, _code_sentence(change))
            )
            strength = 0.48
            if change.words and wanted:
                strength = 0.8 if change.words & wanted else 0.3
                if change.words & wanted:
                    candidate.reasons.append("the change touches the column")
            strengths.append(strength)
        # A new version beside a new text is the same deploy.
        if strengths:
            yield "code", max(strengths)

    def _setting_causes(self, found: _Findings, candidate: Candidate) -> Iterable[tuple[str, float]]:
        for change in found.settings:
            kind = "engine" if change.is_engine else "parameter"
            candidate.evidence.append(
                Evidence(
                    kind,
                    found.run.name,
                    change.before,
                    change.after,
                    f"{change.path} of {change.facet} is {change.after}, was {change.before}",
                )
            )
        if found.settings:
            # What many have in common did most of them no harm.
            common = min(self._shared[change.facet, change.path, change.after] for change in found.settings)
            rare = 0.5 if all(change.is_engine for change in found.settings) else 0.55
            if any(change.factor > _MUCH for change in found.settings):
                rare = 0.65
            yield "setting", rare / (1 + 0.25 * (common - 1))

    def _name(self) -> None:
        wanted = {version.written_as for versions in self._bad.written.values() for version in versions}
        rows = self._history.rows("SELECT id, dataset_name FROM {s}.datasets WHERE id = ANY (%s::uuid[])", list(wanted))
        names = dict(rows)
        for versions in self._bad.written.values():
            for version in versions:
                self._names.setdefault(version.dataset, names.get(version.written_as, ""))


def _add(candidates: dict[tuple[str, UUID], Candidate], candidate: Candidate) -> None:
    """What is said twice is not twice as sure."""
    key = ("missing", candidate.job_id) if candidate.run is None else ("run", candidate.run.id)
    known = candidates.get(key)
    if known is None:
        candidates[key] = candidate
    else:
        known.score = max(known.score, candidate.score)
        told = {evidence.sentence for evidence in known.evidence}
        if not any(evidence.kind == "run_failed" for evidence in known.evidence):
            known.evidence = [e for e in candidate.evidence if e.sentence not in told] + known.evidence


def _attempt(run: Run, outputs: Sequence[Output]) -> Version | None:
    """What a run wrote, or was to write."""
    for out in outputs[:1]:
        return Version(out.dataset, run.id, _end(run), out.name, out.row_count, out.byte_size, None, "attempt")
    return None


def _keep(found: dict[UUID, tuple[_Trouble, int, float]], trouble: _Trouble, distance: int, weight: float) -> None:
    known = found.get(trouble.job)
    if known is None or known[2] < weight:
        found[trouble.job] = (trouble, distance, weight)


def _end(run: Run) -> datetime:
    return run.ended_at or run.started_at


def _or(one: float, other: float) -> float:
    """That one of two independent reasons holds."""
    return 1 - (1 - one) * (1 - min(other, 0.99))


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else ""


def _code_sentence(change: CodeChange) -> str:
    if change.facet == "sourceCodeLocation":
        return f"new code version {change.after[:40]}, was {change.before[:40]}"
    return "the SQL changed" if change.facet == "sql" else "the source code changed"


def _count(amount: float) -> str:
    return f"{round(amount):,}"


def _time(seconds: float) -> str:
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE:.0f} min" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f} h"


def _amount(what: str, value: float) -> str:
    return f"{value:.1%}" if what == "nulls" else f"{value:,.4g}"


_NEXT: Final = """
SELECT id FROM {s}.job_runs
WHERE job_id = %s AND started_at > %s AND started_at < %s AND ended_at IS NOT NULL
ORDER BY started_at, id LIMIT 1
"""

_VERSIONS_READ: Final = """
SELECT job_run_id, dataset_id, dataset_version FROM {s}.lineage_edges
WHERE job_run_id = ANY (%s::uuid[]) AND edge_type = 'input' AND dataset_version IS NOT NULL
"""
