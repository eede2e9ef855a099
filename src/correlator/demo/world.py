"""The data itself: what a table holds, what a job makes of what it reads, what a test finds.

Nothing here knows of events. What a job writes follows from what it read, from its own code and from the moment. Each
aspect of a table that is not as it should be carries the reason why, so that the truth about a failed test is known.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from correlator.demo.faults import (
    Dropped,
    Duplicated,
    Effect,
    Fault,
    Nulled,
    Renamed,
    Retyped,
    Scaled,
    Shifted,
)
from correlator.demo.parts import DAY, Company, Field, Job, Test, TestKind

_TINY: Final = 1e-9
STALE_LOOKUP_NULLS: Final = 0.2
"""The share of rows whose keys are too new for a table that is a period late."""
UNREADABLE_NULLS: Final = 0.9
"""The share of values that a changed type makes unreadable."""


@dataclass(frozen=True, slots=True)
class Why:
    """A fault, the run that it struck, and how many jobs lie between that and here."""

    fault: Fault
    job: str
    run_id: str | None
    onset_run_id: str | None
    hops: int = 0

    def further(self) -> "Why":
        return Why(self.fault, self.job, self.run_id, self.onset_run_id, self.hops + 1)


@dataclass(slots=True)
class Column:
    type: str
    nulls: float = 0.0
    value: float = 1.0
    """The mean of its values as a share of the usual."""
    nulls_why: Why | None = None
    value_why: Why | None = None
    type_why: Why | None = None


@dataclass(slots=True)
class Content:
    """What is in a table after one write."""

    rows: float
    newest: float
    """The moment of its newest data."""
    columns: dict[str, Column]
    coverage: float = 1.0
    """The rows that are there as a share of those that ought to be."""
    duplicates: float = 0.0
    extra: tuple[str, ...] = ()
    """Columns that somebody added and nobody uses."""
    gone: dict[str, Why] = field(default_factory=dict)
    """Columns that ought to be there."""
    rows_why: Why | None = None
    duplicates_why: Why | None = None
    newest_why: Why | None = None
    is_sound: bool = True
    """Whether nothing at all is wrong with it."""


class BrokenColumnError(Exception):
    """A job that names a column cannot do without it."""

    def __init__(self, column: str, why: Why, *, is_gone: bool) -> None:
        super().__init__(column)
        self.column = column
        self.why = why
        self.is_gone = is_gone


def usual_columns(job: Job) -> dict[str, Column]:
    return {each.name: Column(each.type, each.nulls) for each in job.fields}


def extracted(job: Job, columns: dict[str, Column], now: float, share: float, extra: tuple[str, ...]) -> Content:
    """What a source has to give; `share` is how busy the moment is."""
    return Content(job.usual_rows * share, now, columns, extra=extra)


def derived(
    job: Job, columns: dict[str, Column], reads: Sequence[Content], noise: float, extra: tuple[str, ...]
) -> Content:
    """What a job writes, given what it read; `columns` are what it writes when all is well."""
    first = reads[0]
    if job.strictness == "passes" and first.extra:
        extra = tuple(dict.fromkeys((*first.extra, *extra)))
    if all(each.is_sound for each in reads):
        rows = sum(each.rows for each, of in zip(reads, job.inputs, strict=True) if of.role in ("driving", "union"))
        newest = max(e.newest for e, of in zip(reads, job.inputs, strict=True) if of.role in ("driving", "union"))
        rows = job.groups or rows * job.selectivity
        return Content(rows * noise, newest, columns, extra=extra)
    return _derived_from_unsound(job, reads, noise, extra)


def _derived_from_unsound(job: Job, reads: Sequence[Content], noise: float, extra: tuple[str, ...]) -> Content:
    bases = [each for each, of in zip(reads, job.inputs, strict=True) if of.role in ("driving", "union")]
    natural = sum(each.rows / max(each.coverage, _TINY) for each in bases)
    rows = sum(each.rows for each in bases)
    coverage = rows / natural if natural else 0.0
    duplicates = _mean([(each.duplicates, each.rows) for each in bases])
    newest = max(bases, key=lambda each: each.newest)
    rows_why = _strongest((abs(each.coverage - 1), each.rows_why) for each in bases)
    duplicates_why = _strongest((each.duplicates, each.duplicates_why) for each in bases)
    for each, of in zip(reads, job.inputs, strict=True):
        if of.role == "filter" and each.coverage < 1:
            if 1 - each.coverage > abs(coverage - 1):
                rows_why = each.rows_why
            coverage *= each.coverage
        if of.role in ("lookup", "filter") and each.duplicates:
            # A key that is there twice on one side of a join doubles the rows of the other.
            coverage *= 1 + each.duplicates
            duplicates = duplicates + each.duplicates
            rows_why = rows_why or each.duplicates_why
            duplicates_why = duplicates_why or each.duplicates_why
    columns: dict[str, Column] = {}
    gone: dict[str, Why] = {}
    for wanted in job.fields:
        column = _derived_column(job, wanted, reads)
        if isinstance(column, Why):
            gone[wanted.name] = column
        else:
            columns[wanted.name] = column
    if job.groups:
        left = 1 - (1 - min(coverage, 1.0)) ** 8
        for wanted in job.fields:
            if wanted.operation in ("sum", "count") and wanted.name in columns:
                share = coverage / max(left, _TINY)
                columns[wanted.name] = _added_up(wanted, columns[wanted.name], share, rows_why)
        rows, coverage, duplicates, duplicates_why = job.groups * left, left, 0.0, None
    else:
        rows = natural * coverage * job.selectivity
    return Content(
        rows * noise,
        newest.newest,
        columns,
        coverage=coverage,
        duplicates=duplicates,
        extra=extra,
        gone=gone,
        rows_why=_further(rows_why),
        duplicates_why=_further(duplicates_why),
        newest_why=_further(newest.newest_why),
        is_sound=False,
    )


def _derived_column(job: Job, wanted: Field, reads: Sequence[Content]) -> Column | Why:
    """The column as the job writes it, or why it cannot."""
    if wanted.source is None:
        return Column(wanted.type, wanted.nulls)
    index, name = wanted.source
    read, role = reads[index], job.inputs[index].role
    found = read.columns.get(name)
    if found is None:
        why = read.gone.get(name)
        if why is None:
            return Column(wanted.type, wanted.nulls)
        if job.strictness == "fails":
            raise BrokenColumnError(name, why.further(), is_gone=True)
        if job.strictness == "passes" and wanted.operation == "identity":
            return why.further()
        return Column(wanted.type, 1.0, nulls_why=why.further())
    column = Column(
        wanted.type,
        max(found.nulls, wanted.nulls),
        found.value,
        _further(found.nulls_why),
        _further(found.value_why),
    )
    if found.type_why is not None:
        why = found.type_why
        if job.strictness == "fails":
            raise BrokenColumnError(name, why.further(), is_gone=False)
        if job.strictness == "passes" and wanted.operation == "identity":
            column.type, column.type_why = found.type, why.further()
        else:
            column.nulls, column.nulls_why = max(column.nulls, UNREADABLE_NULLS), why.further()
    if role == "lookup":
        if read.coverage < 1:
            unmatched = 1 - read.coverage
            if unmatched > column.nulls - wanted.nulls:
                column.nulls_why = _further(read.rows_why) or column.nulls_why
            column.nulls = 1 - (1 - column.nulls) * read.coverage
        if read.newest_why is not None:
            column.nulls = 1 - (1 - column.nulls) * (1 - STALE_LOOKUP_NULLS)
            column.nulls_why = column.nulls_why or _further(read.newest_why)
    return column


def _added_up(wanted: Field, column: Column, share: float, rows_why: Why | None) -> Column:
    """A column of sums: fewer rows make a smaller sum, and a null adds nothing."""
    counted = 1 - max(column.nulls - wanted.nulls, 0.0)
    if wanted.operation == "count":
        column.value, column.value_why = 1.0, None
    value_why = _strongest(
        [
            (abs(math.log(max(share, 1e-6))), _further(rows_why)),
            (abs(math.log(max(column.value, 1e-6))), column.value_why),
            (abs(math.log(max(counted, 1e-6))), column.nulls_why),
        ]
    )
    is_all_null = column.nulls > 1 - _TINY
    return Column(
        column.type,
        1.0 if is_all_null else wanted.nulls,
        column.value * share * counted,
        nulls_why=column.nulls_why if is_all_null else None,
        value_why=value_why,
        type_why=column.type_why,
    )


def _further(why: Why | None) -> Why | None:
    return None if why is None else why.further()


def _strongest(reasons: Iterable[tuple[float, Why | None]]) -> Why | None:
    known = [(strength, why) for strength, why in reasons if why is not None and strength > _TINY]
    return max(known, key=lambda each: each[0])[1] if known else None


def _mean(weighted: Iterable[tuple[float, float]]) -> float:
    pairs = list(weighted)
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total else 0.0


def together(contents: Sequence[Content], expected: int, gap_why: Why | None) -> Content:
    """Several small writes, read as one: the hours of a day."""
    last = contents[-1]
    rows = sum(each.rows for each in contents)
    if len(contents) >= expected and all(each.is_sound for each in contents):
        return Content(rows, last.newest, last.columns, extra=last.extra)
    natural = sum(each.rows / max(each.coverage, _TINY) for each in contents) * max(expected / len(contents), 1.0)
    reasons = [(abs(each.coverage - 1), each.rows_why) for each in contents]
    reasons.append((expected - len(contents), gap_why))
    gone = {name: why for each in contents for name, why in each.gone.items()}
    names = dict.fromkeys(name for each in contents for name in each.columns if name not in gone)
    coverage = rows / natural if natural else 0.0
    duplicates_why = _strongest((each.duplicates, each.duplicates_why) for each in contents)
    whole = Content(
        rows,
        last.newest,
        {name: _column_of_all(name, contents) for name in names},
        coverage=coverage,
        duplicates=_mean((each.duplicates, each.rows) for each in contents),
        extra=last.extra,
        gone=gone,
        rows_why=_strongest(reasons),
        duplicates_why=duplicates_why,
        newest_why=last.newest_why,
        is_sound=False,
    )
    if whole.rows_why is None:
        whole.coverage = 1.0  # nobody's fault: the history has only begun
    return whole


def _column_of_all(name: str, contents: Sequence[Content]) -> Column:
    present = [(each.columns[name], each.rows) for each in contents if name in each.columns]
    last = present[-1][0]
    columns = [column for column, _ in present]
    if all(c.nulls_why is None and c.value_why is None and c.type_why is None for c in columns):
        return last
    return Column(
        next((c.type for c in columns if c.type_why is not None), last.type),
        _mean((column.nulls, rows) for column, rows in present),
        _mean((column.value, rows) for column, rows in present),
        _strongest((c.nulls, c.nulls_why) for c in columns),
        _strongest((abs(c.value - 1), c.value_why) for c in columns),
        next((c.type_why for c in columns if c.type_why is not None), None),
    )


def not_refreshed(content: Content, why: Why) -> Content:
    """What a reader finds where something newer ought to be."""
    return replace(content, newest_why=content.newest_why or why, is_sound=False)


def struck(content: Content, effects: Sequence[Effect], why: Why) -> Content:
    """What a job writes when a fault is at work in it."""
    content = replace(content, columns=dict(content.columns), gone=dict(content.gone), is_sound=False)
    for effect in effects:
        match effect:
            case Scaled(factor):
                content.rows *= factor
                content.coverage *= factor
                content.rows_why = why
            case Duplicated(share):
                content.rows *= 1 + share
                content.coverage *= 1 + share
                content.duplicates += share
                content.rows_why = content.duplicates_why = why
            case Nulled(column, share) if column in content.columns:
                old = content.columns[column]
                content.columns[column] = replace(old, nulls=max(old.nulls, share), nulls_why=why)
            case Shifted(column, factor) if column in content.columns:
                old = content.columns[column]
                content.columns[column] = replace(old, value=old.value * factor, value_why=why)
            case Dropped(column) if column in content.columns:
                del content.columns[column]
                content.gone[column] = why
            case Renamed(column, to) if column in content.columns:
                old = content.columns.pop(column)
                content.columns[to] = replace(old)
                content.gone[column] = why
            case Retyped(column, to) if column in content.columns:
                content.columns[column] = replace(content.columns[column], type=to, type_why=why)
            case _:
                pass
    return content


# What tests find


@dataclass(frozen=True, slots=True)
class Finding:
    """What a test found, and why it is so if that is bad."""

    passed: bool
    expected: str
    actual: str
    message: str = ""
    why: Why | None = None


def look(test: Test, content: Content, now: float, overdue: Why | None) -> Finding:
    """`overdue` is why the table was not written again when it should have been."""
    match test.kind:
        case TestKind.ROWS:
            rows = round(content.rows)
            passed = test.low <= content.rows <= test.high
            words = "" if passed else f"{rows} rows, expected {test.low:.0f} to {test.high:.0f}"
            return Finding(passed, f"{test.low:.0f}..{test.high:.0f}", str(rows), words, content.rows_why)
        case TestKind.FRESHNESS:
            hours = (now - content.newest) / 3600
            passed = hours <= test.high
            words = "" if passed else f"the newest row is {hours:.1f} hours old, at most {test.high:.0f} are allowed"
            why = content.newest_why or overdue
            return Finding(passed, f"<= {test.high:.0f} h", f"{hours:.1f} h", words, why)
        case TestKind.UNIQUE:
            repeated = round(content.rows * content.duplicates / (1 + content.duplicates))
            why = content.duplicates_why
            if test.column and test.column not in content.columns:
                return _on_missing(test, content)
            words = f"Got {repeated} results, configured to fail if != 0" if repeated else ""
            return Finding(repeated == 0, "0", str(repeated), words, why)
        case TestKind.COLUMNS:
            gone = sorted(content.gone)
            words = f"missing columns: {', '.join(gone)}" if gone else ""
            why = content.gone[gone[0]] if gone else None
            return Finding(not gone, "all columns", words or "all columns", words, why)
        case TestKind.NOT_NULL | TestKind.RANGE | TestKind.TYPE:
            return _look_at_column(test, content)


def _look_at_column(test: Test, content: Content) -> Finding:
    column = content.columns.get(test.column)
    if column is None:
        return _on_missing(test, content)
    if test.kind is TestKind.NOT_NULL:
        passed = column.nulls <= test.high
        count = round(content.rows * column.nulls)
        words = "" if passed else f"Got {count} results, configured to fail if != 0"
        return Finding(passed, "0" if test.high == 0 else f"<= {test.high:.0%}", str(count), words, column.nulls_why)
    if test.kind is TestKind.TYPE:
        passed = column.type == test.type
        words = "" if passed else f"{test.column} is {column.type}, expected {test.type}"
        return Finding(passed, test.type, column.type, words, column.type_why)
    expected = f"{test.low * test.unit:.2f}..{test.high * test.unit:.2f}"
    if column.nulls > 1 - _TINY:
        return Finding(False, expected, "null", f"{test.column} has no values", column.nulls_why)
    passed = test.low <= column.value <= test.high
    actual = f"{column.value * test.unit:.2f}"
    words = "" if passed else f"the mean of {test.column} is {actual}, expected {expected}"
    return Finding(passed, expected, actual, words, column.value_why)


def _on_missing(test: Test, content: Content) -> Finding:
    words = f'column "{test.column}" does not exist'
    return Finding(False, test.column, "", words, content.gone.get(test.column))


# When all is well


def usual_contents(company: Company) -> dict[str, Content]:
    """What every table holds at a usual moment, its newest data zero seconds old."""
    contents: dict[str, Content] = {}
    for job in company.jobs.values():
        columns = usual_columns(job)
        if job.is_extract:
            contents[job.output] = extracted(job, columns, 0.0, 1.0, ())
        else:
            reads = [usual_read(company, job, each.table, contents[each.table]) for each in job.inputs]
            contents[job.output] = derived(job, columns, reads, 1.0, ())
    return contents


def usual_read(company: Company, job: Job, table: str, content: Content) -> Content:
    """A daily job reads a day of what is written hourly."""
    times = company.producers[table].period
    if times >= job.period:
        return content
    return replace(content, rows=content.rows * (job.period / times))


def season(company: Company, now: float, period: int) -> float:
    """How busy a moment is."""
    day = int(now // DAY)
    share = company.weekdays[(day + 3) % 7]  # the first of January 1970 was a Thursday
    if period < DAY:
        share *= 1 + company.diurnal * math.sin((now % DAY) / DAY * 2 * math.pi - math.pi / 2)
    return share
