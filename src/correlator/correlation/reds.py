"""Red tests along the way: which of some versions have failed a test."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from correlator.correlation.history import History, Use, Version

Key: TypeAlias = tuple[UUID, UUID, datetime]

_MOST: Final = 50
"""Failures of one incident that are looked at, from the version's moment on."""


class Red(msgspec.Struct, frozen=True):
    """That a test failed on a version."""

    incident: UUID
    version: Key
    opened_at: datetime
    """Of the incident, as what follows."""
    resolved_at: datetime | None
    severity: str


def reds(history: History, versions: Iterable[Version]) -> dict[Key, list[Red]]:
    """The incidents whose tests have failed on each of some versions, the first first."""
    wanted = {version.key: version for version in versions}
    first: dict[UUID, datetime] = {}
    for one in wanted.values():
        first[one.dataset] = min(one.at, first.get(one.dataset, one.at))
    members = history.members(first)
    asked = [(name, at) for of_class, at in first.items() for name in members[of_class]]
    if not asked:
        return {}
    rows = history.rows(_FAILED, [name for name, _ in asked], [at for _, at in asked], _MOST)
    classes = history.classes(row[4] for row in rows)
    uses = [
        Use(run, classes[dataset], started_at, named, own, is_test=True)
        for _, _, _, _, dataset, run, started_at, own, named in rows
    ]
    found: dict[Key, dict[UUID, Red]] = {}
    for (incident, opened_at, resolved_at, severity, *_), version in zip(rows, history.bind(uses), strict=True):
        if version is not None and version.key in wanted:
            red = Red(incident, version.key, opened_at, resolved_at, severity)
            found.setdefault(version.key, {}).setdefault(incident, red)
    return {
        key: sorted(by_incident.values(), key=lambda red: (red.opened_at, red.incident))
        for key, by_incident in found.items()
    }


# The incidents of each dataset, then a short range of the failures of those that were not over by then. A task may
# check its work a day before it ends, and be stamped before what it checked.
_FAILED: Final = """
SELECT incident.id, incident.opened_at, incident.resolved_at, incident.severity, incident.dataset_id,
       failure.job_run_id, run.started_at, coalesce(said.of_own_output, false), read.dataset_version
FROM unnest(%s::uuid[], %s::timestamptz[]) AS asked (dataset_id, at)
JOIN {s}.incidents AS incident ON incident.dataset_id = asked.dataset_id AND incident.kind = 'test'
    AND incident.last_failed_at >= asked.at - interval '1 day'
CROSS JOIN LATERAL (
    SELECT job_run_id, at FROM {s}.failures
    WHERE incident_id = incident.id AND at >= asked.at - interval '1 day' ORDER BY at, job_run_id LIMIT %s
) AS failure
JOIN {s}.job_runs AS run ON run.id = failure.job_run_id
LEFT JOIN {s}.test_results AS said ON said.job_run_id = failure.job_run_id AND said.test_id = incident.test_id
LEFT JOIN {s}.lineage_edges AS read
    ON read.job_run_id = failure.job_run_id AND read.dataset_id = incident.dataset_id AND read.edge_type = 'input'
ORDER BY incident.opened_at, incident.id, failure.at, failure.job_run_id
"""
