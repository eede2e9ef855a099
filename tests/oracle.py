"""What the official JSON Schemas say of an event: the verdict that policy `spec` must give.

The core is judged by the schema of its kind, each standard facet by its own schema, chosen by entity and key. Three
rules come from the spec's prose, not from the schemas: the body of a deleted facet is not judged, nor is a facet that
declares another major version of its document, and `lineage` is judged by the definition for its entity.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Literal

import jsonschema
import jsonschema_rs
from referencing import Registry, Resource

from tests import corpus

Engine = Literal["jsonschema", "jsonschema-rs"]
IsValid = Callable[[Any], bool]

CORE = "https://openlineage.io/spec/2-0-2/OpenLineage.json"
_ENTITIES = {
    "RunFacet": "run",
    "JobFacet": "job",
    "DatasetFacet": "dataset",
    "InputDatasetFacet": "input",
    "OutputDatasetFacet": "output",
}


@cache
def validator(reference: str, engine: Engine, *, formats: bool) -> IsValid:
    schema = {"$ref": reference}
    if engine == "jsonschema-rs":
        registry = jsonschema_rs.Registry(list(corpus.documents().items()))
        return jsonschema_rs.Draft202012Validator(schema, registry=registry, validate_formats=formats).is_valid
    resources = [(uri, Resource.from_contents(document)) for uri, document in corpus.documents().items()]
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER if formats else None
    return jsonschema.Draft202012Validator(
        schema, registry=Registry().with_resources(resources), format_checker=checker
    ).is_valid


@cache
def facet_references() -> dict[tuple[str, str], str]:
    """The definition of every standard facet, by entity and key."""
    found: dict[tuple[str, str], str] = {}
    for document in corpus.facet_schemas():
        (key,) = document["properties"]
        for name, definition in document["$defs"].items():
            for part in definition.get("allOf", ()):
                entity = _ENTITIES.get(str(part.get("$ref", "")).rpartition("/")[2])
                if entity is not None:
                    found[entity, key] = f"{document['$id']}#/$defs/{name}"
    return found


def kind(event: dict[str, Any]) -> str | None:
    """Which branch of the root's `oneOf` an event can match, by the properties that are there."""
    if "run" in event and "job" in event:
        return "RunEvent"
    if "dataset" in event and "job" not in event:
        return "DatasetEvent"
    return "JobEvent" if "job" in event and "dataset" not in event else None


def facet_maps(event: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    match kind(event):
        case "RunEvent":
            yield "run", event["run"].get("facets", {})
            yield "job", event["job"].get("facets", {})
        case "JobEvent":
            yield "job", event["job"].get("facets", {})
        case "DatasetEvent":
            yield "dataset", event["dataset"].get("facets", {})
            return
    for role in ("input", "output"):
        for dataset in event.get(f"{role}s", ()):
            yield "dataset", dataset.get("facets", {})
            yield role, dataset.get(f"{role}Facets", {})


def is_valid(event: Any, *, formats: bool, engine: Engine = "jsonschema-rs") -> bool:
    if not isinstance(event, dict) or (name := kind(event)) is None:
        return False
    if not validator(f"{CORE}#/$defs/{name}", engine, formats=formats)(event):
        return False
    references = facet_references()
    return all(
        is_valid_facet(references[entity, key], facet, formats=formats, engine=engine)
        for entity, facets in facet_maps(event)
        for key, facet in facets.items()
        if (entity, key) in references
    )


def is_valid_facet(reference: str, facet: dict[str, Any], *, formats: bool, engine: Engine = "jsonschema-rs") -> bool:
    """The core has judged what every facet has to have; this is about the rest."""
    if facet.get("_deleted") is True or _is_another_major(reference, facet["_schemaURL"]):
        return True
    return validator(reference, engine, formats=formats)(facet)


def _is_another_major(reference: str, declared: str) -> bool:
    form = re.compile(r"https?://openlineage\.io/spec/facets/(\d+)-\d+-\d+/(\w+)\.json")
    ours, theirs = form.match(reference), form.match(declared)
    return bool(ours and theirs and ours[2] == theirs[2] and ours[1] != theirs[1])


@cache
def bundled(*, formats: bool) -> IsValid:
    """The same verdict in one call: the RunEvent schema with every standard facet's own schema in its place.

    This is how one would use jsonschema-rs for speed, so it is what the benchmark compares with. It leaves out the
    rules on deleted facets and other major versions, which no schema states.
    """
    base = {"$ref": f"{CORE}#/$defs/RunEvent"}
    by_entity: dict[str, dict[str, Any]] = {}
    for (entity, key), reference in facet_references().items():
        by_entity.setdefault(entity, {})[key] = {"$ref": reference}
    maps = {entity: {"properties": properties} for entity, properties in by_entity.items()}
    inputs = {"items": {"properties": {"facets": maps["dataset"], "inputFacets": maps["input"]}}}
    outputs = {"items": {"properties": {"facets": maps["dataset"], "outputFacets": maps["output"]}}}
    facets = {
        "run": {"properties": {"facets": maps["run"]}},
        "job": {"properties": {"facets": maps["job"]}},
        "inputs": inputs,
        "outputs": outputs,
    }
    registry = jsonschema_rs.Registry(list(corpus.documents().items()))
    return jsonschema_rs.Draft202012Validator(
        {"allOf": [base, {"properties": facets}]}, registry=registry, validate_formats=formats
    ).is_valid
