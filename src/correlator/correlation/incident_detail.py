"""Everything about one incident, as page, terminal and programs show it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
import psycopg
from msgspec import Meta

from correlator.correlation.causes import Candidate, Explanation
from correlator.correlation.failing import failed_versions, passed_versions
from correlator.correlation.history import History, Run, Version
from correlator.correlation.impact import Bad, Impact, Risk, at_risk, impact, standing
from correlator.correlation.incidents import Incident, explained
from correlator.correlation.life import Said, Standing, Status, incident_of, said_of, standings
from correlator.correlation.owners import owners_of_datasets, owners_of_jobs
from correlator.correlation.questions import question
from correlator.store.ledger import facts_as_of

Kind: TypeAlias = Literal["test", "run"]

_MOST_SIMILAR: Final = 10
_MOST_FAILURES_TOLD: Final = 100
_MOST_STEPS: Final = 200


class JobName(msgspec.Struct, frozen=True):
    namespace: str
    name: str


class DatasetName(msgspec.Struct, frozen=True):
    urn: str
    namespace: str
    name: str


class CheckTold(msgspec.Struct, frozen=True):
    name: str
    column: str
    expected: str
    actual: str
    message: str


class RunTold(msgspec.Struct, frozen=True):
    run_id: str
    job: JobName


class CauseTold(msgspec.Struct, frozen=True):
    run_id: str
    job: JobName
    wrote_at: Annotated[datetime | None, Meta(description="Null for a run that failed and wrote nothing.")]
    state: str


class EvidenceTold(msgspec.Struct, frozen=True):
    kind: str
    subject: str
    before: str | None
    after: str | None
    sentence: str


class CandidateTold(msgspec.Struct, frozen=True):
    rank: int
    run_id: Annotated[str | None, Meta(description="Null for a run that should have been there and was not.")]
    job: JobName
    distance: Annotated[int, Meta(description="Jobs between it and what failed.")]
    score: float
    evidence: list[EvidenceTold]
    reasons: Annotated[list[str], Meta(description="Why it ranks where it does, beyond the evidence.")]
    owner: str | None


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


class Moment(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something on the timeline."""

    at: datetime
    kind: Annotated[
        str,
        Meta(
            description="`passed`, `failed`, `run` (one that names the incident in its `correlator_incidentContext`), "
            "or the kind of an action."
        ),
    ]
    sentence: str
    failure_id: UUID | None = None
    run_id: str | None = None
    job: JobName | None = None
    actor: str | None = None
    assignee: str | None = None
    until: datetime | None = None
    reason: str | None = None
    note: str | None = None


class SimilarTold(msgspec.Struct, frozen=True):
    id: UUID
    opened_at: datetime
    outcome: Annotated[str, Meta(description="`open`, `passed`, or the reason that a person gave.")]
    took_s: Annotated[float | None, Meta(description="Seconds until it was over; null while it is not.")]
    likeness: Annotated[list[str], Meta(description="`same test`, `same job`, `same dataset`, `same cause`.")]
    note: str | None


class IncidentDetail(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    kind: Kind
    status: Status
    severity: str
    summary: Annotated[str, Meta(description="One sentence.")]
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
    impact: ImpactTold
    root_id: UUID | None
    children: list[UUID]
    timeline: list[Moment]
    similar: list[SimilarTold]


def incident_detail(connection: psycopg.Connection[Any], failure_id: UUID) -> IncidentDetail:
    """By the id of any of its failures. Raises `life.UnknownIncidentError`."""
    # Asked before the facts, lest it promises too much.
    as_of = facts_as_of(connection)
    history = History(connection)
    return _Detail(history, incident_of(history, failure_id), as_of).told()


class _Detail:
    def __init__(self, history: History, incident: Incident, as_of: datetime) -> None:
        self._history = history
        self._incident = incident
        self._as_of = as_of
        self._now = datetime.now(UTC)
        self._explanation = explained(history, incident)
        self._impact, self._risks = impact_of(history, incident, self._explanation)
        self._words = said_of(history, [incident.id])[incident.id]
        self._classes = self._named()
        self._names = names_of(history, self._classes)
        self._owners = owners_of_datasets(history, self._classes)

    def _named(self) -> list[UUID]:
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
        standing_ = standings(self._history, [one], self._now)[one.id]
        run = self._history.runs([one.job_run_id])[one.job_run_id]
        candidates = self._candidates()
        dataset = self._dataset()
        test = self._test()
        children = self._history.rows("SELECT id FROM {s}.incidents WHERE root_id = %s ORDER BY opened_at, id", one.id)
        return IncidentDetail(
            id=one.id,
            kind="run" if one.kind == "run" else "test",
            status=standing_.status,
            severity=one.severity,
            summary=summary_of(test, dataset, run, self._explanation),
            opened_at=one.opened_at,
            last_failed_at=one.last_failed_at,
            resolved_at=one.resolved_at,
            resolved_by=one.resolved_by,
            failures=one.failures,
            owner=self._owner(run),
            assignee=standing_.assignee,
            muted_until=None if standing_.muted is None else standing_.muted.until,
            facts_as_of=self._as_of,
            dataset=dataset,
            test=test,
            test_run=RunTold(run.run_id, JobName(run.namespace, run.name)),
            cause=cause_of(self._explanation),
            candidates=candidates,
            upstream=self._upstream(),
            impact=self._impact_told(),
            root_id=one.root_id,
            children=[child for (child,) in children],
            timeline=self._timeline(standing_),
            similar=self._similar(),
        )

    def _dataset(self) -> DatasetName | None:
        if self._incident.dataset_id is None:
            return None
        of_class = self._history.classes([self._incident.dataset_id])[self._incident.dataset_id]
        return self._names.get(of_class)

    def _owner(self, run: Run) -> str | None:
        if self._incident.dataset_id is not None:
            of_class = self._history.classes([self._incident.dataset_id])[self._incident.dataset_id]
            if of_class in self._owners:
                return self._owners[of_class]
        return owners_of_jobs(self._history, [run.job_id]).get(run.job_id)

    def _test(self) -> CheckTold | None:
        if self._incident.kind != "test":
            return None
        rows = self._history.rows(_RESULT, self._incident.subject_id, self._incident.job_run_id)
        return CheckTold(*rows[0]) if rows else None

    def _candidates(self) -> list[CandidateTold]:
        found = [] if self._explanation is None else self._explanation.candidates
        owners = owners_of_jobs(self._history, [one.job_id for one in found])
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

    def _step(self, dataset: UUID, distance: int, reader: Run | None, version: Version | None) -> StepTold:
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

    def _impact_told(self) -> ImpactTold:
        runs = self._impact.runs
        owners = owners_of_jobs(self._history, [run.job_id for run in runs.values()])
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

    def _timeline(self, standing_: Standing) -> list[Moment]:
        one = self._incident
        moments = [_word(said) for said in self._words]
        if standing_.muted is not None and all(said.id != standing_.muted.id for said in self._words):
            moments.append(_word(standing_.muted))
        subject = "test" if one.kind == "test" else "run"
        rows = self._history.rows(_FAILURES, one.id, _MOST_FAILURES_TOLD)
        for failure, at, run_id, namespace, name, state, message in rows:
            words = f"{namespace}/{name}: {state}" if subject == "run" else f"The test failed in {name}"
            moments.append(
                Moment(
                    at,
                    "failed",
                    words + (f": {first_line(message)}" if message else ""),
                    failure,
                    run_id,
                    JobName(namespace, name),
                )
            )
        query = _PASSES_OF_TEST if one.kind == "test" else _PASSES_OF_JOB
        for at, run_id, namespace, name in self._history.rows(
            query, one.subject_id, one.opened_at, one.subject_id, one.resolved_at
        ):
            words = "It passed" if at < one.opened_at else "It passed again"
            moments.append(Moment(at, "passed", f"{words} in {name}", run_id=run_id, job=JobName(namespace, name)))
        for at, run_id, namespace, name, state in self._history.rows(_MENTIONS, one.id):
            words = f"A run of {name} names this incident; it is {state}"
            moments.append(Moment(at, "run", words, run_id=run_id, job=JobName(namespace, name)))
        return sorted(moments, key=lambda moment: (moment.at, moment.kind != "passed"))

    def _similar(self) -> list[SimilarTold]:
        one = self._incident
        cause = self._explanation.candidates[0].job_id if self._explanation and self._explanation.candidates else None
        own = [] if one.dataset_id is None else list(self._history.classes([one.dataset_id]).values())
        names = [name for names in self._history.members(own).values() for name in names]
        rows = self._history.rows(_SIMILAR, one.subject_id, one.subject_id, names, cause, cause, one.id)
        reasons = _reasons(self._history, [row[0] for row in rows])
        found = []
        for id_, opened_at, resolved_at, resolved_by, subject, dataset, job, wrote in rows:
            likeness = []
            if subject == one.subject_id:
                likeness.append("same test" if one.kind == "test" else "same job")
            if dataset is not None and dataset in names:
                likeness.append("same dataset")
            if cause is not None and (job == cause or wrote):
                likeness.append("same cause")
            said = reasons.get(id_)
            outcome = "open" if resolved_at is None else "passed" if resolved_by == "pass" or said is None else said[0]
            took = None if resolved_at is None else (resolved_at - opened_at).total_seconds()
            note = None if said is None else said[1]
            found.append(SimilarTold(id_, opened_at, outcome, took, likeness, note))
        found.sort(key=lambda similar: (-len(similar.likeness), -similar.opened_at.timestamp(), similar.id))
        return found[:_MOST_SIMILAR]


def impact_of(history: History, incident: Incident, explanation: Explanation | None) -> tuple[Impact, list[Risk]]:
    """Who read what failed, and who would read it next."""
    failed = failed_versions(history, [incident])[incident.id]
    passed = passed_versions(history, [incident]).get(incident.id)
    columns = _columns(history, incident)
    harmless_until = _harmless_until(history, incident, explanation)
    bad: dict[tuple[UUID, UUID], Bad] = {}
    for one in failed:
        version = one.version
        until = passed.at if passed is not None and passed.run == version.run else None
        first = None if explanation is None else explanation.bad.start
        is_first = first is not None and version.key == first.key
        key = version.dataset, version.run
        bad.setdefault(key, Bad(*key, version.at, until, columns, harmless_until=harmless_until if is_first else None))
    well = {} if passed is None else {passed.dataset: passed.at}
    found = impact(history, list(bad.values()), well)
    ahead = standing(history, [*bad.values(), *found.affected])
    if incident.resolved_at is None:
        # Nobody knows of another version, or there is none: what was to be written is not there.
        if incident.kind == "run":
            ahead |= {out.dataset for out in history.outputs([incident.job_run_id])[incident.job_run_id]}
        elif incident.dataset_id is not None and not bad:
            ahead |= set(history.classes([incident.dataset_id]).values())
    hit = {one.dataset for one in (*bad.values(), *found.affected)}
    risks = [risk for risk in at_risk(history, ahead) if risk.dataset not in hit] if ahead else []
    return found, risks


def _harmless_until(history: History, incident: Incident, explanation: Explanation | None) -> datetime | None:
    """When the last good result was, if what it read is the version that failed then."""
    if incident.kind != "test" or explanation is None or explanation.bad.start is None:
        return None
    if explanation.good.start is None or explanation.good.start.key != explanation.bad.start.key:
        return None
    rows = history.rows(_PASSED_BEFORE, incident.subject_id, incident.opened_at)
    return rows[0][0] if rows else None


def _columns(history: History, incident: Incident) -> frozenset[str] | None:
    if incident.kind != "test":
        return None
    rows = history.rows("SELECT test_name, column_name FROM {s}.data_tests WHERE id = %s", incident.subject_id)
    return question(*rows[0]).columns if rows else None


def cause_of(explanation: Explanation | None) -> CauseTold | None:
    version = None if explanation is None else explanation.cause
    run = None if version is None or explanation is None else explanation.runs.get(version.run)
    if version is None or run is None:
        return None
    wrote_at = None if version.kind == "attempt" and run.state != "COMPLETE" else version.at
    return CauseTold(run.run_id, JobName(run.namespace, run.name), wrote_at, run.state)


def candidate_told(rank: int, one: Candidate, owner: str | None = None) -> CandidateTold:
    return CandidateTold(
        rank,
        None if one.run is None else one.run.run_id,
        JobName(one.namespace, one.name),
        one.distance,
        round(one.score, 4),
        [EvidenceTold(e.kind, e.subject, e.before, e.after, e.sentence) for e in one.evidence],
        list(one.reasons),
        owner,
    )


def summary_of(test: CheckTold | None, dataset: DatasetName | None, run: Run, explanation: Explanation | None) -> str:
    """What failed, and by all that is known why."""
    if test is None:
        what = f"{run.name} ended with {run.state}"
    else:
        column = f" of column {test.column}" if test.column else ""
        what = f"{test.name}{column} failed on {dataset.name if dataset is not None else 'a dataset that is not named'}"
    return f"{what}: {named_cause(explanation, run)}."


def named_cause(explanation: Explanation | None, run: Run | None = None) -> str:
    """The first candidate in one line."""
    if explanation is None or explanation.cause is None:
        return "no producer is known"
    best = explanation.candidates[0] if explanation.candidates else None
    if best is None or not best.evidence:
        writer = explanation.runs.get(explanation.cause.run)
        if writer is not None and run is not None and writer.id == run.id and run.error_message:
            return first_line(run.error_message)
        return f"{writer.name} wrote it, and nothing odd is known of it" if writer is not None else "its run is unknown"
    strongest = best.evidence[0]
    return strongest.sentence if best.name in strongest.sentence else f"{best.name}: {strongest.sentence}"


def names_of(history: History, classes: Iterable[UUID]) -> dict[UUID, DatasetName]:
    """What classes of datasets are called."""
    wanted = list(dict.fromkeys(classes))
    found: dict[UUID, DatasetName] = {}
    for of_class, urn, namespace, name in history.rows(_NAMES, wanted):
        found[of_class] = DatasetName(urn, namespace, name)
    return found


def _word(said: Said) -> Moment:
    words: Mapping[str, str] = {
        "acknowledge": f"{said.actor} acknowledged it",
        "assign": f"{said.actor} assigned it to {said.assignee}",
        "mute": f"{said.actor} muted it until {said.until:%Y-%m-%d %H:%M} UTC" if said.until else "",
        "unmute": f"{said.actor} took the mute back",
        "resolve": f"{said.actor} resolved it: {(said.reason or '').replace('_', ' ')}",
        "reopen": f"{said.actor} reopened it",
        "comment": f"{said.actor} wrote: {first_line(said.note or '')}",
    }
    return Moment(
        said.at,
        said.kind,
        words[said.kind],
        said.failure_id,
        actor=said.actor,
        assignee=said.assignee,
        until=said.until,
        reason=said.reason,
        note=said.note,
    )


def _reasons(history: History, incidents: Sequence[UUID]) -> dict[UUID, tuple[str, str | None]]:
    """Why people resolved them, and what they said to it."""
    return {
        incident: (said.reason or "resolved", said.note)
        for incident, words in said_of(history, incidents).items()
        for said in words
        if said.kind == "resolve"
    }


def first_line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else ""


_RESULT: Final = """
SELECT said.test_name, said.column_name, said.expected, said.actual,
       coalesce(nullif(said.message, ''), nullif(run.error_message, ''), nullif(said.description, ''), '')
FROM {s}.standing_results AS said JOIN {s}.job_runs AS run ON run.id = said.job_run_id
WHERE said.test_id = %s AND said.job_run_id = %s
"""

_FAILURES: Final = """
SELECT failure.id, failure.at, run.run_id, run.job_namespace, run.job_name, run.current_state,
       coalesce(nullif(said.message, ''), nullif(implied.message, ''), run.error_message, '')
FROM {s}.failures AS failure JOIN {s}.job_runs AS run ON run.id = failure.job_run_id
LEFT JOIN {s}.test_results AS said ON said.job_run_id = run.id AND said.test_id = failure.subject_id
LEFT JOIN {s}.implied_results AS implied ON implied.job_run_id = run.id AND implied.test_id = failure.subject_id
WHERE failure.incident_id = %s ORDER BY failure.at, failure.id LIMIT %s
"""

_PASSED_BEFORE: Final = """
SELECT run.started_at FROM (
    SELECT event_time, job_run_id FROM {s}.standing_results
    WHERE test_id = %s AND status = 'pass' AND event_time <= %s ORDER BY event_time DESC, job_run_id DESC LIMIT 1
) AS said JOIN {s}.job_runs AS run ON run.id = said.job_run_id
"""
# The last before it began, and the one that ended it.
_PASSES_OF_TEST: Final = """
SELECT said.event_time, run.run_id, run.job_namespace, run.job_name FROM (
    (SELECT event_time, job_run_id FROM {s}.standing_results
     WHERE test_id = %s AND status = 'pass' AND event_time < %s ORDER BY event_time DESC, job_run_id DESC LIMIT 1)
    UNION ALL
    (SELECT event_time, job_run_id FROM {s}.standing_results
     WHERE test_id = %s AND status = 'pass' AND event_time = %s ORDER BY job_run_id LIMIT 1)
) AS said JOIN {s}.job_runs AS run ON run.id = said.job_run_id
"""
_PASSES_OF_JOB: Final = """
SELECT ended_at, run_id, job_namespace, job_name FROM (
    (SELECT * FROM {s}.job_runs WHERE job_id = %s AND current_state = 'COMPLETE' AND ended_at < %s
     ORDER BY ended_at DESC, id DESC LIMIT 1)
    UNION ALL
    (SELECT * FROM {s}.job_runs WHERE job_id = %s AND current_state = 'COMPLETE' AND ended_at = %s ORDER BY id LIMIT 1)
) AS run
"""

_NAMES: Final = """
SELECT asked.id, coalesce(called.class_urn, dataset.canonical_dataset_id), dataset.dataset_namespace,
       dataset.dataset_name
FROM unnest(%s::uuid[]) AS asked (id)
LEFT JOIN LATERAL (
    SELECT dataset_id, class_urn FROM {s}.dataset_classes AS mate
    WHERE mate.class_id = asked.id AND EXISTS (SELECT FROM {s}.datasets WHERE id = mate.dataset_id)
    ORDER BY mate.dataset_id <> asked.id, mate.dataset_id LIMIT 1
) AS called ON true
JOIN {s}.datasets AS dataset ON dataset.id = coalesce(called.dataset_id, asked.id)
"""

# Of the same test or job, on the same dataset, of the job that is named as the cause, or on what it writes: a short
# range of an index each.
_SIMILAR: Final = """
SELECT DISTINCT other.id, other.opened_at, other.resolved_at, other.resolved_by,
       coalesce(other.test_id, other.job_id), other.dataset_id, other.job_id,
       other.kind = 'test' AND other.of_cause
FROM (
    (SELECT *, false AS of_cause FROM {s}.incidents WHERE test_id = %s ORDER BY opened_at DESC LIMIT 20)
    UNION ALL
    (SELECT *, false FROM {s}.incidents WHERE job_id = %s ORDER BY opened_at DESC LIMIT 20)
    UNION ALL
    (SELECT *, false FROM {s}.incidents WHERE dataset_id = ANY (%s::uuid[]) ORDER BY opened_at DESC LIMIT 20)
    UNION ALL
    (SELECT *, false FROM {s}.incidents WHERE job_id = %s ORDER BY opened_at DESC LIMIT 20)
    UNION ALL
    SELECT of_dataset.* FROM (
        SELECT dataset_id FROM {s}.lineage_edges WHERE edge_type = 'output' AND job_run_id = (
            SELECT id FROM {s}.job_runs WHERE job_id = %s ORDER BY started_at DESC LIMIT 1
        ) LIMIT 20
    ) AS written
    CROSS JOIN LATERAL (
        SELECT *, true FROM {s}.incidents WHERE dataset_id = written.dataset_id ORDER BY opened_at DESC LIMIT 5
    ) AS of_dataset
) AS other
WHERE other.id <> %s
"""

_MENTIONS: Final = """
SELECT coalesce(run.ended_at, run.started_at), run.run_id, run.job_namespace, run.job_name, run.current_state
FROM {s}.failures AS failure JOIN {s}.incident_mentions AS mention ON mention.failure_id = failure.id
JOIN {s}.job_runs AS run ON run.id = mention.job_run_id
WHERE failure.incident_id = %s
ORDER BY 1 LIMIT 50
"""
