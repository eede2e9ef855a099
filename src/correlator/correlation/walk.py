"""Upstream, version by version: what a version was made of, what that was made of, and so on."""

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from correlator.correlation.history import ColumnEdge, History, Output, Run, Use, Version
from correlator.correlation.ids import Id
from correlator.rulebook.statements import STRENGTH

EXPLICIT: Final = 0
"""Who says so: a lineage facet. It says all there is to say."""
RENAME: Final = STRENGTH["rename"]
"""A former name: what it held goes into the new one and nowhere else."""


class Limits(msgspec.Struct, frozen=True):
    """How far a walk goes. When it stops for one of these, it says so."""

    depth: int = 20
    runs: int = 500


_SHORT: Final = 2
"""To foresee so few layers would fetch more than they have."""


class Step(msgspec.Struct, frozen=True):
    """That a run read a version, or a dataset that nobody is known to have written."""

    use: Use
    version: Version | None
    distance: int
    """Of the version from where the walk began."""


class Trace(msgspec.Struct):
    """What a walk from one version has found."""

    start: Version | None
    distances: dict[Id, int] = msgspec.field(default_factory=dict)
    """Of each run that wrote something that went into the start: how many jobs away it is."""
    written: dict[Id, list[Version]] = msgspec.field(default_factory=dict)
    """What these runs wrote that went into the start."""
    steps: list[Step] = msgspec.field(default_factory=list)
    of_reader: dict[Id, list[Step]] = msgspec.field(default_factory=dict)
    """The same, by the run that read."""
    columns: dict[Id, frozenset[str] | None] = msgspec.field(default_factory=dict)
    """Of each dataset the columns that went into those asked for; None for all of them, or for not known."""
    is_cut: bool = False
    """Whether there is more than the limits allowed."""

    def reads_of(self, run: Id) -> list[Step]:
        return self.of_reader.get(run, [])

    def written_to(self, dataset: Id) -> list[Version]:
        return [version for versions in self.written.values() for version in versions if version.dataset == dataset]

    def by_dataset(self) -> dict[Id, list[Version]]:
        found: dict[Id, list[Version]] = {}
        for versions in self.written.values():
            for version in versions:
                found.setdefault(version.dataset, []).append(version)
        return found

    def join(self, version: Version) -> None:
        """A version beside the others of its dataset: whoever has read one of these has read it, too."""
        beside = {other.run: self.distances[other.run] for other in self.written_to(version.dataset)}
        if version.run in beside:
            return
        read = {step.use: step for step in self.steps if step.use.dataset == version.dataset}
        _arrive(self, {}, version, min(beside.values(), default=0))
        for step in read.values():
            self.take(Step(step.use, version, step.distance))

    def take(self, step: Step) -> None:
        self.steps.append(step)
        self.of_reader.setdefault(step.use.reader, []).append(step)


def walk(
    history: History,
    starts: Sequence[tuple[Version | None, frozenset[str] | None]],
    limits: Limits = Limits(),  # noqa: B008 - frozen
    *,
    others: bool = False,
) -> list[Trace]:
    """From each start, all at once: a layer of all of them is one set of questions.

    With `others` a table that several jobs write is made of what each of them wrote last.
    """
    traces = [Trace(start) for start, _ in starts]
    frontier: list[dict[Id, list[Version]]] = []
    known = [start for start, _ in starts if start is not None]
    beside = dict(zip((one.key for one in known), history.other_writers(known), strict=True)) if others else {}
    for trace, (start, columns) in zip(traces, starts, strict=True):
        layer: dict[Id, list[Version]] = {}
        if start is not None:
            trace.columns[start.dataset] = columns
            for version in (start, *beside.get(start.key, ())):
                _arrive(trace, layer, version, 0)
        frontier.append(layer)
    if limits.depth > _SHORT:
        history.foresee_upstream({run for layer in frontier for run in layer}, limits.runs * len(traces))
    distance = 0
    while any(frontier) and distance < limits.depth:
        distance += 1
        runs = {run for layer in frontier for run in layer}
        readers = history.runs(runs)
        inputs = history.inputs(runs)
        outputs = history.outputs(runs)
        sources = history.sources(runs)
        asked: list[tuple[int, Use]] = []
        for number, (trace, layer) in enumerate(zip(traces, frontier, strict=True)):
            for run, versions in layer.items():
                uses = _feeding(readers.get(run), inputs[run], outputs[run], sources.get(run, []), versions)
                _reach(trace, versions, uses, sources.get(run, []))
                asked += [(number, use) for use in uses]
        bound = list(zip(asked, history.bind([use for _, use in asked]), strict=True))
        if others:
            bound += _others(history, bound)
        frontier = [{} for _ in traces]
        for (number, use), version in bound:
            trace = traces[number]
            trace.take(Step(use, version, distance))
            if version is None:
                continue
            if len(trace.distances) >= limits.runs and version.run not in trace.distances:
                trace.is_cut = True
                continue
            _arrive(trace, frontier[number], version, distance)
    for trace, layer in zip(traces, frontier, strict=True):
        trace.is_cut = trace.is_cut or bool(layer)
    return traces


_Bound: TypeAlias = tuple[tuple[int, Use], Version | None]
"""The number of the trace, the read, and what was read."""


def _others(history: History, bound: Sequence[_Bound]) -> list[_Bound]:
    known = {version.key: version for _, version in bound if version is not None}
    others = dict(zip(known, history.other_writers(list(known.values())), strict=True))
    return [(asked, other) for asked, version in bound if version is not None for other in others[version.key]]


def _arrive(trace: Trace, layer: dict[Id, list[Version]], version: Version, distance: int) -> None:
    known = trace.written.setdefault(version.run, [])
    if any(version.key == other.key for other in known):
        return
    known.append(version)
    trace.distances.setdefault(version.run, distance)
    layer.setdefault(version.run, []).append(version)


def _feeding(
    run: Run | None,
    inputs: Sequence[Use],
    outputs: Sequence[Output],
    sources: Sequence[ColumnEdge],
    versions: Sequence[Version],
) -> list[Use]:
    """Which of a run's inputs went into what it wrote.

    Where a lineage facet speaks, those that it names. A columnLineage facet may leave out what only filters or joins,
    so beside it every input counts; but it may also name inputs that `inputs` leaves out, and those are among them.
    """
    if run is None:
        return []
    targets = {version.dataset for version in versions}
    told = {output.told_by for output in outputs if output.dataset in targets}
    if not run.states_lineage and EXPLICIT not in told:
        renamed = {edge.source for edge in sources if edge.target in targets and edge.origin == RENAME}
        return [use for use in inputs if not use.is_rename or use.dataset in renamed]
    named = {edge.source for edge in sources if edge.target in targets and edge.origin == EXPLICIT}
    return [use for use in inputs if use.dataset in named]


def _reach(trace: Trace, versions: Sequence[Version], uses: Sequence[Use], sources: Sequence[ColumnEdge]) -> None:
    """Carry the columns that are asked for over to what they were made of."""
    for version in versions:
        wanted = trace.columns.get(version.dataset)
        edges = [edge for edge in sources if edge.target == version.dataset]
        # Where none of them is named, nothing is said of them: a column that is gone is gone from its lineage as well.
        is_told = not wanted or any(edge.target_field in wanted or edge.target_field == "" for edge in edges)
        for use in uses:
            of_source = [edge for edge in edges if edge.source == use.dataset]
            reached: frozenset[str] | None = None
            if wanted is not None and edges and is_told:
                reached = frozenset(
                    edge.source_field for edge in of_source if edge.target_field in wanted or edge.target_field == ""
                )
                if "" in reached:
                    reached = None
            before = trace.columns.get(use.dataset, frozenset())
            trace.columns[use.dataset] = None if before is None or reached is None else before | reached
