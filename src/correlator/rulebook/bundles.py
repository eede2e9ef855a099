"""Facts on their way: all that is said of one entity, in one parcel.

The pipeline folds a batch, sends one bundle for each entity through the shuffle, and merges the bundles that meet. An
entity is a run, a job, a dataset or the body of a facet. What is said of a run's use of things, and the history that
its events add to the facets of its job and datasets, travels with the run, which few batches share: the bundle of a job
or dataset that everybody uses stays small, however many runs there are.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import or_
from typing import Any, Final, TypedDict

import msgspec

from correlator.rulebook import facts as f
from correlator.rulebook.facts import Column, ColumnType, Facts, Group, Key, Row, Shape, Table

EntityKey = bytes
"""17 bytes: one letter for the kind, and the id."""

_OF_KIND: Final = {"job": b"j", "dataset": b"d"}

_ENTITIES: Final[dict[str, Callable[[Key], EntityKey]]] = {
    f.JOBS.name: lambda key: b"j" + key[0],
    f.DATASETS.name: lambda key: b"d" + key[0],
    f.DECLARATIONS.name: lambda key: _OF_KIND[key[0]] + key[1],
    f.FACET_HISTORY.name: lambda key: _OF_KIND[key[0]] + key[1],
    f.FACET_BODIES.name: lambda key: b"f" + key[0],
}
"""Whose bundle any other row belongs to."""

_TYPES: Final[dict[ColumnType, Any]] = {
    "id": bytes,
    "digest": bytes,
    "text": str,
    "instant": int,
    "integer": int,
    "boolean": bool,
    "json": str,
}


def bundles(facts: Facts) -> Iterator[tuple[EntityKey, bytes]]:
    """Each entity once."""
    of_runs: dict[bytes, list[Any]] = {}
    of_others: dict[EntityKey, list[Any]] = {}
    for table in f.TABLES:
        part_of, run_at = _PARTS[table.name], f.RUN_AT.get(table.name)
        for item in facts.rows(table).items():
            key = item[0]
            # Nearly all rows are of runs, whose ids are at hand.
            if run_at is not None and (entity := key[run_at]):
                of_kind = of_runs
            else:
                of_kind, entity = of_others, _ENTITIES[table.name](key)
            parts = of_kind.get(entity)
            if parts is None:
                of_kind[entity] = [part_of([item])]
            elif type(parts[-1]) is part_of:
                parts[-1].rows.append(item)
            else:
                parts.append(part_of([item]))
    for run, parts in of_runs.items():
        yield b"r" + run, _encode(parts)
    for entity, parts in of_others.items():
        yield entity, _encode(parts)


def unbundle(payload: bytes) -> Iterator[tuple[Table, Key, Row]]:
    for part in _decode(payload):
        table = _TABLES[type(part)]
        for key, row in part.rows:
            yield table, key, row


def merge_bundles(payloads: Iterable[bytes]) -> Facts:
    """The facts of bundles of one entity or of many, folded together."""
    facts = Facts()
    for payload in payloads:
        for part in _decode(payload):
            facts.add(_TABLES[type(part)], part.rows)
    return facts


def _part(number: int, table: Table) -> Any:
    """Rows of one table, typed as the table declares, so that they come out as they went in."""
    row = TypedDict(f"{table.name}_row", {group.name: _type_of(group) for group in table.groups}, total=False)  # type: ignore[misc]
    rows: Any = list[tuple[_tuple_of(table.key), row]]  # type: ignore[misc]
    return msgspec.defstruct(table.name, [("rows", rows)], tag=number, array_like=True, gc=False)


def _tuple_of(columns: tuple[Column, ...]) -> Any:
    return tuple[tuple(_TYPES[column.type] | None for column in columns)]  # type: ignore[misc]


def _type_of(group: Group) -> Any:
    one = _tuple_of(group.columns)
    match group.shape:
        case Shape.ONE:
            return one
        case Shape.SET:
            return frozenset[one]  # type: ignore[valid-type]
        case Shape.MAP:
            return dict[str, one]  # type: ignore[valid-type]


_PARTS: Final = {table.name: _part(number, table) for number, table in enumerate(f.TABLES)}
_TABLES: Final = {_PARTS[table.name]: table for table in f.TABLES}
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final[Callable[[bytes], list[Any]]] = msgspec.msgpack.Decoder(
    list[reduce(or_, _TABLES)]  # type: ignore[misc]
).decode
