"""What jobs did before: their last runs, how much they wrote, and what their code and set-up was."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import log
from operator import attrgetter
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from correlator.correlation.history import History, Version
from correlator.correlation.usual import MANY, Cadence, Sample, cadence

RUNS: Final = 60
"""So many of a job's last runs say what is usual,"""
MOST_RUNS: Final = 200
"""and up to so many of its last eight days: a job that runs every hour may have been wrong for a day."""


_LATELY: Final = timedelta(days=8)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_NO_TIME: Final = timedelta(0)


class PastRun(msgspec.Struct, frozen=True, gc=False):
    id: UUID
    state: str
    started_at: datetime
    ended_at: datetime
    parent: UUID | None
    nominal_time: datetime | None


_Amount: TypeAlias = tuple[PastRun, int | None, int | None]
"""Rows and bytes that a run wrote."""


class JobPast(msgspec.Struct):
    runs: list[PastRun] = msgspec.field(default_factory=list)
    """The latest first."""
    written: dict[UUID, list[_Amount]] = msgspec.field(default_factory=dict)
    """What they wrote, by the class of the dataset; the latest first."""
    _samples: dict[tuple[str, UUID], list[Sample]] = msgspec.field(default_factory=dict)
    """Once asked for: in order of time."""
    _rhythms: dict[datetime, Cadence | None] = msgspec.field(default_factory=dict)
    _intervals: dict[int, timedelta | None] = msgspec.field(default_factory=dict)
    """By how many good ends they are of."""
    _good: list[PastRun] | None = None
    _failed: list[PastRun] | None = None
    _ended_well: list[datetime] | None = None

    @property
    def good(self) -> list[PastRun]:
        if self._good is None:
            self._good = [run for run in self.runs if run.state == "COMPLETE"]
        return self._good

    @property
    def failed(self) -> list[PastRun]:
        if self._failed is None:
            self._failed = [run for run in self.runs if run.state in ("FAIL", "ABORT")]
        return self._failed

    def ended_well(self, until: datetime | None = None) -> list[datetime]:
        """In order of time."""
        if self._ended_well is None:
            self._ended_well = sorted([run.ended_at for run in self.good])
        return self._ended_well if until is None else self._ended_well[: bisect_right(self._ended_well, until)]

    def failed_since(self, moment: datetime | None, until: datetime) -> PastRun | None:
        """The last run that failed after a moment, unless one that ended well followed it."""
        for run in self.runs:
            if run.ended_at > until:
                continue
            if run.state == "COMPLETE" or (moment is not None and run.ended_at <= moment):
                return None
            if run.state in ("FAIL", "ABORT"):
                return run
        return None

    def began_to_fail(self, failed: PastRun) -> PastRun:
        """The first of the failures that this one is among, with nothing good in between; of its tries the last."""
        series = [failed]
        for run in self.runs:
            if run.ended_at >= failed.ended_at:
                continue
            if run.state == "COMPLETE":
                break
            if run.state in ("FAIL", "ABORT"):
                series.append(run)
        last, *later = reversed(series)
        soon = self._soon()
        for run in later:
            # Who does not say what started it is tried again soon.
            is_again = run.started_at - last.ended_at < soon if last.parent is None else run.parent == last.parent
            if not is_again:
                break
            last = run
        return last

    def _soon(self) -> timedelta:
        """What begins so soon after a failure is another try."""
        usual = self.interval(_LAST)
        return timedelta(minutes=30) if usual is None else usual / 2

    def failed_between(self, since: datetime, until: datetime) -> list[PastRun]:
        """Runs that failed and were not tried again with success: under the same parent, or soon."""
        found = []
        soon = self._soon() if self.failed else _NO_TIME
        for run in self.failed:
            if not since < run.ended_at <= until:
                continue
            # Of several tries the last one counts.
            if not any(
                (run.parent is not None and other.parent == run.parent)
                or ((other.state == "COMPLETE" or run.parent is None) and other.started_at - run.ended_at < soon)
                for other in self.runs
                if other.ended_at > run.ended_at
            ):
                found.append(run)
        return found

    def rhythm(self, last: datetime) -> Cadence | None:
        """How often it ended well up to a moment, as it goes after that."""
        if last not in self._rhythms:
            self._rhythms[last] = cadence(self.ended_well(last), last)
        return self._rhythms[last]

    def interval(self, until: datetime) -> timedelta | None:
        """How long it usually takes from one good end to the next."""
        ends = self.ended_well(until)
        if len(ends) not in self._intervals:
            gaps = sorted([other - one for one, other in pairwise(ends)])
            self._intervals[len(ends)] = gaps[len(gaps) // 2] if gaps else None
        return self._intervals[len(ends)]

    def rows_before(self, dataset: UUID, moment: datetime, well: datetime | None = None) -> list[Sample]:
        """Of its good runs, the latest first; up to `well` if these are enough: what came then may be the trouble."""
        return self._before("rows", dataset, moment, well)

    def is_always_as_many(self, version: Version, moment: datetime) -> bool:
        """Whether there is a row for each of twelve regions, whatever went in: that does not tell what it was."""
        before = self.rows_before(version.dataset, moment)[:MANY]
        return len(before) == MANY and all(sample.amount == version.row_count for sample in before)

    def bytes_before(self, dataset: UUID, moment: datetime, well: datetime | None = None) -> list[Sample]:
        return self._before("bytes", dataset, moment, well)

    def durations_before(self, moment: datetime) -> list[Sample]:
        return self._before("seconds", _ALL, moment, None)

    def _before(self, what: str, dataset: UUID, moment: datetime, well: datetime | None) -> list[Sample]:
        known = self._samples.get((what, dataset))
        if known is None:
            known = self._samples[what, dataset] = self._all(what, dataset)
            known.sort(key=_at)
        number = bisect_left(known, moment, key=_at)
        up_to_well = number if well is None else min(number, bisect_right(known, well, key=_at))
        return known[: up_to_well if up_to_well >= MANY else number][::-1]

    def _all(self, what: str, dataset: UUID) -> list[Sample]:
        # Thousands of them, so each is made as directly as can be.
        if what == "seconds":
            # Who says that it began after it had ended does not say how long it took.
            lengths = [(run.ended_at, (run.ended_at - run.started_at).total_seconds()) for run in self.good[:RUNS]]
            return [Sample(at, log(seconds + 1)) for at, seconds in lengths if seconds >= 0]
        written = [(run, rows if what == "rows" else size) for run, rows, size in self.written.get(dataset, ())]
        return [
            Sample(run.ended_at, log(amount + 1))
            for run, amount in written
            if amount is not None and run.state == "COMPLETE"
        ]


_ALL: Final = UUID(int=0)
_at: Final = attrgetter("at")


def pasts(
    history: History, jobs: Iterable[UUID], until: datetime, written: Iterable[tuple[UUID, UUID]], number: int = RUNS
) -> dict[UUID, JobPast]:
    """Of each job what it did up to a moment. `written` are jobs and datasets, by their class, whose amounts count."""
    wanted = list(dict.fromkeys(jobs))
    found = {job: JobPast() for job in wanted}
    lately = until - _LATELY if until - _FIRST > _LATELY else until
    for place, *columns in history.rows(_PAST, lately, MOST_RUNS, until, number, wanted):
        found[wanted[place - 1]].runs = list(map(PastRun, *columns))
    _find_amounts(history, found, list(dict.fromkeys(written)), until)
    return found


def _find_amounts(
    history: History, found: Mapping[UUID, JobPast], written: Sequence[tuple[UUID, UUID]], until: datetime
) -> None:
    """How much the runs wrote to each dataset, by each of its names."""
    written = [(job, dataset) for job, dataset in written if found[job].runs]
    members = history.members(dataset for _, dataset in written)
    asked = [(job, dataset, name) for job, dataset in written for name in members[dataset]]
    if not asked:
        return
    jobs, _, names = zip(*asked, strict=True)
    past = [found[job].runs for job in jobs]
    since, number = [runs[-1].ended_at for runs in past], [len(runs) for runs in past]
    rows = history.rows(_AMOUNTS, list(jobs), list(names), since, number, until, _MOST_WRITES, until)
    for place, writes, numbers, row_counts, byte_sizes in rows:
        job, dataset, name = asked[place - 1]
        runs = found[job].runs
        if writes == _MOST_WRITES:
            # Others write there all the time: of these the runs themselves are asked.
            of_runs = {run: (rows, size) for run, rows, size in history.rows(_OF_RUNS, [run.id for run in runs], name)}
            amounts = [(run, *of_runs[run.id]) for run in runs if run.id in of_runs]
        else:
            amounts = [
                (runs[n - 1], rows, size)
                for n, rows, size in zip(numbers or (), row_counts or (), byte_sizes or (), strict=True)
            ]
        found[job].written.setdefault(dataset, []).extend(amounts)
    for job, dataset in written:
        if len(members[dataset]) > 1:
            found[job].written.get(dataset, []).sort(
                key=lambda amount: (amount[0].ended_at, amount[0].id), reverse=True
            )


def run_facets(history: History, runs: Iterable[UUID]) -> dict[UUID, dict[str, Any]]:
    """How runs were set up."""
    wanted = list(dict.fromkeys(runs))
    return dict(history.rows(_FACETS, list(_HEAVY), wanted)) if wanted else {}


def past_facets(history: History, pasts_of: Iterable[tuple[UUID, Sequence[PastRun]]]) -> dict[UUID, dict[str, Any]]:
    """The same of many runs of a job each: not by their ids, which lie all over the place, but by when they ended."""
    asked = [(job, runs) for job, runs in pasts_of if runs]
    if not asked:
        return {}
    columns = [list(column) for column in zip(*[(job, *_span(runs)) for job, runs in asked], strict=True)]
    ids = [run.id for _, runs in asked for run in runs]
    return dict(history.rows(_PAST_FACETS, list(_HEAVY), *columns, MOST_RUNS, ids))


def _span(runs: Sequence[PastRun]) -> tuple[datetime, datetime]:
    ends = [run.ended_at for run in runs]
    return min(ends), max(ends)


def facets_at(
    history: History, kind: str, asked: Sequence[tuple[UUID, datetime]], keys: Sequence[str]
) -> dict[tuple[UUID, datetime], dict[str, Any]]:
    """What stood of jobs or datasets at some moments, as far as events had said it by then."""
    pairs = list(dict.fromkeys(asked))
    found: dict[tuple[UUID, datetime], dict[str, Any]] = {pair: {} for pair in pairs}
    if not pairs:
        return found
    rows = history.rows(_AT, [entity for entity, _ in pairs], [at for _, at in pairs], list(keys), kind)
    digests = list({row[2] for row in rows})
    bodies = (
        dict(history.rows("SELECT digest, body FROM {s}.facet_bodies WHERE digest = ANY (%s::uuid[])", digests))
        if digests
        else {}
    )
    for number, key, digest in rows:
        if digest in bodies:
            found[pairs[number - 1]][key] = bodies[digest]
    return found


def varied(
    history: History, kind: str, asked: Sequence[tuple[UUID, datetime, datetime]], keys: Sequence[str]
) -> set[UUID]:
    """The jobs or datasets of which more than one thing was said between two moments: nearly always none."""
    if not asked:
        return set()
    columns = [list(column) for column in zip(*asked, strict=True)]
    return {entity for (entity,) in history.rows(_VARIED, *columns, list(keys), kind)}


_HEAVY: Final = ("spark.logicalPlan", "spark_unknown", "debug", "gcp_dataproc_spark", "spark_jobDetails")
"""What no comparison has use for, and can be megabytes."""

# Of each job the end of one index range, which holds all that is asked for. How many it takes to reach as far back as
# that, it tells as well. A row of each job: there are thousands of runs.
_PAST: Final = """
SELECT job.place, past.*
FROM (
    SELECT asked.place, asked.id, asked.until, greatest(asked.least, (
        SELECT count(*) FROM (
            SELECT FROM {s}.job_runs AS run
            WHERE run.job_id = asked.id AND run.ended_at <= asked.until AND run.ended_at > %s LIMIT %s
        ) AS lately
    )) AS most
    FROM (
        SELECT wanted.place, wanted.id, %s::timestamptz AS until, %s::bigint AS least
        FROM unnest(%s::uuid[]) WITH ORDINALITY AS wanted (id, place)
    ) AS asked
) AS job
CROSS JOIN LATERAL (
    SELECT array_agg(id) AS ids, array_agg(current_state), array_agg(started_at), array_agg(ended_at),
           array_agg(parent_job_run_id), array_agg(nominal_time)
    FROM (
        SELECT run.id, run.current_state, run.started_at, run.ended_at, run.parent_job_run_id, run.nominal_time
        FROM {s}.job_runs AS run
        WHERE run.job_id = job.id AND run.ended_at <= job.until
        ORDER BY run.ended_at DESC, run.id DESC LIMIT job.most
    ) AS ended
) AS past
WHERE past.ids IS NOT NULL
"""

_MOST_WRITES: Final = 1_000
"""Of a dataset. One that only its own job writes has no more than that has runs."""

# Of each job and each name the end of one index range, which hold all that is asked for: the runs as `_PAST` numbers
# them, and what was written by any of them. A row for each: there are thousands of writes. A full join is never done by
# holding each run against each write, as the planner would have it where it knows little of either.
_AMOUNTS: Final = """
SELECT asked.place, amounts.writes, amounts.numbers, amounts.row_counts, amounts.byte_sizes
FROM unnest(%s::uuid[], %s::uuid[], %s::timestamptz[], %s::bigint[])
    WITH ORDINALITY AS asked (job_id, name, since, number, place)
CROSS JOIN LATERAL (
    SELECT count(written.job_run_id) AS writes,
           array_agg(past.number ORDER BY past.number) FILTER (WHERE past.id = written.job_run_id) AS numbers,
           array_agg(written.row_count ORDER BY past.number) FILTER (WHERE past.id = written.job_run_id) AS row_counts,
           array_agg(written.byte_size ORDER BY past.number) FILTER (WHERE past.id = written.job_run_id) AS byte_sizes
    FROM (
        SELECT edge.job_run_id, edge.row_count, edge.byte_size FROM {s}.lineage_edges AS edge
        WHERE edge.dataset_id = asked.name AND edge.edge_type = 'output' AND edge.used_at >= asked.since
          AND edge.used_at <= %s AND num_nonnulls(edge.row_count, edge.byte_size) > 0
        ORDER BY edge.used_at DESC LIMIT %s
    ) AS written
    FULL JOIN (
        SELECT ended.id, row_number() OVER () AS number FROM (
            SELECT run.id FROM {s}.job_runs AS run
            WHERE run.job_id = asked.job_id AND run.ended_at <= %s
            ORDER BY run.ended_at DESC, run.id DESC LIMIT asked.number
        ) AS ended
    ) AS past ON past.id = written.job_run_id
) AS amounts
"""
_OF_RUNS: Final = """
SELECT job_run_id, row_count, byte_size FROM {s}.lineage_edges
WHERE job_run_id = ANY (%s::uuid[]) AND dataset_id = %s AND edge_type = 'output'
  AND used_at IS NOT NULL AND num_nonnulls(row_count, byte_size) > 0
"""

_FACETS: Final = "SELECT id, facets - %s::text[] FROM {s}.job_runs WHERE id = ANY (%s::uuid[])"

# Of each job one range of the index that its past was found by, in the same order: no more are in it than a past holds.
_PAST_FACETS: Final = """
SELECT ended.id, ended.facets - %s::text[]
FROM unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[]) AS asked (job_id, since, until)
CROSS JOIN LATERAL (
    SELECT run.id, run.facets FROM {s}.job_runs AS run
    WHERE run.job_id = asked.job_id AND run.ended_at >= asked.since AND run.ended_at <= asked.until
    ORDER BY run.ended_at DESC, run.id DESC LIMIT %s
) AS ended
JOIN unnest(%s::uuid[]) AS wanted (id) ON wanted.id = ended.id
"""

# Of each the end of one index range tells the hour, and of those that spoke in it the last one counts.
_AT: Final = """
SELECT asked.number, key, said.body_digest
FROM unnest(%s::uuid[], %s::timestamptz[]) WITH ORDINALITY AS asked (entity_id, at, number)
CROSS JOIN unnest(%s::text[]) AS key
CROSS JOIN LATERAL (
    SELECT said.entity_kind, said.hour FROM {s}.facet_history AS said
    WHERE said.entity_id = asked.entity_id AND said.entity_kind = %s AND said.facet_key = key
      AND said.hour <= asked.at AND said.first_at <= asked.at
    ORDER BY said.hour DESC LIMIT 1
) AS latest
CROSS JOIN LATERAL (
    SELECT said.body_digest FROM {s}.facet_history AS said
    WHERE said.entity_id = asked.entity_id AND said.entity_kind = latest.entity_kind AND said.facet_key = key
      AND said.hour = latest.hour AND said.first_at <= asked.at
    ORDER BY CASE WHEN said.last_at <= asked.at THEN said.last_at ELSE said.first_at END DESC, said.rank DESC,
        said.job_run_id DESC, said.body_digest DESC LIMIT 1
) AS said
"""

# A short range of an index for each, which holds all that is asked for.
_VARIED: Final = """
SELECT DISTINCT asked.entity_id
FROM unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[]) AS asked (entity_id, since, until)
CROSS JOIN unnest(%s::text[]) AS key
CROSS JOIN LATERAL (
    SELECT count(DISTINCT said.body_digest) AS bodies FROM {s}.facet_history AS said
    WHERE said.entity_id = asked.entity_id AND said.entity_kind = %s AND said.facet_key = key
      AND said.hour > asked.since - interval '1 hour' AND said.hour <= asked.until
) AS said
WHERE said.bodies > 1
"""
