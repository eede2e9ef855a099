"""What a company is made of: tables, the jobs that write them, the pipelines that run jobs, the tests that look."""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final, Literal

HOUR: Final = 3600
DAY: Final = 24 * HOUR


class Tool(StrEnum):
    AIRFLOW = "airflow"
    DBT = "dbt"
    SPARK = "spark"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Name:
    """What OpenLineage calls a job or a dataset."""

    namespace: str
    name: str


Role = Literal["driving", "union", "lookup", "filter"]
"""How a job uses an input. Rows come from `driving` and `union`; `lookup` is left joined and fills columns; `filter` is
inner joined and keeps only the rows that match."""


@dataclass(frozen=True, slots=True)
class Input:
    table: str
    role: Role


Operation = Literal["identity", "expression", "sum", "count"]


@dataclass(frozen=True, slots=True)
class Field:
    """A column that a job writes, and where it takes it from: (number of the input, column), None if from nowhere."""

    name: str
    type: str
    nulls: float = 0.0
    """The share of nulls when all is well."""
    source: tuple[int, str] | None = None
    operation: Operation = "identity"


@dataclass(frozen=True)
class Table:
    key: str
    layer: int
    written_as: Name
    read_as: Name
    symlink: Name | None
    """The name that its writer declares as another name of the same table."""
    owner: str


Strictness = Literal["passes", "nulls", "fails"]
"""What a job does when a column that it wants is gone or of another type: it goes without (SELECT *), writes nulls
(a schema that is laid over files), or fails (a query that names the column)."""


@dataclass(frozen=True)
class Voice:
    """What the events of a job tell, and what they leave out."""

    rows: bool = True
    schema: bool = True
    sql: bool = False
    commit: bool = False
    engine: bool = True
    parameters: bool = False
    column_lineage: bool = False
    inputs: bool = True
    """Whether inputs are named as such; dbt's artifacts tell them only by columns' lineage."""
    versions: bool = False
    """Whether it names the version of what it read at a source."""
    snapshots: bool = False
    """Whether it names the version that it wrote, and the versions that it read, as table formats have them."""
    metrics: bool = False
    """Whether it counts nulls and values in what it wrote."""
    nominal_time: bool = True


@dataclass(frozen=True)
class Job:
    key: str
    tool: Tool
    told_as: Name
    pipeline: str
    output: str
    inputs: tuple[Input, ...]
    fields: tuple[Field, ...]
    owner: str
    period: int
    usual_rows: float = 0.0
    """Rows that a source delivers in one period; of jobs without inputs only."""
    source: Name | None = None
    """What is outside of the company's jobs, and where a job without inputs takes its data from."""
    selectivity: float = 1.0
    groups: float = 0.0
    """Rows after GROUP BY; 0 for a job that does not aggregate."""
    strictness: Strictness = "passes"
    usual_seconds: float = 120.0
    retries: int = 1
    voice: Voice = field(default_factory=Voice)
    repository: str = ""
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def is_extract(self) -> bool:
        return not self.inputs


Mode = Literal["", "artifacts", "structured_logs"]


@dataclass(frozen=True)
class Pipeline:
    """Jobs that are started together, each after those it reads from: a DAG, an invocation of dbt, an application."""

    key: str
    tool: Tool
    told_as: Name
    jobs: tuple[str, ...]
    period: int
    offset: float
    """Seconds into each period at which it begins."""
    mode: Mode = ""
    stops_at_failed_tests: bool = False
    """`dbt build` does not go on after a failed test; `dbt run` followed by `dbt test` has run everything by then."""
    parent: Name | None = None
    """The scheduler's task that starts it, of which no other event tells."""


class TestKind(StrEnum):
    ROWS = "rows"
    NOT_NULL = "not_null"
    UNIQUE = "unique"
    FRESHNESS = "freshness"
    COLUMNS = "columns"
    TYPE = "type"
    RANGE = "range"

    __test__ = False  # not one of pytest's


@dataclass(frozen=True)
class Test:
    kind: TestKind
    column: str = ""
    low: float = 0.0
    high: float = 0.0
    type: str = ""
    unit: float = 1.0
    """The usual mean of the column: what `low` and `high` are shares of."""
    severity: str = "error"

    __test__ = False


Manner = Literal["dbt", "task", "schedule", "own_output"]
"""Who looks: a test node of the dbt invocation that wrote the table, a task of the DAG that wrote it, somebody else on
a schedule of their own, or the job itself at what it has just written."""


@dataclass
class Check:
    """Tests of one table that run together."""

    key: str
    table: str
    manner: Manner
    told_as: Name
    tests: list[Test]
    period: int = DAY
    offset: float = 0.0
    """When it runs, if on a schedule of its own."""


@dataclass
class Company:
    tables: dict[str, Table]
    jobs: dict[str, Job]
    """In the order of their data: a job comes after those that it reads from."""
    pipelines: dict[str, Pipeline]
    checks: dict[str, Check]
    weekdays: tuple[float, ...]
    """How many rows a Monday has, a Tuesday, …, as a share of the usual."""
    diurnal: float
    """How far the hours of the day swing around the usual."""
    flavour: dict[str, str] = field(default_factory=dict)
    """Details of how its producers are set up."""

    @cached_property
    def producers(self) -> dict[str, Job]:
        """Who writes a table."""
        return {job.output: job for job in self.jobs.values()}

    @cached_property
    def within(self) -> dict[str, list[str]]:
        """For each job those of its own pipeline that wait for it."""
        found: dict[str, list[str]] = {key: [] for key in self.jobs}
        for job in self.jobs.values():
            for upstream in self.upstream_within(job):
                found[upstream].append(job.key)
        return found

    def upstream_within(self, job: Job) -> list[str]:
        """The jobs of its own pipeline that a job waits for."""
        writers = [self.producers[each.table] for each in job.inputs if each.table in self.producers]
        return [writer.key for writer in writers if writer.pipeline == job.pipeline]
