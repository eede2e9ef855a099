"""Runs that should have been by now: jobs that say which moments their runs are for, and have left one out."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import psycopg
from msgspec import Meta, Struct

from correlator.correlation.ignored import Ignored, sql_of_jobs
from correlator.correlation.usual import cadence
from correlator.store.moments import Moment

HEARD_OF_WITHIN: Final = timedelta(days=30)
"""Who was not heard of for longer has been retired."""
_LAST: Final = 20
"""Runs of a job that its rhythm is learned from."""


class MissingRun(Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    last_nominal_time: Moment
    missing_nominal_time: Annotated[Moment, Meta(description="What the first run that is missing would be for.")]
    due_at: Annotated[Moment, Meta(description="When such a run usually begins.")]
    missing: Annotated[int, Meta(ge=1, description="How many runs should have begun by now.")]
    interval_s: Annotated[float, Meta(description="From one run to the next, as is usual.")]


# For each job the end of one index range: what this costs follows the jobs, not their runs.
_NOMINAL_TIMES: Final = f"""
SELECT job.job_namespace, job.job_name, last.nominal_times, last.delays
FROM jobs AS job
CROSS JOIN LATERAL (
    SELECT array_agg(run.nominal_time ORDER BY run.nominal_time) AS nominal_times,
           array_agg(run.started_at - run.nominal_time ORDER BY run.nominal_time) AS delays
    FROM (
        SELECT nominal_time, started_at FROM job_runs WHERE job_id = job.id ORDER BY started_at DESC LIMIT {_LAST}
    ) AS run
    WHERE run.nominal_time IS NOT NULL
) AS last
WHERE job.last_event_at > %(since)s AND last.nominal_times IS NOT NULL
  AND {sql_of_jobs("job.job_namespace", "job.job_name")}
"""  # noqa: S608 (constants)


def missing_runs(connection: psycopg.Connection[Any], now: datetime, limit: int) -> list[MissingRun]:
    """As of a moment up to which the facts are complete; who has been missing longest comes first."""
    values = {"since": now - HEARD_OF_WITHIN} | Ignored.load(connection).parameters
    found: list[MissingRun] = []
    for namespace, name, moments, delays in connection.execute(_NOMINAL_TIMES.encode(), values):
        found += _missing(namespace, name, moments, sorted(delays), now)
    return sorted(found, key=lambda one: (one.due_at, one.namespace, one.name))[:limit]


def _missing(
    namespace: str, name: str, moments: Sequence[datetime], delays: Sequence[timedelta], now: datetime
) -> Iterator[MissingRun]:
    distinct = sorted(set(moments))
    rhythm = cadence(distinct, distinct[-1])
    if rhythm is None:
        return
    # A run for a day may begin when the day is over, or hours later, or at its start.
    usual, often = delays[len(delays) // 2], delays[len(delays) * 3 // 4]
    due_at = distinct[-1] + rhythm.interval + usual
    if now <= due_at + rhythm.slack + (often - usual):
        return
    yield MissingRun(
        namespace=namespace,
        name=name,
        last_nominal_time=distinct[-1],
        missing_nominal_time=distinct[-1] + rhythm.interval,
        due_at=due_at,
        missing=1 + int((now - due_at) / rhythm.interval),
        interval_s=rhythm.interval.total_seconds(),
    )
