"""Events for tests, as short to write as what they are about."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from correlator.rulebook.decode import judge
from correlator.rulebook.events import DatasetEvent, Event, JobEvent, Rejection, RunEvent

PRODUCER = "https://example.com/producer"
SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json"
RUN = "550e8400-e29b-41d4-a716-446655440000"
OTHER_RUN = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
DB = "postgres://db:5432"

Json = dict[str, Any]


def facet(**members: Any) -> Json:
    return {"_producer": PRODUCER, "_schemaURL": "https://example.com/facet.json", **members}


def dataset(name: str, namespace: str = DB, **members: Any) -> Json:
    return {"namespace": namespace, "name": name, **members}


BEGINNING = datetime(2026, 5, 4, 10, tzinfo=UTC)


def at(minute: float) -> str:
    """A time on the day of the test, so many minutes after ten, or on another."""
    return f"{BEGINNING + timedelta(seconds=round(minute * 60)):%Y-%m-%dT%H:%M:%SZ}"


def run_json(
    event_type: str | None = "COMPLETE",
    minute: float = 0,
    *,
    run: str = RUN,
    job: str = "etl.orders",
    inputs: list[Json] | None = None,
    outputs: list[Json] | None = None,
    run_facets: Json | None = None,
    job_facets: Json | None = None,
    **members: Any,
) -> Json:
    event: Json = {
        "eventTime": at(minute),
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "run": {"runId": run, "facets": run_facets or {}},
        "job": {"namespace": "airflow", "name": job, "facets": job_facets or {}},
        "inputs": inputs or [],
        "outputs": outputs or [],
        **members,
    }
    return event if event_type is None else {"eventType": event_type, **event}


def accepted(event: Json) -> Event:
    verdict = judge(json.dumps(event).encode())
    assert not isinstance(verdict, Rejection), verdict.sentence
    return verdict


def run_event(event_type: str = "COMPLETE", minute: float = 0, **parts: Any) -> RunEvent:
    event = accepted(run_json(event_type, minute, **parts))
    assert isinstance(event, RunEvent)
    return event


def job_event(minute: float = 0, *, job: str = "etl.orders", facets: Json | None = None, **members: Any) -> JobEvent:
    event = accepted(
        {
            "eventTime": at(minute),
            "producer": PRODUCER,
            "schemaURL": SCHEMA,
            "job": {"namespace": "airflow", "name": job, "facets": facets or {}},
            **members,
        }
    )
    assert isinstance(event, JobEvent)
    return event


def dataset_event(minute: float = 0, *, name: str = "orders", facets: Json | None = None) -> DatasetEvent:
    event = accepted(
        {
            "eventTime": at(minute),
            "producer": PRODUCER,
            "schemaURL": SCHEMA,
            "dataset": dataset(name, facets=facets or {}),
        }
    )
    assert isinstance(event, DatasetEvent)
    return event


def parent(run: str, job: str = "dag", root: str | None = None) -> Json:
    members: Json = {"run": {"runId": run}, "job": {"namespace": "airflow", "name": job}}
    if root is not None:
        members["root"] = {"run": {"runId": root}, "job": {"namespace": "airflow", "name": "root"}}
    return {"parent": facet(**members)}


def assertions(*said: Json) -> Json:
    return {"dataQualityAssertions": facet(assertions=list(said))}
