"""Which names mean one dataset: the table `dataset_classes`, kept in step with symlinks and patterns.

The rule is `rulebook.aliases.called`; here is only as much of the world gathered as it needs. A class has a row for
each of its names, also for those of which no event ever spoke: whoever comes under such a name later is found to
belong to it, and so a change is worked out from the classes around it alone.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import psycopg

from correlator.rulebook.aliases import Symlink, called
from correlator.rulebook.identity import dataset_key
from correlator.rulebook.patterns import NamePattern

_PATTERNS: Final = "SELECT pattern, target FROM kept.dataset_patterns ORDER BY place, id"

# One index probe for each name, and one for each name of its class.
_CLASSMATES: Final = """
SELECT mate.dataset_id
FROM unnest(%s::uuid[]) AS given (id)
JOIN {schema}.dataset_classes AS known ON known.dataset_id = given.id
JOIN {schema}.dataset_classes AS mate ON mate.class_id = known.class_id
"""
_SAID: Final = """
SELECT canonical_dataset_id, aliases FROM {schema}.datasets WHERE id = ANY (%s::uuid[])
"""
# Without patterns only those who say something can have another name.
_ALL: Final = """
SELECT canonical_dataset_id, aliases FROM {schema}.datasets
WHERE %s OR aliases <> '[]'
"""

# What stands already is neither written to nor locked: a repeated batch leaves no trace.
_REMOVE: Final = """
DELETE FROM {schema}.dataset_classes
WHERE dataset_id = ANY (%(looked_at)s::uuid[]) AND dataset_id NOT IN (SELECT unnest(%(ids)s::uuid[]))
"""
_REMOVE_OTHERS: Final = """
DELETE FROM {schema}.dataset_classes WHERE dataset_id NOT IN (SELECT unnest(%(ids)s::uuid[]))
"""
_PUT: Final = """
INSERT INTO {schema}.dataset_classes (dataset_id, class_id, class_urn)
SELECT said.id, said.class_id, said.class_urn
FROM unnest(%(ids)s::uuid[], %(class_ids)s::uuid[], %(class_urns)s::text[]) AS said (id, class_id, class_urn)
WHERE NOT EXISTS (
    SELECT FROM {schema}.dataset_classes AS known WHERE known.dataset_id = said.id AND known.class_id = said.class_id
)
ORDER BY said.id
ON CONFLICT (dataset_id) DO UPDATE SET class_id = excluded.class_id, class_urn = excluded.class_urn
"""


def patterns(connection: psycopg.Connection[Any]) -> list[NamePattern]:
    """The configured patterns, in the order in which they count."""
    return [NamePattern.parse(pattern, target) for pattern, target in connection.execute(_PATTERNS)]


def refresh(connection: psycopg.Connection[Any], dataset_ids: Collection[UUID], schema: str = "facts") -> bool:
    """Bring the classes around some datasets up to date, within the caller's transaction. Whether any has changed.

    To be called for every dataset that is new or whose symlinks have changed, by whoever holds the lock of the merges.
    Classes that these join are found by the rows of their names: it takes a few questions, however long the chain.
    """
    if not dataset_ids:
        return False
    known = patterns(connection)
    looked_at: set[UUID] = set()
    said: dict[str, list[Symlink]] = {}
    ahead = set(dataset_ids)
    while ahead:
        mates = connection.execute(_CLASSMATES.format(schema=schema).encode(), [list(ahead)], prepare=True)
        ahead |= {mate for (mate,) in mates} - looked_at
        looked_at |= ahead
        rows = connection.execute(_SAID.format(schema=schema).encode(), [list(ahead)], prepare=True)
        new = _links(rows)
        said |= new
        ahead = _names_beside(new, known) - looked_at
    rows_of_classes = _rows(said, known)
    values = {"looked_at": list(looked_at), **_columns(rows_of_classes)}
    removed = connection.execute(_REMOVE.format(schema=schema).encode(), values, prepare=True).rowcount
    put = connection.execute(_PUT.format(schema=schema).encode(), values, prepare=True).rowcount
    return removed + put > 0


def refresh_all(connection: psycopg.Connection[Any], schema: str = "facts") -> None:
    """Work out every class anew, within the caller's transaction: after a change of patterns, or a replay."""
    known = patterns(connection)
    said = _links(connection.execute(_ALL.format(schema=schema).encode(), [bool(known)]))
    values = _columns(_rows(said, known))
    connection.execute(_REMOVE_OTHERS.format(schema=schema).encode(), values)
    connection.execute(_PUT.format(schema=schema).encode(), values)


def _links(rows: Iterable[tuple[str, Sequence[Sequence[str]] | None]]) -> dict[str, list[Symlink]]:
    return {urn: [Symlink(other, kind) for _, other, kind in aliases or ()] for urn, aliases in rows}


def _names_beside(said: Mapping[str, Sequence[Symlink]], known: Sequence[NamePattern]) -> set[UUID]:
    """The names to which these lead in one step, and those to which a pattern leads from there."""
    urns = {*said, *(link.urn for links in said.values() for link in links)}
    targets = {
        target
        for urn in urns
        if (target := next((t for p in known if (t := p.apply(urn)) is not None), None)) is not None
    }
    return {_id(urn) for urn in urns | targets}


def _rows(said: Mapping[str, Sequence[Symlink]], known: Sequence[NamePattern]) -> dict[UUID, str]:
    """What each name is called, of those that are not alone."""
    names = called(said, said, known)
    sizes: dict[str, int] = {}
    for name in names.values():
        sizes[name] = sizes.get(name, 0) + 1
    return {_id(urn): name for urn, name in names.items() if sizes[name] > 1}


def _columns(rows: Mapping[UUID, str]) -> dict[str, list[Any]]:
    return {
        "ids": list(rows),
        "class_ids": [_id(urn) for urn in rows.values()],
        "class_urns": list(rows.values()),
    }


def _id(urn: str) -> UUID:
    return UUID(bytes=dataset_key(urn))
