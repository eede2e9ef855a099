"""What is usual: how much, how long and how often, judged by what was before and not by what should be."""

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import compress, pairwise
from statistics import median
from typing import Final, NamedTuple

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


class Sample(NamedTuple):
    at: datetime
    log: float
    """The amount, on the scale of logarithms."""

    @classmethod
    def of(cls, at: datetime, amount: float) -> "Sample":
        return cls(at, math.log(amount + 1))


class Samples(msgspec.Struct, frozen=True, gc=False):
    """In order of time, the latest first. In columns: a question looks at thousands, several times."""

    ats: list[datetime]
    logs: list[float]
    hours: list[int]
    weekdays: list[int]

    @classmethod
    def of(cls, amounts: Sequence[tuple[datetime, float]]) -> "Samples":
        return cls.at([at for at, _ in amounts], [math.log(amount + 1) for _, amount in amounts])

    @classmethod
    def at(cls, ats: list[datetime], logs: list[float]) -> "Samples":
        return cls(ats, logs, [at.hour for at in ats], [at.weekday() for at in ats])

    def __len__(self) -> int:
        return len(self.ats)

    def since(self, first: int) -> "Samples":
        """Without so many of the latest."""
        return Samples(self.ats[first:], self.logs[first:], self.hours[first:], self.weekdays[first:])

    def amounts(self, most: int | None = None) -> list[int]:
        return [round(math.exp(log) - 1) for log in self.logs[:most]]

    @property
    def days(self) -> float:
        """How many there are of which some are."""
        return (self.ats[0] - self.ats[-1]) / _DAY + 1


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


def oddity(at: datetime, amount: float, before: Samples) -> Oddity | None:
    """Odd is what is odd among all, and among those of the same weekday, of weekends, and of the same hour.

    `before` is in order of time, the latest first.
    """
    if len(before) < _FEWEST:
        return None
    one = Sample.of(at, amount)
    logs = _as_of_hour(one, before, _as_of_now(one, before))
    found = [_judged(one, amount, *among) for among in _among(one, before, logs)]
    return next((each for each in found if each.strength), found[-1])


def odd(at: datetime, amount: float, before: Samples) -> Oddity | None:
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


def _among(one: Sample, before: Samples, logs: list[float]) -> Iterator[tuple[Samples, list[float]]]:
    """All, and those of its kind of day: who is odd among either is odd."""
    yield before, logs
    kind = _of_its_kind(one, before, logs)
    if kind is not None:
        yield kind


def _most_alike(one: Sample, before: Samples, logs: list[float]) -> list[float]:
    """The last of those that `_alike` has, without all the others: who is like them is not odd."""
    alike = _of_weekday(one, before, logs)
    if len(alike) > 1:
        return alike
    return [part for part in _alike(one, before, logs) if len(part) >= _TO_TELL][-1]


def _judged(one: Sample, amount: float, before: Samples, logs: list[float]) -> Oddity:
    """`logs` are those of `before`, as they would be now."""
    alike = list(_alike(one, before, logs))
    is_fixed = _is_fixed(logs)
    # How far a few differ is told by all of them, if they are many.
    few = _Usual.of(logs).spread if len(logs) >= MANY else None
    parts = [_Usual.of(part, is_fixed=is_fixed, few=few) for part in alike]
    scores = [part.score(one.log) for part in parts]
    is_odd = all(score > 0 for score in scores) or all(score < 0 for score in scores)
    # How far it is from what is usual is told by those that are most alike, if they are more than two.
    usual = [part for part, of_part in zip(parts, alike, strict=True) if len(of_part) >= _TO_TELL][-1]
    is_odd = is_odd and not _has_been(one, before)
    return Oddity(amount, math.exp(usual.middle) - 1, min(scores, key=abs) if is_odd else 0.0)


def _has_been(one: Sample, before: Samples) -> bool:
    """Whether one of several a day was like that on other days.

    Who has nothing to do most of the time has much to do when a day's delivery is there, an hour earlier or later.
    """
    if len(before) < 2 * before.days:
        return False
    hours = {(one.at.hour + shift) % 24 for shift in (-1, 0, 1)}
    of_weekend = is_weekend(one.at)
    alike = [
        at.date()
        for at, log, hour, weekday in zip(before.ats, before.logs, before.hours, before.weekdays, strict=True)
        if abs(log - one.log) < _LIKE and hour in hours and (weekday in _WEEKEND) == of_weekend
    ]
    return len(set(alike)) >= _BEFORE


def band(at: datetime, before: Samples) -> tuple[float, float, float] | None:
    """Between which amounts nothing is odd at a moment, and the middle of them; `before` has the latest first."""
    if len(before) < _FEWEST:
        return None
    one = Sample.of(at, 0.0)
    usual = _Usual.of([*_among(one, before, _as_of_hour(one, before, _as_of_now(one, before)))][-1][1])
    reach = max(_ODD_SCORE * usual.spread, _ODD_RATIO)
    low, high = (math.exp(usual.middle + side * reach) - 1 for side in (-1, 1))
    return max(0.0, low), math.exp(usual.middle) - 1, high


def _as_of_now(one: Sample, before: Samples) -> list[float]:
    """What grows, or shrinks, as it would be now: half of a table that has doubled is as much as it once was."""
    logs, ats = before.logs, before.ats
    if len(logs) < _TO_GROW or ats[0] - ats[-1] < _WEEKS:
        return logs
    half, quarter = len(logs) // 2, len(logs) // 4
    grown = median(logs[:half]) - median(logs[half:])
    time = ats[quarter] - ats[half + quarter]
    if abs(grown) < _LEAST_SPREAD or time <= _NO_TIME:
        return logs
    return [log + grown * ((one.at - at) / time) for log, at in zip(logs, ats, strict=True)]


def _as_of_hour(one: Sample, before: Samples, logs: list[float]) -> list[float]:
    """Where there are several a day, each as it would be at this hour: a night is no quiet noon."""
    hours = before.hours
    if len(logs) < 2 * before.days or hours.count(one.at.hour) < _OF_AN_HOUR:
        return logs
    by_hour: list[list[float]] = [[] for _ in range(24)]
    for hour, log in zip(hours, logs, strict=True):
        by_hour[hour].append(log)
    usual = median(by_hour[one.at.hour])
    # Of an hour that was rarely seen nothing is known but the amount itself.
    shift = [usual - median(of_hour) if len(of_hour) >= _OF_AN_HOUR else 0.0 for of_hour in by_hour]
    return [log + shift[hour] for hour, log in zip(hours, logs, strict=True)]


def _of_its_kind(one: Sample, before: Samples, logs: list[float]) -> tuple[Samples, list[float]] | None:
    """Those of weekends alone, or of the days between alone, where the two are not alike.

    What is usual on a Wednesday is odd on a Sunday then, and as little as on a Sunday is odd on a Wednesday.
    """
    days = _days_apart(before, logs)
    if days is None:
        return None
    is_there = one.at.weekday() in days
    kind = [(weekday in days) == is_there for weekday in before.weekdays]
    return Samples.at(list(compress(before.ats, kind)), list(compress(before.logs, kind))), list(compress(logs, kind))


def _days_apart(before: Samples, logs: list[float]) -> tuple[int, int] | None:
    """Two days in a row that are not like the others. A weekend is counted on the day after, or it is on other days."""
    weekdays = before.weekdays
    found: tuple[float, tuple[int, int]] | None = None
    for first in range(7):
        days = (first, (first + 1) % 7)
        kind = [number for number, weekday in enumerate(weekdays) if weekday in days]
        if (
            len(kind) < _TO_TELL
            or len(before) - len(kind) < _FEWEST
            or before.ats[kind[0]] - before.ats[kind[-1]] < _WEEK
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


def _alike(one: Sample, before: Samples, logs: list[float]) -> Iterator[list[float]]:
    """The most alike last."""
    yield logs
    weekday = one.at.weekday()
    hours = {(one.at.hour + shift) % 24 for shift in (-1, 0, 1)}
    of_weekend = weekday in _WEEKEND
    for part, fewest in (
        ([log for log, hour in zip(logs, before.hours, strict=True) if hour in hours], 3),
        ([log for log, day in zip(logs, before.weekdays, strict=True) if (day in _WEEKEND) == of_weekend], 2),
        (_of_weekday(one, before, logs), 2),
    ):
        if len(part) >= fewest:
            yield part


def _of_weekday(one: Sample, before: Samples, logs: list[float]) -> list[float]:
    """Those of the same weekday in other weeks: the hours before it on the same day may be as bad as it is."""
    weekday, until = one.at.weekday(), one.at - _DAY
    return [
        log for log, day, at in zip(logs, before.weekdays, before.ats, strict=True) if day == weekday and at < until
    ]


def _is_fixed(logs: Sequence[float]) -> bool:
    """Whether it has always been the same, one row for each of twelve regions: that is no number by chance."""
    return len(logs) >= MANY and logs[0] > 0 and max(logs) - min(logs) < _SAME


class _Usual(msgspec.Struct, frozen=True):
    """On the scale of logarithms."""

    middle: float
    spread: float

    @classmethod
    def of(cls, logs: Sequence[float], *, is_fixed: bool = False, few: float | None = None) -> "_Usual":
        """`few` is how far they differ at least, if they are few and it is known."""
        middle = median(logs)
        # Of few samples the spread is a guess; and small numbers differ by chance, by their square root.
        guess = 2 * _LEAST_SPREAD if few is None else min(few, 2 * _LEAST_SPREAD)
        least = _LEAST_SPREAD if len(logs) >= MANY else guess
        chance = 0.0 if is_fixed else math.exp(-max(middle, 0.0) / 2)
        return cls(middle, max(_SPREAD * median([abs(log - middle) for log in logs]), least, chance))

    def score(self, log: float) -> float:
        return (log - self.middle) / self.spread


class Cadence(msgspec.Struct, frozen=True):
    """How often something comes."""

    interval: timedelta
    gaps: list[timedelta]

    @property
    def slack(self) -> timedelta:
        deviation = sorted([abs(gap - self.interval) for gap in self.gaps])[len(self.gaps) // 2]
        slack = max(4 * deviation, self.interval * 0.01, timedelta(minutes=5))
        return min(slack, self.interval * 0.5)

    def is_late(self, last: datetime, now: datetime) -> bool:
        time = now - last
        return time > self.interval and time > self.interval + self.slack


class Steps(msgspec.Struct, frozen=True):
    """From one moment to the next, in order of time."""

    starts: list[datetime]
    gaps: list[timedelta]

    @classmethod
    def of(cls, moments: Sequence[datetime]) -> "Steps":
        return cls(list(moments[:-1]), [other - one for one, other in pairwise(moments)])

    def cadence(self, after: datetime, number: int) -> Cadence | None:
        """Of so many of the first ones, as it goes after the weekday and the hour of a moment."""
        starts, gaps = self.starts[:number], self.gaps[:number]
        if _NO_TIME in gaps:
            is_one = [gap > _NO_TIME for gap in gaps]
            starts, gaps = list(compress(starts, is_one)), list(compress(gaps, is_one))
        if len(gaps) < _FEWEST:
            return None
        weekday, hour = after.weekday(), after.hour
        if any(one.date() == other.date() for one, other in pairwise(starts)):  # several a day: the hour counts
            is_alike = [start.hour == hour and start.weekday() == weekday for start in starts]
        else:
            is_alike = [start.weekday() == weekday for start in starts]
        alike = list(compress(gaps, is_alike))
        chosen = sorted(alike if len(alike) > 1 else gaps)
        return Cadence(chosen[len(chosen) // 2], chosen)


def cadence(moments: Sequence[datetime], after: datetime) -> Cadence | None:
    """Of what came at these moments, which are sorted."""
    return Steps.of(moments).cadence(after, len(moments) - 1)
