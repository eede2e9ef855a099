"""How tests and jobs did lately: one mark for each result or run."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from correlator.correlation.history import History
from correlator.correlation.ids import Id

MOST_TICKS: Final = 20


class Tick(msgspec.Struct, frozen=True, array_like=True):
    """One result of a test, or one run of a job, in the line of those before it."""

    at: datetime
    status: Annotated[str, Meta(description="`pass`, `fail`, `warn` or `skip`; of a run its state.")]


def ticks_of_tests(history: History, tests: Iterable[Id], most: int = MOST_TICKS) -> dict[Id, list[Tick]]:
    """The last results of each, the oldest first."""
    return _ticks(history, tests, _RESULTS, most, most, most)


def ticks_of_jobs(history: History, jobs: Iterable[Id], most: int = MOST_TICKS) -> dict[Id, list[Tick]]:
    """The last runs of each, the oldest first."""
    return _ticks(history, jobs, _RUNS, most)


def _ticks(history: History, subjects: Iterable[Id], query: str, *limits: int) -> dict[Id, list[Tick]]:
    found: dict[Id, list[Tick]] = {subject: [] for subject in subjects}
    for subject, moments, statuses in history.rows(query, list(found), *limits):
        found[subject] = [Tick(at, status) for at, status in zip(moments, statuses, strict=True)]
    return found


# The ends of two index ranges for each test, and of one for each job. A row of each: there are a thousand ticks.
_RESULTS: Final = """
SELECT asked.test_id, array_agg(lately.event_time ORDER BY lately.event_time),
       array_agg(lately.status ORDER BY lately.event_time)
FROM unnest(%s::uuid[]) AS asked (test_id)
CROSS JOIN LATERAL (
    SELECT event_time, status FROM (
        (SELECT event_time, status FROM {s}.test_results
         WHERE test_id = asked.test_id AND dataset_id IS NOT NULL ORDER BY event_time DESC, job_run_id DESC LIMIT %s)
        UNION ALL
        (SELECT event_time, status FROM {s}.implied_results
         WHERE test_id = asked.test_id ORDER BY event_time DESC, job_run_id DESC LIMIT %s)
    ) AS either ORDER BY event_time DESC LIMIT %s
) AS lately
GROUP BY asked.test_id
"""
_RUNS: Final = """
SELECT asked.job_id, array_agg(lately.started_at ORDER BY lately.started_at),
       array_agg(lately.current_state ORDER BY lately.started_at)
FROM unnest(%s::uuid[]) AS asked (job_id)
CROSS JOIN LATERAL (
    SELECT started_at, current_state FROM {s}.job_runs
    WHERE job_id = asked.job_id ORDER BY started_at DESC, id DESC LIMIT %s
) AS lately
GROUP BY asked.job_id
"""
