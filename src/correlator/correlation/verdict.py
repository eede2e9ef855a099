"""Whether a dataset is safe to read: by its tests, by those of what it was made of, and by who writes it."""

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
import psycopg
from msgspec import Meta

from correlator.correlation.called import DatasetName, names_of
from correlator.correlation.history import History, Use, Version
from correlator.correlation.ids import NOBODY, Id, uuid_of
from correlator.correlation.reds import reds
from correlator.correlation.walk import walk
from correlator.rulebook.identity import dataset_key
from correlator.store.ledger import facts_as_of

Safety: TypeAlias = Literal["safe", "unsafe", "unknown"]

_WARNING: Final = "warn"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    urn: str
    verdict: Safety
    reason: str
    facts_as_of: datetime
    written_at: Annotated[datetime | None, Meta(description="When its last version was written.")] = None
    tested_at: Annotated[datetime | None, Meta(description="When one of its tests passed last.")] = None
    incidents: Annotated[list[UUID], Meta(description="Why it is not safe.")] = []


def verdict(connection: psycopg.Connection[Any], urn: str, max_lag: float) -> Verdict:
    """`max_lag`: so many seconds may the facts be behind, and no more."""
    as_of = facts_as_of(connection)
    now = datetime.now(UTC)
    behind = (now - as_of).total_seconds()
    if behind > max_lag:
        reason = (
            f"The pipeline is {behind:,.0f} s behind, more than the {max_lag:,.0f} s that are allowed "
            "(verdict_max_lag): what has happened since is not known."
        )
        return Verdict(urn=urn, verdict="unknown", reason=reason, facts_as_of=as_of)
    history = History(connection)
    dataset = Id(dataset_key(urn))
    of_class = history.classes([dataset])[dataset]
    named = names_of(history, [of_class]).get(of_class)
    if named is None:
        return Verdict(urn=urn, verdict="unknown", reason="No event has named this dataset.", facts_as_of=as_of)
    return _judged(history, of_class, named, as_of, now)


def _judged(history: History, dataset: Id, named: DatasetName, as_of: datetime, now: datetime) -> Verdict:
    names = history.members([dataset])[dataset]
    version = history.bind([Use(NOBODY, dataset, now)])[0]
    passed_at, tests, failing = _tests(history, names)

    def told(safety: Safety, reason: str, *incidents: Id) -> Verdict:
        return Verdict(
            urn=named.urn,
            verdict=safety,
            reason=reason,
            facts_as_of=as_of,
            written_at=None if version is None else version.at,
            tested_at=passed_at,
            incidents=[uuid_of(id_) for id_ in incidents],
        )

    grave = [(id_, words) for id_, words, severity in failing if severity.lower() != _WARNING]
    if grave:
        more = f", and {len(grave) - 1} more" if len(grave) > 1 else ""
        return told("unsafe", f"{grave[0][1]}{more}.", *(id_ for id_, _ in grave))
    broken = history.rows(_BROKEN_WRITERS, names)
    if broken:
        incident, name, at = broken[0]
        stands = "nothing of it stands" if version is None else f"what stands is of {_time(version.at)}"
        return told("unsafe", f"{name}, which writes it, failed at {_time(at)}; {stands}.", incident)
    if version is not None:
        why = _made_of_red(history, version)
        if why is not None:
            return told("unsafe", *why)
    if passed_at is None:
        known = "no test has looked at it" if version is not None else "nobody is known to write or to test it"
        return told("unknown", f"Nothing speaks against it, but {known}.")
    warned = f"; {len(failing)} warn" if failing else ""
    untested = ""
    if version is not None and version.at > passed_at:
        untested = f"; since then it was written again, at {_time(version.at)}"
    of = "its only test passed" if tests == 1 else f"none of its {tests} tests fails, the last passed"
    return told("safe", f"{of[0].upper()}{of[1:]} at {_time(passed_at)}{untested}{warned}.")


def _tests(history: History, names: list[Id]) -> tuple[datetime | None, int, list[tuple[Id, str, str]]]:
    """When one passed last, how many there are, and those that fail now."""
    ((passed_at, tests),) = history.rows(_PASSED, names)
    failing = [
        (id_, f"{name}{f' of column {column}' if column else ''} fails since {_time(opened_at)}", severity)
        for id_, name, column, opened_at, severity in history.rows(_FAILING, names)
    ]
    return passed_at, tests, failing


def _made_of_red(history: History, version: Version) -> tuple[str, Id] | None:
    """Whether anything that went into a version has failed a test, even if it is well by now."""
    (trace,) = walk(history, [(version, None)])
    by_key = {one.key: one for versions in trace.written.values() for one in versions}
    found = [
        (trace.distances[key[1]], red)
        for key, of_version in reds(history, by_key.values()).items()
        for red in of_version
        if red.severity.lower() != _WARNING
    ]
    if not found:
        return None
    _, red = min(found, key=lambda one: (one[0], one[1].opened_at, one[1].incident))
    above = names_of(history, [red.version[0]]).get(red.version[0])
    name = "it" if above is None else above.name
    tests = {id_: test for id_, test, *_ in history.rows(_TESTS, [red.incident])}
    what = "It" if red.version[0] == version.dataset else f"It was made of {name} as of {_time(red.version[2])}, which"
    return f"{what} failed the test {tests.get(red.incident, 'of an incident')}.", red.incident


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


# The last pass of each test: the end of one range.
_PASSED: Final = """
SELECT max(passed.event_time), count(*)
FROM {s}.data_tests AS test
LEFT JOIN LATERAL (
    SELECT event_time FROM (
        (SELECT event_time FROM {s}.test_results WHERE test_id = test.id AND status = 'pass'
         ORDER BY event_time DESC, job_run_id DESC LIMIT 1)
        UNION ALL
        (SELECT event_time FROM {s}.implied_results WHERE test_id = test.id AND status = 'pass'
         ORDER BY event_time DESC, job_run_id DESC LIMIT 1)
    ) AS either ORDER BY 1 DESC LIMIT 1
) AS passed ON true
WHERE test.dataset_id = ANY (%s::uuid[])
"""
_FAILING: Final = """
SELECT incident.id, test.test_name, test.column_name, incident.opened_at, incident.severity
FROM {s}.incidents AS incident JOIN {s}.data_tests AS test ON test.id = incident.test_id
WHERE incident.dataset_id = ANY (%s::uuid[]) AND incident.kind = 'test' AND incident.resolved_at IS NULL
ORDER BY incident.opened_at, incident.id
"""
_BROKEN_WRITERS: Final = """
SELECT DISTINCT incident.id, job.job_name, incident.opened_at
FROM {s}.dataset_jobs AS written
JOIN {s}.incidents AS incident ON incident.job_id = written.job_id AND incident.resolved_at IS NULL
JOIN {s}.lineage_edges AS attempt
    ON attempt.job_run_id = incident.job_run_id AND attempt.dataset_id = written.dataset_id
    AND attempt.edge_type = 'output'
JOIN {s}.jobs AS job ON job.id = written.job_id
WHERE written.dataset_id = ANY (%s::uuid[]) AND written.edge_type = 'output'
ORDER BY incident.opened_at, incident.id
"""
_TESTS: Final = """
SELECT incident.id, test.test_name
FROM {s}.incidents AS incident JOIN {s}.data_tests AS test ON test.id = incident.test_id
WHERE incident.id = ANY (%s::uuid[])
"""
