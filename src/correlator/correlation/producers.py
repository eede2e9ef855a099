"""Which integration sends what, and what of it is wrong.

What this costs is bounded: the figures of jobs are kept by the merge, and of the log and of rejected events it looks at
the newest. The answer says how many of each.
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

    jobs: Annotated[int, Meta(description="All but those that are ignored.")]
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
    left_open: int
    integrations: list[str]
    jobs_without_end: int
    last_event_at: datetime | None


# A row or a few for each producer, two ends of an index range, and a range of those that have been silent for long.
_JOBS: Final = f"""
SELECT of_producer.*,
       left_open + (
           SELECT count(*) FROM last_runs
           WHERE md5(producer)::uuid = md5(of_producer.producer)::uuid AND is_open
             AND event_time < now() - interval '{_SILENT}' AND NOT left_open
       ) AS jobs_without_end,
       greatest((
           SELECT event_time FROM last_runs
           WHERE md5(producer)::uuid = md5(of_producer.producer)::uuid AND is_open ORDER BY event_time DESC LIMIT 1
       ), (
           SELECT event_time FROM last_runs
           WHERE md5(producer)::uuid = md5(of_producer.producer)::uuid AND NOT is_open ORDER BY event_time DESC LIMIT 1
       )) AS last_event_at
FROM (
    SELECT producer, sum(jobs)::bigint AS jobs, sum(failing)::bigint AS failing_jobs,
           sum(without_start)::bigint AS jobs_without_start, sum(left_open)::bigint AS left_open,
           array_remove(array_agg(integration ORDER BY integration), NULL) AS integrations
    FROM producer_jobs GROUP BY producer
) AS of_producer
ORDER BY last_event_at DESC, producer LIMIT {_MOST_PRODUCERS}
"""  # noqa: S608 (constants of this module)
# Where some are hidden, every job has to be looked at: a row of each.
_JOBS_SHOWN: Final = f"""
SELECT producer, count(*) AS jobs, count(*) FILTER (WHERE current_state IN ('FAIL', 'ABORT')) AS failing_jobs,
       count(*) FILTER (WHERE NOT has_start) AS jobs_without_start, count(*) FILTER (WHERE left_open) AS left_open,
       array_remove(array_agg(DISTINCT integration), NULL) AS integrations,
       count(*) FILTER (WHERE left_open OR is_open AND event_time < now() - interval '{_SILENT}') AS jobs_without_end,
       max(event_time) AS last_event_at
FROM last_runs WHERE {sql_of_jobs("job_namespace", "job_name")}
GROUP BY producer ORDER BY last_event_at DESC, producer LIMIT {_MOST_PRODUCERS}
"""  # noqa: S608

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
        ignored = Ignored.load(connection)
        for row in cursor.execute((_JOBS_SHOWN if ignored else _JOBS).encode(), ignored.parameters):
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
    of_jobs = its.told or _OfJobs("", 0, 0, 0, 0, [], 0, None)
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
