"""The derived types and the tables of `constraints`, held against the official schemas: both are walked together."""

import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import inspect

from correlator.rulebook import constraints, explain, spec
from correlator.rulebook.constraints import Entity
from tests import corpus, oracle
from tests.schemas import Node, Outline, resolve

pytestmark = corpus.needs_corpus

INTENDED = {
    "DataQualityMetricsDatasetFacet.captureDate is not in the schema": "openlineage-python 1.54 has its version 1-0-1",
    "JobEvent.inputs may be null": "policy `correlator` reads null as an empty list; `spec` refuses it after decoding",
    "JobEvent.outputs may be null": "likewise",
    "RunEvent.inputs may be null": "likewise",
    "RunEvent.outputs may be null": "likewise",
}
"""Where the types are meant to differ from the schemas of the corpus, and why."""

EVENTS = {"RunEvent": spec.RUN_EVENT, "JobEvent": spec.JOB_EVENT, "DatasetEvent": spec.DATASET_EVENT}
BASE_DEFINITIONS: dict[Entity, str] = {
    "run": "RunFacet",
    "job": "JobFacet",
    "dataset": "DatasetFacet",
    "input": "InputDatasetFacet",
    "output": "OutputDatasetFacet",
}

SCALARS: dict[str, type[inspect.Type]] = {
    "string": inspect.StrType,
    "integer": inspect.IntType,
    "number": inspect.FloatType,
    "boolean": inspect.BoolType,
}


def generated_class(shape: type[Any]) -> type[Any]:
    """The class of `openlineage-python` that a type was derived from."""
    found: type[Any] = getattr(importlib.import_module(shape.__module__), shape.__name__)
    return found


class Walk:
    """Goes through a schema and a type side by side; notes where they differ and which constraints are in use."""

    def __init__(self) -> None:
        self.differences: list[str] = []
        self.constrained: set[str] = set()
        self._seen: set[tuple[int, type[Any]]] = set()

    def compare(self, node: Node, kind: inspect.Type, place: str, declared: str = "") -> None:
        outline = Outline(node)
        match kind:
            case inspect.UnionType(types=types) if any(isinstance(t, inspect.NoneType) for t in types):
                self.differences.append(f"{place} may be null")
                (inner,) = (t for t in types if not isinstance(t, inspect.NoneType))
                self.compare(node, inner, place)
            case inspect.Metadata(extra={"json": "object"}):
                self._compare_facet_map(outline, place)
            case inspect.Metadata(type=inner, extra=extra):
                self._same(place, "format", outline.format, (extra or {}).get("format"))
                self.constrained.add(declared)
                self.compare(Node(node.document, {"type": outline.type}), inner, place)
            case inspect.UnionType(types=types):
                shapes = {t.tag: t for t in types if isinstance(t, inspect.StructType)}
                choices = {Outline(choice).tag: choice for choice in outline.choices}
                self._same(place, "alternatives", set(choices), set(shapes))
                for tag in choices.keys() & shapes.keys():
                    self.compare(choices[tag], shapes[tag], place)
            case inspect.StructType():
                if (id(node.schema), kind.cls) not in self._seen:  # some types hold themselves
                    self._seen.add((id(node.schema), kind.cls))
                    self._compare_struct(outline, kind)
            case inspect.DictType(value_type=inner):
                self._same(place, "type", outline.type, "object")
                self._same(place, "properties", outline.properties, {})
                extras = outline.extras if isinstance(outline.extras, Node) else Node(node.document, {})
                self.compare(extras, inner, f"{place}.*")
            case inspect.ListType(item_type=inner):
                self._same(place, "type", outline.type, "array")
                self.compare(outline.items or Node(node.document, {}), inner, f"{place}[]")
            case inspect.LiteralType(values=values):
                self._same(place, "type", outline.type, "string")
                self._same(place, "values", outline.values, set(values))
            case inspect.AnyType():
                self._same(place, "type", outline.type, None)
            case _:
                expected = SCALARS.get(outline.type or "")
                self._same(place, "type", expected, type(kind))
                self._same(place, "format", outline.format, None)
                self._same(place, "values", outline.values, None)
                self._same(place, "minimum", outline.minimum, getattr(kind, "ge", None))
                if outline.minimum is not None:
                    self.constrained.add(declared)

    def _compare_struct(self, outline: Outline, kind: inspect.StructType) -> None:
        name = kind.cls.__name__
        fields = {field.encode_name: field for field in kind.fields}
        tag = {"type"} if kind.tag is not None else set()
        self._same(name, "type", outline.type, "object")
        self._same(name, "tag", outline.tag, kind.tag)
        self._same(name, "closed", outline.extras is False, kind.forbid_unknown_fields)
        if outline.extras is False:
            self.constrained.add(name)
        for extra in sorted(fields.keys() - outline.properties.keys()):
            self.differences.append(f"{name}.{extra} is not in the schema")
        for missing in sorted(outline.properties.keys() - fields.keys() - tag):
            self.differences.append(f"{name}.{missing} is not in the type")
        self._same(name, "required", outline.required, tag | {f.encode_name for f in kind.fields if f.required})
        pair = constraints.TOGETHER.get(name)
        self._same(name, "partners", outline.partners, {pair[0]: [pair[1]], pair[1]: [pair[0]]} if pair else {})
        if pair:
            self.constrained.add(name)
        for key in outline.properties.keys() & fields.keys():
            self.compare(outline.properties[key], fields[key].type, f"{name}.{key}", _declaration(kind.cls, key))

    def _compare_facet_map(self, outline: Outline, place: str) -> None:
        """Facets stay as they are written. What each must have is the type of its entity, compared on its own."""
        self._same(place, "type", outline.type, "object")
        holder, _, key = place.partition(".")
        entity = {"Run": "RunFacet", "Job": "JobFacet"}.get(holder, "DatasetFacet")
        expected = {"inputFacets": "InputDatasetFacet", "outputFacets": "OutputDatasetFacet"}.get(key, entity)
        assert isinstance(outline.extras, Node)
        self._same(place, "facets", outline.extras.schema, {"$ref": f"#/$defs/{expected}"})

    def _same(self, place: str, what: str, schemas: Any, ours: Any) -> None:
        if schemas != ours:
            self.differences.append(f"{place}: the schema's {what} is {schemas}, the type's {ours}")


def _declaration(shape: type[Any], field: str) -> str:
    """How `constraints` names a field: by the class that first declares it."""
    names = [f"{cls.__name__}.{field}" for cls in generated_class(shape).__mro__]
    tables = constraints.FORMATS.keys() | constraints.MINIMUMS.keys()
    return next((name for name in names if name in tables), f"{field} of {shape.__name__}, which no table knows")


def compared(reference: str, shape: spec.Shape) -> Walk:
    walk = Walk()
    walk.compare(resolve(reference, oracle.CORE), explain.type_of(shape), shape.__name__)
    return walk


def all_walks() -> Iterator[Walk]:
    for (entity, key), facet in spec.STANDARD_FACETS.items():
        yield compared(oracle.facet_references()[entity, key], facet.shape)
    for name, shape in EVENTS.items():
        yield compared(f"{oracle.CORE}#/$defs/{name}", shape)
    for base, name in BASE_DEFINITIONS.items():
        yield compared(f"{oracle.CORE}#/$defs/{name}", spec.BASE_FACETS[base])
    yield compared(f"{oracle.CORE}#/$defs/BaseEvent", spec.BASE_EVENT)


def test_the_standard_facets_are_the_forty_of_the_schemas() -> None:
    assert set(spec.STANDARD_FACETS) == set(oracle.facet_references())
    assert len(spec.STANDARD_FACETS) == 40


@pytest.mark.parametrize(("entity", "key"), spec.STANDARD_FACETS)
def test_a_facet_has_the_properties_that_its_schema_gives_it(entity: Entity, key: str) -> None:
    walk = compared(oracle.facet_references()[entity, key], spec.STANDARD_FACETS[entity, key].shape)
    assert [difference for difference in walk.differences if difference not in INTENDED] == []


@pytest.mark.parametrize(("entity", "key"), spec.STANDARD_FACETS)
def test_a_facet_knows_the_document_and_major_version_that_describe_it(entity: Entity, key: str) -> None:
    address = oracle.facet_references()[entity, key].partition("#")[0]
    assert spec.STANDARD_FACETS[entity, key].version == spec.facet_version(address)


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_has_the_properties_that_the_core_schema_gives_it(name: str) -> None:
    walk = compared(f"{oracle.CORE}#/$defs/{name}", EVENTS[name])
    assert [difference for difference in walk.differences if difference not in INTENDED] == []


@pytest.mark.parametrize("entity", BASE_DEFINITIONS)
def test_every_facet_of_an_entity_has_to_have_what_the_core_schema_asks(entity: Entity) -> None:
    walk = compared(f"{oracle.CORE}#/$defs/{BASE_DEFINITIONS[entity]}", spec.BASE_FACETS[entity])
    assert walk.differences == []


def test_what_is_asked_of_an_event_of_no_kind_is_what_all_kinds_have() -> None:
    assert compared(f"{oracle.CORE}#/$defs/BaseEvent", spec.BASE_EVENT).differences == []


def test_the_types_differ_from_the_schemas_only_where_they_are_meant_to() -> None:
    assert {difference for walk in all_walks() for difference in walk.differences} == set(INTENDED)


def test_the_tables_of_constraints_hold_nothing_that_the_schemas_do_not_ask_for() -> None:
    tables = constraints.FORMATS.keys() | constraints.MINIMUMS.keys() | constraints.TOGETHER.keys() | constraints.CLOSED
    assert set().union(*(walk.constrained for walk in all_walks())) == tables


def test_the_table_of_keys_holds_only_facets_whose_class_name_does_not_tell() -> None:
    classes = {facet.source.__name__ for facet in spec.STANDARD_FACETS.values()}
    assert constraints.FACET_KEYS.keys() <= classes
    for name, key in constraints.FACET_KEYS.items():
        stem = re.sub("(Run|Job|InputDataset|OutputDataset|Dataset)Facet$", "", name)
        assert key != stem[0].lower() + stem[1:]


def test_a_facet_has_other_homes_only_where_the_spec_gives_it_none() -> None:
    assert constraints.OTHER_HOMES.keys() & oracle.facet_references().keys() == set()
    assert set(constraints.OTHER_HOMES.values()) <= oracle.facet_references().keys()
