"""An incident as it stands in the tables, and what there is to explain about it."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from correlator.correlation.case import Failure, attempt
from correlator.correlation.causes import Explanation, explain
from correlator.correlation.history import History, Use
from correlator.correlation.ids import Id, id_of, uuid_of
from correlator.correlation.questions import Question, question
from correlator.correlation.walk import Limits

_LOOKED_BACK: Final = 20
"""Runs of a job among which the last good one is looked for."""


class Incident(msgspec.Struct, frozen=True):
    id: Id
    kind: str
    subject_id: Id
    root_id: Id | None
    dataset_id: Id | None
    job_run_id: Id
    """The run of the first failure."""
    opened_at: datetime
    last_failed_at: datetime
    resolved_at: datetime | None
    resolved_by: str | None
    severity: str
    failures: int

    @property
    def uuid(self) -> UUID:
        return uuid_of(self.id)

    @property
    def subject_uuid(self) -> UUID:
        return uuid_of(self.subject_id)

    @property
    def root_uuid(self) -> UUID | None:
        return None if self.root_id is None else uuid_of(self.root_id)


def incident_with(history: History, failure_id: UUID) -> Incident | None:
    """By the id of any of its failures."""
    return next(iter(incidents_of(history, [id_of(failure_id)]).values()), None)


def incidents_of(history: History, ids: Sequence[Id]) -> dict[Id, Incident]:
    """By the ids of any of their failures."""
    rows = history.rows(_INCIDENTS, list(ids)) if ids else []
    return {row[0]: Incident(*row[1:]) for row in rows}


class _Result(msgspec.Struct, frozen=True):
    incident_id: Id
    run_id: Id
    at: datetime
    name: str
    column: str
    of_own_output: bool
    good_run_id: Id | None
    good_own_output: bool | None


def failures_of(history: History, incidents: Sequence[Incident]) -> dict[Id, Failure]:
    """What there is to explain, for the first failure of each; nothing where no dataset is known."""
    found = _of_tests(history, [one for one in incidents if one.kind == "test" and one.dataset_id is not None])
    found.update(_of_runs(history, [one for one in incidents if one.kind == "run"]))
    return found


def _of_tests(history: History, incidents: Sequence[Incident]) -> dict[Id, Failure]:
    if not incidents:
        return {}
    by_id = {one.id: one for one in incidents}
    results = [_Result(*row) for row in history.rows(_RESULTS, list(by_id))]
    readers = [run for one in results for run in (one.run_id, one.good_run_id) if run is not None]
    runs = history.runs(readers)
    versions = _versions_read(
        history,
        [
            (run, by_id[one.incident_id].dataset_id)
            for one in results
            for run in (one.run_id, one.good_run_id)
            if run is not None
        ],
    )
    classes = history.classes(one.dataset_id for one in incidents if one.dataset_id is not None)
    found = {}
    for one in results:
        dataset = by_id[one.incident_id].dataset_id
        if dataset is None or one.run_id not in runs:
            continue

        def use(run: Id, *, own: bool, dataset: Id = dataset) -> Use:
            at = runs[run].started_at
            return Use(run, classes[dataset], at, versions.get((run, dataset)), own, is_test=True)

        bad = use(one.run_id, own=one.of_own_output)
        good = use(one.good_run_id, own=bool(one.good_own_output)) if one.good_run_id in runs else None
        # A run looks at what it wrote itself when it is done: its own tries before that are past then.
        at = runs[one.run_id].last_moment if one.of_own_output else bad.at
        found[one.incident_id] = Failure(question(one.name, one.column), classes[dataset], bad, good, at)
    return found


def _versions_read(history: History, reads: Sequence[tuple[Id, Id | None]]) -> dict[tuple[Id, Id], str]:
    rows = history.rows(
        "SELECT edge.job_run_id, edge.dataset_id, edge.dataset_version "
        "FROM unnest(%s::uuid[], %s::uuid[]) AS asked (job_run_id, dataset_id) "
        "JOIN {s}.lineage_edges AS edge USING (job_run_id, dataset_id) "
        "WHERE edge.edge_type = 'input' AND edge.dataset_version IS NOT NULL",
        [run for run, _ in reads],
        [dataset for _, dataset in reads],
    )
    return {(run, dataset): version for run, dataset, version in rows}


def _of_runs(history: History, incidents: Sequence[Incident]) -> dict[Id, Failure]:
    """A run that failed: what it would have written, against what the job wrote when it last ended well."""
    if not incidents:
        return {}
    asked = [(one.subject_id, one.opened_at) for one in incidents]
    ended = history.last_ended(asked, _LOOKED_BACK)
    last = {key: next((run for run in runs if run.state == "COMPLETE"), None) for key, runs in ended.items()}
    runs = history.runs([one.job_run_id for one in incidents])
    outputs = history.outputs([*runs, *(run.id for run in last.values() if run is not None)])
    found = {}
    for one, key in zip(incidents, asked, strict=True):
        failed, well = runs.get(one.job_run_id), last[key]
        bad = None if failed is None else attempt(failed, outputs[failed.id])
        good = None if well is None else attempt(well, outputs[well.id])
        if bad is not None:
            found[one.id] = Failure(Question("run", ""), bad.dataset, bad, good, one.opened_at)
    return found


_INCIDENTS: Final = """
SELECT failure.id, incident.id, incident.kind, coalesce(incident.test_id, incident.job_id), incident.root_id,
       incident.dataset_id, incident.job_run_id, incident.opened_at, incident.last_failed_at, incident.resolved_at,
       incident.resolved_by, incident.severity, incident.failures
FROM {s}.failures AS failure JOIN {s}.incidents AS incident ON incident.id = failure.incident_id
WHERE failure.id = ANY (%s::uuid[])
"""

_RESULTS: Final = """
SELECT incident.id, said.job_run_id, said.event_time, said.test_name, said.column_name, said.of_own_output,
       passed.job_run_id, passed.of_own_output
FROM {s}.incidents AS incident
-- One by one: joined as a whole the view would be read as a whole.
CROSS JOIN LATERAL (
    SELECT * FROM {s}.standing_results AS result
    WHERE result.test_id = incident.test_id AND result.job_run_id = incident.job_run_id LIMIT 1
) AS said
LEFT JOIN LATERAL (
    SELECT job_run_id, of_own_output FROM (
        (SELECT job_run_id, of_own_output, event_time FROM {s}.test_results AS good
         WHERE good.test_id = incident.test_id AND good.status = 'pass' AND good.dataset_id IS NOT NULL
           AND good.event_time <= said.event_time AND good.job_run_id <> said.job_run_id
         ORDER BY good.event_time DESC, good.job_run_id DESC LIMIT 1)
        UNION ALL
        (SELECT job_run_id, false, event_time FROM {s}.implied_results AS good
         WHERE good.test_id = incident.test_id AND good.status = 'pass' AND good.event_time <= said.event_time
           AND good.job_run_id <> said.job_run_id
         ORDER BY good.event_time DESC, good.job_run_id DESC LIMIT 1)
    ) AS either ORDER BY event_time DESC LIMIT 1
) AS passed ON true
WHERE incident.id = ANY (%s::uuid[])
"""

_RED: Final = """
SELECT incident.id FROM {s}.incidents AS incident
WHERE incident.dataset_id = ANY (%s::uuid[]) AND incident.kind = 'test' AND incident.opened_at > %s
  AND incident.opened_at <= %s
ORDER BY incident.opened_at, incident.id LIMIT 1
"""


def why_red(history: History, datasets: Collection[Id], since: datetime, until: datetime) -> Failure | None:
    """The first test that failed on some datasets within some time."""
    names = [name for names in history.members(datasets).values() for name in names]
    rows = history.rows(_RED, names, since, until)
    if not rows:
        return None
    found = incidents_of(history, [rows[0][0]])
    return failures_of(history, list(found.values())).get(rows[0][0])


def explained(
    history: History,
    incident: Incident,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    further: int = 2,
) -> Explanation | None:
    """The answer, if there is a dataset to begin with."""
    failure = failures_of(history, [incident]).get(incident.id)
    return None if failure is None else explain(history, failure, limits, why_red=why_red, further=further)
