"""Where a fault may strike so that a test notices it, so many jobs further down."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from correlator.demo.faults import (
    Dropped,
    Duplicated,
    Effect,
    Fault,
    FaultKind,
    Nulled,
    Renamed,
    Retyped,
    Scaled,
    Shifted,
)
from correlator.demo.luck import Luck
from correlator.demo.parts import DAY, HOUR, Company, Job, Test, Tool
from correlator.demo.testing import add_test, likely_tests, manner_for
from correlator.demo.world import (
    BrokenColumnError,
    Content,
    Why,
    derived,
    look,
    struck,
    usual_columns,
    usual_contents,
    usual_read,
)

_TRIES: Final = 60
_SHARE_OF_SILENCED: Final = 0.5
"""How often nobody but the chosen test looks: then the nearest failure is as far from its root as was asked for."""


@dataclass(frozen=True)
class Planted:
    fault: Fault
    table: str
    test: Test
    hops: int


def plant(company: Company, random: Luck, kind: FaultKind, hops: int | None, begins: float) -> Planted | None:
    """A fault of this kind at some time of the day that begins, and a test that notices it `hops` further down.

    The test is added to the company if it is not there yet. None if no place was found, which in a small company
    may be so for a distance.
    """
    usual = usual_contents(company)
    jobs = list(company.jobs.values())
    for _ in range(_TRIES):
        job = random.choice(jobs)
        fault = _fault(random, kind, job, begins)
        if fault is None:
            continue
        found = [
            (table, test, why.hops)
            for table, test, why in _noticed(company, usual, fault)
            if hops is None or why.hops == hops
        ]
        if not found:
            continue
        table, test, distance = random.choice(found)
        if random.has(_SHARE_OF_SILENCED):
            _silence(company, usual, fault, distance)
        is_skipped = fault.moment == "fails_halfway" and table == company.jobs[fault.job].output
        manner = "schedule" if is_skipped else manner_for(company, random, table, test)
        add_test(company, table, test, manner)
        return Planted(fault, table, test, distance)
    return None


def _fault(random: Luck, kind: FaultKind, job: Job, day: float) -> Fault | None:
    """None if the job cannot have such a fault."""
    is_hourly = job.period < DAY
    # Hours of work, when somebody deploys; for a daily job anything before its next run is the same.
    begins = day + (random.uniform(8, 17) * HOUR if is_hourly else 0.0)
    lasts = (random.randint(20, 30) * HOUR if is_hourly else random.choice((1, 1, 2)) * DAY) - 60
    drop = Scaled(round(random.uniform(0.01, 0.06) if is_hourly else random.uniform(0.02, 0.3), 3))

    persistent = Fault(kind, job.key, begins, begins + lasts, "moment")
    a_while = random.randint(9, 14) * HOUR if is_hourly else DAY - 60
    passing = replace(persistent, ends=begins + a_while)
    match kind:
        case FaultKind.VOLUME_DROP | FaultKind.VOLUME_SPIKE if not job.is_extract:
            return None
        case FaultKind.VOLUME_DROP:
            return replace(persistent, carrier="source", effects=(drop,))
        case FaultKind.VOLUME_SPIKE:
            return replace(persistent, carrier="source", effects=(Scaled(round(random.uniform(4, 9), 2)),))
        case FaultKind.FAILED_RUN:
            return replace(passing, moment="fails", is_aborted=random.has(0.2))
        case FaultKind.MISSING_RUN:
            return replace(passing, moment="missing")
        case FaultKind.STALE_INPUT if job.is_extract:
            return replace(passing, carrier="source", moment="undelivered")
        case FaultKind.STALE_INPUT if job.tool is Tool.DBT:
            return None  # within one invocation nobody is late alone
        case FaultKind.STALE_INPUT:
            ends = begins + (HOUR if is_hourly else DAY) - 60
            return replace(passing, moment="late", delay=random.uniform(9, 14) * HOUR, ends=ends)
        case FaultKind.PARTIAL_WRITE:
            return replace(passing, moment=random.choice(("", "fails_halfway")), effects=(drop,))
        case FaultKind.SCHEMA_DRIFT:
            effect = _schema_effect(random, job)
            if effect is None:
                return None
            if job.is_extract:
                return replace(persistent, carrier="source", effects=(effect,), is_announced=random.has(0.4))
            return replace(persistent, carrier="code", effects=(effect,))
        case FaultKind.CODE_CHANGE:
            return replace(persistent, carrier="code", effects=_bug(random, job, drop))
        case FaultKind.ENGINE:
            return replace(persistent, carrier="engine", effects=_bug(random, job, drop), is_shared=random.has(0.5))
        case FaultKind.PARAMETER:
            return replace(persistent, carrier="parameter", effects=_bug(random, job, drop))


def _schema_effect(random: Luck, job: Job) -> Effect | None:
    names = [each.name for each in job.fields[1:]]
    if not names:
        return None
    column = random.choice(names)
    kind = {each.name: each.type for each in job.fields}[column]
    effects = (Dropped(column), Renamed(column, f"{column}_v2"), Retyped(column, _other_type(kind)))
    return random.choice(effects)


def _other_type(kind: str) -> str:
    return "varchar" if kind != "varchar" else "bigint"


def _bug(random: Luck, job: Job, drop: Scaled) -> tuple[Effect, ...]:
    plain = [each.name for each in job.fields[1:] if each.nulls == 0 and each.operation in ("identity", "expression")]
    numbers = [each.name for each in job.fields[1:] if each.type in ("double", "decimal(18,2)", "bigint")]
    bugs: list[Effect] = [drop]
    if not job.groups:
        bugs.append(Duplicated(round(random.uniform(1.5, 4), 2)))
    if plain:
        bugs.append(Nulled(random.choice(plain), round(random.uniform(0.15, 0.95), 2)))
    if numbers:
        bugs.append(Shifted(random.choice(numbers), random.choice((100.0, 0.01, 10.0, 0.1))))
    return (random.choice(bugs),)


def _noticed(company: Company, usual: dict[str, Content], fault: Fault) -> Iterator[tuple[str, Test, Why]]:
    """Every test that there could be and that would fail."""
    contents = _consequences(company, usual, fault)
    for table, content in contents.items():
        if content.is_sound:
            continue
        for test in likely_tests(company, table, usual[table]):
            finding = look(test, content, test.high * HOUR * 0.6, None)
            if not finding.passed and finding.why is not None:
                yield table, test, finding.why


def _consequences(company: Company, usual: dict[str, Content], fault: Fault) -> dict[str, Content]:
    """What every table would hold, were the fault at work at a usual moment."""
    contents = dict(usual)
    root = company.jobs[fault.job]
    why = Why(fault, root.key, None, None)
    if fault.moment in ("fails", "missing", "late", "undelivered"):
        contents[root.output] = _old(usual[root.output], fault, root, why)
    else:
        contents[root.output] = struck(usual[root.output], fault.effects, why)
    changed = {root.output}
    blocked = {key: why.further() for key in company.within[root.key] if fault.moment in ("fails", "fails_halfway")}
    for job in company.jobs.values():
        if job.key == root.key or not any(each.table in changed for each in job.inputs):
            continue
        if job.key in blocked:
            contents[job.output] = _old(usual[job.output], fault, job, blocked[job.key])
            changed.add(job.output)
            blocked.update((key, blocked[job.key].further()) for key in company.within[job.key])
            continue
        reads = []
        for each in job.inputs:
            content = contents[each.table]
            is_of_hours = company.producers[each.table].period < job.period
            if is_of_hours and content.newest_why is not None:
                content = usual[each.table]  # some hours of a day
            reads.append(usual_read(company, job, each.table, content))
        try:
            content = derived(job, usual_columns(job), reads, 1.0, ())
        except BrokenColumnError as broken:
            content = _old(usual[job.output], fault, job, broken.why)
            blocked.update((key, broken.why.further()) for key in company.within[job.key])
        if not content.is_sound:
            contents[job.output] = content
            changed.add(job.output)
    return contents


def _old(content: Content, fault: Fault, job: Job, why: Why) -> Content:
    age = DAY if job.period == DAY else fault.ends - fault.begins
    return replace(content, newest=-age, newest_why=why, is_sound=False)


def _silence(company: Company, usual: dict[str, Content], fault: Fault, hops: int) -> None:
    """Take away the tests that would notice earlier than so many jobs down."""
    for table, test, why in _noticed(company, usual, fault):
        if why.hops < hops:
            for check in company.checks.values():
                if check.table == table:
                    check.tests[:] = [each for each in check.tests if not _asks_the_same(each, test)]
    for key in [key for key, check in company.checks.items() if not check.tests]:
        del company.checks[key]


def _asks_the_same(one: Test, other: Test) -> bool:
    return one.kind is other.kind and one.column == other.column
