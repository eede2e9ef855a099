"""What columns held, and how many rows there were, as `dataQualityMetrics` facets say.

Whoever writes a dataset may say so of it, or whoever reads it then: profilers and checks are readers.
"""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from correlator.correlation.case import Case
from correlator.correlation.changes import MetricChange, metric_changes, rows_of
from correlator.correlation.findings import Findings, Pair
from correlator.correlation.history import Version
from correlator.correlation.ids import Id
from correlator.correlation.past import PastRun, facets_at
from correlator.correlation.usual import Samples, is_weekend, oddity

METRICS: Final = "dataQualityMetrics"
_SWINGS: Final = 4
"""Former runs that tell what swings from run to run,"""
_WEEKS: Final = 20
"""and those that tell how many rows are usual."""
_Look: TypeAlias = tuple[Id, Id, datetime, datetime]
"""A dataset, the run that wrote it, when, and until when that was what there is."""


def find_metrics(case: Case, pairs: Sequence[Pair]) -> None:
    looks = {
        (pair.found.run.id, version.dataset): _look(case, pair.found.run.job_id, version, version.run, version.at)
        for pair in pairs
        for version in case.bad.written[pair.found.run.id]
    }
    now = _said(case, list(looks.values()))
    former: dict[tuple[Id, Id], list[tuple[PastRun, _Look]]] = {}
    for pair in pairs:
        for version in case.bad.written[pair.found.run.id]:
            key = pair.found.run.id, version.dataset
            if looks[key] in now:
                former[key] = [
                    (past, _look(case, pair.found.run.job_id, version, past.id, past.ended_at))
                    for past in (pair.before, *_older(case, pair))
                ]
    # Few say so: what was before is asked for where something is said now.
    then = _said(case, [look for looks_back in former.values() for _, look in looks_back])
    for pair in pairs:
        for version in case.bad.written[pair.found.run.id]:
            key = pair.found.run.id, version.dataset
            if key in former:
                told = [(past.ended_at, then.get(look)) for past, look in former[key]]
                _compare(pair.found, version, now[looks[key]], told)


def _older(case: Case, pair: Pair) -> list[PastRun]:
    """So many that each weekday is among them: a Sunday is no quiet Friday."""
    return case.pasts[pair.found.run.job_id].good_before(pair.before.ended_at)[:_WEEKS]


def _look(case: Case, job: Id, version: Version, run: Id, at: datetime) -> _Look:
    ends = case.pasts[job].ended_well()
    following = bisect_right(ends, at)
    until = ends[following] if following < len(ends) else case.failure.at + timedelta(days=1)
    return version.written_as, run, at, until


def _said(case: Case, looks: Sequence[_Look]) -> dict[_Look, Any]:
    """By the writer, in the facets of the dataset or of the output; else by the first reader who says it."""
    if not looks:
        return {}
    stood = facets_at(case.history, "dataset", [(dataset, at) for dataset, _, at, _ in looks], [METRICS])
    found = {look: stood[look[0], look[2]][METRICS] for look in looks if METRICS in stood[look[0], look[2]]}
    asked = [look for look in looks if look not in found]
    if asked:
        columns = [list(column) for column in zip(*asked, strict=True)]
        rows = case.history.rows(_OF_EDGES, *columns)
        found.update((asked[number - 1], metrics) for number, metrics in rows)
    return found


def _compare(one: Findings, version: Version, now: Any, told: Sequence[tuple[datetime, Any]]) -> None:
    """`told` are the metrics of former runs, that of the baseline first."""
    one.said["values"].add(version.dataset)
    changes = news(version.at, now, told)
    if changes:
        one.metrics[version.dataset] = changes
    rows = rows_of(now)
    if version.row_count is not None or rows is None:
        return
    one.said["amount"].add(version.dataset)
    counts = [(at, rows_of(metrics)) for at, metrics in told]
    before = Samples.of([(at, float(amount)) for at, amount in counts if amount is not None])
    odd = oddity(version.at, float(rows), before)
    if odd is not None and odd.strength:
        one.volumes[version.dataset] = ("rows", odd)


def news(at: datetime, now: Any, told: Sequence[tuple[datetime, Any]]) -> list[MetricChange]:
    """What has changed since the first of those told of, and does not swing from one to the next anyway."""
    former = [metrics for _, metrics in told]
    changes = metric_changes(former[0], now, former[1 : 1 + _SWINGS])
    # A Saturday's sum is no news after a Friday's, where it was so on the Sunday before; nor is what was so a week ago.
    for kind in (is_weekend, datetime.weekday):
        alike = [metrics for when, metrics in told if kind(when) == kind(at) and metrics is not None]
        if changes and alike and kind(told[0][0]) != kind(at):
            still = {(change.column, change.what) for change in metric_changes(alike[0], now, alike[1 : 1 + _SWINGS])}
            changes = [change for change in changes if (change.column, change.what) in still]
    return changes


# One probe of the writer's edge, and a short range of the reads that followed.
_OF_EDGES: Final = f"""
SELECT asked.number, coalesce(own.metrics, read.metrics)
FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[], %s::timestamptz[])
    WITH ORDINALITY AS asked (dataset_id, run_id, at, until, number)
LEFT JOIN LATERAL (
    SELECT facets -> '{METRICS}' AS metrics FROM {{s}}.lineage_edges
    WHERE job_run_id = asked.run_id AND dataset_id = asked.dataset_id AND edge_type = 'output'
) AS own ON true
LEFT JOIN LATERAL (
    SELECT reads.metrics FROM (
        SELECT facets -> '{METRICS}' AS metrics, used_at, job_run_id FROM {{s}}.lineage_edges
        WHERE dataset_id = asked.dataset_id AND edge_type = 'input' AND used_at >= asked.at AND used_at < asked.until
        ORDER BY used_at, job_run_id LIMIT 10
    ) AS reads
    WHERE reads.metrics IS NOT NULL ORDER BY reads.used_at, reads.job_run_id LIMIT 1
) AS read ON true
WHERE coalesce(own.metrics, read.metrics) IS NOT NULL
"""  # noqa: S608 (constants)
