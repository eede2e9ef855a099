"""Which incidents are consequences of others: each of those belongs to the topmost one that explains it.

What counts is the way that the data took. A test that failed on a version that went into what failed here; a job on
that way whose run had failed and was not made up for; a red test in the same parent run, after which a run was called
off. And only what has come up since all was well: an old trouble that did no harm before is no cause now.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import psycopg

from correlator.correlation.failing import failed_versions
from correlator.correlation.history import History, Use, Version
from correlator.correlation.ids import Id, id_of, uuid_of
from correlator.correlation.impact import Bad, impact
from correlator.correlation.incidents import Incident, failures_of, incidents_of
from correlator.correlation.reds import Key, Red, reds
from correlator.correlation.walk import Limits, Trace, walk
from correlator.store.incidents import Changed

_log = logging.getLogger(__name__)

MOST: Final = 1_000
"""Incidents that one batch looks at again. Beyond, roots of the others are those that were known before."""
_AT_ONCE: Final = 200
_UP: Final = Limits(depth=20, runs=200)
_DOWN: Final = Limits(depth=20, runs=300)


class _Above(msgspec.Struct, frozen=True):
    """An incident that may be the reason for another."""

    incident: Id
    opened_at: datetime
    distance: int

    @property
    def rank(self) -> tuple[int, datetime, Id]:
        """The farthest goes first, then the oldest."""
        return -self.distance, self.opened_at, self.incident


def attach(
    connection: psycopg.Connection[Any],
    changed: Changed,
    concerned: Iterable[Id] = (),
    schema: str = "facts",
    most: int = MOST,
) -> None:
    """Within the transaction that changed them. `concerned` are those that what was merged may concern as well."""
    history = History(connection, schema)
    ids = [*map(id_of, changed.incidents), *map(id_of, changed.orphaned), *concerned]
    if not ids:
        return
    around = _around(history, changed, ids, most)
    if len(around) > most:
        _log.warning(
            "A batch concerns more than %d incidents; the roots of the others are those that were known before. "
            "regrouped_incidents sets how many are looked at again.",
            most,
        )
    found = list(incidents_of(history, around[:most]).values())
    found.sort(key=lambda one: (one.opened_at, one.id))
    _put(history, found, _parents(history, found))


def unresolved(connection: psycopg.Connection[Any], schema: str = "facts", most: int = MOST) -> list[Id]:
    """The last ones that are not over: those that matter when a dataset turns out to have another name."""
    rows = History(connection, schema).rows(_UNRESOLVED, most)
    return [id_ for (id_,) in rows]


def attach_all(connection: psycopg.Connection[Any], schema: str = "facts") -> None:
    """Every incident, within the caller's transaction: after a replay, or when names mean something else now."""
    history = History(connection, schema)
    everything: list[Incident] = []
    parents: dict[Id, Id | None] = {}
    for ids in _chunks([id_ for (id_,) in history.rows("SELECT id FROM {s}.incidents ORDER BY opened_at, id")]):
        # What one part has fetched is of little use to the next, and would pile up.
        part_history = History(connection, schema)
        part = list(incidents_of(part_history, ids).values())
        parents |= _parents(part_history, part)
        everything += part
    _put(history, everything, parents)


def _chunks(ids: Sequence[Id]) -> Iterator[Sequence[Id]]:
    for start in range(0, len(ids), _AT_ONCE):
        yield ids[start : start + _AT_ONCE]


def _around(history: History, changed: Changed, ids: Sequence[Id], most: int) -> list[Id]:
    """With those that may be consequences of what has changed: its children so far, and who lies downstream of it."""
    wanted = dict.fromkeys(ids)
    for (child,) in history.rows("SELECT id FROM {s}.incidents WHERE root_id = ANY (%s::uuid[])", list(wanted)):
        wanted[child] = None
    new = list(incidents_of(history, [id_of(id_) for id_ in changed.incidents[:most]]).values())
    bad = {}
    for failed in failed_versions(history, [one for one in new if one.kind == "test"], most=5).values():
        for one in failed:
            bad[one.version.dataset, one.version.run] = Bad(one.version.dataset, one.version.run, one.version.at)
    if bad:
        hit = impact(history, list(bad.values()), limits=_DOWN).affected
        members = history.members({one.dataset for one in hit})
        names = [name for of_class in members.values() for name in of_class]
        since = min(one.opened_at for one in new)
        for (below,) in history.rows(_ON_DATASETS, names, since, most):
            wanted[below] = None
    return list(wanted)


def _parents(history: History, incidents: Sequence[Incident]) -> dict[Id, Id | None]:
    """The reason for each, if there is one."""
    starts, well_at = _starts(history, incidents)
    traces = dict(
        zip(starts, walk(history, [(version, None) for version in starts.values()], _UP), strict=True) if starts else ()
    )
    versions = {v.key: v for trace in traces.values() for written in trace.written.values() for v in written}
    red = reds(history, versions.values())
    failed_jobs = _failed_jobs(history, traces, incidents)
    called_off = _called_off(history, incidents)
    found: dict[Id, Id | None] = {}
    for one in incidents:
        trace = traces.get(one.id)
        above = {a.incident: a for a in called_off.get(one.id, ())}
        if trace is not None:
            since = well_at.get(one.id)
            above |= {a.incident: a for a in _red_above(one, trace, red, since)}
            above |= {a.incident: a for a in _failed_above(history, one, trace, failed_jobs, since)}
        above.pop(one.id, None)
        found[one.id] = min(above.values(), key=lambda a: a.rank).incident if above else None
    return found


def _starts(history: History, incidents: Sequence[Incident]) -> tuple[dict[Id, Version], dict[Id, datetime]]:
    """The version that each failed on first, and when the last good one before was written."""
    failures = failures_of(history, incidents)
    sides = [(id_, side) for id_, failure in failures.items() for side in (failure.bad, failure.good)]
    bound = iter(history.bind([side for _, side in sides if isinstance(side, Use)]))
    versions = [next(bound) if isinstance(side, Use) else side for _, side in sides]
    starts: dict[Id, Version] = {}
    well_at: dict[Id, datetime] = {}
    for number, id_ in enumerate(failures):
        bad, good = versions[2 * number], versions[2 * number + 1]
        if bad is not None:
            starts[id_] = bad
        if good is not None:
            well_at[id_] = good.at
    return starts, well_at


def _red_above(
    one: Incident, trace: Trace, red: Mapping[Key, Sequence[Red]], since: datetime | None
) -> Iterator[_Above]:
    for run, written in trace.written.items():
        distance = trace.distances[run]
        for version in written if distance > 0 else ():
            for found in red.get(version.key, ()):
                is_open = found.resolved_at is None or found.resolved_at > one.opened_at
                if is_open and (since is None or found.opened_at > since):
                    yield _Above(found.incident, found.opened_at, distance)


def _failed_jobs(
    history: History, traces: Mapping[Id, Trace], incidents: Sequence[Incident]
) -> dict[Id, list[Incident]]:
    """The incidents of the jobs along all ways that had begun by the last of these."""
    runs = history.runs(run for trace in traces.values() for run in trace.distances)
    jobs = list({run.job_id for run in runs.values()})
    until = max((one.opened_at for one in incidents), default=None)
    since = min((one.opened_at for one in incidents), default=None)
    found: dict[Id, list[Incident]] = {}
    for row in history.rows(_OF_JOBS, jobs, until, since) if jobs else ():
        incident = Incident(*row)
        found.setdefault(incident.subject_id, []).append(incident)
    return found


def _failed_above(
    history: History,
    one: Incident,
    trace: Trace,
    failed_jobs: Mapping[Id, Sequence[Incident]],
    since: datetime | None,
) -> Iterator[_Above]:
    for run_id, run in history.runs(trace.distances).items():
        distance = trace.distances[run_id]
        for other in failed_jobs.get(run.job_id, ()):
            if other.subject_id == one.subject_id or other.job_run_id == one.job_run_id:
                continue
            is_before = (other.opened_at, other.id) < (one.opened_at, one.id)
            is_open = other.resolved_at is None or other.resolved_at > one.opened_at
            if is_before and is_open and (since is None or other.opened_at > since):
                yield _Above(other.id, other.opened_at, distance)


def _called_off(history: History, incidents: Sequence[Incident]) -> dict[Id, list[_Above]]:
    """Runs that were called off after a red test in the same parent run, or failed with their own test."""
    ids = [one.id for one in incidents if one.kind == "run"]
    found: dict[Id, list[_Above]] = {}
    for id_, other, opened_at in history.rows(_CALLED_OFF, ids) if ids else ():
        found.setdefault(id_, []).append(_Above(other, opened_at, 0))
    return found


def _put(history: History, incidents: Sequence[Incident], parents: Mapping[Id, Id | None]) -> None:
    """Each under the topmost, without detours."""
    outside = {parent for parent in parents.values() if parent is not None and parent not in parents}
    known: dict[Id, Id | None] = dict(
        history.rows("SELECT id, root_id FROM {s}.incidents WHERE id = ANY (%s::uuid[])", list(outside))
    )
    opened = {one.id: one.opened_at for one in incidents}
    roots = {one.id: _topmost(one.id, {**known, **parents}, opened) for one in incidents}
    changed = [(one.id, roots[one.id]) for one in incidents if one.root_id != roots[one.id]]
    if changed:
        history.connection.execute(
            _SET.replace("{s}", history.schema).encode(),
            [[uuid_of(id_) for id_, _ in changed], [None if root is None else uuid_of(root) for _, root in changed]],
        )
    # Whoever stood under one that has a root now stands under that.
    history.connection.execute(
        _FLATTEN.replace("{s}", history.schema).encode(), [[uuid_of(one.id) for one in incidents]]
    )


def _topmost(id_: Id, parents: Mapping[Id, Id | None], opened: Mapping[Id, datetime]) -> Id | None:
    way = [id_]
    while (parent := parents.get(way[-1])) is not None:
        if parent in way:
            # They name each other: the first of them is the root of all.
            first = min(way[way.index(parent) :], key=lambda one: (opened.get(one) is None, opened.get(one), one))
            return None if first == id_ else first
        way.append(parent)
    return way[-1] if len(way) > 1 else None


_UNRESOLVED: Final = "SELECT id FROM {s}.incidents WHERE resolved_at IS NULL ORDER BY opened_at DESC LIMIT %s"

_ON_DATASETS: Final = """
SELECT id FROM {s}.incidents
WHERE dataset_id = ANY (%s::uuid[]) AND opened_at >= %s::timestamptz - interval '1 day' ORDER BY opened_at, id LIMIT %s
"""

_OF_JOBS: Final = """
SELECT id, kind, job_id, root_id, dataset_id, job_run_id, opened_at, last_failed_at, resolved_at, resolved_by, severity,
       failures
FROM {s}.incidents
WHERE job_id = ANY (%s::uuid[]) AND opened_at <= %s AND (resolved_at IS NULL OR resolved_at > %s)
"""

# The tests that failed in the same parent run until then, and those of the run itself.
_CALLED_OFF: Final = """
SELECT incident.id, other.id, other.opened_at
FROM {s}.incidents AS incident
JOIN {s}.job_runs AS run ON run.id = incident.job_run_id
CROSS JOIN LATERAL (
    SELECT sibling.id FROM {s}.job_runs AS sibling
    WHERE run.current_state = 'ABORT' AND sibling.parent_job_run_id = run.parent_job_run_id
    UNION
    SELECT run.id
) AS kin
JOIN {s}.failures AS failure ON failure.job_run_id = kin.id AND failure.at <= incident.last_failed_at
JOIN {s}.incidents AS other ON other.id = failure.incident_id AND other.kind = 'test'
WHERE incident.id = ANY (%s::uuid[]) AND (failure.at <= incident.opened_at OR kin.id = run.id)
"""

_SET: Final = """
UPDATE {s}.incidents AS incident SET root_id = said.root_id
FROM unnest(%s::uuid[], %s::uuid[]) AS said (id, root_id)
WHERE incident.id = said.id AND incident.root_id IS DISTINCT FROM said.root_id
"""
_FLATTEN: Final = """
UPDATE {s}.incidents AS child SET root_id = above.root_id
FROM {s}.incidents AS above
WHERE child.root_id = above.id AND above.id = ANY (%s::uuid[]) AND above.root_id IS NOT NULL
  AND above.root_id <> child.id
"""
