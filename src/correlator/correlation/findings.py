"""What is odd about the runs of the bad trace, each compared with the same job's run on the good side."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args
from uuid import UUID

import msgspec

from correlator.correlation.case import Case
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
from correlator.correlation.history import Run, Version
from correlator.correlation.past import JobPast, PastRun, facets_at, run_facets
from correlator.correlation.usual import Oddity, Sample, oddity

_ALIVE: Final = 6
"""So many counts, nearly all different, are those of a table that changes with every run."""
_OLDER: Final = 4
"""So many runs before the baseline say what changes from run to run anyway."""


Topic: TypeAlias = Literal["amount", "schema", "values"]
"""What a run may say of what it wrote."""


class Unchanged(msgspec.Struct, frozen=True):
    """A sign that what a run read was what its last run had read already."""

    sentence: str
    is_certain: bool
    """Whether the producer names the version. Equal counts alone may be chance, or the nature of the table."""


class Findings(msgspec.Struct):
    """What is odd about one run of the bad trace; datasets are those that it wrote."""

    run: Run
    distance: int
    baseline: PastRun | None
    """The run of the same job that it is compared with."""
    is_new: bool
    """Whether it is not on the good side as well."""
    code: list[CodeChange] = msgspec.field(default_factory=list)
    settings: list[SettingChange] = msgspec.field(default_factory=list)
    schemas: dict[UUID, SchemaChange] = msgspec.field(default_factory=dict)
    volumes: dict[UUID, tuple[str, Oddity]] = msgspec.field(default_factory=dict)
    """How much it wrote, of rows or bytes."""
    metrics: dict[UUID, list[MetricChange]] = msgspec.field(default_factory=dict)
    between: dict[UUID, tuple[PastRun, Oddity]] = msgspec.field(default_factory=dict)
    """Of earlier runs that went into what the next job read."""
    said: dict[Topic, set[UUID]] = msgspec.field(
        default_factory=lambda: {"amount": set(), "schema": set(), "values": set()}
    )
    """Of which datasets the run says how much it wrote, which columns they have, and what these hold."""
    unchanged: list[Unchanged] = msgspec.field(default_factory=list)
    duration: Oddity | None = None

    @property
    def is_partial(self) -> bool:
        """Whether what it wrote is what it had written when it failed."""
        return self.run.state in ("FAIL", "ABORT")


_Pair: TypeAlias = tuple[Findings, PastRun]
"""A run, and the one that it is compared with."""


def find(case: Case) -> dict[UUID, Findings]:
    """Look at every run of the bad trace."""
    found = {
        run_id: Findings(run, distance, _baseline(case, run), is_new=run_id not in case.good.distances)
        for run_id, distance in case.bad.distances.items()
        if (run := case.runs.get(run_id)) is not None
    }
    pairs = [(one, one.baseline) for one in found.values() if one.is_new and one.baseline is not None]
    older = {
        one.run.id: [past for past in case.pasts[one.run.job_id].good if past.ended_at < before.ended_at][:_OLDER]
        for one, before in pairs
    }
    _find_changes_of_set_up(case, pairs, older)
    _find_changes_of_contents(case, pairs, older)
    _find_unchanged(case, pairs)
    for one in found.values():
        if one.is_new:
            _find_amounts(case, one)
    for one, before in pairs:
        _find_between(case, one, before)
    return found


def _baseline(case: Case, run: Run) -> PastRun | None:
    """The run of the same job behind the last good result; else its last good one before."""
    past = case.pasts[run.job_id]
    of_job = [p for p in past.runs if p.id in case.good.distances and p.id != run.id]
    if of_job:
        return of_job[0]
    start = case.good.start
    before = [p for p in past.good if p.id != run.id and p.ended_at <= run.last_moment]
    well = [p for p in before if start is None or p.ended_at <= start.at]
    return next(iter(well or before), None)


def _find_changes_of_set_up(case: Case, pairs: Sequence[_Pair], older: dict[UUID, list[PastRun]]) -> None:
    """Of code, engine and parameters."""
    jobs = [(one.run.job_id, one.run.last_moment) for one, _ in pairs]
    jobs += [(one.run.job_id, before.ended_at) for one, before in pairs]
    code = facets_at(case.history, "job", jobs, CODE)
    asked = {one.run.id for one, _ in pairs} | {before.id for _, before in pairs}
    asked |= {past.id for of_run in older.values() for past in of_run}
    facets = run_facets(case.history, asked)
    for one, before in pairs:
        one.code = code_changes(code[one.run.job_id, before.ended_at], code[one.run.job_id, one.run.last_moment])
        one.settings = setting_changes(
            facets.get(before.id) or {},
            facets.get(one.run.id) or {},
            [facets.get(past.id) or {} for past in older[one.run.id]],
        )


def _find_changes_of_contents(case: Case, pairs: Sequence[_Pair], older: dict[UUID, list[PastRun]]) -> None:
    """Of schemas and of what columns hold."""
    asked: list[tuple[UUID, datetime]] = []
    for one, before in pairs:
        for version in case.bad.written[one.run.id]:
            moments = (version.at, before.ended_at, *(past.ended_at for past in older[one.run.id]))
            asked += [(version.written_as, moment) for moment in moments]
    facets = facets_at(case.history, "dataset", asked, list(_FACETS.values()))
    for one, before in pairs:
        for version in case.bad.written[one.run.id]:
            now, then = facets[version.written_as, version.at], facets[version.written_as, before.ended_at]
            change = schema_change(then.get("schema"), now.get("schema"))
            if change:
                one.schemas[version.dataset] = change
            for topic, facet in _FACETS.items():
                if facet in now:
                    one.said[topic].add(version.dataset)
            told = [
                (past.ended_at, facets[version.written_as, past.ended_at].get("dataQualityMetrics"))
                for past in (before, *older[one.run.id])
            ]
            _find_metrics(one, version, now.get("dataQualityMetrics"), told)


def _find_metrics(one: Findings, version: Version, now: Any, told: Sequence[tuple[datetime, Any]]) -> None:
    """`told` are the metrics of former runs, that of the baseline first."""
    former = [metrics for _, metrics in told]
    changes = metric_changes(former[0], now, former[1:])
    if changes:
        one.metrics[version.dataset] = changes
    rows = rows_of(now)
    if version.row_count is not None or rows is None:
        return
    one.said["amount"].add(version.dataset)
    counts = [(at, rows_of(metrics)) for at, metrics in told]
    odd = oddity(version.at, float(rows), [Sample(at, float(amount)) for at, amount in counts if amount is not None])
    if odd is not None and odd.strength:
        one.volumes[version.dataset] = ("rows", odd)


def _find_unchanged(case: Case, pairs: Sequence[_Pair]) -> None:
    """Runs that read the same as the last time: the same version by its name, the same number of rows."""
    former = {
        one.run.id: [
            past
            for past in case.pasts[one.run.job_id].good
            if past.ended_at < one.run.last_moment and past.id != one.run.id
        ][:3]
        for one, _ in pairs
    }
    asked = [run for one, _ in pairs for run in (one.run.id, *(past.id for past in former[one.run.id]))]
    versions: defaultdict[UUID, dict[UUID, str]] = defaultdict(dict)
    for run, dataset, named in case.history.rows(_VERSIONS_READ, list(dict.fromkeys(asked))):
        versions[run][dataset] = named
    for one, _ in pairs:
        if not former[one.run.id]:
            continue
        for dataset, named in versions[one.run.id].items():
            seen = [versions[past.id].get(dataset) for past in former[one.run.id]]
            if seen[0] == named and len(seen) > 1 and seen[1] != named:
                sentence = f"it read version {named[:40]} of its input, as its last run did"
                one.unchanged.append(Unchanged(sentence, is_certain=True))
        past = case.pasts[one.run.job_id]
        for version in case.bad.written[one.run.id]:
            counts = [s.amount for s in past.rows_before(version.dataset, one.run.id)[:_ALIVE]]
            is_alive = len(counts) >= _ALIVE and len(set(counts)) >= _ALIVE - 1
            if version.row_count and is_alive and version.row_count == counts[0]:
                sentence = f"it wrote {version.row_count:,} rows, exactly as many as its last run"
                one.unchanged.append(Unchanged(sentence, is_certain=False))


def _find_amounts(case: Case, one: Findings) -> None:
    """How much it wrote, and how long it took."""
    past = case.pasts[one.run.job_id]
    well = None if one.baseline is None else one.baseline.ended_at
    for version in case.bad.written[one.run.id]:
        for word, amount, before in (
            ("rows", version.row_count, past.rows_before(version.dataset, one.run.id, well)),
            ("bytes", version.byte_size, past.bytes_before(version.dataset, one.run.id, well)),
        ):
            if amount is None:
                continue
            one.said["amount"].add(version.dataset)
            odd = oddity(version.at, float(amount), before)
            if odd is not None and odd.strength and version.dataset not in one.volumes:
                one.volumes[version.dataset] = (word, odd)
    if one.run.ended_at is not None:
        seconds = (one.run.ended_at - one.run.started_at).total_seconds()
        odd = oddity(one.run.ended_at, seconds, past.durations_before(one.run.id))
        one.duration = odd if odd is not None and odd.strength else None


def _find_between(case: Case, one: Findings, before: PastRun) -> None:
    for version in case.bad.written[one.run.id]:
        if version.dataset in one.volumes:
            continue
        odd = next(odd_between(case.pasts[one.run.job_id], version, before, one.run), None)
        if odd is not None:
            one.between[version.dataset] = odd


def odd_between(past: JobPast, version: Version, baseline: PastRun, last: Run) -> Iterator[tuple[PastRun, Oddity]]:
    """The odd runs of a job after one of its runs and up to another, the first one first."""
    written = past.written.get(version.dataset, ())
    for run, rows, _ in sorted(written, key=lambda one: (one[0].ended_at, one[0].id)):
        if baseline.ended_at < run.ended_at <= last.last_moment and rows is not None and run.state == "COMPLETE":
            odd = oddity(run.ended_at, float(rows), past.rows_before(version.dataset, run.id, baseline.ended_at))
            if odd is not None and odd.strength:
                yield run, odd


_FACETS: Final[dict[Topic, str]] = {"schema": "schema", "values": "dataQualityMetrics"}

_VERSIONS_READ: Final = """
SELECT job_run_id, dataset_id, dataset_version FROM {s}.lineage_edges
WHERE job_run_id = ANY (%s::uuid[]) AND edge_type = 'input' AND dataset_version IS NOT NULL
"""
