"""What was passed on, not caused: which input of a run accounts for what is odd about it."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from correlator.correlation.case import Case
from correlator.correlation.changes import MetricChange, SchemaChange
from correlator.correlation.findings import Findings, RedTest, Topic
from correlator.correlation.history import Version
from correlator.correlation.ids import Id
from correlator.correlation.usual import Oddity

_MUCH: Final = 0.75
"""An amount that is as odd as that makes averages and shares of nulls others too."""
_SHARE: Final = 0.4
"""What goes in explains what comes out when it changed by at least so much of it, on the scale of logarithms."""
_PART: Final = 0.15
"""and by less it does where rows are multiplied on their way, as joins do."""
_LEFT_UNDONE: Final = "what runs before it had left undone"


def _share_a_column(above: Iterable[str], below: Iterable[str]) -> bool:
    """Whether a column is among both: by its name, or with the name of where it comes from in front of it."""
    return any(
        one == other or one.endswith((f"_{other}", f".{other}")) or other.endswith((f"_{one}", f".{one}"))
        for one in above
        for other in below
    )


class PassedOn(msgspec.Struct, frozen=True):
    case: Case
    findings: Mapping[Id, Findings]
    stale: frozenset[tuple[Id, Id, datetime]]
    """Versions that were read although something newer was due."""
    gaps: Mapping[Id, Sequence[datetime]]
    """By job when a run failed that was not made up for."""
    made_up: Mapping[Id, float]
    """Runs that had to do more than their own share, with how many times as much as usual that may be."""

    def volume(self, run: Id, odd: Oddity, seen: frozenset[Id] = frozenset(), share: float = _SHARE) -> str | None:
        """The input that had changed in the same way: directly, or through runs that do not count."""
        if odd.score > 0 and run in self.made_up:
            return _LEFT_UNDONE
        for version, above in self._inputs(run):
            if above.run.id in seen:
                continue
            name = self.case.name(version.dataset)
            if version.key in self.stale or above.is_partial:
                return f"{name}, which is not whole,"
            if odd.score < 0 and self._is_gapped(run, above.run.job_id):
                return f"{name}, to which a run that failed added nothing,"
            if odd.score < 0 and above.unchanged and not self.findings[run].has_changed:
                return f"{name}, which had not changed,"
            theirs = above.volumes.get(version.dataset) or above.between.get(version.dataset)
            if theirs is not None and theirs[1].log_ratio * odd.log_ratio > 0:
                if abs(theirs[1].log_ratio) > share * abs(odd.log_ratio):
                    return name
            elif version.dataset in above.said["amount"] and not self._is_always_as_many(version, above):
                continue
            further = self.volume(above.run.id, odd, seen | {run}, share)
            if further is not None:
                return further
        return None

    def is_grown_on_the_way(self, run: Id, odd: Oddity) -> bool:
        """Whether an input had changed in the same way, though by less: rows that are joined are multiplied."""
        return not self.findings[run].has_changed and self.volume(run, odd, share=_PART) is not None

    def _is_always_as_many(self, version: Version, above: Findings) -> bool:
        return self.case.pasts[above.run.job_id].is_always_as_many(version, above.run.last_moment)

    def is_followed(self, run: Id) -> bool:
        """Whether what was made of it has more or less than usual in the same direction, where that is told."""
        own = [odd for _, odd in self.findings[run].volumes.values()]
        seen, left = {run}, [run]
        while left:
            writer = left.pop()
            readers = {step.use.reader for step in self.case.bad.steps if step.version and step.version.run == writer}
            for reader in (readers & self.findings.keys()) - seen:
                seen.add(reader)
                below = [odd for _, odd in self.findings[reader].volumes.values()]
                if any(one.score * other.score > 0 for one in own for other in below):
                    return True
                if not self.findings[reader].said["amount"]:
                    left.append(reader)
        return False

    def red_above(self, run: Id) -> list[RedTest]:
        """The tests that had failed on what went into it, directly or not; of each way the nearest."""
        found: list[RedTest] = []
        seen, left = {run}, [run]
        while left:
            for version, above in self._inputs(left.pop()):
                red = [test for test in above.red_tests if test.dataset == version.dataset]
                found += red
                if not red and above.run.id not in seen:
                    seen.add(above.run.id)
                    left.append(above.run.id)
        return found

    def is_below(self, run: Id, others: Collection[Id]) -> bool:
        """Whether anything that went into it, directly or not, is of some runs, or older than it should be."""
        seen, left = {run}, [run]
        while left:
            inputs = list(self._inputs(left.pop()))
            above = {findings.run.id for _, findings in inputs} - seen
            if not above.isdisjoint(others) or any(version.key in self.stale for version, _ in inputs):
                return True
            seen |= above
            left += above
        return False

    def schema(self, run: Id, change: SchemaChange) -> str | None:
        """The input of which the same columns had vanished, or others had come in their stead."""
        for version, above in self._inputs(run):
            theirs = above.schemas.get(version.dataset)
            if theirs is None:
                continue
            if theirs.broken and (theirs.added or _share_a_column(theirs.broken, change.broken)):
                return self.case.name(version.dataset)
            if not frozenset(change.added).isdisjoint(theirs.added):
                return self.case.name(version.dataset)
        return None

    def adds_nothing(self) -> bool:
        """Whether a test asks for columns, and what was tested has no new ones: those further up are not meant."""
        start = self.case.bad.start
        found = None if start is None else self.findings.get(start.run)
        if start is None or found is None or self.case.failure.question.kind != "schema":
            return False
        change = found.schemas.get(start.dataset)
        return start.dataset in found.said["schema"] and (change is None or not change.added)

    def metric(self, run: Id, change: MetricChange, seen: frozenset[Id] = frozenset()) -> str | None:
        """The input that held other values, or nulls, before; or one that is not whole, or far too large.

        Nulls become other averages on their way, and other values nulls where something is joined by them.
        Directly, or through runs that do not say what they wrote.
        """
        if 1 < change.growth <= self.made_up.get(run, 0.0):
            return _LEFT_UNDONE
        for version, above in self._inputs(run):
            if above.run.id in seen:
                continue
            held = above.metrics.get(version.dataset) or above.metrics_between.get(version.dataset)
            if held or self._is_odd(version, above):
                return self.case.name(version.dataset)
            if version.dataset in above.said["values"]:
                continue
            further = self.metric(above.run.id, change, seen | {run})
            if further is not None:
                return further
        return None

    def _is_odd(self, version: Version, above: Findings) -> bool:
        """Whether an input is so unlike what it was that what comes of it is another thing."""
        schema, volume = above.schemas.get(version.dataset), above.volumes.get(version.dataset)
        return (
            version.key in self.stale
            or above.is_partial
            or any(sign.is_certain for sign in above.unchanged)
            or (schema is not None and bool(schema.broken))
            or (volume is not None and volume[1].strength >= _MUCH)
        )

    def is_old(self, run: Id, seen: frozenset[Id] = frozenset()) -> bool:
        """Whether something that it read had not changed either; directly, or through runs that do not count."""
        if any(
            step.version is not None
            and (step.version.key in self.stale or step.version.run in self.case.good.distances)
            for step in self.case.bad.reads_of(run)
        ):
            return True
        return any(
            above.unchanged or (not above.said["amount"] and self.is_old(above.run.id, seen | {run}))
            for _, above in self._inputs(run)
            if above.run.id not in seen
        )

    def silent_above(self, run: Id, topic: Topic) -> list[Findings]:
        """Runs that something may have come from unseen: they, and all below them, say nothing of the kind."""
        found: dict[Id, Findings] = {}
        layer = [run]
        while layer:
            above = {
                findings.run.id: findings
                for reader in layer
                for version, findings in self._inputs(reader)
                if findings.is_new and version.dataset not in findings.said[topic] and findings.run.id not in found
            }
            found |= above
            layer = list(above)
        return list(found.values())

    def is_entry(self, run: Id) -> bool:
        """Whether what it reads comes from outside of all that is known."""
        return all(step.version is None for step in self.case.bad.reads_of(run))

    def _is_gapped(self, reader: Id, job: Id) -> bool:
        """Whether a run of a job has failed since the reader's last one: its share is missing for the first time."""
        if job not in self.gaps:
            return False
        run = self.case.run(reader)
        ends = [past.ended_at for past in self.case.pasts[run.job_id].good if past.ended_at <= run.started_at]
        return any(moment > max(ends, default=moment) for moment in self.gaps[job])

    def _inputs(self, run: Id) -> Iterator[tuple[Version, Findings]]:
        for step in self.case.bad.reads_of(run):
            above = self.findings.get(step.version.run) if step.version is not None else None
            if step.version is not None and above is not None:
                yield step.version, above
