"""What can be wrong with an event, in words: the place, a stable rule, a sentence."""

import json
import re
from typing import Any, Final, Literal

import msgspec

Rule = Literal[
    # the text
    "invalid_json",
    "invalid_utf8",
    "too_deep",
    "too_large",
    # the shape
    "unknown_kind",
    "required",
    "type",
    "enum",
    "number_out_of_range",
    "minimum",
    "closed",
    "together",
    # the formats
    "format_date_time",
    "format_uri",
    "format_uuid",
    # what policy `correlator` adds
    "blank",
    "zero_time",
    "schema_url",
    # what is only ever worth a warning
    "kind_mismatch",
    "says_nothing",
    "other_version",
    "no_offset",
    # the run cycle
    "duplicate_start",
    "backward_transition",
    "terminal_state_immutable",
    # the limit on problems itself
    "more_problems",
]

ROOT: Final = "$"
"""The path of the event itself."""

_LONGEST_QUOTE = 60
_LONGEST_KEY = 200
"""Of a key in a path. A key may have megabytes, and each of a thousand problems below it repeats it twice."""
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]*")


class Problem(msgspec.Struct, frozen=True, order=True, gc=False):
    path: str
    rule: Rule
    message: str


def child(path: str, key: str) -> str:
    """The path of a member: `job` + `name` is `job.name`; a key that would mislead is quoted, a long one cut."""
    if len(key) > _LONGEST_KEY:
        key = f"{key[: _LONGEST_KEY - 1]}…"
    if not _PLAIN_KEY.fullmatch(key):
        return f"{'' if path == ROOT else path}[{json.dumps(key)}]"
    return key if path == ROOT else f"{path}.{key}"


def element(path: str, index: int) -> str:
    return f"{path}[{index}]"


def under(path: str, problem: Problem) -> Problem:
    """The problem of a part, seen from the whole: every message begins with its path, so both move together."""
    if problem.path == ROOT:
        return Problem(path, problem.rule, path + problem.message.removeprefix(ROOT))
    joint = "" if problem.path.startswith("[") else "."
    return Problem(f"{path}{joint}{problem.path}", problem.rule, f"{path}{joint}{problem.message}")


def quote(value: Any) -> str:
    """A value for a sentence: short, on one line, recognisable."""
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else f"'{value}'"
    text = text.encode("utf-8", "replace").decode()
    if len(text) > _LONGEST_QUOTE:
        text = f"{text[: _LONGEST_QUOTE - 1]}…"
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def json_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
