"""No text whatsoever makes `judge` raise or waver: the same bytes get the same verdict, whatever was seen before."""

import json
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from correlator.rulebook.policy import Policy
from correlator.rulebook.recent import forget_all
from tests import corpus

POLICIES = [
    Policy(name="spec", formats="warn"),
    Policy(name="spec", formats="enforce"),
    Policy(name="correlator", formats="warn"),
    Policy(name="correlator", formats="enforce"),
]
ORDERS = st.permutations(POLICIES)
fuzzing = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])

OF_EVERY_FACET = {
    "_producer": "https://example.com/producer",
    "_schemaURL": "https://openlineage.io/spec/facets/1-0-0/AnyFacet.json",
}
RICH_EVENT: dict[str, Any] = {
    "eventType": "COMPLETE",
    "eventTime": "2026-01-31T12:00:00.123+01:00",
    "producer": "https://example.com/producer",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    "run": {
        "runId": "01941f29-7c00-7000-8000-000000000001",
        "facets": {
            "parent": {
                **OF_EVERY_FACET,
                "run": {"runId": "01941f29-7c00-7000-8000-000000000002"},
                "job": {"namespace": "airflow", "name": "dag"},
            },
            "nominalTime": {**OF_EVERY_FACET, "nominalStartTime": "2026-01-31T00:00:00Z"},
            "executionParameters": {**OF_EVERY_FACET, "parameters": [{"key": "a", "value": "b"}]},
            "my_facet": {**OF_EVERY_FACET, "any": [1, 2.5, None, "é\x00", {"deep": []}]},
        },
    },
    "job": {
        "namespace": "airflow",
        "name": "dag.task",
        "facets": {
            "sql": {**OF_EVERY_FACET, "query": "SELECT 1"},
            "ownership": {**OF_EVERY_FACET, "_deleted": True},
            "jobType": {**OF_EVERY_FACET, "processingType": "BATCH", "integration": "AIRFLOW", "emissionPattern": {}},
            "lineage": {
                **OF_EVERY_FACET,
                "entries": [{"type": "DATASET", "namespace": "a", "name": "b", "inputs": [{"type": "JOB"}]}],
            },
        },
    },
    "inputs": [
        {
            "namespace": "postgres://db:5432",
            "name": "shop.public.orders",
            "facets": {
                "schema": {**OF_EVERY_FACET, "fields": [{"name": "a", "fields": [{"name": "b"}]}]},
                "dataQualityAssertions": {**OF_EVERY_FACET, "assertions": [{"assertion": "unique", "success": False}]},
            },
            "inputFacets": {
                "dataQualityMetrics": {**OF_EVERY_FACET, "rowCount": 5.0, "columnMetrics": {"a": {"sum": 1e9}}},
                "subset": {
                    **OF_EVERY_FACET,
                    "inputCondition": {
                        "type": "compare",
                        "comparison": "=",
                        "left": {"type": "field", "field": "a"},
                        "right": {"type": "literal", "value": "1"},
                    },
                },
            },
        }
    ],
    "outputs": [{"namespace": "s3://bucket", "name": "a/b", "outputFacets": {"outputStatistics": OF_EVERY_FACET}}],
}
JOB_EVENT = {key: value for key, value in RICH_EVENT.items() if key not in ("run", "eventType")}
DATASET_EVENT = {
    **{key: RICH_EVENT[key] for key in ("eventTime", "producer", "schemaURL")},
    "dataset": RICH_EVENT["inputs"][0],
}
EVENTS = [RICH_EVENT, JOB_EVENT, DATASET_EVENT]


def assert_steady(raw: bytes, policies: list[Policy]) -> None:
    """Judged at once, again, and by one who remembers nothing: always the same, and always with a reason."""
    verdicts = [judge(raw, policy) for policy in policies]
    for policy, verdict in zip(policies, verdicts, strict=True):
        assert verdict.raw is raw
        if isinstance(verdict, Rejection):
            assert verdict.errors
            assert all(problem.message and problem.path for problem in verdict.errors)
        assert judge(raw, policy) == verdict
    for policy, verdict in zip(policies, verdicts, strict=True):
        forget_all()
        assert judge(raw, policy) == verdict


# --- bytes ------------------------------------------------------------------------------------------------------------

TOKENS = st.sampled_from(
    [
        *(
            b'"',
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b"\\",
            b" ",
            b"\n",
            b"\x00",
            b"\xff",
            b"\xed\xa0\x80",
            b"\xef\xbb\xbf",
        ),
        *(b"null", b"true", b"-1", b"1e999", b"NaN", b"9" * 5000, b"{}", b"[]", b'""', b"\\ud800", b"\\u0000"),
        *(
            b'"run":',
            b'"job":',
            b'"dataset":{},',
            b'"facets":{},',
            b'"_deleted":true,',
            b'"type":"JOB",',
            b'"inputs":null,',
        ),
    ]
)


@st.composite
def corrupted(draw: st.DrawFn, sound: st.SearchStrategy[bytes]) -> bytes:
    text = draw(sound)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        match draw(st.sampled_from(["flip", "insert", "delete", "repeat", "truncate", "splice"])):
            case "flip" if start < len(text):
                text = text[:start] + bytes([text[start] ^ (1 << draw(st.integers(0, 7)))]) + text[start + 1 :]
            case "insert":
                text = text[:start] + draw(TOKENS) + text[start:]
            case "delete":
                text = text[:start] + text[end:]
            case "repeat":
                text = text[:end] + text[start:end] + text[end:]
            case "truncate":
                text = text[:start]
            case "splice":
                other = draw(sound)
                text = text[:start] + other[draw(st.integers(0, len(other))) :]
    return text


def written(event: Any) -> bytes:
    return json.dumps(event, ensure_ascii=False).encode("utf-8", "surrogatepass")


@fuzzing
@given(st.binary(max_size=60), ORDERS)
@example(b"", POLICIES)
@example(b"\xef\xbb\xbf{}", POLICIES)
def test_any_bytes_get_an_answer(raw: bytes, policies: list[Policy]) -> None:
    assert_steady(raw, policies)


@fuzzing
@given(corrupted(st.sampled_from([written(event) for event in EVENTS])), ORDERS)
def test_a_corrupted_event_gets_an_answer(raw: bytes, policies: list[Policy]) -> None:
    assert_steady(raw, policies)


@corpus.needs_corpus
@fuzzing
@given(corrupted(st.deferred(lambda: st.sampled_from(corpus.all_events()))), ORDERS)
def test_a_corrupted_event_of_a_real_producer_gets_an_answer(raw: bytes, policies: list[Policy]) -> None:
    assert_steady(raw, policies)


# --- structure --------------------------------------------------------------------------------------------------------

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=8)
"""Halves of surrogate pairs included."""
KNOWN_KEYS = sorted({key for event in EVENTS for key in json.dumps(event).split('"')[1::2]})
KEYS = st.sampled_from(KNOWN_KEYS) | ANY_TEXT
ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.sampled_from(KNOWN_KEYS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every member and element, as its holder and its key."""
    keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *places(value[key]))]


@st.composite
def distorted(draw: st.DrawFn, sound: st.SearchStrategy[Any]) -> Any:
    """An event with anything anywhere."""
    event = json.loads(json.dumps(draw(sound)))
    for _ in range(draw(st.integers(1, 4))):
        holder, key = draw(st.sampled_from(places(event) or [({}, "nothing is left")]))
        holder[key] = draw(ANY_JSON)
        if isinstance(holder, dict) and draw(st.booleans()):
            holder[draw(KEYS)] = draw(ANY_JSON)
    return event


@fuzzing
@given(ANY_JSON, ORDERS, st.booleans())
def test_any_json_gets_an_answer(value: Any, policies: list[Policy], escaped: bool) -> None:  # noqa: FBT001
    assert_steady(json.dumps(value).encode() if escaped else written(value), policies)


@fuzzing
@given(distorted(st.sampled_from(EVENTS)), ORDERS, st.booleans())
def test_an_event_with_anything_anywhere_gets_an_answer(event: Any, policies: list[Policy], escaped: bool) -> None:  # noqa: FBT001
    assert_steady(json.dumps(event).encode() if escaped else written(event), policies)


@corpus.needs_corpus
@fuzzing
@given(distorted(st.deferred(lambda: st.sampled_from(corpus.all_events()).map(json.loads))), ORDERS)
def test_a_distorted_event_of_a_real_producer_gets_an_answer(event: Any, policies: list[Policy]) -> None:
    assert_steady(json.dumps(event).encode(), policies)


@settings(fuzzing, max_examples=100)
@given(st.lists(st.tuples(distorted(st.sampled_from(EVENTS)), st.sampled_from(POLICIES)), min_size=2, max_size=6))
def test_what_was_judged_before_does_not_change_a_verdict(history: list[tuple[Any, Policy]]) -> None:
    alone = []
    for event, policy in history:
        forget_all()
        alone.append(judge(json.dumps(event).encode(), policy))
    forget_all()
    assert [judge(json.dumps(event).encode(), policy) for event, policy in history] == alone
