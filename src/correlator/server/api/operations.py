"""What can be asked, declared once: the path, who may, what is read from the request and what is answered.

Routes, the reading of parameters and the OpenAPI document follow from it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct, structs

from correlator.config import ServerSettings
from correlator.http.problems import CONFLICT, INVALID_REQUEST, NOT_FOUND, NOT_JSON, HttpProblem
from correlator.key_scopes import Scope
from correlator.rulebook.judging import Judge
from correlator.rulebook.redaction import Redaction
from correlator.server.api.questions import Connection, Mode

Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
S = TypeVar("S", bound=Struct)

LONGEST_LIST: Final = 500


class Context(Struct, frozen=True):
    """What answers depend on beside the database."""

    settings: ServerSettings
    redaction: Redaction
    judge: Judge


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """Where nothing can be said."""


class Asked(Struct, frozen=True):
    """One request, read."""

    context: Context
    path: dict[str, str]
    query: Any
    """Of the operation's own struct."""
    body: Any
    actor: str


class Operation(Struct, frozen=True, kw_only=True):
    method: Method
    path: str
    """As Starlette has it: `{name:path}` may hold slashes."""
    name: str
    tag: str
    summary: str
    scope: Scope
    answer: Callable[[Connection, Asked], Struct | None]
    answers: type[Struct] | None
    """None for an answer without a body."""
    description: str = ""
    query: type[Struct] = Nothing
    body: type[Struct] | None = None
    example: object = None
    """A body that could be sent."""
    status: int = 200
    mode: Mode = "read"
    moves: bool = False
    """Whether it may lead to another path, by 308."""
    refuses: tuple[int, ...] = ()
    """Beside what every operation may answer."""

    @property
    def parameters(self) -> list[str]:
        """Of the path, in order."""
        return re.findall(r"\{(\w+)", self.path)

    @property
    def written_path(self) -> str:
        """As OpenAPI has it."""
        return re.sub(r"\{(\w+):\w+\}", r"{\1}", self.path)


_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]")
# An offset in a query whose + was not written as %2B comes as a blank.
_BLANK_OFFSET: Final = re.compile(r"(\d{4}-\d\d-\d\d[Tt][\d:.]+) (\d\d:?\d\d)")


def read_query(operation: Operation, query_string: bytes) -> Struct:
    """The parameters of a request, or words about what is wrong with them."""
    known = {field.encode_name: field for field in structs.fields(operation.query)}
    values: dict[str, Any] = {}
    for name, value in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, errors="replace"):
        if name not in known:
            can = f"it takes {', '.join(known)}" if known else "it takes none"
            raise invalid(f"There is no parameter {name[:100]!r} here; {can}.")
        if name in values:
            raise invalid(f"{name} is said twice.")
        if "\x00" in value:
            raise invalid(f"{name} holds a NUL, which no name can.")
        kind = known[name].type
        if value.lower() == "null" and not _takes(kind, str):
            raise invalid(f"{name}: what is not meant is left out; null is no value.")
        if _takes(kind, datetime) and not _DATE.match(value):
            raise invalid(f"{name}: {value[:50]!r} is no moment; write it as in 2026-05-04T10:00:00Z.")
        values[name] = _BLANK_OFFSET.sub(r"\1+\2", value) if " " in value else value
    return _converted(values, operation.query, strict=False)


def _takes(kind: Any, wanted: type) -> bool:
    return kind is wanted or any(_takes(each, wanted) for each in get_args(kind))


def read_body(kind: type[S], raw: bytes) -> S:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpProblem(NOT_JSON, f"The body is not JSON: {error}") from None
    except RecursionError:
        raise HttpProblem(NOT_JSON, "The body is nested too deep.") from None
    return _converted(value, kind, strict=True)


def _converted(value: Any, kind: type[S], *, strict: bool) -> S:
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        place = where.strip("`.") or "the body" if strict else where.strip("`.") or "the query"
        raise invalid(f"{place}: {message}{_choices(kind, place)}.") from None


def _choices(kind: type[Any], field: str) -> str:
    """What may stand there, where that can be counted."""
    found = next((each for each in structs.fields(kind) if each.encode_name == field), None)
    words = [] if found is None else [*_literals(found.type)]
    return f"; it takes {', '.join(words)}" if words else ""


def _literals(kind: Any) -> Iterator[str]:
    if get_origin(kind) is Literal:
        yield from map(str, get_args(kind))
    else:
        for each in get_args(kind):
            yield from _literals(each)


class MovedError(Exception):
    """What was asked for has another path, which is where the client is sent."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location


def invalid(detail: str) -> HttpProblem:
    return HttpProblem(INVALID_REQUEST, detail)


def missing(detail: str) -> HttpProblem:
    return HttpProblem(NOT_FOUND, detail)


def conflict(detail: str) -> HttpProblem:
    return HttpProblem(CONFLICT, detail)


def by_path(operations: Iterable[Operation]) -> dict[str, list[Operation]]:
    found: dict[str, list[Operation]] = {}
    for operation in operations:
        found.setdefault(operation.path, []).append(operation)
    return found


def choose(operations: Sequence[Operation], method: str) -> Operation | None:
    wanted = "GET" if method == "HEAD" else method
    return next((operation for operation in operations if operation.method == wanted), None)


_LARGEST_NUMBER: Final = 2**63 - 1


def number_in(asked: Asked) -> int:
    """The number that a path ends in."""
    given = asked.path["id"]
    if not (given.isascii() and given.isdigit()) or int(given[:20]) > _LARGEST_NUMBER:
        raise missing(f"{given[:50]!r} is no number of anything here.")
    return int(given)
