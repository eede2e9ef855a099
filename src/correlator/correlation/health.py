"""How well things are: what came in and what became of it, what cannot be true."""

from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import psycopg
from msgspec import Meta, Struct
from psycopg.rows import class_row

from correlator.correlation.ignored import Ignored, sql_of_jobs
from correlator.store.moments import Moment

_LOOKED_AT: Final = 10_000
"""Rejected events, from the newest back, of which the reasons are counted."""


class Received(Struct, frozen=True, kw_only=True):
    """What came over HTTP: received = stored + duplicates + rejected."""

    source: str
    received: int
    stored: int
    duplicates: int
    rejected: int


class RejectReason(Struct, frozen=True, kw_only=True):
    rule: str
    producer: str | None
    events: int
    last_at: Moment
    example: Annotated[str, Meta(description="The sentence of the newest.")]


class ContradictingRun(Struct, frozen=True, kw_only=True):
    id: str
    run_id: str
    namespace: str
    name: str
    kind: str
    at: Moment
    sentence: str


_RECEIVED: Final = "SELECT source, received, stored, duplicates, rejected FROM kept.ingest_totals ORDER BY source"

_REASONS: Final = f"""
SELECT rule, producer, count(*) AS events, max(rejected_at) AS last_at,
       (array_agg(sentence ORDER BY id DESC))[1] AS example
FROM (
    SELECT id, rule, producer, rejected_at, sentence FROM kept.rejected_events
    WHERE redriven_at IS NULL ORDER BY id DESC LIMIT {_LOOKED_AT}
) AS newest
GROUP BY rule, producer ORDER BY events DESC, rule, producer LIMIT 100
"""  # noqa: S608 (constants of this module)

# The few runs that contradict themselves have an index of their own.
_CONTRADICTIONS: Final = f"""
SELECT run.canonical_job_run_id AS id, run.run_id, run.job_namespace AS namespace, run.job_name AS name, said.kind,
       said.at, said.sentence
FROM run_contradictions AS said JOIN job_runs AS run ON run.id = said.job_run_id
WHERE (%(before)s::timestamptz IS NULL
       OR (said.at, said.job_run_id, said.kind) < (%(before)s::timestamptz, %(before_id)s::uuid, %(before_kind)s::text))
  AND {sql_of_jobs("run.job_namespace", "run.job_name")}
ORDER BY said.at DESC, said.job_run_id DESC, said.kind DESC LIMIT %(limit)s
"""  # noqa: S608


def received(connection: psycopg.Connection[Any]) -> list[Received]:
    with connection.cursor(row_factory=class_row(Received)) as cursor:
        return cursor.execute(_RECEIVED).fetchall()


def reject_reasons(connection: psycopg.Connection[Any]) -> list[RejectReason]:
    with connection.cursor(row_factory=class_row(RejectReason)) as cursor:
        return cursor.execute(_REASONS.encode()).fetchall()


def contradictions(
    connection: psycopg.Connection[Any], *, limit: int, before: tuple[datetime, UUID, str] | None = None
) -> list[ContradictingRun]:
    """The newest first."""
    at, run, kind = before or (None, None, None)
    values = {"before": at, "before_id": run, "before_kind": kind, "limit": limit}
    with connection.cursor(row_factory=class_row(ContradictingRun)) as cursor:
        query = _CONTRADICTIONS.encode()
        return cursor.execute(query, values | Ignored.load(connection).parameters, prepare=False).fetchall()
