"""How much runs wrote, and how long they took, against what is usual for them."""

from collections.abc import Iterator

from correlator.correlation.case import Case
from correlator.correlation.findings import Findings, Pair
from correlator.correlation.history import Run, Version
from correlator.correlation.past import JobPast, PastRun
from correlator.correlation.usual import Oddity, odd


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
            if amount is None:
                continue
            one.said["amount"].add(version.dataset)
            found = odd(version.at, float(amount), before(version.dataset, moment, well))
            if found is not None and version.dataset not in one.volumes:
                one.volumes[version.dataset] = (word, found)
    if one.run.ended_at is not None:
        seconds = (one.run.ended_at - one.run.started_at).total_seconds()
        one.duration = odd(one.run.ended_at, seconds, past.durations_before(one.run.ended_at))


def find_between(case: Case, pair: Pair) -> None:
    """What was odd about earlier runs, where the last is not."""
    one, before = pair.found, pair.before
    for version in case.bad.written[one.run.id]:
        if version.dataset in one.volumes:
            continue
        found = next(odd_between(case.pasts[one.run.job_id], version, before, one.run), None)
        if found is not None:
            one.between[version.dataset] = found


def odd_between(past: JobPast, version: Version, baseline: PastRun, last: Run) -> Iterator[tuple[PastRun, Oddity]]:
    """The odd runs of a job after one of its runs and up to another, the first one first."""
    first, end = baseline.ended_at, last.last_moment
    between = [
        (run, rows)
        for run, rows, _ in past.written.get(version.dataset, ())
        if rows is not None and first < run.ended_at <= end and run.state == "COMPLETE"
    ]
    for run, rows in sorted(between, key=lambda one: (one[0].ended_at, one[0].id)):
        found = odd(run.ended_at, float(rows), past.rows_before(version.dataset, run.ended_at, first))
        if found is not None:
            yield run, found
