import itertools
import json

import pytest

from correlator.rulebook.decode import judge
from correlator.rulebook.events import EventType, RunEvent
from correlator.rulebook.run_cycle import (
    CycleError,
    is_single_run_batch,
    sort_events_by_time,
    validate_event_sequence,
    validate_state_transition,
)
from tests.unit.rulebook.histories import OTHER_RUN, RUN, dataset_event, job_event, run_event, run_json

STATES: tuple[EventType, ...] = ("START", "RUNNING", "COMPLETE", "FAIL", "ABORT")
ENDS: tuple[EventType, ...] = ("COMPLETE", "FAIL", "ABORT")

ALLOWED = {
    *itertools.product(["START", "RUNNING"], ["RUNNING", *ENDS]),
    *((end, end) for end in ENDS),
}


@pytest.mark.parametrize(("current", "new"), sorted(ALLOWED))
def test_the_run_cycle_allows(current: EventType, new: EventType) -> None:
    assert validate_state_transition(current, new, RUN) == new


@pytest.mark.parametrize(("current", "new"), sorted(set(itertools.product(STATES, STATES)) - ALLOWED))
def test_the_run_cycle_refuses(current: EventType, new: EventType) -> None:
    with pytest.raises(CycleError) as caught:
        validate_state_transition(current, new, RUN)
    rule = {"START": "duplicate_start", "RUNNING": "backward_transition"}.get(current, "terminal_state_immutable")
    assert caught.value.rule == rule
    assert RUN in str(caught.value)


@pytest.mark.parametrize("state", STATES)
def test_other_may_come_anywhere_and_changes_nothing(state: EventType) -> None:
    assert validate_state_transition(state, "OTHER", RUN) == state
    assert validate_state_transition("OTHER", state, RUN) == state
    assert validate_state_transition(None, state, RUN) == state


def test_events_are_followed_in_the_order_of_their_times_not_of_their_arrival() -> None:
    events = [run_event("COMPLETE", 5), run_event("START", 0), run_event("RUNNING", 2)]

    sequence = validate_event_sequence(events)

    assert [event.event_type for event in sequence.events] == ["START", "RUNNING", "COMPLETE"]
    assert sequence.final_state == "COMPLETE"


def test_at_one_instant_metadata_comes_first_then_the_beginning_then_the_work_then_the_end() -> None:
    events = [run_event(state, 0) for state in ("COMPLETE", "RUNNING", "START", "OTHER")]

    assert [event.event_type for event in sort_events_by_time(events)] == ["OTHER", "START", "RUNNING", "COMPLETE"]


def test_the_order_of_equal_moments_does_not_depend_on_the_order_of_arrival() -> None:
    events = [run_event("RUNNING", 1, run_facets={f"custom_{n}": _custom(n)}) for n in range(4)]

    orders = {tuple(event.raw for event in sort_events_by_time(order)) for order in itertools.permutations(events)}

    assert len(orders) == 1


def _custom(number: int) -> dict[str, object]:
    return {"_producer": "https://example.com", "_schemaURL": "https://example.com/s.json", "number": number}


def test_a_second_start_is_refused_in_words_that_name_the_run() -> None:
    with pytest.raises(CycleError) as caught:
        validate_event_sequence([run_event("START", 0), run_event("START", 1)])

    assert str(caught.value) == f"Invalid event sequence: duplicate START event: run {RUN} already has START state"


def test_a_running_run_does_not_go_back_to_start() -> None:
    with pytest.raises(CycleError, match="backward transition") as caught:
        validate_event_sequence([run_event("RUNNING", 0), run_event("START", 1)])

    assert caught.value.rule == "backward_transition"


def test_an_ended_run_does_not_begin_again() -> None:
    with pytest.raises(CycleError, match="is COMPLETE and cannot become RUNNING") as caught:
        validate_event_sequence([run_event("COMPLETE", 0), run_event("RUNNING", 1)])

    assert caught.value.rule == "terminal_state_immutable"


def test_metadata_between_two_starts_does_not_hide_the_second() -> None:
    with pytest.raises(CycleError) as caught:
        validate_event_sequence([run_event("START", 0), run_event("OTHER", 1), run_event("START", 2)])

    assert caught.value.rule == "duplicate_start"


def test_identical_copies_count_once() -> None:
    start = run_json("START", 0)
    spaced = judge(json.dumps(start, indent=2).encode())
    shifted = judge(json.dumps(start | {"eventTime": start["eventTime"].replace("Z", "+00:00")}).encode())
    assert isinstance(spaced, RunEvent)
    assert isinstance(shifted, RunEvent)

    sequence = validate_event_sequence([run_event("START", 0), spaced, run_event("COMPLETE", 1), shifted])

    assert [event.event_type for event in sequence.events] == ["START", "COMPLETE"]


def test_two_starts_at_one_instant_with_different_content_are_two() -> None:
    with pytest.raises(CycleError, match="duplicate START"):
        validate_event_sequence([run_event("START", 0), run_event("START", 0, run_facets={"custom_x": _custom(1)})])


def test_a_repeated_end_is_idempotent() -> None:
    assert validate_event_sequence([run_event("FAIL", 1), run_event("FAIL", 2)]).final_state == "FAIL"


@pytest.mark.parametrize("state", [*STATES, "OTHER"])
def test_a_sequence_may_begin_with_any_state(state: str) -> None:
    assert validate_event_sequence([run_event(state, 0)]).final_state == state


def test_a_batch_is_of_a_single_run_only_if_run_and_job_are_the_same() -> None:
    assert is_single_run_batch([run_event("START"), run_event("COMPLETE", 1)])
    assert not is_single_run_batch([run_event("START"), run_event("START", run=OTHER_RUN)])
    assert not is_single_run_batch([run_event("START"), run_event("START", job="another")])
    assert not is_single_run_batch([run_event("START"), job_event()])
    assert not is_single_run_batch([dataset_event()])
    assert not is_single_run_batch([])
