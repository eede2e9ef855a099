"""One box for everything: jobs, datasets, columns, tests and runs, by the words of their names.

Every word that is typed has to be the beginning of a word of the name, in any order: `ord item` finds
`shop.order_items`. Runs go by their whole id. It is an index over words and not over letters (`pg_trgm` is not part of
every PostgreSQL): a letter in the middle of a word finds nothing.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

import psycopg
from msgspec import Meta, Struct

from correlator.correlation.ignored import Ignored, sql_of_datasets, sql_of_jobs
from correlator.correlation.starts import run_key
from correlator.correlation.words import query_of

Kind: TypeAlias = Literal["job", "dataset", "column", "test", "run"]
KINDS: Final[tuple[Kind, ...]] = ("dataset", "job", "column", "test", "run")

_LOOKED_AT: Final = 1_000
"""Of so many that fit the best are shown; who gets more has to type more."""


class Found(Struct, frozen=True):
    kind: Kind
    id: Annotated[str, Meta(description="As a node of the lineage graph; of a test `test:ID`.")]
    name: str
    namespace: Annotated[str, Meta(description="Of a column or test, the URN of its dataset.")]


# The first thousand rows of a bitmap over the words, the shortest names first: they are nearest to what was typed.
_DATASETS: Final = f"""
SELECT 'dataset:' || urn, dataset_name, dataset_namespace FROM (
    SELECT canonical_dataset_id AS urn, dataset_name, dataset_namespace FROM datasets
    WHERE words_of(canonical_dataset_id) @@ %(words)s::tsquery
      AND {sql_of_datasets("dataset_namespace", "canonical_dataset_id")}
    LIMIT {_LOOKED_AT}
) AS found ORDER BY length(urn), urn LIMIT %(limit)s
"""  # noqa: S608 (constants of our own)
_JOBS: Final = f"""
SELECT 'job:' || job_namespace || '/' || job_name, job_name, job_namespace FROM (
    SELECT job_namespace, job_name FROM jobs
    WHERE words_of(job_namespace || ' ' || job_name) @@ %(words)s::tsquery
      AND {sql_of_jobs("job_namespace", "job_name")}
    LIMIT {_LOOKED_AT}
) AS found ORDER BY length(job_name), job_name, job_namespace LIMIT %(limit)s
"""  # noqa: S608
_COLUMNS: Final = f"""
SELECT 'column:' || urn || '#' || field, field, urn FROM (
    SELECT canonical_dataset_id AS urn, field #>> '{{}}' AS field
    FROM (
        SELECT canonical_dataset_id, schema_json FROM datasets
        WHERE words_of_columns(schema_json) @@ %(column)s::tsquery
          AND {sql_of_datasets("dataset_namespace", "canonical_dataset_id")}
        LIMIT {_LOOKED_AT}
    ) AS dataset
    CROSS JOIN LATERAL jsonb_path_query(schema_json, 'lax $.fields[*].name') AS field
) AS found
WHERE starts_with(lower(field), %(start)s::text)
ORDER BY length(field), field, urn LIMIT %(limit)s
"""  # noqa: S608
_TESTS: Final = f"""
SELECT 'test:' || id, test_name || CASE WHEN column_name = '' THEN '' ELSE ' (' || column_name || ')' END, urn FROM (
    SELECT test.id, test.test_name, test.column_name, coalesce(dataset.canonical_dataset_id, '') AS urn
    FROM data_tests AS test LEFT JOIN datasets AS dataset ON dataset.id = test.dataset_id
    WHERE words_of(test.test_name || ' ' || test.column_name) @@ %(words)s::tsquery
      AND {sql_of_datasets("coalesce(dataset.dataset_namespace, '')", "coalesce(dataset.canonical_dataset_id, '')")}
    LIMIT {_LOOKED_AT}
) AS found ORDER BY length(test_name), test_name, urn, id LIMIT %(limit)s
"""  # noqa: S608
_RUNS: Final = f"""
SELECT 'run:' || canonical_job_run_id, run_id, job_namespace || '/' || job_name FROM (
    SELECT canonical_job_run_id, run_id, job_namespace, job_name FROM job_runs WHERE id = %(run)s::uuid
    UNION
    SELECT canonical_job_run_id, run_id, job_namespace, job_name FROM job_runs WHERE run_id = %(text)s::text
) AS found
WHERE {sql_of_jobs("job_namespace", "job_name")}
ORDER BY canonical_job_run_id LIMIT %(limit)s
"""  # noqa: S608
_QUERIES: Final[dict[Kind, str]] = {
    "dataset": _DATASETS,
    "job": _JOBS,
    "column": _COLUMNS,
    "test": _TESTS,
    "run": _RUNS,
}


def search(connection: psycopg.Connection[Any], text: str, *, kind: Kind | None = None, limit: int = 10) -> list[Found]:
    """The best of each kind."""
    text = text.strip()
    column = text.lower().replace("'", "''").replace("\\", "\\\\")[:100]
    values = {
        "words": query_of(text),
        "column": f"'{column}':*" if column else None,
        "start": text.lower(),
        "text": text,
        "run": run_key(text),
        "limit": limit,
        **Ignored.load(connection).parameters,
    }
    found = []
    for each in KINDS if kind is None else (kind,):
        if each == "run" or values["words"] is not None:
            rows = connection.execute(_QUERIES[each].encode(), values, prepare=False)
            found += [Found(each, *row) for row in rows]
    return found
