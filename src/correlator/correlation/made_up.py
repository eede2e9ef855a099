"""Runs that made up for others: what a run that failed or never was had left undone, the next one does beside its own.

It writes twice as much then, or three times, and that is what a test may find: after it was mended, and not before.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from correlator.correlation.candidates import PER_STEP, Candidate, Evidence
from correlator.correlation.case import Case
from correlator.correlation.findings import Findings
from correlator.correlation.past import PastRun

_SHARES: Final = 1.5
"""So many times what was left undone, at most: more than that has other reasons."""


class MadeUp(msgspec.Struct, frozen=True):
    """That a run came after others of its job which had left something undone."""

    found: Findings
    failed: PastRun | None
    """The last of those that failed; None if there was none at all when one was due."""
    since: datetime
    """The last good end before."""


def find_made_up(case: Case, findings: Mapping[UUID, Findings]) -> dict[UUID, MadeUp]:
    """By run, where one wrote more than usual, and about as much as it had to."""
    found: dict[UUID, MadeUp] = {}
    for run, one in findings.items():
        most = max((odd.amount / max(odd.usual, 1) for _, odd in one.volumes.values() if odd.score > 0), default=0.0)
        if not one.is_new or not most:
            continue
        past = case.pasts[one.run.job_id]
        ends = past.ended_well(one.run.started_at)
        rhythm = past.rhythm(ends[-1]) if ends else None
        if rhythm is None or not rhythm.is_late(ends[-1], one.run.started_at):
            continue
        shares = (one.run.started_at - ends[-1]) / rhythm.interval
        if most <= _SHARES * shares:
            found[run] = MadeUp(one, past.failed_since(ends[-1], one.run.started_at), ends[-1])
    return found


def blamed_for_rest(case: Case, made_up: MadeUp) -> Candidate:
    """The run that never was. One that failed is blamed as any that was not tried again."""
    run, since = made_up.found.run, f"{made_up.since:%Y-%m-%d %H:%M}"
    sentence = f"{run.name} was due again after {since}, and did not run before the one that made up for it"
    candidate = Candidate(run.job_id, run.namespace, run.name, None, made_up.found.distance)
    candidate.evidence.append(Evidence("missing_run", run.name, since, None, sentence))
    candidate.score = 0.75 * case.fit("more") * PER_STEP**made_up.found.distance
    return candidate
