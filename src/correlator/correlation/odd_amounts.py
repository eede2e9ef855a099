"""How much runs wrote, and how long they took, against what is usual for them."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import accumulate, takewhile
from statistics import median
from typing import Final, TypeAlias

from correlator.correlation.case import Case
from correlator.correlation.findings import Findings, OddRuns, Pair
from correlator.correlation.history import Run, Version
from correlator.correlation.ids import Id
from correlator.correlation.past import JobPast, PastRun
from correlator.correlation.usual import Samples, is_weekend, odd

_FEW_ROWS: Final = 20
"""Of so few the bytes say no more than the rows do: both differ by chance."""
_FEWEST: Final = 3
"""Runs that are looked at together."""
_NOTABLE: Final = 0.1
"""Of what is usual for the hour: who differs by less makes no stretch longer."""
_OF_A_KIND: Final = 2
_DAYS: Final = 8
"""That a stretch of hours is compared with."""
_DAY: Final = timedelta(days=1)
_Written: TypeAlias = tuple[PastRun, int]


def find_amounts(case: Case, one: Findings) -> None:
    """How much it wrote, and how long it took."""
    past = case.pasts[one.run.job_id]
    well = None if one.baseline is None else one.baseline.ended_at
    moment = one.run.last_moment
    for version in case.bad.written[one.run.id]:
        for word, amount, before in (
            ("rows", version.row_count, past.rows_before),
            ("bytes", version.byte_size, past.bytes_before),
        ):
            if amount is None or (word == "bytes" and version.row_count is not None and version.row_count < _FEW_ROWS):
                continue
            one.said["amount"].add(version.dataset)
            found = odd(version.at, float(amount), before(version.dataset, moment, well))
            if found is not None and version.dataset not in one.volumes:
                one.volumes[version.dataset] = (word, found)
    if one.run.ended_at is not None and one.run.ended_at >= one.run.started_at:
        seconds = (one.run.ended_at - one.run.started_at).total_seconds()
        one.duration = odd(one.run.ended_at, seconds, past.durations_before(one.run.ended_at))


def find_between(case: Case, pair: Pair) -> None:
    """What was odd about earlier runs, where the last is not."""
    one, before = pair.found, pair.before
    past = case.pasts[one.run.job_id]
    for version in case.bad.written[one.run.id]:
        if version.dataset in one.volumes:
            continue
        written = _between(past, version.dataset, before, one.run)
        former = [each for each in written if each[0].id != one.run.id]
        found = next(_odd_ones(past, version.dataset, before, former), None) or _odd_together(
            past, version.dataset, before, written
        )
        if found is not None:
            one.between[version.dataset] = found


def odd_between(past: JobPast, version: Version, baseline: PastRun, last: Run) -> Iterator[OddRuns]:
    """The odd runs of a job after one of its runs and up to another, the first one first."""
    return _odd_ones(past, version.dataset, baseline, _between(past, version.dataset, baseline, last))


def _odd_ones(past: JobPast, dataset: Id, baseline: PastRun, written: Sequence[_Written]) -> Iterator[OddRuns]:
    for run, rows in written:
        found = odd(run.ended_at, float(rows), past.rows_before(dataset, run.ended_at, baseline.ended_at))
        if found is not None:
            yield OddRuns(run, found)


def _odd_together(past: JobPast, dataset: Id, baseline: PastRun, written: Sequence[_Written]) -> OddRuns | None:
    """The first of some runs that together wrote far more or less than on other days, though none of them is odd.

    Few rows an hour differ by chance; half of them for half a day do not.
    """
    if len(written) < _FEWEST:
        return None
    usual = past.rows_before(dataset, written[0][0].ended_at, baseline.ended_at)
    by_hour: dict[int, list[int]] = {}
    for hour, amount in zip(usual.hours, usual.amounts(), strict=True):
        by_hour.setdefault(hour, []).append(amount)
    if any(run.ended_at.hour not in by_hour for run, _ in written):
        return None
    expected = [median(by_hour[run.ended_at.hour]) for run, _ in written]
    for sign in (-1, 1):
        more = [sign * (rows - of_hour) for (_, rows), of_hour in zip(written, expected, strict=True)]
        first, end = _most([one - _NOTABLE * of_hour for one, of_hour in zip(more, expected, strict=True)])
        if end - first < _FEWEST:
            continue
        stretch = written[first:end]
        at, days = stretch[-1][0].ended_at, _other_days(stretch, usual)
        # A weekend is not judged by the days before it.
        if sum(is_weekend(day) == is_weekend(at) for day in days.ats) < _OF_A_KIND:
            continue
        found = odd(at, float(sum(rows for _, rows in stretch)), days)
        if found is not None:
            return OddRuns(stretch[0][0], found, len(stretch))
    return None


def _between(past: JobPast, dataset: Id, baseline: PastRun, last: Run) -> list[_Written]:
    """What runs that ended well wrote after one of them and up to another, in order of time."""
    first, end = baseline.ended_at, last.last_moment
    latest = takewhile(lambda amount: amount[0].ended_at > first, past.written.get(dataset, ()))
    found = [
        (run, rows) for run, rows, _ in latest if rows is not None and run.ended_at <= end and run.state == "COMPLETE"
    ]
    return found[::-1]


def _most(values: Sequence[float]) -> tuple[int, int]:
    """From where to where the sum is greatest."""
    sums = [0.0, *accumulate(values)]
    best, least, found = 0.0, 0, (0, 0)
    for end, total in enumerate(sums):
        if total < sums[least]:
            least = end
        if total - sums[least] > best:
            best, found = total - sums[least], (least, end)
    return found


def _other_days(stretch: Sequence[_Written], usual: Samples) -> Samples:
    """What was written at the same time of the days before, where as many runs did; the latest first."""
    since, until = stretch[0][0].started_at, stretch[-1][0].ended_at
    slack = (until - since) / len(stretch) / 2
    written = list(zip(usual.ats, usual.amounts(), strict=True))
    found = []
    for days in range(1, _DAYS + 1):
        first, last = since - days * _DAY, until - days * _DAY + slack
        amounts = [amount for at, amount in written if first <= at <= last]
        if len(amounts) == len(stretch):
            found.append((last, float(sum(amounts))))
    return Samples.of(found)
