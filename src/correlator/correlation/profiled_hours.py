"""What a job that runs several times a day says of the contents of each hour: the trace knows the last of them alone.

The hours since all was well are in what the next job read. By the last of them all may be as it should be again.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from correlator.correlation.case import Case
from correlator.correlation.changes import rows_of
from correlator.correlation.findings import Pair
from correlator.correlation.history import Version
from correlator.correlation.ids import Id
from correlator.correlation.metrics import METRICS, news
from correlator.correlation.past import MOST_RUNS
from correlator.correlation.usual import odd

_DAY: Final = timedelta(days=1)
_FEWEST: Final = 4
_MOST_DATASETS: Final = 4
"""Of which it is asked, the nearest first: each is a range of an index of some hundred entries."""


def find_profiled_hours(case: Case, pairs: Sequence[Pair]) -> None:
    """Where the last one says what it wrote."""
    asked = [
        (pair, version)
        for pair in sorted(pairs, key=lambda pair: (pair.found.distance, pair.found.run.id))
        if pair.found.said["values"] and _runs_several_times_a_day(case, pair)
        for version in case.bad.written[pair.found.run.id]
        if version.dataset in pair.found.said["values"]
    ][:_MOST_DATASETS]
    if not asked:
        return
    said = _said(case, [(version.written_as, pair.found.run.last_moment) for pair, version in asked])
    for pair, version in asked:
        _look_back(case, pair, version, said[version.written_as])


def _runs_several_times_a_day(case: Case, pair: Pair) -> bool:
    good = case.pasts[pair.found.run.job_id].good
    return len(good) >= _FEWEST and len(good) > 2 * ((good[0].ended_at - good[-1].ended_at) / _DAY + 1)


def _look_back(case: Case, pair: Pair, version: Version, said: dict[Id, Any]) -> None:
    one, dataset, before = pair.found, version.dataset, pair.before
    if one.run.id not in said or before.id not in said:
        return
    past = case.pasts[one.run.job_id]
    told = [(run, said[run.id]) for run in past.good if run.id in said and run.id != one.run.id]
    since = [(run, metrics) for run, metrics in told if before.ended_at < run.ended_at < one.run.last_moment]
    then = [(run.ended_at, metrics) for run, metrics in told if run.ended_at <= before.ended_at]
    for run, metrics in reversed(since) if dataset not in one.metrics else ():
        changes = news(run.ended_at, metrics, then)
        if changes:
            one.metrics_between[dataset] = (run, changes)
            break
    rows = rows_of(said[one.run.id])
    if version.row_count is None and rows is not None and not past.written.get(dataset):
        # Who counts rows in a profile alone is compared by that, hour by hour like all others.
        past.written[dataset] = [(run, rows_of(metrics), None) for run, metrics in told]
        one.volumes.pop(dataset, None)
        found = odd(version.at, float(rows), past.rows_before(dataset, one.run.last_moment, before.ended_at))
        if found is not None:
            one.volumes[dataset] = ("rows", found)


def _said(case: Case, asked: Sequence[tuple[Id, datetime]]) -> dict[Id, dict[Id, Any]]:
    """Of each dataset what runs said themselves: what a check says once a day stands for all hours after it."""
    found: defaultdict[Id, dict[Id, Any]] = defaultdict(dict)
    columns = [list(column) for column in zip(*asked, strict=True)]
    for dataset, run, body in case.history.rows(_SAID, *columns, MOST_RUNS):
        found[dataset].setdefault(run, body)
    return found


# Of each dataset the end of one index range.
_SAID: Final = f"""
SELECT asked.dataset_id, said.job_run_id, body.body
FROM unnest(%s::uuid[], %s::timestamptz[]) AS asked (dataset_id, until)
CROSS JOIN LATERAL (
    SELECT job_run_id, body_digest, last_at FROM {{s}}.facet_history
    WHERE entity_id = asked.dataset_id AND entity_kind = 'dataset' AND facet_key = '{METRICS}' AND hour <= asked.until
    ORDER BY hour DESC, job_run_id DESC, body_digest DESC LIMIT %s
) AS said
JOIN {{s}}.facet_bodies AS body ON body.digest = said.body_digest
ORDER BY said.last_at DESC
"""  # noqa: S608 (constants)
