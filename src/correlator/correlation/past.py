"""What jobs did before: their last runs, how much they wrote, and what their code and set-up was."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import msgspec

from correlator.correlation.history import History
from correlator.correlation.usual import MANY, Sample

RUNS: Final = 60
"""So many of a job's last runs say what is usual,"""
MOST_RUNS: Final = 200
"""and up to so many of its last eight days: a job that runs every hour may have been wrong for a day."""


_LATELY: Final = timedelta(days=8)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)


class PastRun(msgspec.Struct, frozen=True):
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

    @property
    def good(self) -> list[PastRun]:
        return [run for run in self.runs if run.state == "COMPLETE"]

    def ended_well(self) -> list[datetime]:
        return sorted(run.ended_at for run in self.good)

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

    def interval(self, until: datetime) -> timedelta | None:
        """How long it usually takes from one good end to the next."""
        ends = [end for end in self.ended_well() if end <= until]
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
            known = self._samples[what, dataset] = sorted(self._all(what, dataset), key=lambda sample: sample.at)
        number = bisect_left(known, moment, key=lambda sample: sample.at)
        up_to_well = number if well is None else min(number, bisect_right(known, well, key=lambda sample: sample.at))
        return known[: up_to_well if up_to_well >= MANY else number][::-1]

    def _all(self, what: str, dataset: UUID) -> Iterator[Sample]:
        if what == "seconds":
            for run in self.good:
                yield Sample.of(run.ended_at, (run.ended_at - run.started_at).total_seconds())
        for run, rows, size in self.written.get(dataset, ()):
            amount = rows if what == "rows" else size
            if amount is not None and run.state == "COMPLETE":
                yield Sample.of(run.ended_at, float(amount))


_ALL: Final = UUID(int=0)


def pasts(history: History, jobs: Iterable[UUID], until: datetime, number: int = RUNS) -> dict[UUID, JobPast]:
    """Of each job what it did up to a moment."""
    wanted = list(dict.fromkeys(jobs))
    found = {job: JobPast() for job in wanted}
    runs: dict[UUID, tuple[UUID, PastRun]] = {}
    lately = until - _LATELY if until - _FIRST > _LATELY else until
    for job, *rest in history.rows(_PAST, wanted, until, number, until, lately, MOST_RUNS):
        run = PastRun(*rest)
        found[job].runs.append(run)
        runs[run.id] = (job, run)
    rows = history.rows(
        "SELECT job_run_id, dataset_id, row_count, byte_size FROM {s}.lineage_edges "
        "WHERE job_run_id = ANY (%s::uuid[]) AND edge_type = 'output' AND num_nonnulls(row_count, byte_size) > 0",
        list(runs),
    )
    classes = history.classes(row[1] for row in rows)
    for run_id, dataset, row_count, byte_size in rows:
        job, run = runs[run_id]
        found[job].written.setdefault(classes[dataset], []).append((run, row_count, byte_size))
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

_PAST: Final = """
SELECT asked.job_id, ended.* FROM unnest(%s::uuid[]) AS asked (job_id)
CROSS JOIN LATERAL (
    (SELECT run.id, run.current_state, run.started_at, run.ended_at, run.parent_job_run_id,
            run.nominal_time
     FROM {s}.job_runs AS run
     WHERE run.job_id = asked.job_id AND run.ended_at <= %s
     ORDER BY run.ended_at DESC, run.id DESC LIMIT %s)
    UNION
    (SELECT run.id, run.current_state, run.started_at, run.ended_at, run.parent_job_run_id,
            run.nominal_time
     FROM {s}.job_runs AS run
     WHERE run.job_id = asked.job_id AND run.ended_at <= %s AND run.ended_at > %s
     ORDER BY run.ended_at DESC, run.id DESC LIMIT %s)
) AS ended
ORDER BY asked.job_id, ended.ended_at DESC, ended.id DESC
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
