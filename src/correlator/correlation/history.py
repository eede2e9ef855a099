"""What the facts say of runs, reads and writes, fetched in sets.

A layer of a walk is a handful of queries, however wide it is. Datasets are meant by their class: all names of one
dataset are one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from types import NoneType
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
import psycopg
from psycopg.types.json import set_json_loads
from psycopg.types.string import ByteaBinaryLoader

from correlator.correlation.ids import NOBODY, Id
from correlator.rulebook.formats import Instant
from correlator.rulebook.runs import LONG_RUNNING
from correlator.rulebook.statements import STRENGTH
from correlator.rulebook.versions import Kin, Read, Write, responsible_write
from correlator.store.moments import read_any_moment


class Run(msgspec.Struct, frozen=True, eq=False, gc=False):
    id: Id
    job_id: Id
    namespace: str
    name: str
    run_id: str
    state: str
    started_at: datetime
    ended_at: datetime | None
    nominal_time: datetime | None
    parent: Id | None
    root: Id | None
    processing_type: str
    job_type: str
    states_lineage: bool
    has_results: bool
    error_message: str
    producer: str

    @property
    def kin(self) -> Kin:
        if self.parent is None:
            return Kin(self.id)
        return Kin(self.id, self.parent, self.parent if self.root is None else self.root)

    @property
    def last_moment(self) -> datetime:
        """When it ended, as far as is known."""
        return self.ended_at or self.started_at

    @property
    def is_long(self) -> bool:
        return self.processing_type.upper() in LONG_RUNNING

    @property
    def is_test(self) -> bool:
        return self.job_type.upper() == "TEST"


class Version(msgspec.Struct, frozen=True, gc=False):
    """A write: what a dataset was from then on."""

    dataset: Id
    """By its class."""
    run: Id
    at: datetime
    written_as: Id = NOBODY
    """The dataset by the name that the run used."""
    row_count: int | None = None
    byte_size: int | None = None
    name: str | None = None
    """The version as the producer calls it."""
    kind: str = "complete"

    @property
    def key(self) -> tuple[Id, Id, datetime]:
        return self.dataset, self.run, self.at


class Use(msgspec.Struct, frozen=True, gc=False):
    """That a run reads a dataset."""

    reader: Id
    dataset: Id
    """By its class."""
    at: datetime
    version: str | None = None
    of_own_output: bool = False
    is_test: bool = False
    """Whether the reader only looks."""
    is_rename: bool = False
    """Whether it is only known as what something else was called before: it goes into that alone."""


class History:
    """One look at the facts, through one connection. What was fetched is not fetched again."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str = "facts") -> None:
        self.connection = connection
        self.schema = schema
        self._cursor = _cursor(connection)
        self._runs: dict[Id, Run] = {}
        self._classes: dict[Id, Id] = {}
        self._members: dict[Id, list[Id]] = {}
        self._families: dict[Id, list[_Candidate]] = {}
        self._edges: dict[Id, _Edges] = {}
        self._are_shared: dict[Id, bool] = {}
        self._last_writes: dict[tuple[Id, Id, datetime], list[_Candidate]] = {}

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Tables of the facts are named as `{s}.table`."""
        # Prepared at once: a page asks some fifty of them, and until its sixth on a connection nearly half of its time
        # went into plans.
        return self._fetched(query, [_sent(value) for value in parameters], prepare=True)

    def rows_by_name(self, query: str, parameters: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """Of a query that is made of what was asked for."""
        return self._fetched(query, parameters)

    def _fetched(
        self, query: str, sent: Sequence[object] | Mapping[str, object], *, prepare: bool | None = None
    ) -> list[tuple[Any, ...]]:
        asked = query.replace("{s}", self.schema).encode()
        self._cursor.execute(asked, sent, prepare=prepare)
        try:
            return self._cursor.fetchall()
        except psycopg.DataError:
            # A producer may send a year that Python has not, and a merge must not stop for it. To read every moment
            # with that in mind would take seven times as long.
            self._cursor = _cursor(self.connection)
            read_any_moment(self._cursor)
            return self._cursor.execute(asked, sent, prepare=prepare).fetchall()

    @cached_property
    def are_there(self) -> "_Kinds":
        """What need not be asked for where nobody ever sent it."""
        return _Kinds(*self.rows(_ARE_THERE)[0])

    # Names

    def classes(self, datasets: Iterable[Id]) -> dict[Id, Id]:
        """The class of each."""
        wanted = list(dict.fromkeys(datasets))
        unknown = [dataset for dataset in wanted if dataset not in self._classes]
        if unknown:
            self._classes.update((dataset, dataset) for dataset in unknown)
            if self.are_there.classes:
                rows = self.rows(
                    "SELECT dataset_id, class_id FROM {s}.dataset_classes WHERE dataset_id = ANY (%s::uuid[])", unknown
                )
                self._classes.update(rows)
                unknown = list({*unknown} - {dataset for dataset, _ in rows})
            # A class has a row for each of its names, also for the one that it goes by: who has none is alone.
            self._members.update((dataset, [dataset]) for dataset in unknown)
        return {dataset: self._classes[dataset] for dataset in wanted}

    def members(self, classes: Iterable[Id]) -> dict[Id, list[Id]]:
        """The datasets of each class, by the names that events use."""
        wanted = list(dict.fromkeys(classes))
        unknown = [class_id for class_id in wanted if class_id not in self._members]
        if unknown and not self.are_there.classes:
            self._members.update((class_id, [class_id]) for class_id in unknown)
        elif unknown:
            found: defaultdict[Id, list[Id]] = defaultdict(list)
            for class_id, dataset in self.rows(
                "SELECT class_id, dataset_id FROM {s}.dataset_classes WHERE class_id = ANY (%s::uuid[]) ORDER BY 2",
                unknown,
            ):
                found[class_id].append(dataset)
                self._classes[dataset] = class_id
            for class_id in unknown:
                self._members[class_id] = found.get(class_id) or [class_id]
        return {class_id: self._members[class_id] for class_id in wanted}

    def names(self, classes: Iterable[Id]) -> dict[Id, str]:
        """What each is called, by one of its names."""
        members = self.members(classes)
        asked = [name for of_class in members.values() for name in of_class]
        rows = (
            self.rows("SELECT id, dataset_name FROM {s}.datasets WHERE id = ANY (%s::uuid[])", asked) if asked else []
        )
        known = dict(rows)
        named = {of_class: [known[name] for name in names if name in known] for of_class, names in members.items()}
        return {of_class: names[0] for of_class, names in named.items() if names}

    # Runs

    def runs(self, ids: Iterable[Id]) -> dict[Id, Run]:
        wanted = list(dict.fromkeys(ids))
        unknown = [run for run in wanted if run not in self._runs]
        if unknown:
            self._keep(self.rows(_RUNS.format("run.id = ANY (%s::uuid[])"), unknown))
        return {run: self._runs[run] for run in wanted if run in self._runs}

    def _keep(self, rows: Iterable[Sequence[Any]]) -> list[Run]:
        kept = [Run(*row) for row in rows]
        self._runs.update((run.id, run) for run in kept)
        return kept

    def last_ended(self, wanted: Sequence[tuple[Id, datetime]], number: int) -> dict[tuple[Id, datetime], list[Run]]:
        """Of each job the last runs that had ended before a moment, the latest first."""
        if not wanted:
            return {}
        found: dict[tuple[Id, datetime], list[Run]] = {key: [] for key in wanted}
        query = _LAST_ENDED.format(_RUNS.format("run.job_id = asked.job_id AND run.ended_at < asked.at"))
        keys = list(found)
        rows = self.rows(query, [job for job, _ in keys], [at for _, at in keys], number)
        for row, run in zip(rows, self._keep(row[1:] for row in rows), strict=True):
            found[keys[row[0] - 1]].append(run)
        return found

    # Reads and writes

    def inputs(self, runs: Iterable[Id]) -> dict[Id, list[Use]]:
        """What each run reads."""
        return {run: edges.inputs for run, edges in self._edges_of(runs)}

    def outputs(self, runs: Iterable[Id]) -> dict[Id, list["Output"]]:
        return {run: edges.outputs for run, edges in self._edges_of(runs)}

    def _edges_of(self, runs: Iterable[Id]) -> list[tuple[Id, "_Edges"]]:
        """Both sides at once: who asks for one will ask for the other."""
        wanted = list(dict.fromkeys(runs))
        unknown = [run for run in wanted if run not in self._edges]
        if unknown:
            self._edges.update((run, _Edges([], [])) for run in unknown)
            rows = self.rows(_EDGES, unknown)
            classes = self.classes(row[1] for row in rows)
            known = self.runs(unknown)
            # All of a run come one after the other: to look it up is dear, and there are hundreds.
            last, edges, is_test = NOBODY, _Edges([], []), False
            met: set[Id] = set()
            for run, dataset, is_input, at, version, origin, *rest in rows:
                if run != last:
                    last, edges, is_test = run, self._edges[run], known[run].is_test
                    met = set()
                of_class = classes[dataset]
                if not is_input:
                    edges.outputs.append(Output(run, of_class, dataset, at, *rest))
                elif of_class not in met:
                    met.add(of_class)
                    is_rename = origin == STRENGTH["rename"]
                    edges.inputs.append(Use(run, of_class, at, version, is_test=is_test, is_rename=is_rename))
        return [(run, self._edges[run]) for run in wanted]

    def bind(self, uses: Sequence[Use]) -> list[Version | None]:
        """The version that each read saw, by the rules of `rulebook.versions`."""
        if not uses:
            return []
        members = self.members(use.dataset for use in uses)
        readers = self.runs(use.reader for use in uses)
        candidates: list[list[_Candidate]] = [[] for _ in uses]
        # What a run says of its own output is of that, whoever else has written there.
        others = [(n, use) for n, use in enumerate(uses) if not use.of_own_output]
        if others:
            self._last_before(others, members, candidates)
            self._named(others, members, candidates)
            self._of_families(others, members, readers, candidates)
        self._own(uses, members, candidates)
        return [_bound(use, readers.get(use.reader), of_use) for use, of_use in zip(uses, candidates, strict=True)]

    def _last_before(
        self,
        uses: Sequence[tuple[int, Use]],
        members: Mapping[Id, list[Id]],
        candidates: list[list["_Candidate"]],
    ) -> None:
        self._fetch_last_writes([use for _, use in uses], members)
        for number, use in uses:
            for name in members[use.dataset]:
                candidates[number] += self._last_writes[use.reader, name, use.at]

    def _fetch_last_writes(self, uses: Iterable[Use], members: Mapping[Id, list[Id]]) -> None:
        """Before each of some reads: one probe for each name."""
        keys = {(use.reader, name, use.at): None for use in uses for name in members[use.dataset]}
        asked = [key for key in keys if key not in self._last_writes]
        if not asked:
            return
        self._last_writes.update((key, []) for key in asked)
        readers, names, moments = (list(column) for column in zip(*asked, strict=True))
        for place, is_shared, *write in self.rows(_LAST_BEFORE, names, moments, readers):
            found = _Candidate(*write)
            self._are_shared[found.dataset] = is_shared
            self._last_writes[asked[place - 1]].append(found)

    def foresee_upstream(self, runs: Iterable[Id], most: int) -> None:
        """Fetch at once what a walk upstream from some runs will most likely ask for layer by layer, of so many runs.

        As if every read saw the last write before it. Where that is not so, or there is more than is fetched here, the
        walk asks for the rest itself.
        """
        reached = self._reached(_UPSTREAM, runs, most)
        self._foresee([use for of_run in self.inputs(reached).values() for use in of_run])

    def foresee_downstream(self, runs: Iterable[Id], most: int) -> None:
        """The same for who reads what they wrote, and so on down: of what else these read nothing is asked."""
        reached = self._reached(_DOWNSTREAM, runs, most)
        written = {output.dataset for of_run in self.outputs(reached).values() for output in of_run}
        self._foresee([use for of_run in self.inputs(reached).values() for use in of_run if use.dataset in written])

    def _reached(self, query: str, runs: Iterable[Id], most: int) -> list[Id]:
        wanted = list(runs)
        return [run for (run,) in self.rows(query, wanted, min(most, _MOST_FORESEEN))] if wanted else []

    def _foresee(self, uses: Sequence[Use]) -> None:
        self._fetch_last_writes(uses, self.members(use.dataset for use in uses))

    def _named(
        self,
        uses: Sequence[tuple[int, Use]],
        members: Mapping[Id, list[Id]],
        candidates: list[list["_Candidate"]],
    ) -> None:
        asked = [
            (n, dataset, use.version) for n, use in uses if use.version is not None for dataset in members[use.dataset]
        ]
        if asked:
            columns = [list(column) for column in zip(*asked, strict=True)]
            for number, *rest in self.rows(_NAMED, *columns):
                candidates[number].append(_Candidate(*rest))

    def _of_families(
        self,
        uses: Sequence[tuple[int, Use]],
        members: Mapping[Id, list[Id]],
        readers: Mapping[Id, Run],
        candidates: list[list["_Candidate"]],
    ) -> None:
        kins = {
            kin
            for _, use in uses
            if (run := readers.get(use.reader))
            for kin in (run.parent, run.root)
            if kin is not None
        }
        unknown = [kin for kin in kins if kin not in self._families]
        if unknown:
            for kin in unknown:
                self._families[kin] = []
            for kin, *rest in self.rows(_OF_FAMILIES, unknown):
                self._families[kin].append(_Candidate(*rest))
        for number, use in uses:
            run = readers.get(use.reader)
            if run is None:
                continue
            names = members[use.dataset]
            for of_family in {run.parent, run.root} - {None}:
                if of_family is not None:
                    candidates[number] += [write for write in self._families[of_family] if write.dataset in names]

    def _own(self, uses: Sequence[Use], members: Mapping[Id, list[Id]], candidates: list[list["_Candidate"]]) -> None:
        own = {use.reader for use in uses if use.of_own_output}
        if not own:
            return
        outputs = self.outputs(own)
        runs = self.runs(own)
        for use, of_use in zip(uses, candidates, strict=True):
            if use.of_own_output:
                run = runs[use.reader]
                of_use += [out.candidate(run) for out in outputs[use.reader] if out.name in members[use.dataset]]

    def other_writers(self, versions: Sequence[Version]) -> list[list[Version]]:
        """Of each version what other jobs had written to the dataset lately, unless it was replaced since.

        A table that one job adds to and another deletes from is what both have made of it.
        """
        found: list[list[Version]] = [[] for _ in versions]
        members = self.members(version.dataset for version in versions)
        writers = self.runs(version.run for version in versions)
        asked = [
            (n, name, version.at, version.run, writers[version.run].job_id)
            for n, version in enumerate(versions)
            if version.run in writers and self._may_be_shared(members[version.dataset])
            for name in members[version.dataset]
        ]
        if not asked:
            return found
        columns = [list(column) for column in zip(*asked, strict=True)]
        replaced: set[int] = set()
        jobs: set[tuple[int, Id]] = set()
        for number, job, lifecycle, is_itself, *rest in self.rows(_OTHER_WRITERS, *columns, _LATELY):
            if number not in replaced and not is_itself and (number, job) not in jobs:
                jobs.add((number, job))
                found[number].append(Version(versions[number].dataset, *rest))
            if lifecycle in _REPLACING:
                replaced.add(number)
        return found

    def last_by_jobs(self, asked: Sequence[tuple[Id, Id, datetime]]) -> list[Version]:
        """What jobs had last written to datasets, by their names, before some moments; unless it was replaced since."""
        if not asked:
            return []
        columns = [list(column) for column in zip(*asked, strict=True)]
        rows = self.rows(_LAST_BY_JOBS, *columns, _LATELY, _MOST_SINCE, list(_REPLACING))
        classes = self.classes(row[0] for row in rows)
        return [Version(classes[name], run, at, name, *rest) for name, run, at, *rest in rows]

    def _may_be_shared(self, names: Sequence[Id]) -> bool:
        """Whether more than one job may ever have written a dataset; most have one writer, and need not be asked."""
        return len(names) > 1 or self._are_shared.get(names[0], True)

    def sources(self, runs: Iterable[Id]) -> dict[Id, list["ColumnEdge"]]:
        """What each run says of where its columns come from."""
        found: defaultdict[Id, list[ColumnEdge]] = defaultdict(list)
        if not self.are_there.mappings:
            return {}
        rows = self.rows(_SOURCES, list(dict.fromkeys(runs)))
        classes = self.classes(dataset for row in rows for dataset in (row[1], row[3]))
        for run, target, target_field, source, source_field, origin in rows:
            found[run].append(ColumnEdge(classes[target], target_field, classes[source], source_field, origin))
        return dict(found)


def _cursor(connection: psycopg.Connection[Any]) -> psycopg.Cursor[tuple[Any, ...]]:
    cursor = connection.cursor(binary=True)
    set_json_loads(msgspec.json.decode, cursor)
    cursor.adapters.register_loader("uuid", ByteaBinaryLoader)
    return cursor


class Output(msgspec.Struct, frozen=True, gc=False):
    run: Id
    dataset: Id
    name: Id
    at: datetime | None
    row_count: int | None
    byte_size: int | None
    told_by: int | None

    def candidate(self, run: Run) -> "_Candidate":
        """As the run itself knows it, even if it FAILed."""
        at = self.at or run.ended_at or run.started_at
        kind = "attempt" if self.at is None else "complete"
        return _Candidate(run.id, self.name, at, self.row_count, self.byte_size, None, run.parent, run.root, kind)


class ColumnEdge(msgspec.Struct, frozen=True, gc=False):
    target: Id
    target_field: str
    source: Id
    source_field: str
    origin: int


class _Candidate(msgspec.Struct, frozen=True, gc=False):
    run: Id
    dataset: Id
    at: datetime
    row_count: int | None
    byte_size: int | None
    version: str | None
    parent: Id | None
    root: Id | None
    kind: str
    began: datetime | None = None

    @property
    def write(self) -> Write:
        root = self.parent if self.root is None else self.root
        # Who tells of its end alone is taken to have begun then.
        began = None if self.began is None or self.began >= self.at else _instant(self.began)
        return Write(Kin(self.run, self.parent, root), _instant(self.at), self.kind, self.version, began)  # type: ignore[arg-type]


def _bound(use: Use, reader: Run | None, candidates: Sequence[_Candidate]) -> Version | None:
    by_write: dict[Write, _Candidate] = {}
    for candidate in candidates:
        by_write.setdefault(candidate.write, candidate)
    kin = Kin(use.reader) if reader is None else reader.kin
    ended = None if reader is None or reader.ended_at is None else _instant(reader.ended_at)
    read = Read(kin, _instant(use.at), use.version, use.of_own_output, looks_ahead=use.is_test, ended=ended)
    write = responsible_write(read, list(by_write))
    if write is None:
        return None
    found = by_write[write]
    return Version(
        use.dataset, found.run, found.at, found.dataset, found.row_count, found.byte_size, found.version, found.kind
    )


class _Edges(NamedTuple):
    """What a run reads and writes."""

    inputs: list[Use]
    outputs: list[Output]


class _Kinds(NamedTuple):
    """Whether there is any of what many installations have none of."""

    classes: bool
    """Datasets with several names."""
    mappings: bool
    """Column lineage."""
    running_writes: bool
    streams: bool


_WRITTEN: Final[Mapping[type, Callable[[Any], str]]] = {
    bytes: bytes.hex,
    UUID: lambda value: value.hex,
    datetime: datetime.isoformat,
    int: str,
    NoneType: lambda _: "NULL",
}


def _sent(value: object) -> object:
    if isinstance(value, list):
        return _array(value)
    return value.hex() if isinstance(value, bytes) else value


def _array(values: list[Any]) -> object:
    """As PostgreSQL writes an array: item by item the driver would look for what has to be escaped."""
    if not all(type(value) in _WRITTEN for value in values):
        return values
    return "{" + ",".join([_WRITTEN[type(value)](value) for value in values]) + "}"


_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _instant(at: datetime) -> Instant:
    delta = at - _EPOCH
    return Instant((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds)


_ARE_THERE: Final = """
SELECT EXISTS (SELECT FROM {s}.dataset_classes), EXISTS (SELECT FROM {s}.run_column_mappings),
       EXISTS (SELECT FROM {s}.running_writes),
       EXISTS (SELECT FROM {s}.job_runs WHERE upper(processing_type) IN ('STREAMING', 'SERVICE'))
"""

# One range of the primary key for each run.
_EDGES: Final = """
SELECT job_run_id, dataset_id, edge_type = 'input', used_at, dataset_version, origin, row_count, byte_size,
       sources_told_by
FROM {s}.lineage_edges WHERE job_run_id = ANY (%s::uuid[])
ORDER BY job_run_id, edge_type, CASE edge_type WHEN 'input' THEN origin END, dataset_id
"""

_RUNS: Final = """
SELECT run.id, run.job_id, run.job_namespace, run.job_name, run.run_id, run.current_state, run.started_at,
       run.ended_at, run.nominal_time, run.parent_job_run_id, run.root_job_run_id, coalesce(run.processing_type, ''),
       coalesce(run.job_type, ''), run.states_lineage, run.has_results, coalesce(run.error_message, ''), run.producer
FROM {{s}}.job_runs AS run WHERE {}
"""

_LAST_ENDED: Final = """
SELECT asked.number, ended.*
FROM unnest(%s::uuid[], %s::timestamptz[]) WITH ORDINALITY AS asked (job_id, at, number)
CROSS JOIN LATERAL ({} ORDER BY run.ended_at DESC, run.id DESC LIMIT %s) AS ended
ORDER BY asked.number, ended.ended_at DESC, ended.id DESC
"""

# What a run that only looks at data writes, such as dbt's audit tables, is nobody's version.
_LAST_BEFORE: Final = """
SELECT asked.place, (
           SELECT count(*) > 1 FROM (
               SELECT FROM {s}.dataset_jobs AS writer
               WHERE writer.dataset_id = asked.dataset_id AND writer.edge_type = 'output' LIMIT 2
           ) AS writers
       ), written.*
FROM unnest(%s::uuid[], %s::timestamptz[], %s::uuid[]) WITH ORDINALITY AS asked (dataset_id, at, reader, place)
CROSS JOIN LATERAL (
    (SELECT edge.job_run_id, edge.dataset_id, edge.used_at, edge.row_count, edge.byte_size, edge.dataset_version,
            run.parent_job_run_id, run.root_job_run_id,
            CASE WHEN run.current_state = 'COMPLETE' THEN 'complete' ELSE 'partial' END
     FROM {s}.lineage_edges AS edge JOIN {s}.job_runs AS run ON run.id = edge.job_run_id
     WHERE edge.dataset_id = asked.dataset_id AND edge.edge_type = 'output' AND edge.used_at <= asked.at
       AND edge.job_run_id <> asked.reader AND upper(coalesce(run.job_type, '')) <> 'TEST'
     ORDER BY edge.used_at DESC, edge.job_run_id DESC LIMIT 1)
    UNION ALL
    (SELECT running.job_run_id, running.dataset_id, running.at, running.row_count, running.byte_size, NULL,
            run.parent_job_run_id, run.root_job_run_id, 'running'
     FROM {s}.running_writes AS running JOIN {s}.job_runs AS run ON run.id = running.job_run_id
     WHERE running.dataset_id = asked.dataset_id AND running.at <= asked.at AND running.job_run_id <> asked.reader
       AND (running.row_count > 0 OR upper(coalesce(run.processing_type, '')) IN ('STREAMING', 'SERVICE'))
     ORDER BY running.at DESC, running.job_run_id DESC LIMIT 1)
) AS written
"""

_MOST_FORESEEN: Final = 1_000
"""Runs of which edges and last writes are fetched at once."""

# A few probes for each run that is reached, and nothing of it is sorted or read as a whole.
_UPSTREAM: Final = """
WITH RECURSIVE reached AS (
    SELECT unnest(%s::uuid[]) AS run_id
    UNION
    SELECT written.job_run_id
    FROM reached
    CROSS JOIN LATERAL (
        SELECT job_run_id, dataset_id, used_at FROM {s}.lineage_edges
        WHERE job_run_id = reached.run_id AND edge_type = 'input' OFFSET 0
    ) AS read
    CROSS JOIN LATERAL (
        SELECT edge.job_run_id FROM {s}.lineage_edges AS edge
        WHERE edge.dataset_id = read.dataset_id AND edge.edge_type = 'output' AND edge.used_at <= read.used_at
          AND edge.job_run_id <> read.job_run_id
        ORDER BY edge.used_at DESC LIMIT 1
    ) AS written
)
SELECT run_id FROM reached LIMIT %s
"""

_DOWNSTREAM: Final = """
WITH RECURSIVE reached AS (
    SELECT unnest(%s::uuid[]) AS run_id
    UNION
    SELECT read.job_run_id
    FROM reached
    CROSS JOIN LATERAL (
        SELECT dataset_id, used_at FROM {s}.lineage_edges
        WHERE job_run_id = reached.run_id AND edge_type = 'output' AND used_at IS NOT NULL OFFSET 0
    ) AS written
    LEFT JOIN LATERAL (
        SELECT edge.used_at FROM {s}.lineage_edges AS edge
        WHERE edge.dataset_id = written.dataset_id AND edge.edge_type = 'output' AND edge.used_at > written.used_at
        ORDER BY edge.used_at LIMIT 1
    ) AS next ON true
    CROSS JOIN LATERAL (
        SELECT edge.job_run_id FROM {s}.lineage_edges AS edge
        WHERE edge.dataset_id = written.dataset_id AND edge.edge_type = 'input' AND edge.used_at >= written.used_at
          AND edge.used_at < coalesce(next.used_at, 'infinity')
        ORDER BY edge.used_at LIMIT 100
    ) AS read
)
SELECT run_id FROM reached LIMIT %s
"""

_LATELY: Final = 6
"""Writes of a dataset that other jobs are looked for in."""
_REPLACING: Final = frozenset({"OVERWRITE", "TRUNCATE", "CREATE", "DROP", "RENAME"})

_MOST_SINCE: Final = 500
"""Writes since then among which one that replaced it is looked for."""

_OTHER_WRITERS: Final = """
SELECT asked.number, recent.job_id, recent.lifecycle_change, recent.job_run_id = asked.run_id, recent.job_run_id,
       recent.used_at, asked.dataset_id, recent.row_count, recent.byte_size, recent.dataset_version, recent.kind
FROM unnest(%s::int[], %s::uuid[], %s::timestamptz[], %s::uuid[], %s::uuid[])
    AS asked (number, dataset_id, at, run_id, job_id)
CROSS JOIN LATERAL (
    SELECT edge.job_run_id, edge.used_at, edge.row_count, edge.byte_size, edge.dataset_version, edge.lifecycle_change,
           run.job_id, CASE WHEN run.current_state = 'COMPLETE' THEN 'complete' ELSE 'partial' END AS kind
    FROM {s}.lineage_edges AS edge JOIN {s}.job_runs AS run ON run.id = edge.job_run_id
    WHERE edge.dataset_id = asked.dataset_id AND edge.edge_type = 'output' AND edge.used_at <= asked.at
      AND upper(coalesce(run.job_type, '')) <> 'TEST'
    ORDER BY edge.used_at DESC, edge.job_run_id DESC LIMIT %s
) AS recent
WHERE recent.job_id <> asked.job_id OR recent.job_run_id = asked.run_id
ORDER BY asked.number, recent.used_at DESC, recent.job_run_id
"""

# Of each job the end of one index range, and an edge of each run until one wrote it; and the writes since.
_LAST_BY_JOBS: Final = """
SELECT asked.name, written.*
FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[]) AS asked (job_id, name, at)
CROSS JOIN LATERAL (
    SELECT edge.job_run_id, edge.used_at, edge.row_count, edge.byte_size, edge.dataset_version,
           CASE WHEN run.current_state = 'COMPLETE' THEN 'complete' ELSE 'partial' END
    FROM (
        SELECT ended.id, ended.ended_at, ended.current_state FROM {s}.job_runs AS ended
        WHERE ended.job_id = asked.job_id AND ended.ended_at <= asked.at
        ORDER BY ended.ended_at DESC, ended.id DESC LIMIT %s
    ) AS run
    JOIN {s}.lineage_edges AS edge
        ON edge.job_run_id = run.id AND edge.dataset_id = asked.name AND edge.edge_type = 'output'
    WHERE edge.used_at <= asked.at
    ORDER BY run.ended_at DESC, run.id DESC LIMIT 1
) AS written
WHERE NOT EXISTS (
    SELECT FROM (
        SELECT later.lifecycle_change FROM {s}.lineage_edges AS later
        WHERE later.dataset_id = asked.name AND later.edge_type = 'output' AND later.used_at > written.used_at
          AND later.used_at <= asked.at
        ORDER BY later.used_at DESC LIMIT %s
    ) AS since WHERE since.lifecycle_change = ANY (%s)
)
"""

_NAMED: Final = """
SELECT asked.number, edge.job_run_id, edge.dataset_id, edge.used_at, edge.row_count, edge.byte_size,
       edge.dataset_version, run.parent_job_run_id, run.root_job_run_id,
       CASE WHEN run.current_state = 'COMPLETE' THEN 'complete' ELSE 'partial' END
FROM unnest(%s::int[], %s::uuid[], %s::text[]) AS asked (number, dataset_id, version)
JOIN {s}.lineage_edges AS edge ON edge.dataset_version = asked.version AND edge.edge_type = 'output'
    AND edge.dataset_version IS NOT NULL AND edge.dataset_id = asked.dataset_id
JOIN {s}.job_runs AS run ON run.id = edge.job_run_id
WHERE edge.used_at IS NOT NULL
"""

_OF_FAMILIES: Final = """
WITH kin AS (SELECT unnest(%s::uuid[]) AS id), family AS (
    SELECT kin.id AS kin, run.id, run.parent_job_run_id, run.root_job_run_id, run.current_state, run.job_type,
           run.started_at
    FROM kin JOIN {s}.job_runs AS run ON run.parent_job_run_id = kin.id
    UNION
    SELECT kin.id, run.id, run.parent_job_run_id, run.root_job_run_id, run.current_state, run.job_type,
           run.started_at
    FROM kin JOIN {s}.job_runs AS run ON run.root_job_run_id = kin.id
    UNION
    SELECT kin.id, run.id, run.parent_job_run_id, run.root_job_run_id, run.current_state, run.job_type,
           run.started_at
    FROM kin JOIN {s}.job_runs AS run ON run.id = kin.id
)
SELECT family.kin, edge.job_run_id, edge.dataset_id, edge.used_at, edge.row_count, edge.byte_size,
       edge.dataset_version, family.parent_job_run_id, family.root_job_run_id,
       CASE WHEN family.current_state = 'COMPLETE' THEN 'complete' ELSE 'partial' END, family.started_at
FROM family JOIN {s}.lineage_edges AS edge ON edge.job_run_id = family.id AND edge.edge_type = 'output'
WHERE edge.used_at IS NOT NULL AND upper(coalesce(family.job_type, '')) <> 'TEST'
"""

_SOURCES: Final = """
SELECT run.job_run_id, mapping.target_id, mapping.target_field, mapping.source_id, mapping.source_field, mapping.origin
FROM {s}.run_column_mappings AS run
CROSS JOIN LATERAL unnest(run.mapping_ids) AS of_run (mapping_id)
JOIN {s}.column_mappings AS mapping ON mapping.id = of_run.mapping_id
WHERE run.job_run_id = ANY (%s::uuid[]) AND mapping.target_kind = 'dataset' AND mapping.source_kind = 'dataset'
"""
