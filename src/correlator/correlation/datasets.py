"""Datasets: lists, and all that is known of one, under all of its names."""

from typing import Annotated, Any, Final
from uuid import UUID

import psycopg
from msgspec import Meta, Struct
from psycopg.rows import dict_row

from correlator.correlation.history import History
from correlator.correlation.ids import id_of
from correlator.correlation.ignored import Ignored, sql_of_datasets
from correlator.correlation.jobs import RUN_COLUMNS, Owner, RunBrief, owners_of, run_brief
from correlator.correlation.runs import RESULT_COLUMNS, TestResult, test_result
from correlator.correlation.ticks import MOST_TICKS, Tick, ticks_of_tests
from correlator.correlation.words import query_of
from correlator.rulebook.identity import dataset_key
from correlator.rulebook.redaction import Redaction
from correlator.store.moments import Moment

MOST_USES: Final = 20
MOST_CHANGES: Final = 50
_LOOKED_AT: Final = 2_000
"""Statements of a facet, from the last one back, among which its changes are looked for."""


class DatasetBrief(Struct, frozen=True, kw_only=True):
    urn: str
    namespace: str
    name: str
    called: Annotated[
        str, Meta(description="The URN of the class of names that it belongs to; its own if it is alone.")
    ]
    last_event_at: Annotated[Moment | None, Meta(description="Null for one that is only named as a source.")]


class FacetChange(Struct, frozen=True, kw_only=True):
    facet: str
    at: Moment
    run_id: Annotated[str | None, Meta(description="The run that said so; null for a DatasetEvent.")]
    run: str | None
    urn: Annotated[str, Meta(description="Under which name.")]
    body: Annotated[Any, Meta(description="Null where it was deleted.")]


class Use(Struct, frozen=True, kw_only=True):
    """A read or a write."""

    at: Moment
    urn: str
    rows: int | None
    bytes: int | None
    version: str | None
    run: RunBrief


class TestState(Struct, frozen=True, kw_only=True):
    """A test, and how it ended last."""

    test_id: UUID
    name: str
    column: str
    parameters: str
    last_result: TestResult | None
    history: Annotated[list[Tick], Meta(description=f"Its last {MOST_TICKS} results, the oldest first.")]


class DatasetDetail(Struct, frozen=True, kw_only=True):
    urn: str
    namespace: str
    name: str
    called: str
    names: Annotated[list[str], Meta(description="All other names of the same dataset that events have used.")]
    first_event_at: Moment | None
    last_event_at: Moment | None
    owners: list[Owner]
    facets: dict[str, Any]
    schema_versions: Annotated[list[FacetChange], Meta(description="Its schemas, newest first.")]
    history: Annotated[list[FacetChange], Meta(description="What else changed: column lineage, owners. Newest first.")]
    writes: Annotated[list[Use], Meta(description="The last ones, newest first.")]
    reads: Annotated[list[Use], Meta(description="The last ones, newest first.")]
    tests: list[TestState]


_LIST: Final = f"""
SELECT dataset.id, left(dataset.canonical_dataset_id, 600) AS short, dataset.canonical_dataset_id AS urn,
       dataset.dataset_namespace AS namespace, dataset.dataset_name AS name, dataset.last_event_at,
       coalesce(of_class.class_urn, dataset.canonical_dataset_id) AS called
FROM datasets AS dataset
LEFT JOIN dataset_classes AS of_class ON of_class.dataset_id = dataset.id
WHERE (left(dataset.canonical_dataset_id, 600), dataset.id) > (%(after)s::text, %(after_id)s::uuid)
  AND (%(namespace)s::text IS NULL OR dataset.dataset_namespace = %(namespace)s::text)
  AND (%(words)s::tsquery IS NULL OR words_of(dataset.canonical_dataset_id) @@ %(words)s::tsquery)
  AND {sql_of_datasets("dataset.dataset_namespace", "dataset.canonical_dataset_id")}
ORDER BY left(dataset.canonical_dataset_id, 600), dataset.id
LIMIT %(limit)s
"""  # noqa: S608 (constants of our own)

# The dataset itself, then the others of its class.
_MEMBERS: Final = """
SELECT dataset.id, dataset.canonical_dataset_id AS urn, dataset.dataset_namespace AS namespace,
       dataset.dataset_name AS name, dataset.first_event_at, dataset.last_event_at, dataset.facets,
       coalesce(of_class.class_urn, dataset.canonical_dataset_id) AS called
FROM (
    SELECT %(id)s::uuid AS id
    UNION
    SELECT mate.dataset_id FROM dataset_classes AS known
    JOIN dataset_classes AS mate ON mate.class_id = known.class_id WHERE known.dataset_id = %(id)s::uuid
) AS member
JOIN datasets AS dataset ON dataset.id = member.id
LEFT JOIN dataset_classes AS of_class ON of_class.dataset_id = dataset.id
ORDER BY dataset.id <> %(id)s::uuid, dataset.canonical_dataset_id <> of_class.class_urn, dataset.canonical_dataset_id
"""

# The end of one index range for each name.
_USES: Final = f"""
SELECT used.used_at AS at, dataset.canonical_dataset_id AS urn, used.row_count AS rows, used.byte_size AS bytes,
       used.dataset_version AS version, {RUN_COLUMNS}
FROM unnest(%(ids)s::uuid[]) AS member (id)
CROSS JOIN LATERAL (
    SELECT * FROM lineage_edges AS edge
    WHERE edge.dataset_id = member.id AND edge.edge_type = %(role)s AND edge.used_at IS NOT NULL
    ORDER BY edge.used_at DESC LIMIT %(limit)s
) AS used
JOIN job_runs AS run ON run.id = used.job_run_id
JOIN datasets AS dataset ON dataset.id = member.id
ORDER BY used.used_at DESC, run.id LIMIT %(limit)s
"""  # noqa: S608

_HISTORY: Final = f"""
SELECT change.facet_key AS facet, change.at, run.run_id, run.canonical_job_run_id AS run,
       dataset.canonical_dataset_id AS urn, body.body
FROM (
    SELECT said.*, told.at, lag(said.body_digest) OVER newer AS before, row_number() OVER newer = 1 AS is_first
    FROM unnest(%(ids)s::uuid[]) AS member (id)
    CROSS JOIN unnest(%(facets)s::text[]) AS wanted (facet)
    CROSS JOIN LATERAL (
        SELECT * FROM facet_history
        WHERE entity_id = member.id AND entity_kind = 'dataset' AND facet_key = wanted.facet
        ORDER BY hour DESC, job_run_id DESC, body_digest DESC LIMIT {_LOOKED_AT}
    ) AS said
    CROSS JOIN LATERAL (VALUES (said.first_at), (said.last_at)) AS told (at)
    WINDOW newer AS (PARTITION BY said.entity_id, said.facet_key ORDER BY told.at, said.rank, said.body_digest)
) AS change
JOIN datasets AS dataset ON dataset.id = change.entity_id
LEFT JOIN job_runs AS run ON run.id = change.job_run_id
LEFT JOIN facet_bodies AS body ON body.digest = change.body_digest
WHERE change.is_first OR change.body_digest IS DISTINCT FROM change.before
ORDER BY change.at DESC, change.rank DESC, change.body_digest LIMIT {MOST_CHANGES}
"""  # noqa: S608

_TESTS: Final = f"""
SELECT test.id, test.test_name, test.column_name, test.parameters, result.*
FROM data_tests AS test
LEFT JOIN LATERAL (
    SELECT {RESULT_COLUMNS}, dataset.canonical_dataset_id AS dataset, run.run_id, run.canonical_job_run_id AS run
    FROM (
        (SELECT * FROM standing_results AS stated
         WHERE stated.test_id = test.id ORDER BY stated.event_time DESC, stated.job_run_id DESC LIMIT 1)
    ) AS result
    JOIN job_runs AS run ON run.id = result.job_run_id
    LEFT JOIN datasets AS dataset ON dataset.id = result.dataset_id
) AS result ON true
WHERE test.dataset_id = ANY (%(ids)s::uuid[])
ORDER BY test.test_name, test.column_name, test.id LIMIT 1000
"""  # noqa: S608


class DatasetPlace(Struct, frozen=True, array_like=True):
    """Where in the list of datasets a page ends."""

    urn: str
    id: UUID


class DatasetQuestion(Struct, frozen=True, kw_only=True):
    namespace: str | None = None
    q: str | None = None


def list_datasets(
    connection: psycopg.Connection[Any], question: DatasetQuestion, *, limit: int, after: DatasetPlace | None = None
) -> list[tuple[DatasetPlace, DatasetBrief]]:
    """By URN."""
    place = after or DatasetPlace("", UUID(int=0))
    values = {
        "after": place.urn,
        "after_id": place.id,
        "namespace": question.namespace,
        "words": None if question.q is None else query_of(question.q) or "",
        "limit": limit,
        **Ignored.load(connection).parameters,
    }
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_LIST.encode(), values, prepare=False).fetchall()
    return [(DatasetPlace(row.pop("short"), row.pop("id")), DatasetBrief(**row)) for row in rows]


def find_dataset(connection: psycopg.Connection[Any], urn: str, redaction: Redaction) -> DatasetDetail | None:
    """By any of its names, also by one that no event has used."""
    with connection.cursor(row_factory=dict_row) as cursor:
        members = cursor.execute(_MEMBERS, {"id": UUID(bytes=dataset_key(urn))}).fetchall()
    if not members:
        return None
    one = members[0]
    ids = [member["id"] for member in members]
    facets = redaction.facets(one["facets"])
    owners = {owner: None for member in members for owner in owners_of(member["facets"])}
    return DatasetDetail(
        urn=one["urn"],
        namespace=one["namespace"],
        name=one["name"],
        called=one["called"],
        names=[member["urn"] for member in members[1:]],
        first_event_at=min((m["first_event_at"] for m in members if m["first_event_at"] is not None), default=None),
        last_event_at=max((m["last_event_at"] for m in members if m["last_event_at"] is not None), default=None),
        owners=list(owners),
        facets=facets,
        schema_versions=_history(connection, ids, ["schema"], redaction),
        history=_history(connection, ids, ["columnLineage", "ownership"], redaction),
        writes=_uses(connection, ids, "output"),
        reads=_uses(connection, ids, "input"),
        tests=_tests(connection, ids, redaction),
    )


def _history(
    connection: psycopg.Connection[Any], ids: list[UUID], facets: list[str], redaction: Redaction
) -> list[FacetChange]:
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_HISTORY.encode(), {"ids": ids, "facets": facets}, prepare=True).fetchall()
    return [FacetChange(**{**row, "body": redaction.facets({row["facet"]: row["body"]})[row["facet"]]}) for row in rows]


def _uses(connection: psycopg.Connection[Any], ids: list[UUID], role: str) -> list[Use]:
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_USES.encode(), {"ids": ids, "role": role, "limit": MOST_USES}, prepare=True).fetchall()
    return [
        Use(
            at=row["at"],
            urn=row["urn"],
            rows=row["rows"],
            bytes=row["bytes"],
            version=row["version"],
            run=run_brief(row),
        )
        for row in rows
    ]


def _tests(connection: psycopg.Connection[Any], ids: list[UUID], redaction: Redaction) -> list[TestState]:
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_TESTS.encode(), {"ids": ids}, prepare=True).fetchall()
    ticks = ticks_of_tests(History(connection), [id_of(row["id"]) for row in rows])
    found = []
    for row in rows:
        about = [row.pop(name) for name in ("id", "test_name", "column_name", "parameters")]
        last = None if row["test_id"] is None else test_result(row, redaction)
        found.append(
            TestState(
                test_id=about[0],
                name=about[1],
                column=about[2],
                parameters=about[3],
                last_result=last,
                history=ticks[id_of(about[0])],
            )
        )
    return found
