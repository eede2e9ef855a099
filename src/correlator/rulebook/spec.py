"""The OpenLineage spec as msgspec types, derived from the generated classes of `openlineage-python`.

Nothing is typed again by hand: a new release of that package with a new facet is understood as soon as it is installed.
A derived type has the attributes of the class it came from (an absent optional field is None, as there), so code that
reads a decoded facet is written and type-checked against the original class. What the classes cannot express stands in
`constraints`.
"""

import importlib
import pkgutil
import re
import types
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import attr
import msgspec
from openlineage.client import generated
from openlineage.client.generated import base

from correlator.rulebook import constraints
from correlator.rulebook.constraints import Entity, FacetKey

Shape = type[msgspec.Struct]

# In this order a class is asked what it belongs to: the input and output classes are no DatasetFacet of the package's.
_ENTITIES: Final[dict[type[base.BaseFacet], Entity]] = {
    base.RunFacet: "run",
    base.JobFacet: "job",
    base.DatasetFacet: "dataset",
    base.InputDatasetFacet: "input",
    base.OutputDatasetFacet: "output",
}
_SUFFIX = re.compile(r"(Run|Job|InputDataset|OutputDataset|Dataset)Facet$")
_FACET_URL = re.compile(r"https?://openlineage\.io/spec/facets/(\d+)-\d+-\d+/(\w+)\.json(?:#.*)?")


class FacetVersion(msgspec.Struct, frozen=True):
    """The document that describes a facet, and its major version."""

    document: str
    major: int


def facet_version(schema_url: str) -> FacetVersion | None:
    """What a facet's `_schemaURL` says of its version; None for custom facets and for URLs that say nothing."""
    match = _FACET_URL.fullmatch(schema_url)
    return FacetVersion(match[2], int(match[1])) if match else None


class FacetShape(msgspec.Struct, frozen=True):
    """One standard facet: where it stands, what it looks like, and which version that is."""

    entity: Entity
    key: str
    source: type[base.BaseFacet]
    shape: Shape
    version: FacetVersion | None


def _generated_classes() -> Iterator[type[Any]]:
    for module in pkgutil.iter_modules(generated.__path__):
        namespace = vars(importlib.import_module(f"{generated.__name__}.{module.name}"))
        for value in list(namespace.values()):
            if isinstance(value, type) and value.__module__ == namespace["__name__"] and attr.has(value):
                yield value


def _declared(cls: type[Any], field: str, table: typing.Mapping[str, Any]) -> Any:
    """A constraint on the field, declared for the class or for one that it inherits the field from."""
    return next((table[name] for name in (f"{c.__name__}.{field}" for c in cls.__mro__) if name in table), None)


class _Derivation:
    """Turns attrs classes into msgspec structs. Fields are typed after all structs exist, since some are recursive."""

    def __init__(self, *, is_closed: bool = False) -> None:
        self._shapes: dict[type[Any], Shape] = {}
        self._is_closed = is_closed

    def derive(self, classes: typing.Iterable[type[Any]]) -> dict[type[Any], Shape]:
        for cls in classes:
            self._shapes[cls] = self._struct(cls)
        for cls, shape in self._shapes.items():
            hints = get_type_hints(cls)
            # A tag's own field is the struct's tag, not one of its fields.
            shape.__annotations__ = {name: self._field_type(cls, name, hints[name]) for name in shape.__struct_fields__}
        return self._shapes

    def _struct(self, cls: type[Any]) -> Shape:
        tag = _tag(cls)
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for field in attr.fields(cls):
            if tag is not None and field.name == "type":
                continue
            required = field.default is attr.NOTHING or field.name in constraints.ALWAYS_REQUIRED
            nullable = f"{cls.__name__}.{field.name}" in constraints.NULLABLE
            if required:
                fields.append((field.name, Any))
            else:
                fields.append((field.name, Any, msgspec.UNSET if nullable else None))
        return msgspec.defstruct(
            cls.__name__,
            fields,
            module=cls.__module__,
            kw_only=True,
            frozen=True,
            gc=False,  # decoded JSON has no cycles, and untracked objects keep the collector out of the way
            tag_field="type" if tag is not None else None,
            tag=tag,
            forbid_unknown_fields=self._is_closed or cls.__name__ in constraints.CLOSED,
        )

    def _field_type(self, cls: type[Any], name: str, hint: Any) -> Any:
        if cls.__module__ == base.__name__ and name in constraints.FACET_MAPS:
            return Annotated[msgspec.Raw, msgspec.Meta(extra={"json": "object"})]
        kind = self._translate(hint)
        if f"{cls.__name__}.{name}" in constraints.NULLABLE:
            kind = kind | None | msgspec.UnsetType
        if (text_format := _declared(cls, name, constraints.FORMATS)) is not None:
            kind = Annotated[kind, msgspec.Meta(extra={"format": text_format})]
        if (least := _declared(cls, name, constraints.MINIMUMS)) is not None:
            kind = Annotated[kind, msgspec.Meta(ge=least)]
        return kind

    def _translate(self, hint: Any) -> Any:
        if isinstance(hint, type) and issubclass(hint, Enum):
            return Literal[tuple(member.value for member in hint)]
        if hint in self._shapes:
            return self._shapes[hint]
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            return Union[tuple(self._translate(a) for a in arguments if a is not types.NoneType)]  # noqa: UP007
        if origin in (list, dict):
            return origin[tuple(self._translate(a) for a in arguments)]
        return hint


def _tag(cls: type[Any]) -> str | None:
    """The constant that tells this class apart from its alternatives (`type` of lineage entries, of conditions)."""
    hint = get_type_hints(cls).get("type")
    if get_origin(hint) is Literal:
        return str(get_args(hint)[0])
    default = next((f.default for f in attr.fields(cls) if f.name == "type"), None)
    return default if isinstance(default, str) else None


def _facet_key(cls: type[base.BaseFacet]) -> str:
    name = cls.__name__
    plain = _SUFFIX.sub("", name)
    return constraints.FACET_KEYS.get(name, plain[:1].lower() + plain[1:])


_SHAPES: Final = _Derivation().derive(_generated_classes())

RUN_EVENT: Final = _SHAPES[base.RunEvent]
JOB_EVENT: Final = _SHAPES[base.JobEvent]
DATASET_EVENT: Final = _SHAPES[base.DatasetEvent]
BASE_EVENT: Final = _SHAPES[base.BaseEvent]

CLOSED_RUN_EVENT: Final = _Derivation(is_closed=True).derive(
    cls for cls in vars(base).values() if isinstance(cls, type) and attr.has(cls)
)[base.RunEvent]
"""A RunEvent whose every property the spec knows, facets aside: nearly all are so, and one look tells."""

BASE_FACETS: Final[dict[Entity, Shape]] = {entity: _SHAPES[cls] for cls, entity in _ENTITIES.items()}
"""What every facet of an entity has to have, standard or custom."""


def _standard_facets() -> dict[FacetKey, FacetShape]:
    found: dict[FacetKey, FacetShape] = {}
    for cls, shape in _SHAPES.items():
        entity = next((e for parent, e in _ENTITIES.items() if issubclass(cls, parent) and cls is not parent), None)
        if entity is not None:
            version = facet_version(cls._get_schema())
            found[entity, _facet_key(cls)] = FacetShape(entity, _facet_key(cls), cls, shape, version)
    return found


STANDARD_FACETS: Final = _standard_facets()
