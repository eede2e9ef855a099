"""Jobs: lists, and all that is known of one."""

from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import psycopg
from msgspec import Meta, Struct
from psycopg.rows import dict_row

from correlator.correlation.ignored import Ignored, sql_of_jobs
from correlator.correlation.words import query_of
from correlator.rulebook.identity import job_key
from correlator.rulebook.redaction import Redaction
from correlator.store.moments import Moment

MOST_RUNS: Final = 20


class JobName(Struct, frozen=True):
    namespace: str
    name: str


class RunBrief(Struct, frozen=True, kw_only=True):
    """A run in one line."""

    id: Annotated[str, Meta(description="The canonical id: SHA-256 of job namespace, job name and run id, in hex.")]
    run_id: Annotated[str, Meta(description="As its producer calls it.")]
    job: JobName
    state: str
    started_at: Moment
    ended_at: Moment | None
    nominal_time: Moment | None


class Owner(Struct, frozen=True):
    name: str
    type: str | None = None


class JobBrief(Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    last_event_at: Annotated[Moment | None, Meta(description="Null for a job that others name and that never spoke.")]
    last_run: RunBrief | None


class JobDetail(Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    first_event_at: Moment | None
    last_event_at: Moment | None
    owners: list[Owner]
    facets: Annotated[dict[str, Any], Meta(description="As they stand, the latest statement of each.")]
    parents: Annotated[list[JobName], Meta(description="The job under which its last run ran.")]
    children: Annotated[list[JobBrief], Meta(description="Jobs that ever ran under it: the tasks of a DAG.")]
    runs: Annotated[list[RunBrief], Meta(description="The last ones, newest first; `/jobs/…/runs` has all.")]


RUN_COLUMNS: Final = """
run.canonical_job_run_id, run.run_id, run.job_namespace, run.job_name, run.current_state, run.started_at, run.ended_at,
run.nominal_time
"""

# One index range after the last job of the page before, and the end of one for each job.
_LIST: Final = f"""
SELECT {RUN_COLUMNS}, job.id, job.job_namespace, job.job_name, job.last_event_at,
       left(job.job_namespace, 300) AS short_namespace, left(job.job_name, 300) AS short_name
FROM jobs AS job
LEFT JOIN LATERAL (
    SELECT * FROM job_runs WHERE job_id = job.id ORDER BY started_at DESC, id DESC LIMIT 1
) AS run ON true
WHERE (left(job.job_namespace, 300), left(job.job_name, 300), job.id)
      > (%(after_namespace)s::text, %(after_name)s::text, %(after_id)s::uuid)
  AND (%(namespace)s::text IS NULL OR job.job_namespace = %(namespace)s::text)
  AND (%(words)s::tsquery IS NULL OR words_of(job.job_namespace || ' ' || job.job_name) @@ %(words)s::tsquery)
  AND {sql_of_jobs("job.job_namespace", "job.job_name")}
ORDER BY left(job.job_namespace, 300), left(job.job_name, 300), job.id
LIMIT %(limit)s
"""  # noqa: S608 (constants of our own)

_ONE: Final = "SELECT job_namespace, job_name, first_event_at, last_event_at, facets FROM jobs WHERE id = %s::uuid"

_RUNS: Final = f"""
SELECT {RUN_COLUMNS} FROM job_runs AS run
WHERE run.job_id = %(job)s::uuid
  AND (%(before)s::timestamptz IS NULL OR (run.started_at, run.id) < (%(before)s::timestamptz, %(before_id)s::uuid))
  AND (%(state)s::text IS NULL OR run.current_state = %(state)s::text)
ORDER BY run.started_at DESC, run.id DESC LIMIT %(limit)s
"""  # noqa: S608

_PARENTS: Final = """
SELECT parent_job_namespace, parent_job_name FROM job_runs
WHERE job_id = %s::uuid ORDER BY started_at DESC, id DESC LIMIT 1
"""

# Nearly always the first run that is looked at says so; a run may have taken it back.
_CHILDREN: Final = f"""
WITH child AS (
    SELECT said.job_id FROM job_children AS said
    WHERE said.parent_key = md5(%(namespace)s::text || chr(31) || %(name)s::text)::uuid AND EXISTS (
        SELECT FROM job_runs AS run
        WHERE run.job_id = said.job_id AND run.parent_job_namespace = %(namespace)s AND run.parent_job_name = %(name)s
    )
)
SELECT {RUN_COLUMNS}, job.id, job.job_namespace, job.job_name, job.last_event_at
FROM child
CROSS JOIN LATERAL (SELECT * FROM jobs WHERE jobs.id = child.job_id LIMIT 1) AS job
LEFT JOIN LATERAL (
    SELECT * FROM job_runs WHERE job_id = job.id ORDER BY started_at DESC, id DESC LIMIT 1
) AS run ON true
ORDER BY job.job_namespace, job.job_name
LIMIT 1000
"""  # noqa: S608


class JobPlace(Struct, frozen=True, array_like=True):
    """Where in the list of jobs a page ends."""

    namespace: str
    name: str
    id: UUID


class JobQuestion(Struct, frozen=True, kw_only=True):
    namespace: str | None = None
    q: str | None = None


def list_jobs(
    connection: psycopg.Connection[Any], question: JobQuestion, *, limit: int, after: JobPlace | None = None
) -> list[tuple[JobPlace, JobBrief]]:
    """By namespace and name."""
    place = after or JobPlace("", "", UUID(int=0))
    values = {
        "after_namespace": place.namespace,
        "after_name": place.name,
        "after_id": place.id,
        "namespace": question.namespace,
        "words": None if question.q is None else query_of(question.q) or "",
        "limit": limit,
        **Ignored.load(connection).parameters,
    }
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_LIST.encode(), values, prepare=False).fetchall()
    return [(JobPlace(row["short_namespace"], row["short_name"], row["id"]), _brief(row)) for row in rows]


def find_job(connection: psycopg.Connection[Any], namespace: str, name: str, redaction: Redaction) -> JobDetail | None:
    key = UUID(bytes=job_key(namespace, name))
    row = connection.execute(_ONE, [key]).fetchone()
    if row is None:
        return None
    facets = redaction.facets(row[4])
    parents = connection.execute(_PARENTS, [key]).fetchall()
    with connection.cursor(row_factory=dict_row) as cursor:
        children = cursor.execute(_CHILDREN.encode(), {"namespace": namespace, "name": name}, prepare=True).fetchall()
    return JobDetail(
        namespace=row[0],
        name=row[1],
        first_event_at=row[2],
        last_event_at=row[3],
        owners=owners_of(facets),
        facets=facets,
        parents=[JobName(*parent) for parent in parents if parent[1] is not None],
        children=[_brief(child) for child in children],
        runs=list_runs(connection, key, limit=MOST_RUNS),
    )


def list_runs(
    connection: psycopg.Connection[Any],
    job: UUID,
    *,
    limit: int,
    state: str | None = None,
    before: tuple[datetime, UUID] | None = None,
) -> list[RunBrief]:
    """The newest first."""
    at, id_ = before or (None, None)
    values = {"job": job, "before": at, "before_id": id_, "state": state, "limit": limit}
    with connection.cursor(row_factory=dict_row) as cursor:
        return [run_brief(row) for row in cursor.execute(_RUNS.encode(), values, prepare=False)]


def run_brief(row: dict[str, Any]) -> RunBrief:
    return RunBrief(
        id=row["canonical_job_run_id"],
        run_id=row["run_id"],
        job=JobName(row["job_namespace"], row["job_name"]),
        state=row["current_state"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        nominal_time=row["nominal_time"],
    )


def owners_of(facets: dict[str, Any]) -> list[Owner]:
    """From the `ownership` facet, as far as it is what it should be."""
    said = facets.get("ownership")
    found = said.get("owners") if isinstance(said, dict) else None
    return [
        Owner(owner["name"], kind if isinstance(kind := owner.get("type"), str) else None)
        for owner in (found if isinstance(found, list) else ())
        if isinstance(owner, dict) and isinstance(owner.get("name"), str)
    ]


def _brief(row: dict[str, Any]) -> JobBrief:
    return JobBrief(
        namespace=row["job_namespace"],
        name=row["job_name"],
        last_event_at=row["last_event_at"],
        last_run=None if row["canonical_job_run_id"] is None else run_brief(row),
    )
