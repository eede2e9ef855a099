"""Layer 2: the states of one run, in the order of their times.

START leads to RUNNING or to an end; RUNNING to RUNNING or to an end; an end (COMPLETE, FAIL, ABORT) only to itself.
OTHER may come anywhere and changes nothing. A sequence may begin with any state, because START is often lost or late.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final

import msgspec

from correlator.rulebook.events import Event, EventType, RunEvent
from correlator.rulebook.identity import content_digest
from correlator.rulebook.problems import Rule

TERMINAL: Final[frozenset[EventType]] = frozenset({"COMPLETE", "FAIL", "ABORT"})

RANKS: Final[dict[EventType | None, int]] = {
    None: 0,
    "OTHER": 0,
    "START": 1,
    "RUNNING": 2,
    "COMPLETE": 3,
    "FAIL": 3,
    "ABORT": 3,
}
"""Which of two events at one instant came first: metadata, then the beginning, then the work, then the end."""


class CycleError(ValueError):
    """A run that cannot have gone this way."""

    def __init__(self, rule: Rule, reason: str) -> None:
        super().__init__(f"Invalid event sequence: {reason}")
        self.rule: Rule = rule


class RunSequence(msgspec.Struct, frozen=True):
    """The events of one run in order, each once, and the state they end in."""

    events: list[RunEvent]
    final_state: EventType


def is_single_run_batch(events: Sequence[Event]) -> bool:
    """Whether there are events, and all are RunEvents of one and the same run."""
    first = events[0] if events else None
    if not isinstance(first, RunEvent):
        return False
    run_id, name, namespace = first.run.run_id, first.job.name, first.job.namespace
    for event in events:
        if not isinstance(event, RunEvent) or event.run.run_id != run_id:
            return False
        job = event.job
        if job.name != name or job.namespace != namespace:
            return False
    return True


def sort_events_by_time(events: Sequence[RunEvent]) -> list[RunEvent]:
    """By time, then rank, then content: the same order wherever and in whatever order they arrive."""
    if _are_in_order(events):
        return list(events)
    placed = sorted([(event.event_time, RANKS[event.event_type], place) for place, event in enumerate(events)])
    for one, other in pairwise(placed):
        if one[0] == other[0] and one[1] == other[1]:
            # Digests cost more than all the rest, and few events share an instant.
            return sorted(events, key=lambda event: (event.event_time, RANKS[event.event_type], content_digest(event)))
    return [events[place] for _, _, place in placed]


def _are_in_order(events: Sequence[RunEvent]) -> bool:
    """Whether each event is later than the one before, as nearly all clients send them."""
    latest = None
    for event in events:
        time = event.event_time
        if latest is not None and time <= latest:
            return False
        latest = time
    return True


def validate_state_transition(current: EventType | None, new: EventType | None, run_id: str) -> EventType | None:
    """The state after an event of type `new`; raises CycleError when there is no such way."""
    if new is None or new == "OTHER":
        return current
    if current is None or current == "OTHER":
        return new
    if current in TERMINAL:
        if new != current:
            reason = f"terminal state is immutable: run {run_id} is {current} and cannot become {new}"
            raise CycleError("terminal_state_immutable", reason)
    elif new == "START":
        if current == "START":
            raise CycleError("duplicate_start", f"duplicate START event: run {run_id} already has START state")
        raise CycleError(
            "backward_transition", f"backward transition: run {run_id} is {current} and cannot go back to START"
        )
    return new


def _ways() -> dict[EventType | None, dict[EventType | None, EventType | None]]:
    """Every step that the cycle allows, worked out once from the rule above."""
    states: list[EventType | None] = [None, *(state for state in RANKS if state is not None)]
    ways: dict[EventType | None, dict[EventType | None, EventType | None]] = {state: {} for state in states}
    for current in states:
        for new in states:
            with suppress(CycleError):
                ways[current][new] = validate_state_transition(current, new, "")
    return ways


_WAYS: Final = _ways()


def validate_event_sequence(events: Sequence[RunEvent]) -> RunSequence:
    """Put the events of one run in order and follow them; identical copies count once.

    Raises CycleError at the first step that the cycle does not allow.
    """
    state: EventType | None = None
    previous: RunEvent | None = None
    ordered: list[RunEvent] = []
    for event in sort_events_by_time(events):
        if previous is not None and event.event_time == previous.event_time and _is_copy(event, previous):
            continue
        previous = event
        ordered.append(event)
        if event.event_type not in _WAYS[state]:
            validate_state_transition(state, event.event_type, event.run.run_id)
        state = _WAYS[state][event.event_type]
    return RunSequence(ordered, state or "OTHER")


def _is_copy(event: RunEvent, previous: RunEvent) -> bool:
    """Copies have one time, rank and content, so in order they are neighbours."""
    if event.event_type != previous.event_type:
        return False
    return event.raw == previous.raw or content_digest(event) == content_digest(previous)
