"""The rules of layer 1, one by one: kinds of event, what each policy asks, what a broken facet costs, and formats."""

import copy
import json
import re
from random import Random
from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from openlineage.client.generated.parent_run import ParentRunFacet
from openlineage.client.generated.sql_job import SQLJobFacet

from correlator.rulebook.constraints import Format
from correlator.rulebook.decode import judge
from correlator.rulebook.events import DatasetEvent, Event, Facets, JobEvent, Rejection, RunEvent, body, body_at
from correlator.rulebook.formats import ReadTime, is_date_time, is_uri, match_uuid, plain_instant, read_time
from correlator.rulebook.policy import CORRELATOR, SPEC, Policy
from correlator.rulebook.problems import Problem, under

STRICT = Policy(name="spec", formats="enforce")
STRICT_CORRELATOR = Policy(name="correlator", formats="enforce")
POLICIES = [SPEC, CORRELATOR, STRICT, STRICT_CORRELATOR]
SPEC_URL = "https://openlineage.io/spec/2-0-2/OpenLineage.json"
OF_EVERY_FACET = {"_producer": "https://example.com/p", "_schemaURL": "https://example.com/s.json"}
DROPPED = "; the facet is kept as it is and nothing is derived from it"

CORE: dict[str, Any] = {
    "eventTime": "2026-01-31T12:00:00Z",
    "producer": "https://example.com/p",
    "schemaURL": SPEC_URL,
}
RUN = {"runId": "01941f29-7c00-7000-8000-000000000001"}
JOB = {"namespace": "jobs", "name": "job"}
DATASET = {"namespace": "db", "name": "set"}
RUN_EVENT: dict[str, Any] = {**CORE, "eventType": "START", "run": RUN, "job": JOB}
JOB_EVENT: dict[str, Any] = {**CORE, "job": JOB}
DATASET_EVENT: dict[str, Any] = {**CORE, "dataset": DATASET}
OF_KIND = {"RunEvent": RUN_EVENT, "JobEvent": JOB_EVENT, "DatasetEvent": DATASET_EVENT}


def verdict_on(event: Any, policy: Policy = CORRELATOR) -> Event | Rejection:
    return judge(json.dumps(event).encode(), policy)


def accepted(event: Any, policy: Policy = CORRELATOR) -> Event:
    verdict = verdict_on(event, policy)
    assert not isinstance(verdict, Rejection), verdict.errors
    return verdict


def run_event(event: Any, policy: Policy = CORRELATOR) -> RunEvent:
    verdict = accepted(event, policy)
    assert isinstance(verdict, RunEvent)
    return verdict


def errors(event: Any, policy: Policy = CORRELATOR) -> list[str]:
    verdict = verdict_on(event, policy)
    return [problem.message for problem in verdict.errors] if isinstance(verdict, Rejection) else []


def warnings(event: Any, policy: Policy = CORRELATOR) -> list[str]:
    return [problem.message for problem in verdict_on(event, policy).warnings]


def changed(event: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one value set; the steps of the path are divided by dots."""
    copied = copy.deepcopy(event)
    *way, last = path.split(".")
    holder: Any = copied
    for step in way:
        holder = holder[int(step)] if isinstance(holder, list) else holder.setdefault(step, {})
    holder[last] = value
    return copied


def with_job_facet(key: str, facet: Any) -> dict[str, Any]:
    return changed(RUN_EVENT, "job.facets", {key: facet})


def job_facets(event: Any, policy: Policy = CORRELATOR) -> Facets:
    return run_event(event, policy).job.facets


# --- kinds of event ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ([], None),
        (["dataset"], "dataset"),
        (["job"], "job"),
        (["job", "dataset"], None),
        (["run"], None),
        (["run", "dataset"], "dataset"),
        (["run", "job"], "run"),
        (["run", "job", "dataset"], "run"),
    ],
)
def test_the_shape_of_an_event_is_its_kind(properties: list[str], kind: str | None) -> None:
    parts = {"run": RUN, "job": JOB, "dataset": DATASET}
    event = {**CORE, "eventType": "START", **{name: parts[name] for name in properties}}
    for policy in POLICIES:
        assert verdict_on(event, policy).kind == kind
        assert isinstance(verdict_on(event, policy), Rejection) == (kind is None)


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({}, "an event needs run and job (RunEvent), job (JobEvent) or dataset (DatasetEvent)"),
        ({"run": RUN}, "job is required: a run belongs to a job"),
        (
            {"job": JOB, "dataset": DATASET},
            "an event has either job and run, or job, or dataset: job and dataset without run is none of them",
        ),
    ],
)
def test_an_event_of_no_kind_is_told_what_is_missing(properties: dict[str, Any], sentence: str) -> None:
    for policy in POLICIES:
        assert errors({**CORE, **properties}, policy) == [sentence]


def test_a_kind_is_decided_by_what_is_there_and_not_by_its_worth() -> None:
    assert errors({**CORE, "job": JOB, "run": None}) == ["run: expected object, got null", "eventType is required"]
    assert errors({**CORE, "job": None}) == ["job: expected object, got null"]
    assert errors({**CORE, "dataset": []}) == ["dataset: expected object, got array"]


@pytest.mark.parametrize("named", OF_KIND)
@pytest.mark.parametrize(
    "url", [f"{SPEC_URL}#/$defs/{{}}", f"{SPEC_URL}#/definitions/{{}}", SPEC_URL.replace("OpenLineage.", "{}.")]
)
@pytest.mark.parametrize("kind", OF_KIND)
def test_a_schema_url_that_names_another_kind_gives_a_warning_and_shape_wins(kind: str, url: str, named: str) -> None:
    event = {**OF_KIND[kind], "schemaURL": url.format(named)}
    expected = [] if kind == named else [f"schemaURL names a {named}, but by its shape this is a {kind}"]
    for policy in POLICIES:
        assert type(accepted(event, policy)).__name__ == kind
        assert warnings(event, policy) == expected


def test_a_fragment_says_more_of_the_kind_than_the_file_it_is_in() -> None:
    url = SPEC_URL.replace("OpenLineage.", "RunEvent.")
    assert warnings({**JOB_EVENT, "schemaURL": f"{url}#/$defs/JobEvent"}) == []
    assert len(warnings({**RUN_EVENT, "schemaURL": f"{url}#/$defs/JobEvent"})) == 1


@pytest.mark.parametrize("kind", ["JobEvent", "DatasetEvent"])
@pytest.mark.parametrize(("key", "value"), [("eventType", "START"), ("eventType", 5), ("facets", {}), ("facets", None)])
def test_what_says_nothing_on_a_kind_is_kept_with_a_warning(kind: str, key: str, value: Any) -> None:
    event = {**OF_KIND[kind], key: value}
    for policy in POLICIES:
        assert warnings(event, policy) == [f"{key} says nothing on a {kind}; it is kept but not used"]
        assert json.loads(accepted(event, policy).raw)[key] == value


def test_top_level_facets_of_a_run_event_are_any_unknown_property() -> None:
    assert warnings({**RUN_EVENT, "facets": {"a": 1}}) == []


def test_a_dataset_event_may_carry_a_run_that_is_ignored() -> None:
    assert isinstance(accepted({**DATASET_EVENT, "run": 5, "inputs": 5}, STRICT), DatasetEvent)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            {**RUN_EVENT, "job": {**JOB, "name": 5}, "dataset": {"facets": {"schema": 5}}},
            "job.name: expected string, got number",
        ),
        (
            {**DATASET_EVENT, "dataset": {"namespace": "n"}, "run": {"facets": {"parent": 5}}},
            "dataset.name is required",
        ),
        (
            {**DATASET_EVENT, "dataset": {"namespace": "n"}, "inputs": [{"facets": {"schema": 5}}]},
            "dataset.name is required",
        ),
    ],
)
def test_what_a_kind_ignores_is_ignored_in_a_broken_event_too(event: dict[str, Any], expected: str) -> None:
    for policy in POLICIES:
        assert errors(event, policy) == [expected]
        assert warnings(event, policy) == []


def test_a_job_event_may_carry_inputs_and_outputs() -> None:
    event = accepted({**JOB_EVENT, "inputs": [DATASET], "outputs": [DATASET, DATASET]})
    assert isinstance(event, JobEvent)
    assert [dataset.name for dataset in event.inputs] == ["set"]
    assert len(event.outputs) == 2


@pytest.mark.parametrize("kind", OF_KIND)
@pytest.mark.parametrize("key", CORE)
def test_every_event_needs_a_time_a_producer_and_a_schema(kind: str, key: str) -> None:
    event = {name: value for name, value in OF_KIND[kind].items() if name != key}
    for policy in POLICIES:
        assert errors(event, policy) == [f"{key} is required"]


# --- what policy `correlator` adds ------------------------------------------------------------------------------------


def test_an_event_type_is_required_by_correlator_only() -> None:
    event = {key: value for key, value in RUN_EVENT.items() if key != "eventType"}
    assert errors(event) == ["eventType is required"]
    assert run_event(event, SPEC).event_type is None
    assert run_event(RUN_EVENT).event_type == "START"


@pytest.mark.parametrize("wrong", ["start", "STARTED", "", " START"])
def test_an_unknown_event_type_is_refused_with_the_known_ones(wrong: str) -> None:
    sentence = f"eventType: '{wrong}' is not one of ABORT, COMPLETE, FAIL, OTHER, RUNNING, START"
    for policy in POLICIES:
        assert errors({**RUN_EVENT, "eventType": wrong}, policy) == [sentence]


@pytest.mark.parametrize("kind", ["RunEvent", "JobEvent"])
@pytest.mark.parametrize("key", ["inputs", "outputs"])
def test_null_for_datasets_is_an_empty_list_to_correlator_and_an_error_to_spec(kind: str, key: str) -> None:
    event = {**OF_KIND[kind], key: None}
    for policy in (CORRELATOR, STRICT_CORRELATOR):
        assert getattr(accepted(event, policy), key) == []
        assert warnings(event, policy) == []
    for policy in (SPEC, STRICT):
        assert errors(event, policy) == [f"{key}: expected array, got null"]


def test_null_is_nothing_else_than_wrong_elsewhere() -> None:
    for policy in POLICIES:
        assert errors({**RUN_EVENT, "eventType": None}, policy) == ["eventType: expected string, got null"]
        assert errors({**RUN_EVENT, "inputs": [None]}, policy) == ["inputs[0]: expected object, got null"]
        assert errors(changed(RUN_EVENT, "run.facets", None), policy) == ["run.facets: expected object, got null"]


@pytest.mark.parametrize(
    "url",
    [
        "https://openlineage.io/spec/2-0-2/OpenLineage.json",
        "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "https://openlineage.io/spec/1-0-5/OpenLineage.json#/definitions/RunEvent",
        "https://openlineage.io/spec/0-0-1/OpenLineage.json",
        "https://openlineage.io/spec/99-1-2/RunEvent.json",
        "https://openlineage.io/spec/1-0-0/RunEvent.json#/$defs/RunEvent",
        "https://raw.githubusercontent.com/OpenLineage/OpenLineage/main/spec/OpenLineage.json#/definitions/RunEvent",
        "https://raw.githubusercontent.com/OpenLineage/OpenLineage/1.2.3/spec/OpenLineage.json",
        "https://openlineage.io/spec/2-0-2/OpenLineage.json#",
    ],
)
def test_the_url_of_the_spec_is_accepted_in_any_version(url: str) -> None:
    for policy in POLICIES:
        assert warnings({**RUN_EVENT, "schemaURL": url}, policy) == []
        assert accepted({**RUN_EVENT, "schemaURL": url}, policy).schema_url == url


@pytest.mark.parametrize(
    "url",
    [
        "http://openlineage.io/spec/2-0-2/OpenLineage.json",
        "https://openlineage.io/spec/OpenLineage.json",
        "https://openlineage.io/spec//OpenLineage.json",
        "https://openlineage.io/spec/2-0-2/OpenLineage.yml",
        "https://openlineage.io/spec/2-0-2/OpenLineage.json?v=1",
        "https://openlineage.io/spec/2-0-2/x/OpenLineage.json",
        "https://openlineage.io/spec/facets/1-0-0/SQLJobFacet.json",
        "https://openlineage.io.example.com/spec/2-0-2/OpenLineage.json",
        "https://example.com/https://openlineage.io/spec/2-0-2/OpenLineage.json",
        "https://raw.githubusercontent.com/Someone/OpenLineage/main/spec/OpenLineage.json",
        "urn:openlineage",
    ],
)
def test_another_schema_than_openlineage_is_refused_by_correlator_only(url: str) -> None:
    event = {**RUN_EVENT, "schemaURL": url}
    for policy in (CORRELATOR, STRICT_CORRELATOR):
        (sentence,) = errors(event, policy)
        assert sentence.startswith("schemaURL: 'http" if url.startswith("http") else "schemaURL: 'urn")
        assert sentence.endswith(" is not the URL of an OpenLineage spec")
    assert warnings(event, STRICT) == []


@pytest.mark.parametrize("blank", ["", " ", "\t\r\n", "\u00a0\u2003"])
@pytest.mark.parametrize(
    ("event", "path"),
    [
        (RUN_EVENT, "producer"),
        (RUN_EVENT, "run.runId"),
        (RUN_EVENT, "job.namespace"),
        (RUN_EVENT, "job.name"),
        ({**RUN_EVENT, "inputs": [DATASET, {**DATASET}]}, "inputs.1.namespace"),
        ({**RUN_EVENT, "outputs": [DATASET]}, "outputs.0.name"),
        (JOB_EVENT, "job.name"),
        ({**JOB_EVENT, "outputs": [DATASET]}, "outputs.0.namespace"),
        (DATASET_EVENT, "dataset.namespace"),
        (DATASET_EVENT, "dataset.name"),
    ],
)
def test_what_names_something_must_not_be_blank(event: dict[str, Any], path: str, blank: str) -> None:
    odd = changed(event, path, blank)
    place = re.sub(r"\.(\d+)", r"[\1]", path)
    assert errors(odd) == [f"{place} is required: {'only white space' if blank else 'it is empty'}"]
    assert errors(odd, SPEC) == []


def test_blank_is_what_shows_nothing_and_no_more() -> None:
    for name in ("\x00", "0", "-", "\u200b", " a "):
        assert errors(changed(RUN_EVENT, "job.name", name)) == []
        assert run_event(changed(RUN_EVENT, "job.name", name)).job.name == name


def test_the_zero_time_is_refused_by_correlator_only() -> None:
    for text in ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00", "0001-01-01 00:00:00+00:00", "0001-01-01"):
        event = {**RUN_EVENT, "eventTime": text}
        assert "eventTime is the zero time: it was never set" in errors(event)
        assert errors(event, SPEC) == []
    assert errors({**RUN_EVENT, "eventTime": "0001-01-01T00:00:00.000001Z"}) == []


# --- errors and warnings ----------------------------------------------------------------------------------------------


BROKEN_ALL_OVER = {
    "eventTime": 5,
    "eventType": "start",
    "schemaURL": "https://example.com",
    "run": {"runId": " ", "facets": {"parent": {**OF_EVERY_FACET, "run": {"runId": 5}, "job": {"namespace": "a"}}}},
    "job": {"namespace": 1, "facets": []},
    "inputs": [{"name": "", "facets": {"my_facet": {}}}, None],
    "outputs": {},
}
BROKEN_TO_EVERYBODY = {
    "eventTime: expected string, got number",
    "producer is required",
    "job.namespace: expected string, got number",
    "job.name is required",
    "job.facets: expected object, got array",
    "eventType: 'start' is not one of ABORT, COMPLETE, FAIL, OTHER, RUNNING, START",
    "inputs[0].namespace is required",
    "inputs[1]: expected object, got null",
    "outputs: expected array, got object",
}
BROKEN_FACETS = {
    "run.facets.parent.run.runId: expected string, got number",
    "run.facets.parent.job.name is required",
    "inputs[0].facets.my_facet._producer is required",
    "inputs[0].facets.my_facet._schemaURL is required",
}


def test_all_errors_of_an_event_are_reported_and_not_only_the_first() -> None:
    assert set(errors(BROKEN_ALL_OVER)) == BROKEN_TO_EVERYBODY | {
        "schemaURL: 'https://example.com' is not the URL of an OpenLineage spec",
        "run.runId is required: only white space",
        "inputs[0].name is required: it is empty",
    }
    assert set(errors(BROKEN_ALL_OVER, SPEC)) == BROKEN_TO_EVERYBODY | BROKEN_FACETS
    assert set(errors(BROKEN_ALL_OVER, STRICT)) == BROKEN_TO_EVERYBODY | BROKEN_FACETS | {
        "run.runId: ' ' is not a UUID"
    }


def test_a_refused_event_has_its_warnings_too() -> None:
    assert {text.removesuffix(DROPPED) for text in warnings(BROKEN_ALL_OVER)} == BROKEN_FACETS | {
        "run.runId: ' ' is not a UUID"
    }


def test_a_rejection_says_what_is_known_of_the_event() -> None:
    raw = json.dumps({**RUN_EVENT, "job": {}}).encode()
    verdict = judge(raw)
    assert isinstance(verdict, Rejection)
    assert verdict.raw is raw
    assert (verdict.kind, verdict.producer) == ("run", "https://example.com/p")
    assert verdict.sentence == "job.namespace is required; job.name is required"
    assert [(problem.path, problem.rule) for problem in verdict.errors] == [
        ("job.namespace", "required"),
        ("job.name", "required"),
    ]
    verdict = judge(json.dumps({**RUN_EVENT, "producer": 5}).encode())
    assert isinstance(verdict, Rejection)
    assert verdict.producer is None


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        (Problem("$", "type", "$: expected object, got array"), "job.facets.x: expected object, got array"),
        (Problem("a.b", "required", "a.b is required"), "job.facets.x.a.b is required"),
        (Problem('["a b"]', "required", '["a b"] is required'), 'job.facets.x["a b"] is required'),
    ],
)
def test_the_problem_of_a_part_is_told_from_the_whole(part: Problem, whole: str) -> None:
    told = under("job.facets.x", part)
    assert told.message == whole
    assert whole.startswith(told.path)
    assert told.rule == part.rule


@pytest.mark.parametrize("name", ["spec", "correlator"])
def test_problems_are_reported_up_to_a_limit_that_says_so(name: Any) -> None:
    policy = Policy(name=name, max_problems=3)
    event = {**RUN_EVENT, "inputs": [{}] * 10}
    assert errors(event, policy) == [
        "inputs[0].namespace is required",
        "inputs[0].name is required",
        "inputs[1].namespace is required",
        "and there are more, beyond the limit of 3",
    ]
    assert len(errors({**RUN_EVENT, "inputs": [{}, {"name": "a"}]}, policy)) == 3


def test_warnings_are_reported_up_to_a_limit_that_says_so() -> None:
    bad_facets = {**RUN_EVENT, "inputs": [{**DATASET, "facets": {"schema": {**OF_EVERY_FACET, "fields": [{}] * 1234}}}]}
    assert len(warnings(bad_facets)) == 1001
    assert warnings(bad_facets)[-1] == "and there are more, beyond the limit of 1,000"


def test_unknown_properties_are_kept_everywhere() -> None:
    raw = json.dumps(
        {
            **RUN_EVENT,
            "unknown": {"a": [1]},
            "run": {**RUN, "attempt": 3},
            "job": {**JOB, "facets": {"sql": {**OF_EVERY_FACET, "query": "Q", "unknown": 1}}},
            "inputs": [{**DATASET, "outputFacets": 5, "alias": "x"}],
        },
        indent=3,
    ).encode()
    for policy in POLICIES:
        event = judge(raw, policy)
        assert event.raw is raw
        assert event.warnings == ()
        assert isinstance(event, RunEvent)
        assert json.loads(bytes(event.job.facets.raw["sql"]))["unknown"] == 1


# --- facets -----------------------------------------------------------------------------------------------------------


def test_facets_are_typed_where_they_are_standard_and_kept_where_they_are_not() -> None:
    text = '{ "query" : "SELECT 1",\n "_producer":"x:", "_schemaURL":"x:"  }'
    custom = '{"_producer": "x:",  "_schemaURL": "x:", "n": 1.00, "é": "\\u00e9" }'
    raw = json.dumps(with_job_facet("sql", "SQL")).replace('"SQL"', f'{text}, "my_facet": {custom}').encode()
    for policy in POLICIES:
        event = judge(raw, policy)
        assert isinstance(event, RunEvent)
        assert event.warnings == ()
        assert bytes(event.job.facets.raw["sql"]) == text.encode()
        assert bytes(event.job.facets.raw["my_facet"]) == custom.encode()
        assert set(event.job.facets.typed) == {"sql"}
        sql = body(event.job.facets, SQLJobFacet)
        assert sql is not None
        assert (sql.query, sql.dialect) == ("SELECT 1", None)


def test_a_broken_facet_costs_only_itself() -> None:
    """An error under `spec`; under `correlator` a warning that names it, its bytes kept, nothing derived."""
    text = '{"query":  5, "_producer":"x:", "_schemaURL":"x:"}'
    event = with_job_facet("sql", "SQL") | {"inputs": [{**DATASET, "facets": {"version": {}}}]}
    event["job"]["facets"]["documentation"] = {**OF_EVERY_FACET, "description": "fine"}
    raw = json.dumps(event).replace('"SQL"', text).encode()
    verdict = judge(raw)
    assert isinstance(verdict, RunEvent)
    assert [problem.message for problem in verdict.warnings] == [
        f"{reason}{DROPPED}"
        for reason in (
            "inputs[0].facets.version._producer is required",
            "inputs[0].facets.version._schemaURL is required",
            "inputs[0].facets.version.datasetVersion is required",
            "job.facets.sql.query: expected string, got number",
        )
    ]
    assert set(verdict.job.facets.typed) == {"documentation"}
    assert bytes(verdict.job.facets.raw["sql"]) == text.encode()
    assert verdict.inputs[0].facets.typed == {}
    assert bytes(verdict.inputs[0].facets.raw["version"]) == b"{}"
    refusal = judge(raw, SPEC)
    assert isinstance(refusal, Rejection)
    assert {f"{problem.message}{DROPPED}" for problem in refusal.errors} == {
        problem.message for problem in verdict.warnings
    }


@pytest.mark.parametrize("value", [None, 5, "x", True, []])
def test_a_facet_that_is_no_object_is_a_broken_one(value: Any) -> None:
    for key in ("sql", "my_facet"):
        event = with_job_facet(key, value)
        assert len(errors(event, SPEC)) == 1
        assert errors(event, SPEC)[0].startswith(f"job.facets.{key}: expected object, got ")
        assert [text.removesuffix(DROPPED) for text in warnings(event)] == errors(event, SPEC)
        assert job_facets(event).typed == {}
        assert json.loads(bytes(job_facets(event).raw[key])) == value


@pytest.mark.parametrize("missing", [["_producer"], ["_schemaURL"], ["_producer", "_schemaURL"]])
@pytest.mark.parametrize("wrong", [False, True])
def test_a_facet_with_a_sound_body_is_understood_without_its_envelope(missing: list[str], wrong: bool) -> None:  # noqa: FBT001
    facet = {**OF_EVERY_FACET, "query": "SELECT 1"}
    for key in missing:
        facet.pop(key)
    event = with_job_facet("sql", {**facet, **dict.fromkeys(missing, 5)} if wrong else facet)
    expected = [
        f"job.facets.sql.{key}{': expected string, got number' if wrong else ' is required'}" for key in missing
    ]
    assert warnings(event) == expected
    assert job_facets(event).typed["sql"].query == "SELECT 1"
    assert errors(event, SPEC) == expected


def test_a_custom_facet_has_to_have_what_every_facet_has() -> None:
    event = with_job_facet("correlator_x", {"any": 1})
    expected = ["job.facets.correlator_x._producer is required", "job.facets.correlator_x._schemaURL is required"]
    assert errors(event, SPEC) == expected
    assert warnings(event) == expected
    assert json.loads(bytes(job_facets(event).raw["correlator_x"])) == {"any": 1}


def test_one_key_means_different_facets_on_different_entities() -> None:
    tag_of_column = {**OF_EVERY_FACET, "tags": [{"key": "pii", "value": "yes", "field": "email"}]}
    event = {**changed(RUN_EVENT, "job.facets", {"tags": tag_of_column})}
    event["inputs"] = [{**DATASET, "facets": {"tags": tag_of_column}, "inputFacets": {"tags": {**OF_EVERY_FACET}}}]
    verdict = run_event(event, STRICT)
    assert verdict.inputs[0].facets.typed["tags"].tags[0].field == "email"
    assert not hasattr(verdict.job.facets.typed["tags"].tags[0], "field")
    assert verdict.inputs[0].role_facets.typed == {}


@pytest.mark.parametrize("kind", ["sql", "my_facet"])
def test_a_deleted_facet_needs_no_body(kind: str) -> None:
    event = with_job_facet(kind, {**OF_EVERY_FACET, "_deleted": True, "query": 5})
    for policy in POLICIES:
        assert warnings(event, policy) == []
        assert job_facets(event, policy).deleted == (kind,)
        assert job_facets(event, policy).typed == {}
        assert kind in job_facets(event, policy).raw


def test_a_deleted_facet_with_a_sound_body_is_deleted_all_the_same() -> None:
    facets = job_facets(with_job_facet("sql", {**OF_EVERY_FACET, "_deleted": True, "query": "SELECT 1"}))
    assert (facets.typed, facets.deleted) == ({}, ("sql",))


def test_a_facet_that_is_not_deleted_has_a_body_to_show() -> None:
    event = with_job_facet("sql", {**OF_EVERY_FACET, "_deleted": False})
    assert errors(event, SPEC) == ["job.facets.sql.query is required"]
    event = with_job_facet("sql", {**OF_EVERY_FACET, "_deleted": "true", "query": "Q"})
    assert errors(event, SPEC) == ["job.facets.sql._deleted: expected boolean, got string"]
    for odd in ("true", 1, [True]):
        event = with_job_facet("sql", {**OF_EVERY_FACET, "_deleted": odd})
        assert len(errors(event, SPEC)) == 2
        assert job_facets(event).deleted == ()


def test_a_deleted_facet_needs_its_envelope() -> None:
    event = with_job_facet("sql", {"_deleted": True})
    expected = ["job.facets.sql._producer is required", "job.facets.sql._schemaURL is required"]
    assert errors(event, SPEC) == expected
    assert warnings(event) == expected
    assert job_facets(event).deleted == ("sql",)


def test_run_facets_cannot_be_deleted_but_their_bodies_are_not_judged_either() -> None:
    """The core gives `_deleted` to job and dataset facets only; a body that calls itself deleted is judged nowhere."""
    whole = {**OF_EVERY_FACET, "_deleted": True, "message": "m", "programmingLanguage": "python"}
    facets = run_event(changed(RUN_EVENT, "run.facets", {"errorMessage": whole}), STRICT).run.facets
    assert set(facets.typed) == {"errorMessage"}
    assert facets.deleted == ()
    bare = run_event(changed(RUN_EVENT, "run.facets", {"errorMessage": {**OF_EVERY_FACET, "_deleted": True}}), STRICT)
    assert (bare.run.facets.typed, bare.run.facets.deleted) == ({}, ())


@pytest.mark.parametrize(
    "address",
    [
        "https://openlineage.io/spec/facets/{}/SQLJobFacet.json{}",
        "http://openlineage.io/spec/facets/{}/SQLJobFacet.json{}",
    ],
)
@pytest.mark.parametrize("fragment", ["", "#", "#/$defs/SQLJobFacet"])
def test_a_facet_of_another_major_version_is_not_judged(address: str, fragment: str) -> None:
    for version in ("2-0-0", "0-9-9", "12-1-0"):
        facet = {**OF_EVERY_FACET, "_schemaURL": address.format(version, fragment), "statements": ["SELECT 1"]}
        for policy in POLICIES:
            event = with_job_facet("sql", facet)
            major = version.partition("-")[0]
            words = f"job.facets.sql._schemaURL declares major version {major}, and 1 is what is understood"
            assert warnings(event, policy) == [f"{words}{DROPPED}"]
            assert job_facets(event, policy).typed == {}
            assert json.loads(bytes(job_facets(event, policy).raw["sql"])) == facet
    for version in ("1-0-0", "1-99-3"):
        event = with_job_facet("sql", {**OF_EVERY_FACET, "_schemaURL": address.format(version, fragment)})
        assert errors(event, SPEC) == ["job.facets.sql.query is required"]


def test_a_facet_that_names_another_document_is_judged_as_what_its_key_says() -> None:
    url = "https://openlineage.io/spec/facets/9-0-0/SourceCodeJobFacet.json"
    assert errors(with_job_facet("sql", {**OF_EVERY_FACET, "_schemaURL": url}), SPEC) == [
        "job.facets.sql.query is required"
    ]
    assert set(job_facets(with_job_facet("sql", {**OF_EVERY_FACET, "_schemaURL": url, "query": "Q"})).typed) == {"sql"}


def test_a_facet_of_another_major_version_still_needs_its_envelope() -> None:
    facet = {"_schemaURL": "https://openlineage.io/spec/facets/2-0-0/SQLJobFacet.json"}
    assert errors(with_job_facet("sql", facet), SPEC) == ["job.facets.sql._producer is required"]


def test_an_integer_may_be_written_with_a_point() -> None:
    statistics = {**OF_EVERY_FACET, "rowCount": 5.0, "size": 1e3}
    event = {**RUN_EVENT, "outputs": [{**DATASET, "outputFacets": {"outputStatistics": statistics}}]}
    found = run_event(event, STRICT).outputs[0].role_facets.typed["outputStatistics"]
    assert (found.rowCount, found.size) == (5, 1000)
    assert isinstance(found.rowCount, int)
    statistics["rowCount"] = 5.5
    path = "outputs[0].outputFacets.outputStatistics.rowCount"
    assert errors(event, SPEC) == [f"{path}: expected integer, got 5.5"]


@pytest.mark.parametrize(
    ("facets", "expected"),
    [
        (
            {"jobType": {"processingType": "B", "integration": "I", "emissionPattern": {"windowDuration": 0}}},
            [
                "job.facets.jobType.emissionPattern.eventTrigger is required",
                "job.facets.jobType.emissionPattern.eventContentMode is required",
                "job.facets.jobType.emissionPattern.windowDuration: expected at least 1, got 0",
            ],
        ),
        (
            {"lineage": {"entries": [{"type": "JOB", "name": "a"}]}},
            ["job.facets.lineage.entries[0].namespace is required, because its partner is there: both or neither"],
        ),
        (
            {"lineage": {"entries": [{"type": "TABLE"}]}},
            ["job.facets.lineage.entries[0].type: 'TABLE' is not one of DATASET, JOB"],
        ),
        ({"lineage": {"entries": [{}]}}, ["job.facets.lineage.entries[0].type is required"]),
        ({"lineage": {"entries": [{"type": None}]}}, ["job.facets.lineage.entries[0].type: expected string, got null"]),
    ],
)
def test_what_types_cannot_say_is_said_in_words(facets: dict[str, Any], expected: list[str]) -> None:
    event = changed(RUN_EVENT, "job.facets", {key: {**OF_EVERY_FACET, **facet} for key, facet in facets.items()})
    assert sorted(errors(event, SPEC)) == sorted(expected)
    assert sorted(warnings(event)) == sorted(f"{reason}{DROPPED}" for reason in expected)
    assert job_facets(event).typed == {}


@pytest.mark.parametrize(("duration", "allowed"), [(1, True), (1.0, True), (0, False), (0.0, False), (-5, False)])
def test_a_minimum_is_itself_allowed_however_it_is_written(duration: float, allowed: bool) -> None:  # noqa: FBT001
    pattern = {"eventTrigger": "PERIODIC", "eventContentMode": "ACCUMULATIVE", "windowDuration": duration}
    facet = {**OF_EVERY_FACET, "processingType": "STREAMING", "integration": "FLINK", "emissionPattern": pattern}
    assert (errors(with_job_facet("jobType", facet), SPEC) == []) is allowed
    assert ("jobType" in job_facets(with_job_facet("jobType", facet)).typed) is allowed


def test_the_one_closed_object_of_the_spec_is_closed() -> None:
    """The intruders are named in the order in which they are written, so that each process says the same."""
    intruders = ["type", "unit", "default", "required", "scope", "origin", "since"]
    parameters = {**OF_EVERY_FACET, "parameters": [{"key": "a", **dict.fromkeys(intruders, 1)}]}
    event = changed(RUN_EVENT, "run.facets", {"executionParameters": parameters})
    place = "run.facets.executionParameters.parameters[0]"
    assert errors(event, SPEC) == [f"{place}.{name} is not allowed: the spec closes this object" for name in intruders]
    assert run_event(event).run.facets.typed == {}


# --- facets at other homes --------------------------------------------------------------------------------------------

ASSERTIONS = {"assertions": [{"assertion": "not_null", "success": False, "column": "id"}]}


@pytest.mark.parametrize("policy", POLICIES)
def test_assertions_are_understood_in_facets_of_inputs_and_outputs_too(policy: Policy) -> None:
    facet = {"dataQualityAssertions": {**OF_EVERY_FACET, **ASSERTIONS}}
    event = {
        **RUN_EVENT,
        "inputs": [{**DATASET, "facets": facet}, {**DATASET, "inputFacets": facet}],
        "outputs": [{**DATASET, "facets": facet}, {**DATASET, "outputFacets": facet}],
    }
    verdict = run_event(event, policy)
    assert verdict.warnings == ()
    for dataset in (*verdict.inputs, *verdict.outputs):
        (found,) = (*dataset.facets.typed.values(), *dataset.role_facets.typed.values())
        assert found.assertions[0].column == "id"


@pytest.mark.parametrize("policy", POLICIES)
def test_an_older_spelling_of_the_parent_is_understood(policy: Policy) -> None:
    parent = {**OF_EVERY_FACET, "run": RUN, "job": JOB}
    verdict = run_event(changed(RUN_EVENT, "run.facets", {"parentRun": parent}), policy)
    assert verdict.warnings == ()
    found = body_at(verdict.run.facets, "parentRun", ParentRunFacet)
    assert found is not None
    assert (found.run.runId, found.job.name) == (RUN["runId"], "job")


@pytest.mark.parametrize("policy", POLICIES)
def test_sql_is_understood_on_a_run(policy: Policy) -> None:
    verdict = run_event(changed(RUN_EVENT, "run.facets", {"sql": {**OF_EVERY_FACET, "query": "SELECT 1"}}), policy)
    assert verdict.warnings == ()
    assert verdict.run.facets.typed["sql"].query == "SELECT 1"


@pytest.mark.parametrize(
    ("path", "facets", "expected"),
    [
        ("run.facets", {"parentRun": {**OF_EVERY_FACET, "run": RUN}}, "run.facets.parentRun.job is required"),
        ("run.facets", {"sql": {**OF_EVERY_FACET}}, "run.facets.sql.query is required"),
        (
            "outputs.0.facets",
            {"dataQualityAssertions": {**OF_EVERY_FACET, "assertions": [{"assertion": "a"}]}},
            "outputs[0].facets.dataQualityAssertions.assertions[0].success is required",
        ),
        (
            "outputs.0.outputFacets",
            {"dataQualityAssertions": {**OF_EVERY_FACET, "assertions": 5}},
            "outputs[0].outputFacets.dataQualityAssertions.assertions: expected array, got number",
        ),
    ],
)
def test_a_broken_facet_away_from_its_home_is_worth_a_warning_at_most(path: str, facets: Any, expected: str) -> None:
    """The spec knows nothing of it there, so even `spec` cannot refuse it."""
    event = changed({**RUN_EVENT, "outputs": [DATASET]}, path, facets)
    for policy in POLICIES:
        verdict = run_event(event, policy)
        assert [problem.message for problem in verdict.warnings] == [f"{expected}{DROPPED}"]
        assert verdict.run.facets.typed == {}
        assert verdict.outputs[0].facets.typed == {}
        assert verdict.outputs[0].role_facets.typed == {}


def test_away_from_home_a_facet_still_has_to_have_what_every_facet_has() -> None:
    event = changed(RUN_EVENT, "run.facets", {"sql": {"query": "SELECT 1"}})
    expected = ["run.facets.sql._producer is required", "run.facets.sql._schemaURL is required"]
    assert errors(event, SPEC) == expected
    assert warnings(event) == expected
    assert run_event(event).run.facets.typed["sql"].query == "SELECT 1"


@pytest.mark.parametrize("whole", [True, False])
def test_away_from_home_a_facet_is_deleted_where_its_new_home_allows_it(whole: bool) -> None:  # noqa: FBT001
    """Dataset facets can be deleted and run facets cannot, whatever the home they left says."""
    assertions = {**OF_EVERY_FACET, "_deleted": True, **(ASSERTIONS if whole else {})}
    event = {**RUN_EVENT, "inputs": [{**DATASET, "facets": {"dataQualityAssertions": assertions}}]}
    facets = run_event(event).inputs[0].facets
    assert (facets.typed, facets.deleted) == ({}, ("dataQualityAssertions",))
    sql = {**OF_EVERY_FACET, "_deleted": True, **({"query": "SELECT 1"} if whole else {})}
    facets = run_event(changed(RUN_EVENT, "run.facets", {"sql": sql})).run.facets
    assert (set(facets.typed), facets.deleted) == ({"sql"} if whole else set(), ())


# --- formats: warn or enforce -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({**RUN_EVENT, "producer": "airflow"}, "producer: 'airflow' is not a URI"),
        (changed(RUN_EVENT, "run.runId", "run-1"), "run.runId: 'run-1' is not a UUID"),
        (
            {**RUN_EVENT, "eventTime": "2026-01-31 12:00:00Z"},
            "eventTime: '2026-01-31 12:00:00Z' is not a date-time",
        ),
        ({**RUN_EVENT, "schemaURL": f"{SPEC_URL}#/a b"}, f"schemaURL: '{SPEC_URL}#/a b' is not a URI"),
    ],
)
@pytest.mark.parametrize("name", ["spec", "correlator"])
def test_a_broken_format_of_the_core_is_a_warning_or_an_error_by_choice(event: Any, expected: str, name: Any) -> None:
    lenient, strict = Policy(name=name, formats="warn"), Policy(name=name, formats="enforce")
    (warning,) = warnings(event, lenient)
    assert warning.startswith(expected)
    assert errors(event, lenient) == []
    assert errors(event, strict) == [expected]


def test_a_broken_format_of_a_facet_is_an_error_only_where_spec_enforces_it() -> None:
    nominal = {**OF_EVERY_FACET, "nominalStartTime": "yesterday"}
    event = changed(RUN_EVENT, "run.facets", {"nominalTime": nominal})
    expected = "run.facets.nominalTime.nominalStartTime: 'yesterday' is not a date-time"
    assert warnings(event, SPEC) == [expected]
    assert warnings(event, CORRELATOR) == [expected]
    assert errors(event, STRICT) == [expected]
    assert warnings(event, STRICT_CORRELATOR) == [f"{expected}{DROPPED}"]
    for policy in (SPEC, CORRELATOR):
        assert run_event(event, policy).run.facets.typed["nominalTime"].nominalStartTime == "yesterday"
    assert run_event(event, STRICT_CORRELATOR).run.facets.typed == {}


def test_a_time_without_an_offset_is_read_as_utc_with_a_warning() -> None:
    event = {**RUN_EVENT, "eventTime": "2026-01-31T12:00:00"}
    for policy in (SPEC, CORRELATOR):
        verdict = accepted(event, policy)
        assert verdict.event_time == accepted(RUN_EVENT).event_time
        (problem,) = verdict.warnings
        assert problem.rule == "no_offset"
        assert problem.message == "eventTime: '2026-01-31T12:00:00' has no offset; it is read as UTC"
    for policy in (STRICT, STRICT_CORRELATOR):
        assert errors(event, policy) == ["eventTime: '2026-01-31T12:00:00' is not a date-time"]


def test_several_oddities_of_one_core_are_several_warnings() -> None:
    event = {
        **changed(RUN_EVENT, "run.runId", "r"),
        "producer": "p",
        "eventTime": "2026-01-31",
        "schemaURL": f"{SPEC_URL}#/x/JobEvent",
    }
    assert sorted(warnings(event)) == [
        "eventTime: '2026-01-31' has no offset; it is read as UTC",
        "producer: 'p' is not a URI",
        "run.runId: 'r' is not a UUID",
        "schemaURL names a JobEvent, but by its shape this is a RunEvent",
    ]


# --- formats: what each one is ----------------------------------------------------------------------------------------


def is_uuid(text: str) -> bool:
    return match_uuid(text) is not None


OURS = {"date-time": is_date_time, "uri": is_uri, "uuid": is_uuid}
PEERS = {
    name: jsonschema_rs.Draft202012Validator({"format": name}, validate_formats=True).is_valid
    for name in ("date-time", "uri", "uuid")
}
SAMPLES: dict[Format, dict[str, bool]] = {
    "date-time": {
        "2026-01-31T12:00:00Z": True,
        "2026-01-31t12:00:00z": True,
        "2026-01-31T12:00:00.123456789Z": True,
        "2026-01-31T12:00:00+23:59": True,
        "2026-01-31T12:00:00-00:00": True,
        "2024-02-29T00:00:00Z": True,
        "2023-02-29T00:00:00Z": False,
        "2000-02-29T00:00:00Z": True,
        "1900-02-29T00:00:00Z": False,
        "2016-12-31T23:59:60Z": True,
        "2016-12-31T18:59:60.5-05:00": True,
        "2016-12-31T23:59:60-05:00": False,
        "2016-12-31T12:00:60Z": False,
        "2016-12-31T23:59:61Z": False,
        "0000-01-01T00:00:00Z": True,
        "10000-01-01T00:00:00Z": False,
        "2026-01-31T24:00:00Z": False,
        "2026-01-31T12:60:00Z": False,
        "2026-01-31T12:00:00": False,
        "2026-01-31T12:00Z": False,
        "2026-01-31T12:00:00.Z": False,
        "2026-01-31T12:00:00,5Z": False,
        "2026-01-31 12:00:00Z": False,
        "2026-01-31T12:00:00+24:00": False,
        "2026-01-31T12:00:00+01:60": False,
        "2026-01-31T12:00:00+0100": False,
        "2026-01-31T12:00:00+01": False,
        "2026-01-31T12:00:00Z[UTC]": False,
        "2026-01-31T12:00:00+01:00[Europe/London]": False,
        "2026-01-31": False,
        "2026-1-31T12:00:00Z": False,
        "20260131T120000Z": False,
        "2026-01-31T12:00:00Z ": False,
        "2026-01-31T12:00:00Z\n": False,
        "\u0662026-01-31T12:00:00Z": False,
        "": False,
    },
    "uri": {
        "https://example.com:80/a/b?c=d#e": True,
        "x:": True,
        "a+b-c.9:": True,
        "urn:isbn:0451450523": True,
        "mailto:a@b.c": True,
        "s3://bucket/key=1/%20": True,
        "file:///etc/hosts": True,
        "jdbc:postgresql://h:5432/db": True,
        "http://u:p@[2001:db8::1]:8080/": True,
        "http://[::ffff:1.2.3.4]/": True,
        "http://[v1.a:b]/": True,
        "http://[1.2.3.4]/": False,
        "http://[fe80::1%25en0]/": False,
        "http://[::1/": False,
        "http://h:port/": False,
        "http://h/?q=?/:@": True,
        "http://h/#a#b": False,
        "http://a b/": False,
        "http://h/{x}": False,
        "http://h/%7": False,
        "http://h/%zz": False,
        "http://h/\u00e9": False,
        "http://h/|": False,
        "http://h/\\": False,
        "http://h/ ": False,
        "http://h\n": False,
        "//example.com/a": False,
        "/a/b": False,
        "file": False,
        "bigquery": False,
        "1x:a": False,
        ":a": False,
        "": False,
    },
    "uuid": {
        "01941f29-7c00-7000-8000-000000000001": True,
        "01941F29-7C00-7000-8000-00000000000A": True,
        "00000000-0000-0000-0000-000000000000": True,
        "ffffffff-ffff-ffff-ffff-ffffffffffff": True,
        "01941f297c0070008000000000000001": False,
        "{01941f29-7c00-7000-8000-000000000001}": False,
        "urn:uuid:01941f29-7c00-7000-8000-000000000001": False,
        "01941f29-7c00-7000-8000-00000000000": False,
        "01941f29-7c00-7000-8000-0000000000011": False,
        "01941f29-7c00-7000-80000-00000000001": False,
        "01941f2g-7c00-7000-8000-000000000001": False,
        "01941f29-7c00-7000-8000-000000000001\n": False,
        "\u0660941f29-7c00-7000-8000-00000000001": False,
        "run_id": False,
        "": False,
    },
}
LETTERS: dict[Format, str] = {
    "date-time": "0123456789TtZz:.+- ,[]/a\u00e9\n\u0661",
    "uri": "azAZ09:/?#[]@!$&'()*+,;=-._~%{}|\\^`\"<> \u00e9\n\x00\u0661",
    "uuid": "0123456789abcdefABCDEFg-{} \n\u0661",
}
TAKEN_FOR_A_DATE_TIME = "+024-01-01T00:00:00Z"
"""jsonschema-rs reads digits by subtraction and takes what stands before "0" in ASCII for one. RFC 3339 does not."""
IN_DIGITS = re.compile(r"[0-9]{4}(-[0-9]{2}){2}[Tt][0-9]{2}(:[0-9]{2}){2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [(name, text, expected) for name, texts in SAMPLES.items() for text, expected in texts.items()],
)
def test_a_format_is_what_its_document_says(name: Format, text: str, expected: bool) -> None:  # noqa: FBT001
    assert OURS[name](text) is expected
    assert PEERS[name](text) is expected


def slightly_changed(text: str, letters: str, random: Random) -> str:
    for _ in range(random.randint(1, 2)):
        position = random.randrange(len(text) + 1)
        kept = position + random.choice([0, 0, 1])
        text = text[:position] + random.choice(["", *letters]) + text[kept:]
    return text


@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_is_judged_as_jsonschema_rs_does_on_what_is_nearly_right(name: Format) -> None:
    random = Random(name)
    right = [text for text, expected in SAMPLES[name].items() if expected]
    verdicts = set()
    for _ in range(4000):
        text = slightly_changed(random.choice(right), LETTERS[name], random)
        ours, theirs = OURS[name](text), PEERS[name](text)
        if name == "date-time" and theirs and not IN_DIGITS.fullmatch(text):
            assert not ours
            continue
        assert ours is theirs, text
        verdicts.add(ours)
    assert verdicts == {True, False}


def test_the_known_mistake_of_jsonschema_rs_is_still_there_and_not_ours() -> None:
    assert PEERS["date-time"](TAKEN_FOR_A_DATE_TIME)
    assert not is_date_time(TAKEN_FOR_A_DATE_TIME)
    reference = jsonschema.Draft202012Validator(
        {"format": "date-time"}, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    assert not reference.is_valid(TAKEN_FOR_A_DATE_TIME)


# --- times ------------------------------------------------------------------------------------------------------------

NOON = 1_769_860_800_000_000
"""2026-01-31T12:00:00Z"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T12:00:00Z", ReadTime(NOON, rfc3339=True, has_offset=True)),
        ("2026-01-31t12:00:00z", ReadTime(NOON, rfc3339=True, has_offset=True)),
        ("2026-01-31T12:00:00.5Z", ReadTime(NOON + 500_000, rfc3339=True, has_offset=True)),
        ("2026-01-31T12:00:00.0000019Z", ReadTime(NOON + 1, rfc3339=True, has_offset=True)),
        ("2026-01-31T13:30:00+01:30", ReadTime(NOON, rfc3339=True, has_offset=True)),
        ("2026-01-30T12:01:00-23:59", ReadTime(NOON, rfc3339=True, has_offset=True)),
        ("2026-01-31T12:00:00", ReadTime(NOON, rfc3339=False, has_offset=False)),
        ("2026-01-31T12:00:00.000001", ReadTime(NOON + 1, rfc3339=False, has_offset=False)),
        ("2026-01-31 12:00:00", ReadTime(NOON, rfc3339=False, has_offset=False)),
        ("2026-01-31 12:00:00+00:00", ReadTime(NOON, rfc3339=False, has_offset=True)),
        ("2026-01-31T12:00:00,5Z", ReadTime(NOON + 500_000, rfc3339=False, has_offset=True)),
        ("2026-01-31T12:00Z", ReadTime(NOON, rfc3339=False, has_offset=True)),
        ("2026-01-31T13:00+01", ReadTime(NOON, rfc3339=False, has_offset=True)),
        ("2026-01-31T13:00:00+0100", ReadTime(NOON, rfc3339=False, has_offset=True)),
        ("2026-01-31T12:00:00Z[UTC]", ReadTime(NOON, rfc3339=False, has_offset=True)),
        ("2026-01-31T13:00:00+01:00[Europe/Berlin]", ReadTime(NOON, rfc3339=False, has_offset=True)),
        ("2026-01-31", ReadTime(NOON - 43_200_000_000, rfc3339=False, has_offset=False)),
        ("2016-12-31T23:59:60Z", ReadTime(1_483_228_800_000_000, rfc3339=True, has_offset=True)),
        ("2017-01-01T00:00:00Z", ReadTime(1_483_228_800_000_000, rfc3339=True, has_offset=True)),
        ("1969-12-31T23:59:59.999999Z", ReadTime(-1, rfc3339=True, has_offset=True)),
        ("0001-01-01T00:00:00Z", ReadTime(-62_135_596_800_000_000, rfc3339=True, has_offset=True)),
        ("0000-12-31T23:59:59Z", ReadTime(-62_135_596_801_000_000, rfc3339=True, has_offset=True)),
    ],
)
def test_a_time_is_read_however_it_is_written(text: str, expected: ReadTime) -> None:
    assert read_time(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2026", "2026-01", "12:00:00Z", "2026-01-31T", "2026-01-31T12", "2026-01-31Z", "20260131T120000Z"),
        *("2026-01-31T12:00:00 Z", "2026-01-31T12:00:00+", "2026-01-31T12:00:00[]", "2026-01-31T12:00:00Z[a b]"),
        *("2026-02-29T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z", "2026-01-31T25:00:00Z"),
        *("2026-01-31T12:00:00+25:00", "2026-01-31T12:00:61Z", "1769860800", "2026-W05-6", "2026-031"),
    ],
)
def test_what_is_no_time_is_not_guessed_at(text: str) -> None:
    assert read_time(text) is None


def test_the_short_way_to_an_instant_agrees_with_the_long_one_wherever_it_leads() -> None:
    random = Random(7)
    right = [text for text, expected in SAMPLES["date-time"].items() if expected]
    taken = 0
    for _ in range(20_000):
        text = slightly_changed(random.choice(right), LETTERS["date-time"], random)
        instant = plain_instant(text)
        if instant is not None:
            read = read_time(text)
            assert read == ReadTime(instant, rfc3339=True, has_offset=True), text
            taken += 1
    assert taken > 100
