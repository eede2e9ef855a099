"""Which incidents are consequences of others: each of those belongs to the topmost one that explains it.

What counts is the way that the data took. A test that failed on a version that went into what failed here; a job on
that way whose run had failed and was not made up for; a red test in the same parent run, after which a run was called
off. And only what has come up since all was well: an old trouble that did no harm before is no cause now.

What goes on failing when its root is over is looked at once more, as it is now: it may be a trouble of its own, which
nobody else would be told of.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import psycopg

from correlator.correlation.failing import failed_versions, last_failed_versions
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
    resolved_at: datetime | None
    distance: int
    job: Id | None = None
    """Whose run had failed, if that is it."""

    @property
    def rank(self) -> tuple[int, datetime, Id]:
        """The farthest goes first, then the oldest."""
        return -self.distance, self.opened_at, self.incident


class _Look(msgspec.Struct, frozen=True):
    """At a failure of an incident, and what had gone into what failed."""

    incident: Incident
    at: datetime
    trace: Trace
    well: Version | None
    """The last version that had passed."""

    def is_new(self, above: "_Above") -> bool:
        """Whether that has come up since."""
        return self.well is None or above.opened_at > self.well.at


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
    looks = _first_looks(history, incidents)
    called_off = _called_off(history, incidents)
    found = {one.id: {above.incident: above for above in called_off.get(one.id, ())} for one in incidents}
    for id_, above in _all_above(history, looks).items():
        found[id_] |= above
    lasting = [one for one in incidents if any(_is_over(above, one.last_failed_at) for above in found[one.id].values())]
    found |= _still_above(history, lasting, found, {look.incident.id: look.well for look in looks})
    return {
        id_: min(above.values(), key=lambda one: one.rank).incident if above else None for id_, above in found.items()
    }


def _is_over(above: _Above, by: datetime) -> bool:
    return above.resolved_at is not None and above.resolved_at <= by


def _first_looks(history: History, incidents: Sequence[Incident]) -> list[_Look]:
    """At the version that each failed on first."""
    failures = failures_of(history, incidents)
    sides = [(id_, side) for id_, failure in failures.items() for side in (failure.bad, failure.good)]
    bound = iter(history.bind([side for _, side in sides if isinstance(side, Use)]))
    versions = [next(bound) if isinstance(side, Use) else side for _, side in sides]
    pairs = dict(zip(failures, zip(versions[::2], versions[1::2], strict=True), strict=True))
    starts = [
        (one, one.opened_at, bad, good)
        for one in incidents
        for bad, good in [pairs.get(one.id, (None, None))]
        if bad is not None
    ]
    return _looks(history, starts)


def _looks(history: History, starts: Sequence[tuple[Incident, datetime, Version, Version | None]]) -> list[_Look]:
    traces = walk(history, [(version, None) for _, _, version, _ in starts], _UP) if starts else ()
    return [_Look(one, at, trace, well) for (one, at, _, well), trace in zip(starts, traces, strict=True)]


def _still_above(
    history: History,
    incidents: Sequence[Incident],
    before: Mapping[Id, Mapping[Id, _Above]],
    well: Mapping[Id, Version | None],
) -> dict[Id, dict[Id, _Above]]:
    """Of those that failed again when a reason of theirs was over: what is the reason now.

    One that is over still is, if what it was about has gone into the last version that failed.
    """
    last = last_failed_versions(history, incidents)
    starts = [(one, one.last_failed_at, last[one.id], well.get(one.id)) for one in incidents if one.id in last]
    looks = _looks(history, starts)
    now = _all_above(history, looks)
    red = _red(history, looks)
    found = {}
    for one in incidents:
        lasting = {id_: above for id_, above in before[one.id].items() if not _is_over(above, one.last_failed_at)}
        found[one.id] = lasting | now.get(one.id, {})
    for look in looks:
        over = [above for above in before[look.incident.id].values() if above.incident not in found[look.incident.id]]
        seen = {one.incident for run in look.trace.written.values() for one in _of(red, run)}
        for above in over:
            if above.incident in seen or _is_as_old(history, look.trace, above):
                found[look.incident.id][above.incident] = above
    return found


def _is_as_old(history: History, trace: Trace, above: _Above) -> bool:
    """Whether nothing that a failed job has done since went into it."""
    ends = [run.last_moment for run in history.runs(trace.distances).values() if run.job_id == above.job]
    return bool(ends) and above.resolved_at is not None and max(ends) < above.resolved_at


def _all_above(history: History, looks: Sequence[_Look]) -> dict[Id, dict[Id, _Above]]:
    red = _red(history, looks)
    failed_jobs = _failed_jobs(history, looks)
    found: dict[Id, dict[Id, _Above]] = {}
    for look in looks:
        above = {one.incident: one for one in _red_above(look, red)}
        above |= {one.incident: one for one in _failed_above(history, look, failed_jobs)}
        above.pop(look.incident.id, None)
        found[look.incident.id] = above
    return found


def _red(history: History, looks: Sequence[_Look]) -> dict[Key, list[Red]]:
    return reds(history, [one for look in looks for written in look.trace.written.values() for one in written])


def _of(red: Mapping[Key, Sequence[Red]], versions: Iterable[Version]) -> Iterator[Red]:
    for version in versions:
        yield from red.get(version.key, ())


def _red_above(look: _Look, red: Mapping[Key, Sequence[Red]]) -> Iterator[_Above]:
    for run, written in look.trace.written.items():
        distance = look.trace.distances[run]
        for found in _of(red, written) if distance > 0 else ():
            above = _Above(found.incident, found.opened_at, found.resolved_at, distance)
            if look.is_new(above) and not _is_over(above, look.at):
                yield above


def _failed_jobs(history: History, looks: Sequence[_Look]) -> dict[Id, list[Incident]]:
    """The incidents of the jobs along all ways that had begun by the last of these."""
    if not looks:
        return {}
    runs = history.runs(run for look in looks for run in look.trace.distances)
    jobs = list({run.job_id for run in runs.values()})
    until, since = max(look.at for look in looks), min(look.at for look in looks)
    found: dict[Id, list[Incident]] = {}
    for row in history.rows(_OF_JOBS, jobs, until, since) if jobs else ():
        incident = Incident(*row)
        found.setdefault(incident.subject_id, []).append(incident)
    return found


def _failed_above(history: History, look: _Look, failed_jobs: Mapping[Id, Sequence[Incident]]) -> Iterator[_Above]:
    one = look.incident
    for run_id, run in history.runs(look.trace.distances).items():
        for other in failed_jobs.get(run.job_id, ()):
            if other.subject_id == one.subject_id or other.job_run_id == one.job_run_id:
                continue
            is_before = (other.opened_at, other.id) < (look.at, one.id)
            distance = look.trace.distances[run_id]
            above = _Above(other.id, other.opened_at, other.resolved_at, distance, job=run.job_id)
            if is_before and look.is_new(above) and not _is_over(above, look.at):
                yield above


def _called_off(history: History, incidents: Sequence[Incident]) -> dict[Id, list[_Above]]:
    """Runs that were called off after a red test in the same parent run, or failed with their own test."""
    ids = [one.id for one in incidents if one.kind == "run"]
    found: dict[Id, list[_Above]] = {}
    for id_, other, opened_at, resolved_at in history.rows(_CALLED_OFF, ids) if ids else ():
        found.setdefault(id_, []).append(_Above(other, opened_at, resolved_at, 0))
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

# What began by then, and what had begun before and has failed since: a short range of an index for each dataset.
_ON_DATASETS: Final = """
SELECT found.id
FROM unnest(%s::uuid[]) AS asked (dataset_id)
CROSS JOIN (SELECT %s::timestamptz - interval '1 day' AS at) AS since
CROSS JOIN LATERAL (
    SELECT id, opened_at FROM {s}.incidents WHERE dataset_id = asked.dataset_id AND opened_at >= since.at
    UNION ALL
    SELECT id, opened_at FROM {s}.incidents
    WHERE dataset_id = asked.dataset_id AND last_failed_at > opened_at AND last_failed_at >= since.at
      AND opened_at < since.at
) AS found
ORDER BY found.opened_at, found.id LIMIT %s
"""

_OF_JOBS: Final = """
SELECT id, kind, job_id, root_id, dataset_id, job_run_id, opened_at, last_failed_at, resolved_at, resolved_by, severity,
       failures
FROM {s}.incidents
WHERE job_id = ANY (%s::uuid[]) AND opened_at <= %s AND (resolved_at IS NULL OR resolved_at > %s)
"""

# The tests that failed in the same parent run until then, and those of the run itself.
_CALLED_OFF: Final = """
SELECT incident.id, other.id, other.opened_at, other.resolved_at
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
