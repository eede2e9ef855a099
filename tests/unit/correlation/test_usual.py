"""What is odd, and what is late."""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from correlator.correlation.usual import Oddity, Samples, cadence, oddity

_MONDAY = datetime(2026, 5, 4, 6, tzinfo=UTC)
_Told = tuple[datetime, float]


def wobble(number: int) -> float:
    """A few percent up and down, the same every time."""
    return 1 + 0.03 * math.sin(number * 2.4)


def daily(days: int, amount: Callable[[int], float]) -> list[_Told]:
    return [(_MONDAY + timedelta(days=day), amount(day) * wobble(day)) for day in range(days)]


def judged(samples: Sequence[_Told], day: float, amount: float) -> Oddity:
    found = oddity(_MONDAY + timedelta(days=day), amount, Samples.of(samples[::-1]))
    assert found is not None
    return found


@pytest.mark.parametrize(("amount", "is_odd"), [(1000, False), (950, False), (500, True), (2000, True), (0, True)])
def test_odd_is_what_is_far_from_all_that_was(amount: float, is_odd: bool) -> None:  # noqa: FBT001
    odd = judged(daily(30, lambda _: 1000), 30, amount)

    assert bool(odd.strength) == is_odd
    assert round(odd.usual, -2) == 1000


def test_of_few_nothing_can_be_said() -> None:
    assert oddity(_MONDAY, 1000, Samples.of(daily(3, lambda _: 1))) is None


def test_a_weekend_is_judged_by_weekends() -> None:
    samples = daily(33, lambda day: 100 if day % 7 in (5, 6) else 1000)

    assert not judged(samples, 33, 100).strength
    odd = judged(samples, 33, 1000)
    assert (odd.strength, round(odd.usual, -1)) == (1, 100)
    odd = judged(samples, 33, 3000)
    assert odd.strength == 1
    assert round(odd.usual, -1) == 100


def test_as_much_as_on_a_weekday_is_odd_on_a_quiet_sunday() -> None:
    samples = daily(20, lambda day: 300 if day % 7 in (5, 6) else 1000)

    assert judged(samples, 20, 1000).score > 0
    assert judged(samples, 20, 1000).strength
    assert not judged(samples, 20, 300).strength


def test_what_has_always_been_the_same_is_no_number_by_chance() -> None:
    regions = [(_MONDAY + timedelta(days=day), 12) for day in range(10)]

    assert judged(regions, 10, 7).strength
    assert not judged(daily(10, lambda day: 10 + day % 5), 10, 7).strength


def test_of_one_weekend_it_is_not_known_what_weekends_are_like() -> None:
    samples = daily(6, lambda day: 300 if day == 5 else 1000)

    assert not judged(samples, 6, 1000).strength


def test_a_delivery_that_comes_an_hour_later_is_what_it_was_on_other_days() -> None:
    hours = [(_MONDAY + timedelta(hours=hour), 4000 if hour % 24 == 4 else 0) for hour in range(11 * 24)]
    at = _MONDAY + timedelta(days=11, hours=5)

    def strength(amount: float) -> float:
        found = oddity(at, amount, Samples.of(hours[::-1]))
        assert found is not None
        return found.strength

    assert not strength(4100)
    assert strength(9000)


def test_where_weekends_are_like_other_days_all_tell_what_is_usual() -> None:
    assert not judged(daily(20, lambda _: 1000), 20, 1080).strength


def test_a_night_is_judged_by_nights() -> None:
    def usual(hour: int) -> float:
        return 100 + 900 * math.sin(math.pi * (hour % 24) / 24) ** 2

    samples = [(_MONDAY + timedelta(hours=hour), usual(hour + 6) * wobble(hour)) for hour in range(8 * 24)]

    assert not judged(samples, 8 + 18 / 24, usual(0)).strength
    assert judged(samples, 8 + 18 / 24, 4 * usual(0)).strength == 1
    assert judged(samples, 8 + 6 / 24, usual(12) / 4).strength == 1


def test_what_has_grown_is_judged_by_what_it_would_be_now() -> None:
    samples = daily(60, lambda day: 1000 * 1.03**day)
    now = 1000 * 1.03**60

    assert not judged(samples, 60, now).strength
    odd = judged(samples, 60, now / 2)
    assert odd.strength > 0.9
    assert odd.score < 0


def test_a_single_odd_one_among_them_changes_nothing() -> None:
    samples = [*daily(30, lambda _: 1000), (_MONDAY + timedelta(days=30), 50_000)]

    assert judged(samples, 31, 400).strength


def test_who_rests_on_weekends_is_late_on_monday_alone() -> None:
    moments = [_MONDAY + timedelta(days=day) for day in range(26) if day % 7 < 5]
    rhythm = cadence(moments, moments[-1])

    assert rhythm is not None
    assert rhythm.interval == timedelta(days=3)
    assert not rhythm.is_late(moments[-1], moments[-1] + timedelta(days=2))
    assert rhythm.is_late(moments[-1], moments[-1] + timedelta(days=3, hours=2))


def test_as_little_as_on_a_sunday_is_odd_on_a_tuesday() -> None:
    """The days between differ among themselves, and with the weekends all differ by much."""
    week = (2600, 2200, 2600, 2180, 2680, 1580, 1350)
    samples = daily(15, lambda day: week[day % 7])

    odd = judged(samples, 15, 1280)

    assert odd.strength
    assert 2000 < odd.usual < 2700
    assert not judged(samples, 19, 1280).strength


def test_a_weekend_that_is_counted_on_the_day_after_is_judged_by_its_days() -> None:
    """What is loaded early on Sunday and Monday is of Saturday and Sunday."""
    week = (250, 157, 156, 171, 163, 177, 240)
    samples = daily(28, lambda day: 1000 * week[day % 7])

    assert judged(samples, 28, 133_000).strength
    assert 230_000 < judged(samples, 28, 133_000).usual < 260_000
    assert not judged(samples, 28, 245_000).strength
    assert judged(samples, 29, 245_000).strength


def test_days_that_differ_by_chance_are_of_one_kind() -> None:
    samples = daily(28, lambda day: 1000 * (1 + 0.5 * math.sin(day * 2.7)))

    assert not judged(samples, 28, 1000).strength
    assert not judged(samples, 29, 1300).strength


def test_of_less_than_two_weeks_no_days_are_taken_for_another_kind() -> None:
    week = (340, 230, 219, 232, 224, 283, 325)
    samples = [(_MONDAY + timedelta(days=day), 1000 * week[day % 7]) for day in range(1, 10)]

    assert judged(samples, 10, 670_000).strength


def test_the_hours_before_it_on_the_same_day_are_not_what_is_usual_on_that_weekday() -> None:
    hours = [(_MONDAY + timedelta(hours=hour), 500 if hour >= 72 else 1000 + hour % 24) for hour in range(76)]

    found = oddity(_MONDAY + timedelta(hours=76), 500, Samples.of(hours[::-1]))

    assert found is not None
    assert found.strength


@pytest.mark.parametrize(("amount", "is_odd"), [(1300, True), (1100, False), (750, True)])
def test_how_far_a_few_differ_is_told_by_all_of_them(amount: float, is_odd: bool) -> None:  # noqa: FBT001
    """In nine days there is no weekday of which there are many."""
    assert bool(judged(daily(9, lambda _: 1000), 9, amount).strength) == is_odd
