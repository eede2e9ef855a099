"""Runs that may be the cause, with what speaks for each."""

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from correlator.correlation.history import Run
from correlator.correlation.ids import Id

PER_STEP: Final = 0.97
"""What is left of a score with every job in between: of two that say the same the nearer is meant."""
VISIBLE: Final = 0.3
"""What scores less is hardly a reason."""


class Evidence(msgspec.Struct, frozen=True):
    kind: str
    subject: str
    """A job, a run or a dataset, by its name."""
    before: str | None
    after: str | None
    sentence: str


class Candidate(msgspec.Struct):
    job_id: Id
    namespace: str
    name: str
    run: Run | None
    """None for a run that is missing."""
    distance: int
    score: float = 0.0
    evidence: list[Evidence] = msgspec.field(default_factory=list)
    reasons: list[str] = msgspec.field(default_factory=list)
    """Why it ranks where it does, beyond the evidence."""


_CHANGES: Final = frozenset({"schema", "code", "engine", "parameter"})
"""What is there from one run on."""

_CHANGED_BACK: Final = 0.3

_Key: TypeAlias = tuple[str, Id]
_Change: TypeAlias = tuple[Id, str, str, str | None, str | None]
"""Of which job, of what kind, of whom, from what to what."""


class Candidates:
    """Each run, and of each job the run that is missing, once."""

    def __init__(self, found: Iterable[Candidate] = ()) -> None:
        self._found: dict[_Key, Candidate] = {}
        for candidate in found:
            self.add(candidate)

    def add(self, candidate: Candidate) -> Candidate:
        """The one that stands for the run then. What is said twice is not twice as sure."""
        key = ("missing", candidate.job_id) if candidate.run is None else ("run", candidate.run.id)
        known = self._found.setdefault(key, candidate)
        if known is candidate:
            return known
        known.score = max(known.score, candidate.score)
        told = {evidence.sentence for evidence in known.evidence}
        if not any(evidence.kind == "run_failed" for evidence in known.evidence):
            known.evidence = [e for e in candidate.evidence if e.sentence not in told] + known.evidence
        return known

    def of(self, run: Id) -> Candidate | None:
        return self._found.get(("run", run))

    @property
    def best(self) -> float:
        return max((candidate.score for candidate in self._found.values()), default=0.0)

    def ranked(self) -> list[Candidate]:
        """Of runs of one job that show the same change the first one stands for all."""
        self._doubt_who_changed_back()
        found: dict[object, Candidate] = {}
        for candidate in sorted(self._found.values(), key=_rank):
            first = found.setdefault(_change(candidate) or id(candidate), candidate)
            if first is not candidate and first.run is not None and candidate.run is not None:
                first.run = min(first.run, candidate.run, key=lambda run: (run.last_moment, run.id))
        return list(found.values())

    def _doubt_who_changed_back(self) -> None:
        """Of two runs of a job, of which one changed what the other had changed before, the first one did the harm."""
        changes: dict[_Change, list[Candidate]] = {}
        for candidate in self._found.values():
            change = _change(candidate)
            if change is not None and candidate.run is not None:
                changes.setdefault(change, []).append(candidate)
        for (job, kind, subject, before, after), later in changes.items():
            former = changes.get((job, kind, subject, after, before), ())
            for candidate in later if before != after else ():
                if any(
                    other.run and candidate.run and other.run.last_moment < candidate.run.last_moment
                    for other in former
                ):
                    candidate.score *= _CHANGED_BACK
                    candidate.reasons.append("it changed back what had been changed before")


def each_once(ranked: Iterable[Candidate]) -> list[Candidate]:
    """Of candidates that have turned out to be one run the first."""
    found: dict[object, Candidate] = {}
    for candidate in ranked:
        found.setdefault(id(candidate) if candidate.run is None else candidate.run.id, candidate)
    return list(found.values())


def _rank(candidate: Candidate) -> tuple[float, int, str, str, bytes]:
    run = b"" if candidate.run is None else candidate.run.id
    return -candidate.score, candidate.distance, candidate.namespace, candidate.name, run


def _change(candidate: Candidate) -> _Change | None:
    changes = (one for one in candidate.evidence if one.kind in _CHANGES)
    return next(((candidate.job_id, one.kind, one.subject, one.before, one.after) for one in changes), None)
