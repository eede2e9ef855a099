"""Policy `spec` gives the verdict of the official JSON Schemas on real events, on every facet, and on their mutants.

A mutant is an event with one property or element deleted, or with one value replaced. No mutant of the corpus is left
out: each is judged with formats and without, and put to policy `correlator` too, where a facet must not cost the event.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple, get_args

import msgspec
import pytest

from correlator.rulebook import constraints, spec
from correlator.rulebook.constraints import Entity
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Facets, Rejection
from correlator.rulebook.formats import read_time
from correlator.rulebook.policy import CORRELATOR, Policy
from correlator.rulebook.problems import ROOT, Problem, Rule, child, element
from tests import corpus, oracle
from tests.schemas import Node, Outline, resolve

pytestmark = corpus.needs_corpus

Path = tuple[str | int, ...]

ENFORCE = Policy(name="spec", formats="enforce")
WARN = Policy(name="spec", formats="warn")
RULES = frozenset(get_args(Rule))

CORE: dict[str, Any] = {
    "eventTime": "2026-01-31T12:00:00.5Z",
    "producer": "https://example.com/producer",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json",
}
RUN_EVENT: dict[str, Any] = {
    **CORE,
    "eventType": "START",
    "run": {"runId": "01941f29-7c00-7000-8000-000000000001", "facets": {}},
    "job": {"namespace": "jobs", "name": "job", "facets": {}},
    "inputs": [{"namespace": "db", "name": "in", "facets": {}, "inputFacets": {}}],
    "outputs": [{"namespace": "db", "name": "out", "facets": {}, "outputFacets": {}}],
}
JOB_EVENT: dict[str, Any] = {key: RUN_EVENT[key] for key in (*CORE, "job", "inputs", "outputs")}
DATASET_EVENT: dict[str, Any] = {**CORE, "dataset": {"namespace": "db", "name": "set", "facets": {}}}

PLACES: dict[Entity, list[tuple[dict[str, Any], Path]]] = {
    "run": [(RUN_EVENT, ("run", "facets"))],
    "job": [(RUN_EVENT, ("job", "facets")), (JOB_EVENT, ("job", "facets"))],
    "dataset": [
        (RUN_EVENT, ("inputs", 0, "facets")),
        (RUN_EVENT, ("outputs", 0, "facets")),
        (JOB_EVENT, ("inputs", 0, "facets")),
        (DATASET_EVENT, ("dataset", "facets")),
    ],
    "input": [(RUN_EVENT, ("inputs", 0, "inputFacets")), (JOB_EVENT, ("inputs", 0, "inputFacets"))],
    "output": [(RUN_EVENT, ("outputs", 0, "outputFacets")), (JOB_EVENT, ("outputs", 0, "outputFacets"))],
}
"""Where the facets of an entity can stand, each in an event that is valid without them."""

WRONG: tuple[Any, ...] = (None, True, 1, 1.5, "x", [], {})
WRONG_FOR_NUMBERS: tuple[Any, ...] = (*WRONG, 0, 2.0, 10**20)
"""Also for an integer: what is too small, what JSON Schema counts as one, and what 64 bits do not hold."""


class Difference(NamedTuple):
    """A case in which policy `spec` refuses what the oracle lets pass."""

    why: str
    applies: Callable[[Any, bool], bool]
    """Asked of an event, and whether formats are judged."""
    formats: bool
    example: bytes


def _written(old: str, new: str) -> bytes:
    text = json.dumps(RUN_EVENT)
    assert old in text
    return text.replace(old, new, 1).encode()


def _with_input_metrics(metrics: str) -> bytes:
    body = f'"_producer": "x:", "_schemaURL": "x:", {metrics}'
    return _written('"inputFacets": {}', f'"inputFacets": {{"dataQualityMetrics": {{{body}}}}}')


def _has_no_readable_time(event: Any, formats: bool) -> bool:  # noqa: FBT001
    text = event.get("eventTime") if isinstance(event, dict) else None
    return not formats and isinstance(text, str) and read_time(text) is None


def _only_the_example(_event: Any, _formats: bool) -> bool:  # noqa: FBT001
    """No mutant of the corpus has it."""
    return False


INTENDED = [
    Difference(
        "an eventTime that cannot be read as a time is an error even where formats are not judged",
        _has_no_readable_time,
        formats=False,
        example=_written(CORE["eventTime"], "2024-13-01"),
    ),
    Difference(
        "a number is one that a 64-bit float can hold",
        _only_the_example,
        formats=False,
        example=_with_input_metrics(f'"columnMetrics": {{"c": {{"sum": {"9" * 400}}}}}'),
    ),
    Difference(
        "an integer has no more digits than Python reads",
        _only_the_example,
        formats=False,
        example=_with_input_metrics(f'"columnMetrics": {{}}, "rowCount": {"9" * 4301}'),
    ),
    Difference(
        "half of a surrogate pair is no text",
        _only_the_example,
        formats=False,
        example=_written('"name": "job"', r'"name": "\ud800"'),
    ),
    Difference(
        "a date-time is written in digits; jsonschema-rs takes other characters for digits too",
        _only_the_example,
        formats=True,
        example=_written(CORE["eventTime"], "+026-01-31T12:00:00Z"),
    ),
]
"""All of them. Each has to show itself in its example, so that none outlives its reason."""


# --- mutants ----------------------------------------------------------------------------------------------------------


def mutants(event: dict[str, Any], within: Path = ()) -> Iterator[Path]:
    """Every mutant, one after the other, in place: while an item is out, the event is the mutant; then it is whole."""
    holder: Any = event
    for step in within:
        holder = holder[step]
    yield from _mutants_of_members(holder, within)


def _mutants_of_members(holder: Any, path: Path) -> Iterator[Path]:
    steps: list[Any] = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    for step in steps:
        value = holder[step]
        for wrong in WRONG_FOR_NUMBERS if type(value) in (int, float) else WRONG:
            if type(wrong) is not type(value) or wrong != value:
                holder[step] = wrong
                yield (*path, step)
        del holder[step]
        yield (*path, step)
        if isinstance(holder, list):
            holder.insert(step, value)
        else:
            holder[step] = value
        if isinstance(value, dict | list):
            yield from _mutants_of_members(value, (*path, step))


def test_a_mutant_is_one_step_from_its_event_and_leaves_it_whole() -> None:
    event = {"a": [1, {"b": True}]}
    seen = {(path, json.dumps(event)) for path in mutants(event)}
    assert event == {"a": [1, {"b": True}]}
    assert len(seen) == 8 + 10 + 8 + 7
    assert (("a", 0), '{"a": [1.5, {"b": true}]}') in seen
    assert (("a", 0), '{"a": [{"b": true}]}') in seen
    assert (("a", 1, "b"), '{"a": [1, {}]}') in seen
    assert (("a", 1, "b"), '{"a": [1, {"b": 1}]}') in seen


def facet_of(path: Path) -> str | None:
    """The path of the facet in which a place lies, as problems write it."""
    for index, step in enumerate(path[:-1]):
        if step in constraints.FACET_MAPS:
            text = ROOT
            for part in path[: index + 2]:
                text = child(text, part) if isinstance(part, str) else element(text, part)
            return text
    return None


# --- what must hold of every event ------------------------------------------------------------------------------------

_STEP = re.compile(r'\[(?P<index>\d+)\]|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]|\.?(?P<plain>[A-Za-z_][A-Za-z0-9_\-]*)')
_IN_A_FACET = re.compile(r"(run|job|dataset|inputs\[\d+\]|outputs\[\d+\])\.(facets|inputFacets|outputFacets)[.\[]")


@cache
def steps_of(path: str) -> Path:
    steps: list[str | int] = []
    position = 0
    while position < len(path) and path != ROOT:
        match = _STEP.match(path, position)
        assert match is not None, f"{path} cannot be followed"
        if match["index"]:
            steps.append(int(match["index"]))
        else:
            steps.append(json.loads(match["quoted"]) if match["quoted"] else match["plain"])
        position = match.end()
    return tuple(steps)


def leads_somewhere(path: str, event: Any) -> bool:
    """Whether there is something at the path, or at least an object in which it is missing."""
    steps = steps_of(path)
    value = event
    for step in steps[:-1]:
        value = value[step]
    return not steps or isinstance(value, dict) or 0 <= int(steps[-1]) < len(value)


def assert_well_said(problem: Problem, event: Any) -> None:
    assert problem.rule in RULES
    assert leads_somewhere(problem.path, event), problem
    if problem.path == ROOT:
        assert len(problem.message.split()) > 3
        assert not problem.message.startswith(ROOT)
    else:
        assert problem.message.startswith(problem.path), problem
        assert problem.message[len(problem.path)] in ": "


def assert_same_verdict(event: Any, raw: bytes, *, formats: bool) -> bool:
    """Gives the schemas' verdict, for who asks further."""
    verdict = judge(raw, ENFORCE if formats else WARN)
    official = oracle.is_valid(event, formats=formats)
    if isinstance(verdict, Rejection):
        assert verdict.errors
        for problem in verdict.errors:
            assert_well_said(problem, event)
        if official:
            intended = any(difference.applies(event, formats) for difference in INTENDED)
            assert intended, f"refused against the schemas, {verdict.errors}: {raw.decode()}"
    else:
        assert official, f"accepted against the schemas: {raw.decode()}"
    return official


def assert_a_facet_costs_only_itself(event: Any, raw: bytes, path: Path, *, official: bool) -> None:
    verdict = judge(raw, CORRELATOR)
    facet = facet_of(path)
    for problem in verdict.warnings:
        assert_well_said(problem, event)
    if isinstance(verdict, Rejection):
        assert facet is None, f"a facet cost the event: {verdict.errors}"
        assert [problem for problem in verdict.errors if _IN_A_FACET.match(problem.path)] == []
    elif facet is not None and not official:
        found = [problem for problem in verdict.warnings if problem.path.startswith(facet)]
        assert found, f"no word on {facet}"
        if any(is_of_the_body(problem, facet) for problem in found):
            assert not is_typed(verdict, path), f"{facet} is broken and yet understood: {found}"


def is_of_the_body(problem: Problem, facet: str) -> bool:
    """Whether a problem stands against understanding a facet: formats do not, nor does what every facet has to have."""
    envelope = (f"{facet}._producer", f"{facet}._schemaURL")
    return not problem.rule.startswith("format_") and problem.path not in envelope


def is_typed(event: Event, path: Path) -> bool:
    holder: Any = event
    for index, step in enumerate(path):
        if step in constraints.FACET_MAPS:
            facets: Facets = holder.facets if step == "facets" else holder.role_facets
            return path[index + 1] in facets.typed
        holder = holder[step] if isinstance(step, int) else getattr(holder, step)
    raise AssertionError(path)


def assert_all_hold(event: Any, path: Path) -> None:
    raw = msgspec.json.encode(event)
    assert_same_verdict(event, raw, formats=True)
    official = assert_same_verdict(event, raw, formats=False)
    assert_a_facet_costs_only_itself(event, raw, path, official=official)


# --- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", corpus.event_files())
def test_the_corpus_and_all_its_mutants_get_the_verdict_of_the_schemas(name: str) -> None:
    for raw in corpus.events(name):
        event = json.loads(raw)
        assert_all_hold(event, ())
        for path in mutants(event):
            assert_all_hold(event, path)


@pytest.mark.parametrize("event", [RUN_EVENT, JOB_EVENT, DATASET_EVENT], ids=["run", "job", "dataset"])
def test_a_bare_event_of_each_kind_and_its_mutants_get_the_verdict_of_the_schemas(event: dict[str, Any]) -> None:
    assert oracle.is_valid(event, formats=True)
    mutant = copy.deepcopy(event)
    for path in mutants(mutant):
        assert_all_hold(mutant, path)
    for extra in ("run", "job", "dataset", "inputs", "outputs", "eventType", "facets", "unknown"):
        for value in (*WRONG, RUN_EVENT["run"], RUN_EVENT["job"], DATASET_EVENT["dataset"]):
            assert_all_hold({**event, extra: value}, (extra,))


def test_a_sample_gets_the_same_verdict_from_the_reference_implementation_of_json_schema() -> None:
    """On every 150th mutant, for it is slow, and without formats, for it has no judge of URIs at hand."""
    sampled = 0
    for number, raw in enumerate(corpus.all_events()):
        event = json.loads(raw)
        for index, path in enumerate(mutants(event)):
            if (index + number) % 150 == 0:
                sampled += 1
                refused = isinstance(judge(msgspec.json.encode(event), WARN), Rejection)
                official = oracle.is_valid(event, formats=False, engine="jsonschema")
                assert refused is not official or _has_no_readable_time(event, False), f"{path}: {event}"
    assert sampled > 500


# --- facets -----------------------------------------------------------------------------------------------------------


def samples(node: Node, above: tuple[int, ...] = ()) -> list[Any]:
    """Values that keep a schema, each with all its properties; together they show every alternative.

    Nothing comes back of a schema that stands in itself for the third time.
    """
    outline = Outline(node)
    if outline.choices:
        return [sample for choice in outline.choices for sample in samples(choice, above)]
    match outline.type:
        case "object":
            target = id(resolve(node.schema["$ref"], node.document).schema if "$ref" in node.schema else node.schema)
            return [] if above.count(target) > 1 else _sample_objects(outline, (*above, target))
        case "array":
            return [samples(outline.items or Node(node.document, {}), above)]
        case "string":
            by_format = {
                "date-time": CORE["eventTime"],
                "uri": CORE["producer"],
                "uuid": RUN_EVENT["run"]["runId"],
            }
            return sorted(outline.values) if outline.values else [by_format.get(outline.format or "", "text")]
        case "integer":
            return [(outline.minimum or 0) + 7]
        case "number":
            return [2.5]
        case "boolean":
            return [True]
        case _:
            return [[None, {"any": 1e-3}]]


def _sample_objects(outline: Outline, above: tuple[int, ...]) -> list[Any]:
    members = {key: samples(node, above) for key, node in outline.properties.items() if key != "_deleted"}
    if not all(members.get(key) for key in outline.required):
        return []
    if outline.extras is not False and not outline.properties:
        extras = outline.extras if isinstance(outline.extras, Node) else Node("", {})
        members["a key"] = samples(extras, above)
    whole = {key: values[0] for key, values in members.items() if values}
    others = [{**whole, key: value} for key, values in members.items() for value in values[1:]]
    return [whole, *others]


def facets_to_place(entity: Entity, key: str) -> Iterator[dict[str, Any]]:
    """What the schema tells to be a facet, and the examples of the corpus for the same document."""
    reference = oracle.facet_references()[entity, key]
    yield from samples(resolve(reference, oracle.CORE))
    document = reference.partition(".json#")[0].rpartition("/")[2]
    for name, example_key, facet in corpus.facet_examples():
        if example_key == key and name.startswith(f"{document}/"):
            yield facet


def placed(facet: Any, key: str, event: dict[str, Any], place: Path) -> dict[str, Any]:
    """A copy of the event that holds a copy of the facet."""
    whole = copy.deepcopy(event)
    facets: Any = whole
    for step in place:
        facets = facets[step]
    facets[key] = copy.deepcopy(facet)
    return whole


@pytest.mark.parametrize(("entity", "key"), spec.STANDARD_FACETS)
def test_a_facet_and_all_its_mutants_get_the_verdict_of_the_schemas_wherever_it_stands(
    entity: Entity, key: str
) -> None:
    for facet in facets_to_place(entity, key):
        for bare, place in PLACES[entity]:
            event = placed(facet, key, bare, place)
            assert_all_hold(event, (*place, key))
            for path in mutants(event, place):
                assert_all_hold(event, path)


@pytest.mark.parametrize(("entity", "key"), spec.STANDARD_FACETS)
def test_a_facet_made_from_its_schema_is_accepted(entity: Entity, key: str) -> None:
    made = samples(resolve(oracle.facet_references()[entity, key], oracle.CORE))
    assert made
    for facet in made:
        for bare, place in PLACES[entity]:
            verdict = judge(msgspec.json.encode(placed(facet, key, bare, place)), ENFORCE)
            assert not isinstance(verdict, Rejection), verdict.errors


def test_every_example_of_a_facet_is_accepted_at_an_entity_that_has_it() -> None:
    for name, key, facet in corpus.facet_examples():
        verdicts = [
            judge(msgspec.json.encode(placed(facet, key, bare, place)), ENFORCE)
            for entity in PLACES
            if (entity, key) in oracle.facet_references()
            for bare, place in PLACES[entity][:1]
        ]
        assert not all(isinstance(verdict, Rejection) for verdict in verdicts), name


@pytest.mark.parametrize("difference", INTENDED, ids=lambda difference: difference.why)
def test_an_intended_difference_shows_itself(difference: Difference) -> None:
    event = json.loads(difference.example, parse_int=lambda digits: 10 ** len(digits))
    assert oracle.is_valid(event, formats=difference.formats)
    assert difference.applies is _only_the_example or difference.applies(event, difference.formats)
    assert isinstance(judge(difference.example, ENFORCE if difference.formats else WARN), Rejection)
