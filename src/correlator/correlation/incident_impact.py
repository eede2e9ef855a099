"""Who is hurt by an incident: who read what failed in it, and who would read it next."""

from datetime import datetime
from typing import Final

from correlator.correlation.causes import Explanation
from correlator.correlation.failing import failed_versions, passed_versions
from correlator.correlation.history import History
from correlator.correlation.ids import Id
from correlator.correlation.impact import LIMITS, Bad, Impact, Risk, at_risk, impact, standing
from correlator.correlation.incidents import Incident
from correlator.correlation.questions import question
from correlator.correlation.walk import Limits


def impact_of(
    history: History, incident: Incident, explanation: Explanation | None, limits: Limits = LIMITS
) -> tuple[Impact, list[Risk]]:
    """Who read what failed, and who would read it next."""
    failed = failed_versions(history, [incident])[incident.id]
    passed = passed_versions(history, [incident]).get(incident.id)
    columns = _columns(history, incident)
    harmless_until = _harmless_until(history, incident, explanation)
    bad: dict[tuple[Id, Id], Bad] = {}
    for one in failed:
        version = one.version
        until = passed.at if passed is not None and passed.run == version.run else None
        first = None if explanation is None else explanation.bad.start
        is_first = first is not None and version.key == first.key
        key = version.dataset, version.run
        bad.setdefault(key, Bad(*key, version.at, until, columns, harmless_until=harmless_until if is_first else None))
    well = {} if passed is None else {passed.dataset: passed.at}
    found = impact(history, list(bad.values()), well, limits)
    ahead = standing(history, [*bad.values(), *found.affected])
    if incident.resolved_at is None:
        # Nobody knows of another version, or there is none: what was to be written is not there.
        if incident.kind == "run":
            ahead |= {out.dataset for out in history.outputs([incident.job_run_id])[incident.job_run_id]}
        elif incident.dataset_id is not None and not bad:
            ahead |= set(history.classes([incident.dataset_id]).values())
    hit = {one.dataset for one in (*bad.values(), *found.affected)}
    risks = [risk for risk in at_risk(history, ahead, limits) if risk.dataset not in hit] if ahead else []
    found.is_cut = found.is_cut or len(risks) >= limits.runs
    return found, risks


def _harmless_until(history: History, incident: Incident, explanation: Explanation | None) -> datetime | None:
    """When the last good result was, if what it read is the version that failed then."""
    if incident.kind != "test" or explanation is None or explanation.bad.start is None:
        return None
    if explanation.good.start is None or explanation.good.start.key != explanation.bad.start.key:
        return None
    rows = history.rows(_PASSED_BEFORE, incident.subject_id, incident.opened_at)
    return rows[0][0] if rows else None


def _columns(history: History, incident: Incident) -> frozenset[str] | None:
    if incident.kind != "test":
        return None
    rows = history.rows("SELECT test_name, column_name FROM {s}.data_tests WHERE id = %s", incident.subject_id)
    return question(*rows[0]).columns if rows else None


_PASSED_BEFORE: Final = """
SELECT run.started_at FROM (
    SELECT event_time, job_run_id FROM {s}.standing_results
    WHERE test_id = %s AND status = 'pass' AND event_time <= %s ORDER BY event_time DESC, job_run_id DESC LIMIT 1
) AS said JOIN {s}.job_runs AS run ON run.id = said.job_run_id
"""
