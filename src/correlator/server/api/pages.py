"""Lists, page by page: a cursor says after which item the next page begins, so that nothing is skipped or shown twice.

It is the sort key of the last item, and nothing that anybody should read.
"""

import base64
import binascii
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from correlator.server.api.operations import LONGEST_LIST, invalid

T = TypeVar("T")

USUAL: Final = 50

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=LONGEST_LIST, description="The most items of a page.")]
CursorText: TypeAlias = Annotated[
    str | None, Meta(description="`next_cursor` of the page before; without it the list begins at its beginning.")
]
NextCursor: TypeAlias = Annotated[str | None, Meta(description="For the next page; null on the last.")]


class Page(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every list takes."""

    limit: Limit = USUAL
    cursor: CursorText = None


def after(cursor: str | None, kind: type[T]) -> T | None:
    """The sort key at which to go on."""
    if cursor is None:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=kind)
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        raise invalid("cursor: this is no `next_cursor` of this list. Begin without one.") from None


def cursor_of(key: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def cut(items: list[T], limit: int) -> tuple[list[T], T | None]:
    """One more than a page was read: the page, and its last item if there is more."""
    return (items[:limit], items[limit - 1]) if len(items) > limit else (items, None)
