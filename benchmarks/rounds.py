"""Timing by interleaved rounds: every contender runs once in each, so that a noisy minute hits all of them alike."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Contender(msgspec.Struct, Generic[T], frozen=True):
    work: Callable[[T], object]
    """Done to one item after the other; results are dropped."""
    items: Callable[[], Sequence[T]]
    """Made anew for every round, before the clock starts."""


def microseconds(contenders: Mapping[str, Contender[T]], rounds: int) -> dict[str, list[float]]:
    """For each contender the time per item in every round, after one round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, contender in contenders.items():
            items, work = contender.items(), contender.work
            gc.collect()
            started = time.perf_counter()
            for item in items:
                work(item)
            elapsed = time.perf_counter() - started
            if number > 0:
                times[name].append(elapsed * 1e6 / len(items))
    return times


def table(times: Mapping[str, list[float]], baseline: str, unit: str) -> str:
    """Medians, the least, and the median as a multiple of the baseline's."""
    base = statistics.median(times[baseline])
    width = max(map(len, times))
    lines = [f"{'':{width}}  {unit:>14}  {'least':>9}  {'ratio':>7}"]
    for name, values in times.items():
        median = statistics.median(values)
        lines.append(f"{name:{width}}  {median:>14.2f}  {min(values):>9.2f}  {median / base:>7.2f}")
    return "\n".join(lines)
