"""What real producers send, as far as layer 1 sees it: accepted, understood, and said aloud where it is odd."""

import json
import re
from collections import Counter
from typing import Any

import pytest

from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection, RunEvent
from correlator.rulebook.policy import CORRELATOR, SPEC, Policy
from tests import corpus

ENFORCE = Policy(name="correlator", formats="enforce")
OF_EVERY_FACET = {"_producer": "https://example.com/p", "_schemaURL": "https://example.com/s.json"}
EVENT: dict[str, Any] = {
    "eventType": "COMPLETE",
    "eventTime": "2026-01-31T12:00:00Z",
    "producer": "https://example.com/p",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    "run": {"runId": "01941f29-7c00-7000-8000-000000000001"},
    "job": {"namespace": "jobs", "name": "job"},
}
NOON = 1_769_860_800_000_000


def understood(event: dict[str, Any] | bytes, policy: Policy = CORRELATOR) -> RunEvent:
    verdict = judge(event if isinstance(event, bytes) else json.dumps(event).encode(), policy)
    assert not isinstance(verdict, Rejection), verdict.errors
    assert isinstance(verdict, RunEvent)
    return verdict


def said(event: RunEvent) -> list[str]:
    return [problem.message for problem in event.warnings]


def dataset(**facets: Any) -> dict[str, Any]:
    return {"namespace": "db", "name": "t", **facets}


# --- times and ids ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00", "2026-01-31T12:00:00.000000", "2026-01-31T12:00:00.000"])
def test_older_great_expectations_and_dbt_leave_the_offset_out(text: str) -> None:
    event = understood({**EVENT, "eventTime": text})
    assert event.event_time == NOON
    assert said(event) == [f"eventTime: '{text}' has no offset; it is read as UTC"]
    assert isinstance(judge(json.dumps({**EVENT, "eventTime": text}).encode(), ENFORCE), Rejection)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-01-31T12:00:00Z[Europe/London]", NOON),
        ("2026-01-31T12:00:00.000+00:00[Europe/London]", NOON),
        ("2026-07-31T13:00:00+01:00[Europe/London]", 1_785_499_200_000_000),
        ("2026-01-31T12:00:00Z[UTC]", NOON),
        ("2026-01-31T12:00:00Z[Etc/GMT+0]", NOON),
    ],
)
def test_java_writes_the_zone_behind_the_offset(text: str, instant: int) -> None:
    event = understood({**EVENT, "eventTime": text})
    assert event.event_time == instant
    assert said(event) == [f"eventTime: '{text}' is not a date-time as RFC 3339 writes it"]


def test_java_writes_more_digits_than_a_microsecond_has() -> None:
    event = understood({**EVENT, "eventTime": "2026-01-31T12:00:00.123456789Z"}, ENFORCE)
    assert event.event_time == NOON + 123_456
    assert said(event) == []


@pytest.mark.parametrize(
    "run_id",
    ["run_id", "scheduled__2026-01-31T00:00:00+00:00", "0194 1f29", "01941f297c0070008000000000000001", "42", "é\x00"],
)
def test_a_run_id_need_not_be_a_uuid(run_id: str) -> None:
    event = understood({**EVENT, "run": {"runId": run_id}})
    assert event.run.run_id == run_id
    assert [(problem.path, problem.rule) for problem in event.warnings] == [("run.runId", "format_uuid")]
    assert understood({**EVENT, "run": {"runId": run_id}}, SPEC).run.run_id == run_id


def test_a_parent_run_id_need_not_be_a_uuid_either() -> None:
    parent = {**OF_EVERY_FACET, "run": {"runId": "manual__1"}, "job": {"namespace": "airflow", "name": "dag"}}
    event = understood({**EVENT, "run": {**EVENT["run"], "facets": {"parent": parent}}})
    assert event.run.facets.typed["parent"].run.runId == "manual__1"
    assert said(event) == ["run.facets.parent.run.runId: 'manual__1' is not a UUID"]


def test_the_official_consumer_scenario_has_neither_a_uri_nor_a_uuid() -> None:
    event = understood({**EVENT, "producer": "producer", "run": {"runId": "run_id"}})
    assert event.producer == "producer"
    assert sorted(said(event)) == ["producer: 'producer' is not a URI", "run.runId: 'run_id' is not a UUID"]


def test_a_producer_may_hold_a_placeholder_that_nobody_filled() -> None:
    url = "https://github.com/OpenLineage/OpenLineage/tree/$VERSION/integration/common"
    assert said(understood({**EVENT, "producer": url})) == []
    assert len(said(understood({**EVENT, "producer": url.replace("$VERSION", "{version}")}))) == 1


# --- facets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uri", ["file", "bigquery", "/data/x", "C:\\data", ""])
def test_spark_sends_a_data_source_that_is_no_uri(uri: str) -> None:
    facets = {"dataSource": {**OF_EVERY_FACET, "name": "file", "uri": uri}}
    event = understood({**EVENT, "inputs": [dataset(facets=facets)]})
    assert event.inputs[0].facets.typed["dataSource"].uri == uri
    assert [(problem.path, problem.rule) for problem in event.warnings] == [
        ("inputs[0].facets.dataSource.uri", "format_uri")
    ]


@pytest.mark.parametrize("rows", [2**63 - 1, 2**63, 2**64, -1, 9.223372036854776e18])
def test_a_row_count_may_be_eight_exabytes(rows: float) -> None:
    """Spark's estimate of what it does not know is the largest long, and one more where a double held it."""
    statistics = {"outputStatistics": {**OF_EVERY_FACET, "rowCount": rows, "size": rows}}
    metrics = {"dataQualityMetrics": {**OF_EVERY_FACET, "rowCount": rows, "bytes": rows, "columnMetrics": {}}}
    event = understood(
        {
            **EVENT,
            "inputs": [dataset(inputFacets=metrics)],
            "outputs": [dataset(outputFacets=statistics)],
        },
        ENFORCE,
    )
    assert said(event) == []
    assert event.outputs[0].role_facets.typed["outputStatistics"].rowCount == rows
    assert event.inputs[0].role_facets.typed["dataQualityMetrics"].bytes == rows


def test_sql_may_hold_the_zero_character() -> None:
    raw = json.dumps(
        {**EVENT, "job": {**EVENT["job"], "facets": {"sql": {**OF_EVERY_FACET, "query": "SELECT '\x00'"}}}}
    ).encode()
    assert b"\\u0000" in raw
    event = understood(raw)
    assert said(event) == []
    assert event.job.facets.typed["sql"].query == "SELECT '\x00'"
    assert b"\\u0000" in bytes(event.job.facets.raw["sql"])


def test_the_parent_may_be_spelt_parent_run() -> None:
    parent = {
        **OF_EVERY_FACET,
        "run": {"runId": "01941f29-7c00-7000-8000-000000000002"},
        "job": {"namespace": "airflow", "name": "dag"},
    }
    event = understood({**EVENT, "run": {**EVENT["run"], "facets": {"parentRun": parent}}})
    assert said(event) == []
    assert event.run.facets.typed["parentRun"].job.name == "dag"


def test_dbt_puts_its_results_in_facets_and_in_input_facets() -> None:
    results = {"dataQualityAssertions": {**OF_EVERY_FACET, "assertions": [{"assertion": "not_null", "success": False}]}}
    event = understood({**EVENT, "inputs": [dataset(facets=results, inputFacets=results)]})
    assert said(event) == []
    for facets in (event.inputs[0].facets, event.inputs[0].role_facets):
        assert facets.typed["dataQualityAssertions"].assertions[0].success is False


def test_airflow_adds_facets_of_its_own_that_are_kept_byte_for_byte() -> None:
    own = '{"_producer": "x:",  "_schemaURL": "x:", "unknownItems": [ {"name": "Bash", "type": "operator"} ]}'
    raw = json.dumps({**EVENT, "run": {**EVENT["run"], "facets": {"unknownSourceAttribute": "?"}}})
    event = understood(raw.replace('"?"', own).encode(), ENFORCE)
    assert said(event) == []
    assert bytes(event.run.facets.raw["unknownSourceAttribute"]) == own.encode()


def test_older_versions_of_a_facet_are_judged_by_what_we_know_and_kept_if_they_differ() -> None:
    """ProcessingEngine 1-0-0 had `engine_version` where 1-1-0 has `version`."""
    old = {
        "_producer": "https://example.com/p",
        "_schemaURL": "https://openlineage.io/spec/facets/1-0-0/ProcessingEngineRunFacet.json",
        "engine_version": "3.1",
    }
    event = understood({**EVENT, "run": {**EVENT["run"], "facets": {"processing_engine": old}}})
    (warning,) = said(event)
    assert warning.startswith("run.facets.processing_engine.version is required")
    assert json.loads(bytes(event.run.facets.raw["processing_engine"])) == old


# --- names and sizes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        ("postgres://db:5432", "shop.public.orders"),
        ("s3://bucket", "a/b/c=1/"),
        ("arn:aws:glue:us-east-1:123456789012", "table/shop/orders"),
        ("a:b/c:d", "::/::"),
        ("file", "/data/x:y/z"),
        ("dbt", "model.shop.orders.build.run"),
        ("postgres://user:secret@db:5432", "jdbc:postgresql://user:secret@db/shop"),
        ("ünïcode", "名前"),
    ],
)
def test_names_may_hold_anything_and_are_not_touched(namespace: str, name: str) -> None:
    """Credentials in names too: they are the business of naming, not of judging."""
    named = {"namespace": namespace, "name": name}
    event = understood({**EVENT, "job": named, "inputs": [named], "outputs": [named]}, ENFORCE)
    assert said(event) == []
    assert (event.job.namespace, event.job.name) == (namespace, name)
    assert [(found.namespace, found.name) for found in (*event.inputs, *event.outputs)] == [(namespace, name)] * 2


@pytest.mark.parametrize("megabytes", [10, 23])
def test_spark_plans_make_events_of_many_megabytes(megabytes: int) -> None:
    node = {"class": "org.apache.spark.sql.catalyst.plans.logical.Project", "num-children": 1, "projectList": [[{}]]}
    count = megabytes * 2**20 // len(json.dumps(node)) + 1
    plan = {"spark.logicalPlan": {**OF_EVERY_FACET, "plan": [node] * count}}
    raw = json.dumps({**EVENT, "run": {**EVENT["run"], "facets": plan}}).encode()
    assert len(raw) > megabytes * 2**20
    event = understood(raw)
    assert event.raw is raw
    assert said(event) == []
    assert len(bytes(event.run.facets.raw["spark.logicalPlan"])) > megabytes * 2**20


# --- histories, one event at a time -----------------------------------------------------------------------------------


@pytest.mark.parametrize("event_type", ["START", "RUNNING", "COMPLETE", "FAIL", "ABORT", "OTHER"])
def test_any_event_of_a_run_may_come_alone(event_type: str) -> None:
    """dbt and Great Expectations send COMPLETE and never START: whether that is a cycle is not asked of one event."""
    event = understood({**EVENT, "eventType": event_type})
    assert (event.event_type, said(event)) == (event_type, [])


def test_the_same_event_four_times_is_judged_the_same_four_times() -> None:
    raw = json.dumps({**EVENT, "inputs": [dataset(facets={"dataSource": {**OF_EVERY_FACET, "uri": "file"}})]}).encode()
    assert understood(raw) == understood(raw) == understood(raw) == understood(raw)


# --- the corpus -------------------------------------------------------------------------------------------------------

WARNINGS = {
    "airflow.jsonl": {},
    "airflow_3_3_bash.jsonl": {},
    "dbt_1_11_build.jsonl": {},
    "dbt_1_11_structured_logs.jsonl": {},
    "spark_4_3_listener.jsonl": {
        "inputs[].facets.dataSource.uri: 'file' is not a URI": 17,
        "outputs[].facets.dataSource.uri: 'file' is not a URI": 17,
    },
    "spark_complete.jsonl": {},
    "spark_simple.jsonl": {},
    "spec_full_event.json": {},
}
"""What is odd about the events of each file, and how often."""


@corpus.needs_corpus
def test_every_file_of_the_corpus_is_looked_at() -> None:
    assert set(corpus.event_files()) == set(WARNINGS)


@corpus.needs_corpus
@pytest.mark.parametrize("name", WARNINGS)
def test_the_events_of_real_producers_are_accepted_with_these_warnings(name: str) -> None:
    events = [understood(raw) for raw in corpus.events(name)]
    assert events
    assert Counter(re.sub(r"\[\d+\]", "[]", text) for event in events for text in said(event)) == WARNINGS[name]


@corpus.needs_corpus
@pytest.mark.parametrize("name", WARNINGS)
def test_the_facets_of_real_producers_are_all_kept_and_the_standard_ones_understood(name: str) -> None:
    for raw in corpus.events(name):
        event, sent = understood(raw), json.loads(raw)
        pairs = [(event.run.facets, sent["run"].get("facets", {})), (event.job.facets, sent["job"].get("facets", {}))]
        for role in ("input", "output"):
            for ours, theirs in zip(getattr(event, f"{role}s"), sent.get(f"{role}s", []), strict=True):
                pairs.append((ours.facets, theirs.get("facets", {})))
                pairs.append((ours.role_facets, theirs.get(f"{role}Facets", {})))
        for facets, origin in pairs:
            assert {key: json.loads(bytes(text)) for key, text in facets.raw.items()} == origin
            standard = {
                "parent",
                "sql",
                "schema",
                "dataSource",
                "jobType",
                "processing_engine",
                "dataQualityAssertions",
            }
            assert origin.keys() & standard <= facets.typed.keys()


@corpus.needs_corpus
def test_spark_breaks_the_format_of_uris_in_most_of_its_events() -> None:
    events = [understood(raw) for raw in corpus.events("spark_4_3_listener.jsonl")]
    assert sum(bool(event.warnings) for event in events) == 23
    assert len(events) == 28
