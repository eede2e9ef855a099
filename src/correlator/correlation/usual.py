"""What is usual: how much, how long and how often, judged by what was before and not by what should be."""

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Final

import msgspec

_FEWEST: Final = 4
"""Of so few nothing can be said."""
MANY: Final = 8
"""Of so many something can be said with confidence."""
_OF_AN_HOUR: Final = 3
_TO_TELL: Final = 3
_DAY: Final = timedelta(days=1)
_TO_GROW: Final = 16
"""So many tell whether there is more from one to the next,"""
_NO_TIME: Final = timedelta(0)
_WEEK: Final = 5 * _DAY
"""From a Sunday to the next Saturday and a bit: of one weekend it cannot be said that all are like it."""
_TWO_WEEKS: Final = 10
"""Days that are not of a weekend."""
_BEFORE: Final = 3
"""On so many days it was like that at about this hour, and it is nothing new."""
_SAME: Final = 1e-9
_LIKE: Final = 0.2
"""On the scale of logarithms."""
_WEEKS: Final = 27 * _DAY
"""in two weeks and two weeks, so that each half has its weekends."""
_WEEKEND: Final = (5, 6)
_ODD_SCORE: Final = 4.0
_ODD_RATIO: Final = 0.1
_SPREAD: Final = 1.4826
"""Makes of the median deviation what the standard deviation is for a normal distribution."""
_LEAST_SPREAD: Final = 0.04
"""On the scale of logarithms: amounts that differ by less are the same."""


def is_weekend(at: datetime) -> bool:
    return at.weekday() in _WEEKEND


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One of thousands that a question may look at."""

    at: datetime
    log: float
    """The amount, on the scale of logarithms."""

    @classmethod
    def of(cls, at: datetime, amount: float) -> "Sample":
        return cls(at, math.log(amount + 1))

    @property
    def amount(self) -> int:
        return round(math.exp(self.log) - 1)


class Oddity(msgspec.Struct, frozen=True):
    """How far an amount is from what is usual."""

    amount: float
    usual: float
    score: float
    """In spreads; negative for too little."""

    @property
    def log_ratio(self) -> float:
        return math.log((self.amount + 1) / (self.usual + 1))

    @property
    def strength(self) -> float:
        """From 0, nothing of note, to 1: half or double of what is usual, and far outside of its spread."""
        if abs(self.score) < _ODD_SCORE or abs(self.log_ratio) < _ODD_RATIO:
            return 0.0
        return min(1.0, 0.35 + abs(self.log_ratio) / math.log(2) * 0.65)


def oddity(at: datetime, amount: float, before: Sequence[Sample]) -> Oddity | None:
    """Odd is what is odd among all, and among those of the same weekday, of weekends, and of the same hour.

    `before` is in order of time, the latest first.
    """
    if len(before) < _FEWEST:
        return None
    one = Sample.of(at, amount)
    logs = _as_of_hour(one, before, _as_of_now(one, before))
    found = [_judged(one, amount, *among) for among in _among(one, before, logs)]
    return next((each for each in found if each.strength), found[-1])


def odd(at: datetime, amount: float, before: Sequence[Sample]) -> Oddity | None:
    """The oddity of what is odd. Most is not, and is known by a look at those that are most alike."""
    if len(before) < _FEWEST:
        return None
    one = Sample.of(at, amount)
    logs = _as_of_hour(one, before, _as_of_now(one, before))
    if abs(one.log - median(_most_alike(one, before, logs))) < _ODD_RATIO:
        return None
    for among, theirs in _among(one, before, logs):
        if abs(_Usual.of(theirs, is_fixed=_is_fixed(theirs)).score(one.log)) >= _ODD_SCORE:
            found = _judged(one, amount, among, theirs)
            if found.strength:
                return found
    return None


def _among(one: Sample, before: Sequence[Sample], logs: list[float]) -> Iterator[tuple[Sequence[Sample], list[float]]]:
    """All, and those of its kind of day: who is odd among either is odd."""
    yield before, logs
    kind = _of_its_kind(one, before, logs)
    if kind is not None:
        yield kind


def _most_alike(one: Sample, before: Sequence[Sample], logs: list[float]) -> list[float]:
    """The last of those that `_alike` has, without all the others: who is like them is not odd."""
    alike = _of_weekday(one, before, logs)
    if len(alike) > 1:
        return alike
    return [part for part in _alike(one, before, logs) if len(part) >= _TO_TELL][-1]


def _judged(one: Sample, amount: float, before: Sequence[Sample], logs: list[float]) -> Oddity:
    """`logs` are those of `before`, as they would be now."""
    alike = list(_alike(one, before, logs))
    is_fixed = _is_fixed(logs)
    parts = [_Usual.of(part, is_fixed=is_fixed) for part in alike]
    scores = [part.score(one.log) for part in parts]
    is_odd = all(score > 0 for score in scores) or all(score < 0 for score in scores)
    # How far it is from what is usual is told by those that are most alike, if they are more than two.
    usual = [part for part, of_part in zip(parts, alike, strict=True) if len(of_part) >= _TO_TELL][-1]
    is_odd = is_odd and not _has_been(one, before)
    return Oddity(amount, math.exp(usual.middle) - 1, min(scores, key=abs) if is_odd else 0.0)


def _has_been(one: Sample, before: Sequence[Sample]) -> bool:
    """Whether one of several a day was like that on other days.

    Who has nothing to do most of the time has much to do when a day's delivery is there, an hour earlier or later.
    """
    if len(before) < 2 * ((before[0].at - before[-1].at) / _DAY + 1):
        return False
    hours = {(one.at.hour + shift) % 24 for shift in (-1, 0, 1)}
    of_weekend = is_weekend(one.at)
    alike = [
        sample.at.date()
        for sample in before
        if abs(sample.log - one.log) < _LIKE and sample.at.hour in hours and is_weekend(sample.at) == of_weekend
    ]
    return len(set(alike)) >= _BEFORE


def band(at: datetime, before: Sequence[Sample]) -> tuple[float, float, float] | None:
    """Between which amounts nothing is odd at a moment, and the middle of them; `before` has the latest first."""
    if len(before) < _FEWEST:
        return None
    one = Sample.of(at, 0.0)
    usual = _Usual.of([*_among(one, before, _as_of_hour(one, before, _as_of_now(one, before)))][-1][1])
    reach = max(_ODD_SCORE * usual.spread, _ODD_RATIO)
    low, high = (math.exp(usual.middle + side * reach) - 1 for side in (-1, 1))
    return max(0.0, low), math.exp(usual.middle) - 1, high


def _as_of_now(one: Sample, before: Sequence[Sample]) -> list[float]:
    """What grows, or shrinks, as it would be now: half of a table that has doubled is as much as it once was."""
    logs = [sample.log for sample in before]
    if len(logs) < _TO_GROW or before[0].at - before[-1].at < _WEEKS:
        return logs
    half, quarter = len(logs) // 2, len(logs) // 4
    grown = median(logs[:half]) - median(logs[half:])
    time = before[quarter].at - before[half + quarter].at
    if abs(grown) < _LEAST_SPREAD or time <= _NO_TIME:
        return logs
    return [log + grown * ((one.at - sample.at) / time) for log, sample in zip(logs, before, strict=True)]


def _as_of_hour(one: Sample, before: Sequence[Sample], logs: list[float]) -> list[float]:
    """Where there are several a day, each as it would be at this hour: a night is no quiet noon."""
    days = (before[0].at - before[-1].at) / _DAY + 1
    if len(logs) < 2 * days:
        return logs
    hours = [sample.at.hour for sample in before]
    if hours.count(one.at.hour) < _OF_AN_HOUR:
        return logs
    by_hour: list[list[float]] = [[] for _ in range(24)]
    for hour, log in zip(hours, logs, strict=True):
        by_hour[hour].append(log)
    usual = median(by_hour[one.at.hour])
    # Of an hour that was rarely seen nothing is known but the amount itself.
    shift = [usual - median(of_hour) if len(of_hour) >= _OF_AN_HOUR else 0.0 for of_hour in by_hour]
    return [log + shift[hour] for hour, log in zip(hours, logs, strict=True)]


def _of_its_kind(
    one: Sample, before: Sequence[Sample], logs: list[float]
) -> tuple[Sequence[Sample], list[float]] | None:
    """Those of weekends alone, or of the days between alone, where the two are not alike.

    What is usual on a Wednesday is odd on a Sunday then, and as little as on a Sunday is odd on a Wednesday.
    """
    days = _days_apart(before, logs)
    if days is None:
        return None
    is_there = one.at.weekday() in days
    kind = [number for number, sample in enumerate(before) if (sample.at.weekday() in days) == is_there]
    return [before[number] for number in kind], [logs[number] for number in kind]


def _days_apart(before: Sequence[Sample], logs: list[float]) -> tuple[int, int] | None:
    """Two days in a row that are not like the others. A weekend is counted on the day after, or it is on other days."""
    weekdays = [sample.at.weekday() for sample in before]
    found: tuple[float, tuple[int, int]] | None = None
    for first in range(7):
        days = (first, (first + 1) % 7)
        kind = [number for number, weekday in enumerate(weekdays) if weekday in days]
        if (
            len(kind) < _TO_TELL
            or len(before) - len(kind) < _FEWEST
            or before[kind[0]].at - before[kind[-1]].at < _WEEK
        ):
            continue
        here = sorted([logs[number] for number in kind])
        there = sorted([log for log, weekday in zip(logs, weekdays, strict=True) if weekday not in days])
        apart = abs(median(here) - median(there))
        if (found is None or apart > found[0]) and _are_apart(here, there, apart):
            found = (apart, days)
    return None if found is None else found[1]


def _are_apart(here: list[float], there: list[float], apart: float) -> bool:
    """By far more than they differ among themselves; or all of the one are above all of the other, but for one each."""
    if apart >= _ODD_SCORE * max(_Usual.of(here).spread, _Usual.of(there).spread):
        return True
    is_all = here[1] > there[-2] or here[-2] < there[1]
    # Of less than two weeks some two days are always apart.
    return is_all and len(here) >= _FEWEST and len(there) >= _TWO_WEEKS and apart >= 2 * _ODD_RATIO


def _alike(one: Sample, before: Sequence[Sample], logs: list[float]) -> Iterator[list[float]]:
    """The most alike last."""
    yield logs
    weekday = one.at.weekday()
    hours = {(one.at.hour + shift) % 24 for shift in (-1, 0, 1)}
    pairs = list(zip(before, logs, strict=True))
    for part, fewest in (
        ([log for sample, log in pairs if sample.at.hour in hours], 3),
        ([log for sample, log in pairs if (sample.at.weekday() in _WEEKEND) == (weekday in _WEEKEND)], 2),
        (_of_weekday(one, before, logs), 2),
    ):
        if len(part) >= fewest:
            yield part


def _of_weekday(one: Sample, before: Sequence[Sample], logs: list[float]) -> list[float]:
    """Those of the same weekday in other weeks: the hours before it on the same day may be as bad as it is."""
    weekday, until = one.at.weekday(), one.at - _DAY
    return [
        log for sample, log in zip(before, logs, strict=True) if sample.at.weekday() == weekday and sample.at < until
    ]


def _is_fixed(logs: Sequence[float]) -> bool:
    """Whether it has always been the same, one row for each of twelve regions: that is no number by chance."""
    return len(logs) >= MANY and logs[0] > 0 and max(logs) - min(logs) < _SAME


class _Usual(msgspec.Struct, frozen=True):
    """On the scale of logarithms."""

    middle: float
    spread: float

    @classmethod
    def of(cls, logs: Sequence[float], *, is_fixed: bool = False) -> "_Usual":
        middle = median(logs)
        # Of few samples the spread is a guess; and small numbers differ by chance, by their square root.
        least = _LEAST_SPREAD if len(logs) >= MANY else 2 * _LEAST_SPREAD
        chance = 0.0 if is_fixed else math.exp(-max(middle, 0.0) / 2)
        return cls(middle, max(_SPREAD * median([abs(log - middle) for log in logs]), least, chance))

    def score(self, log: float) -> float:
        return (log - self.middle) / self.spread


class Cadence(msgspec.Struct, frozen=True):
    """How often something comes."""

    interval: timedelta
    slack: timedelta

    def is_late(self, last: datetime, now: datetime) -> bool:
        return now > last + self.interval + self.slack


def cadence(moments: Sequence[datetime], after: datetime) -> Cadence | None:
    """Of what came at these moments, which are sorted; as it goes after the weekday and the hour of the last one."""
    gaps = [(one, other - one) for one, other in pairwise(moments) if other > one]
    if len(gaps) < _FEWEST:
        return None
    weekday, hour = after.weekday(), after.hour
    if any(one.date() == other.date() for (one, _), (other, _) in pairwise(gaps)):  # several a day: the hour counts
        alike = [gap for start, gap in gaps if start.hour == hour and start.weekday() == weekday]
    else:
        alike = [gap for start, gap in gaps if start.weekday() == weekday]
    chosen = sorted(alike if len(alike) > 1 else [gap for _, gap in gaps])
    middle = chosen[len(chosen) // 2]
    deviation = sorted([abs(gap - middle) for gap in chosen])[len(chosen) // 2]
    slack = max(4 * deviation, middle * 0.01, timedelta(minutes=5))
    return Cadence(middle, min(slack, middle * 0.5))
