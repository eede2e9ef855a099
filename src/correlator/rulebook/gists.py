"""What the facets of one entity say to the fold, whoever says it, when and in which run.

Only the order and the run are missing, and the fold fills them in. What a job or a dataset says of itself comes again
to the letter from run to run, so its gist is worked out once for as long as the facets are remembered.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Final, TypeVar

import msgspec
from openlineage.client.generated.data_quality_metrics_input_dataset import DataQualityMetricsInputDatasetFacet
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
from openlineage.client.generated.input_statistics_input_dataset import InputStatisticsInputDatasetFacet
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.lifecycle_state_change_dataset import LifecycleStateChangeDatasetFacet
from openlineage.client.generated.nominal_time_run import NominalTimeRunFacet
from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
from openlineage.client.generated.parent_run import ParentRunFacet

from correlator.rulebook import identity, results, statements
from correlator.rulebook.aliases import symlinks
from correlator.rulebook.events import Dataset, Facets, body, body_at
from correlator.rulebook.formats import Instant, plain_instant, read_time
from correlator.rulebook.identity import Id
from correlator.rulebook.naming import storable
from correlator.rulebook.statements import STRENGTH, DatasetRef, Edge, JobRef, Node, Own, Statement

G = TypeVar("G")
Groups = tuple[tuple[str, tuple[Any, ...]], ...]
"""By group what follows the order in a value that the last event decides."""

DELETED: Final[Id] = b""

HISTORIES: Final = {
    "dataset": ("schema", "columnLineage", "ownership", "dataQualityMetrics"),
    "job": ("ownership", "sql", "sourceCode", "sourceCodeLocation"),
    "run": ("processing_engine", "sql"),
}
"""Facets whose every value is remembered; those of a run as its job's: what the job ran on, and what it ran."""

_NOTHING_COUNTED: Final = (None, None, None)

_LARGEST_COUNT: Final = 2**63 - 2
"""Spark says 2^63 - 1, eight exabytes, for a size that it does not know."""


class Remembered(msgspec.Struct, frozen=True, gc=False):
    """A value that goes into the history of a facet."""

    key: str
    digest: Id
    """Empty where the facet was deleted."""
    body: str | None


History = tuple[Remembered, ...]


class Lineage(msgspec.Struct, frozen=True, gc=False):
    """A statement about lineage in the columns of the facts."""

    inputs: tuple[tuple[DatasetRef, tuple[int]], ...]
    outputs: tuple[tuple[DatasetRef, tuple[int]], ...]
    """With the strength of what says so."""
    told: tuple[tuple[Id, tuple[int]], ...]
    datasets: tuple[DatasetRef, ...]
    jobs: tuple[JobRef, ...]
    """All that are named."""
    columns: tuple[tuple[Any, ...], ...]
    """Of `column_edges`, without the run."""
    is_explicit: bool


class DatasetGist(msgspec.Struct, frozen=True, gc=False):
    groups: Groups
    groups_of_use: Groups
    """What a run's use of the dataset has from the dataset's own facets."""
    history: History
    has_results: bool
    tells_sources: bool
    is_explicit: bool
    _last: list[tuple[DatasetRef, Lineage]]

    def lineage(self, dataset: Dataset, ref: DatasetRef, own: Own) -> Lineage:
        """Where the data of the dataset comes from, if its facets tell.

        The same set of facets may stand on several datasets; it is remembered what the last of them said. An explicit
        lineage facet may mean the job and run that it stands in.
        """
        if self.is_explicit:
            return lineage(statements.of_output(dataset, own))
        if not (self._last and self._last[0][0] == ref):
            self._last[:] = [(ref, lineage(statements.of_output(dataset, own)))]
        return self._last[0][1]


class UseGist(msgspec.Struct, frozen=True, gc=False):
    groups: Groups
    has_results: bool


class JobGist(msgspec.Struct, frozen=True, gc=False):
    groups: Groups
    history: History
    states_lineage: bool
    speaks_of_sql: bool


class RunGist(msgspec.Struct, frozen=True, gc=False):
    groups: Groups
    ancestors: tuple[JobRef, ...]
    history: History
    has_results: bool

    def history_beside(self, job: JobGist) -> History:
        """The job's own SQL speaks louder than the run's."""
        if not job.speaks_of_sql:
            return self.history
        return tuple(said for said in self.history if said.key != "sql")


def _once(make: Callable[[Facets], G]) -> Callable[[Facets], G]:
    @wraps(make)
    def gist(facets: Facets) -> G:
        made: G | None = facets.gist
        if made is None:
            made = facets.gist = make(facets)
        return made

    return gist


@_once
def of_dataset(facets: Facets) -> DatasetGist:
    groups: list[tuple[str, tuple[Any, ...]]] = []
    of_use: list[tuple[str, tuple[Any, ...]]] = []
    if (links := symlinks(facets)) is not None:
        aliases = [[identity.dataset_key(link.urn).hex(), link.urn, link.type] for link in links]
        groups.append(("symlinks", (identity.canonical_json(aliases).decode(),)))
    if (version := body(facets, DatasetVersionDatasetFacet)) is not None:
        of_use.append(("version", (storable(version.datasetVersion),)))
    if (change := body(facets, LifecycleStateChangeDatasetFacet)) is not None:
        of_use.append(("lifecycle", (str(change.lifecycleStateChange),)))
    typed = facets.typed
    return DatasetGist(
        tuple(groups),
        tuple(of_use),
        _history("dataset", facets),
        results.are_among(facets),
        "columnLineage" in typed or "lineage" in typed or change is not None,
        "lineage" in typed,
        [],
    )


@_once
def of_use(facets: Facets) -> UseGist:
    """`inputFacets` or `outputFacets`."""
    counts = _statistics(facets)
    return UseGist((("statistics", counts),) if counts is not None else (), results.are_among(facets))


@_once
def of_job(facets: Facets) -> JobGist:
    groups: Groups = ()
    if (kind := body(facets, JobTypeJobFacet)) is not None:
        groups = (("type", (storable(kind.processingType), storable(kind.integration), storable(kind.jobType or ""))),)
    speaks_of_sql = "sql" in facets.typed or "sql" in facets.deleted
    return JobGist(groups, _history("job", facets), "lineage" in facets.typed, speaks_of_sql)


@_once
def of_run(facets: Facets) -> RunGist:
    groups: list[tuple[str, tuple[Any, ...]]] = []
    ancestors: list[JobRef] = []

    def ancestor(job: Any, run: Any) -> tuple[Id, str, str, str]:
        """A parent or root is known by its children, even when its own events never arrive."""
        ref = statements.job_ref(job.namespace, job.name)
        ancestors.append(ref)
        key = identity.job_run_key(job.namespace, job.name, run.runId)
        return key, storable(run.runId), ref.namespace, ref.name

    parent = body(facets, ParentRunFacet) or body_at(facets, "parentRun", ParentRunFacet)
    if parent is not None:
        root = parent.root
        of_root = ancestor(root.job, root.run) if root is not None else (None, None, None, None)
        groups.append(("parent", (*ancestor(parent.job, parent.run), *of_root)))
    if (nominal := body(facets, NominalTimeRunFacet)) is not None:
        start = _instant(nominal.nominalStartTime)
        if start is not None:
            groups.append(("nominal", (start, _instant(nominal.nominalEndTime))))
    if (error := body(facets, ErrorMessageRunFacet)) is not None:
        groups.append(("error", (storable(error.message),)))
    return RunGist(tuple(groups), tuple(ancestors), _history("run", facets), "test" in facets.typed)


def _history(said_of: str, facets: Facets) -> History:
    """The facets that have a history; broken ones say nothing."""
    history: list[Remembered] = []
    for key in HISTORIES[said_of]:
        if key in facets.deleted:
            history.append(Remembered(key, DELETED, None))
        elif key in facets.typed:
            content = identity.facet_content(facets.raw[key])
            history.append(Remembered(key, content.body_digest, content.body))
    return tuple(history)


def lineage(said: Statement) -> Lineage:
    nodes: dict[Node, None] = {boundary.dataset: None for boundary in (*said.inputs, *said.outputs)}
    for edge in said.edges:
        nodes[edge.source] = nodes[edge.target] = None
    return Lineage(
        tuple((boundary.dataset, (STRENGTH[boundary.origin],)) for boundary in said.inputs),
        tuple((boundary.dataset, (STRENGTH[boundary.origin],)) for boundary in said.outputs),
        tuple((key, (STRENGTH[origin],)) for key, origin in said.told.items()),
        tuple(node for node in nodes if isinstance(node, DatasetRef)),
        tuple(node for node in nodes if isinstance(node, JobRef)),
        tuple(map(_edge_columns, said.edges)),
        said.is_explicit,
    )


def declaration(said: Lineage) -> dict[str, Any]:
    """A declared statement as JSON, ids in hex, in one order whatever the event's."""

    def plain(columns: tuple[Any, ...]) -> list[Any]:
        return [column.hex() if isinstance(column, bytes) else column for column in columns]

    def keys(boundaries: Iterable[tuple[DatasetRef, tuple[int]]]) -> list[str]:
        return sorted({dataset.key.hex() for dataset, _ in boundaries})

    return {
        "inputs": keys(said.inputs),
        "outputs": keys(said.outputs),
        "edges": sorted(map(plain, said.columns)),
        "explicit": said.is_explicit,
        "told": {key.hex(): strength for key, (strength,) in said.told},
    }


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


def _statistics(facets: Facets) -> tuple[int | None, int | None, int | None] | None:
    """Rows, bytes and files of this use of a dataset; None when nothing useful is said."""
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
    if text is None:
        return None
    instant = plain_instant(text)
    if instant is None:
        read = read_time(text)
        instant = None if read is None else read.instant
    return instant
