"""What a stranger's warehouse is made of: tables, jobs, checks, and how they are drawn by lot."""

import random
from dataclasses import dataclass
from typing import Literal

Dialect = Literal["airflow", "dbt", "spark", "quiet"]
OnMissing = Literal["star", "null", "fail"]
Manner = Literal["own", "dbt", "gx", "airflow"]
When = Literal["own", "after", "daily"]

HOUR, DAY = 1.0, 24.0
POOL = ("status", "country", "email", "quantity", "price", "channel", "segment", "city")
STORES: dict[Dialect, str] = {
    "airflow": "postgres://warehouse:5432",
    "dbt": "postgres://warehouse:5432",
    "spark": "s3://lake",
    "quiet": "mysql://backoffice:3306",
}


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    store: Dialect
    columns: tuple[tuple[str, str], ...]
    is_log: bool
    """Rows are added to it; else each write replaces it."""
    alias: str | None = None
    """Its name in the catalogue, by which others call what Spark knows as a path."""

    @property
    def address(self) -> tuple[str, str]:
        path = f"warehouse/{self.name}" if self.store == "spark" else f"shop.public.{self.name}"
        return STORES[self.store], path

    @property
    def called(self) -> tuple[str, str]:
        return ("hive://metastore:9083", self.alias) if self.alias else self.address


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    dialect: Dialect
    pipeline: str
    every: float
    at: float
    """Hours after midnight, or after the full hour."""
    hours: float
    """How long a run takes."""
    output: str
    source: str | None = None
    """What comes in from outside; such a job reads no table."""
    drivers: tuple[str, ...] = ()
    lookups: tuple[str, ...] = ()
    join: Literal["inner", "left"] = "left"
    taken: tuple[tuple[str, str, str], ...] = ()
    """(column, table, its column there)."""
    on_missing: OnMissing = "star"
    reads_whole: bool = False
    """All of a log each time, not only what is new in it."""
    groups: int = 0
    """So many rows whatever comes in, where it sums up."""
    ratio: float = 1.0
    base: float = 0.0
    weekend: float = 1.0
    growth: float = 0.0
    says: frozenset[str] = frozenset()
    waits: bool = False
    """Does not run when a job before it in the same pipeline has failed."""
    tries: int = 1

    @property
    def address(self) -> tuple[str, str]:
        name = {"dbt": f"model.shop.{self.name}", "airflow": f"{self.pipeline}.{self.name}"}.get(
            self.dialect, self.name
        )
        return f"{self.dialect}-prod", name

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.drivers + self.lookups


@dataclass(frozen=True, slots=True)
class Test:
    kind: str
    column: str = ""
    by_weekday: bool = False
    """Whether its bounds know weekends."""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    table: str
    when: When
    dialect: Manner
    tests: tuple[Test, ...]
    at: float = 0.0
    in_input_facets: bool = True
    profiles: bool = False


@dataclass(frozen=True, slots=True)
class Warehouse:
    seed: int
    days: int
    weekday: int
    """Of the first day; 0 is a Monday."""
    tables: dict[str, Table]
    jobs: tuple[Job, ...]
    checks: tuple[Check, ...]

    def is_weekend(self, now: float) -> bool:
        return (self.weekday + int(now // DAY)) % 7 >= 5

    def writers(self, table: str) -> list[Job]:
        return [job for job in self.jobs if job.output == table]


def drawn(seed: int) -> Warehouse:
    luck = random.Random(f"strangers/{seed}")
    size = luck.choice([5, 8, 12, 20, 30, 45, 70, 120, 200])
    days = luck.choice([14, 18, 21, 28, 35]) if size <= 70 else luck.choice([14, 18, 21])
    hourly = min(int(size * luck.choice([0.0, 0.2, 0.5])), 8 if days <= 21 else 5)
    tables: dict[str, Table] = {}
    jobs: list[Job] = []
    layers: dict[str, int] = {}
    pipelines = [f"dag_{number}" for number in range(1 + size // luck.choice([5, 8, 12]))]
    kinds = [True] * hourly + [False] * (size - hourly)
    luck.shuffle(kinds)
    for number, is_hourly in enumerate(kinds):
        is_source = number < 2 or luck.random() < 0.28
        job, table = (source_job if is_source else inner_job)(
            luck, number, tables, layers, pipelines, is_hourly=is_hourly
        )
        if is_source and jobs and luck.random() < 0.12:
            job, table = another_writer(luck, job, jobs, tables) or (job, table)
        jobs.append(job)
        if table is not None:
            tables[table.name] = table
            layers[table.name] = 0 if is_source else 1 + max(layers[name] for name in job.inputs)
    checks = [check for name in tables for check in checks_of(luck, tables[name], jobs)]
    return Warehouse(seed, days, luck.randrange(7), tables, tuple(jobs), tuple(checks))


def dialect_of(luck: random.Random, *, is_source: bool) -> Dialect:
    return luck.choice(
        ["airflow", "airflow", "spark", "spark", "quiet"] if is_source else ["airflow", "dbt", "dbt", "spark", "quiet"]
    )


def sayings(luck: random.Random, dialect: Dialect) -> frozenset[str]:
    """What a producer of this kind tells of its runs: some tell all they can, some next to nothing."""
    odds: dict[Dialect, dict[str, float]] = {
        "airflow": {"rows": 0.65, "schema": 0.7, "code": 0.7, "parameters": 0.5, "engine": 0.5, "version": 0.15},
        "dbt": {"rows": 0.4, "schema": 0.9, "code": 1.0, "columns": 0.6, "engine": 0.8, "repo": 0.3},
        "spark": {"rows": 0.95, "schema": 0.95, "engine": 1.0, "parameters": 0.7, "columns": 0.4, "repo": 0.3},
        "quiet": {"rows": 0.35, "schema": 0.25, "code": 0.15},
    }
    said = {what for what, share in odds[dialect].items() if luck.random() < share}
    return frozenset(said | ({"profile"} if luck.random() < 0.12 else set()))


def timing(luck: random.Random, layer: int, *, is_hourly: bool) -> tuple[float, float]:
    if is_hourly:
        return (0.04 + 0.09 * min(layer, 8) + luck.uniform(0, 0.02)), luck.uniform(0.008, 0.03)
    return 1.0 + 0.75 * layer + luck.uniform(0, 0.2), luck.uniform(0.04, 0.25)


def source_job(
    luck: random.Random,
    number: int,
    tables: dict[str, Table],
    layers: dict[str, int],
    pipelines: list[str],
    *,
    is_hourly: bool,
) -> tuple[Job, Table | None]:
    del tables, layers
    dialect = dialect_of(luck, is_source=True)
    at, hours = timing(luck, 0, is_hourly=is_hourly)
    name = f"raw_{number}"
    picked = luck.sample(POOL, luck.randint(3, 5))
    columns = (
        ("id", "bigint"),
        ("created_at", "timestamp"),
        ("amount", "double"),
        *((each, "text") for each in picked),
    )
    table = Table(name, dialect, columns, is_hourly or luck.random() < 0.5, alias_of(luck, dialect, name))
    job = Job(
        name=f"load_{number}",
        dialect=dialect,
        pipeline=luck.choice(pipelines) + ("_hourly" if is_hourly else ""),
        every=HOUR if is_hourly else DAY,
        at=at,
        hours=hours,
        output=name,
        source=f"export/{number}",
        taken=tuple((each, "", each) for each, _ in columns),
        on_missing=luck.choice(["star", "star", "null", "fail"]),
        base=luck.choice([400, 3_000, 20_000, 150_000]) * luck.uniform(0.7, 1.5),
        weekend=luck.choice([1.0, 1.0, 0.6, 0.3, 1.4]),
        growth=luck.choice([0.0, 0.0, 0.004, 0.012, -0.004]),
        says=sayings(luck, dialect),
        tries=luck.choice([1, 1, 2, 3]),
    )
    return job, table


def inner_job(
    luck: random.Random,
    number: int,
    tables: dict[str, Table],
    layers: dict[str, int],
    pipelines: list[str],
    *,
    is_hourly: bool,
) -> tuple[Job, Table]:
    dialect = dialect_of(luck, is_source=False)
    names = [name for name in tables if layers[name] < 6]
    recent = names[-max(4, len(names) // 3) :]
    drivers = list(dict.fromkeys(luck.choice(recent) for _ in range(luck.choice([1, 1, 1, 1, 2]))))
    dimensions = [name for name in names if not tables[name].is_log and name not in drivers]
    lookups = luck.sample(dimensions, min(len(dimensions), luck.choice([0, 0, 1, 1, 2])))
    at, hours = timing(luck, 1 + max(layers[name] for name in drivers + lookups), is_hourly=is_hourly)
    first = tables[drivers[0]]
    kept = [each for each in first.columns if each[0] in ("id", "amount") or luck.random() < 0.8]
    taken = [(name, first.name, name) for name, _ in kept]
    columns = list(kept)
    for lookup in lookups:
        has = [each for each in tables[lookup].columns if each[0] not in ("id", "amount")]
        if has:
            column, kind = luck.choice(has)
            joined = f"{lookup}_{column}"
            if joined not in dict(columns):
                taken.append((joined, lookup, column))
                columns.append((joined, kind))
    name = f"{luck.choice(['stg', 'fct', 'mart'])}_{number}"
    groups = 0 if luck.random() < 0.8 else luck.choice([1, 12, 50])
    is_log = not groups and (luck.random() < (0.7 if is_hourly else 0.3))
    job = Job(
        name=f"make_{name}",
        dialect=dialect,
        pipeline=luck.choice(pipelines) + ("_hourly" if is_hourly else ""),
        every=HOUR if is_hourly else DAY,
        at=at,
        hours=hours,
        output=name,
        drivers=tuple(drivers),
        lookups=tuple(lookups),
        join=luck.choice(["inner", "left", "left"]),
        taken=tuple(taken),
        on_missing=luck.choice(["star", "null", "fail"]),
        reads_whole=not is_log and luck.random() < 0.2,
        groups=groups,
        ratio=luck.choice([1.0, 1.0, 0.9, 0.4, 2.5]),
        says=sayings(luck, dialect),
        waits=dialect in ("airflow", "dbt") and luck.random() < 0.6,
        tries=luck.choice([1, 1, 2]),
    )
    return job, Table(name, dialect, tuple(columns), is_log, alias_of(luck, dialect, name))


def alias_of(luck: random.Random, dialect: Dialect, name: str) -> str | None:
    return f"lake.{name}" if dialect == "spark" and luck.random() < 0.5 else None


def another_writer(luck: random.Random, job: Job, jobs: list[Job], tables: dict[str, Table]) -> tuple[Job, None] | None:
    """A second loader of a table that is there: another region, another shop."""
    others = [each for each in jobs if each.source is not None and tables[each.output].is_log]
    if not others:
        return None
    first = luck.choice(others)
    return Job(
        name=job.name,
        dialect=first.dialect,
        pipeline=job.pipeline,
        every=first.every,
        at=first.at + luck.uniform(0.01, 0.05),
        hours=first.hours,
        output=first.output,
        source=job.source,
        taken=first.taken,
        on_missing=first.on_missing,
        base=first.base * luck.uniform(0.4, 1.5),
        weekend=first.weekend,
        growth=first.growth,
        says=first.says,
        tries=job.tries,
    ), None


def checks_of(luck: random.Random, table: Table, jobs: list[Job]) -> list[Check]:
    if luck.random() < 0.35:
        return []
    writers = [job for job in jobs if job.output == table.name]
    columns = [name for name, _ in table.columns]
    texts = [name for name in columns if name not in ("id", "amount", "created_at")]
    joined = [name for name, of, _ in writers[0].taken if of in writers[0].lookups and writers[0].join == "left"]
    offered = [
        *(Test("not_null", name) for name in luck.sample(columns, min(2, len(columns)))),
        Test("unique", "id"),
        Test("row_count", by_weekday=luck.random() < 0.4),
        Test("freshness"),
        Test("sum_between", "amount", by_weekday=luck.random() < 0.3),
        Test("columns_match"),
        *([Test("accepted_values", luck.choice(texts))] if texts else []),
        *([Test("relationships", luck.choice(joined))] if joined else []),
    ]
    picked = tuple(luck.sample(offered, luck.randint(1, min(4, len(offered)))))
    manners: list[Manner] = ["own", "dbt", "gx", "gx", "airflow"]
    dialect = luck.choice(manners)
    if dialect in ("dbt", "airflow") and {job.dialect for job in writers} != {dialect}:
        dialect = "gx"
    when: When = "own" if dialect == "own" else luck.choice(["after", "daily"]) if dialect == "gx" else "after"
    return [
        Check(
            name=f"check_{table.name}",
            table=table.name,
            when=when,
            dialect=dialect,
            tests=picked,
            at=luck.choice([0.5, 5.0, 9.0, 12.0, 18.0, 23.0]),
            in_input_facets=luck.random() < 0.5,
            profiles=dialect == "gx" and luck.random() < 0.3,
        )
    ]
