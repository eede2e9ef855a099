"""The conformance corpus beside the project: official schemas, facet examples, events of real producers."""

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(os.environ.get("CORRELATOR_CORPUS") or Path(__file__).parents[2] / "shared" / "corpus")

needs_corpus = pytest.mark.skipif(
    not (ROOT / "schemas" / "OpenLineage.json").is_file(),
    reason=f"the conformance corpus is not here ({ROOT}); name its folder with CORRELATOR_CORPUS",
)


def schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "schemas" / name).read_bytes())
    return loaded


def facet_schemas() -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in sorted((ROOT / "schemas" / "facets").glob("*.json"))]


@cache
def documents() -> dict[str, dict[str, Any]]:
    """Every schema by its `$id`."""
    return {document["$id"]: document for document in (schema("OpenLineage.json"), *facet_schemas())}


def facet_examples() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each example as (name, key, facet)."""
    for path in sorted((ROOT / "facets").glob("*/*.json")):
        for key, facet in json.loads(path.read_bytes()).items():
            yield f"{path.parent.name}/{path.stem}", key, facet


def events(name: str) -> list[bytes]:
    """The events of one file, as they were sent."""
    path = ROOT / "events" / name
    return [path.read_bytes()] if path.suffix == ".json" else path.read_bytes().splitlines()


def event_files() -> list[str]:
    return sorted(path.name for path in (ROOT / "events").glob("*.json*")) if ROOT.is_dir() else []


def all_events() -> list[bytes]:
    return [event for name in event_files() for event in events(name)]
