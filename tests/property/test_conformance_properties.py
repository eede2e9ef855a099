"""Generated events of all kinds get the verdict of the official schemas, be they sound or damaged.

What is sound is generated from the schemas themselves.
"""

import json
from copy import deepcopy
from datetime import datetime, timedelta, timezone
from functools import cache
from random import Random
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from correlator.rulebook.constraints import OTHER_HOMES, Entity
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Dataset, DatasetEvent, Event, Facets, JobEvent, Rejection, RunEvent
from correlator.rulebook.policy import CORRELATOR, Policy
from correlator.rulebook.problems import Problem
from correlator.rulebook.spec import STANDARD_FACETS
from tests import corpus, oracle
from tests.schemas import Node, Outline, resolve
from tests.unit.rulebook.test_conformance import ENFORCE, WARN, assert_same_verdict

pytestmark = corpus.needs_corpus

Json = st.SearchStrategy[Any]

POLICIES = [ENFORCE, WARN, CORRELATOR, Policy(formats="enforce")]
thorough = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# --- sound events -----------------------------------------------------------------------------------------------------

TEXT = st.text(max_size=12)
ANY_JSON: Json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
UNKNOWN = st.dictionaries(TEXT.map("x_{}".format), ANY_JSON, max_size=2)
"""Properties that no schema knows."""

OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
DATE_TIMES = st.builds(datetime.isoformat, st.datetimes(timezones=OFFSETS), st.sampled_from("Tt")).map(
    lambda text: text.replace("+00:00", "Z")
)
URI_PATHS = st.text("abcXYZ019-._~!$&'()*+,;=:@/", max_size=20)
URIS = st.builds(
    "{}//{}/{}{}".format,
    st.sampled_from(["https:", "s3:", "jdbc+x:", "a.b-c:"]),
    st.sampled_from(["", "host", "u:p@host:80", "[::1]:9", "1.2.3.4", "a%20b"]),
    URI_PATHS,
    st.sampled_from(["", "?", "?a=b?/", "#", "#/$defs/X", "?q#f"]),
) | st.sampled_from(["x:", "urn:a:b", "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"])
FORMATTED = {
    "date-time": DATE_TIMES,
    "uri": URIS,
    "uuid": st.uuids().map(str) | st.uuids().map(lambda u: str(u).upper()),
}


@cache
def values(document: str, address: str) -> Json:
    """Whatever keeps a definition. Deferred, because some hold themselves."""
    return st.deferred(lambda: from_outline(Node(document, resolve(address, document).schema)))


def from_schema(node: Node) -> Json:
    if set(node.schema) <= {"$ref", "description"} and "$ref" in node.schema:
        target = resolve(node.schema["$ref"], node.document)
        return values(target.document, "#" + node.schema["$ref"].partition("#")[2])
    return from_outline(node)


def from_outline(node: Node) -> Json:
    outline = Outline(node)
    if outline.choices:
        return st.one_of([from_schema(choice) for choice in outline.choices])
    if outline.values:
        return st.sampled_from(sorted(outline.values))
    match outline.type:
        case "object":
            return objects(outline)
        case "array":
            return st.lists(from_schema(outline.items or Node(node.document, {})), max_size=2)
        case "string":
            return FORMATTED.get(outline.format or "", TEXT)
        case "integer":
            whole = st.integers(min_value=outline.minimum)
            return whole | st.integers(outline.minimum or -9, 10**6).map(float)
        case "number":
            return st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        case "boolean":
            return st.booleans()
        case _:
            return ANY_JSON


def objects(outline: Outline) -> Json:
    members = {key: from_schema(node) for key, node in outline.properties.items()}
    declared = st.fixed_dictionaries(
        {key: member for key, member in members.items() if key in outline.required},
        optional={key: member for key, member in members.items() if key not in outline.required},
    )
    if isinstance(outline.extras, Node):
        others: Json = st.dictionaries(TEXT, from_schema(outline.extras), max_size=2)
    else:
        others = st.just({}) if outline.extras is False else UNKNOWN

    def joined(own: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
        alone = {key for key, partners in outline.partners.items() if key in own and not own.keys() >= {*partners}}
        return {**more, **{key: value for key, value in own.items() if key not in alone}}

    return st.builds(joined, declared, others)


def facets(entity: Entity) -> Json:
    """Custom facets, standard ones (sound, deleted, of another major version), and standard ones away from home."""
    base = st.fixed_dictionaries({"_producer": URIS, "_schemaURL": URIS})
    custom = st.builds(lambda other, own: {**other, **own}, UNKNOWN, base)
    deleted = st.builds(lambda own: {**own, "_deleted": True}, custom)
    kinds = [st.tuples(TEXT.map("my_{}".format), custom)]
    for key in [key for of, key in STANDARD_FACETS if of == entity]:
        document, _, pointer = oracle.facet_references()[entity, key].partition("#")
        sound = values(document, f"#{pointer}")
        foreign: Json = st.builds(dict, custom, _schemaURL=st.just(document.replace("/facets/", "/facets/9")))
        variants = [sound, sound, foreign, *([deleted] if entity in ("job", "dataset") else [])]
        kinds.append(st.tuples(st.just(key), st.one_of(variants)))
    for (of, key), home in OTHER_HOMES.items():
        if of == entity:
            document, _, pointer = oracle.facet_references()[home].partition("#")
            kinds.append(st.tuples(st.just(key), values(document, f"#{pointer}") | custom))
    return st.lists(st.one_of(kinds), max_size=3).map(dict)


def holder(required: dict[str, Json], **facet_maps: Entity) -> Json:
    maps = {key: facets(entity) for key, entity in facet_maps.items()}
    return st.builds(lambda more, own: {**more, **own}, UNKNOWN, st.fixed_dictionaries(required, optional=maps))


def events() -> Json:
    name = {"namespace": TEXT, "name": TEXT}
    core = {"eventTime": DATE_TIMES, "producer": URIS, "schemaURL": URIS}
    run = {"run": holder({"runId": FORMATTED["uuid"]}, facets="run")}
    job = {"job": holder(name, facets="job")}
    dataset = {"dataset": holder(name, facets="dataset")}
    sides = {
        "inputs": st.lists(holder(name, facets="dataset", inputFacets="input"), max_size=2),
        "outputs": st.lists(holder(name, facets="dataset", outputFacets="output"), max_size=2),
    }
    event_type = {"eventType": st.sampled_from(["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"])}
    ignored = {"eventType": ANY_JSON, "facets": ANY_JSON}
    return st.one_of(
        st.fixed_dictionaries({**core, **run, **job}, optional={**sides, **event_type, "dataset": ANY_JSON}),
        st.fixed_dictionaries({**core, **job}, optional={**sides, **ignored}),
        st.fixed_dictionaries({**core, **dataset}, optional={**ignored, "run": ANY_JSON, "inputs": ANY_JSON}),
    ).flatmap(lambda event: UNKNOWN.map(lambda more: {**more, **event}))


EVENTS = st.deferred(events)


# --- damage -----------------------------------------------------------------------------------------------------------

ODD_VALUES: Json = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        -1,
        1.5,
        2.0,
        10**30,
        "",
        "x",
        "JOB",
        "binary",
        "START",
        "2024-01-01T00:00:00",
        [],
        [None],
        {},
    ]
).map(deepcopy)  # the next damage may be done inside of it
ODD_KEYS = st.sampled_from(
    ["run", "job", "dataset", "inputs", "outputs", "facets", "inputFacets", "_deleted", "type", "name", "runId", "x"]
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every member and element, as its holder and its key."""
    found: list[tuple[Any, Any]] = []
    keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        found.append((value, key))
        found.extend(places(value[key]))
    return found


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(json.dumps(draw(EVENTS)))
    for _ in range(draw(st.integers(1, 3))):
        if not (open_to_harm := places(event)):
            break
        inside, key = draw(st.sampled_from(open_to_harm))
        match draw(st.sampled_from(["delete", "replace", "insert"])):
            case "delete":
                del inside[key]
            case "replace":
                inside[key] = draw(ODD_VALUES | ANY_JSON)
            case _ if isinstance(inside, dict):
                inside[draw(ODD_KEYS)] = draw(ODD_VALUES | ANY_JSON)
            case _:
                inside.insert(key, draw(ODD_VALUES | ANY_JSON))
    return event


# --- properties -------------------------------------------------------------------------------------------------------


@thorough
@given(EVENTS)
def test_an_event_made_from_the_schemas_is_accepted(event: dict[str, Any]) -> None:
    assert oracle.is_valid(event, formats=True)
    for policy in (ENFORCE, WARN):
        verdict = judge(msgspec.json.encode(event), policy)
        assert not isinstance(verdict, Rejection), verdict.errors


@thorough
@given(damaged())
def test_a_damaged_event_gets_the_verdict_of_the_schemas(event: dict[str, Any]) -> None:
    raw = msgspec.json.encode(event)
    assert_same_verdict(event, raw, formats=True)
    assert_same_verdict(event, raw, formats=False)


def with_repeated_keys(value: Any, random: Random) -> str:
    """The same value in a text that says some things twice, wrongly first. It is the last that counts."""
    if isinstance(value, list):
        return f"[{', '.join(with_repeated_keys(item, random) for item in value)}]"
    if not isinstance(value, dict):
        return json.dumps(value)
    members = [f"{json.dumps(key)}: {with_repeated_keys(member, random)}" for key, member in value.items()]
    if value and random.random() < 0.4:
        wrong = random.choice(["null", "0", '"x"', "[]", "{}", "[0]", '{"facets": 0}'])
        members.insert(0, f"{json.dumps(random.choice(list(value)))}: {wrong}")
    return f"{{{', '.join(members)}}}"


def understanding(verdict: Event | Rejection) -> tuple[Any, ...]:
    """All that was made of an event, but for its bytes."""
    if isinstance(verdict, Rejection):
        return verdict.kind, verdict.producer, _in_no_order(verdict.errors), _in_no_order(verdict.warnings)
    core = (verdict.kind, verdict.event_time, verdict.producer, verdict.schema_url, _in_no_order(verdict.warnings))
    match verdict:
        case RunEvent():
            return (*core, verdict.event_type, verdict.run.run_id, _of(verdict.run.facets), *_of_job(verdict))
        case JobEvent():
            return (*core, *_of_job(verdict))
        case DatasetEvent():
            return (*core, _of_dataset(verdict.dataset))


def _in_no_order(problems: tuple[Problem, ...]) -> list[Problem]:
    return sorted(problems)


def _of(found: Facets) -> tuple[Any, ...]:
    return found.typed, set(found.raw), set(found.deleted)


def _of_dataset(dataset: Dataset) -> tuple[Any, ...]:
    return dataset.namespace, dataset.name, _of(dataset.facets), _of(dataset.role_facets)


def _of_job(event: RunEvent | JobEvent) -> tuple[Any, ...]:
    datasets = [_of_dataset(dataset) for dataset in (*event.inputs, *event.outputs)]
    return event.job.namespace, event.job.name, _of(event.job.facets), len(event.inputs), datasets


@thorough
@given(st.one_of(EVENTS, damaged()), st.randoms(use_true_random=False), st.sampled_from(POLICIES))
def test_the_long_way_leads_to_the_same_verdict_as_the_short_one(
    event: dict[str, Any], random: Random, policy: Policy
) -> None:
    """A key that is wrong at first sends the reader the long way, in the core and in each facet."""
    assert understanding(judge(with_repeated_keys(event, random).encode(), policy)) == understanding(
        judge(json.dumps(event).encode(), policy)
    )
