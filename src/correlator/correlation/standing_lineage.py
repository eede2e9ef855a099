"""What stands of a job's lineage at a moment, and who uses a dataset: the tables' side of a walk through the graph."""

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import psycopg
from msgspec import Struct
from msgspec.structs import replace
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types.string import ByteaBinaryLoader

from correlator.correlation.ignored import Ignored
from correlator.rulebook.identity import Id
from correlator.rulebook.statements import STRENGTH
from correlator.store.last_runs import lineage_of_run

Role: TypeAlias = Literal["input", "output"]
Named: TypeAlias = tuple[str, str, str, list[str]]
"""URN, namespace, name and the other names of a dataset."""

_COLUMN_LINEAGE, _RENAME = STRENGTH["column_lineage"], STRENGTH["rename"]
_ALWAYS: Final = "infinity"
_UNTOLD: Final[Mapping[Id, int | None]] = {}

_OfRun: TypeAlias = tuple[
    Id, str, str, Id, str, datetime, bool, list[Id], list[Id], list[int] | None, list[int | None] | None
]
"""Job, namespace, name, run, its id as sent, when it stood, whether it states its lineage, inputs, outputs; and, where
something more is said than that the former go into the latter: who names each input, and who tells of each output."""


class Flow(Struct, frozen=True, gc=False):
    """Datasets that go into others, by their classes. Either side may be empty."""

    sources: frozenset[Id]
    targets: frozenset[Id]
    declared: bool = False


class ColumnFlow(Struct, frozen=True, gc=False):
    target: Id
    target_field: str
    source: Id
    source_field: str
    transformation: str
    subtype: str
    masking: bool
    declared: bool = False


class JobLineage(Struct, frozen=True, gc=False):
    """What stands of a job, or of a dataset that tells itself where it comes from."""

    node_id: str
    namespace: str
    name: str
    run: Id | None
    run_id: str | None
    run_at: datetime | None
    flows: tuple[Flow, ...]
    told: Mapping[Id, int | None]
    """Outputs of the run, by dataset, whose sources are told, and by what."""
    declared_columns: tuple[tuple[Any, ...], ...] = ()
    of_dataset: bool = False


# Datasets by all names of their classes; and the same where no dataset has a second name.
_WANTED: Final = """(
    SELECT unnest(%(datasets)s::uuid[]) AS id
    UNION
    SELECT mate.dataset_id FROM dataset_classes AS mate WHERE mate.class_id = ANY (%(datasets)s::uuid[])
)"""
_USERS: Final = f"""
SELECT DISTINCT used.job_id
FROM {_WANTED} AS wanted JOIN dataset_jobs AS used ON used.dataset_id = wanted.id AND used.edge_type = %(role)s
"""  # noqa: S608 (constants of this module)
_USERS_OF_ONE_NAME: Final = """
SELECT DISTINCT job_id FROM dataset_jobs WHERE dataset_id = ANY (%(datasets)s::uuid[]) AND edge_type = %(role)s
"""

_COMPLETED: Final = """
    (SELECT job_id, job_namespace, job_name, id, run_id, ended_at AS at, states_lineage, job_type, has_results,
            'infinity'::timestamptz AS until
     FROM job_runs
     WHERE job_id = job.id AND ended_at <= %(as_of)s::timestamptz AND current_state = 'COMPLETE'
     ORDER BY ended_at DESC, id DESC LIMIT 1)
"""
_COMPLETED_OR_RUNNING: Final = f"""
    {_COMPLETED}
    UNION ALL
    (SELECT job_id, job_namespace, job_name, id, run_id, started_at, states_lineage, job_type, has_results,
            %(as_of)s::timestamptz
     FROM job_runs
     WHERE job_id = job.id AND started_at <= %(as_of)s::timestamptz
       AND upper(processing_type) IN ('STREAMING', 'SERVICE')
       AND EXISTS (
           SELECT FROM jsonb_array_elements(state_history) AS said
           WHERE said ->> 'state' = 'RUNNING' AND (said ->> 'event_time')::timestamptz <= %(as_of)s::timestamptz
       )
     ORDER BY started_at DESC, id DESC LIMIT 1)
    ORDER BY at DESC, id DESC LIMIT 1
"""  # noqa: S608
# Whoever stands now is kept by the merge: one probe for each job.
_STANDING_NOW: Final = """
SELECT job_id, job_namespace, job_name, job_run_id, run_id, at, states_lineage, inputs, outputs, origins, told_by
FROM standing_lineage WHERE job_id = ANY (%(jobs)s::uuid[]) AND NOT observes
"""


def _standing_at(runs: str) -> str:
    """At another moment: for each job the end of one index range, or of two, then the rows of one run."""
    return f"""
        SELECT run.job_id, run.job_namespace, run.job_name, run.id, run.run_id, run.at, run.states_lineage,
               edge.inputs, edge.outputs, edge.origins, edge.told_by
        FROM unnest(%(jobs)s::uuid[]) AS job (id)
        CROSS JOIN LATERAL ({runs}) AS run
        CROSS JOIN LATERAL ({lineage_of_run("facts", "run.until")}) AS edge
        WHERE NOT edge.observes
    """  # noqa: S608


_STANDING_OF_BATCHES: Final = _standing_at(_COMPLETED)
_STANDING_OF_ALL: Final = _standing_at(_COMPLETED_OR_RUNNING)
_OF_RUN: Final = f"""
SELECT run.job_id, run.job_namespace, run.job_name, run.id, run.run_id, coalesce(run.ended_at, run.started_at),
       run.states_lineage, edge.inputs, edge.outputs, edge.origins, edge.told_by
FROM job_runs AS run
CROSS JOIN LATERAL ({lineage_of_run("facts")}) AS edge
WHERE run.id = %(run)s::uuid AND NOT edge.observes
"""  # noqa: S608

# Each run's list, then one probe for each of its mappings.
_MAPPED: Final = """
SELECT DISTINCT run.job_run_id, mapping.target_id, mapping.source_id, mapping.origin
FROM run_column_mappings AS run
CROSS JOIN LATERAL unnest(run.mapping_ids) AS of_run (mapping_id)
JOIN column_mappings AS mapping ON mapping.id = of_run.mapping_id
WHERE run.job_run_id = ANY (%(runs)s::uuid[]) AND mapping.target_kind = 'dataset' AND mapping.source_kind = 'dataset'
"""
_COLUMNS: Final = """
SELECT run.job_run_id, mapping.target_id, mapping.target_field, mapping.source_id, mapping.source_field,
       mapping.origin, mapping.transformation, mapping.subtype, mapping.masking
FROM run_column_mappings AS run
CROSS JOIN LATERAL unnest(run.mapping_ids) AS of_run (mapping_id)
JOIN column_mappings AS mapping ON mapping.id = of_run.mapping_id
WHERE run.job_run_id = ANY (%(runs)s::uuid[]) AND mapping.target_kind = 'dataset' AND mapping.source_kind = 'dataset'
"""

# And for the rest of the transaction: all that is asked here are probes of indexes, whatever the values. For the sake
# of how many there are, PostgreSQL would plan anew at every level, which takes a third of the time.
_ANY: Final = """
SELECT EXISTS (SELECT FROM declarations), EXISTS (SELECT FROM dataset_classes),
       set_config('plan_cache_mode', 'force_generic_plan', true)
"""
_ARE_STREAMS: Final = """
SELECT EXISTS (SELECT FROM job_runs WHERE upper(processing_type) IN ('STREAMING', 'SERVICE'))
"""

# One probe of the index over their contents for each dataset; most installations have none.
_DECLARING: Final = f"""
SELECT DISTINCT declared.entity_kind, declared.entity_id
FROM {_WANTED} AS wanted
CROSS JOIN LATERAL (SELECT replace(wanted.id::text, '-', '') AS hex) AS as_text
CROSS JOIN LATERAL (
    SELECT entity_kind, entity_id FROM declarations
    WHERE edges @> jsonb_build_object(%(role)s::text || 's', jsonb_build_array(as_text.hex))
    UNION ALL
    SELECT entity_kind, entity_id FROM declarations
    WHERE edges @> jsonb_build_object('edges', jsonb_build_array(jsonb_build_array(as_text.hex)))
) AS declared
"""  # noqa: S608
_DECLARED: Final = """
SELECT DISTINCT ON (entity_id, said_by) entity_kind, entity_id, edges,
       job.job_namespace, job.job_name
FROM declarations
LEFT JOIN jobs AS job ON job.id = entity_id AND entity_kind = 'job'
WHERE entity_id = ANY (%(entities)s::uuid[]) AND event_time <= %(as_of)s::timestamptz
ORDER BY entity_id, said_by, event_time DESC
"""

_CLASSES: Final = """
SELECT dataset_id, class_id, class_urn FROM dataset_classes WHERE dataset_id = ANY (%(datasets)s::uuid[])
"""
_NAMES: Final = """
SELECT id, canonical_dataset_id, dataset_namespace, dataset_name FROM datasets WHERE id = ANY (%(datasets)s::uuid[])
"""
_MATES: Final = """
SELECT mate.class_id, dataset.canonical_dataset_id, dataset.dataset_namespace, dataset.dataset_name, mate.class_urn
FROM dataset_classes AS mate LEFT JOIN datasets AS dataset ON dataset.id = mate.dataset_id
WHERE mate.class_id = ANY (%(classes)s::uuid[])
ORDER BY dataset.canonical_dataset_id
"""


class _Ids(tuple[Id, ...]):
    """Many ids, to be sent as an array: as text, or one by one, they would take as long as to look them up."""

    __slots__ = ()


class _IdsDumper(Dumper):
    """The binary form of an array of one dimension: 16 bytes of each, with their length before them."""

    format = Format.BINARY
    oid = 2951
    _HEAD: Final = struct.Struct(">iiiii")
    _UUID: Final = 2950
    _LENGTH: Final = struct.pack(">i", 16)

    def dump(self, obj: _Ids) -> bytes:
        if not obj:
            return struct.pack(">iii", 0, 0, self._UUID)
        return self._LENGTH.join((self._HEAD.pack(1, 0, self._UUID, len(obj), 1), *obj))


class StandingLineage:
    """What a walk needs of the tables, each thing read once."""

    def __init__(self, connection: psycopg.Connection[Any], as_of: datetime | None, ignored: Ignored) -> None:
        self._cursor = connection.cursor(binary=True)
        # As they are sent, 16 bytes each: a UUID is dear to make, and there are tens of thousands.
        self._cursor.adapters.register_loader("uuid", ByteaBinaryLoader)
        self._cursor.adapters.register_dumper(_Ids, _IdsDumper)
        self._as_of: datetime | str = _ALWAYS if as_of is None else as_of
        self._ignored = ignored
        self._jobs: dict[Id, JobLineage | None] = {}
        self._class_of: dict[Id, Id] = {}
        self.class_urns: dict[Id, str] = {}
        ((self._are_declarations, self._are_classes, _),) = self._ask(_ANY)
        self._standing = _STANDING_NOW
        if as_of is not None:
            ((are_streams,),) = self._ask(_ARE_STREAMS)
            self._standing = _STANDING_OF_ALL if are_streams else _STANDING_OF_BATCHES

    def _ask(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        return self._cursor.execute(query.encode(), values, prepare=True).fetchall()

    # Who uses what

    def users(self, datasets: Collection[Id], role: Role) -> list[JobLineage]:
        """The jobs that have any of these among their inputs or outputs, now or at another time."""
        wanted = _Ids(datasets)
        query = _USERS if self._are_classes else _USERS_OF_ONE_NAME
        jobs = [job for (job,) in self._ask(query, datasets=wanted, role=role)]
        of_datasets: list[Id] = []
        if self._are_declarations:
            for kind, entity in self._ask(_DECLARING, datasets=wanted, role=role):
                (jobs if kind == "job" else of_datasets).append(entity)
            if role == "output":
                of_datasets.extend(datasets)
        known = self._jobs
        self._load([job for job in jobs if job not in known], [d for d in of_datasets if d not in known])
        entities = dict.fromkeys([*jobs, *of_datasets]) if of_datasets or self._are_declarations else jobs
        return [lineage for entity in entities if (lineage := known[entity]) is not None]

    def job(self, job: Id) -> JobLineage | None:
        if job not in self._jobs:
            self._load([job], [])
        return self._jobs.get(job)

    def run(self, run: Id) -> JobLineage | None:
        """What one run itself did, however it ended."""
        rows = self._ask(_OF_RUN, run=run.hex())
        return next(iter(self._of_runs(rows).values()), None)

    def _load(self, jobs: Sequence[Id], datasets: Sequence[Id]) -> None:
        self._jobs.update(dict.fromkeys((*jobs, *datasets)))
        rows = self._ask(self._standing, jobs=_Ids(jobs), as_of=self._as_of) if jobs else []
        self._jobs.update(self._of_runs(rows))
        if self._are_declarations and (jobs or datasets):
            for kind, entity, edges, namespace, name in self._ask(
                _DECLARED, entities=_Ids((*jobs, *datasets)), as_of=self._as_of
            ):
                self._declare(kind, entity, edges, (namespace, name))

    def _of_runs(self, rows: Sequence[_OfRun]) -> dict[Id, JobLineage]:
        if self._are_classes:
            self._learn_classes(each for row in rows for side in (row[7], row[8]) for each in side)
        told = [row for row in rows if row[9] is not None or row[10] is not None]
        mapped = self._mapped(told) if told else {}
        classes = self._classes if self._are_classes else frozenset
        hides_job = self._ignored.hides_job if self._ignored else None
        found: dict[Id, JobLineage] = {}
        for job, namespace, name, run, run_id, at, explicit, inputs, outputs, origins, told_by in rows:
            if hides_job is not None and hides_job(namespace, name):
                continue
            strengths: Mapping[Id, int | None] = _UNTOLD
            if origins is None and told_by is None:
                flows: tuple[Flow, ...] = (Flow(classes(inputs), classes(outputs)),)
            else:
                strengths = dict(zip(outputs, told_by or (), strict=True))
                named = dict(zip(inputs, origins or (), strict=True))
                flows = self._flows(named, strengths, mapped.get(run), explicit=explicit)
            found[job] = JobLineage(f"job:{namespace}/{name}", namespace, name, run, run_id, at, flows, strengths)
        return found

    def _mapped(self, rows: Sequence[_OfRun]) -> dict[Id, list[tuple[Id, Id, int]]]:
        """Which goes into which, of runs that say more than their inputs and outputs tell."""
        self._learn_classes(each for row in rows for side in (row[7], row[8]) for each in side)
        mapped: dict[Id, list[tuple[Id, Id, int]]] = {
            row[3]: [] for row in rows if not _are_told_by_inputs(row[9] or (), row[10] or ())
        }
        for run, target, source, origin in self._ask(_MAPPED, runs=_Ids(mapped)) if mapped else ():
            mapped[run].append((target, source, origin))
        self._learn_classes(each for said in mapped.values() for target, source, _ in said for each in (target, source))
        return mapped

    def _classes(self, datasets: Sequence[Id]) -> frozenset[Id]:
        class_of = self._class_of
        return frozenset([class_of[dataset] for dataset in datasets])

    def _flows(
        self,
        inputs: Mapping[Id, int],
        outputs: Mapping[Id, int | None],
        mapped: Sequence[tuple[Id, Id, int]] | None,
        *,
        explicit: bool,
        declared: bool = False,
    ) -> tuple[Flow, ...]:
        """By the strongest statement for each output."""
        class_of = self._class_of
        # A rename leads to the new name alone.
        every = frozenset(class_of[each] for each, origin in inputs.items() if origin != _RENAME)
        if mapped is None:
            # One output, and by whom an input is named tells whether it goes there.
            ((output, told),) = outputs.items()
            sources = frozenset(class_of[each] for each, origin in inputs.items() if origin in (told, _RENAME))
            return _rest(every, [Flow(sources, frozenset((class_of[output],)), declared)], declared=declared)
        flows = []
        untold: set[Id] = set()
        for output, told in outputs.items():
            named = {class_of[s] for t, s, origin in mapped or () if t == output and origin in (told, _RENAME)}
            if told is not None or named or explicit:
                flows.append(Flow(frozenset(named), frozenset((class_of[output],)), declared))
            if told is None and not explicit:
                untold.add(class_of[output])
        if untold:
            flows.append(Flow(every, frozenset(untold), declared))
        return _rest(every, flows, declared=declared)

    def _declare(self, kind: str, entity: Id, said: Mapping[str, Any], job: tuple[str | None, str | None]) -> None:
        mapped = [(bytes.fromhex(e[1]), bytes.fromhex(e[4]), e[6]) for e in said["edges"] if e[0] == e[3] == "dataset"]
        columns = tuple(tuple(edge) for edge in said["edges"] if edge[0] == edge[3] == "dataset")
        inputs = {bytes.fromhex(key): STRENGTH["boundary"] for key in said["inputs"]}
        told: dict[Id, int | None] = {bytes.fromhex(key): by for key, by in said["told"].items()}
        outputs = {bytes.fromhex(key): told.get(bytes.fromhex(key)) for key in said["outputs"]} | told
        if kind == "dataset":
            outputs.setdefault(entity, None)
        self._learn_classes((*inputs, *outputs, *(each for target, source, _ in mapped for each in (target, source))))
        flows = self._flows(
            inputs, outputs, mapped, explicit=bool(said["explicit"]) or kind == "dataset", declared=True
        )
        known = self._jobs.get(entity)
        if known is not None:
            self._jobs[entity] = replace(
                known, flows=(*known.flows, *flows), declared_columns=(*known.declared_columns, *columns)
            )
        elif kind == "dataset":
            self._jobs[entity] = JobLineage("", "", "", None, None, None, flows, {}, columns, of_dataset=True)
        elif not self._ignored.hides_job(job[0] or "", job[1] or ""):
            namespace, name = job[0] or "", job[1] or ""
            self._jobs[entity] = JobLineage(
                f"job:{namespace}/{name}", namespace, name, None, None, None, flows, {}, columns
            )

    # Names

    def _learn_classes(self, datasets: Iterable[Id]) -> None:
        class_of = self._class_of
        new = {dataset for dataset in datasets if dataset not in class_of}
        for dataset in new:
            class_of[dataset] = dataset
        if new and self._are_classes:
            for dataset, of_class, urn in self._ask(_CLASSES, datasets=_Ids(new)):
                class_of[dataset] = of_class
                self.class_urns[of_class] = urn

    def class_of(self, dataset: Id) -> Id:
        self._learn_classes((dataset,))
        return self._class_of[dataset]

    def names(self, classes: Collection[Id]) -> dict[Id, Named]:
        alone = [each for each in classes if each not in self.class_urns]
        several = [each for each in classes if each in self.class_urns]
        found: dict[Id, Named] = {
            id_: (urn, namespace, name, []) for id_, urn, namespace, name in self._ask(_NAMES, datasets=_Ids(alone))
        }
        mates: dict[Id, list[tuple[str, str, str]]] = {}
        if several:
            for of_class, urn, namespace, name, _ in self._ask(_MATES, classes=_Ids(several)):
                if urn is not None:
                    mates.setdefault(of_class, []).append((urn, namespace, name))
        for of_class in several:
            meant = self.class_urns[of_class]
            members = mates.get(of_class, [])
            namespace, name = next(((ns, n) for urn, ns, n in members if urn == meant), ("", meant))
            found[of_class] = (meant, namespace, name, [urn for urn, _, _ in members if urn != meant])
        return found

    def columns(self, jobs: Sequence[JobLineage]) -> Iterator[tuple[JobLineage, ColumnFlow]]:
        """Column by column what the jobs' runs say, the strongest for each output, and what is declared."""
        by_run = {job.run: job for job in jobs if job.run is not None}
        rows = self._ask(_COLUMNS, runs=_Ids(by_run)) if by_run else []
        self._learn_classes(each for row in rows for each in (row[1], row[3]))
        class_of = self._class_of
        for run, target, target_field, source, source_field, origin, transformation, subtype, masking in rows:
            job = by_run[run]
            if job.told.get(target) == origin:
                how = (transformation, subtype, masking)
                yield job, ColumnFlow(class_of[target], target_field, class_of[source], source_field, *how)
        for job in jobs:
            for columns in job.declared_columns:
                _, target, target_field, _, source, source_field, _, transformation, subtype, masking = columns
                ends = class_of[bytes.fromhex(target)], class_of[bytes.fromhex(source)]
                how = (transformation, subtype, masking)
                yield job, ColumnFlow(ends[0], target_field, ends[1], source_field, *how, declared=True)


def _are_told_by_inputs(origins: Sequence[int], told_by: Sequence[int | None]) -> bool:
    """Whether it is known which goes into which without a look at every column.

    Of an only output whose columns tell, the sources are the inputs that columns name; dbt and Spark send such runs.
    """
    return list(told_by) == [_COLUMN_LINEAGE] and STRENGTH["lineage"] not in origins


def _rest(every: frozenset[Id], flows: list[Flow], *, declared: bool) -> tuple[Flow, ...]:
    """With what is read and goes nowhere that is known."""
    left = every.difference(*(flow.sources for flow in flows))
    return (*flows, Flow(left, frozenset(), declared)) if left else tuple(flows)
