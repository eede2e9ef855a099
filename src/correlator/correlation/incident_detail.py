"""Everything about one incident, as page, terminal and programs show it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias
from uuid import UUID

import msgspec
import psycopg
from msgspec import Meta

from correlator.correlation.called import DatasetName, JobName, names_of
from correlator.correlation.history import History, Run, Version
from correlator.correlation.ids import Id, uuid_of
from correlator.correlation.impact import LIMITS as IMPACT
from correlator.correlation.incident_impact import impact_of
from correlator.correlation.incidents import Incident, explained
from correlator.correlation.life import Status, incident_of, said_of, standings_by
from correlator.correlation.owners import owners_of_datasets, owners_of_jobs
from correlator.correlation.similar import SimilarTold, similar
from correlator.correlation.summaries import (
    CandidateTold,
    CauseTold,
    CheckTold,
    candidate_told,
    cause_of,
    named_cause,
    what_failed,
)
from correlator.correlation.timeline import Moment, timeline
from correlator.correlation.walk import Limits
from correlator.store.ledger import facts_as_of

Kind: TypeAlias = Literal["test", "run"]

_MOST_STEPS: Final = 200


class RunTold(msgspec.Struct, frozen=True):
    run_id: str
    job: JobName


class AffectedTold(msgspec.Struct, frozen=True, omit_defaults=True):
    urn: str
    run_id: str
    at: datetime
    job: JobName
    columns: Annotated[
        list[str] | None,
        Meta(description="Those that come of the tested column, where column lineage says so; absent for not known."),
    ] = None
    owner: str | None = None


class ReaderTold(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run that read something bad and wrote nothing that is known of."""

    run_id: str
    at: datetime
    job: JobName
    owner: str | None = None


class RiskTold(msgspec.Struct, frozen=True, omit_defaults=True):
    urn: str
    owner: str | None = None
    declared: Annotated[bool, Meta(description="Only announced; no run has shown it. Absent for false.")] = False


class ImpactTold(msgspec.Struct, frozen=True):
    affected: list[AffectedTold]
    at_risk: list[RiskTold]
    readers: list[ReaderTold]
    truncated: Annotated[bool, Meta(description="Whether there is more than one answer may hold.")]


class StepTold(msgspec.Struct, frozen=True):
    """A version that went into what failed, and the run that wrote it."""

    urn: str
    distance: int
    read_by: Annotated[str | None, Meta(description="The run that read it; null for what failed itself.")]
    run_id: Annotated[str | None, Meta(description="The run that wrote it; null for one that is not known.")]
    job: JobName | None
    wrote_at: datetime | None
    state: str | None


class IncidentDetail(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    kind: Kind
    status: Status
    severity: str
    summary: Annotated[str, Meta(description="One sentence.")]
    named_cause: Annotated[str, Meta(description="Its second half: why, by all that is known.")]
    opened_at: datetime
    last_failed_at: datetime
    resolved_at: datetime | None
    resolved_by: str | None
    failures: int
    owner: Annotated[str | None, Meta(description="By the ownership facets: of the dataset, else of the job.")]
    assignee: str | None
    muted_until: datetime | None
    facts_as_of: datetime
    dataset: DatasetName | None
    test: CheckTold | None
    test_run: RunTold
    cause: CauseTold | None
    candidates: list[CandidateTold]
    upstream: Annotated[list[StepTold], Meta(description="What went into what failed, the nearest first.")]
    upstream_truncated: Annotated[
        bool, Meta(description="Whether there is more upstream than was looked at: the cause may be there.")
    ]
    impact: ImpactTold
    root_id: UUID | None
    children: list[UUID]
    timeline: list[Moment]
    similar: list[SimilarTold]


class Reach(msgspec.Struct, frozen=True):
    """How far an answer looks."""

    cause: Limits = Limits()
    impact: Limits = IMPACT


class ReachSettings(Protocol):
    @property
    def cause_depth(self) -> int: ...
    @property
    def cause_runs(self) -> int: ...
    @property
    def impact_depth(self) -> int: ...
    @property
    def impact_runs(self) -> int: ...


def reach_of(settings: ReachSettings) -> Reach:
    return Reach(Limits(settings.cause_depth, settings.cause_runs), Limits(settings.impact_depth, settings.impact_runs))


def incident_detail(
    connection: psycopg.Connection[Any],
    failure_id: UUID,
    reach: Reach = Reach(),  # noqa: B008 - frozen
) -> IncidentDetail:
    """By the id of any of its failures. Raises `life.UnknownIncidentError`."""
    # Until the transaction ends: all that is asked are probes of indexes, whatever the values, and planned once.
    connection.execute("SELECT set_config('plan_cache_mode', 'force_generic_plan', true)")
    # Asked before the facts, lest it promises too much.
    as_of = facts_as_of(connection)
    history = History(connection)
    return _Detail(history, incident_of(history, failure_id), as_of, reach).told()


class _Detail:
    def __init__(self, history: History, incident: Incident, as_of: datetime, reach: Reach) -> None:
        self._history = history
        self._incident = incident
        self._as_of = as_of
        self._now = datetime.now(UTC)
        self._explanation = explained(history, incident, reach.cause)
        self._impact, self._risks = impact_of(history, incident, self._explanation, reach.impact)
        self._classes = self._named()
        self._names = names_of(history, self._classes)
        self._owners = owners_of_datasets(history, self._classes)

    def _named(self) -> list[Id]:
        """The classes of all datasets that are told of by their names."""
        mine = [] if self._incident.dataset_id is None else [self._incident.dataset_id]
        own = list(self._history.classes(mine).values())
        upstream = [] if self._explanation is None else [step.use.dataset for step in self._explanation.bad.steps]
        if self._explanation is not None and self._explanation.cause is not None:
            upstream.append(self._explanation.cause.dataset)
        affected = [one.dataset for one in self._impact.affected]
        return [*own, *upstream, *affected, *(one.dataset for one in self._risks)]

    def told(self) -> IncidentDetail:
        one = self._incident
        words = said_of(self._history, [one.id])
        standing_ = standings_by(self._history, [one], words, self._now)[one.id]
        run = self._history.runs([one.job_run_id])[one.job_run_id]
        owners = self._owners_of_jobs(run)
        dataset = self._dataset()
        test = self._test()
        why = named_cause(self._explanation, run)
        children = self._history.rows("SELECT id FROM {s}.incidents WHERE root_id = %s ORDER BY opened_at, id", one.id)
        return IncidentDetail(
            id=one.uuid,
            kind="run" if one.kind == "run" else "test",
            status=standing_.status,
            severity=one.severity,
            summary=f"{what_failed(test, dataset, run)}: {why}.",
            named_cause=why,
            opened_at=one.opened_at,
            last_failed_at=one.last_failed_at,
            resolved_at=one.resolved_at,
            resolved_by=one.resolved_by,
            failures=one.failures,
            owner=self._owner() or owners.get(run.job_id),
            assignee=standing_.assignee,
            muted_until=None if standing_.muted is None else standing_.muted.until,
            facts_as_of=self._as_of,
            dataset=dataset,
            test=test,
            test_run=RunTold(run.run_id, JobName(run.namespace, run.name)),
            cause=cause_of(self._explanation),
            candidates=self._candidates(owners),
            upstream=self._upstream(),
            upstream_truncated=self._explanation is not None and self._explanation.bad.is_cut,
            impact=self._impact_told(owners),
            root_id=one.root_uuid,
            children=[uuid_of(child) for (child,) in children],
            timeline=timeline(self._history, one, words[one.id], standing_),
            similar=similar(self._history, one, self._explanation),
        )

    def _dataset(self) -> DatasetName | None:
        if self._incident.dataset_id is None:
            return None
        of_class = self._history.classes([self._incident.dataset_id])[self._incident.dataset_id]
        return self._names.get(of_class)

    def _owner(self) -> str | None:
        """As the dataset says."""
        if self._incident.dataset_id is None:
            return None
        return self._owners.get(self._history.classes([self._incident.dataset_id])[self._incident.dataset_id])

    def _owners_of_jobs(self, run: Run) -> dict[Id, str]:
        """Of all jobs that are told of."""
        candidates = [] if self._explanation is None else self._explanation.candidates
        hurt = self._impact.runs.values()
        jobs = [run.job_id, *(one.job_id for one in candidates), *(one.job_id for one in hurt)]
        return owners_of_jobs(self._history, jobs)

    def _test(self) -> CheckTold | None:
        if self._incident.kind != "test":
            return None
        rows = self._history.rows(_RESULT, self._incident.subject_id, self._incident.job_run_id)
        return CheckTold(*rows[0]) if rows else None

    def _candidates(self, owners: Mapping[Id, str]) -> list[CandidateTold]:
        found = [] if self._explanation is None else self._explanation.candidates
        return [candidate_told(rank, one, owners.get(one.job_id)) for rank, one in enumerate(found, start=1)]

    def _upstream(self) -> list[StepTold]:
        if self._explanation is None or self._explanation.cause is None:
            return []
        runs = self._explanation.runs
        found = [self._step(self._explanation.cause.dataset, 0, None, self._explanation.cause)]
        for step in self._explanation.bad.steps[:_MOST_STEPS]:
            reader = runs.get(step.use.reader)
            if reader is not None:
                found.append(self._step(step.use.dataset, step.distance, reader, step.version))
        return found

    def _step(self, dataset: Id, distance: int, reader: Run | None, version: Version | None) -> StepTold:
        named = self._names.get(dataset)
        run = None if version is None or self._explanation is None else self._explanation.runs.get(version.run)
        return StepTold(
            "" if named is None else named.urn,
            distance,
            None if reader is None else reader.run_id,
            None if run is None else run.run_id,
            None if run is None else JobName(run.namespace, run.name),
            None if version is None else version.at,
            None if run is None else run.state,
        )

    def _impact_told(self, owners: Mapping[Id, str]) -> ImpactTold:
        runs = self._impact.runs
        return ImpactTold(
            affected=[
                AffectedTold(
                    self._names[one.dataset].urn,
                    runs[one.run].run_id,
                    one.since,
                    JobName(runs[one.run].namespace, runs[one.run].name),
                    None if one.columns is None else sorted(one.columns),
                    self._owners.get(one.dataset),
                )
                for one in self._impact.affected
                if one.dataset in self._names
            ],
            at_risk=[
                RiskTold(self._names[one.dataset].urn, self._owners.get(one.dataset), one.declared)
                for one in self._risks
                if one.dataset in self._names
            ],
            readers=[
                ReaderTold(
                    runs[one.run].run_id,
                    one.at,
                    JobName(runs[one.run].namespace, runs[one.run].name),
                    owners.get(runs[one.run].job_id),
                )
                for one in self._impact.readers
            ],
            truncated=self._impact.is_cut,
        )


_RESULT: Final = """
SELECT said.test_name, said.column_name, said.expected, said.actual,
       coalesce(nullif(said.message, ''), nullif(run.error_message, ''), nullif(said.description, ''), '')
FROM {s}.standing_results AS said JOIN {s}.job_runs AS run ON run.id = said.job_run_id
WHERE said.test_id = %s AND said.job_run_id = %s
"""
