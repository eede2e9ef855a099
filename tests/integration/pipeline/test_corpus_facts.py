"""Events of real producers, from their files through Spark into the tables: rows that were checked by hand."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from correlator.pipeline.fact_sink import FactSink
from correlator.pipeline.sources import Source
from correlator.pipeline.sources.files import FilesSource
from correlator.pipeline.sources.log import LogSource
from correlator.rulebook.decode import judge
from correlator.store.database import Database
from tests import corpus
from tests.integration.conftest import Postgres, database_url, new_database
from tests.integration.pipeline.histories import append, check_facts

pytestmark = corpus.needs_corpus

DUCKDB = "duckdb:///data/demo/dbtp/tiny.duckdb"
DAY = "2026-11-15"


@pytest.fixture(scope="module")
def database(spark: SparkSession, postgres: Postgres, migrated_template: str) -> Iterator[Database]:
    """All of the corpus, one event a line from its files, the others from the log."""
    with new_database(postgres, migrated_template) as name:
        made = Database(database_url(postgres, name))
        lines = [str(corpus.ROOT / "events" / name) for name in corpus.event_files() if name.endswith("l")]
        files, log = FilesSource(lines, judge), LogSource(made.url)
        head = append(
            made, [raw for name in corpus.event_files() if name.endswith(".json") for raw in corpus.events(name)]
        )
        whole: list[tuple[Source, DataFrame]] = [(files, files.now(spark)), (log, log.between(spark, 0, head))]
        for number, (source, arrivals) in enumerate(whole):
            sink = FactSink(made, source)
            assert sink.apply(arrivals, "corpus", number).rejected == 0
            sink.close()
        yield made


@pytest.fixture
def rows(database: Database) -> Iterator[Any]:
    with database.connect("test") as connection:

        def ask(query: str, *parameters: object) -> list[tuple[Any, ...]]:
            return connection.execute(query.encode(), parameters).fetchall()

        yield ask


def test_the_tables_are_the_plain_fold_of_all_events(database: Database) -> None:
    check_facts(database, corpus.all_events())


def test_how_every_run_of_dbt_stands_and_when_it_began_and_ended(rows: Any) -> None:
    found = rows(
        "SELECT job_name, current_state, started_at::text, ended_at::text, parent_job_name FROM job_runs "
        "WHERE job_namespace = 'dbtns' AND started_at < %s ORDER BY started_at",
        f"{DAY} 10:42:05Z",
    )
    assert found == [
        ("dbt-run-tinyp", "FAIL", f"{DAY} 10:41:57.392292+00", f"{DAY} 10:42:03.527879+00", None),
        (
            "tiny.main.tinyp.m1.build.run",
            "COMPLETE",
            f"{DAY} 10:42:01.837501+00",
            f"{DAY} 10:42:01.995256+00",
            "dbt-run-tinyp",
        ),
        (
            "tiny.main.tinyp.m1.build.test",
            "FAIL",
            f"{DAY} 10:42:03.527569+00",
            f"{DAY} 10:42:03.527584+00",
            "dbt-run-tinyp",
        ),
    ]


def test_a_skipped_model_is_aborted_and_ends_when_it_begins(rows: Any) -> None:
    assert rows(
        "SELECT current_state, started_at = ended_at, job_type FROM job_runs WHERE job_name = 'model.tinyp.m2'"
    ) == [("ABORT", True, "MODEL")]


def test_a_dag_of_airflow_without_a_start_and_its_tasks(rows: Any) -> None:
    found = rows(
        "SELECT job_name, first_start_at::text, started_at::text, ended_at::text, nominal_time::text, parent_job_name "
        "FROM job_runs WHERE job_namespace = 'tryns' ORDER BY job_name"
    )
    nominal = "2026-01-01 00:00:00+00"
    began, ended = f"{DAY} 10:41:20.224516+00", f"{DAY} 10:41:24.876997+00"
    assert found == [
        ("tiny", None, f"{DAY} 10:41:25.213991+00", f"{DAY} 10:41:25.213991+00", nominal, None),
        ("tiny.a", began, began, ended, nominal, "tiny"),
        (
            "tiny.b",
            f"{DAY} 10:41:24.939743+00",
            f"{DAY} 10:41:24.939743+00",
            f"{DAY} 10:41:25.102767+00",
            nominal,
            "tiny",
        ),
    ]


def test_parents_are_rows_where_they_have_said_something_themselves(rows: Any) -> None:
    assert rows(
        "SELECT child.job_name, parent.job_name FROM job_runs AS child JOIN job_runs AS parent "
        "ON parent.id = child.parent_job_run_id WHERE child.job_namespace = 'tryns' ORDER BY child.job_name"
    ) == [("tiny.a", "tiny"), ("tiny.b", "tiny")]


def test_what_the_tasks_of_a_dag_read_and_wrote(rows: Any) -> None:
    found = rows(
        "SELECT run.job_name, edge.edge_type, dataset.canonical_dataset_id FROM lineage_edges AS edge "
        "JOIN job_runs AS run ON run.id = edge.job_run_id JOIN datasets AS dataset ON dataset.id = edge.dataset_id "
        "WHERE run.job_name LIKE 'BQ.%%' ORDER BY run.started_at, edge.edge_type, dataset.canonical_dataset_id"
    )
    assert found == [
        ("BQ.upload", "input", "gs://mock-bucket/copied.csv"),
        ("BQ.upload", "input", "gs://mock-bucket/test.csv"),
        ("BQ.upload", "output", "bigquery/mock-project.test.upload"),
        ("BQ.copy", "input", "bigquery/mock-project.test.upload"),
        ("BQ.copy", "output", "bigquery/mock-project.test.upload_cp"),
        ("BQ.download", "input", "bigquery/mock-project.test.upload_cp"),
        ("BQ.download", "output", "gs://mock-bucket/result.csv"),
    ]


def test_rows_that_a_running_event_counted_stay_when_the_last_event_counts_none(rows: Any) -> None:
    assert rows(
        "SELECT run.current_state, edge.row_count FROM lineage_edges AS edge "
        "JOIN job_runs AS run ON run.id = edge.job_run_id "
        "WHERE run.job_name = 'cl_i_test_application.execute_insert_into_hive_table.warehouse_t2' "
        "AND edge.edge_type = 'output'"
    ) == [("COMPLETE", 2)]


def test_columns_of_a_copy_come_from_the_columns_of_the_same_name(rows: Any) -> None:
    found = rows(
        "SELECT target.canonical_dataset_id, edge.target_field, source.canonical_dataset_id, edge.source_field, "
        "edge.transformation, edge.subtype FROM column_edges AS edge JOIN job_runs AS run ON run.id = edge.job_run_id "
        "JOIN datasets AS target ON target.id = edge.target_id JOIN datasets AS source ON source.id = edge.source_id "
        "WHERE run.job_name = 'BQ.copy' ORDER BY edge.target_field"
    )
    upload, copy = "bigquery/mock-project.test.upload", "bigquery/mock-project.test.upload_cp"
    assert found == [(copy, column, upload, column, "DIRECT", "IDENTITY") for column in "abcd"]


def test_a_dataset_has_the_schema_that_was_told_last(rows: Any) -> None:
    assert rows(
        "SELECT canonical_dataset_id, jsonb_path_query_array(schema_json, '$.fields[*].name') FROM datasets "
        "WHERE canonical_dataset_id LIKE ANY (%s) ORDER BY canonical_dataset_id",
        ["%/out.parquet", "%/in.csv", "%.upload"],
    ) == [
        ("bigquery/mock-project.test.upload", ["a", "b", "c", "d"]),
        ("file/data/demo/in.csv", ["id", "amount", "city"]),
        ("file/data/demo/wh_spark_events.jsonl/out.parquet", ["city", "tot"]),
    ]


def test_what_the_tests_of_dbt_found_in_both_ways_of_sending(rows: Any) -> None:
    found = rows(
        "SELECT dataset.canonical_dataset_id, run.job_name, told.test_name, told.column_name, told.status, "
        "told.event_time::text FROM test_results AS told JOIN job_runs AS run ON run.id = told.job_run_id "
        "JOIN datasets AS dataset ON dataset.id = told.dataset_id ORDER BY told.event_time, told.test_name"
    )
    model = f"{DUCKDB}/tiny.main.m1"
    built, at = "tiny.main.tinyp.m1.build.test", f"{DAY} 10:42:03.527584+00"
    assert found == [
        (model, built, "not_null_m1_amount", "amount", "fail", at),
        (model, built, "unique_m1_id", "id", "pass", at),
        (
            model,
            "test.tinyp.not_null_m1_amount.4a7586bc99",
            "not_null_m1_amount",
            "amount",
            "fail",
            f"{DAY} 10:42:12.067303+00",
        ),
        (model, "test.tinyp.unique_m1_id.5e8de06530", "unique_m1_id", "id", "pass", f"{DAY} 10:42:12.08574+00"),
    ]


def test_how_many_of_everything_there_is(rows: Any) -> None:
    assert rows("SELECT count(*), count(DISTINCT job_id) FROM job_runs") == [(64, 62)]
    assert dict(rows("SELECT current_state, count(*) FROM job_runs GROUP BY 1")) == {
        "COMPLETE": 58,
        "FAIL": 4,
        "ABORT": 1,
        "START": 1,
    }
    assert rows("SELECT count(*) FROM datasets") == [(25,)]
    assert rows("SELECT count(*) FROM run_contradictions") == [(0,)]
