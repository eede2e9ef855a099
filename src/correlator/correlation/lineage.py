"""The lineage graph as it stood at a moment, from any dataset, job, run or column.

As of T a job's lineage is that of its last run that had COMPLETEd by then (of a stream: its last that was RUNNING),
plus what was declared and stood at T. Per run and output the strongest statement counts: an explicit lineage facet, a
columnLineage facet, every input to every output. Names that mean one dataset are one node. Runs that only look at data
are no part of it.

The walk goes from level to level, each with a few questions for all of its datasets at once: which jobs ever used them,
and what these jobs' standing runs read and wrote. What it costs depends on the size of the answer, never on how many
runs there have been.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

import psycopg
from msgspec import UNSET, Meta, Struct, UnsetType

from correlator.correlation.ignored import Ignored
from correlator.correlation.standing_lineage import ColumnFlow, Flow, JobLineage, Named, Role, StandingLineage
from correlator.correlation.starts import Start
from correlator.rulebook.identity import Id
from correlator.store.moments import Moment

Direction: TypeAlias = Literal["up", "down", "both"]
Level: TypeAlias = Literal["table", "column"]

MOST_NODES: Final = 20_000


class DatasetNode(Struct, frozen=True, tag_field="kind", tag="dataset", gc=False):
    id: str
    urn: str
    namespace: str
    name: str
    distance: Annotated[int, Meta(description="Jobs between it and where one asked from; upstream is negative.")]
    names: Annotated[list[str], Meta(description="Other names of the same dataset.")]


class JobNode(Struct, frozen=True, tag_field="kind", tag="job", gc=False):
    id: str
    namespace: str
    name: str
    distance: int
    run_id: Annotated[str | None, Meta(description="The run that stands for it; null if it is only declared.")]
    run_at: Annotated[Moment | None, Meta(description="When that run ended; of a stream, when it began.")]


class ColumnNode(Struct, frozen=True, tag_field="kind", tag="column", gc=False):
    id: str
    urn: str
    column: Annotated[str, Meta(description="Empty for all of the dataset.")]
    distance: int


Node: TypeAlias = DatasetNode | JobNode | ColumnNode


class Edge(Struct, frozen=True, omit_defaults=True, gc=False):
    """Data goes from source to target, both ids of nodes."""

    source: str
    target: str
    declared: Annotated[
        bool, Meta(description="Announced by a JobEvent or DatasetEvent; no run has shown it. Absent for false.")
    ] = False
    sources: Annotated[
        list[str] | UnsetType,
        Meta(description="From a job to a dataset: which of its inputs go there, where that is not all of them."),
    ] = UNSET
    job: Annotated[str | UnsetType, Meta(description="Between columns: the job.")] = UNSET
    transformation: Annotated[str | UnsetType, Meta(description="Between columns: DIRECT or INDIRECT.")] = UNSET
    subtype: str | UnsetType = UNSET
    masking: bool | UnsetType = UNSET


class Graph(Struct, frozen=True):
    start: Annotated[str, Meta(description="The id of the node that one asked from.")]
    nodes: list[Node]
    edges: list[Edge]
    truncated: Annotated[bool, Meta(description="Whether there is more than one answer may hold.")]


class Difference(Struct, frozen=True):
    """What came and went between two moments."""

    start: str
    added_nodes: list[Node]
    removed_nodes: list[Node]
    added_edges: list[Edge]
    removed_edges: list[Edge]
    truncated: bool


# The walk


_Ends: TypeAlias = tuple[JobLineage, frozenset[Id], frozenset[Id], bool]
"""A job, its sources and targets, and whether these are only declared."""
_NONE: Final[frozenset[Id]] = frozenset()


class _Walk:
    """What has been seen so far: nodes with their distance, and from which datasets the walk went on."""

    def __init__(self, facts: StandingLineage, most_nodes: int) -> None:
        self._facts = facts
        self._most_nodes = most_nodes
        self.datasets: dict[Id, int] = {}
        self.jobs: dict[str, tuple[JobLineage, int]] = {}
        self.told_by_datasets: list[JobLineage] = []
        """Where datasets themselves declare what they are made of."""
        self.passed: dict[Role, set[Id]] = {"input": set(), "output": set()}
        self.is_truncated = False

    def go(self, frontier: Iterable[Id], role: Role, depth: int) -> None:
        """From datasets through the jobs that have them in this role, level by level."""
        sign = 1 if role == "input" else -1
        reached = set(frontier)
        passed = self.passed[role]
        for distance in range(1, depth + 1):
            if not reached or self.is_truncated:
                return
            passed |= reached
            met: set[Id] = set()
            for job in self._facts.users(reached, role):
                is_met = False
                for flow in job.flows:
                    near, far = (flow.sources, flow.targets) if role == "input" else (flow.targets, flow.sources)
                    if not near.isdisjoint(reached):
                        met |= far
                        is_met = True
                if is_met:
                    self.add(job, sign * distance)
            reached = met - passed
            for dataset in reached:
                self.datasets.setdefault(dataset, sign * distance)
            self.is_truncated = len(self.datasets) + len(self.jobs) > self._most_nodes

    def add(self, job: JobLineage, distance: int) -> None:
        if job.of_dataset:
            self.told_by_datasets.append(job)
        else:
            self.jobs.setdefault(job.node_id, (job, distance))

    def begin_with(self, job: JobLineage, role: Role) -> set[Id]:
        """The job itself, and what it has on one side: its outputs for those who go down."""
        self.add(job, 0)
        found: set[Id] = set()
        for flow in job.flows:
            found |= flow.targets if role == "input" else flow.sources
        for dataset in found:
            self.datasets.setdefault(dataset, 0)
        return found

    def ends(self, own: JobLineage | None, roles: Sequence[Role]) -> Iterator[_Ends]:
        """Of each job what goes in and what comes out, and whether that is only declared."""
        for job, _ in self.jobs.values():
            own_roles = roles if job is own else None
            if len(job.flows) == 1:
                # By far the most jobs: nothing can be said twice.
                (flow,) = job.flows
                yield job, *self._shown(flow, own_roles), flow.declared
                continue
            shown = [self._shown(flow, own_roles) for flow in job.flows]
            # What a run has shown is not only declared.
            of_runs = [ends for ends, flow in zip(shown, job.flows, strict=True) if not flow.declared]
            seen, every = ([_NONE.union(*(ends[side] for ends in of)) for side in (0, 1)] for of in (of_runs, shown))
            yield job, seen[0], seen[1], False
            yield job, every[0] - seen[0], every[1] - seen[1], True

    def _shown(self, flow: Flow, own_roles: Sequence[Role] | None) -> tuple[frozenset[Id], frozenset[Id]]:
        """Which of its sources and targets lie on the way; of the job that was asked from, its sides."""
        sources, targets = flow.sources, flow.targets
        if own_roles is not None:
            return sources if "output" in own_roles else _NONE, targets if "input" in own_roles else _NONE
        passed_down, passed_up = self.passed["input"], self.passed["output"]
        is_passed_down = not sources.isdisjoint(passed_down)
        is_passed_up = not targets.isdisjoint(passed_up)
        if is_passed_down and is_passed_up:
            return sources, targets
        if is_passed_down:
            return sources if sources <= passed_down else sources & passed_down, targets
        return (sources, targets if targets <= passed_up else targets & passed_up) if is_passed_up else (_NONE, _NONE)

    def pairs(self) -> dict[tuple[Id, Id], None]:
        """Source and target of what datasets themselves declare."""
        passed_down, passed_up = self.passed["input"], self.passed["output"]
        return {
            (source, target): None
            for told in self.told_by_datasets
            for flow in told.flows
            for source in flow.sources
            for target in flow.targets
            if source in passed_down or target in passed_up
        }


_ROLES: Final[dict[Direction, tuple[Role, ...]]] = {"up": ("output",), "down": ("input",), "both": ("output", "input")}


def graph(
    connection: psycopg.Connection[Any],
    start: Start,
    *,
    direction: Direction = "both",
    depth: int = 5,
    as_of: datetime | None = None,
    level: Level = "table",
    most_nodes: int = MOST_NODES,
) -> Graph:
    """What lies around a node, so many jobs deep. Of a run it is, unless another is named, the moment of its end."""
    if as_of is None and start.run is not None:
        as_of = start.ended_at
    ignored = Ignored.load(connection)
    facts = StandingLineage(connection, as_of, ignored)
    walk = _Walk(facts, most_nodes)
    roles = _ROLES[direction]
    own = facts.run(start.run) if start.run is not None else facts.job(start.job) if start.job is not None else None
    for role in roles:
        if start.dataset is not None:
            walk.datasets.setdefault(start.dataset, 0)
            walk.go([start.dataset], role, depth)
        elif own is not None:
            if level == "column":
                # A column has two ends.
                walk.begin_with(own, "output" if role == "input" else "input")
            # The first of the jobs on the way is the one that was asked for.
            walk.go(walk.begin_with(own, role), role, depth - 1)
    return _Told(facts, walk, ignored).graph(start, own, level, roles, depth)


def difference(before: Graph, after: Graph) -> Difference:
    old_nodes, new_nodes = ({node.id: node for node in g.nodes} for g in (before, after))
    old_edges, new_edges = ({_key(edge): edge for edge in g.edges} for g in (before, after))
    return Difference(
        start=after.start,
        added_nodes=[node for id_, node in new_nodes.items() if id_ not in old_nodes],
        removed_nodes=[node for id_, node in old_nodes.items() if id_ not in new_nodes],
        added_edges=[edge for key, edge in new_edges.items() if key not in old_edges],
        removed_edges=[edge for key, edge in old_edges.items() if key not in new_edges],
        truncated=before.truncated or after.truncated,
    )


def _key(edge: Edge) -> tuple[object, ...]:
    return edge.source, edge.target, edge.job, edge.transformation, edge.subtype, edge.declared


class _Told:
    """What a walk has seen, in names."""

    def __init__(self, facts: StandingLineage, walk: _Walk, ignored: Ignored) -> None:
        self._facts = facts
        self._walk = walk
        names = facts.names(walk.datasets)
        if ignored:
            names = {
                dataset: named for dataset, named in names.items() if not ignored.hides_dataset(named[1], named[0])
            }
        self._names = names
        self._ids = {dataset: f"dataset:{named[0]}" for dataset, named in names.items()}

    def graph(self, start: Start, own: JobLineage | None, level: Level, roles: Sequence[Role], depth: int) -> Graph:
        nodes = self._datasets()
        nodes += [
            JobNode(job.node_id, job.namespace, job.name, distance, job.run_id, job.run_at)
            for job, distance in self._walk.jobs.values()
        ]
        edges = [] if level == "column" else self._edges(own, roles)
        if level == "column":
            columns = _Columns(self._facts, self._walk, self._names)
            edges = columns.walk(start, own, roles, depth)
            nodes += columns.nodes()
        return Graph(start.node_id, nodes, edges, self._walk.is_truncated)

    def _datasets(self) -> list[Node]:
        found: list[Node] = []
        names, ids = self._names, self._ids
        for dataset, distance in self._walk.datasets.items():
            if dataset in names:
                urn, namespace, name, others = names[dataset]
                found.append(DatasetNode(ids[dataset], urn, namespace, name, distance, others))
        return found

    def _edges(self, own: JobLineage | None, roles: Sequence[Role]) -> list[Edge]:
        found: list[Edge] = []
        ids = self._ids
        # Tens of thousands: the loops are written out, because a list of one or two takes longer to make than to fill.
        for job, sources, targets, declared in self._walk.ends(own, roles):
            node_id = job.node_id
            for source in sources:
                if source in ids:
                    found.append(Edge(ids[source], node_id, declared))  # noqa: PERF401
            is_plain = len(job.flows) == 1
            for target in targets:
                if target in ids:
                    of_target = UNSET if is_plain else self._sources(job, target)
                    found.append(Edge(node_id, ids[target], declared, of_target))
        found += [
            Edge(ids[source], ids[target], declared=True)
            for source, target in self._walk.pairs()
            if source in ids and target in ids
        ]
        return found

    def _sources(self, job: JobLineage, target: Id) -> list[str] | UnsetType:
        of_target = frozenset[Id]().union(*(flow.sources for flow in job.flows if target in flow.targets))
        every = frozenset[Id]().union(*(flow.sources for flow in job.flows))
        if of_target == every:
            return UNSET
        return sorted(self._ids[each] for each in of_target if each in self._ids)


class _Columns:
    """A walk from column to column, within what the walk from table to table has met."""

    def __init__(self, facts: StandingLineage, walk: _Walk, names: Mapping[Id, Named]) -> None:
        self._names = names
        self._seen: dict[tuple[Id, str], int] = {}
        self._by_source: dict[Id, list[tuple[JobLineage, ColumnFlow]]] = {}
        self._by_target: dict[Id, list[tuple[JobLineage, ColumnFlow]]] = {}
        for job, flow in facts.columns([*(job for job, _ in walk.jobs.values()), *walk.told_by_datasets]):
            if flow.source in names and flow.target in names:
                self._by_source.setdefault(flow.source, []).append((job, flow))
                self._by_target.setdefault(flow.target, []).append((job, flow))

    def walk(self, start: Start, own: JobLineage | None, roles: Sequence[Role], depth: int) -> list[Edge]:
        edges: dict[tuple[object, ...], Edge] = {}
        for role in roles:
            sign = 1 if role == "input" else -1
            if start.dataset is not None:
                reached = {(start.dataset, start.column)}
            else:
                # Of a job, its own columns are the first step.
                sides = (flow.sources if role == "input" else flow.targets for flow in (own.flows if own else ()))
                reached = {(dataset, "") for side in sides for dataset in side}
            if start.column and start.dataset is not None:
                self._seen.setdefault((start.dataset, start.column), 0)
            gone = set(reached)
            for distance in range(1, depth + 1):
                only = own.node_id if own is not None and distance == 1 else None
                met = self._step(reached, role, sign * distance, only, edges)
                reached = met - gone
                gone |= reached
                if not reached:
                    break
        return list(edges.values())

    def _step(
        self,
        reached: set[tuple[Id, str]],
        role: Role,
        distance: int,
        only: str | None,
        edges: dict[tuple[object, ...], Edge],
    ) -> set[tuple[Id, str]]:
        fields: dict[Id, set[str]] = {}
        for dataset, column in reached:
            fields.setdefault(dataset, set()).add(column)
        met: set[tuple[Id, str]] = set()
        for dataset, wanted in fields.items():
            for job, flow in (self._by_source if role == "input" else self._by_target).get(dataset, ()):
                source, target = (flow.source, flow.source_field), (flow.target, flow.target_field)
                near, far = (source, target) if role == "input" else (target, source)
                # An empty field is all of the dataset.
                if (only is not None and job.node_id != only) or not (near[1] in wanted or "" in wanted or not near[1]):
                    continue
                self._seen.setdefault(near, distance - (1 if distance > 0 else -1))
                self._seen.setdefault(far, distance)
                met.add(far)
                edge = Edge(
                    self._id(source),
                    self._id(target),
                    flow.declared,
                    job=UNSET if job.of_dataset else job.node_id,
                    transformation=flow.transformation or UNSET,
                    subtype=flow.subtype or UNSET,
                    masking=flow.masking or UNSET,
                )
                edges.setdefault(_key(edge), edge)
        return met

    def nodes(self) -> Iterator[ColumnNode]:
        for (dataset, column), distance in self._seen.items():
            yield ColumnNode(self._id((dataset, column)), self._names[dataset][0], column, distance)

    def _id(self, column: tuple[Id, str]) -> str:
        return f"column:{self._names[column[0]][0]}#{column[1]}"
