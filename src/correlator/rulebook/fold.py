"""Many events, one truth: the fold of any set of events into facts.

This is the model. The Spark pipeline and the SQL merge are tested against it, and Hypothesis against itself: any order,
duplication and split of a history folds to equal facts.

A batch is put in order first and folded from its latest event to its earliest. So of what is greatest by order the
first that is said stands, and of what is least the last: most of the facts of a batch are decided without being
compared, and what an entity said in a later event to the letter need not be looked at again. Batches are merged by the
rules that `facts` declares, and any split giving equal facts holds the two ways together.
"""

from collections.abc import Iterable
from itertools import islice
from operator import itemgetter
from typing import Any, Final, NamedTuple

from correlator.rulebook import facts as f
from correlator.rulebook import identity, statements
from correlator.rulebook.events import Dataset, DatasetEvent, Event, Facets, JobEvent, RunEvent
from correlator.rulebook.facts import Facts, Key, Row
from correlator.rulebook.formats import Instant
from correlator.rulebook.fresh_stack import with_enough_stack
from correlator.rulebook.gists import (
    DatasetGist,
    History,
    Lineage,
    declaration,
    lineage,
    of_dataset,
    of_job,
    of_run,
    of_use,
)
from correlator.rulebook.identity import Id
from correlator.rulebook.naming import storable
from correlator.rulebook.results import Outcome, results
from correlator.rulebook.run_cycle import RANKS
from correlator.rulebook.statements import STRENGTH, DatasetRef, JobRef, Origin, Own, Statement, dataset_ref, job_ref

Order = tuple[Instant, int, Id]
"""An event's time, its rank at that instant, and the digest of its content."""

NO_RUN: Final[Id] = b""

_BATCH: Final = 8192

_TELLING: Final[dict[str, Origin]] = {
    "lineage": "lineage",
    "columnLineage": "column_lineage",
    "lifecycleStateChange": "rename",
}
"""Facets of a dataset that can tell where its data comes from."""

_MOMENTS: Final = {"START": "first_start", "COMPLETE": "complete", "FAIL": "fail", "ABORT": "abort"}
"""Groups of `job_runs` that hold when a state was first reported."""

_BOUNDARY: Final = (STRENGTH["boundary"],)
_YES: Final = (True,)


def fold(events: Iterable[Event]) -> Facts:
    facts = Facts()
    remaining = iter(events)
    while batch := list(islice(remaining, _BATCH)):
        facts.take(fold_batch(batch))
    return facts


def fold_batch(events: list[Event]) -> Facts:
    """The facts of so many events as fit into memory."""
    return with_enough_stack(lambda: _fold(events))


def order_of(event: Event) -> Order:
    rank = RANKS[event.event_type] if type(event) is RunEvent else 0
    return event.event_time, rank, identity.event_identity(event)


def _fold(events: list[Event]) -> Facts:
    said = _Said()
    placed = [(order_of(event), event) for event in events]
    placed.sort(key=itemgetter(0), reverse=True)
    for order, event in placed:
        match event:
            case RunEvent():
                said.run(event, order)
            case JobEvent():
                said.declared_by_job(event, order)
            case DatasetEvent():
                said.declared_of_dataset(event, order)
    return said.done()


class _Run(NamedTuple):
    """A run of the batch, found by its job and run id: to make its key costs a hash."""

    key: Id
    row: Row
    states: set[tuple[Instant, int, str]]


class _Said:
    """Turns events into facts, the latest first. Within an event the first that is said of a thing stands."""

    def __init__(self) -> None:
        self._facts = Facts()
        rows = self._facts.made
        self._jobs, self._runs, self._datasets = rows(f.JOBS), rows(f.JOB_RUNS), rows(f.DATASETS)
        self._uses, self._columns, self._writes = rows(f.LINEAGE_EDGES), rows(f.COLUMN_EDGES), rows(f.RUNNING_WRITES)
        self._declarations, self._results = rows(f.DECLARATIONS), rows(f.TEST_RESULTS)
        self._history, self._bodies = rows(f.FACET_HISTORY), rows(f.FACET_BODIES)
        self._seen: dict[tuple[Id, str], _Run] = {}
        self._states: dict[Id, set[tuple[Instant, int, str]]] = {}
        # Which entity has been told which very facets. They are known by where they are in memory, where the batch
        # holds them until it is done.
        self._told: set[tuple[Any, ...]] = set()

    def done(self) -> Facts:
        for run, states in self._states.items():
            if states:
                self._runs[run,]["states"] = f.first_and_last(frozenset(states), f.HISTORY_KEPT)
        return self._facts

    # A run

    def run(self, event: RunEvent, order: Order) -> None:
        said_job = event.job
        job = job_ref(said_job.namespace, said_job.name)
        run, row = self._run_of(event, job, order)
        run_facets = event.run.facets
        of_this_run, of_this_job = of_run(run_facets), of_job(said_job.facets)
        told = (run, id(run_facets))
        if told not in self._told:
            self._told.add(told)
            _last_said(row, order, of_this_run.groups)
            _last_bodies(row, order, run_facets)
            for ancestor in of_this_run.ancestors:
                self._name_job(ancestor)
        _last_said(row, order, of_this_job.groups)
        self._tell_job(job, said_job.facets, order)
        has_results = of_this_run.has_results
        # Outputs first: of a table that is read and written the new schema is the one that stands.
        for dataset in event.outputs:
            has_results |= self._use(run, "output", dataset, event, order)
        for dataset in event.inputs:
            has_results |= self._use(run, "input", dataset, event, order)
        if of_this_job.states_lineage:
            said = lineage(statements.of_job(said_job, Own(job, event.run.run_id)))
            self._lineage(run, said, order)
            self._columns_of(run, said)
            outputs = {dataset_ref(output.namespace, output.name).key for output in event.outputs}
            outputs.update(output.key for output, _ in said.outputs)
            self._sources_told(run, [(key, by) for key, by in said.told if key in outputs])
        if has_results:
            self._test_results(run, results(event), order)
        if of_this_run.history:
            self._remember("job", job.key, of_this_run.history_beside(of_this_job), run, order)
        if of_this_job.history:
            self._remember("job", job.key, of_this_job.history, run, order)

    def _run_of(self, event: RunEvent, job: JobRef, order: Order) -> tuple[Id, Row]:
        at, rank, digest = order
        run_id = event.run.run_id
        run = self._seen.get((job.key, run_id))
        if run is None:
            run = self._seen[job.key, run_id] = self._first_seen(job, run_id)
        row = run.row
        state = event.event_type or "OTHER"
        if "last_event" not in row:
            row["last_event"] = (at, rank, digest, state, storable(event.producer))
        row["first_event"] = (at,)
        if state != "OTHER":
            run.states.add((at, rank, state))
            if state in _MOMENTS:
                row[_MOMENTS[state]] = (at,)
            if state in ("START", "RUNNING") and "open" not in row:
                row["open"] = (at, rank, state)
        return run.key, row

    def _first_seen(self, job: JobRef, run_id: str) -> _Run:
        canonical = identity.canonical_job_run_id(job.namespace, job.name, run_id)
        key = bytes.fromhex(canonical[:32])
        who = (canonical, job.key, job.namespace, job.name, storable(run_id))
        row = self._runs.setdefault((key,), {"identity": who})
        # The id is made of three texts run together, so that two runs may have one.
        row["identity"] = min(row["identity"], who)
        return _Run(key, row, self._states.setdefault(key, set()))

    def _use(self, run: Id, role: str, dataset: Dataset, event: RunEvent, order: Order) -> bool:
        """What a run says of its use of a dataset, and of the dataset; whether there are results of tests."""
        at = order[0]
        ref = dataset_ref(dataset.namespace, dataset.name)
        facets, own_facets = dataset.facets, dataset.role_facets
        of_this_dataset, of_this_use = of_dataset(facets), of_use(own_facets)
        self._tell_dataset(ref, facets, of_this_dataset, run, order)
        row = self._uses.get((run, ref.key, role))
        if row is None:
            row = self._uses[run, ref.key, role] = {"last_event": (at,), "origin": _BOUNDARY}
        else:
            _least(row, "origin", _BOUNDARY)
        row["first_event"] = (at,)
        if of_this_dataset.groups_of_use:
            _last_said(row, order, of_this_dataset.groups_of_use)
        if own_facets.raw:
            _last_said(row, order, of_this_use.groups)
            _last_bodies(row, order, own_facets)
        if role == "output":
            if event.event_type == "RUNNING":
                # These may be versions of a run that has not ended; if so, the whole run tells (runs.running_write).
                _last_said(self._writes.setdefault((run, ref.key, at), {}), order, of_this_use.groups)
            if of_this_dataset.tells_sources:
                own = Own(job_ref(event.job.namespace, event.job.name), event.run.run_id)
                said = of_this_dataset.lineage(dataset, ref, own)
                self._lineage(run, said, order)
                self._sources_told(run, said.told)
                if said.is_explicit or (run, ref.key, id(facets)) not in self._told:
                    self._told.add((run, ref.key, id(facets)))
                    self._columns_of(run, said)
        return of_this_dataset.has_results or of_this_use.has_results

    def _edge(self, run: Id, dataset: DatasetRef, role: str, at: Instant) -> Row:
        key = (run, dataset.key, role)
        row = self._uses.get(key)
        if row is None:
            row = self._uses[key] = {"last_event": (at,)}
        row["first_event"] = (at,)
        return row

    def _lineage(self, run: Id, said: Lineage, order: Order) -> None:
        for dataset, origin in said.inputs:
            _least(self._edge(run, dataset, "input", order[0]), "origin", origin)
        for dataset, origin in said.outputs:
            _least(self._edge(run, dataset, "output", order[0]), "origin", origin)
        self._name(said, order)
        if said.is_explicit:
            self._runs[run,]["explicit"] = _YES

    def _sources_told(self, run: Id, told: Iterable[tuple[Id, tuple[int]]]) -> None:
        for output, by in told:
            _least(self._uses[run, output, "output"], "told", by)

    def _columns_of(self, run: Id, said: Lineage) -> None:
        for columns in said.columns:
            self._columns[run, *columns] = {}

    def _test_results(self, run: Id, outcomes: list[Outcome], order: Order) -> None:
        for outcome in outcomes:
            self._runs[run,]["tested"] = _YES
            result, test = outcome.result, outcome.test
            row = self._results.setdefault((test.key, run), {})
            about = (test.dataset, test.name, test.column, test.parameters)
            row["test"] = min(about, row.get("test", about))
            if "result" not in row:
                row["result"] = (
                    *order,
                    result.status,
                    result.severity,
                    result.expected,
                    result.actual,
                    result.message,
                    result.description,
                    result.of_own_output,
                )

    # Jobs and datasets

    def _tell_job(self, ref: JobRef, facets: Facets, order: Order) -> None:
        row = self._name_job(ref)
        row["first_event"] = at = (order[0],)
        if "last_event" not in row:
            row["last_event"] = at
        if facets.raw and (ref.key, id(facets)) not in self._told:
            self._told.add((ref.key, id(facets)))
            _last_bodies(row, order, facets)

    def _tell_dataset(self, ref: DatasetRef, facets: Facets, gist: DatasetGist, run: Id, order: Order) -> None:
        row = self._name_dataset(ref, order)
        row["first_event"] = at = (order[0],)
        if "last_event" not in row:
            row["last_event"] = at
        if not facets.raw:
            return
        told = (ref.key, id(facets))
        if told not in self._told:
            self._told.add(told)
            _last_said(row, order, gist.groups)
            _last_bodies(row, order, facets)
        if gist.history:
            self._remember("dataset", ref.key, gist.history, run, order)

    def _name(self, said: Lineage, order: Order) -> None:
        for dataset in said.datasets:
            self._name_dataset(dataset, order)
        for job in said.jobs:
            self._name_job(job)

    def _name_dataset(self, ref: DatasetRef, order: Order) -> Row:
        named = (*order, ref.namespace, ref.name)
        row = self._datasets.get((ref.key,))
        if row is None:
            row = self._datasets[ref.key,] = {"identity": (ref.urn,), "named": named}
        elif named < row["named"]:
            row["named"] = named
        return row

    def _name_job(self, ref: JobRef) -> Row:
        row = self._jobs.get((ref.key,))
        if row is None:
            row = self._jobs[ref.key,] = {"identity": (ref.namespace, ref.name)}
        return row

    # Facets

    def _remember(self, kind: str, entity: Id, history: History, run: Id, order: Order) -> None:
        at, rank, digest = order
        for said in history:
            self._history.setdefault((kind, entity, said.key, at, run), {"body": (rank, digest, said.digest)})
            if said.body is not None and (said.digest,) not in self._bodies:
                self._bodies[said.digest,] = {"body": (said.body,)}

    # Declarations

    def declared_by_job(self, event: JobEvent, order: Order) -> None:
        """What a JobEvent declares.

        One that names neither inputs nor outputs says nothing of lineage: clients send empty lists by default. To take
        a declaration back, a producer sends an explicit lineage facet without entries, or deletes it.
        """
        job = job_ref(event.job.namespace, event.job.name)
        gist = of_job(event.job.facets)
        self._tell_job(job, event.job.facets, order)
        self._remember("job", job.key, gist.history, NO_RUN, order)
        for dataset in (*event.inputs, *event.outputs):
            self._tell_described(dataset, order)
        said = statements.statement(event)
        if not said.is_empty or "lineage" in event.job.facets.deleted:
            self._declare(("job", job.key, "job", order[0]), said, order)

    def declared_of_dataset(self, event: DatasetEvent, order: Order) -> None:
        """Each facet that can tell where data comes from is a declaration of its own, as each stands by itself."""
        ref = self._tell_described(event.dataset, order)
        facets = event.dataset.facets
        said = statements.statement(event)
        for facet_key, origin in _TELLING.items():
            of_origin = said.of_origin(origin)
            # Any change of a dataset's life but a rename tells nothing of where its data comes from.
            speaks = bool(of_origin.edges) if origin == "rename" else facet_key in facets.typed
            if speaks or facet_key in facets.deleted:
                self._declare(("dataset", ref.key, facet_key, order[0]), of_origin, order)

    def _tell_described(self, dataset: Dataset, order: Order) -> DatasetRef:
        ref = dataset_ref(dataset.namespace, dataset.name)
        self._tell_dataset(ref, dataset.facets, of_dataset(dataset.facets), NO_RUN, order)
        return ref

    def _declare(self, key: Key, said: Statement, order: Order) -> None:
        told = lineage(said)
        self._name(told, order)
        edges = identity.canonical_json(declaration(told)).decode()
        self._declarations.setdefault(key, {"edges": (order[2], edges)})


def _last_said(row: Row, order: Order, groups: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
    for group, values in groups:
        if group not in row:
            row[group] = (*order, *values)


def _least(row: Row, group: str, value: tuple[int]) -> None:
    if group not in row or value < row[group]:
        row[group] = value


def _last_bodies(row: Row, order: Order, facets: Facets) -> None:
    """Every facet as it stands after this event."""
    bodies = identity.bodies(facets)
    if not bodies:
        return
    at, rank, digest = order
    standing = row.get("facets")
    if standing is None:
        row["facets"] = {key: (at, rank, digest, body) for key, body in bodies.items()}
        return
    for key, body in bodies.items():
        if key not in standing:
            standing[key] = (at, rank, digest, body)
