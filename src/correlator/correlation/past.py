"""What jobs did before: their last runs, how much they wrote, and what their code and set-up was."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import msgspec

from correlator.correlation.history import History, Version
from correlator.correlation.ids import NOBODY, Id
from correlator.correlation.usual import MANY, Cadence, Samples, Steps

RUNS: Final = 60
"""So many of a job's last runs say what is usual,"""
MOST_RUNS: Final = 200
"""and up to so many of its last eight days: a job that runs every hour may have been wrong for a day."""


_LATELY: Final = timedelta(days=8)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_NO_TIME: Final = timedelta(0)


class PastRun(msgspec.Struct, frozen=True, gc=False):
    id: Id
    state: str
    started_at: datetime
    ended_at: datetime
    parent: Id | None
    nominal_time: datetime | None


_Amount: TypeAlias = tuple[PastRun, int | None, int | None]
"""Rows and bytes that a run wrote."""


class JobPast(msgspec.Struct):
    runs: list[PastRun] = msgspec.field(default_factory=list)
    """The latest first."""
    ids: list[Id] = msgspec.field(default_factory=list)
    """Of these runs."""
    written: dict[Id, list[_Amount]] = msgspec.field(default_factory=dict)
    """What they wrote, by the class of the dataset; the latest first."""
    _samples: dict[tuple[str, Id], Samples] = msgspec.field(default_factory=dict)
    """All of them, once asked for."""
    _rhythms: dict[datetime, Cadence | None] = msgspec.field(default_factory=dict)
    _intervals: dict[int, timedelta | None] = msgspec.field(default_factory=dict)
    """By how many steps they are of."""
    _all_steps: Steps | None = None
    _good: list[PastRun] | None = None
    _failed: list[PastRun] | None = None
    _ended_well: list[datetime] | None = None

    @property
    def good(self) -> list[PastRun]:
        if self._good is None:
            good = [run for run in self.runs if run.state == "COMPLETE"]
            self._good = self.runs if len(good) == len(self.runs) else good
        return self._good

    @property
    def failed(self) -> list[PastRun]:
        if self.good is self.runs:
            return []
        if self._failed is None:
            self._failed = [run for run in self.runs if run.state in ("FAIL", "ABORT")]
        return self._failed

    def ended_well(self, until: datetime | None = None) -> list[datetime]:
        """In order of time."""
        if self._ended_well is None:
            self._ended_well = [run.ended_at for run in reversed(self.good)]
        return self._ended_well if until is None else self._ended_well[: bisect_right(self._ended_well, until)]

    def good_before(self, moment: datetime) -> list[PastRun]:
        """Those that had ended by then, the latest first."""
        return self.good[len(self.good) - bisect_left(self.ended_well(), moment) :]

    def good_between(self, first: datetime, last: datetime) -> list[PastRun]:
        """Those that ended between two moments, or at one of them; the latest first."""
        ends, number = self.ended_well(), len(self.good)
        return self.good[number - bisect_right(ends, last) : number - bisect_left(ends, first)]

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
        series: list[PastRun] = []
        for run in reversed(self.runs):
            if run.state in ("FAIL", "ABORT"):
                series.append(run)
            elif run.state == "COMPLETE" and run.ended_at > failed.ended_at:
                break
            elif run.state == "COMPLETE":
                series = []
        last, *later = series or [failed]
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
            number = bisect_right(self.ended_well(), last) - 1
            self._rhythms[last] = self._steps().cadence(last, number)
        return self._rhythms[last]

    def _steps(self) -> Steps:
        if self._all_steps is None:
            self._all_steps = Steps.of(self.ended_well())
        return self._all_steps

    def interval(self, until: datetime) -> timedelta | None:
        """How long it usually takes from one good end to the next."""
        number = max(0, bisect_right(self.ended_well(), until) - 1)
        if number not in self._intervals:
            gaps = sorted(self._steps().gaps[:number])
            self._intervals[number] = gaps[number // 2] if gaps else None
        return self._intervals[number]

    def rows_before(self, dataset: Id, moment: datetime, well: datetime | None = None) -> Samples:
        """Of its good runs, the latest first; up to `well` if these are enough: what came then may be the trouble."""
        return self._before("rows", dataset, moment, well)

    def is_always_as_many(self, version: Version, moment: datetime) -> bool:
        """Whether there is a row for each of twelve regions, whatever went in: that does not tell what it was."""
        before = self.rows_before(version.dataset, moment).amounts(MANY)
        return before == [version.row_count] * MANY

    def bytes_before(self, dataset: Id, moment: datetime, well: datetime | None = None) -> Samples:
        return self._before("bytes", dataset, moment, well)

    def durations_before(self, moment: datetime) -> Samples:
        return self._before("seconds", _ALL, moment, None)

    def _before(self, what: str, dataset: Id, moment: datetime, well: datetime | None) -> Samples:
        known = self._samples.get((what, dataset))
        if known is None:
            known = self._samples[what, dataset] = self._all(what, dataset)
        later = _not_before(known.ats, moment)
        if well is not None:
            since_well = max(later, _after(known.ats, well))
            later = since_well if len(known) - since_well >= MANY else later
        return known.since(later)

    def _all(self, what: str, dataset: Id) -> Samples:
        # Thousands of them, so each is made as directly as can be.
        if what == "seconds":
            # Who says that it began after it had ended does not say how long it took.
            lengths = [(run.ended_at, (run.ended_at - run.started_at).total_seconds()) for run in self.good[:RUNS]]
            return Samples.of([(at, seconds) for at, seconds in lengths if seconds >= 0])
        written = self.written.get(dataset, ())
        if what == "rows":
            told = [(run.ended_at, rows) for run, rows, _ in written if rows is not None and run.state == "COMPLETE"]
        else:
            told = [(run.ended_at, size) for run, _, size in written if size is not None and run.state == "COMPLETE"]
        return Samples.of(told)


_ALL: Final = NOBODY


def _not_before(ats: Sequence[datetime], moment: datetime) -> int:
    """How many of the first ones are not before a moment; the latest come first, and few are asked for."""
    return next((number for number, at in enumerate(ats) if at < moment), len(ats))


def _after(ats: Sequence[datetime], moment: datetime) -> int:
    return next((number for number, at in enumerate(ats) if at <= moment), len(ats))


def pasts(
    history: History, jobs: Iterable[Id], until: datetime, written: Iterable[tuple[Id, Id]], number: int = RUNS
) -> dict[Id, JobPast]:
    """Of each job what it did up to a moment. `written` are jobs and datasets, by their class, whose amounts count."""
    wanted = list(dict.fromkeys(jobs))
    found = {job: JobPast() for job in wanted}
    lately = until - _LATELY if until - _FIRST > _LATELY else until
    for place, *columns in history.rows(_PAST, lately, MOST_RUNS, until, number, wanted):
        past = found[wanted[place - 1]]
        past.ids, past.runs = columns[0], list(map(PastRun, *columns))
    _find_amounts(history, found, list(dict.fromkeys(written)), until)
    return found


def _find_amounts(
    history: History, found: Mapping[Id, JobPast], written: Sequence[tuple[Id, Id]], until: datetime
) -> None:
    """How much the runs wrote to each dataset, by each of its names."""
    written = [(job, dataset) for job, dataset in written if found[job].runs]
    members = history.members(dataset for _, dataset in written)
    asked = [(job, dataset, name) for job, dataset in written for name in members[dataset]]
    if not asked:
        return
    jobs, _, names = zip(*asked, strict=True)
    since = [found[job].runs[-1].ended_at for job in jobs]
    for place, writers, row_counts, byte_sizes in history.rows(_AMOUNTS, list(names), since, until, _MOST_WRITES):
        job, dataset, name = asked[place - 1]
        past = found[job]
        if writers == past.ids:
            # As it is where nobody else writes there.
            amounts = list(zip(past.runs, row_counts, byte_sizes, strict=True))
        else:
            amounts = _of_own_runs(history, past, name, writers, row_counts, byte_sizes)
        past.written.setdefault(dataset, []).extend(amounts)
    for job, dataset in written:
        if len(members[dataset]) > 1:
            found[job].written.get(dataset, []).sort(
                key=lambda amount: (amount[0].ended_at, amount[0].id), reverse=True
            )


def _of_own_runs(
    history: History, past: JobPast, name: Id, writers: list[Id], rows: list[int | None], sizes: list[int | None]
) -> list[_Amount]:
    if len(writers) < _MOST_WRITES:
        of_runs = dict(zip(writers, zip(rows, sizes, strict=True), strict=True))
    else:
        # Others write there all the time: of these the runs themselves are asked.
        of_runs = {run: (count, size) for run, count, size in history.rows(_OF_RUNS, past.ids, name)}
    return [(run, *of_runs[run.id]) for run in past.runs if run.id in of_runs]


def run_facets(history: History, runs: Iterable[Id]) -> dict[Id, dict[str, Any]]:
    """How runs were set up."""
    wanted = list(dict.fromkeys(runs))
    return dict(history.rows(_FACETS, list(_HEAVY), wanted)) if wanted else {}


def past_facets(history: History, pasts_of: Iterable[tuple[Id, Sequence[PastRun]]]) -> dict[Id, dict[str, Any]]:
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
    history: History, kind: str, asked: Sequence[tuple[Id, datetime]], keys: Sequence[str]
) -> dict[tuple[Id, datetime], dict[str, Any]]:
    """What stood of jobs or datasets at some moments, as far as events had said it by then."""
    pairs = list(dict.fromkeys(asked))
    found: dict[tuple[Id, datetime], dict[str, Any]] = {pair: {} for pair in pairs}
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


def varied(history: History, kind: str, asked: Sequence[tuple[Id, datetime, datetime]], keys: Sequence[str]) -> set[Id]:
    """The jobs or datasets of which more than one thing was said between two moments: nearly always none."""
    if not asked:
        return set()
    columns = [list(column) for column in zip(*asked, strict=True)]
    return {entity for (entity,) in history.rows(_VARIED, *columns, list(keys), kind)}


_HEAVY: Final = ("spark.logicalPlan", "spark_unknown", "debug", "gcp_dataproc_spark", "spark_jobDetails")
"""What no comparison has use for, and can be megabytes."""

# Of each job the end of one index range, which holds all that is asked for. Whether the least that is wanted reaches as
# far back as all of late, the last of these tells. A row of each job: there are thousands of runs.
_PAST: Final = """
SELECT job.place, past.*
FROM (
    SELECT asked.place, asked.id, asked.until, asked.lately, (
        SELECT run.ended_at > asked.lately FROM {s}.job_runs AS run
        WHERE run.job_id = asked.id AND run.ended_at <= asked.until
        ORDER BY run.ended_at DESC, run.id DESC OFFSET asked.least - 1 LIMIT 1
    ) IS TRUE AS is_busy, asked.least, asked.most
    FROM (
        SELECT wanted.place, wanted.id, %s::timestamptz AS lately, %s::bigint AS most, %s::timestamptz AS until,
               %s::bigint AS least
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
          AND run.ended_at > CASE WHEN job.is_busy THEN job.lately ELSE '-infinity' END
        ORDER BY run.ended_at DESC, run.id DESC LIMIT CASE WHEN job.is_busy THEN job.most ELSE job.least END
    ) AS ended
) AS past
WHERE past.ids IS NOT NULL
"""

_MOST_WRITES: Final = 1_000
"""Of a dataset. One that only its own job writes has no more than that has runs."""

# Of each name the end of one index range, which holds all that is asked for, whoever wrote there. A row for each: there
# are thousands of writes.
_AMOUNTS: Final = """
SELECT asked.place, amounts.*
FROM unnest(%s::uuid[], %s::timestamptz[]) WITH ORDINALITY AS asked (name, since, place)
CROSS JOIN LATERAL (
    SELECT array_agg(job_run_id) AS runs, array_agg(row_count), array_agg(byte_size)
    FROM (
        SELECT edge.job_run_id, edge.row_count, edge.byte_size FROM {s}.lineage_edges AS edge
        WHERE edge.dataset_id = asked.name AND edge.edge_type = 'output' AND edge.used_at >= asked.since
          AND edge.used_at <= %s AND num_nonnulls(edge.row_count, edge.byte_size) > 0
        ORDER BY edge.used_at DESC LIMIT %s
    ) AS written
) AS amounts
WHERE amounts.runs IS NOT NULL
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
