"""When it began: of the runs of a job since all was well, the first one that shows what the last one does."""

from collections.abc import Sequence
from typing import Final

from correlator.correlation.candidates import Candidate
from correlator.correlation.case import Case
from correlator.correlation.changes import CODE, code_changes, schema_change, setting_changes
from correlator.correlation.earlier import began
from correlator.correlation.findings import Findings
from correlator.correlation.judging import broken_columns
from correlator.correlation.odd_amounts import odd_between
from correlator.correlation.past import PastRun, facets_at, past_facets, run_facets


def move_to_onset(case: Case, found: Findings | None, candidate: Candidate) -> None:
    """Name that run instead of the one whose version was read."""
    run = candidate.run
    if run is None or found is None or found.baseline is None or not found.is_new:
        return
    before = found.baseline.ended_at
    between = [past for past in case.pasts[run.job_id].good if before < past.ended_at < run.last_moment]
    # What is repeated was no less so while the test passed.
    first = next((sign.first for sign in found.unchanged if sign.first is not None), None)
    if first is None and between:
        first = _first(case, found, found.baseline, sorted(between, key=lambda past: past.ended_at))
    if first is not None and first.id != run.id:
        candidate.run = case.run(first.id)
        ended = f"{run.last_moment:%H:%M}"
        candidate.reasons.append(
            f"the first of its runs that shows it; what was read is of the run that ended at {ended}"
        )


def _first(case: Case, found: Findings, baseline: PastRun, between: Sequence[PastRun]) -> PastRun | None:
    first: PastRun | None = None
    past = case.pasts[found.run.job_id]
    for version in case.bad.written[found.run.id] if found.volumes else ():
        odd = next(odd_between(past, version, baseline, found.run), None)
        if odd is not None and first is None:
            # It may have begun before the last good result, which had not noticed yet.
            start, well = began(past, version.dataset, odd)
            first = (odd if well is None else start).first
    if first is None and found.repeated is not None:
        first = found.repeated.run
    broken = (broken_columns(case, change, case.bad.columns.get(dataset)) for dataset, change in found.schemas.items())
    if first is None and any(broken):
        # Not where its code changed: of what has an effect that is where it began.
        return _first_with_schema(case, found, between)
    own = [change for change in found.code if not change.whose]
    has_setting = any(not change.whose for change in found.settings)
    # A new version of a repository says little where the code is the same, or where there is one all the time.
    if first is None and own and (not has_setting or any(change.is_notable for change in own)):
        first = _first_with_code(case, found, between)
    if first is None and has_setting:
        first = _first_with_setting(case, found, between)
    return first


def _first_with_schema(case: Case, found: Findings, between: Sequence[PastRun]) -> PastRun | None:
    changed = [version for version in case.bad.written[found.run.id] if version.dataset in found.schemas]
    stands = facets_at(case.history, "dataset", [(version.written_as, version.at) for version in changed], ["schema"])
    columns = [[getattr(past, name) for past in between] for name in ("id", "started_at", "ended_at")]
    first: PastRun | None = None
    for version in changed:
        now = stands[version.written_as, version.at].get("schema")
        for number, then in case.history.rows(_SCHEMAS, *columns, version.written_as):
            past = between[number - 1]
            if not schema_change(then, now) and (first is None or past.ended_at < first.ended_at):
                first = past
    return first


# Of each run what it said itself: others may have written in the meantime. A short range of an index for each.
_SCHEMAS: Final = """
SELECT asked.number, body.body
FROM unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[]) WITH ORDINALITY AS asked (run_id, began, ended, number)
CROSS JOIN LATERAL (
    SELECT body_digest FROM {s}.facet_history AS said
    WHERE said.entity_id = %s::uuid AND said.entity_kind = 'dataset' AND said.facet_key = 'schema'
      AND said.hour > asked.began - interval '1 hour' AND said.hour <= asked.ended
      AND said.job_run_id = asked.run_id
    ORDER BY said.last_at DESC, said.rank DESC, said.body_digest DESC LIMIT 1
) AS said
JOIN {s}.facet_bodies AS body ON body.digest = said.body_digest
ORDER BY asked.number
"""


def _first_with_code(case: Case, found: Findings, between: Sequence[PastRun]) -> PastRun | None:
    job, end = found.run.job_id, found.run.last_moment
    code = facets_at(case.history, "job", [(job, past.ended_at) for past in between] + [(job, end)], CODE)
    return next((past for past in between if not code_changes(code[job, past.ended_at], code[job, end])), None)


def _first_with_setting(case: Case, found: Findings, between: Sequence[PastRun]) -> PastRun | None:
    facets = run_facets(case.history, [found.run.id]) | past_facets(case.history, [(found.run.job_id, between)])
    wanted = {(change.facet, change.path) for change in found.settings}
    for past in between:
        changed = setting_changes(facets.get(past.id) or {}, facets.get(found.run.id) or {}, [])
        if not wanted & {(change.facet, change.path) for change in changed}:
            return past
    return None
