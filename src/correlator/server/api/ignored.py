"""Names that are hidden from questions."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from correlator.correlation.ignored import IgnoredName, Kind, ignore, list_ignored, show_again
from correlator.server.api.operations import Asked, Operation, missing, number_in
from correlator.server.api.pages import NextCursor
from correlator.server.api.questions import Connection


class IgnoredNames(Struct, frozen=True):
    items: list[IgnoredName]
    next_cursor: NextCursor = None


class NewIgnoredName(Struct, frozen=True, forbid_unknown_fields=True):
    kind: Kind
    pattern: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=2_000,
            description="`*` is any characters, `?` is one. A job goes by `namespace/name`, a dataset by its URN.",
            examples=["*/sandbox_*"],
        ),
    ]


def _list(connection: Connection, asked: Asked) -> IgnoredNames:
    del asked
    return IgnoredNames(list_ignored(connection))


def _add(connection: Connection, asked: Asked) -> IgnoredName:
    said: NewIgnoredName = asked.body
    return ignore(connection, said.kind, said.pattern, actor=asked.actor)


def _remove(connection: Connection, asked: Asked) -> None:
    if not show_again(connection, number_in(asked)):
        raise missing(f"Nothing is ignored under the number {number_in(asked)}.")


_PATH: Final = "/api/v1/ignored"

OPERATIONS: Final = (
    Operation(
        method="GET",
        path=_PATH,
        name="listIgnored",
        tag="administration",
        summary="Names that are hidden from questions.",
        scope="admin",
        answer=_list,
        answers=IgnoredNames,
    ),
    Operation(
        method="POST",
        path=_PATH,
        name="ignore",
        tag="administration",
        summary="Hide namespaces, jobs or datasets. They are stored all the same.",
        scope="admin",
        body=NewIgnoredName,
        example={"kind": "dataset", "pattern": "*/sandbox_*"},
        answer=_add,
        answers=IgnoredName,
        status=201,
        mode="write",
    ),
    Operation(
        method="DELETE",
        path=f"{_PATH}/{{id}}",
        name="showAgain",
        tag="administration",
        summary="Show them again.",
        scope="admin",
        answer=_remove,
        answers=None,
        mode="write",
        refuses=(404,),
    ),
)
