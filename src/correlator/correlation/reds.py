"""Red tests along the way: which of some versions have failed a test."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from correlator.correlation.history import History, Use, Version
from correlator.correlation.ids import Id

Key: TypeAlias = tuple[Id, Id, datetime]

_EVER: Final = datetime.min.replace(tzinfo=UTC)
_ALWAYS: Final = datetime.max.replace(tzinfo=UTC)
_MOST: Final = 50
"""Incidents of one dataset that are looked at, the last ones; and failures of each, from the version's moment on."""


class Red(msgspec.Struct, frozen=True):
    """That a test failed on a version."""

    incident: Id
    version: Key
    opened_at: datetime
    """Of the incident, as what follows."""
    resolved_at: datetime | None
    severity: str
    test: str
    """By its name, as far as one is told."""
    column: str
    at: datetime
    """When it failed on that version first."""


def reds(
    history: History, versions: Iterable[Version], since: datetime = _EVER, until: datetime = _ALWAYS
) -> dict[Key, list[Red]]:
    """The incidents whose tests have failed on each of some versions, the first first, if they began in some time."""
    wanted = {version.key: version for version in versions}
    first: dict[Id, datetime] = {}
    for one in wanted.values():
        first[one.dataset] = min(one.at, first.get(one.dataset, one.at))
    members = history.members(first)
    asked = [(name, at) for of_class, at in first.items() for name in members[of_class]]
    if not asked:
        return {}
    rows = history.rows(_FAILED, [name for name, _ in asked], [at for _, at in asked], since, until, _MOST, _MOST)
    classes = history.classes(row[7] for row in rows)
    uses = [
        Use(run, classes[dataset], started_at, named, own, is_test=True)
        for *_, dataset, run, started_at, own, named in rows
    ]
    found: dict[Key, dict[Id, Red]] = {}
    for (incident, opened_at, *told), version in zip((row[:7] for row in rows), history.bind(uses), strict=True):
        if version is not None and version.key in wanted:
            red = Red(incident, version.key, opened_at, *told)
            found.setdefault(version.key, {}).setdefault(incident, red)
    return {
        key: sorted(by_incident.values(), key=lambda red: (red.opened_at, red.incident))
        for key, by_incident in found.items()
    }


# The last incidents of each dataset, then a short range of the failures of those that were not over by then, and probes
# for each. A task may check its work a day before it ends, and be stamped before what it checked.
_FAILED: Final = """
SELECT incident.id, incident.opened_at, incident.resolved_at, incident.severity,
       coalesce(said.test_name, run.job_name), coalesce(said.column_name, ''), failure.at, asked.dataset_id,
       failure.job_run_id, run.started_at, coalesce(said.of_own_output, false), read.dataset_version
FROM unnest(%s::uuid[], %s::timestamptz[]) AS asked (dataset_id, at)
CROSS JOIN LATERAL (
    SELECT id, test_id, opened_at, resolved_at, last_failed_at, severity FROM {s}.incidents
    WHERE dataset_id = asked.dataset_id AND kind = 'test' AND opened_at > %s AND opened_at <= %s
    ORDER BY opened_at DESC LIMIT %s
) AS incident
CROSS JOIN LATERAL (
    SELECT job_run_id, at FROM {s}.failures
    WHERE incident_id = incident.id AND at >= asked.at - interval '1 day' ORDER BY at, job_run_id LIMIT %s
) AS failure
CROSS JOIN LATERAL (SELECT job_name, started_at FROM {s}.job_runs WHERE id = failure.job_run_id LIMIT 1) AS run
LEFT JOIN LATERAL (
    SELECT of_own_output, test_name, column_name FROM {s}.test_results
    WHERE job_run_id = failure.job_run_id AND test_id = incident.test_id LIMIT 1
) AS said ON true
LEFT JOIN LATERAL (
    SELECT dataset_version FROM {s}.lineage_edges
    WHERE job_run_id = failure.job_run_id AND dataset_id = asked.dataset_id AND edge_type = 'input' LIMIT 1
) AS read ON true
WHERE incident.last_failed_at >= asked.at - interval '1 day'
ORDER BY incident.opened_at, incident.id, failure.at, failure.job_run_id
"""
