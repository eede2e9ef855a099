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
from typing import Any, Final

from correlator.rulebook import facts as f
from correlator.rulebook import identity, statements
from correlator.rulebook.events import Dataset, DatasetEvent, Event, Facets, Job, JobEvent, RunEvent
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


class _Entity:
    """A job or dataset of the batch by one spelling of its name, and what its row is told when the batch is done."""

    __slots__ = ("facets", "first", "key", "last", "row", "told")

    def __init__(self, key: Id, row: Row) -> None:
        self.key = key
        self.row = row
        self.first: tuple[Instant] | None = None
        self.last: tuple[Instant] | None = None
        self.facets: Facets | None = None
        """Those that were told last; by their place in memory, all that were told."""
        self.told: set[int] = set()

    def tell(self, facets: Facets, at: tuple[Instant]) -> bool:
        """Take note of an event, and say whether its facets are new."""
        self.first = at
        if self.last is None:
            self.last = at
        if facets is self.facets:
            return False
        self.facets = facets
        if not facets.raw or id(facets) in self.told:
            return False
        self.told.add(id(facets))
        return True

    def done(self) -> None:
        row = self.row
        if self.first is not None and self.last is not None:
            # Another spelling may have said so before.
            row["first_event"] = min(self.first, row.get("first_event", self.first))
            row["last_event"] = max(self.last, row.get("last_event", self.last))


class _Job(_Entity):
    __slots__ = ("ref",)

    def __init__(self, ref: JobRef, row: Row) -> None:
        super().__init__(ref.key, row)
        self.ref = ref


class _Dataset(_Entity):
    __slots__ = ("history", "history_of", "named", "ref")

    def __init__(self, ref: DatasetRef, row: Row, order: Order) -> None:
        super().__init__(ref.key, row)
        self.ref = ref
        self.named = order
        """The order of the earliest event so far that spells it so."""
        self.history: History = ()
        self.history_of: Order | None = None
        """What was remembered last, and of which event."""

    def not_yet_told(self, history: History, order: Order) -> History:
        """Of what an event says of a table that it reads and writes, the first stands."""
        if self.history_of is order:
            told = {said.key for said in self.history}
            history = tuple(said for said in history if said.key not in told)
            self.history += history
        else:
            self.history, self.history_of = history, order
        return history

    def done(self) -> None:
        super().done()
        _spelled(self.row, self.ref, self.named)


class _Run:
    """A run of the batch, found by its job and run id: to make its key costs a hash."""

    __slots__ = ("job_facets", "key", "row", "run_facets", "states")

    def __init__(self, key: Id, row: Row, states: set[tuple[Instant, int, str]]) -> None:
        self.key = key
        self.row = row
        self.states = states
        self.run_facets: Facets | None = None
        self.job_facets: Facets | None = None
        """Those that were told last."""


class _Said:
    """Turns events into facts, the latest first. Within an event the first that is said of a thing stands.

    Facets that an entity was told already, the very same in memory, say nothing more of it: the batch holds them until
    it is done.
    """

    def __init__(self) -> None:
        self._facts = Facts()
        rows = self._facts.made
        self._job_rows, self._run_rows, self._dataset_rows = rows(f.JOBS), rows(f.JOB_RUNS), rows(f.DATASETS)
        self._uses, self._columns, self._writes = rows(f.LINEAGE_EDGES), rows(f.COLUMN_EDGES), rows(f.RUNNING_WRITES)
        self._declarations, self._results = rows(f.DECLARATIONS), rows(f.TEST_RESULTS)
        self._history, self._bodies = rows(f.FACET_HISTORY), rows(f.FACET_BODIES)
        self._jobs: dict[tuple[str, str], _Job] = {}
        self._datasets: dict[tuple[str, str], _Dataset] = {}
        self._runs: dict[tuple[Id, str], _Run] = {}
        self._states: dict[Id, set[tuple[Instant, int, str]]] = {}
        self._columns_told: set[tuple[Id, Id, int]] = set()

    def done(self) -> Facts:
        for run, states in self._states.items():
            if states:
                self._run_rows[run,]["states"] = f.first_and_last(frozenset(states), f.HISTORY_KEPT)
        for job in self._jobs.values():
            job.done()
        for dataset in self._datasets.values():
            dataset.done()
        return self._facts

    # A run

    def run(self, event: RunEvent, order: Order) -> None:
        job = self._job_of(event.job)
        job_facets, run_facets = event.job.facets, event.run.facets
        of_this_run, of_this_job = of_run(run_facets), of_job(job_facets)
        run = self._run_of(event, job, order)
        at = (order[0],)
        if run_facets is not run.run_facets:
            run.run_facets = run_facets
            _last_said(run.row, order, of_this_run.groups)
            _last_bodies(run.row, order, run_facets)
            for ancestor in of_this_run.ancestors:
                self._name_job(ancestor)
        if job_facets is not run.job_facets:
            run.job_facets = job_facets
            _last_said(run.row, order, of_this_job.groups)
        self._tell_job(job, job_facets, order, at)
        has_results = of_this_run.has_results
        # Outputs first: of a table that is read and written the new schema is the one that stands.
        for dataset in event.outputs:
            has_results |= self._use(run.key, "output", dataset, event, order, at)
        for dataset in event.inputs:
            has_results |= self._use(run.key, "input", dataset, event, order, at)
        if of_this_job.states_lineage:
            said = lineage(statements.of_job(event.job, Own(job.ref, event.run.run_id)))
            self._lineage(run.key, said, order)
            self._columns_of(run.key, said)
            outputs = {dataset_ref(output.namespace, output.name).key for output in event.outputs}
            outputs.update(output.key for output, _ in said.outputs)
            self._sources_told(run.key, [(key, by) for key, by in said.told if key in outputs])
        if has_results:
            self._test_results(run.key, results(event), order)
        if of_this_run.history:
            self._remember("job", job.key, of_this_run.history_beside(of_this_job), run.key, order)
        if of_this_job.history:
            self._remember("job", job.key, of_this_job.history, run.key, order)

    def _run_of(self, event: RunEvent, job: _Job, order: Order) -> _Run:
        at, rank, digest = order
        run_id = event.run.run_id
        run = self._runs.get((job.key, run_id))
        if run is None:
            run = self._runs[job.key, run_id] = self._first_seen(job.ref, run_id)
        row = run.row
        state = event.event_type or "OTHER"
        if "last_event" not in row:
            row["last_event"] = (at, rank, digest, state, storable(event.producer))
        row["first_event"] = first = (at,)
        if state != "OTHER":
            run.states.add((at, rank, state))
            if state in _MOMENTS:
                row[_MOMENTS[state]] = first
            if state in ("START", "RUNNING") and "open" not in row:
                row["open"] = (at, rank, state)
        return run

    def _first_seen(self, job: JobRef, run_id: str) -> _Run:
        canonical = identity.canonical_job_run_id(job.namespace, job.name, run_id)
        key = bytes.fromhex(canonical[:32])
        who = (canonical, job.key, job.namespace, job.name, storable(run_id))
        row = self._run_rows.setdefault((key,), {"identity": who})
        # The id is made of three texts run together, so that two runs may have one.
        row["identity"] = min(row["identity"], who)
        return _Run(key, row, self._states.setdefault(key, set()))

    def _use(self, run: Id, role: str, said: Dataset, event: RunEvent, order: Order, at: tuple[Instant]) -> bool:
        """What a run says of its use of a dataset, and of the dataset; whether there are results of tests."""
        facets, own_facets = said.facets, said.role_facets
        of_this_dataset, of_this_use = of_dataset(facets), of_use(own_facets)
        dataset = self._dataset_of(said, order)
        self._tell_dataset(dataset, facets, of_this_dataset, run, order, at)
        key = (run, dataset.key, role)
        row = self._uses.get(key)
        if row is None:
            row = self._uses[key] = {"last_event": at, "origin": _BOUNDARY}
        else:
            _least(row, "origin", _BOUNDARY)
        row["first_event"] = at
        if of_this_dataset.groups_of_use:
            _last_said(row, order, of_this_dataset.groups_of_use)
        if own_facets.raw:
            _last_said(row, order, of_this_use.groups)
            _last_bodies(row, order, own_facets)
        if role == "output":
            if event.event_type == "RUNNING":
                # These may be versions of a run that has not ended; if so, the whole run tells (runs.running_write).
                _last_said(self._writes.setdefault((run, dataset.key, at[0]), {}), order, of_this_use.groups)
            if of_this_dataset.tells_sources:
                self._sources(run, dataset, said, of_this_dataset, event, order)
        return of_this_dataset.has_results or of_this_use.has_results

    def _sources(
        self, run: Id, output: _Dataset, said: Dataset, gist: DatasetGist, event: RunEvent, order: Order
    ) -> None:
        own = Own(job_ref(event.job.namespace, event.job.name), event.run.run_id)
        told = gist.lineage(said, output.ref, own)
        self._lineage(run, told, order)
        self._sources_told(run, told.told)
        once = (run, output.key, id(said.facets))
        if told.is_explicit or once not in self._columns_told:
            self._columns_told.add(once)
            self._columns_of(run, told)

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
            self._run_rows[run,]["explicit"] = _YES

    def _sources_told(self, run: Id, told: Iterable[tuple[Id, tuple[int]]]) -> None:
        for output, by in told:
            _least(self._uses[run, output, "output"], "told", by)

    def _columns_of(self, run: Id, said: Lineage) -> None:
        for columns in said.columns:
            self._columns[run, *columns] = {}

    def _test_results(self, run: Id, outcomes: list[Outcome], order: Order) -> None:
        for outcome in outcomes:
            self._run_rows[run,]["tested"] = _YES
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

    def _job_of(self, said: Job) -> _Job:
        namespace, name = said.namespace, said.name
        job = self._jobs.get((namespace, name))
        if job is None:
            ref = job_ref(namespace, name)
            job = self._jobs[namespace, name] = _Job(ref, self._name_job(ref))
        return job

    def _dataset_of(self, said: Dataset, order: Order) -> _Dataset:
        namespace, name = said.namespace, said.name
        dataset = self._datasets.get((namespace, name))
        if dataset is None:
            ref = dataset_ref(namespace, name)
            row = self._dataset_rows.setdefault((ref.key,), {"identity": (ref.urn,)})
            dataset = self._datasets[namespace, name] = _Dataset(ref, row, order)
        else:
            dataset.named = order
        return dataset

    def _tell_job(self, job: _Job, facets: Facets, order: Order, at: tuple[Instant]) -> None:
        if job.tell(facets, at):
            _last_bodies(job.row, order, facets)

    def _tell_dataset(
        self, dataset: _Dataset, facets: Facets, gist: DatasetGist, run: Id, order: Order, at: tuple[Instant]
    ) -> None:
        if dataset.tell(facets, at):
            _last_said(dataset.row, order, gist.groups)
            _last_bodies(dataset.row, order, facets)
        if gist.history:
            self._remember("dataset", dataset.key, dataset.not_yet_told(gist.history, order), run, order)

    def _name(self, said: Lineage, order: Order) -> None:
        for dataset in said.datasets:
            self._name_dataset(dataset, order)
        for job in said.jobs:
            self._name_job(job)

    def _name_dataset(self, ref: DatasetRef, order: Order) -> None:
        _spelled(self._dataset_rows.setdefault((ref.key,), {"identity": (ref.urn,)}), ref, order)

    def _name_job(self, ref: JobRef) -> Row:
        return self._job_rows.setdefault((ref.key,), {"identity": (ref.namespace, ref.name)})

    # Facets

    def _remember(self, kind: str, entity: Id, history: History, run: Id, order: Order) -> None:
        at, rank, _ = order
        hour, first = f.hour_of(at), (at,)
        for said in history:
            key = (kind, entity, said.key, hour, run, said.digest)
            row = self._history.get(key)
            if row is None:
                self._history[key] = {"first": first, "last": (at, rank)}
            else:
                row["first"] = first
            if said.body is not None and (said.digest,) not in self._bodies:
                self._bodies[said.digest,] = {"body": (said.body,)}

    # Declarations

    def declared_by_job(self, event: JobEvent, order: Order) -> None:
        """What a JobEvent declares.

        One that names neither inputs nor outputs says nothing of lineage: clients send empty lists by default. To take
        a declaration back, a producer sends an explicit lineage facet without entries, or deletes it.
        """
        job = self._job_of(event.job)
        gist = of_job(event.job.facets)
        self._tell_job(job, event.job.facets, order, (order[0],))
        self._remember("job", job.key, gist.history, NO_RUN, order)
        for dataset in (*event.inputs, *event.outputs):
            self._tell_described(dataset, order)
        said = statements.statement(event)
        if not said.is_empty or "lineage" in event.job.facets.deleted:
            self._declare(("job", job.key, "job", order[0]), said, order)

    def declared_of_dataset(self, event: DatasetEvent, order: Order) -> None:
        """Each facet that can tell where data comes from is a declaration of its own, as each stands by itself."""
        dataset = self._tell_described(event.dataset, order)
        facets = event.dataset.facets
        said = statements.statement(event)
        for facet_key, origin in _TELLING.items():
            of_origin = said.of_origin(origin)
            # Any change of a dataset's life but a rename tells nothing of where its data comes from.
            speaks = bool(of_origin.edges) if origin == "rename" else facet_key in facets.typed
            if speaks or facet_key in facets.deleted:
                self._declare(("dataset", dataset.key, facet_key, order[0]), of_origin, order)

    def _tell_described(self, said: Dataset, order: Order) -> _Dataset:
        dataset = self._dataset_of(said, order)
        self._tell_dataset(dataset, said.facets, of_dataset(said.facets), NO_RUN, order, (order[0],))
        return dataset

    def _declare(self, key: Key, said: Statement, order: Order) -> None:
        told = lineage(said)
        self._name(told, order)
        edges = identity.canonical_json(declaration(told)).decode()
        self._declarations.setdefault(key, {"edges": (order[2], edges)})


def _spelled(row: Row, ref: DatasetRef, order: Order) -> None:
    named = (*order, ref.namespace, ref.name)
    if "named" not in row or named < row["named"]:
        row["named"] = named


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
