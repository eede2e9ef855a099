"""Which integration sends what, and what of it is wrong.

What this costs is bounded: it looks at the jobs that were heard of last, at the newest events of the log and at the
newest rejected ones. The answer says how many of each.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import psycopg
from msgspec import Meta, Struct
from psycopg.rows import class_row

from correlator.correlation.ignored import Ignored, sql_of_jobs
from correlator.correlation.suggestions import orphans
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from correlator.rulebook.identity import dataset_key
from correlator.rulebook.producers import producer_name
from correlator.store.moments import Moment

MOST_JOBS: Final = 10_000
MOST_EVENTS: Final = 2_000
MOST_EVENT_BYTES: Final = 16 * 2**20
MOST_REJECTS: Final = 10_000
MOST_NAMES: Final = 50
_MOST_PRODUCERS: Final = 500
_SILENT: Final = "1 day"
"""A run that has begun, has not ended, and was not heard of for so long has lost its end."""


class RuleFigure(Struct, frozen=True, kw_only=True):
    rule: str
    events: Annotated[int, Meta(ge=1)]
    example: Annotated[str, Meta(description="The sentence of the newest.")]


class UnmatchedName(Struct, frozen=True, kw_only=True):
    """A dataset that this producer tests, under a name by which nobody writes it."""

    urn: str
    means: Annotated[str | None, Meta(description="What is probably meant: a name that somebody writes.")]


class Producer(Struct, frozen=True, kw_only=True):
    producer: Annotated[str | None, Meta(description="As sent; null for events that name none.")]
    name: Annotated[str | None, Meta(description="Without its version.")]
    version: str | None
    integrations: list[str]
    jobs: Annotated[int, Meta(description="Whose last run it told of.")]
    failing_jobs: Annotated[int, Meta(description="Of these, those whose last run failed or was aborted.")]
    jobs_without_start: Annotated[int, Meta(description="Of these, those whose last run was never said to START.")]
    jobs_without_end: Annotated[
        int,
        Meta(
            description="Of these, those with a run that never ended: a later one has begun, or a day has passed "
            "without an event. Streams are not counted."
        ),
    ]
    last_event_at: Moment | None
    events: Annotated[int, Meta(description="Of the newest events of the log, as many as were looked at.")]
    warned_events: Annotated[int, Meta(description="Of these, those with warnings.")]
    warnings: list[RuleFigure]
    rejected_events: Annotated[int, Meta(description="Of the newest rejected events that were not driven in again.")]
    rejects: list[RuleFigure]
    unmatched_names: list[UnmatchedName]


class LookedAt(Struct, frozen=True, kw_only=True):
    """How far back the figures go."""

    jobs: Annotated[int, Meta(description=f"Those heard of last, up to {MOST_JOBS:,}.")]
    events: Annotated[int, Meta(description=f"The newest of the log (HTTP), up to {MOST_EVENTS:,}.")]
    rejected_events: Annotated[int, Meta(description=f"The newest, from any source, up to {MOST_REJECTS:,}.")]


class ProducersReport(Struct, frozen=True):
    looked_at: LookedAt
    items: list[Producer]


class _Figures:
    """What is known of one producer so far."""

    def __init__(self) -> None:
        self.told: _OfJobs | None = None
        self.events = self.warned = self.rejected = 0
        self.warnings: Counter[str] = Counter()
        self.rejects: Counter[str] = Counter()
        self.examples: dict[tuple[str, str], str] = {}
        self.names: list[UnmatchedName] = []


class _OfJobs(Struct, frozen=True):
    producer: str
    jobs: int
    failing_jobs: int
    jobs_without_start: int
    jobs_without_end: int
    integrations: list[str]
    last_event_at: datetime | None


# Of each job the last two runs, the end of one index range: the cost follows the number of jobs, which is bounded, and
# not that of their runs.
_JOBS: Final = f"""
SELECT run.producer, count(*) FILTER (WHERE run.nth = 1) AS jobs,
       count(*) FILTER (WHERE run.nth = 1 AND run.current_state IN ('FAIL', 'ABORT')) AS failing_jobs,
       count(*) FILTER (WHERE run.nth = 1 AND run.first_start_at IS NULL) AS jobs_without_start,
       count(DISTINCT job.id) FILTER (
           WHERE run.ended_at IS NULL AND run.current_state IN ('START', 'RUNNING')
             AND coalesce(run.processing_type, '') NOT IN ('STREAMING', 'SERVICE')
             AND (run.nth > 1 OR run.event_time < now() - interval '{_SILENT}')
       ) AS jobs_without_end,
       coalesce(array_agg(DISTINCT run.integration) FILTER (WHERE run.integration IS NOT NULL), '{{}}')
           AS integrations,
       max(run.event_time) AS last_event_at
FROM (
    SELECT id FROM jobs WHERE {sql_of_jobs("job_namespace", "job_name")}
    ORDER BY last_event_at DESC NULLS LAST LIMIT {MOST_JOBS}
) AS job
CROSS JOIN LATERAL (
    SELECT newest.*, row_number() OVER () AS nth FROM (
        SELECT producer, current_state, integration, first_start_at, ended_at, processing_type, event_time
        FROM job_runs WHERE job_id = job.id ORDER BY started_at DESC, id DESC LIMIT 2
    ) AS newest
) AS run
GROUP BY run.producer ORDER BY last_event_at DESC, run.producer LIMIT {_MOST_PRODUCERS}
"""  # noqa: S608 (constants of this module)

# The end of the log: one index range in each day's partition, cut off where there are too many bytes. What an event
# weighs is known without reading it.
_EVENTS: Final = f"""
SELECT raw FROM (
    SELECT position, raw, sum(octet_length(raw)) OVER (ORDER BY position DESC) AS so_far
    FROM kept.lineage_events
    WHERE position > (SELECT position FROM kept.log_head) - {MOST_EVENTS}
) AS newest
WHERE so_far <= {MOST_EVENT_BYTES} ORDER BY position DESC
"""  # noqa: S608

_REJECTS: Final = f"""
SELECT producer, rule, count(*), (array_agg(sentence ORDER BY id DESC))[1]
FROM (
    SELECT id, rule, producer, sentence FROM kept.rejected_events
    WHERE redriven_at IS NULL ORDER BY id DESC LIMIT {MOST_REJECTS}
) AS newest
GROUP BY producer, rule ORDER BY count(*) DESC, rule
"""  # noqa: S608

# Who has read each dataset last: one index range for each.
_READERS: Final = """
SELECT name.id, (
    SELECT run.producer FROM lineage_edges AS edge JOIN job_runs AS run ON run.id = edge.job_run_id
    WHERE edge.dataset_id = name.id AND edge.edge_type = 'input' ORDER BY edge.used_at DESC LIMIT 1
)
FROM unnest(%s::uuid[]) AS name (id)
"""


def producers(connection: psycopg.Connection[Any]) -> ProducersReport:
    """Who was heard of last comes first."""
    known: dict[str | None, _Figures] = {}

    def figures(producer: str | None) -> _Figures:
        return known.setdefault(producer, _Figures())

    jobs = 0
    with connection.cursor(row_factory=class_row(_OfJobs)) as cursor:
        for row in cursor.execute(_JOBS.encode(), Ignored.load(connection).parameters):
            jobs += row.jobs
            figures(row.producer).told = row
    events = 0
    for (raw,) in connection.execute(_EVENTS.encode(), binary=True):
        events += 1
        verdict = judge(bytes(raw))
        # Stored under another policy, perhaps, or by an earlier version.
        its = figures(verdict.producer)
        its.events += 1
        if not isinstance(verdict, Rejection) and verdict.warnings:
            its.warned += 1
            for rule, sentence in {one.rule: one.message for one in reversed(verdict.warnings)}.items():
                its.warnings[rule] += 1
                its.examples.setdefault(("warning", rule), sentence)
    rejected = 0
    for producer, rule, number, sentence in connection.execute(_REJECTS.encode()):
        rejected += number
        its = figures(producer)
        its.rejected += number
        its.rejects[rule] += number
        its.examples.setdefault(("reject", rule), sentence)
    for producer, name in _unmatched(connection):
        figures(producer).names.append(name)
    found = [_told(producer, its) for producer, its in known.items()]
    return ProducersReport(LookedAt(jobs=jobs, events=events, rejected_events=rejected), found[:_MOST_PRODUCERS])


def _unmatched(connection: psycopg.Connection[Any]) -> Iterable[tuple[str | None, UnmatchedName]]:
    lonely = {UUID(bytes=dataset_key(one.urn)): one for one in orphans(connection, MOST_NAMES)}
    for dataset, producer in connection.execute(_READERS, [list(lonely)]):
        one = lonely[dataset]
        yield producer, UnmatchedName(urn=one.urn, means=one.suggestions[0].means if one.suggestions else None)


def _told(producer: str | None, its: _Figures) -> Producer:
    name = None if producer is None else producer_name(producer)
    of_jobs = its.told or _OfJobs("", 0, 0, 0, 0, [], None)
    return Producer(
        producer=producer,
        name=None if name is None else name.name,
        version=None if name is None else name.version,
        integrations=of_jobs.integrations,
        jobs=of_jobs.jobs,
        failing_jobs=of_jobs.failing_jobs,
        jobs_without_start=of_jobs.jobs_without_start,
        jobs_without_end=of_jobs.jobs_without_end,
        last_event_at=of_jobs.last_event_at,
        events=its.events,
        warned_events=its.warned,
        warnings=_by_rule("warning", its.warnings, its),
        rejected_events=its.rejected,
        rejects=_by_rule("reject", its.rejects, its),
        unmatched_names=its.names,
    )


def _by_rule(what: str, counted: Counter[str], its: _Figures) -> list[RuleFigure]:
    return [
        RuleFigure(rule=rule, events=number, example=its.examples[what, rule]) for rule, number in counted.most_common()
    ]
