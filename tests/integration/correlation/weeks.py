"""Histories of days and weeks in the manner of many producers, told run by run."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from correlator.correlation.incident_detail import IncidentDetail, incident_detail
from correlator.correlation.summaries import CandidateTold
from correlator.rulebook.events import Event
from tests.integration.correlation.stories import incident_on, run_id, tell
from tests.unit.rulebook.histories import DB, PRODUCER, SCHEMA, Json, accepted, assertions, facet

_MONDAY = datetime(2026, 5, 4, tzinfo=UTC)


def moment(day: int, hour: float = 0) -> datetime:
    return _MONDAY + timedelta(days=day, hours=hour)


class Weeks:
    """Days are counted from a Monday; hours may have fractions."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._runs = 0
        self._last: dict[str, str] = {}

    def run(
        self,
        job: str,
        day: int,
        hour: float,
        *,
        reads: Iterable[str | Json] = (),
        writes: Iterable[str | Json] = (),
        rows: int | None = None,
        columns: Sequence[str] | None = None,
        state: str = "COMPLETE",
        minutes: float = 10,
        of: tuple[str, str] | None = None,
        facets: Json | None = None,
        job_facets: Json | None = None,
        nominal: int | None = None,
    ) -> str:
        """Its id. `of` is its parent's job and run, `rows` and `columns` are those of all it writes."""
        self._runs += 1
        name = self._last[job] = run_id(f"run {self._runs}")
        run_facets: Json = dict(facets or {})
        if of is not None:
            run_facets["parent"] = facet(run={"runId": of[1]}, job={"namespace": "airflow", "name": of[0]})
        if nominal is not None:
            run_facets["nominalTime"] = facet(nominalStartTime=moment(nominal).isoformat())
        event: Json = {
            "producer": PRODUCER,
            "schemaURL": SCHEMA,
            "run": {"runId": name, "facets": run_facets},
            "job": {"namespace": "airflow", "name": job, "facets": job_facets or {}},
            "inputs": [_dataset(one) for one in reads],
            "outputs": [_dataset(one, rows, columns) for one in writes],
        }
        began = moment(day, hour)
        for event_type, at in (("START", began), (state, began + timedelta(minutes=minutes))):
            self.events.append(accepted({**event, "eventType": event_type, "eventTime": at.isoformat()}))
        return name

    def last(self, job: str) -> str:
        """The run of a job that was told of last."""
        return self._last[job]

    def check(self, table: str, day: int, hour: float, *, good: bool, test: str, column: str = "") -> None:
        said: Json = {"assertion": test, "success": good}
        if column:
            said["column"] = column
        read = {"namespace": DB, "name": table, "inputFacets": assertions(said)}
        self.run(f"check {table} {test} {column}", day, hour, reads=[read], minutes=1)

    def announce(self, table: str, day: int, hour: float, columns: Sequence[str]) -> None:
        """A catalogue tells of a table's columns."""
        self.events.append(
            accepted(
                {
                    "eventTime": moment(day, hour).isoformat(),
                    "producer": PRODUCER,
                    "schemaURL": SCHEMA,
                    "dataset": {"namespace": DB, "name": table, "facets": {"schema": schema(columns)}},
                }
            )
        )


def _dataset(one: str | Json, rows: int | None = None, columns: Sequence[str] | None = None) -> Json:
    found: Json = {"namespace": DB, "name": one} if isinstance(one, str) else dict(one)
    if rows is not None:
        found["outputFacets"] = {"outputStatistics": facet(rowCount=rows)}
    if columns is not None:
        found["facets"] = {**found.get("facets", {}), "schema": schema(columns)}
    return found


def schema(columns: Iterable[str]) -> Json:
    return facet(fields=[{"name": name, "type": "VARCHAR"} for name in columns])


def with_columns(table: str, columns: Iterable[str]) -> Json:
    return {"namespace": DB, "name": table, "facets": {"schema": schema(columns)}}


def with_lineage(table: str, sources: Mapping[str, tuple[str, str]]) -> Json:
    """Of each column the table and column that it comes from."""
    fields = {
        column: {"inputFields": [{"namespace": DB, "name": source, "field": field}]}
        for column, (source, field) in sources.items()
    }
    return {"namespace": DB, "name": table, "facets": {"columnLineage": facet(fields=fields)}}


def version(text: str) -> Json:
    return {"sourceCodeLocation": facet(type="git", url="https://example.com/repo", version=text)}


def sql(text: str) -> Json:
    return {"sql": facet(query=text)}


def engine(text: str) -> Json:
    return {"processing_engine": facet(version=text, name="engine")}


def told(connection: psycopg.Connection[Any], weeks: Weeks, table: str) -> IncidentDetail:
    """What is said of the last failure on a table."""
    tell(connection, weeks.events)
    return incident_detail(connection, incident_on(connection, table).uuid)


def first(detail: IncidentDetail) -> tuple[str, str | None]:
    """Job and run of the first candidate."""
    return detail.candidates[0].job.name, detail.candidates[0].run_id


def kinds(candidate: CandidateTold) -> set[str]:
    return {evidence.kind for evidence in candidate.evidence}


def metrics(rows: int, nulls: Mapping[str, int] | None = None, sums: Mapping[str, float] | None = None) -> Json:
    """As facets of a dataset, or of an input."""
    columns: Json = {column: {"nullCount": number} for column, number in (nulls or {}).items()}
    columns |= {column: {"sum": total} for column, total in (sums or {}).items()}
    return {"dataQualityMetrics": facet(rowCount=rows, columnMetrics=columns)}
