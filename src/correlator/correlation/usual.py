"""What is usual: how much, how long and how often, judged by what was before and not by what should be."""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Final

import msgspec

_FEWEST: Final = 4
"""Of so few nothing can be said."""
_SAME_HOUR: Final = 3
_SPREAD: Final = 1.4826
"""Makes of the median deviation what the standard deviation is for a normal distribution."""
_LEAST_SPREAD: Final = 0.04
"""On the scale of logarithms: amounts that differ by less are the same."""


class Sample(msgspec.Struct, frozen=True):
    at: datetime
    amount: float


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
        if abs(self.score) < 4 or abs(self.log_ratio) < 0.1:
            return 0.0
        return min(1.0, 0.35 + abs(self.log_ratio) / math.log(2) * 0.65)


def oddity(at: datetime, amount: float, before: Sequence[Sample]) -> Oddity | None:
    """Compared with the same weekday or hour where that is how the amounts go, else with all."""
    if len(before) < _FEWEST:
        return None
    alike = _alike(at, before)
    logs = [math.log(sample.amount + 1) for sample in alike]
    middle = median(logs)
    spread = max(_SPREAD * median(abs(log - middle) for log in logs), _LEAST_SPREAD)
    score = (math.log(amount + 1) - middle) / spread
    return Oddity(amount, math.exp(middle) - 1, score)


def _alike(at: datetime, before: Sequence[Sample]) -> Sequence[Sample]:
    weekday = [sample for sample in before if sample.at.weekday() == at.weekday()]
    hour = [sample for sample in before if abs((sample.at.hour - at.hour + 12) % 24 - 12) <= 1]
    for part in ([sample for sample in weekday if sample in hour], weekday, hour):
        if _SAME_HOUR <= len(part) < len(before) and _spread(part) < 0.7 * _spread(before):
            return part
    return before


def _spread(samples: Sequence[Sample]) -> float:
    logs = [math.log(sample.amount + 1) for sample in samples]
    middle = median(logs)
    return max(median(abs(log - middle) for log in logs), 1e-3)


class Cadence(msgspec.Struct, frozen=True):
    """How often something comes."""

    interval: timedelta
    slack: timedelta

    def is_late(self, last: datetime, now: datetime) -> bool:
        return now > last + self.interval + self.slack


def cadence(moments: Sequence[datetime], after: datetime) -> Cadence | None:
    """Of what came at these moments, which are sorted; as it goes after the weekday and the hour of the last one."""
    gaps = [(one, other - one) for one, other in zip(moments, moments[1:], strict=False) if other > one]
    if len(gaps) < _FEWEST:
        return None
    alike = [gap for start, gap in gaps if start.weekday() == after.weekday()]
    if len({start.date() for start, _ in gaps}) < len(gaps):  # several a day: the hour counts
        alike = [gap for start, gap in gaps if start.weekday() == after.weekday() and start.hour == after.hour]
    chosen = alike if len(alike) >= 2 else [gap for _, gap in gaps]
    middle = median(chosen)
    deviation = median(abs(gap - middle) for gap in chosen)
    slack = max(4 * deviation, middle * 0.03, timedelta(minutes=5))
    return Cadence(middle, min(slack, middle * 0.5))
