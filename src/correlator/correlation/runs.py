"""Runs: all that is known of one, with those around it."""

from typing import Annotated, Any, Final
from uuid import UUID

import psycopg
from msgspec import Meta, Struct
from psycopg.rows import dict_row

from correlator.correlation.jobs import RUN_COLUMNS, JobName, RunBrief, run_brief
from correlator.correlation.starts import run_key
from correlator.rulebook.redaction import Redaction
from correlator.store.moments import Moment

MOST_CHILDREN: Final = 1_000


class StateChange(Struct, frozen=True):
    state: str
    at: Moment


class Contradiction(Struct, frozen=True):
    kind: str
    at: Moment
    sentence: str


class RunRef(Struct, frozen=True):
    """A run that others name; its own events may never have come."""

    id: str | None
    run_id: str | None
    job: JobName


class DatasetUse(Struct, frozen=True, kw_only=True):
    """A dataset that a run read or wrote."""

    urn: str
    namespace: str
    name: str
    used_at: Annotated[Moment | None, Meta(description="When it was read or written; null if it was not written.")]
    rows: int | None
    bytes: int | None
    files: int | None
    version: str | None
    lifecycle_change: str | None
    facets: dict[str, Any]


class TestResult(Struct, frozen=True, kw_only=True):
    test_id: UUID
    name: str
    column: str
    status: str
    severity: str
    expected: str
    actual: str
    message: str
    at: Moment
    dataset: Annotated[str | None, Meta(description="The URN of what was tested.")]
    run_id: str
    run: Annotated[str, Meta(description="The canonical id of the run that tested.")]


class RunDetail(Struct, frozen=True, kw_only=True):
    id: str
    run_id: str | None
    job: JobName | None
    state: Annotated[str | None, Meta(description="Null for a run that is known as a parent only.")]
    started_at: Moment | None
    ended_at: Moment | None
    nominal_time: Moment | None
    producer: str | None
    processing_type: str | None
    integration: str | None
    job_type: str | None
    error_message: str | None
    state_history: list[StateChange]
    contradictions: Annotated[list[Contradiction], Meta(description="What it said that cannot all be true.")]
    parent: RunRef | None
    root: RunRef | None
    children: Annotated[list[RunBrief], Meta(description="Runs that it started: all tasks of a DAG run.")]
    inputs: list[DatasetUse]
    outputs: list[DatasetUse]
    results: list[TestResult]
    facets: dict[str, Any]


_ONE: Final = """
SELECT * FROM (
    SELECT run.*, 0 AS place FROM job_runs AS run WHERE run.id = %(id)s::uuid
    UNION ALL
    SELECT run.*, 1 FROM job_runs AS run WHERE run.run_id = %(run_id)s::text
) AS run
ORDER BY place, id LIMIT 20
"""
_CHILDREN: Final = f"""
SELECT {RUN_COLUMNS} FROM job_runs AS run
WHERE run.parent_job_run_id = %s::uuid ORDER BY run.started_at, run.id LIMIT {MOST_CHILDREN}
"""  # noqa: S608 (constants of our own)
_PARENT_ONLY: Final = """
SELECT parent_run_id, parent_job_namespace, parent_job_name FROM job_runs WHERE parent_job_run_id = %s::uuid LIMIT 1
"""
_USES: Final = """
SELECT edge.edge_type, dataset.canonical_dataset_id AS urn, dataset.dataset_namespace AS namespace,
       dataset.dataset_name AS name, edge.used_at, edge.row_count AS rows, edge.byte_size AS bytes,
       edge.file_count AS files, edge.dataset_version AS version, edge.lifecycle_change, edge.facets
FROM lineage_edges AS edge JOIN datasets AS dataset ON dataset.id = edge.dataset_id
WHERE edge.job_run_id = %s::uuid ORDER BY dataset.canonical_dataset_id
"""
RESULT_COLUMNS: Final = """
result.test_id, result.test_name AS name, result.column_name AS column, result.status, result.severity,
result.expected, result.actual, result.message, result.event_time AS at
"""
_RESULTS: Final = f"""
SELECT {RESULT_COLUMNS}, dataset.canonical_dataset_id AS dataset
FROM standing_results AS result LEFT JOIN datasets AS dataset ON dataset.id = result.dataset_id
WHERE result.job_run_id = %s::uuid ORDER BY result.test_name, result.column_name, result.test_id
"""  # noqa: S608
_CONTRADICTIONS: Final = (
    "SELECT kind, at, sentence FROM run_contradictions WHERE job_run_id = %s::uuid ORDER BY at, kind"
)


class AmbiguousRunError(LookupError):
    """Several runs have this id; each has a canonical one of its own."""


def find_run(connection: psycopg.Connection[Any], given: str, redaction: Redaction) -> RunDetail | None:
    """By its canonical id, or by the id that its producer gave it."""
    key = run_key(given)
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_ONE, {"id": key, "run_id": given}).fetchall()
    if not rows:
        return None if key is None else _parent_only(connection, UUID(key))
    if len(rows) > 1 and rows[0]["place"]:
        others = ", ".join(f"{row['canonical_job_run_id']} ({row['job_namespace']}/{row['job_name']})" for row in rows)
        raise AmbiguousRunError(f"{len(rows)} runs have the id {given[:200]!r}. Ask by the canonical one: {others}.")
    row = rows[0]
    uses = _uses(connection, row["id"], redaction)
    return RunDetail(
        id=row["canonical_job_run_id"],
        run_id=row["run_id"],
        job=JobName(row["job_namespace"], row["job_name"]),
        state=row["current_state"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        nominal_time=row["nominal_time"],
        producer=row["producer"],
        processing_type=row["processing_type"],
        integration=row["integration"],
        job_type=row["job_type"],
        error_message=None if row["error_message"] is None else redaction.text(row["error_message"]),
        state_history=[StateChange(said["state"], said["event_time"]) for said in row["state_history"]],
        contradictions=[Contradiction(*said) for said in connection.execute(_CONTRADICTIONS, [row["id"]])],
        parent=_ref(row, "parent"),
        root=_ref(row, "root"),
        children=_children(connection, row["id"]),
        inputs=uses["input"],
        outputs=uses["output"],
        results=_results(connection, row, redaction),
        facets=redaction.facets(row["facets"]),
    )


def _parent_only(connection: psycopg.Connection[Any], key: UUID) -> RunDetail | None:
    row = connection.execute(_PARENT_ONLY, [key]).fetchone()
    if row is None:
        return None
    return RunDetail(
        id=key.hex,
        run_id=row[0],
        job=None if row[2] is None else JobName(row[1], row[2]),
        state=None,
        started_at=None,
        ended_at=None,
        nominal_time=None,
        producer=None,
        processing_type=None,
        integration=None,
        job_type=None,
        error_message=None,
        state_history=[],
        contradictions=[],
        parent=None,
        root=None,
        children=_children(connection, key),
        inputs=[],
        outputs=[],
        results=[],
        facets={},
    )


def _ref(row: dict[str, Any], which: str) -> RunRef | None:
    key: UUID | None = row[f"{which}_job_run_id"]
    if key is None or row[f"{which}_job_name"] is None:
        return None
    name = JobName(row[f"{which}_job_namespace"], row[f"{which}_job_name"])
    return RunRef(key.hex, row[f"{which}_run_id"], name)


def _children(connection: psycopg.Connection[Any], key: UUID) -> list[RunBrief]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return [run_brief(row) for row in cursor.execute(_CHILDREN.encode(), [key])]


def _uses(connection: psycopg.Connection[Any], key: UUID, redaction: Redaction) -> dict[str, list[DatasetUse]]:
    found: dict[str, list[DatasetUse]] = {"input": [], "output": []}
    with connection.cursor(row_factory=dict_row) as cursor:
        for row in cursor.execute(_USES, [key]):
            role, facets = row.pop("edge_type"), redaction.facets(row.pop("facets"))
            found[role].append(DatasetUse(**row, facets=facets))
    return found


def _results(connection: psycopg.Connection[Any], run: dict[str, Any], redaction: Redaction) -> list[TestResult]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return [
            test_result({**row, "run_id": run["run_id"], "run": run["canonical_job_run_id"]}, redaction)
            for row in cursor.execute(_RESULTS.encode(), [run["id"]])
        ]


def test_result(row: dict[str, Any], redaction: Redaction) -> TestResult:
    said = {name: redaction.text(row[name]) for name in ("expected", "actual", "message")}
    return TestResult(**{**row, **said})
