"""The fact tables, and the one rule by which each fact merges.

A fact is something that events said. Each merges by one of three rules (insert if absent, least, greatest by a stored
order key), and each rule gives the same whatever the order, duplication and batching of events. What is declared here
is used by `fold`, by the Spark fold, by the SQL merge and by the tests: nothing else may decide between two facts.

A row has a value for each group that some event said anything of. A value is a tuple of the group's columns; a group
may also hold a set of such tuples, or a map of them by name, and then its rule is applied element by element.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

import msgspec

from correlator.rulebook.formats import Instant

ColumnType = Literal["id", "digest", "text", "instant", "integer", "boolean", "json"]
Key: TypeAlias = tuple[Any, ...]
Value: TypeAlias = Any
"""A tuple, or a frozenset or dict of tuples."""
Row: TypeAlias = dict[str, Value]
"""Values by group."""


class MergeRule(Enum):
    ABSENT = "insert if absent"
    LEAST = "least"
    GREATEST = "greatest"


class Shape(Enum):
    ONE = "one"
    SET = "set"
    MAP = "map"


class Column(msgspec.Struct, frozen=True):
    name: str
    type: ColumnType


class Group(msgspec.Struct, frozen=True):
    """Columns that are decided together."""

    name: str
    rule: MergeRule
    columns: tuple[Column, ...]
    decided_by: int
    """How many of the columns, from the first, decide. The others follow."""
    shape: Shape = Shape.ONE
    keep: int | None = None
    """Of a set, how many of the first and how many of the last are kept."""


class Table(msgspec.Struct, frozen=True):
    name: str
    key: tuple[Column, ...]
    groups: tuple[Group, ...] = ()

    def __post_init__(self) -> None:
        assert self.name not in _MERGERS, f"there are two tables {self.name}"  # noqa: S101
        _MERGERS[self.name] = {group.name: _merger(group) for group in self.groups}

    def merge(self, standing: Row, said: Row) -> None:
        """Add to the standing row what was said of the same key."""
        mergers = _MERGERS[self.name]
        for group, theirs in said.items():
            mine = standing.get(group)
            if mine is None:
                standing[group] = theirs
            elif mine != theirs:
                standing[group] = mergers[group](mine, theirs)


# Beside the tables, which are plain declarations, what is worked out from them once.
_MERGERS: Final[dict[str, dict[str, Callable[[Value, Value], Value]]]] = {}


def _merger(group: Group) -> Callable[[Value, Value], Value]:
    """How two different values of a group become one."""
    deciding = group.decided_by

    def greatest(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        return other if other[:deciding] > one[:deciding] else one

    def least(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        return other if other[:deciding] < one[:deciding] else one

    # Two values under "insert if absent" are equal but for a collision of digests; the lesser then stands for both.
    decide = greatest if group.rule is MergeRule.GREATEST else least
    match group.shape:
        case Shape.ONE:
            return decide
        case Shape.MAP:
            return lambda one, other: (
                one | {name: said if name not in one else decide(one[name], said) for name, said in other.items()}
            )
        case Shape.SET:
            return lambda one, other: first_and_last(one | other, group.keep)


def _columns(**types: ColumnType) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name, kind in types.items())


def _least(name: str, **types: ColumnType) -> Group:
    return Group(name, MergeRule.LEAST, _columns(**types), len(types))


def _greatest(name: str, **types: ColumnType) -> Group:
    return Group(name, MergeRule.GREATEST, _columns(**types), len(types))


_ORDER: Final = _columns(event_time="instant", rank="integer", digest="id")
"""The order key: an event's time, its rank at that instant, and the digest of its content."""


def _last_said(name: str, **types: ColumnType) -> Group:
    return Group(name, MergeRule.GREATEST, _ORDER + _columns(**types), len(_ORDER))


def _last_said_each(name: str, **types: ColumnType) -> Group:
    return Group(name, MergeRule.GREATEST, _ORDER + _columns(**types), len(_ORDER), Shape.MAP)


HISTORY_KEPT: Final = 50

JOBS: Final = Table(
    "jobs",
    _columns(id="id"),
    (
        _least("identity", job_namespace="text", job_name="text"),
        _least("first_event", first_event_at="instant"),
        _greatest("last_event", last_event_at="instant"),
        # A deletion is kept as an empty body, so that an older statement that comes late stays deleted.
        _last_said_each("facets", body="json"),
    ),
)

JOB_RUNS: Final = Table(
    "job_runs",
    _columns(id="id"),
    (
        _least(
            "identity", canonical_job_run_id="text", job_id="id", job_namespace="text", job_name="text", run_id="text"
        ),
        _least("first_event", first_event_at="instant"),
        _least("first_start", first_start_at="instant"),
        # A run's end is the first of these; at one instant FAIL, then ABORT, then COMPLETE.
        _least("fail", fail_at="instant"),
        _least("abort", abort_at="instant"),
        _least("complete", complete_at="instant"),
        # While there is no end: the last of START and RUNNING.
        Group("open", MergeRule.GREATEST, _columns(open_at="instant", open_rank="integer", open_state="text"), 2),
        _last_said("last_event", event_type="text", producer="text"),
        Group(
            "states", MergeRule.ABSENT, _columns(at="instant", rank="integer", state="text"), 3, Shape.SET, HISTORY_KEPT
        ),
        # Parent and root are one statement: a root that belongs to another parent would lead into the wrong family.
        _last_said(
            "parent",
            parent_job_run_id="id",
            parent_run_id="text",
            parent_job_namespace="text",
            parent_job_name="text",
            root_job_run_id="id",
            root_run_id="text",
            root_job_namespace="text",
            root_job_name="text",
        ),
        _last_said("nominal", nominal_start_at="instant", nominal_end_at="instant"),
        _last_said("type", processing_type="text", integration="text", job_type="text"),
        _last_said("error", error_message="text"),
        _greatest("explicit", states_lineage="boolean"),
        _greatest("tested", has_results="boolean"),
        _last_said_each("facets", body="json"),
    ),
)

DATASETS: Final = Table(
    "datasets",
    _columns(id="id"),
    (
        _least("identity", canonical_dataset_id="text"),
        # One event may spell a name in several ways; then its least spelling stands, wherever it is written.
        Group("named", MergeRule.LEAST, _ORDER + _columns(dataset_namespace="text", dataset_name="text"), 5),
        _last_said("symlinks", aliases="json"),
        _least("first_event", first_event_at="instant"),
        _greatest("last_event", last_event_at="instant"),
        _last_said_each("facets", body="json"),
    ),
)

LINEAGE_EDGES: Final = Table(
    "lineage_edges",
    _columns(job_run_id="id", dataset_id="id", edge_type="text"),
    (
        # Lesser is stronger: see statements.STRENGTH.
        _least("origin", origin="integer"),
        _least("told", sources_told_by="integer"),
        _least("first_event", first_event_at="instant"),
        _greatest("last_event", last_event_at="instant"),
        _last_said("statistics", row_count="integer", byte_size="integer", file_count="integer"),
        _last_said("version", dataset_version="text"),
        _last_said("lifecycle", lifecycle_change="text"),
        _last_said_each("facets", body="json"),
    ),
)

COLUMN_EDGES: Final = Table(
    "column_edges",
    _columns(
        job_run_id="id",
        target_kind="text",
        target_id="id",
        target_field="text",
        source_kind="text",
        source_id="id",
        source_field="text",
        origin="integer",
        transformation="text",
        subtype="text",
        masking="boolean",
    ),
)
"""What a run said of where data came from, down to the column; an empty field means all of the dataset."""

RUNNING_WRITES: Final = Table(
    "running_writes",
    _columns(job_run_id="id", dataset_id="id", at="instant"),
    (_last_said("statistics", row_count="integer", byte_size="integer", file_count="integer"),),
)
"""Versions that a run wrote before it ended: every other write is an output and the run's end."""

DECLARATIONS: Final = Table(
    "declarations",
    _columns(entity_kind="text", entity_id="id", said_by="text", event_time="instant"),
    (Group("edges", MergeRule.GREATEST, _columns(digest="id", edges="json"), 1),),
)
"""Lineage that a JobEvent or DatasetEvent declares, whole. It stands until the same is declared of the entity again: a
job by its event, a dataset by each of the facets that can tell."""

FACET_HISTORY: Final = Table(
    "facet_history",
    # The body's digest is empty where the facet was deleted.
    _columns(entity_kind="text", entity_id="id", facet_key="text", hour="instant", job_run_id="id", body_digest="id"),
    (_least("first", first_at="instant"), _greatest("last", last_at="instant", rank="integer")),
)
"""What was said of a facet, and when in an hour first and last: every event of a run says the same once more."""

_HOUR: Final = 3_600_000_000


def hour_of(instant: Instant) -> Instant:
    """The full hour that a moment lies in, in UTC."""
    return instant - instant % _HOUR


FACET_BODIES: Final = Table(
    "facet_bodies", _columns(digest="id"), (Group("body", MergeRule.ABSENT, _columns(body="json"), 1),)
)

TEST_RESULTS: Final = Table(
    "test_results",
    _columns(test_id="id", job_run_id="id"),
    (
        _least("test", dataset_id="id", test_name="text", column="text", parameters="text"),
        _last_said(
            "result",
            status="text",
            severity="text",
            expected="text",
            actual="text",
            message="text",
            description="text",
            of_own_output="boolean",
        ),
    ),
)

TABLES: Final = (
    JOBS,
    JOB_RUNS,
    DATASETS,
    LINEAGE_EDGES,
    COLUMN_EDGES,
    RUNNING_WRITES,
    DECLARATIONS,
    FACET_HISTORY,
    FACET_BODIES,
    TEST_RESULTS,
)

BY_NAME: Final = {table.name: table for table in TABLES}

RUN_AT: Final = {
    JOB_RUNS.name: 0,
    LINEAGE_EDGES.name: 0,
    COLUMN_EDGES.name: 0,
    RUNNING_WRITES.name: 0,
    FACET_HISTORY.name: 4,
    TEST_RESULTS.name: 1,
}
"""Where the key of a table names a run, if it names one."""


def first_and_last(values: frozenset[tuple[Any, ...]], keep: int | None) -> frozenset[tuple[Any, ...]]:
    if keep is None or len(values) <= 2 * keep:
        return values
    ordered = sorted(values)
    return frozenset(ordered[:keep] + ordered[-keep:])


class Facts:
    """Rows by table and key. Adding is merging."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[Key, Row]] = {table.name: {} for table in TABLES}

    def say(self, table: Table, key: Key, **values: Value) -> None:
        """Add what is said of a key: values by group, None for a group that nothing is said of."""
        self._add(table, key, {group: value for group, value in values.items() if value is not None})

    def merge(self, other: "Facts") -> None:
        for table in TABLES:
            for key, row in other.rows(table).items():
                self._add(table, key, dict(row))

    def take(self, other: "Facts") -> None:
        """Merge facts that nobody uses any more: their rows may become rows of these."""
        for table in TABLES:
            theirs = other.made(table)
            if self._rows[table.name]:
                self.add(table, theirs.items())
            else:
                self._rows[table.name] = theirs

    def without(self, tables: Iterable[Table]) -> "Facts":
        """The rows of some tables, which these facts have no more."""
        apart = Facts()
        for table in tables:
            apart._rows[table.name], self._rows[table.name] = self._rows[table.name], {}
        return apart

    def without_runs(self, runs: frozenset[bytes] | set[bytes]) -> Iterator[tuple[Table, list[tuple[Key, Row]]]]:
        """All that is said of some runs, table by table, which these facts have no more."""
        for table, place in RUN_AT.items():
            taken: list[tuple[Key, Row]] = []
            left: dict[Key, Row] = {}
            for item in self._rows[table].items():
                if item[0][place] in runs:
                    taken.append(item)
                else:
                    left[item[0]] = item[1]
            if taken:
                self._rows[table] = left
                yield BY_NAME[table], taken

    def add(self, table: Table, rows: Iterable[tuple[Key, Row]]) -> None:
        """Add rows that nobody else uses: they may become rows of these facts."""
        for key, row in rows:
            self._add(table, key, row)

    def _add(self, table: Table, key: Key, row: Row) -> None:
        rows = self._rows[table.name]
        standing = rows.setdefault(key, row)
        if standing is not row:
            table.merge(standing, row)

    def rows(self, table: Table) -> Mapping[Key, Row]:
        return self._rows[table.name]

    def made(self, table: Table) -> dict[Key, Row]:
        """The rows themselves, for the fold to write to."""
        return self._rows[table.name]

    def __iter__(self) -> Iterator[tuple[Table, Key, Row]]:
        for table in TABLES:
            for key, row in self._rows[table.name].items():
                yield table, key, row

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Facts) and self._rows == other._rows

    __hash__ = None  # type: ignore[assignment]
