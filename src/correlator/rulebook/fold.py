"""Many events, one truth: the facts that an event gives, and the fold of any set of events.

This is the model. The Spark pipeline and the SQL merge are tested against it, and Hypothesis against itself: any order,
duplication and split of a history folds to equal facts.
"""

from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Final

from openlineage.client.generated.data_quality_metrics_input_dataset import DataQualityMetricsInputDatasetFacet
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
from openlineage.client.generated.input_statistics_input_dataset import InputStatisticsInputDatasetFacet
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.lifecycle_state_change_dataset import LifecycleStateChangeDatasetFacet
from openlineage.client.generated.nominal_time_run import NominalTimeRunFacet
from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
from openlineage.client.generated.parent_run import ParentRunFacet

from correlator.rulebook import facts as f
from correlator.rulebook import identity, statements
from correlator.rulebook.aliases import symlinks
from correlator.rulebook.events import Dataset, DatasetEvent, Event, Facets, Job, JobEvent, RunEvent, body, body_at
from correlator.rulebook.facts import Facts
from correlator.rulebook.formats import Instant, read_time
from correlator.rulebook.fresh_stack import with_enough_stack
from correlator.rulebook.identity import Id
from correlator.rulebook.naming import storable
from correlator.rulebook.results import results
from correlator.rulebook.run_cycle import RANKS
from correlator.rulebook.statements import STRENGTH, DatasetRef, Edge, JobRef, Node, Statement

Order = tuple[Instant, int, Id]

NO_RUN: Final[Id] = b""
DELETED: Final[Id] = b""

HISTORIES: Final = {
    "dataset": ("schema", "columnLineage", "ownership"),
    "job": ("ownership", "sql", "sourceCode", "sourceCodeLocation"),
    "run": ("processing_engine", "sql"),
}
"""Facets whose every value is remembered; those of a run as its job's: what the job ran on, and what it ran."""

_TELLING: Final[dict[str, statements.Origin]] = {
    "lineage": "lineage",
    "columnLineage": "column_lineage",
    "lifecycleStateChange": "rename",
}
"""Facets of a dataset that can tell where its data comes from."""

_NOTHING_COUNTED: Final = (None, None, None)

_LARGEST_COUNT: Final = 2**63 - 2
"""Spark says 2^63 - 1, eight exabytes, for a size that it does not know."""


def fold(events: Iterable[Event]) -> Facts:
    facts = Facts()
    for event in events:
        absorb(event, facts)
    return facts


def absorb(event: Event, facts: Facts) -> None:
    """Add all that one event says."""
    # Begun again half-way it changes nothing: what was said already is merged with itself.
    with_enough_stack(lambda: _absorb(event, facts))


def _absorb(event: Event, facts: Facts) -> None:
    said = _Said(event, facts)
    match event:
        case RunEvent():
            said.run(event)
        case JobEvent():
            said.job(event.job)
            said.declared_by_job(event)
        case DatasetEvent():
            said.dataset(event.dataset)
            said.declared_of_dataset(event)


class _Said:
    """Turns one event into facts. Within an event the first that is said of a thing stands."""

    def __init__(self, event: Event, facts: Facts) -> None:
        self.facts = facts
        self._event = event
        self._at = event.event_time
        self._rank = RANKS[event.event_type] if isinstance(event, RunEvent) else 0
        self._digest = identity.content_digest(event)[:16]
        self._order: Order = (self._at, self._rank, self._digest)
        self._statement = statements.statement(event)

    # A run

    def run(self, event: RunEvent) -> None:
        job = statements.job_ref(event.job.namespace, event.job.name)
        run_id = identity.canonical_job_run_id(event.job.namespace, event.job.name, event.run.run_id)
        run = bytes.fromhex(run_id[:32])
        outcomes = results(event)
        state = event.event_type or "OTHER"
        values: dict[str, Any] = {
            "identity": (run_id, job.key, job.namespace, job.name, storable(event.run.run_id)),
            "first_event": (self._at,),
            "last_event": (*self._order, state, storable(event.producer)),
            "facets": self._bodies(event.run.facets),
            "explicit": (True,) if self._statement.is_explicit else None,
            "tested": (True,) if outcomes else None,
        }
        if state != "OTHER":
            values["states"] = frozenset({(self._at, self._rank, state)})
        if state in ("START", "RUNNING"):
            values["open"] = (self._at, self._rank, state)
        if state in _MOMENTS:
            values[_MOMENTS[state]] = (self._at,)
        values |= self._of_run_facets(event)
        self.facts.say(f.JOB_RUNS, (run,), **values)
        self.job(event.job)
        # Outputs first: of a table that is read and written the new schema is the one that stands.
        for role, datasets in (("output", event.outputs), ("input", event.inputs)):
            for dataset in datasets:
                self.dataset(dataset, run)
                self._use(run, role, dataset)
        self._boundaries(run)
        self._edges(run)
        self._running_writes(run, event)
        for outcome in outcomes:
            result = outcome.result
            test = outcome.test
            self.facts.say(
                f.TEST_RESULTS,
                (test.key, run),
                test=(test.dataset, test.name, test.column, test.parameters),
                result=(
                    *self._order,
                    result.status,
                    result.severity,
                    result.expected,
                    result.actual,
                    result.message,
                    result.description,
                    result.of_own_output,
                ),
            )
        self._remember("run", job.key, event.run.facets, run, besides=event.job.facets)
        self._remember("job", job.key, event.job.facets, run)

    def _of_run_facets(self, event: RunEvent) -> dict[str, Any]:
        """The groups of a run that come from its facets."""
        said: dict[str, Any] = {}
        facets = event.run.facets
        parent = body(facets, ParentRunFacet) or body_at(facets, "parentRun", ParentRunFacet)
        if parent is not None:
            root = parent.root
            of_root = self._ancestor(root.job, root.run) if root is not None else (None, None, None, None)
            said["parent"] = (*self._order, *self._ancestor(parent.job, parent.run), *of_root)
        if (nominal := body(facets, NominalTimeRunFacet)) is not None:
            start = _instant(nominal.nominalStartTime)
            if start is not None:
                said["nominal"] = (*self._order, start, _instant(nominal.nominalEndTime))
        if (error := body(facets, ErrorMessageRunFacet)) is not None:
            said["error"] = (*self._order, storable(error.message))
        if (kind := body(event.job.facets, JobTypeJobFacet)) is not None:
            types = (storable(kind.processingType), storable(kind.integration), storable(kind.jobType or ""))
            said["type"] = (*self._order, *types)
        return said

    def _ancestor(self, job: Any, run: Any) -> tuple[Id, str, str, str]:
        """A parent or root is known by its children, even when its own events never arrive."""
        ref = statements.job_ref(job.namespace, job.name)
        self._name_job(ref)
        key = identity.job_run_key(job.namespace, job.name, run.runId)
        return key, storable(run.runId), ref.namespace, ref.name

    def _use(self, run: Id, role: str, dataset: Dataset) -> None:
        """What a run says of its use of a dataset."""
        statistics = _statistics(dataset)
        version = body(dataset.facets, DatasetVersionDatasetFacet)
        change = body(dataset.facets, LifecycleStateChangeDatasetFacet)
        self.facts.say(
            f.LINEAGE_EDGES,
            (run, statements.dataset_ref(dataset.namespace, dataset.name).key, role),
            statistics=(*self._order, *statistics) if statistics else None,
            version=(*self._order, storable(version.datasetVersion)) if version is not None else None,
            lifecycle=(*self._order, str(change.lifecycleStateChange)) if change is not None else None,
            facets=self._bodies(dataset.role_facets),
        )

    def _boundaries(self, run: Id) -> None:
        said = self._statement
        for role, boundaries in (("input", said.inputs), ("output", said.outputs)):
            for boundary in boundaries:
                self._name_dataset(boundary.dataset)
                told = said.told.get(boundary.dataset.key) if role == "output" else None
                self.facts.say(
                    f.LINEAGE_EDGES,
                    (run, boundary.dataset.key, role),
                    origin=(STRENGTH[boundary.origin],),
                    told=(STRENGTH[told],) if told is not None else None,
                    first_event=(self._at,),
                    last_event=(self._at,),
                )

    def _edges(self, run: Id) -> None:
        for edge in self._statement.edges:
            self._name(edge.source)
            self._name(edge.target)
            self.facts.say(f.COLUMN_EDGES, (run, *_edge_columns(edge)))

    def _running_writes(self, run: Id, event: RunEvent) -> None:
        """What may be versions of a run that has not ended; if they are, the whole run tells (runs.running_write)."""
        if event.event_type != "RUNNING":
            return
        for dataset in event.outputs:
            statistics = _statistics(dataset)
            ref = statements.dataset_ref(dataset.namespace, dataset.name)
            said = (*self._order, *statistics) if statistics else None
            self.facts.say(f.RUNNING_WRITES, (run, ref.key, self._at), statistics=said)

    # Jobs and datasets

    def job(self, job: Job) -> None:
        ref = statements.job_ref(job.namespace, job.name)
        self.facts.say(
            f.JOBS,
            (ref.key,),
            identity=(ref.namespace, ref.name),
            first_event=(self._at,),
            last_event=(self._at,),
            facets=self._bodies(job.facets),
        )
        if not isinstance(self._event, RunEvent):
            self._remember("job", ref.key, job.facets, NO_RUN)

    def dataset(self, dataset: Dataset, run: Id = NO_RUN) -> None:
        ref = statements.dataset_ref(dataset.namespace, dataset.name)
        self._name_dataset(ref)
        self.facts.say(
            f.DATASETS,
            (ref.key,),
            first_event=(self._at,),
            last_event=(self._at,),
            symlinks=self._symlinks(dataset.facets),
            facets=self._bodies(dataset.facets),
        )
        self._remember("dataset", ref.key, dataset.facets, run)

    def _symlinks(self, facets: Facets) -> tuple[Any, ...] | None:
        said = symlinks(facets)
        if said is None:
            return None
        aliases = [[identity.dataset_key(link.urn).hex(), link.urn, link.type] for link in said]
        return (*self._order, identity.canonical_json(aliases).decode())

    def _name(self, node: Node) -> None:
        if isinstance(node, DatasetRef):
            self._name_dataset(node)
        else:
            self._name_job(node)

    def _name_dataset(self, ref: DatasetRef) -> None:
        named = (*self._order, ref.namespace, ref.name)
        self.facts.say(f.DATASETS, (ref.key,), identity=(ref.urn,), named=named)

    def _name_job(self, ref: JobRef) -> None:
        self.facts.say(f.JOBS, (ref.key,), identity=(ref.namespace, ref.name))

    # Facets

    def _bodies(self, facets: Facets) -> dict[str, tuple[Any, ...]] | None:
        """Every facet as it stands after this event. A deletion is an empty body."""
        if not facets.raw:
            return None
        return {
            storable(key): (*self._order, None if key in facets.deleted else identity.facet_content(raw).whole)
            for key, raw in sorted(facets.raw.items(), key=itemgetter(0))
        }

    def _remember(self, said_of: str, entity: Id, facets: Facets, run: Id, besides: Facets | None = None) -> None:
        """Add to the history of the facets that have one; broken ones say nothing."""
        kind = "dataset" if said_of == "dataset" else "job"
        for key in HISTORIES[said_of]:
            if besides is not None and key == "sql" and (key in besides.typed or key in besides.deleted):
                continue  # the job's own SQL speaks louder than the run's
            if key in facets.deleted:
                digest = DELETED
            elif key in facets.typed:
                content = identity.facet_content(facets.raw[key])
                digest = content.body_digest
                self.facts.say(f.FACET_BODIES, (digest,), body=(content.body,))
            else:
                continue
            self.facts.say(f.FACET_HISTORY, (kind, entity, key, self._at, run), body=(self._rank, self._digest, digest))

    # Declarations

    def declared_by_job(self, event: JobEvent) -> None:
        """What a JobEvent declares.

        One that names neither inputs nor outputs says nothing of lineage: clients send empty lists by default. To take
        a declaration back, a producer sends an explicit lineage facet without entries, or deletes it.
        """
        for dataset in (*event.inputs, *event.outputs):
            self.dataset(dataset)
        if not self._statement.is_empty or "lineage" in event.job.facets.deleted:
            job = statements.job_ref(event.job.namespace, event.job.name)
            self._declare("job", job.key, "job", self._statement)

    def declared_of_dataset(self, event: DatasetEvent) -> None:
        """Each facet that can tell where data comes from is a declaration of its own, as each stands by itself."""
        facets, key = event.dataset.facets, statements.dataset_ref(event.dataset.namespace, event.dataset.name).key
        for facet_key, origin in _TELLING.items():
            said = self._statement.of_origin(origin)
            # Any change of a dataset's life but a rename tells nothing of where its data comes from.
            speaks = bool(said.edges) if origin == "rename" else facet_key in facets.typed
            if speaks or facet_key in facets.deleted:
                self._declare("dataset", key, facet_key, said)

    def _declare(self, kind: str, entity: Id, said_by: str, said: Statement) -> None:
        for boundary in (*said.inputs, *said.outputs):
            self._name_dataset(boundary.dataset)
        for edge in said.edges:
            self._name(edge.source)
            self._name(edge.target)
        edges = identity.canonical_json(_declaration(said)).decode()
        self.facts.say(f.DECLARATIONS, (kind, entity, said_by, self._at), edges=(self._digest, edges))


_MOMENTS: Final = {"START": "first_start", "COMPLETE": "complete", "FAIL": "fail", "ABORT": "abort"}
"""Groups of `job_runs` that hold when a state was first reported."""


def _edge_columns(edge: Edge) -> tuple[Any, ...]:
    return (
        *_node_columns(edge.target),
        edge.target_field,
        *_node_columns(edge.source),
        edge.source_field,
        STRENGTH[edge.origin],
        edge.transformation,
        edge.subtype,
        edge.masking,
    )


def _node_columns(node: Node) -> tuple[str, Id]:
    if isinstance(node, DatasetRef):
        return "dataset", node.key
    return ("run", node.run) if node.run else ("job", node.key)


def _declaration(said: Statement) -> dict[str, Any]:
    """A declared statement as JSON, ids in hex, in one order whatever the event's."""

    def plain(columns: tuple[Any, ...]) -> list[Any]:
        return [column.hex() if isinstance(column, bytes) else column for column in columns]

    return {
        "inputs": sorted({boundary.dataset.key.hex() for boundary in said.inputs}),
        "outputs": sorted({boundary.dataset.key.hex() for boundary in said.outputs}),
        "edges": sorted(plain(_edge_columns(edge)) for edge in said.edges),
        "explicit": said.is_explicit,
        "told": {key.hex(): STRENGTH[origin] for key, origin in said.told.items()},
    }


def _statistics(dataset: Dataset) -> tuple[int | None, int | None, int | None] | None:
    """Rows, bytes and files of this use of a dataset; None when nothing useful is said."""
    facets = dataset.role_facets
    told = body(facets, OutputStatisticsOutputDatasetFacet) or body(facets, InputStatisticsInputDatasetFacet)
    metrics = body(facets, DataQualityMetricsInputDatasetFacet)
    for rows, size, files in (
        (told.rowCount, told.size, told.fileCount) if told is not None else _NOTHING_COUNTED,
        (metrics.rowCount, metrics.bytes, metrics.fileCount) if metrics is not None else _NOTHING_COUNTED,
    ):
        counts = (_count(rows), _count(size), _count(files))
        if counts != _NOTHING_COUNTED:
            return counts
    return None


def _count(said: int | None) -> int | None:
    return said if said is not None and 0 <= said <= _LARGEST_COUNT else None


def _instant(text: str | None) -> Instant | None:
    read = read_time(text) if text is not None else None
    return None if read is None else read.instant
