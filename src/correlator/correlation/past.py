"""What jobs did before: their last runs, how much they wrote, and what their code and set-up was."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

import msgspec

from correlator.correlation.history import History
from correlator.correlation.usual import MANY, Cadence, Sample, cadence

RUNS: Final = 60
"""So many of a job's last runs say what is usual,"""
MOST_RUNS: Final = 200
"""and up to so many of its last eight days: a job that runs every hour may have been wrong for a day."""


_LATELY: Final = timedelta(days=8)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)


class PastRun(msgspec.Struct, frozen=True, gc=False):
    id: UUID
    state: str
    started_at: datetime
    ended_at: datetime
    parent: UUID | None
    nominal_time: datetime | None


class JobPast(msgspec.Struct):
    runs: list[PastRun] = msgspec.field(default_factory=list)
    """The latest first."""
    written: dict[UUID, list[tuple[PastRun, int | None, int | None]]] = msgspec.field(default_factory=dict)
    """Rows and bytes of what they wrote, by the class of the dataset."""
    _samples: dict[tuple[str, UUID], list[Sample]] = msgspec.field(default_factory=dict)
    """Once asked for: in order of time."""
    _rhythms: dict[datetime, Cadence | None] = msgspec.field(default_factory=dict)
    _good: list[PastRun] | None = None
    _ended_well: list[datetime] | None = None

    @property
    def good(self) -> list[PastRun]:
        if self._good is None:
            self._good = [run for run in self.runs if run.state == "COMPLETE"]
        return self._good

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

    def failed_between(self, since: datetime, until: datetime) -> list[PastRun]:
        """Runs that failed and were not tried again with success: under the same parent, or soon."""
        found = []
        ends = self.ended_well()
        gaps = sorted(other - one for one, other in pairwise(ends))
        soon = gaps[len(gaps) // 2] / 2 if gaps else timedelta(minutes=30)
        for run in self.runs:
            if run.state not in ("FAIL", "ABORT") or not since < run.ended_at <= until:
                continue
            # Of several tries the last one counts.
            if not any(
                (run.parent is not None and other.parent == run.parent)
                or (other.state == "COMPLETE" and other.started_at - run.ended_at < soon)
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
        gaps = sorted(other - one for one, other in pairwise(ends))
        return gaps[len(gaps) // 2] if gaps else None

    def rows_before(self, dataset: UUID, moment: datetime, well: datetime | None = None) -> list[Sample]:
        """Of its good runs, the latest first; up to `well` if these are enough: what came then may be the trouble."""
        return self._before("rows", dataset, moment, well)

    def bytes_before(self, dataset: UUID, moment: datetime, well: datetime | None = None) -> list[Sample]:
        return self._before("bytes", dataset, moment, well)

    def durations_before(self, moment: datetime) -> list[Sample]:
        return self._before("seconds", _ALL, moment, None)

    def _before(self, what: str, dataset: UUID, moment: datetime, well: datetime | None) -> list[Sample]:
        known = self._samples.get((what, dataset))
        if known is None:
            known = self._samples[what, dataset] = sorted(self._all(what, dataset), key=_at)
        number = bisect_left(known, moment, key=_at)
        up_to_well = number if well is None else min(number, bisect_right(known, well, key=_at))
        return known[: up_to_well if up_to_well >= MANY else number][::-1]

    def _all(self, what: str, dataset: UUID) -> Iterator[Sample]:
        if what == "seconds":
            for run in self.good:
                yield Sample.of(run.ended_at, (run.ended_at - run.started_at).total_seconds())
            return
        for run, rows, size in self.written.get(dataset, ()):
            amount = rows if what == "rows" else size
            if amount is not None and run.state == "COMPLETE":
                yield Sample.of(run.ended_at, float(amount))


_ALL: Final = UUID(int=0)
_at: Final = attrgetter("at")


def pasts(history: History, jobs: Iterable[UUID], until: datetime, number: int = RUNS) -> dict[UUID, JobPast]:
    """Of each job what it did up to a moment."""
    wanted = list(dict.fromkeys(jobs))
    found = {job: JobPast() for job in wanted}
    lately = until - _LATELY if until - _FIRST > _LATELY else until
    rows = history.rows(_PAST, lately, MOST_RUNS, until, number, wanted)
    classes = history.classes({row[7] for row in rows if row[7] is not None})
    in_order = list(found.values())
    run: PastRun | None = None
    # There are thousands, and nearly always a job writes what its run before has written.
    written: tuple[int, UUID | None, list[tuple[PastRun, int | None, int | None]]] = (0, None, [])
    for place, id_, state, started_at, ended_at, parent, nominal_time, dataset, row_count, byte_size in rows:
        if run is None or id_ != run.id:
            run = PastRun(id_, state, started_at, ended_at, parent, nominal_time)
            in_order[place - 1].runs.append(run)
        if dataset is None:
            continue
        if place != written[0] or dataset != written[1]:
            of_job = in_order[place - 1].written
            written = (place, dataset, of_job.setdefault(classes[dataset], []))
        written[2].append((run, row_count, byte_size))
    return found


def run_facets(history: History, runs: Iterable[UUID]) -> dict[UUID, dict[str, Any]]:
    """How runs were set up."""
    wanted = list(dict.fromkeys(runs))
    return dict(history.rows(_FACETS, list(_HEAVY), wanted))


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


_HEAVY: Final = ("spark.logicalPlan", "spark_unknown", "debug", "gcp_dataproc_spark", "spark_jobDetails")
"""What no comparison has use for, and can be megabytes."""

# Of each job the end of one index range, and for each run a probe of what it wrote. How many it takes to reach as far
# back as that, the index alone tells.
_PAST: Final = """
SELECT job.place, ended.*, written.dataset_id, written.row_count, written.byte_size
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
    SELECT run.id, run.current_state, run.started_at, run.ended_at, run.parent_job_run_id, run.nominal_time
    FROM {s}.job_runs AS run
    WHERE run.job_id = job.id AND run.ended_at <= job.until
    ORDER BY run.ended_at DESC, run.id DESC LIMIT job.most
) AS ended
-- Said so that it is no part of the probe: it stands last in the key, and looks dear to the planner.
LEFT JOIN {s}.lineage_edges AS written ON written.job_run_id = ended.id AND written.edge_type <> 'input'
    AND num_nonnulls(written.row_count, written.byte_size) > 0
ORDER BY job.place, ended.ended_at DESC, ended.id DESC
"""

_FACETS: Final = "SELECT id, facets - %s::text[] FROM {s}.job_runs WHERE id = ANY (%s::uuid[])"

_AT: Final = """
SELECT asked.number, key, said.body_digest
FROM unnest(%s::uuid[], %s::timestamptz[]) WITH ORDINALITY AS asked (entity_id, at, number)
CROSS JOIN unnest(%s::text[]) AS key
CROSS JOIN LATERAL (
    SELECT body_digest FROM {s}.facet_history AS said
    WHERE said.entity_id = asked.entity_id AND said.entity_kind = %s AND said.facet_key = key
      AND said.event_time <= asked.at
    ORDER BY said.event_time DESC, said.job_run_id DESC LIMIT 1
) AS said
WHERE said.body_digest IS NOT NULL
"""
