"""Jobs, and the runs of a job."""

from typing import Annotated, Final, Literal
from uuid import UUID

from msgspec import Meta, Struct

from correlator.correlation.jobs import (
    JobBrief,
    JobDetail,
    JobPlace,
    JobQuestion,
    RunBrief,
    find_job,
    list_jobs,
    list_runs,
)
from correlator.rulebook.identity import job_key
from correlator.server.answers import Moment
from correlator.server.api.operations import Asked, Operation, missing
from correlator.server.api.pages import NextCursor, Page, after, cursor_of, cut
from correlator.server.api.questions import Connection
from correlator.store.ledger import facts_as_of

Words = Annotated[str | None, Meta(description="Words of the name, each at least its beginning.")]


class JobsQuery(Page, frozen=True, forbid_unknown_fields=True, kw_only=True):
    namespace: Annotated[str | None, Meta(description="Of this namespace only.")] = None
    q: Words = None


class Jobs(Struct, frozen=True):
    facts_as_of: Moment
    items: list[JobBrief]
    next_cursor: NextCursor


class JobAnswer(Struct, frozen=True):
    facts_as_of: Moment
    job: JobDetail


class RunsQuery(Page, frozen=True, forbid_unknown_fields=True, kw_only=True):
    state: Literal["START", "RUNNING", "COMPLETE", "FAIL", "ABORT", "OTHER"] | None = None


class Runs(Struct, frozen=True):
    facts_as_of: Moment
    items: list[RunBrief]
    next_cursor: NextCursor


def _jobs(connection: Connection, asked: Asked) -> Jobs:
    query: JobsQuery = asked.query
    as_of = facts_as_of(connection)
    question = JobQuestion(namespace=query.namespace, q=query.q)
    found = list_jobs(connection, question, limit=query.limit + 1, after=after(query.cursor, JobPlace))
    page, last = cut(found, query.limit)
    return Jobs(as_of, [job for _, job in page], None if last is None else cursor_of(last[0]))


def _job(connection: Connection, asked: Asked) -> JobAnswer:
    as_of = facts_as_of(connection)
    namespace, name = asked.path["namespace"], asked.path["name"]
    found = find_job(connection, namespace, name, asked.context.redaction)
    if found is None:
        raise _unknown(namespace, name)
    return JobAnswer(as_of, found)


def _runs(connection: Connection, asked: Asked) -> Runs:
    query: RunsQuery = asked.query
    as_of = facts_as_of(connection)
    namespace, name = asked.path["namespace"], asked.path["name"]
    before = after(query.cursor, tuple[Moment, UUID])
    key = UUID(bytes=job_key(namespace, name))
    found = list_runs(connection, key, limit=query.limit + 1, state=query.state, before=before)
    if not found and connection.execute("SELECT FROM jobs WHERE id = %s", [key]).fetchone() is None:
        raise _unknown(namespace, name)
    page, last = cut(found, query.limit)
    return Runs(as_of, page, None if last is None else cursor_of((last.started_at, UUID(last.id[:32]))))


def _unknown(namespace: str, name: str) -> Exception:
    return missing(
        f"No event has named a job {name[:300]!r} in {namespace[:300]!r}. Both are percent-encoded in the path, "
        "slashes as %2F. GET /api/v1/search?q=… finds names."
    )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/jobs",
        name="listJobs",
        tag="catalogue",
        summary="Jobs by namespace and name, each with its last run.",
        scope="read",
        query=JobsQuery,
        answer=_jobs,
        answers=Jobs,
    ),
    Operation(
        method="GET",
        path="/api/v1/jobs/{namespace}/{name}",
        name="getJob",
        tag="catalogue",
        summary="One job: its facets, its owners, its last runs, and the jobs that ever ran under it.",
        scope="read",
        answer=_job,
        answers=JobAnswer,
        refuses=(404,),
    ),
    Operation(
        method="GET",
        path="/api/v1/jobs/{namespace}/{name}/runs",
        name="listRunsOfJob",
        tag="catalogue",
        summary="The runs of a job, newest first.",
        scope="read",
        query=RunsQuery,
        answer=_runs,
        answers=Runs,
        refuses=(404,),
    ),
)
