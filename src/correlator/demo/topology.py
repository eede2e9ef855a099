"""Luck companies: layers of tables from raw to dashboards, each written by a job of some tool."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from correlator.demo.luck import Luck
from correlator.demo.parts import (
    DAY,
    HOUR,
    Check,
    Company,
    Field,
    Input,
    Job,
    Mode,
    Name,
    Operation,
    Pipeline,
    Role,
    Strictness,
    Table,
    Tool,
    Voice,
)
from correlator.demo.testing import end, likely_tests, manner_for, new_check
from correlator.demo.world import usual_contents

LAYERS: Final = ("raw", "staging", "intermediate", "marts", "dashboards")
_SHARES: Final = (0.28, 0.24, 0.18, 0.18, 0.12)
_PREFIXES: Final = ("raw", "stg", "int", "mart", "dash")

_SUBJECTS: Final = (
    "orders", "customers", "payments", "products", "shipments", "returns", "invoices", "sessions", "clicks",
    "campaigns", "stock", "prices", "suppliers", "tickets", "employees", "contracts", "claims", "policies", "trips",
    "drivers", "sensors", "readings", "alarms", "calls", "messages", "subscriptions", "refunds", "vouchers", "stores",
    "baskets",
)  # fmt: skip
_COLUMNS: Final = (
    ("amount", "decimal(18,2)"), ("status", "varchar"), ("country", "varchar"), ("created_at", "timestamp"),
    ("updated_at", "timestamp"), ("customer_id", "bigint"), ("product_id", "bigint"), ("quantity", "integer"),
    ("price", "double"), ("currency", "varchar"), ("channel", "varchar"), ("score", "double"), ("city", "varchar"),
    ("discount", "double"), ("duration", "double"), ("category", "varchar"), ("device", "varchar"),
    ("weight", "double"),
)  # fmt: skip
_TEAMS: Final = ("sales", "logistics", "finance", "growth", "platform", "support")
_PARAMETERS: Final = (
    ("lookback_days", "1"), ("currency", "EUR"), ("batch_size", "5000"), ("parallelism", "8"), ("log_level", "info"),
    ("min_amount", "0"), ("timezone", "UTC"), ("sample_rate", "1.0"),
)  # fmt: skip
_FEW_COLUMNS: Final = 4
_LONGEST_NAME: Final = 40
_NUMBERS: Final = ("double", "decimal(18,2)", "bigint", "integer")


@dataclass
class _Style:
    """What one company has settled for."""

    warehouse: str
    lake: str
    metastore: str
    airflow: str
    dbt: str
    spark: str
    plain: str
    database: str
    dbt_mode: Mode
    tools: tuple[tuple[float, ...], ...]
    """For each layer how likely Airflow, dbt, Spark and plain producers are."""
    has_snapshots: bool
    """Whether the lake's tables are of a format that numbers its versions."""
    is_modern: bool
    """Whether dbt owns everything between raw data and dashboards."""


def random_company(seed: int, jobs: int = 30, hourly_share: float = 0.25) -> Company:
    """A company of so many jobs; the same for the same arguments."""
    random = Luck(f"topology/{seed}")
    return _Growth(random, _style(random), hourly_share).grow(jobs)


def _style(random: Luck) -> _Style:
    domain = random.choice(("corp.example", "acme.example", "data.example", "shop.example"))
    warehouse = random.choice(
        (
            f"postgres://dwh.{domain}:5432",
            "redshift://dwh.eu-west-1:5439",
            "snowflake://acme-eu1",
            "bigquery",
            f"trino://trino.{domain}:8080",
        )
    )
    is_modern = random.has(0.5)
    middle = (0.0, 1.0, 0.0, 0.0) if is_modern else (0.35, 0.3, 0.25, 0.1)
    return _Style(
        warehouse=warehouse,
        lake=random.choice(("s3://lake", "gs://lake", f"hdfs://namenode.{domain}:8020")),
        metastore=f"hive://metastore.{domain}:9083",
        airflow=random.choice(("airflow", "airflow-prod", "default")),
        dbt=random.choice(("dbt", "analytics", "dbt-prod")),
        spark=random.choice(("spark", "emr", "spark_integration")),
        plain=random.choice(("loaders", "ingest", "services")),
        database=random.choice(("dwh", "analytics", "prod")),
        dbt_mode=random.choice(("artifacts", "structured_logs")),
        tools=((0.45, 0.0, 0.25, 0.3), middle, middle, middle, (0.5, 0.0, 0.1, 0.4)),
        has_snapshots=random.has(0.4),
        is_modern=is_modern,
    )


class _Growth:
    def __init__(self, random: Luck, style: _Style, hourly_share: float) -> None:
        self.random = random
        self.style = style
        self.hourly_share = hourly_share
        self.tables: dict[str, Table] = {}
        self.jobs: dict[str, Job] = {}
        self.layers: list[list[str]] = [[] for _ in LAYERS]
        self.names: set[str] = set()
        self.after: dict[str, set[str]] = {}
        """For each pipeline those that wait for it."""

    def grow(self, count: int) -> Company:
        random = self.random
        sizes = [max(1, round(count * share)) for share in _SHARES]
        sizes[1] = max(1, sizes[1] + count - sum(sizes))
        for layer, size in enumerate(sizes):
            for _ in range(size):
                self._add_job(layer)
        company = Company(
            self.tables,
            self.jobs,
            self._pipelines(),
            {},
            weekdays=random.choice(
                (
                    (1.0, 1.02, 0.99, 1.0, 1.08, 0.75, 0.68),
                    (1.05, 1.0, 1.0, 1.0, 1.0, 0.6, 0.55),
                    (0.9, 0.92, 0.95, 1.0, 1.15, 1.2, 1.05),
                )
            ),
            diurnal=random.uniform(0.2, 0.5),
            flavour={
                "checks_namespace": random.choice(("great_expectations", "gx", "quality")),
                "airflow": random.choice(("2.9.3", "2.10.2", "3.0.1")),
                "dbt": random.choice(("1.8.4", "1.9.1", "1.10.0")),
                "spark": random.choice(("3.4.1", "3.5.1", "4.0.0")),
                "plain": random.choice(("1.12.0", "2.3.1", "0.9.4")),
                "project": self.style.database,
                **({"results": "test_facet"} if random.has(0.15) else {}),
                **({"catalogue": "yes"} if random.has(0.4) else {}),
                # Older versions of Great Expectations' integration leave the offset out.
                **({"naive_checks": "yes"} if random.has(0.2) else {}),
                "warehouse": self.style.warehouse,
            },
        )
        _schedule(company, random)
        _add_checks(company, random)
        return company

    def _add_job(self, layer: int) -> None:
        random = self.random
        inputs, period = self._inputs(layer)
        subject = self._subject(layer, inputs)
        key = f"{_PREFIXES[layer]}_{subject}"
        tool = random.choices(list(Tool), self.style.tools[layer])[0]
        team = random.choice(_TEAMS)
        fields, groups = self._fields(layer, subject, inputs)
        table = self._table(key, layer, tool, team)
        self.tables[key] = table
        self.layers[layer].append(key)
        strictness: Strictness = random.choices(("passes", "nulls", "fails"), (0.45, 0.3, 0.25))[0]
        pipeline = self._pipeline(self._pipeline_key(layer, tool, team, period, key, inputs), inputs, period)
        rows = 10 ** random.uniform(3, 6) / (1 if period == DAY else 24)
        self.jobs[key] = Job(
            key=key,
            tool=tool,
            told_as=self._job_name(tool, pipeline, table),
            pipeline=pipeline,
            output=key,
            inputs=inputs,
            fields=fields,
            owner=f"team:{team}",
            period=period,
            usual_rows=0.0 if inputs else rows,
            source=None if inputs else self._source(subject),
            selectivity=round(random.uniform(0.6, 1.0), 2),
            groups=groups,
            strictness=strictness,
            usual_seconds=random.uniform(20, 70) if period < DAY else random.uniform(60, 600),
            retries=0 if tool is Tool.DBT else random.choice((0, 1, 1, 2)),
            voice=self._voice(tool, is_extract=not inputs),
            repository=f"https://git.example/{team}/pipelines",
            parameters=tuple(random.sample(_PARAMETERS, 3)),
        )

    def _subject(self, layer: int, inputs: Sequence[Input]) -> str:
        random = self.random
        subject = random.choice(_SUBJECTS)
        if inputs and random.has(0.8):
            subject = inputs[0].table.split("_", 1)[1].removesuffix("_daily")
        candidates = [subject, f"{subject}_{random.choice(('daily', 'enriched', 'by_country', 'clean', 'kpis'))}"]
        candidates += [f"{random.choice(_SUBJECTS)}_{random.choice(_SUBJECTS)}"]
        number = 2
        for name in candidates:
            if f"{layer}/{name}" not in self.names and len(name) < _LONGEST_NAME:
                self.names.add(f"{layer}/{name}")
                return name
        while f"{layer}/{candidates[-1]}_{number}" in self.names:
            number += 1
        self.names.add(f"{layer}/{candidates[-1]}_{number}")
        return f"{candidates[-1]}_{number}"

    def _inputs(self, layer: int) -> tuple[tuple[Input, ...], int]:
        """What a new job of a layer reads, and how often it runs."""
        random = self.random
        if layer == 0:
            return (), HOUR if random.has(self.hourly_share) else DAY
        before = self.layers[layer - 1]
        # A table that nobody reads yet is read first, so that few are of no use.
        read = {each.table for job in self.jobs.values() for each in job.inputs}
        unread = [key for key in before if key not in read]
        driving = random.choice(unread or before)
        is_hourly = self.jobs[driving].period < DAY
        period = HOUR if is_hourly and random.has(0.6) else DAY
        pool = [key for each in self.layers[max(0, layer - 2) : layer] for key in each if key != driving]
        if layer > 1 and random.has(0.3):
            pool += self.layers[layer]
        more = random.choices((0, 1, 2, 3), (0.45, 0.3, 0.17, 0.08) if layer > 1 else (0.75, 0.2, 0.05, 0.0))[0]
        inputs = [Input(driving, "driving")]
        for key in random.sample(pool, min(more, len(pool))):
            roles: list[Role] = ["lookup", "lookup", "filter"]
            if self.jobs[key].period == self.jobs[driving].period and not self.jobs[key].groups:
                roles.append("union")
            role = random.choice(roles)
            if self.jobs[key].period < self.jobs[driving].period and role != "lookup":
                role = "lookup"
            inputs.append(Input(key, role))
        return tuple(inputs), period

    def _fields(self, layer: int, subject: str, inputs: tuple[Input, ...]) -> tuple[tuple[Field, ...], float]:
        random = self.random
        if not inputs:
            chosen = random.sample(_COLUMNS, random.randint(4, 8))
            plain = [Field(name, kind, random.choice((0.0, 0.0, 0.0, 0.03))) for name, kind in chosen]
            return (Field("id", "bigint"), *plain), 0.0
        driving = self.jobs[inputs[0].table].fields
        aggregates = random.has((0.0, 0.0, 0.0, 0.35, 0.8)[layer])
        fields = [Field(driving[0].name, driving[0].type, 0.0, (0, driving[0].name))]
        taken = {fields[0].name}
        for each in driving[1:]:
            if random.has(0.15) and len(driving) > _FEW_COLUMNS:
                continue
            is_number = each.type in _NUMBERS
            if aggregates and is_number:
                name = each.name if each.name.startswith("total_") else f"total_{each.name}"
                if name in taken:
                    continue
                fields.append(Field(name, each.type, 0.0, (0, each.name), "sum"))
            elif not aggregates or random.has(0.6):
                operation: Operation = "expression" if random.has(0.25) else "identity"
                fields.append(Field(each.name, each.type, each.nulls, (0, each.name), operation))
            taken.add(fields[-1].name)
        for index, of in enumerate(inputs):
            if of.role != "lookup":
                continue
            theirs = [each for each in self.jobs[of.table].fields[1:] if each.nulls == 0]
            for each in random.sample(theirs, min(len(theirs), random.randint(1, 2))):
                name = each.name if each.name not in taken else f"{of.table.split('_')[1]}_{each.name}"
                if name not in taken:
                    taken.add(name)
                    fields.append(Field(name, each.type, 0.0, (index, each.name)))
        if aggregates:
            name = f"{subject.split('_', maxsplit=1)[0]}_count"
            if name not in taken:
                fields.append(Field(name, "bigint", 0.0, (0, driving[0].name), "count"))
        return tuple(fields), float(random.randint(20, 2000)) if aggregates else 0.0

    def _table(self, key: str, layer: int, tool: Tool, team: str) -> Table:
        random, style = self.random, self.style
        owner = f"team:{team}"
        if tool is Tool.SPARK or (layer == 0 and random.has(0.25)):
            path = Name(style.lake, f"warehouse/{LAYERS[layer]}/{key}")
            table = Name(style.metastore, f"{LAYERS[layer]}.{key}")
            if random.has(0.7):
                return Table(key, layer, path, table if random.has(0.6) else path, table, owner)
            read = replace(path, namespace="s3a://lake") if path.namespace == "s3://lake" and random.has(0.4) else path
            return Table(key, layer, path, read, None, owner)
        if layer == len(LAYERS) - 1 and random.has(0.3):
            name = Name("dashboards://bi.example", key)
            return Table(key, layer, name, name, None, owner)
        written = Name(style.warehouse, f"{style.database}.{LAYERS[layer]}.{key}")
        read = written
        if style.warehouse.startswith("postgres://") and random.has(0.3):
            read = replace(written, namespace=style.warehouse.removesuffix(":5432"))
            if random.has(0.5):
                written, read = read, written
        return Table(key, layer, written, read, None, owner)

    def _source(self, subject: str) -> Name:
        return self.random.choice(
            (
                Name("postgres://shopdb.example:5432", f"shop.public.{subject}"),
                Name("mysql://erp.example:3306", f"erp.{subject}"),
                Name("s3://landing", f"exports/{subject}"),
                Name("kafka://broker.example:9092", f"events.{subject}"),
            )
        )

    def _pipeline(self, wanted: str, inputs: tuple[Input, ...], period: int) -> str:
        """The pipeline of this name, or another one if two would have to wait for each other."""
        before = {self.jobs[each.table].pipeline for each in inputs if self.jobs[each.table].period == period}
        key, number = wanted, 1
        while self._reached_from(key) & (before - {key}):
            number += 1
            key = f"{wanted}_{number}"
        for each in before - {key}:
            self.after.setdefault(each, set()).add(key)
        return key

    def _reached_from(self, pipeline: str) -> set[str]:
        reached: set[str] = set()
        waiting = [pipeline]
        while waiting:
            for each in self.after.get(waiting.pop(), ()):
                if each not in reached:
                    reached.add(each)
                    waiting.append(each)
        return reached

    def _pipeline_key(self, layer: int, tool: Tool, team: str, period: int, key: str, inputs: tuple[Input, ...]) -> str:
        pace = "hourly" if period < DAY else "daily"
        driving = self.jobs[inputs[0].table] if inputs else None
        match tool:
            case Tool.AIRFLOW if driving and driving.tool is tool and driving.period == period:
                if self.random.has(0.6):
                    return driving.pipeline
                return f"{team}_{LAYERS[layer]}_{pace}"
            case Tool.AIRFLOW:
                return f"{team}_{LAYERS[layer]}_{pace}"
            case Tool.DBT if self.style.is_modern:
                return f"dbt_{pace}"
            case Tool.DBT:
                return f"dbt_{LAYERS[layer]}_{pace}"
            case _:
                return f"{tool}_{key}"

    def _job_name(self, tool: Tool, pipeline: str, table: Table) -> Name:
        style = self.style
        match tool:
            case Tool.AIRFLOW:
                return Name(style.airflow, f"{pipeline}.load_{table.key}")
            case Tool.DBT if style.dbt_mode == "artifacts":
                return Name(style.dbt, f"{style.database}.{LAYERS[table.layer]}.{style.database}.{table.key}.build.run")
            case Tool.DBT:
                return Name(style.dbt, f"model.{style.database}.{table.key}")
            case Tool.SPARK:
                command = "execute_insert_into_hadoop_fs_relation_command"
                return Name(style.spark, f"{table.key}.{command}.{LAYERS[table.layer]}_{table.key}")
            case Tool.PLAIN:
                return Name(style.plain, f"{table.key}_loader")

    def _voice(self, tool: Tool, *, is_extract: bool) -> Voice:
        """What the tools really tell, and what depends on the operator, the adapter or the author."""
        has = self.random.has
        match tool:
            case Tool.AIRFLOW:
                return Voice(
                    rows=has(0.7),
                    schema=has(0.9),
                    sql=not is_extract,
                    commit=is_extract and has(0.5),
                    parameters=has(0.6),
                    column_lineage=not is_extract and has(0.6),
                    versions=is_extract and has(0.6),
                )
            case Tool.DBT:
                is_artifact = self.style.dbt_mode == "artifacts"
                return Voice(
                    rows=has(0.75),
                    sql=is_artifact or has(0.3),
                    parameters=has(0.5),
                    column_lineage=is_artifact,
                    inputs=not is_artifact,
                    nominal_time=False,
                )
            case Tool.SPARK:
                return Voice(
                    sql=not is_extract and has(0.5),
                    commit=has(0.3),
                    parameters=has(0.8),
                    column_lineage=not is_extract,
                    versions=is_extract and has(0.5),
                    snapshots=self.style.has_snapshots,
                    metrics=has(0.3),
                    nominal_time=False,
                )
            case Tool.PLAIN:
                return Voice(
                    rows=has(0.9),
                    commit=has(0.85),
                    parameters=has(0.7),
                    column_lineage=has(0.3),
                    versions=is_extract and has(0.6),
                    metrics=has(0.3),
                    nominal_time=has(0.7),
                )

    def _pipelines(self) -> dict[str, Pipeline]:
        random, style = self.random, self.style
        members: dict[str, list[str]] = {}
        for job in self.jobs.values():
            members.setdefault(job.pipeline, []).append(job.key)
        pipelines = {}
        for key, jobs in members.items():
            first = self.jobs[jobs[0]]
            mode: Mode = ""
            parent = None
            told_as = first.told_as
            match first.tool:
                case Tool.AIRFLOW:
                    told_as = Name(style.airflow, key)
                case Tool.DBT:
                    told_as, mode = Name(style.dbt, f"dbt-run-{style.database}"), style.dbt_mode
                case Tool.SPARK:
                    told_as = Name(style.spark, first.output)
                    if random.has(0.5):
                        parent = Name(style.airflow, f"spark_jobs.submit_{first.output}")
                case Tool.PLAIN:
                    pass
            stops = mode != "" and random.has(0.4)
            pipelines[key] = Pipeline(key, first.tool, told_as, tuple(jobs), first.period, 0.0, mode, stops, parent)
        return pipelines


def _schedule(company: Company, random: Luck) -> None:
    """Let every pipeline begin when those that it reads from are usually done."""
    waits: dict[str, set[str]] = {key: set() for key in company.pipelines}
    for job in company.jobs.values():
        for each in job.inputs:
            upstream = company.producers[each.table]
            if upstream.pipeline != job.pipeline and upstream.period == job.period:
                waits[job.pipeline].add(upstream.pipeline)
    begun: set[str] = set()
    while len(begun) < len(waits):
        ready = [key for key in waits if key not in begun and waits[key] <= begun]
        for key in ready:
            pipeline = company.pipelines[key]
            is_hourly = pipeline.period < DAY
            before = max((end(company, each) for each in waits[key] if each in begun), default=0.0)
            start = before + (90 if is_hourly else 20 * 60) if before else (60.0 if is_hourly else HOUR)
            start += random.uniform(0, 60 if is_hourly else 25 * 60)
            company.pipelines[key] = replace(pipeline, offset=float(round(start)))
            begun.add(key)


def _add_checks(company: Company, random: Luck) -> None:
    usual = usual_contents(company)
    for table in company.tables.values():
        if not random.has(0.75):
            continue
        likely = likely_tests(company, table.key, usual[table.key])
        manners: dict[str, Check] = {}
        for test in random.sample(likely, min(len(likely), random.randint(1, 5))):
            manner = manner_for(company, random, table.key, test)
            if manner not in manners:
                manners[manner] = new_check(company, table.key, manner, [])
                company.checks[manners[manner].key] = manners[manner]
            severity = "warn" if random.has(0.15) else "error"
            manners[manner].tests.append(replace(test, severity=severity))
