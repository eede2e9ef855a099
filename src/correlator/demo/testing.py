"""The tests that somebody would write for a table, and where they run."""

from typing import Final

from correlator.demo.luck import Luck, number_of
from correlator.demo.parts import DAY, HOUR, Check, Company, Manner, Name, Table, Test, TestKind, Tool
from correlator.demo.world import Content

_NUMBERS: Final = ("double", "decimal(18,2)", "bigint", "integer")
_LEAST_SHARE: Final = 0.45
_GREATEST_SHARE: Final = 1.9
"""How far from its quietest and busiest usual moment a table may be."""
_DAYS_GRACE_HOURS: Final = 13
_HOURS_GRACE_HOURS: Final = 5


def likely_tests(company: Company, table: str, usual: Content) -> list[Test]:
    job = company.producers[table]
    swing = company.diurnal if job.period < DAY else 0.0
    quiet, busy = min(company.weekdays) * (1 - swing), max(company.weekdays) * (1 + swing)
    if job.groups:
        quiet = busy = 1.0
    tests = [
        Test(
            TestKind.ROWS, low=round(usual.rows * quiet * _LEAST_SHARE), high=round(usual.rows * busy * _GREATEST_SHARE)
        ),
        Test(TestKind.COLUMNS),
        Test(TestKind.FRESHNESS, high=allowed_hours(company, table)),
        Test(TestKind.UNIQUE, job.fields[0].name),
    ]
    for each in job.fields:
        tests.append(Test(TestKind.NOT_NULL, each.name, high=each.nulls * 2 + 0.05 if each.nulls else 0.0))
        if each.type in _NUMBERS and each is not job.fields[0]:
            tests.append(Test(TestKind.RANGE, each.name, low=0.3, high=3.0, unit=_usual_mean(each.name)))
        if each is not job.fields[0] and each.operation == "identity":
            tests.append(Test(TestKind.TYPE, each.name, type=each.type))
    return tests


def _usual_mean(column: str) -> float:
    """Some number, but always the same."""
    return 12 + number_of(column) % 4000 / 10


def allowed_hours(company: Company, table: str) -> float:
    """How old the newest data may be: as old as it usually is when somebody looks, and half a day more."""
    job = company.producers[table]
    age = lookout(company, table) - birth(company, table)
    if job.period < DAY:
        return float(round(age / HOUR) + _HOURS_GRACE_HOURS + 1)
    return float(round(age / HOUR) + _DAYS_GRACE_HOURS)


def birth(company: Company, table: str) -> float:
    """Seconds into its period at which the newest data of a table is made."""
    job = company.producers[table]
    if job.is_extract:
        return company.pipelines[job.pipeline].offset
    driving = next(each.table for each in job.inputs if each.role == "driving")
    if company.producers[driving].period < job.period:
        return company.pipelines[job.pipeline].offset - HOUR
    return birth(company, driving)


def end(company: Company, pipeline: str) -> float:
    """Seconds into its period at which a pipeline is usually done, be it a slow day."""
    of = company.pipelines[pipeline]
    done: dict[str, float] = {}
    for key in of.jobs:
        job = company.jobs[key]
        ready = max((done[each] for each in company.upstream_within(job)), default=of.offset)
        done[key] = ready + job.usual_seconds * 1.8 + 30
    return max(done.values(), default=of.offset)


def lookout(company: Company, table: str) -> float:
    """Seconds into its period at which those look who look on a schedule of their own."""
    job = company.producers[table]
    return end(company, job.pipeline) + (300 if job.period < DAY else 1.5 * HOUR)


def all_tests(company: Company, table: str) -> list[Test]:
    return [test for check in company.checks.values() if check.table == table for test in check.tests]


def add_test(company: Company, table: str, test: Test, manner: Manner) -> None:
    """Put a test where its like would stand, unless the table has it."""
    if any(each.kind is test.kind and each.column == test.column for each in all_tests(company, table)):
        return
    for check in company.checks.values():
        if check.table == table and check.manner == manner:
            check.tests.append(test)
            return
    check = new_check(company, table, manner, [test])
    company.checks[check.key] = check


def manner_for(company: Company, random: Luck, table: str, test: Test) -> Manner:
    if test.kind is TestKind.FRESHNESS:
        return "schedule"  # nobody notices what did not happen by waiting for it to happen
    job = company.producers[table]
    match job.tool:
        case Tool.DBT:
            return "dbt"
        case Tool.AIRFLOW:
            return random.choice(("task", "schedule"))
        case _:
            return random.choice(("schedule", "own_output", "schedule"))


def new_check(company: Company, table: str, manner: Manner, tests: list[Test]) -> Check:
    job = company.producers[table]
    return Check(
        key=f"{table}:{manner}",
        table=table,
        manner=manner,
        told_as=_name(company, company.tables[table], manner),
        tests=tests,
        period=job.period,
        offset=lookout(company, table),
    )


def _name(company: Company, table: Table, manner: Manner) -> Name:
    job = company.producers[table.key]
    match manner:
        case "dbt":
            return Name(job.told_as.namespace, job.told_as.name)
        case "task":
            dag = company.pipelines[job.pipeline].told_as
            return Name(dag.namespace, f"{dag.name}.check_{table.key}")
        case "own_output":
            return job.told_as
        case "schedule":
            return Name(company.flavour.get("checks_namespace", "great_expectations"), f"nightly.{table.key}_suite")
