"""Since when events wait at a source that only tells how far it has come."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from correlator.pipeline.backlog import Backlog

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_what_waits_came_after_the_last_look_that_saw_nothing_more_than_was_read() -> None:
    backlog = Backlog(NOON)
    assert backlog.look(at(10), {"t/0": 5}, {"t/0": 5}) == (0, None)
    assert backlog.look(at(20), {"t/0": 5}, {"t/0": 8}) == (3, at(10))
    assert backlog.look(at(30), {"t/0": 5}, {"t/0": 9}) == (4, at(10))
    assert backlog.look(at(40), {"t/0": 8}, {"t/0": 12}) == (4, at(20))
    assert backlog.look(at(50), {"t/0": 12}, {"t/0": 12}) == (0, None)


def test_a_new_partition_waits_as_well() -> None:
    backlog = Backlog(NOON)
    assert backlog.look(at(10), {"t/0": 5}, {"t/0": 5}) == (0, None)
    assert backlog.look(at(20), {"t/0": 5}, {"t/0": 5, "t/1": 2}) == (2, at(10))


def test_what_waited_before_the_process_began_is_not_forgotten() -> None:
    assert Backlog(at(-3600)).look(NOON, {"t/0": 5}, {"t/0": 6}) == (1, at(-3600))


def test_a_source_that_stands_still_for_days_takes_no_memory() -> None:
    backlog = Backlog(NOON)
    for second in range(20_000):
        assert backlog.look(at(second), {"t/0": 0}, {"t/0": second + 1}) == (second + 1, NOON)
    assert len(backlog._looks) <= 1_001  # noqa: SLF001


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30))
def test_nothing_has_waited_longer_than_is_told(steps: list[tuple[int, int]]) -> None:
    """Whatever comes between two looks came after the first of them."""
    backlog, came, read = Backlog(NOON), [], 0
    for number, (more, taken) in enumerate(steps, start=1):
        came += [number] * more
        read = min(len(came), read + taken)
        waiting, since = backlog.look(at(number), {"t/0": read}, {"t/0": len(came)})
        assert waiting == len(came) - read
        if waiting:
            assert since == at(came[read] - 1)
