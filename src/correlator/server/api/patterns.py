"""Patterns of names: what only a site knows about them."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from correlator.correlation.patterns import (
    Pattern,
    PatternTakenError,
    add_pattern,
    change_pattern,
    list_patterns,
    remove_pattern,
)
from correlator.rulebook.patterns import PatternError
from correlator.server.api.operations import Asked, Operation, conflict, invalid, missing, number_in
from correlator.server.api.pages import NextCursor
from correlator.server.api.questions import Connection


class Patterns(Struct, frozen=True):
    items: list[Pattern]
    next_cursor: NextCursor = None


class NewPattern(Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=2_000,
            description="`{name}` is one or more characters but slashes, `{path*}` also slashes.",
            examples=["warehouse/{table}"],
        ),
    ]
    target: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=2_000,
            description="What such a name means.",
            examples=["postgres://db:5432/shop.public.{table}"],
        ),
    ]
    place: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] | None = None


def _list(connection: Connection, asked: Asked) -> Patterns:
    del asked
    return Patterns(list_patterns(connection))


def add(connection: Connection, asked: Asked) -> Pattern:
    said: NewPattern = asked.body
    try:
        return add_pattern(connection, said.pattern, said.target, place=said.place, actor=asked.actor)
    except PatternError as error:
        raise invalid(f"{error}.") from None
    except PatternTakenError as error:
        raise conflict(str(error)) from None


def _change(connection: Connection, asked: Asked) -> Pattern:
    said: NewPattern = asked.body
    try:
        changed = change_pattern(connection, number_in(asked), said.pattern, said.target, place=said.place)
    except PatternError as error:
        raise invalid(f"{error}.") from None
    except PatternTakenError as error:
        raise conflict(str(error)) from None
    if changed is None:
        raise missing(f"There is no pattern {number_in(asked)}.")
    return changed


def _remove(connection: Connection, asked: Asked) -> None:
    if not remove_pattern(connection, number_in(asked)):
        raise missing(f"There is no pattern {number_in(asked)}.")


_PATH: Final = "/api/v1/patterns"
_EXAMPLE: Final = {"pattern": "warehouse/{table}", "target": "postgres://db:5432/shop.public.{table}"}

OPERATIONS: Final = (
    Operation(
        method="GET",
        path=_PATH,
        name="listPatterns",
        tag="administration",
        summary="Patterns of dataset names, in the order in which they count.",
        scope="admin",
        answer=_list,
        answers=Patterns,
    ),
    Operation(
        method="POST",
        path=_PATH,
        name="addPattern",
        tag="administration",
        summary="Have names of one kind mean others; at once, and on all history.",
        scope="admin",
        body=NewPattern,
        example=_EXAMPLE,
        answer=add,
        answers=Pattern,
        status=201,
        mode="write",
        refuses=(409,),
    ),
    Operation(
        method="PUT",
        path=f"{_PATH}/{{id}}",
        name="changePattern",
        tag="administration",
        summary="Change a pattern, or its place.",
        scope="admin",
        body=NewPattern,
        example=_EXAMPLE,
        answer=_change,
        answers=Pattern,
        mode="write",
        refuses=(404, 409),
    ),
    Operation(
        method="DELETE",
        path=f"{_PATH}/{{id}}",
        name="removePattern",
        tag="administration",
        summary="Remove a pattern.",
        scope="admin",
        answer=_remove,
        answers=None,
        mode="write",
        refuses=(404,),
    ),
)
