"""The examples of the documents that the project was asked for: as printed, and completed to whole events."""

import copy
import hashlib
import json
from typing import Any

import pytest

from correlator.rulebook import facts as f
from correlator.rulebook import identity
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection, RunEvent
from correlator.rulebook.fold import fold
from correlator.rulebook.policy import SPEC
from correlator.rulebook.results import observes, standing_results
from correlator.rulebook.results import results as results_of
from correlator.rulebook.run_cycle import CycleError, is_single_run_batch, validate_event_sequence
from correlator.rulebook.runs import end_write, read_of
from correlator.rulebook.statements import dataset_ref
from correlator.rulebook.versions import responsible_write
from tests.unit.rulebook import views
from tests.unit.rulebook.histories import PRODUCER, SCHEMA, Json, run_event

RUN = "550e8400-e29b-41d4-a716-446655440000"
DB = "postgres://prod-db:5432"
DBT = "https://github.com/dbt-labs/dbt-core/tree/1.5.0"

LOAD_ORDERS: Json = {
    "eventType": "COMPLETE",
    "eventTime": "2025-10-18T10:30:00Z",
    "run": {"runId": "550e8400-..."},
    "job": {"namespace": "airflow://prod", "name": "etl.load_orders"},
    "inputs": [{"namespace": "s3://raw-data", "name": "/orders/2025-10-18.parquet"}],
    "outputs": [{"namespace": DB, "name": "analytics.public.orders"}],
}
JOB_DEFINITION: Json = {
    "eventType": "JOB",
    "job": {"namespace": "dbt://analytics", "name": "models.transform_orders"},
    "facets": {"sourceCodeLocation": {"url": "https://github.com/org/repo/blob/main/models/transform_orders.sql"}},
}
DATASET_DEFINITION: Json = {
    "eventType": "DATASET",
    "dataset": {"namespace": DB, "name": "analytics.public.customers"},
    "facets": {"schema": {"fields": [{"name": "id", "type": "INTEGER"}, {"name": "email", "type": "VARCHAR"}]}},
}
TRANSFORM_START: Json = {
    "eventType": "START",
    "eventTime": "2025-10-18T10:00:00Z",
    "producer": DBT,
    "schemaURL": SCHEMA,
    "run": {"runId": RUN},
    "job": {"namespace": "dbt://analytics", "name": "transform_orders"},
    "inputs": [{"namespace": DB, "name": "raw.public.orders"}],
}
TRANSFORM_COMPLETE: Json = {
    "eventType": "COMPLETE",
    "eventTime": "2025-10-18T10:05:00Z",
    "producer": DBT,
    "schemaURL": SCHEMA,
    "run": {"runId": RUN, "facets": {"sql": {"query": "SELECT * FROM raw.orders WHERE amount > 100"}}},
    "job": {"namespace": "dbt://analytics", "name": "transform_orders"},
    "inputs": [
        {
            "namespace": DB,
            "name": "raw.public.orders",
            "inputFacets": {"dataQualityMetrics": {"rowCount": 1000000}},
        }
    ],
    "outputs": [
        {
            "namespace": DB,
            "name": "analytics.public.orders",
            "outputFacets": {"outputStatistics": {"rowCount": 500000, "size": 52428800}},
        }
    ],
}
DAG_START: Json = {
    "eventType": "START",
    "eventTime": "2025-10-18T10:00:00Z",
    "run": {
        "runId": "parent-run-id",
        "facets": {"nominalTime": {"nominalStartTime": "2025-10-18T00:00:00Z"}},
    },
    "job": {"namespace": "airflow://production", "name": "daily_etl"},
}
TASK_START: Json = {
    "eventType": "START",
    "eventTime": "2025-10-18T10:01:00Z",
    "run": {
        "runId": "child-run-id",
        "facets": {
            "parent": {
                "run": {"runId": "parent-run-id"},
                "job": {"namespace": "airflow://production", "name": "daily_etl"},
            }
        },
    },
    "job": {"namespace": "airflow://production", "name": "daily_etl.load_users"},
}
GREAT_EXPECTATIONS: Json = {
    "eventType": "COMPLETE",
    "eventTime": "2025-10-18T10:30:00Z",
    "run": {
        "runId": "test-run-id",
        "facets": {
            "errorMessage": {
                "message": "Data quality test failed: customer_id contains nulls",
                "programmingLanguage": "python",
                "stackTrace": "...",
            }
        },
    },
    "job": {"namespace": "great_expectations://prod", "name": "validate_orders"},
    "inputs": [
        {
            "namespace": DB,
            "name": "analytics.public.orders",
            "inputFacets": {
                "dataQualityAssertions": {
                    "assertions": [
                        {
                            "assertion": "expect_column_values_to_not_be_null",
                            "column": "customer_id",
                            "success": False,
                            "failedRows": 500,
                        }
                    ]
                }
            },
        }
    ],
}
PLUGIN_FAIL: Json = {
    "eventType": "FAIL",
    "eventTime": "2024-01-15T10:30:05Z",
    "producer": "https://github.com/correlator-io/correlator-ge/0.0.1",
    "run": {"runId": "a1b2c3d4-e5f6-7890-abcd-ef1234567890"},
    "job": {"namespace": "great_expectations://default", "name": "daily_validation.users_suite"},
    "inputs": [
        {
            "namespace": "postgres_prod",
            "name": "public.users",
            "inputFacets": {
                "dataQualityMetrics": {
                    "_producer": "...",
                    "_schemaURL": "https://openlineage.io/spec/facets/1-0-0/DataQualityMetricsInputDatasetFacet.json",
                    "columnMetrics": {},
                },
                "dataQualityAssertions": {
                    "_producer": "...",
                    "_schemaURL": "https://openlineage.io/spec/facets/1-0-0/DataQualityAssertionsDatasetFacet.json",
                    "assertions": [
                        {"assertion": "expect_column_values_to_not_be_null", "success": True, "column": "user_id"},
                        {"assertion": "expect_column_values_to_be_unique", "success": False, "column": "email"},
                    ],
                },
            },
        }
    ],
}


def verdict(event: Json) -> Event | Rejection:
    return judge(json.dumps(event).encode())


def completed(event: Json, **members: Any) -> Event:
    """The printed example with what it leaves out of the event itself."""
    whole = {"eventTime": "2025-10-18T09:00:00Z", "producer": PRODUCER, "schemaURL": SCHEMA, **event, **members}
    accepted = verdict(whole)
    assert not isinstance(accepted, Rejection), accepted.sentence
    return accepted


def whole_facets(event: Json) -> Json:
    """The event with every facet in its envelope."""
    filled: Json = copy.deepcopy(event)
    for holder in [filled.get("run", {}), filled.get("job", {}), *filled.get("inputs", []), *filled.get("outputs", [])]:
        for key in ("facets", "inputFacets", "outputFacets"):
            for facet in holder.get(key, {}).values():
                facet |= {"_producer": PRODUCER, "_schemaURL": SCHEMA}
    return filled


@pytest.mark.parametrize(
    ("event", "errors"),
    [
        (LOAD_ORDERS, ["producer is required", "schemaURL is required"]),
        (JOB_DEFINITION, ["eventTime is required", "producer is required", "schemaURL is required"]),
        (DATASET_DEFINITION, ["eventTime is required", "producer is required", "schemaURL is required"]),
        (DAG_START, ["producer is required", "schemaURL is required"]),
        (TASK_START, ["producer is required", "schemaURL is required"]),
        (GREAT_EXPECTATIONS, ["producer is required", "schemaURL is required"]),
        (PLUGIN_FAIL, ["schemaURL is required"]),
    ],
)
def test_an_abridged_example_is_refused_with_the_right_words(event: Json, errors: list[str]) -> None:
    rejected = verdict(event)

    assert isinstance(rejected, Rejection)
    assert [problem.message for problem in rejected.errors] == errors


@pytest.mark.parametrize("event", [TRANSFORM_START, TRANSFORM_COMPLETE])
def test_a_whole_example_is_accepted_as_printed(event: Json) -> None:
    assert not isinstance(verdict(event), Rejection)


def test_an_event_without_the_name_of_its_job_is_told_so() -> None:
    rejected = verdict(TRANSFORM_START | {"job": {"namespace": "dbt://analytics"}})

    assert isinstance(rejected, Rejection)
    assert rejected.sentence == "job.name is required"


def test_example_1_gives_a_run_its_datasets_and_its_lineage() -> None:
    facts = fold([completed(TRANSFORM_COMPLETE), completed(TRANSFORM_START)])
    run = views.the_run(facts, RUN, "transform_orders", "dbt://analytics")

    canonical = hashlib.sha256(f"dbt://analyticstransform_orders{RUN}".encode()).hexdigest()
    row = views.run_row(facts, RUN, "transform_orders", "dbt://analytics")
    assert row["identity"][0] == canonical
    assert [state for _, state in run.history] == ["START", "COMPLETE"]
    assert run.state == "COMPLETE"
    assert views.edges(facts) == {("input", f"{DB}/raw.public.orders"), ("output", f"{DB}/analytics.public.orders")}
    output = facts.rows(f.LINEAGE_EDGES)[
        bytes.fromhex(canonical[:32]), dataset_ref(DB, "analytics.public.orders").key, "output"
    ]
    assert views.said(f.LINEAGE_EDGES, output, "statistics") == (500000, 52428800, None)


def test_example_1_keeps_the_sql_that_stands_on_the_run() -> None:
    facts = fold([completed(TRANSFORM_COMPLETE)])

    ((body,),) = [row["body"] for row in facts.rows(f.FACET_BODIES).values()]
    assert json.loads(body) == {"query": "SELECT * FROM raw.orders WHERE amount > 100"}


def test_example_2_puts_a_task_under_its_dag() -> None:
    facts = fold([completed(DAG_START), completed(TASK_START)])

    task = views.run_row(facts, "child-run-id", "daily_etl.load_users", "airflow://production")
    dag = identity.job_run_key("airflow://production", "daily_etl", "parent-run-id")
    assert views.said(f.JOB_RUNS, task, "parent")[:2] == (dag, "parent-run-id")
    assert (dag,) in facts.rows(f.JOB_RUNS)


def test_a_run_id_that_is_no_uuid_is_kept_with_a_warning() -> None:
    event = completed(DAG_START)

    assert [problem.message for problem in event.warnings if problem.rule == "format_uuid"] == [
        "run.runId: 'parent-run-id' is not a UUID"
    ]


@pytest.mark.parametrize("complete", [dict, whole_facets], ids=["as printed", "with facet envelopes"])
def test_example_3_leads_from_the_failed_test_to_the_run_that_wrote_what_it_read(complete: Any) -> None:
    test_event = completed(complete(GREAT_EXPECTATIONS))
    facts = fold([completed(TRANSFORM_START), completed(TRANSFORM_COMPLETE), test_event])
    assert isinstance(test_event, RunEvent)
    test_run = identity.job_run_key("great_expectations://prod", "validate_orders", "test-run-id")
    row = facts.rows(f.JOB_RUNS)[test_run,]

    (outcome,) = standing_results(
        results_of(test_event),
        inputs=[dataset_ref(DB, "analytics.public.orders")],
        job_name="validate_orders",
        state="COMPLETE",
        error_message=views.said(f.JOB_RUNS, row, "error"),
        is_observing=observes("", has_results=True, has_outputs=False),
    )
    assert (outcome.test.name, outcome.test.column) == ("expect_column_values_to_not_be_null", "customer_id")
    assert (outcome.result.status, outcome.result.actual) == ("fail", "500")
    assert outcome.result.message == "Data quality test failed: customer_id contains nulls"

    writes = [
        end_write(run, facts.rows(f.JOB_RUNS)[run,], rows_written=None, version=None)
        for run, dataset, role in facts.rows(f.LINEAGE_EDGES)
        if role == "output" and outcome.dataset is not None and dataset == outcome.dataset.key
    ]
    cause = responsible_write(read_of(test_run, row), [write for write in writes if write is not None])
    assert cause is not None
    assert cause.by.run == identity.job_run_key("dbt://analytics", "transform_orders", RUN)


def test_the_plugins_event_gives_one_result_per_expectation() -> None:
    facts = fold([completed(PLUGIN_FAIL)])

    assert views.results(facts) == [
        ("expect_column_values_to_be_unique", "email", "fail"),
        ("expect_column_values_to_not_be_null", "user_id", "pass"),
    ]


def test_a_job_without_a_run_is_understood_and_what_it_says_in_vain_is_told() -> None:
    event = completed(JOB_DEFINITION)

    assert event.kind == "job"
    assert [(problem.path, problem.rule) for problem in event.warnings] == [
        ("eventType", "says_nothing"),
        ("facets", "says_nothing"),
    ]


def test_metadata_of_a_job_and_of_a_dataset_where_the_spec_puts_it_becomes_facts() -> None:
    location = {"type": "git", "url": "https://github.com/org/repo/blob/main/models/transform_orders.sql"}
    job = completed({"job": JOB_DEFINITION["job"] | {"facets": {"sourceCodeLocation": location}}})
    table = completed({"dataset": DATASET_DEFINITION["dataset"] | {"facets": DATASET_DEFINITION["facets"]}})

    facts = fold([job, table])

    assert "sourceCodeLocation" in views.said(
        f.JOBS, views.job_row(facts, "models.transform_orders", "dbt://analytics"), "facets"
    )
    assert views.history(facts, "schema")[0][0] == "2025-10-18T09:00:00Z"


def test_the_kind_is_told_by_shape_and_the_schema_url_is_only_a_check() -> None:
    event = completed(
        {"dataset": DATASET_DEFINITION["dataset"]}, schemaURL="https://openlineage.io/spec/2-0-0/JobEvent.json"
    )

    assert event.kind == "dataset"
    assert [problem.rule for problem in event.warnings] == ["kind_mismatch"]


@pytest.mark.parametrize("envelope", [{"runEvents": [TRANSFORM_START]}, {"datasetEvents": []}])
def test_the_proposed_second_protocol_with_envelopes_is_not_spoken(envelope: Json) -> None:
    rejected = judge(json.dumps(envelope).encode(), SPEC)

    assert isinstance(rejected, Rejection)
    assert rejected.errors[0].rule == "unknown_kind"


def batch(*states: str, run: str = "run-1") -> list[RunEvent]:
    return [run_event(state, minute, run=run) for minute, state in enumerate(states)]


def test_a_batch_of_one_run_in_order_passes_the_second_layer() -> None:
    events = batch("START", "RUNNING", "COMPLETE")

    assert is_single_run_batch(events)
    assert validate_event_sequence(events).final_state == "COMPLETE"


def test_a_batch_that_arrives_out_of_order_is_put_in_order() -> None:
    assert validate_event_sequence(batch("START", "RUNNING", "COMPLETE")[::-1]).final_state == "COMPLETE"


def test_a_batch_with_a_second_start_is_refused_in_the_documents_words() -> None:
    with pytest.raises(
        CycleError, match=r"^Invalid event sequence: duplicate START event: run run-1 already has START state$"
    ):
        validate_event_sequence(batch("START", "START"))


def test_a_batch_of_several_runs_is_not_judged_as_one() -> None:
    assert not is_single_run_batch([*batch("START", run="run-1"), *batch("START", run="run-2")])


def test_a_complete_after_which_a_start_comes_alone_is_recorded_as_a_contradiction() -> None:
    facts = fold([run_event("COMPLETE", 0), run_event("START", 1)])

    view = views.the_run(facts)
    assert (view.state, [c.kind for c in view.contradictions]) == ("COMPLETE", ["active_after_end"])


@pytest.mark.parametrize(
    ("namespace", "name", "urn"),
    [
        ("postgres://prod-db:5432", "analytics.public.orders", "postgres://prod-db:5432/analytics.public.orders"),
        ("bigquery", "project.dataset.table", "bigquery/project.dataset.table"),
        ("s3://raw-data", "/orders/2025-10-18.parquet", "s3://raw-data/orders/2025-10-18.parquet"),
        ("snowflake://org-account", "analytics.public.customers", "snowflake://org-account/analytics.public.customers"),
        ("kafka://broker:9092", "user-events", "kafka://broker:9092/user-events"),
        ("hdfs://namenode:8020", "/data/warehouse/orders", "hdfs://namenode:8020/data/warehouse/orders"),
    ],
)
def test_the_documents_datasets_have_the_documents_urns(namespace: str, name: str, urn: str) -> None:
    assert dataset_ref(namespace, name).urn == urn


def test_a_custom_facet_is_kept_as_it_was_sent() -> None:
    context = {
        "_producer": "https://github.com/correlator-io/correlator",
        "_schemaURL": "https://correlator.io/spec/incident-context.json",
        "incidentId": "INC-12345",
        "severity": "critical",
        "affectedServices": ["api", "worker"],
    }
    event = run_event(run_facets={"correlator_incidentContext": context})

    assert event.warnings == ()
    assert bytes(event.run.facets.raw["correlator_incidentContext"]) == json.dumps(context).encode()
