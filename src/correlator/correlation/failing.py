"""Which versions failed: what the failing results of an incident read, and what ended it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from correlator.correlation.case import attempt
from correlator.correlation.history import History, Use, Version
from correlator.correlation.ids import Id
from correlator.correlation.incidents import Incident

MOST: Final = 200
"""Failures of one incident that are looked at, the first ones: who fails every minute for weeks says nothing new."""


class Failed(msgspec.Struct, frozen=True):
    """A failure, and the version that failed."""

    failure: Id
    at: datetime
    version: Version


def failed_versions(history: History, incidents: Sequence[Incident], most: int = MOST) -> dict[Id, list[Failed]]:
    """Of each incident, in order of time. What nobody is known to have written is not among them.

    Of a job's runs that failed, what they wrote all the same: most of them wrote nothing.
    """
    found: dict[Id, list[Failed]] = {one.id: [] for one in incidents}
    tests = [one.id for one in incidents if one.kind == "test" and one.dataset_id is not None]
    rows = history.rows(_OF_TESTS, most, tests) if tests else []
    for (incident, failure, at, *_), version in zip(rows, _bound(history, [row[3:] for row in rows]), strict=True):
        if version is not None:
            found[incident].append(Failed(failure, at, version))
    jobs = [one.id for one in incidents if one.kind == "run"]
    rows = history.rows(_OF_JOBS, most, jobs) if jobs else []
    classes = history.classes(row[4] for row in rows)
    for incident, failure, at, run, dataset, used_at, row_count, byte_size in rows:
        version = Version(classes[dataset], run, used_at, dataset, row_count, byte_size, None, "partial")
        found[incident].append(Failed(failure, at, version))
    return found


def last_failed_versions(history: History, incidents: Sequence[Incident]) -> dict[Id, Version]:
    """What the last failure of each was about, as far as it is known who wrote it, or was to."""
    tests = [one.id for one in incidents if one.kind == "test" and one.dataset_id is not None]
    rows = history.rows(_LAST_OF_TESTS, tests) if tests else []
    bound = _bound(history, [row[1:] for row in rows])
    found = {incident: version for (incident, *_), version in zip(rows, bound, strict=True) if version is not None}
    jobs = [one.id for one in incidents if one.kind == "run"]
    last = dict(history.rows(_LAST_RUNS, jobs)) if jobs else {}
    runs, outputs = history.runs(last.values()), history.outputs(last.values())
    for incident, run in last.items():
        version = attempt(runs[run], outputs[run]) if run in runs else None
        if version is not None:
            found[incident] = version
    return found


def passed_versions(history: History, incidents: Sequence[Incident]) -> dict[Id, Version]:
    """The versions with which it was over, of incidents that a pass has ended."""
    ended = [one.id for one in incidents if one.resolved_by == "pass" and one.kind == "test"]
    rows = history.rows(_PASSED, ended) if ended else []
    bound = _bound(history, [row[1:] for row in rows])
    return {incident: version for (incident, *_), version in zip(rows, bound, strict=True) if version is not None}


def _bound(history: History, reads: Sequence[tuple[Id, Id, datetime, bool, str | None]]) -> list[Version | None]:
    """Of reader, dataset, moment, whether it is the reader's own output, and the version that it names."""
    classes = history.classes(dataset for _, dataset, _, _, _ in reads)
    return history.bind(
        [Use(run, classes[dataset], at, version, own, is_test=True) for run, dataset, at, own, version in reads]
    )


_WHAT_IT_READ: Final = """
JOIN {s}.job_runs AS run ON run.id = failure.job_run_id
LEFT JOIN {s}.test_results AS said ON said.job_run_id = failure.job_run_id AND said.test_id = incident.test_id
LEFT JOIN {s}.lineage_edges AS read
    ON read.job_run_id = failure.job_run_id AND read.dataset_id = incident.dataset_id AND read.edge_type = 'input'
WHERE incident.id = ANY (%s::uuid[])
"""
_LAST_FAILURE: Final = """
CROSS JOIN LATERAL (
    SELECT job_run_id FROM {s}.failures WHERE incident_id = incident.id ORDER BY at DESC, job_run_id DESC LIMIT 1
) AS failure
"""

# One range of the incident's failures, then a few probes for each.
_OF_TESTS: Final = (
    """
SELECT incident.id, failure.id, failure.at, failure.job_run_id, incident.dataset_id, run.started_at,
       coalesce(said.of_own_output, false), read.dataset_version
FROM {s}.incidents AS incident
CROSS JOIN LATERAL (
    SELECT id, at, job_run_id FROM {s}.failures
    WHERE incident_id = incident.id ORDER BY at, job_run_id LIMIT %s
) AS failure
"""  # noqa: S608 (constants)
    + _WHAT_IT_READ
    + "ORDER BY incident.id, failure.at, failure.id"
)

_LAST_OF_TESTS: Final = (
    """
SELECT incident.id, failure.job_run_id, incident.dataset_id, run.started_at, coalesce(said.of_own_output, false),
       read.dataset_version
FROM {s}.incidents AS incident"""
    + _LAST_FAILURE
    + _WHAT_IT_READ
)

_LAST_RUNS: Final = (
    "SELECT incident.id, failure.job_run_id FROM {s}.incidents AS incident"  # noqa: S608 (constants)
    + _LAST_FAILURE
    + "WHERE incident.id = ANY (%s::uuid[])"
)

_OF_JOBS: Final = """
SELECT incident.id, failure.id, failure.at, written.job_run_id, written.dataset_id, written.used_at,
       written.row_count, written.byte_size
FROM {s}.incidents AS incident
CROSS JOIN LATERAL (
    SELECT id, at, job_run_id FROM {s}.failures
    WHERE incident_id = incident.id ORDER BY at, job_run_id LIMIT %s
) AS failure
JOIN {s}.lineage_edges AS written
    ON written.job_run_id = failure.job_run_id AND written.edge_type = 'output' AND written.used_at IS NOT NULL
WHERE incident.id = ANY (%s::uuid[])
ORDER BY incident.id, failure.at, failure.id, written.dataset_id
"""

_PASSED: Final = """
SELECT incident.id, said.job_run_id, incident.dataset_id, run.started_at, said.of_own_output, read.dataset_version
FROM {s}.incidents AS incident
CROSS JOIN LATERAL (
    SELECT job_run_id, of_own_output FROM {s}.standing_results
    WHERE test_id = incident.test_id AND event_time = incident.resolved_at AND status = 'pass'
    ORDER BY job_run_id LIMIT 1
) AS said
JOIN {s}.job_runs AS run ON run.id = said.job_run_id
LEFT JOIN {s}.lineage_edges AS read
    ON read.job_run_id = said.job_run_id AND read.dataset_id = incident.dataset_id AND read.edge_type = 'input'
WHERE incident.id = ANY (%s::uuid[]) AND incident.dataset_id IS NOT NULL
"""
