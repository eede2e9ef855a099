"""Patterns of names as people set them up. A change is effective at once, and on all history."""

from typing import Annotated, Any, Final

import psycopg
from msgspec import Meta, Struct
from psycopg.errors import UniqueViolation
from psycopg.rows import class_row

from correlator.correlation.following import follow_patterns
from correlator.rulebook.patterns import NamePattern
from correlator.store.merge import lock_merges
from correlator.store.moments import Moment

_COLUMNS: Final = "id, place, pattern, target, created_at, created_by"
_LIST: Final = f"SELECT {_COLUMNS} FROM kept.dataset_patterns ORDER BY place, id"  # noqa: S608 (a constant)
_ADD: Final = f"""
INSERT INTO kept.dataset_patterns (place, pattern, target, created_by)
SELECT coalesce(%(place)s::integer, (SELECT max(place) + 1 FROM kept.dataset_patterns), 1), %(pattern)s, %(target)s,
       %(actor)s
RETURNING {_COLUMNS}
"""  # noqa: S608
_CHANGE: Final = f"""
UPDATE kept.dataset_patterns
SET place = coalesce(%(place)s::integer, place), pattern = %(pattern)s, target = %(target)s
WHERE id = %(id)s RETURNING {_COLUMNS}
"""  # noqa: S608
_REMOVE: Final = "DELETE FROM kept.dataset_patterns WHERE id = %s"


class Pattern(Struct, frozen=True, kw_only=True):
    id: int
    place: Annotated[int, Meta(description="Of several that match a name the first counts.")]
    pattern: str
    target: str
    created_at: Moment
    created_by: str


class PatternTakenError(Exception):
    """There is the same pattern already."""


def list_patterns(connection: psycopg.Connection[Any]) -> list[Pattern]:
    """In the order in which they count."""
    with connection.cursor(row_factory=class_row(Pattern)) as cursor:
        return cursor.execute(_LIST).fetchall()


def add_pattern(
    connection: psycopg.Connection[Any], pattern: str, target: str, *, place: int | None = None, actor: str
) -> Pattern:
    """At the end, if no place is given. Raises `PatternError` for one that cannot mean anything."""
    values = {"place": place, "pattern": pattern, "target": target, "actor": actor}
    added = _written(connection, _ADD, values)
    assert added is not None  # noqa: S101 (RETURNING)
    return added


def change_pattern(
    connection: psycopg.Connection[Any], number: int, pattern: str, target: str, *, place: int | None = None
) -> Pattern | None:
    """None if there is no such pattern. Without a place it stays where it is."""
    return _written(connection, _CHANGE, {"id": number, "place": place, "pattern": pattern, "target": target})


def remove_pattern(connection: psycopg.Connection[Any], number: int) -> bool:
    with connection.transaction():
        lock_merges(connection)
        is_gone = connection.execute(_REMOVE, [number]).rowcount == 1
        if is_gone:
            follow_patterns(connection)
    return is_gone


def _written(connection: psycopg.Connection[Any], query: str, values: dict[str, Any]) -> Pattern | None:
    NamePattern.parse(values["pattern"], values["target"])
    try:
        # The lock first: a merge that is under way would not see the pattern, nor we the names that it brings.
        with connection.transaction(), connection.cursor(row_factory=class_row(Pattern)) as cursor:
            lock_merges(connection)
            written = cursor.execute(query.encode(), values).fetchone()
            if written is not None:
                follow_patterns(connection)
    except UniqueViolation:
        raise PatternTakenError(f"There is a pattern {values['pattern']!r} already; change that one.") from None
    return written
