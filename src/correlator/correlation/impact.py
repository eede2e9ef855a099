"""Who is hurt: downstream from what failed, version by version.

Affected is who read a bad version, what came of it, and so on down: that has happened. At risk is who would read one at
the next run: jobs by what their last completed run read, and what is declared.

What a run wrote is bad from some moment on. Of most runs that is the moment at which they ended; a long-running one
reads every version of its inputs until it ends, and what it wrote before the bad one came was well.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from correlator.correlation.history import ColumnEdge, History, Output, Run, Use
from correlator.correlation.ids import Id
from correlator.correlation.ignored import Ignored
from correlator.correlation.standing_lineage import StandingLineage
from correlator.correlation.walk import EXPLICIT, RENAME, Limits

Columns = frozenset[str] | None
"""None for all of a dataset, or for not known."""


class Bad(msgspec.Struct, frozen=True):
    """What a run wrote to a dataset, from a moment on, until another if it went on well after that."""

    dataset: Id
    """By its class."""
    run: Id
    since: datetime
    until: datetime | None = None
    columns: Columns = None
    distance: int = 0
    harmless_until: datetime | None = None
    """Whoever read it before that took no harm: it was still fresh, and the test passed."""

    @property
    def key(self) -> tuple[Id, Id]:
        return self.dataset, self.run


class Reader(msgspec.Struct, frozen=True):
    """A run that read something bad and is not known to have written anything."""

    run: Id
    at: datetime


class Risk(msgspec.Struct, frozen=True):
    dataset: Id
    """By its class."""
    distance: int
    declared: bool
    """Whether it is only announced that data goes there."""


class Impact(msgspec.Struct):
    affected: list[Bad] = msgspec.field(default_factory=list)
    """The nearest first, then by time."""
    readers: list[Reader] = msgspec.field(default_factory=list)
    at_risk: list[Risk] = msgspec.field(default_factory=list)
    runs: dict[Id, Run] = msgspec.field(default_factory=dict)
    is_cut: bool = False
    """Whether there is more than the limits allowed."""


LIMITS: Final = Limits(depth=20, runs=1_000)


def impact(
    history: History,
    bad: Sequence[Bad],
    well: Mapping[Id, datetime] | None = None,
    limits: Limits = LIMITS,
) -> Impact:
    """Of some bad versions. `well` says of datasets from when on they were well again, whatever went into them."""
    walk = _Down(history, bad, well or {}, limits)
    walk.go()
    answer = Impact(is_cut=walk.is_cut)
    own = {one.dataset for one in bad}
    answer.affected = sorted(
        (one for one in walk.bad.values() if one.distance > 0 and one.dataset not in own),
        key=lambda one: (one.distance, one.since, one.dataset, one.run),
    )
    answer.readers = sorted(walk.readers.values(), key=lambda reader: (reader.at, reader.run))
    answer.runs = history.runs([*(one.run for one in answer.affected), *(one.run for one in answer.readers)])
    return answer


def standing(history: History, bad: Collection[Bad]) -> set[Id]:
    """The datasets whose last version is a bad one."""
    by_dataset: dict[Id, list[Bad]] = {}
    for one in bad:
        by_dataset.setdefault(one.dataset, []).append(one)
    last = _last_writers(history, by_dataset)
    return {
        dataset
        for dataset, of_dataset in by_dataset.items()
        if any(one.until is None and last.get(dataset, one.run) == one.run for one in of_dataset)
    }


def at_risk(history: History, datasets: Collection[Id], limits: Limits = LIMITS) -> list[Risk]:
    """What would come of some datasets at the next runs of those who read them."""
    facts = StandingLineage(history.connection, None, Ignored.load(history.connection))
    found: dict[bytes, Risk] = {}
    frontier: set[bytes] = set(datasets)
    seen = set(frontier)
    for distance in range(1, limits.depth + 1):
        met: dict[bytes, bool] = {}
        for job in facts.users(frontier, "input") if frontier else ():
            for flow in job.flows:
                if not flow.sources.isdisjoint(frontier):
                    for target in flow.targets - seen:
                        met[target] = flow.declared and met.get(target, True)
        for target, declared in met.items():
            found[target] = Risk(Id(target), distance, declared)
        frontier = set(met)
        seen |= frontier
        if len(found) >= limits.runs:
            break
    return sorted(found.values(), key=lambda risk: (risk.distance, risk.dataset))


class _Down:
    """One walk, layer by layer: each is a handful of questions, whatever its width."""

    def __init__(self, history: History, bad: Sequence[Bad], well: Mapping[Id, datetime], limits: Limits) -> None:
        self._history = history
        self._well = well
        self._limits = limits
        self.bad: dict[tuple[Id, Id], Bad] = {}
        self.readers: dict[Id, Reader] = {}
        self.is_cut = False
        self._frontier: list[Bad] = []
        for one in bad:
            self._arrive(one)

    def _arrive(self, one: Bad) -> None:
        known = self.bad.get(one.key)
        if known is None:
            self.bad[one.key] = one
            self._frontier.append(one)
        elif known.distance == one.distance and (known.columns is not None or one.since < known.since):
            # The same run by another way of the same length: more columns, or from earlier on.
            columns = None if one.columns is None or known.columns is None else known.columns | one.columns
            since = min(one.since, known.since)
            self.bad[one.key] = msgspec.structs.replace(known, columns=columns, since=since)
            self._frontier = [self.bad[other.key] if other.key == one.key else other for other in self._frontier]

    def go(self) -> None:
        self._history.foresee_downstream({one.run for one in self._frontier}, self._limits.runs)
        while self._frontier:
            layer, self._frontier = self._frontier, []
            if layer[0].distance >= self._limits.depth:
                self.is_cut = True
                return
            self._step(layer)
            if len(self.bad) > self._limits.runs:
                self.is_cut = True
                return

    def _step(self, layer: Sequence[Bad]) -> None:
        reads = self._reads(layer)
        runs = self._history.runs(reader for reader, _ in reads)
        inputs = self._history.inputs(runs)
        outputs = self._history.outputs(runs)
        sources = self._history.sources(runs)
        running = _running_writes(self._history, runs)
        by_run: dict[Id, list[tuple[Bad, datetime]]] = {}
        for (reader, one), at in reads.items():
            by_run.setdefault(reader, []).append((one, at))
        for run_id, of_run in by_run.items():
            run = runs.get(run_id)
            if run is None or _observes(run, outputs[run_id]):
                continue
            written = self._written(
                run, of_run, inputs[run_id], outputs[run_id], sources.get(run_id, []), running.get(run_id, {})
            )
            if not written:
                at = min(at for _, at in of_run)
                self.readers.setdefault(run_id, Reader(run_id, at))
            for one in written:
                self._arrive(one)

    def _reads(self, layer: Sequence[Bad]) -> dict[tuple[Id, Bad], datetime]:
        """Who read which of them, and when."""
        members = self._history.members(one.dataset for one in layer)
        asked = [(n, name, one.since, one.run) for n, one in enumerate(layer) for name in members[one.dataset]]
        columns = [list(column) for column in zip(*asked, strict=True)]
        found: dict[tuple[Id, Bad], datetime] = {}
        candidates: list[tuple[Bad, Use]] = []
        most = self._limits.runs + 1
        rows = self._history.rows(_READS, *columns, [layer[n].until for n, *_ in asked], most)
        if any(run.parent or run.root for run in self._history.runs(one.run for one in layer).values()):
            rows += self._history.rows(_READS_OF_FAMILIES, *columns)
        by_class = self._history.classes(row[2] for row in rows)
        for number, run, dataset, at, version in rows:
            candidates.append((layer[number], Use(run, by_class[dataset], at, version)))
        for number, run, at in self._history.rows(_LONG_READS, *columns[:3]) if self._history.are_there.streams else ():
            if run != layer[number].run:
                found[run, layer[number]] = max(at, layer[number].since)
        bound = self._history.bind([use for _, use in candidates])
        for (one, use), version in zip(candidates, bound, strict=True):
            if version is None or use.reader == one.run or (version.dataset, version.run) != one.key:
                continue
            if one.harmless_until is not None and use.at < one.harmless_until:
                continue
            if version.at >= one.since and (one.until is None or version.at < one.until):
                found.setdefault((use.reader, one), use.at)
        return found

    def _written(
        self,
        run: Run,
        reads: Sequence[tuple[Bad, datetime]],
        inputs: Sequence[Use],
        outputs: Sequence[Output],
        sources: Sequence[ColumnEdge],
        running: Mapping[Id, list[datetime]],
    ) -> list[Bad]:
        """What a run made of what it read."""
        found = []
        for output in outputs:
            feeding = [(one, at) for one, at in reads if _feeds(run, one.dataset, output, inputs, sources)]
            if not feeding:
                continue
            first = min(at for _, at in feeding)
            moments = [at for at in (*running.get(output.name, ()), output.at) if at is not None and at >= first]
            if not moments:
                continue
            since = min(moments)
            if output.dataset in self._well and since >= self._well[output.dataset]:
                continue
            until = None
            if run.is_long:
                ends = [one.until for one, _ in feeding]
                until = None if None in ends else max(end for end in ends if end is not None)
            columns = _columns([one for one, _ in feeding], output, sources)
            distance = min(one.distance for one, _ in feeding) + 1
            found.append(Bad(output.dataset, run.id, since, until, columns, distance))
        return found


def _feeds(run: Run, dataset: Id, output: Output, inputs: Sequence[Use], sources: Sequence[ColumnEdge]) -> bool:
    """Whether what a run read goes into an output: as `walk` has it, the other way round."""
    origins = {edge.origin for edge in sources if edge.source == dataset and edge.target == output.dataset}
    if run.states_lineage or output.told_by == EXPLICIT:
        return EXPLICIT in origins
    is_rename = any(use.dataset == dataset and use.is_rename for use in inputs)
    return not is_rename or RENAME in origins


def _columns(reads: Sequence[Bad], output: Output, sources: Sequence[ColumnEdge]) -> Columns:
    """The columns of an output that the bad ones went into; none where it is told where all columns come from."""
    edges = [edge for edge in sources if edge.target == output.dataset]
    reached: set[str] = set()
    for one in reads:
        if one.columns is None or not edges:
            return None
        of_source = [edge for edge in edges if edge.source == one.dataset]
        hit = {edge.target_field for edge in of_source if edge.source_field in one.columns or edge.source_field == ""}
        if "" in hit:
            return None
        reached |= hit
    return frozenset(reached)


def _observes(run: Run, outputs: Sequence[Output]) -> bool:
    return run.is_test or (run.has_results and not outputs)


def _running_writes(history: History, runs: Iterable[Id]) -> dict[Id, dict[Id, list[datetime]]]:
    found: dict[Id, dict[Id, list[datetime]]] = {}
    for run, dataset, at in history.rows(_RUNNING, list(runs)) if history.are_there.running_writes else ():
        found.setdefault(run, {}).setdefault(dataset, []).append(at)
    return found


def _last_writers(history: History, classes: Collection[Id]) -> dict[Id, Id]:
    """Who wrote each of some datasets last."""
    members = history.members(classes)
    by_name = {name: of_class for of_class, names in members.items() for name in names}
    last: dict[Id, tuple[datetime, Id]] = {}
    for name, run, at in history.rows(_LAST_WRITES, list(by_name)):
        of_class = by_name[name]
        last[of_class] = max((at, run), last.get(of_class, (at, run)))
    return {of_class: run for of_class, (_, run) in last.items()}


# What a run that only looks at data writes is nobody's version. Most datasets have no such writer, which a row of each
# job that writes it tells: then its runs need not be looked at, which lie all over the place.
_IS_VERSION: Final = """(
    NOT (
        SELECT count(*) > 0 FROM (
            SELECT FROM {s}.dataset_jobs AS writer LEFT JOIN {s}.standing_lineage AS standing USING (job_id)
            WHERE writer.dataset_id = edge.dataset_id AND writer.edge_type = 'output'
              AND standing.observes IS NOT FALSE LIMIT 1
        ) AS observers
    )
    OR (SELECT upper(coalesce(run.job_type, '')) <> 'TEST' FROM {s}.job_runs AS run WHERE run.id = edge.job_run_id)
)"""

# When somebody else wrote next, by any of its names: one probe for each. And those who read between the two writes: a
# range of the index.
_READS: Final = f"""
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(%s::int[], %s::uuid[], %s::timestamptz[], %s::uuid[], %s::timestamptz[])
        AS asked (number, dataset_id, at, writer, until)
), next AS MATERIALIZED (
    SELECT asked.number, min(written.at) AS at
    FROM asked CROSS JOIN LATERAL (
        (SELECT edge.used_at AS at FROM {{s}}.lineage_edges AS edge
         WHERE edge.dataset_id = asked.dataset_id AND edge.edge_type = 'output' AND edge.used_at > asked.at
           AND edge.job_run_id <> asked.writer AND {_IS_VERSION}
         ORDER BY edge.used_at LIMIT 1)
        UNION ALL
        (SELECT running.at
         FROM {{s}}.running_writes AS running JOIN {{s}}.job_runs AS run ON run.id = running.job_run_id
         WHERE running.dataset_id = asked.dataset_id AND running.at > asked.at AND running.job_run_id <> asked.writer
           AND (running.row_count > 0 OR upper(coalesce(run.processing_type, '')) IN ('STREAMING', 'SERVICE'))
         ORDER BY running.at LIMIT 1)
    ) AS written GROUP BY asked.number
)
SELECT asked.number, read.*
FROM asked LEFT JOIN next USING (number)
CROSS JOIN LATERAL (
    SELECT edge.job_run_id, edge.dataset_id, edge.used_at, edge.dataset_version FROM {{s}}.lineage_edges AS edge
    WHERE edge.dataset_id = asked.dataset_id AND edge.edge_type = 'input' AND edge.used_at >= asked.at
      AND edge.used_at < coalesce(least(next.at, asked.until), 'infinity')
    ORDER BY edge.used_at LIMIT %s
) AS read
"""  # noqa: S608 (constants)

# A task reads what its own family wrote, even when somebody else has written since.
_READS_OF_FAMILIES: Final = """
SELECT asked.number, edge.job_run_id, edge.dataset_id, edge.used_at, edge.dataset_version
FROM unnest(%s::int[], %s::uuid[], %s::timestamptz[], %s::uuid[]) AS asked (number, dataset_id, at, writer)
JOIN {s}.job_runs AS writer ON writer.id = asked.writer
CROSS JOIN LATERAL (
    SELECT run.id FROM {s}.job_runs AS run WHERE run.parent_job_run_id = writer.parent_job_run_id
    UNION
    SELECT run.id FROM {s}.job_runs AS run WHERE run.root_job_run_id = writer.root_job_run_id
) AS kin
JOIN {s}.lineage_edges AS edge
    ON edge.job_run_id = kin.id AND edge.dataset_id = asked.dataset_id AND edge.edge_type = 'input'
WHERE edge.used_at >= asked.at
"""

# Streams that had begun before and had not ended.
_LONG_READS: Final = """
SELECT asked.number, run.id, run.started_at
FROM unnest(%s::int[], %s::uuid[], %s::timestamptz[]) AS asked (number, dataset_id, at)
JOIN {s}.dataset_jobs AS used ON used.dataset_id = asked.dataset_id AND used.edge_type = 'input'
JOIN {s}.job_runs AS run ON run.job_id = used.job_id
    AND upper(run.processing_type) IN ('STREAMING', 'SERVICE') AND run.started_at < asked.at
    AND (run.ended_at IS NULL OR run.ended_at > asked.at)
JOIN {s}.lineage_edges AS edge
    ON edge.job_run_id = run.id AND edge.dataset_id = asked.dataset_id AND edge.edge_type = 'input'
"""

_RUNNING: Final = """
SELECT running.job_run_id, running.dataset_id, running.at
FROM {s}.running_writes AS running JOIN {s}.job_runs AS run ON run.id = running.job_run_id
WHERE running.job_run_id = ANY (%s::uuid[])
  AND (running.row_count > 0 OR upper(coalesce(run.processing_type, '')) IN ('STREAMING', 'SERVICE'))
"""

_LAST_WRITES: Final = f"""
SELECT asked.dataset_id, written.* FROM unnest(%s::uuid[]) AS asked (dataset_id)
CROSS JOIN LATERAL (
    (SELECT edge.job_run_id, edge.used_at FROM {{s}}.lineage_edges AS edge
     WHERE edge.dataset_id = asked.dataset_id AND edge.edge_type = 'output' AND edge.used_at IS NOT NULL
       AND {_IS_VERSION}
     ORDER BY edge.used_at DESC, edge.job_run_id DESC LIMIT 1)
    UNION ALL
    (SELECT running.job_run_id, running.at FROM {{s}}.running_writes AS running
     WHERE running.dataset_id = asked.dataset_id ORDER BY running.at DESC, running.job_run_id DESC LIMIT 1)
) AS written
"""  # noqa: S608 (constants)
