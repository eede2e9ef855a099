"""Reads, writes, and which write a read saw.

A dataset's version is a write: (dataset, run, moment). The cause of a failed test is the run whose write the test read,
so everything rests on binding a read to the right write.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from correlator.rulebook.formats import Instant
from correlator.rulebook.identity import Id

WriteKind = Literal["complete", "running", "partial", "attempt"]
"""How sure a write is: a run that COMPLETEd; a moment in a long-running one; a FAILed or ABORTed run that says it wrote
rows; one that only names the dataset as output, which is evidence but no version that anyone read."""


class Kin(msgspec.Struct, frozen=True, gc=False):
    """A run, and the runs it belongs to: its parent and the root of its tree, where known."""

    run: Id
    parent: Id | None = None
    root: Id | None = None

    def is_of_one_family_with(self, other: "Kin") -> bool:
        mine = {self.parent, self.root} - {None}
        return bool(mine & {other.run, other.parent, other.root})


class Write(msgspec.Struct, frozen=True, gc=False):
    by: Kin
    at: Instant
    kind: WriteKind = "complete"
    version: str | None = None
    began: Instant | None = None
    """When its run began, where that is told of a run by itself."""

    @property
    def is_a_version(self) -> bool:
        return self.kind != "attempt"


class Read(msgspec.Struct, frozen=True, gc=False):
    by: Kin
    at: Instant
    version: str | None = None
    of_own_output: bool = False
    """Whether it is an assertion that a run makes about what it wrote itself."""
    looks_ahead: bool = True
    """Whether it may have seen a write of its family that is stamped after it: a test may, a transformation cannot."""
    ended: Instant | None = None

    def may_have_seen_ahead(self, write: Write) -> bool:
        """Whoever began when the reader had ended is a later try."""
        is_later = self.ended is not None and write.began is not None and write.began > self.ended
        return self.looks_ahead and write.at > self.at and not is_later


def responsible_write(read: Read, writes: Sequence[Write]) -> Write | None:
    """The version that the read saw, out of all writes of its dataset; None when nobody is known to have written it.

    The first that applies:
    1. an assertion about a run's own output: that run's own write, even if the run FAILed;
    2. the write of the version that the read names;
    3. a write of the read's own family: the last before the read, else, for a test, the first after it, because dbt
       stamps its tests late and tasks check their work before they COMPLETE; not of a run that began when it had ended;
    4. the last write before the read.
    """
    if read.of_own_output:
        return _latest(write for write in writes if write.by.run == read.by.run)
    versions = [write for write in writes if write.is_a_version and write.by.run != read.by.run]
    if read.version is not None and (named := _latest(w for w in versions if w.version == read.version)) is not None:
        return named
    family = [write for write in versions if read.by.is_of_one_family_with(write.by)]
    return (
        _latest(write for write in family if write.at <= read.at)
        or _earliest(write for write in family if read.may_have_seen_ahead(write))
        or _latest(write for write in versions if write.at <= read.at)
    )


def _latest(writes: Iterable[Write]) -> Write | None:
    """Of several at one moment the one of the greatest run id: any, but always the same."""
    return max(writes, key=_moment, default=None)


def _earliest(writes: Iterable[Write]) -> Write | None:
    return min(writes, key=_moment, default=None)


def _moment(write: Write) -> tuple[Instant, Id]:
    return write.at, write.by.run
