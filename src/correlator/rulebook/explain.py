"""The slower look: every problem of a value against a type of the spec, with its place.

msgspec decodes and judges in one pass but stops at the first error. This walks the same declarations (through
`msgspec.inspect`) over the plain value, so there is one statement of each rule and two readers of it. It also settles
what the decoder is stricter about than JSON Schema: an integer may be written `1.0`.
"""

import json
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from correlator.rulebook import constraints
from correlator.rulebook.formats import Verdicts, is_date_time, is_uri, match_uuid
from correlator.rulebook.problems import Problem, Rule, child, element, json_type, quote

URIS: Final = Verdicts(is_uri)

FORMATS: Final[dict[constraints.Format, Callable[[str], object]]] = {
    "date-time": Verdicts(is_date_time, most=4096).__getitem__,
    "uri": URIS.__getitem__,
    "uuid": match_uuid,
}
"""How each format is judged, as true or false. URIs and nominal times repeat so much that it pays to remember them."""
_FORMAT_RULES: Final[dict[constraints.Format, tuple[Rule, str]]] = {
    "date-time": ("format_date_time", "a date-time"),
    "uri": ("format_uri", "a URI"),
    "uuid": ("format_uuid", "a UUID"),
}
_JSON_NAMES: Final[tuple[tuple[type[inspect.Type], str], ...]] = (
    (inspect.StructType, "object"),
    (inspect.DictType, "object"),
    (inspect.ListType, "array"),
    (inspect.StrType, "string"),
    (inspect.LiteralType, "string"),
    (inspect.BoolType, "boolean"),
    (inspect.IntType, "integer"),
    (inspect.FloatType, "number"),
)

type_of = cache(inspect.type_info)
"""A type's declaration as data. Cached, because building it costs far more than any event."""


def problems(value: Any, kind: inspect.Type, path: str) -> Iterator[Problem]:
    """Everything that is wrong with the value, in the order of its declaration."""
    return _JUDGES[type(kind)](value, kind, path)


def _metadata_problems(value: Any, kind: inspect.Metadata, path: str) -> Iterator[Problem]:
    extra = kind.extra or {}
    if extra.get("json") == "object":
        if not isinstance(value, dict):
            yield Problem(path, "type", f"{path}: expected object, got {json_type(value)}")
        return
    found = list(problems(value, kind.type, path))
    yield from found
    if not found and "format" in extra and not FORMATS[extra["format"]](value):
        yield bad_format(path, value, extra["format"])


def _dict_problems(value: Any, kind: inspect.DictType, path: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield _wrong_type(value, kind, path)
        return
    for key, member in value.items():
        yield from problems(member, kind.value_type, child(path, key))


def _list_problems(value: Any, kind: inspect.ListType, path: str) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield _wrong_type(value, kind, path)
        return
    for index, item in enumerate(value):
        yield from problems(item, kind.item_type, element(path, index))


def _literal_problems(value: Any, kind: inspect.LiteralType, path: str) -> Iterator[Problem]:
    if not isinstance(value, str):
        yield _wrong_type(value, kind, path)
    elif value not in kind.values:
        yield _not_one_of(value, [str(allowed) for allowed in kind.values], path)


def _integer_problems(value: Any, kind: inspect.IntType, path: str) -> Iterator[Problem]:
    """As JSON Schema counts: 1.0 is an integer, true is not."""
    if isinstance(value, float) and math.isinf(value):
        yield _out_of_range(path)
    elif not _is_number(value) or (isinstance(value, float) and not value.is_integer()):
        yield _wrong_type(value, kind, path)
    elif kind.ge is not None and value < kind.ge:
        yield Problem(path, "minimum", f"{path}: expected at least {kind.ge}, got {quote(value)}")


def _number_problems(value: Any, kind: inspect.FloatType, path: str) -> Iterator[Problem]:
    if not _is_number(value):
        yield _wrong_type(value, kind, path)
    elif not _fits_a_float(value):
        yield _out_of_range(path)


def _string_problems(value: Any, kind: inspect.StrType, path: str) -> Iterator[Problem]:
    if not isinstance(value, str):
        yield _wrong_type(value, kind, path)


def _boolean_problems(value: Any, kind: inspect.BoolType, path: str) -> Iterator[Problem]:
    if not isinstance(value, bool):
        yield _wrong_type(value, kind, path)


def _no_problems(_value: Any, _kind: inspect.Type, _path: str) -> Iterator[Problem]:
    return iter(())


def _struct_problems(value: Any, kind: inspect.StructType, path: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield _wrong_type(value, kind, path)
        return
    for field in kind.fields:
        place = child(path, field.encode_name)
        if field.encode_name in value:
            yield from problems(value[field.encode_name], field.type, place)
        elif field.required:
            yield Problem(place, "required", f"{place} is required")
    if kind.forbid_unknown_fields:
        known = {field.encode_name for field in kind.fields}
        for key in (key for key in value if key not in known):
            yield Problem(child(path, key), "closed", f"{child(path, key)} is not allowed: the spec closes this object")
    for missing in missing_partners(kind.cls, value):
        place = child(path, missing)
        yield Problem(place, "together", f"{place} is required, because its partner is there: both or neither")


def _union_problems(value: Any, kind: inspect.UnionType, path: str) -> Iterator[Problem]:
    """Of tagged alternatives the tag chooses one; a nullable type is judged by its other side."""
    alternatives = [t for t in kind.types if not isinstance(t, inspect.NoneType)]
    if value is None and len(alternatives) < len(kind.types):
        return
    if len(alternatives) == 1:
        yield from problems(value, alternatives[0], path)
        return
    structs = {t.tag: t for t in alternatives if isinstance(t, inspect.StructType)}
    if not isinstance(value, dict):
        yield _wrong_type(value, alternatives[0], path)
    elif "type" not in value:
        yield Problem(child(path, "type"), "required", f"{child(path, 'type')} is required")
    elif not isinstance(value["type"], str):
        yield _wrong_type(value["type"], inspect.StrType(), child(path, "type"))
    elif value["type"] in structs:
        yield from problems(value, structs[value["type"]], path)
    else:
        yield _not_one_of(value["type"], [str(tag) for tag in structs], child(path, "type"))


def bad_format(path: str, text: str, name: constraints.Format) -> Problem:
    rule, article_and_name = _FORMAT_RULES[name]
    return Problem(path, rule, f"{path}: {quote(text)} is not {article_and_name}")


def _wrong_type(value: Any, kind: inspect.Type, path: str) -> Problem:
    expected = next((name for declared, name in _JSON_NAMES if isinstance(kind, declared)), "another type")
    got = quote(value) if expected == "integer" and isinstance(value, float) else json_type(value)
    return Problem(path, "type", f"{path}: expected {expected}, got {got}")


def _not_one_of(value: str, allowed: list[str], path: str) -> Problem:
    return Problem(path, "enum", f"{path}: {quote(value)} is not one of {', '.join(allowed)}")


def _out_of_range(path: str) -> Problem:
    return Problem(path, "number_out_of_range", f"{path}: the number is too large to be read")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fits_a_float(value: float) -> bool:
    try:
        return not math.isinf(float(value))
    except OverflowError:
        return False


def missing_partners(shape: type[Any], present: Any) -> list[str]:
    """Which of the fields that go together are missing, given a container of those that are there."""
    pair = constraints.TOGETHER.get(shape.__name__, ())
    missing = [name for name in pair if name not in present]
    return missing if len(missing) < len(pair) else []


def with_whole_numbers(value: Any, kind: inspect.Type) -> Any:
    """The value with `1.0` written as `1` where the spec wants an integer, as the decoder needs it."""
    match kind:
        case inspect.Metadata(type=inner):
            return with_whole_numbers(value, inner)
        case inspect.IntType() if isinstance(value, float):
            return int(value)
        case inspect.StructType(fields=fields) if isinstance(value, dict):
            types = {field.encode_name: field.type for field in fields}
            return {k: with_whole_numbers(v, types[k]) if k in types else v for k, v in value.items()}
        case inspect.DictType(value_type=inner) if isinstance(value, dict):
            return {k: with_whole_numbers(v, inner) for k, v in value.items()}
        case inspect.ListType(item_type=inner) if isinstance(value, list):
            return [with_whole_numbers(v, inner) for v in value]
        case inspect.UnionType(types=alternatives) if isinstance(value, dict):
            chosen = next(
                (t for t in alternatives if isinstance(t, inspect.StructType) and t.tag == value.get("type")), None
            )
            return with_whole_numbers(value, chosen) if chosen is not None else value
        case _:
            return value


def plain(text: bytes | msgspec.Raw) -> Any:
    """The value of a JSON text: the last of repeated keys counts, as it does for the decoder."""
    try:
        return msgspec.json.decode(text)
    except msgspec.ValidationError:  # a number that no 64-bit float holds, or an integer of thousands of digits
        return json.loads(bytes(text), parse_int=_whole_number)


def _whole_number(digits: str) -> float:
    try:
        return int(digits)
    except ValueError:  # Python reads at most 4,300 digits
        return math.inf


_JUDGES: Final[dict[type[inspect.Type], Callable[[Any, Any, str], Iterator[Problem]]]] = {
    inspect.Metadata: _metadata_problems,
    inspect.StructType: _struct_problems,
    inspect.UnionType: _union_problems,
    inspect.DictType: _dict_problems,
    inspect.ListType: _list_problems,
    inspect.LiteralType: _literal_problems,
    inspect.IntType: _integer_problems,
    inspect.FloatType: _number_problems,
    inspect.StrType: _string_problems,
    inspect.BoolType: _boolean_problems,
    inspect.AnyType: _no_problems,
    inspect.RawType: _no_problems,
}
"""One judge for each kind of declaration that the spec's types are made of."""
