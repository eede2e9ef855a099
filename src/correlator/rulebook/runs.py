"""A run as it stands: what its merged facts amount to.

Nothing here is stored by itself; each answer is a function of one row of `job_runs` and of the rows that hang on it.
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from correlator.rulebook.events import EventType
from correlator.rulebook.facts import Row
from correlator.rulebook.formats import Instant
from correlator.rulebook.identity import Id
from correlator.rulebook.versions import Kin, Read, Write

ContradictionKind = Literal["two_ends", "active_after_end"]

ENDS: Final[tuple[tuple[str, EventType], ...]] = (("fail", "FAIL"), ("abort", "ABORT"), ("complete", "COMPLETE"))
"""In the order in which they count at one instant."""

LONG_RUNNING: Final = ("STREAMING", "SERVICE")


class Contradiction(msgspec.Struct, frozen=True, order=True, gc=False):
    """Two things that a run cannot have said both. It is recorded and shown, never refused."""

    kind: ContradictionKind
    at: Instant
    sentence: str


class RunView(msgspec.Struct, frozen=True, gc=False):
    state: EventType
    started_at: Instant
    ended_at: Instant | None
    history: list[tuple[Instant, EventType]]
    contradictions: list[Contradiction]


def run_view(row: Row) -> RunView:
    ends = sorted((at, number, state) for number, (at, state) in enumerate(_ends(row)))
    opened = row.get("open")
    (first_event_at,) = row["first_event"]
    first_start = row.get("first_start")
    state: EventType = ends[0][2] if ends else opened[2] if opened is not None else "OTHER"
    return RunView(
        state=state,
        started_at=first_event_at if first_start is None else first_start[0],
        ended_at=ends[0][0] if ends else None,
        history=[(at, said) for at, _, said in sorted(row.get("states") or ())],
        contradictions=_contradictions([(at, said) for at, _, said in ends], opened),
    )


def _ends(row: Row) -> Iterable[tuple[Instant, EventType]]:
    for group, state in ENDS:
        if (said := row.get(group)) is not None:
            yield said[0], state


def _contradictions(
    ends: list[tuple[Instant, EventType]], opened: tuple[Instant, int, EventType] | None
) -> list[Contradiction]:
    if not ends:
        return []
    ended_at, end = ends[0]
    found = [
        Contradiction("two_ends", at, f"the run is {end}, and {_when(at, ended_at)} it is said to be {other}")
        for at, other in ends[1:]
    ]
    if opened is not None and opened[0] > ended_at:
        found.append(
            Contradiction("active_after_end", opened[0], f"the run is {end}, and later a {opened[2]} is reported")
        )
    return sorted(found)


def _when(at: Instant, ended_at: Instant) -> str:
    return "at the same time" if at == ended_at else "later"


def kin(run: Id, row: Row) -> Kin:
    """The run's place in its family. Who names no root has its parent for one."""
    said = row.get("parent")
    if said is None:
        return Kin(run)
    _, _, _, parent, _, _, _, root, *_ = said
    return Kin(run, parent, parent if root is None else root)


def end_write(run: Id, row: Row, *, rows_written: int | None, version: str | None) -> Write | None:
    """The write of an output at the run's end; None while the run has not ended."""
    view = run_view(row)
    if view.ended_at is None:
        return None
    if view.state == "COMPLETE":
        return Write(kin(run, row), view.ended_at, "complete", version)
    kind: Literal["partial", "attempt"] = "partial" if rows_written else "attempt"
    return Write(kin(run, row), view.ended_at, kind, version)


def running_write(run: Id, row: Row, at: Instant, *, rows_written: int | None) -> Write | None:
    """The write of an output at a RUNNING event: a stream's every one, and any that says how much was written."""
    said = row.get("type")
    is_long = said is not None and said[3].upper() in LONG_RUNNING
    return Write(kin(run, row), at, "running") if is_long or rows_written else None


def read_of(run: Id, row: Row, *, version: str | None = None, of_own_output: bool = False) -> Read:
    """A run reads its inputs when it starts."""
    return Read(kin(run, row), run_view(row).started_at, version, of_own_output)
