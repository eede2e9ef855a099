"""Faults that are drawn by lot, which failures each has caused, and whether the events say so.

A failure is a fault's when the test fails in a world where that fault alone is at work, and not in one without faults.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.strangers.contents import Effect
from benchmarks.strangers.life import Fault, Result, Run, World
from benchmarks.strangers.shape import DAY, HOUR, Job, Warehouse
from benchmarks.strangers.telling import CHECK_TAKES, MONDAY, dataset_of
from correlator.demo.faults import FaultKind, Truth

FARTHEST = 4
"""Jobs between a fault and a test that is judged."""
PER_FAULT = 3
"""Failures of one fault that are judged, so that one fault in a wide warehouse does not outweigh all others."""
TRIES = 12
"""Many faults nobody ever notices; of each kind so many are tried."""
SOURCE_KINDS = (FaultKind.SCHEMA_DRIFT, FaultKind.VOLUME_DROP, FaultKind.VOLUME_SPIKE, FaultKind.STALE_INPUT)

Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Bounds:
    least: float
    most: float


def results_of(world: World) -> Iterator[Result]:
    for run in world.runs:
        yield from run.results
    for _, _, _, _, results in world.checked:
        yield from results


def key_of(result: Result) -> Key:
    return result.check.name, result.test.kind, result.test.column, result.run_id


def bounds_of(clean: World) -> dict[tuple[str, str, str, bool], Bounds]:
    """What people have set them to, after looking at what is usual."""
    found: dict[tuple[str, str, str, bool], Bounds] = {}
    for result in results_of(clean):
        if result.start < 0:
            continue
        key = bound_key(clean.warehouse, result)
        old = found.get(key, Bounds(result.value, result.value))
        found[key] = Bounds(min(old.least, result.value), max(old.most, result.value))
    return found


def bound_key(warehouse: Warehouse, result: Result) -> tuple[str, str, str, bool]:
    weekend = result.test.by_weekday and warehouse.is_weekend(result.start)
    return result.check.name, result.test.kind, result.test.column, weekend


def judge_tests(world: World, bounds: dict[tuple[str, str, str, bool], Bounds]) -> None:
    for result in results_of(world):
        bound = bounds.get(bound_key(world.warehouse, result))
        if bound is None or result.start < 0:
            continue
        if result.test.kind in ("row_count", "sum_between"):
            result.passed = bound.least * 0.9 - 1 <= result.value <= bound.most * 1.1 + 1
        elif result.test.kind == "freshness":
            result.passed = result.value <= bound.most + 0.6
        else:
            result.passed = result.value <= bound.most + 1e-7


def fault_at(luck: random.Random, warehouse: Warehouse, kind: FaultKind, day: int) -> Fault:
    jobs = [job for job in warehouse.jobs if kind not in SOURCE_KINDS or job.source is not None]
    job = luck.choice(jobs)
    carrier, effects = damage(luck, kind, job, warehouse)
    if job.every == HOUR:
        begins = day * DAY + luck.randrange(24)
        lasts = float(luck.choice([3, 6, 12, 30]))
    else:
        begins, lasts = day * DAY, DAY * luck.choice([1, 1, 2, 3])
    return Fault(kind, job.name, begins, begins + lasts, carrier, effects, luck.random() < 0.3)


def damage(luck: random.Random, kind: FaultKind, job: Job, warehouse: Warehouse) -> tuple[str, tuple[Effect, ...]]:
    columns = [name for name, _ in warehouse.tables[job.output].columns]
    column = luck.choice([name for name in columns if name not in ("id", "created_at")] or columns)
    fewer = Effect("rows", size=luck.choice([0.0, 0.1, 0.3, 0.5]))
    more = luck.choice(
        [Effect("twice", size=luck.choice([0.5, 1.0, 2.0])), Effect("rows", size=luck.choice([2, 3, 6]))]
    )
    wrong = [
        Effect("nulls", column, luck.choice([0.05, 0.4, 1.0])),
        Effect("odd", column, luck.choice([0.1, 0.6])),
        Effect("factor", "amount", luck.choice([0.01, 0.5, 100.0])),
    ]
    other_schema = Effect(luck.choice(["drop", "rename", "type"]), column)
    match kind:
        case FaultKind.FAILED_RUN:
            return "fails", ()
        case FaultKind.MISSING_RUN:
            return "never", ()
        case FaultKind.STALE_INPUT:
            return "stale", ()
        case FaultKind.SCHEMA_DRIFT:
            return "source", (other_schema,)
        case FaultKind.VOLUME_DROP:
            return "source", (fewer,)
        case FaultKind.VOLUME_SPIKE:
            return "source", (more,)
        case FaultKind.PARTIAL_WRITE:
            # What failed and does not say that it had written anything is no version that a test could be bound to.
            carrier = luck.choice(["partly", "halfway"] if "rows" in job.says else ["partly"])
            return carrier, (Effect("rows", size=luck.choice([0.1, 0.4, 0.6])),)
        case FaultKind.CODE_CHANGE:
            return "code", (luck.choice([*wrong, fewer, more, other_schema]),)
        case FaultKind.ENGINE:
            return "engine", (luck.choice([*wrong, more, other_schema]),)
        case FaultKind.PARAMETER:
            return "parameter", (luck.choice([*wrong, fewer]),)


@dataclass(frozen=True, slots=True)
class History:
    world: World
    truths: list[Truth]


def history_of(warehouse: Warehouse) -> History:
    """One to three faults, days apart; of each, worlds with it alone tell what it did."""
    luck = random.Random(f"faults/{warehouse.seed}")
    clean = World(warehouse)
    bounds = bounds_of(clean)
    alone: list[World] = []
    day = luck.randint(8, 10)
    while day < warehouse.days - 2:
        world = next(harmful(luck, warehouse, bounds, day), None)
        if world is not None:
            alone.append(world)
        day += luck.randint(5, 8)
    together = World(warehouse, tuple(fault for world in alone for fault in world.faults))
    judge_tests(together, bounds)
    return History(together, list(truths_of(luck, together, clean, alone)))


def harmful(
    luck: random.Random, warehouse: Warehouse, bounds: dict[tuple[str, str, str, bool], Bounds], day: int
) -> Iterator[World]:
    """Worlds with a fault that some test notices."""
    kind = luck.choice(list(FaultKind))
    for _ in range(TRIES):
        world = World(warehouse, (fault_at(luck, warehouse, kind, day),))
        judge_tests(world, bounds)
        if any(not result.passed for result in results_of(world)):
            yield world


def truths_of(luck: random.Random, world: World, clean: World, alone: list[World]) -> Iterator[Truth]:
    guilty = [{key_of(result) for result in results_of(each) if not result.passed} for each in alone]
    series: dict[tuple[str, str, str], list[Result]] = {}
    for result in results_of(world):
        if result.start >= 0:
            series.setdefault(key_of(result)[:3], []).append(result)
    first: dict[int, list[Result]] = {number: [] for number in range(len(alone))}
    for results in series.values():
        results.sort(key=lambda result: result.start)
        seen: set[int] = set()
        for before, result in zip([None, *results], results, strict=False):
            if result.passed or before is None or not before.passed:
                continue
            of = [number for number, keys in enumerate(guilty) if key_of(result) in keys]
            if len(of) == 1 and of[0] not in seen:
                # A test that comes and goes while the fault is there asks the same question again.
                seen.add(of[0])
                first[of[0]].append(result)
    for number, results in first.items():
        luck.shuffle(results)
        made = [truth for result in results if (truth := truth_of(result, world, clean, alone[number].faults[0]))]
        yield from made[:PER_FAULT]


def truth_of(result: Result, world: World, clean: World, fault: Fault) -> Truth | None:
    direct = result.bound_to
    root = next(job for job in world.warehouse.jobs if job.name == fault.job)
    if direct is None or direct.start < 0:
        return None
    hops = hops_between(world.warehouse, direct.job.output, root)
    if hops is None or hops > FARTHEST:
        return None
    struck = [
        run
        for run in world.runs
        if run.job is root and run.is_struck and fault.begins <= run.slot < fault.ends and run.end <= result.start
    ]
    tries = {run.slot: run for run in struck}
    runs = list(tries.values())
    behind = ancestors(direct)
    read = [run for run in runs if id(run) in behind] or [run for run in runs if run.end <= direct.end] or runs
    if not runs and fault.carrier != "never":
        return None
    told = [run for run in runs if is_told(run, world, clean)]
    namespace, name = dataset_of(world.warehouse.tables[result.check.table])
    if result.check.when == "own":
        namespace, name = world.warehouse.tables[result.check.table].address
    return Truth(
        fault=fault.kind,
        hops=hops,
        dataset_namespace=namespace,
        dataset_name=name,
        test_name=result.test.kind,
        column=result.test.column,
        test_run_id=result.run_id,
        failed_at=MONDAY.timestamp() + (world.warehouse.weekday * DAY + result.start) * 3600,
        direct_job=direct.job.address,
        direct_run_id=direct.run_id,
        root_job=root.address,
        root_run_id=read[-1].run_id if runs else None,
        # Of those that say nothing of it nobody can know.
        onset_run_id=(told or runs)[0].run_id if runs else None,
        is_told=is_read_told(result, direct, world) and (fault.carrier == "never" or bool(told)),
        is_first=True,
    )


def hops_between(warehouse: Warehouse, table: str, root: Job) -> int | None:
    reached, hops = {table}, 0
    while reached and hops <= FARTHEST:
        if root.output in reached:
            return hops
        writers = [job for name in reached for job in warehouse.writers(name)]
        reached = {name for job in writers for name in job.inputs}
        hops += 1
    return None


def ancestors(run: Run) -> set[int]:
    seen, left = {id(run)}, [run]
    while left:
        for parent in left.pop().parents:
            if id(parent) not in seen:
                seen.add(id(parent))
                left.append(parent)
    return seen


def is_read_told(result: Result, direct: Run, world: World) -> bool:
    """Whether events say which version was looked at: not where another was written before the check was over."""
    if result.check.when == "own" or result.check.dialect == "airflow":
        return True
    over = result.start + CHECK_TAKES
    return not any(run.job.output == direct.job.output and result.start < run.end <= over for run in world.runs)


def is_told(run: Run, world: World, clean: World) -> bool:
    """Whether this run's own events say that something is not as it would have been."""
    says = run.job.says
    twin = next((each for each in clean.runs if each.job is run.job and each.slot == run.slot), None)
    if twin is None or run.state == "FAIL":
        return True
    if ("code" in says and run.code != twin.code) or ("parameters" in says and run.parameters != twin.parameters):
        return True
    shared = any(fault.is_shared for fault in world.faults if fault.job == run.job.name)
    if "engine" in says and run.engine != twin.engine and not shared:
        return True
    if "version" in says and run.source_version != twin.source_version:
        return True
    if run.written is None or twin.written is None:
        return False
    if "schema" in says and run.written.columns != twin.written.columns:
        return True
    is_named = "schema" in says and run.job.dialect != "quiet"
    if is_named and run.source and twin.source and run.source.columns != twin.source.columns:
        return True
    if says & {"rows", "profile"} and is_odd(run, twin, world):
        return True
    return "profile" in says and (
        run.written.nulls != twin.written.nulls or abs(run.written.amount / max(1.0, twin.written.amount) - 1) > 0.35
    )


def is_odd(run: Run, twin: Run, world: World) -> bool:
    """Far from what it would have been; of a weekend only where there were some before it."""
    if run.written is None or twin.written is None:
        return False
    is_repeated = run.source_version != twin.source_version and run.written.rows > 200
    ratio = (run.written.rows + 1) / (twin.written.rows + 1)
    if 0.65 < ratio < 1.5:
        return is_repeated
    weekends = {
        int(each.slot // DAY)
        for each in world.runs
        if 0 <= each.slot < run.slot and world.warehouse.is_weekend(each.slot)
    }
    return not world.warehouse.is_weekend(run.slot) or len(weekends) >= 2
