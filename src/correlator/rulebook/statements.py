"""What one event says about lineage: what was read, what was written, and which came from which.

Every statement keeps its origin, because producers say the same thing at several strengths: an explicit `lineage`
facet, a `columnLineage` facet (which may name inputs that `inputs` leaves out: dbt does), or inputs beside outputs.
Which one counts is decided when a question is asked, per run and output: the strongest.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, wraps
from typing import Any, Final, Literal, TypeVar

import msgspec
from openlineage.client.generated.column_lineage_dataset import ColumnLineageDatasetFacet, InputField
from openlineage.client.generated.lifecycle_state_change_dataset import LifecycleStateChangeDatasetFacet
from openlineage.client.generated.lineage import LineageDatasetFacet, LineageJobFacet

from correlator.rulebook import identity
from correlator.rulebook.events import Dataset, DatasetEvent, Event, Job, RunEvent, body
from correlator.rulebook.naming import dataset_urn, storable

Origin = Literal["lineage", "column_lineage", "boundary", "rename"]
"""Who says so: an explicit lineage facet, a columnLineage facet, inputs and outputs themselves, a rename."""

STRENGTH: Final[dict[Origin, int]] = {"lineage": 0, "column_lineage": 1, "boundary": 2, "rename": 3}
"""The least is the strongest."""

R = TypeVar("R")

_LONGEST_REMEMBERED = 1024


class DatasetRef(msgspec.Struct, frozen=True, gc=False):
    key: identity.Id
    urn: str
    namespace: str
    name: str
    """Namespace and name as they were sent; the URN is what they mean."""


class JobRef(msgspec.Struct, frozen=True, gc=False):
    key: identity.Id
    namespace: str
    name: str
    run: identity.Id = b""
    """The run, where one is meant; empty for the job as such."""


Node = DatasetRef | JobRef
Transformation = tuple[str, str, bool]
"""Type, subtype, masking."""

_UNSAID: Final[Transformation] = ("", "", False)


class Edge(msgspec.Struct, frozen=True, gc=False):
    """Data goes from source to target. An empty field means all of the dataset."""

    source: Node
    target: Node
    origin: Origin
    source_field: str = ""
    target_field: str = ""
    transformation: str = ""
    subtype: str = ""
    masking: bool = False


class Boundary(msgspec.Struct, frozen=True, gc=False):
    """A dataset that a run or job takes in or gives out."""

    dataset: DatasetRef
    origin: Origin


class Statement(msgspec.Struct, frozen=True):
    """All that one event says about lineage."""

    inputs: list[Boundary]
    outputs: list[Boundary]
    edges: list[Edge]
    is_explicit: bool
    """Whether a lineage facet speaks. Then inputs and outputs are only the border of the job, and no input is taken to
    have gone into an output unless the facet says so."""
    told: dict[identity.Id, Origin]
    """Outputs whose sources are told, and by what; an explicit lineage facet may tell that there are none."""

    def of_origin(self, origin: Origin) -> "Statement":
        """The edges that one kind of statement gives."""
        told = {key: by for key, by in self.told.items() if by == origin}
        edges = [edge for edge in self.edges if edge.origin == origin]
        return Statement([], [], edges, self.is_explicit and origin == "lineage", told)

    @property
    def is_empty(self) -> bool:
        return not (self.inputs or self.outputs or self.edges or self.is_explicit)


def _remembered(make: Callable[[str, str], R]) -> Callable[[str, str], R]:
    """The same few jobs and datasets come in every event. Long names are not kept, lest a megabyte stays for ever."""
    recall = lru_cache(maxsize=16_384)(make)

    @wraps(make)
    def call(namespace: str, name: str) -> R:
        return recall(namespace, name) if len(namespace) + len(name) <= _LONGEST_REMEMBERED else make(namespace, name)

    return call


@_remembered
def dataset_ref(namespace: str, name: str) -> DatasetRef:
    urn = dataset_urn(namespace, name)
    return DatasetRef(identity.dataset_key(urn), urn, storable(namespace), storable(name))


@_remembered
def job_ref(namespace: str, name: str) -> JobRef:
    return JobRef(identity.job_key(namespace, name), storable(namespace), storable(name))


def job_run_ref(namespace: str, name: str, run_id: str) -> JobRef:
    return JobRef(
        identity.job_key(namespace, name),
        storable(namespace),
        storable(name),
        identity.job_run_key(namespace, name, run_id),
    )


class Own(msgspec.Struct, frozen=True, gc=False):
    """The job and run that an event is about, which a lineage facet may name or leave unnamed."""

    job: JobRef
    run_id: str | None

    def node(self, said: Any) -> JobRef:
        """The job or run that an entry names."""
        namespace, name = (said.namespace, said.name) if said.name is not None else (self.job.namespace, self.job.name)
        job = job_ref(namespace, name)
        if said.runId is None or (job == self.job and said.runId == self.run_id):
            return job
        return job_run_ref(namespace, name, said.runId)


def statement(event: Event) -> Statement:
    if isinstance(event, DatasetEvent):
        return of_output(event.dataset, None)
    own = Own(job_ref(event.job.namespace, event.job.name), event.run.run_id if isinstance(event, RunEvent) else None)
    said = _Gathered()
    for dataset in event.inputs:
        said.input(dataset_ref(dataset.namespace, dataset.name), "boundary")
    for dataset in event.outputs:
        target = dataset_ref(dataset.namespace, dataset.name)
        said.output(target, "boundary")
        _say_sources(said, target, dataset, own)
    _say_job_lineage(said, event.job, own)
    return said.done()


def of_output(dataset: Dataset, own: Own | None) -> Statement:
    """What the facets of a written dataset say, apart from the rest of the event."""
    said = _Gathered()
    _say_sources(said, dataset_ref(dataset.namespace, dataset.name), dataset, own)
    if own is None:
        # The dataset stands in no job, so there is no border to speak of, only where its data comes from.
        said.inputs.clear()
    return said.done()


def of_job(job: Job, own: Own) -> Statement:
    """What an explicit lineage facet of a job says, apart from the rest of the event."""
    said = _Gathered()
    _say_job_lineage(said, job, own)
    return said.done()


class _Gathered:
    """Collects a statement; what is said twice counts once, at its strongest."""

    def __init__(self) -> None:
        self.inputs: dict[DatasetRef, Origin] = {}
        self.outputs: dict[DatasetRef, Origin] = {}
        self.edges: dict[Edge, None] = {}
        self.told: dict[identity.Id, Origin] = {}
        self.is_explicit = False

    def input(self, dataset: DatasetRef, origin: Origin) -> None:
        self.inputs[dataset] = _stronger(self.inputs.get(dataset), origin)

    def output(self, dataset: DatasetRef, origin: Origin) -> None:
        self.outputs[dataset] = _stronger(self.outputs.get(dataset), origin)

    def tell(self, target: DatasetRef, origin: Origin) -> None:
        self.told[target.key] = _stronger(self.told.get(target.key), origin)

    def edge(self, edge: Edge) -> None:
        self.edges[edge] = None

    def done(self) -> Statement:
        return Statement(
            [Boundary(dataset, origin) for dataset, origin in self.inputs.items()],
            [Boundary(dataset, origin) for dataset, origin in self.outputs.items()],
            list(self.edges),
            self.is_explicit,
            self.told,
        )


def _stronger(one: Origin | None, other: Origin) -> Origin:
    return other if one is None or STRENGTH[other] < STRENGTH[one] else one


def _say_sources(said: _Gathered, target: DatasetRef, dataset: Dataset, own: Own | None) -> None:
    """What the facets of a written dataset say about where its data comes from."""
    if (columns := body(dataset.facets, ColumnLineageDatasetFacet)) is not None:
        _say_columns(said, target, columns)
    if (lineage := body(dataset.facets, LineageDatasetFacet)) is not None:
        said.is_explicit = True
        _say_target(said, target, lineage.inputs, lineage.fields, own)
    change = body(dataset.facets, LifecycleStateChangeDatasetFacet)
    # The types are the package's, where the change is an enum; on the wire and here it is its text.
    if change is not None and str(change.lifecycleStateChange) == "RENAME" and change.previousIdentifier is not None:
        previous = dataset_ref(change.previousIdentifier.namespace, change.previousIdentifier.name)
        if previous.key != target.key:
            said.input(previous, "rename")
            said.edge(Edge(previous, target, "rename"))


def _say_columns(said: _Gathered, target: DatasetRef, facet: ColumnLineageDatasetFacet) -> None:
    for column, entry in facet.fields.items():
        for source in entry.inputFields:
            old_style = entry.transformationType or ""
            _say_column(said, target, storable(column), source, old_style)
    for source in facet.dataset or ():
        _say_column(said, target, "", source, "")


def _say_column(said: _Gathered, target: DatasetRef, column: str, source: InputField, old_style: str) -> None:
    dataset = dataset_ref(source.namespace, source.name)
    if dataset.key != target.key:  # a table that feeds itself does not read a version of its own making
        said.input(dataset, "column_lineage")
    said.tell(target, "column_lineage")
    for kind, subtype, masking in _transformations(source.transformations) or [_from_old_style(old_style)]:
        said.edge(Edge(dataset, target, "column_lineage", storable(source.field), column, kind, subtype, masking))


def _transformations(said: Sequence[Any] | None) -> list[Transformation]:
    return [(storable(t.type), storable(t.subtype or ""), bool(t.masking)) for t in said or ()]


def _from_old_style(transformation_type: str) -> Transformation:
    """`IDENTITY` and `MASKED` of facet version 1-0: both direct, and the second masks."""
    match transformation_type:
        case "":
            return _UNSAID
        case "MASKED":
            return "DIRECT", "TRANSFORMATION", True
        case other:
            return "DIRECT", storable(other), False


def _say_job_lineage(said: _Gathered, job: Job, own: Own) -> None:
    facet = body(job.facets, LineageJobFacet)
    if facet is None:
        return
    said.is_explicit = True
    for entry in facet.entries:
        target = _node(entry, own) or own.job
        if isinstance(target, DatasetRef):
            if not _is_made_elsewhere(entry, own):
                said.output(target, "lineage")
            _say_target(said, target, entry.inputs, getattr(entry, "fields", None), own)
            continue
        for source, source_field, transformations in _sources(entry.inputs, own):
            if isinstance(source, DatasetRef) and target == own.job:
                said.input(source, "lineage")
            for kind, subtype, masking in transformations:
                said.edge(Edge(source, target, "lineage", source_field, "", kind, subtype, masking))


def _is_made_elsewhere(entry: Any, own: Own) -> bool:
    """An orchestrator may tell what other jobs made; that does not make it an output of its own."""
    fields = (getattr(entry, "fields", None) or {}).values()
    sources = [node for inputs in (entry.inputs, *(f.inputs for f in fields)) for node, _, _ in _sources(inputs, own)]
    return bool(sources) and all(isinstance(node, JobRef) and node != own.job for node in sources)


def _say_target(
    said: _Gathered, target: DatasetRef, inputs: Sequence[Any] | None, fields: dict[str, Any] | None, own: Own | None
) -> None:
    """An entry of an explicit lineage facet. No inputs at all is a statement too: nothing upstream is known."""
    said.tell(target, "lineage")
    per_field: Iterable[tuple[str, Sequence[Any]]] = ((storable(n), e.inputs) for n, e in (fields or {}).items())
    for target_field, sources in [("", inputs or ()), *per_field]:
        for source, source_field, transformations in _sources(sources, own):
            if isinstance(source, DatasetRef) and source.key != target.key and own is not None:
                said.input(source, "lineage")
            for kind, subtype, masking in transformations:
                said.edge(Edge(source, target, "lineage", source_field, target_field, kind, subtype, masking))


def _sources(inputs: Sequence[Any] | None, own: Own | None) -> Iterator[tuple[Node, str, list[Transformation]]]:
    for source in inputs or ():
        node = _node(source, own)
        if node is not None:
            field = storable(getattr(source, "field", None) or "")
            yield node, field, _transformations(source.transformations) or [_UNSAID]


def _node(said: Any, own: Own | None) -> Node | None:
    """The entity that is named; a job without a name is the event's own, and there is none on a DatasetEvent."""
    if type(said).__name__ in ("LineageDatasetEntry", "LineageDatasetInput"):
        return dataset_ref(said.namespace, said.name)
    if own is not None:
        return own.node(said)
    if said.name is None:
        return None
    return job_run_ref(said.namespace, said.name, said.runId) if said.runId else job_ref(said.namespace, said.name)
