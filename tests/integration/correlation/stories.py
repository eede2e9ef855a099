"""Small histories told in a line or two each, merged as the pipeline merges them."""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID, uuid5

import psycopg

from correlator.correlation.following import follow
from correlator.correlation.history import History
from correlator.correlation.ids import id_of
from correlator.correlation.incidents import Incident, incidents_of
from correlator.rulebook.events import Event
from correlator.rulebook.fold import fold
from correlator.rulebook.identity import dataset_key
from correlator.store.merge import merge
from correlator.store.staging import begin, prepare, stage
from tests.integration.store.merging import SOURCE, batch_of
from tests.unit.rulebook.histories import DB, Json, assertions, dataset, facet, parent, run_event

_NAMES = UUID(int=1)


def run_id(name: str) -> str:
    """Run ids are UUIDs; a story calls them by a word."""
    return str(uuid5(_NAMES, name))


def urn(name: str) -> str:
    return f"{DB}/{name}"


def dataset_id(name: str) -> UUID:
    return UUID(bytes=dataset_key(urn(name)))


def ran(
    job: str,
    name: str,
    began: float,
    ended: float | None,
    *,
    reads: Sequence[str | Json] = (),
    writes: Sequence[str | Json] = (),
    state: str = "COMPLETE",
    of: str | None = None,
    facets: Json | None = None,
    job_facets: Json | None = None,
) -> list[Event]:
    """A run from START to its end; `of` is its parent's run."""
    inputs = [dataset(one) if isinstance(one, str) else one for one in reads]
    outputs = [dataset(one) if isinstance(one, str) else one for one in writes]
    run_facets = {**(parent(run_id(of)) if of else {}), **(facets or {})}
    said: dict[str, Any] = {
        "run": run_id(name),
        "job": job,
        "inputs": inputs,
        "outputs": outputs,
        "run_facets": run_facets,
        "job_facets": job_facets or {},
    }
    events: list[Event] = [run_event("START", began, **said)]
    if ended is not None:
        events.append(run_event(state, ended, **said))
    return events


def checked(
    table: str,
    name: str,
    began: float,
    *,
    good: bool,
    test: str = "not_null",
    column: str = "id",
    of: str | None = None,
    version: str | None = None,
    severity: str | None = None,
) -> list[Event]:
    """A run that asks one thing of one table, a minute long."""
    said: Json = {"assertion": test, "success": good, "column": column}
    if severity is not None:
        said["severity"] = severity
    facets: Json = {} if version is None else {"version": facet(datasetVersion=version)}
    read = dataset(table, facets=facets, inputFacets=assertions(said))
    return ran(f"test.{table}", name, began, began + 1, reads=[read], of=of)


def sized(table: str, rows: int) -> Json:
    return dataset(table, outputFacets={"outputStatistics": facet(rowCount=rows)})


def versioned(table: str, version: str) -> Json:
    return dataset(table, facets={"version": facet(datasetVersion=version)})


def owned(table: str, owner: str) -> Json:
    return dataset(table, facets={"ownership": facet(owners=[{"name": owner, "type": "TEAM"}])})


def tell(connection: psycopg.Connection[Any], *parts: Iterable[Event]) -> None:
    """One batch."""
    prepare(connection, SOURCE)
    attempt = begin(connection, SOURCE)
    stage(connection, attempt, fold(event for part in parts for event in part))
    merge(connection, attempt, batch_of(), then=follow)


def incident_on(connection: psycopg.Connection[Any], table: str, number: int = -1) -> Incident:
    """The last one of a table's tests, or the one of another number in order of time."""
    return _one(connection, "kind = 'test' AND dataset_id = %s", dataset_id(table), number)


def incident_of_run(connection: psycopg.Connection[Any], name: str, number: int = -1) -> Incident:
    return _one(
        connection,
        "kind = 'run' AND id IN (SELECT incident_id FROM failures JOIN job_runs ON job_runs.id = job_run_id "
        "WHERE run_id = %s)",
        run_id(name),
        number,
    )


def _one(connection: psycopg.Connection[Any], condition: str, value: object, number: int) -> Incident:
    query = f"SELECT id FROM incidents WHERE {condition} ORDER BY opened_at, id"  # noqa: S608
    ids = [id_of(id_) for (id_,) in connection.execute(query.encode(), [value])]
    return incidents_of(History(connection), ids)[ids[number]]
