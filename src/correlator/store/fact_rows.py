"""How a row of `rulebook/facts` lies in its SQL table.

Which columns a group has there, how its value becomes fields of a binary COPY, and how it is read back. What decides
between two values is not said here: that is the group's rule, of which `merge_statements` makes SQL.
"""

from collections.abc import Callable, Iterator, Mapping
from hashlib import md5
from itertools import chain
from struct import Struct
from typing import Any, Final

import msgspec
import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format
from psycopg.rows import dict_row

from correlator.rulebook import facts as f
from correlator.rulebook import identity
from correlator.rulebook.facts import Column, Facts, Group, Key, Row, Shape, Table, Value
from correlator.rulebook.formats import Instant, rfc3339
from correlator.rulebook.run_cycle import RANKS

NO_ID: Final = bytes(16)
"""Stands in a key for "no run", where NULL cannot."""

IMPLIED_RANK: Final = "open_rank"
"""Has no column: the state beside it tells it."""

_PG_EPOCH: Final = 946_684_800_000_000
_GREGORIAN_CYCLE: Final = 146_097 * 86_400_000_000
"""400 years: after so many microseconds the calendar repeats itself."""
_CYCLE_YEARS: Final = 400
_SIGN: Final = 2**63
_LONGEST_REMEMBERED: Final = 256
_MOST_REMEMBERED: Final = 16_384
_UUID_OID: Final = 2950


class SqlColumn(msgspec.Struct, frozen=True):
    name: str
    type: str

    @property
    def declared(self) -> str:
        """As a table says it; texts compare by code point, as Python's do."""
        return f'{self.name} {self.type} COLLATE "C"' if self.type == "text" else f"{self.name} {self.type}"

    @property
    def is_long(self) -> bool:
        """Whether its values can be longer than a page."""
        return self.type in ("text", "jsonb", "uuid[]")


class GroupColumns(msgspec.Struct, frozen=True):
    """Where a group lies: its columns, and how its value is written into them."""

    group: Group
    columns: tuple[SqlColumn, ...]
    code: str
    """Makes the fields of a `value`: an expression for `FactTable.encoder`."""
    absent: bytes
    """The fields while nothing was said."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


class FactTable(msgspec.Struct, frozen=True):
    """A table of facts as PostgreSQL has it, but for what is worked out from the other columns."""

    name: str
    key: tuple[SqlColumn, ...]
    key_code: tuple[str, ...]
    sorted_by: tuple[str, ...]
    """The columns of the key in the order of the primary key."""
    groups: tuple[GroupColumns, ...] = ()

    @property
    def columns(self) -> tuple[SqlColumn, ...]:
        return (*self.key, *chain.from_iterable(group.columns for group in self.groups))

    def head(self, attempt: int) -> bytes:
        """How each record of a binary COPY begins: the number of fields, and the first of them, the attempt."""
        return Struct(">hiq").pack(len(self.columns) + 1, 8, attempt)

    def encoder(self) -> Callable[[bytes, Key, Row], bytes]:
        """Makes of a head, a key and a row the record of a binary COPY.

        The function is written out for the table, since it runs for every row that there is: a loop over the columns
        takes twice as long.
        """
        names = dict(_FIELDS)
        parts = ["head", *(code.format(f"key[{number}]") for number, code in enumerate(self.key_code))]
        for group in self.groups:
            name = group.group.name
            names[f"no_{name}"] = group.absent
            parts.append(f"no_{name} if (value := row.get({name!r})) is None else {group.code}")
        source = f"lambda head, key, row: join(({', '.join(parts)},))"
        made: Callable[[bytes, Key, Row], bytes] = eval(source, names)  # noqa: S307  (our own declarations)
        return made


# Fields: a value with its length in front

_NULL: Final = b"\xff\xff\xff\xff"
_pack_length: Final = Struct(">i").pack
_pack_json: Final = Struct(">ib").pack
_pack_order: Final = Struct(">QB16s").pack
_pack_ids: Final = Struct(">iiiIii").pack


def _text(value: str | None) -> bytes:
    if value is None:
        return _NULL
    text = value.encode()
    return _pack_length(len(text)) + text


def _json(value: str | None) -> bytes:
    if value is None:
        return _NULL
    text = value.encode()
    return _pack_json(len(text) + 1, 1) + text


def _ids(ids: set[bytes]) -> bytes:
    fields = b"".join([b"\x00\x00\x00\x10" + one for one in sorted(ids)])
    return _pack_ids(20 + len(fields), 1, 0, _UUID_OID, len(ids), 1) + fields


class _Remembered(dict[Any, bytes]):
    """Fields of texts that come again and again: a dict finds them in C. When it is full, it starts afresh."""

    def __missing__(self, value: str | None) -> bytes:
        made = _text(value)
        if len(made) <= _LONGEST_REMEMBERED:
            if len(self) >= _MOST_REMEMBERED:
                self.clear()
            self[value] = made
        return made


class _Keys(dict[str, str]):
    """Keys of facets as JSON writes them."""

    def __missing__(self, key: str) -> str:
        made = msgspec.json.encode(key).decode()
        if len(made) <= _LONGEST_REMEMBERED:
            if len(self) >= _MOST_REMEMBERED:
                self.clear()
            self[key] = made
        return made


_keys: Final = _Keys()


def _facets(value: Mapping[str, tuple[Any, ...]]) -> bytes:
    bodies, orders = [], []
    last, order = (None, None, None), ""
    for key, (at, rank, digest, body) in value.items():
        name = _keys[key]
        # Most were said by one event.
        if (at, rank, digest) != last:
            last, order = (at, rank, digest), _pack_order(at + _SIGN, rank, digest).hex()
        orders.append(f'{name}:"{order}"')
        if body is not None:
            bodies.append(f"{name}:{body}")
    return _json(f"{{{','.join(bodies)}}}") + _json(f"{{{','.join(orders)}}}")


def _history(value: frozenset[tuple[Instant, int, str]]) -> bytes:
    said = [f'{{"state":"{state}","event_time":"{_timestamp(at)}"}}' for at, _, state in sorted(value)]
    return _json(f"[{','.join(said)}]")


def _timestamp(instant: Instant) -> str:
    """A moment as PostgreSQL writes it into JSON. It knows the years before the first and after 9999."""
    text = rfc3339(instant)
    if text[-1] == "Z":
        return f"{text[:-1]}+00:00"
    cycles = 1 if instant < 0 else -1
    text = rfc3339(instant + cycles * _GREGORIAN_CYCLE)
    year, rest = int(text[:4]) - cycles * _CYCLE_YEARS, f"{text[4:-1]}+00:00"
    return f"{year:04}{rest}" if year > 0 else f"{1 - year:04}{rest} BC"


_FIELDS: Final[dict[str, Any]] = {
    "join": b"".join,
    "NULL": _NULL,
    "NO_ID": NO_ID,
    "ID": b"\x00\x00\x00\x10",
    "TRUE": b"\x00\x00\x00\x01\x01",
    "FALSE": b"\x00\x00\x00\x01\x00",
    "EPOCH": _PG_EPOCH,
    "SIGN": _SIGN,
    "texts": _Remembered(),
    "text": _text,
    "json": _json,
    "ids": _ids,
    "facets": _facets,
    "history": _history,
    "big": Struct(">iq").pack,
    "small": Struct(">ih").pack,
    "order": Struct(">iQB16s").pack,
}

_ID, _KEY_ID = "(ID + {0} if {0} else NULL)", "ID + ({0} or NO_ID)"
_TEXT, _SINGULAR_TEXT = "texts[{0}]", "text({0})"
_INSTANT = "(NULL if {0} is None else big(8, {0} - EPOCH))"
_BIG, _SMALL = "(NULL if {0} is None else big(8, {0}))", "(NULL if {0} is None else small(2, {0}))"
_BOOLEAN, _JSON = "(TRUE if {0} else FALSE)", "json({0})"
_ORDER_KEY = "order(25, value[0] + SIGN, value[1], value[2])"

_TYPES: Final = {
    "id": ("uuid", _ID),
    "text": ("text", _TEXT),
    "instant": ("timestamptz", _INSTANT),
    "integer": ("bigint", _BIG),
    "boolean": ("boolean", _BOOLEAN),
    "json": ("jsonb", _JSON),
}
_SMALL_NUMBERS: Final = ("origin", "sources_told_by", "rank")
_SINGULAR: Final = ("canonical_job_run_id", "run_id", "error_message", "actual", "message")
"""Texts that hardly come again."""
_RENAMED: Final = {"nominal_start_at": "nominal_time", "column": "column_name"}
_ORDER: Final = ("event_time", "rank", "digest")
_TIMED: Final = ("last_event", "result")
"""Groups whose time is a column too, beside their order key."""


def sql_name(column: Column) -> str:
    return _RENAMED.get(column.name, column.name)


def _sql_column(column: Column) -> tuple[SqlColumn, str]:
    """A column, and the code that makes its field."""
    kind, code = _TYPES[column.type]
    if column.name in _SMALL_NUMBERS:
        kind, code = "smallint", _SMALL
    elif column.name in _SINGULAR:
        code = _SINGULAR_TEXT
    return SqlColumn(sql_name(column), kind), code


def is_ordered(group: Group) -> bool:
    """Whether a group begins with an order key."""
    return tuple(column.name for column in group.columns[:3]) == _ORDER


def _group_columns(group: Group) -> GroupColumns:
    match group.shape:
        case Shape.MAP:
            columns = (SqlColumn("facets", "jsonb"), SqlColumn("facet_orders", "jsonb"))
            return GroupColumns(group, columns, "facets(value)", _json("{}") * 2)
        case Shape.SET:
            return GroupColumns(group, (SqlColumn("state_history", "jsonb"),), "history(value)", _json("[]"))
        case Shape.ONE:
            return _columns_of_one(group)


def _columns_of_one(group: Group) -> GroupColumns:
    columns: list[SqlColumn] = []
    code: list[str] = []
    if is_ordered(group):
        columns.append(SqlColumn(f"{group.name}_order", "bytea"))
        code.append(_ORDER_KEY)
        if group.name in _TIMED:
            columns.append(SqlColumn("event_time", "timestamptz"))
            code.append(_INSTANT.format("value[0]"))
    for number, column in enumerate(group.columns):
        if column.name != IMPLIED_RANK and not (is_ordered(group) and number < len(_ORDER)):
            sql_column, of_column = _sql_column(column)
            columns.append(sql_column)
            code.append(of_column.format(f"value[{number}]"))
    # A flag that nobody raised is down.
    absent = b"".join(
        _FIELDS["FALSE" if column.type == "boolean" and len(columns) == 1 else "NULL"] for column in columns
    )
    return GroupColumns(group, tuple(columns), code[0] if len(code) == 1 else f"join(({', '.join(code)}))", absent)


# The tables

_PRIMARY_KEYS: Final = {
    "declarations": ("entity_id", "entity_kind", "said_by", "event_time"),
    "facet_history": ("entity_id", "entity_kind", "facet_key", "hour", "job_run_id", "body_digest"),
    "test_results": ("job_run_id", "test_id"),
}
"""Where the order is another than that in which the rulebook names the columns."""


def _fact_table(table: Table) -> FactTable:
    key = tuple(_sql_column(column)[0] for column in table.key)
    code = tuple(_KEY_ID if column.type == "id" else _sql_column(column)[1] for column in table.key)
    sorted_by = _PRIMARY_KEYS.get(table.name, tuple(column.name for column in key))
    return FactTable(table.name, key, code, sorted_by, tuple(map(_group_columns, table.groups)))


_MAPPING: Final = [_sql_column(column) for column in f.COLUMN_EDGES.key[1:]]

COLUMN_MAPPINGS: Final = FactTable(
    "column_mappings",
    (SqlColumn("id", "uuid"), *(column for column, _ in _MAPPING)),
    (_ID, *(code for _, code in _MAPPING)),
    ("id",),
)
"""What column edges say, each once, whichever runs say it. The id is made of the other columns."""

RUN_COLUMN_MAPPINGS: Final = FactTable(
    "run_column_mappings",
    (SqlColumn("job_run_id", "uuid"), SqlColumn("mapping_ids", "uuid[]")),
    (_ID, "ids({0})"),
    ("job_run_id",),
)

DATASET_JOBS: Final = FactTable(
    "dataset_jobs",
    (SqlColumn("dataset_id", "uuid"), SqlColumn("job_id", "uuid"), SqlColumn("edge_type", "text")),
    (_ID, _ID, _TEXT),
    ("dataset_id", "edge_type", "job_id"),
)
"""Which jobs ever used a dataset: what edges and their runs say together. Of a run that is not staged none is known."""

JOB_CHILDREN: Final = FactTable(
    "job_children",
    (SqlColumn("parent_key", "uuid"), SqlColumn("job_id", "uuid")),
    (_ID, _ID),
    ("parent_key", "job_id"),
)
"""Which jobs ever said that they ran under another."""

LAST_OF_JOBS: Final = FactTable(
    "last_of_jobs",
    (
        SqlColumn("job_id", "uuid"),
        SqlColumn("job_run_id", "uuid"),
        SqlColumn("complete_at", "timestamptz"),
        SqlColumn("may_be_stream", "boolean"),
    ),
    (_ID, _ID, _INSTANT, _BOOLEAN),
    ("job_id",),
)
"""Staged only: of each job, which of its runs completed last, and whether any may be a stream."""

FACT_TABLES: Final = tuple(_fact_table(table) for table in f.TABLES if table is not f.COLUMN_EDGES)
"""All but the column edges, which lie in the two tables above."""

_BESIDE: Final = (COLUMN_MAPPINGS, RUN_COLUMN_MAPPINGS, DATASET_JOBS, JOB_CHILDREN, LAST_OF_JOBS)

BY_NAME: Final = {table.name: table for table in (*FACT_TABLES, *_BESIDE)}


def parent_key(namespace: str, name: str) -> bytes:
    """By which the children of a job are found, whether or not it has spoken itself."""
    return md5(f"{namespace}\x1f{name}".encode(), usedforsecurity=False).digest()


class ColumnMappings:
    """The ids of column edges. The same ones come with every run of a job, so they are remembered."""

    def __init__(self) -> None:
        self._known: dict[Key, bytes] = {}

    def id_of(self, mapping: Key) -> bytes:
        if (known := self._known.get(mapping)) is not None:
            return known
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        made = self._known[mapping] = mapping_id(mapping)
        return made


def mapping_id(mapping: Key) -> bytes:
    """Of what a column edge says, without the run that says it."""
    return identity.digest_of([part.hex() if isinstance(part, bytes) else part for part in mapping])[:16]


def order_key(at: Instant, rank: int, digest: bytes) -> bytes:
    """When something was said, in bytes that compare as the three do."""
    return _pack_order(at + _SIGN, rank, digest)


def from_order_key(key: bytes) -> tuple[Instant, int, bytes]:
    return int.from_bytes(key[:8]) - _SIGN, key[8], key[9:]


# Reading


class InstantLoader(Loader):
    """Reads a time as the number that it is: Python's datetime ends with the year 9999, time does not."""

    format = Format.BINARY

    def load(self, data: Buffer) -> Instant:
        return int.from_bytes(data, signed=True) + _PG_EPOCH


def read_facts(connection: psycopg.Connection[Any], schema: str = "facts") -> Facts:
    """All facts there are, as the rulebook has them. They have to fit into memory: for tests and for comparing."""
    facts = Facts()
    for table in f.TABLES:
        for key, row in _read(connection, schema, table):
            facts.say(table, key, **row)
    return facts


# JSON as text, lest Python's reader settle what a number is; times as times.
_SELECTED: Final = {
    "state_history": """
        ARRAY(SELECT (e ->> 'event_time')::timestamptz FROM jsonb_array_elements(state_history) AS e) AS state_times,
        ARRAY(SELECT e ->> 'state' FROM jsonb_array_elements(state_history) AS e) AS state_names
    """
}


def _read(connection: psycopg.Connection[Any], schema: str, table: Table) -> Iterator[tuple[Key, Row]]:
    cursor = connection.cursor(binary=True, row_factory=dict_row)
    cursor.adapters.register_loader("timestamptz", InstantLoader)
    groups = [_group_columns(group) for group in table.groups]
    columns = [_sql_column(column)[0] for column in table.key] + [c for group in groups for c in group.columns]
    selected = [_SELECTED.get(c.name, f"{c.name}::text" if c.type == "jsonb" else c.name) for c in columns]
    query = f'SELECT {",".join(selected)} FROM "{schema}".{table.name}'  # noqa: S608  (names of our own)
    for row in cursor.execute(query.encode()):
        key = tuple(_from_key(column, row[column.name]) for column in table.key)
        yield key, {group.group.name: _from_sql(group.group, row) for group in groups}


def _from_key(column: Column, value: Any) -> Any:
    read = _from_column(column, value)
    return b"" if column.type == "id" and read == NO_ID else read


def _from_sql(group: Group, row: Mapping[str, Any]) -> Value | None:
    match group.shape:
        case Shape.MAP:
            bodies = msgspec.json.decode(row["facets"], type=dict[str, msgspec.Raw])
            orders = msgspec.json.decode(row["facet_orders"], type=dict[str, str])
            return {
                key: (*from_order_key(bytes.fromhex(order)), _canonical(bodies.get(key)))
                for key, order in orders.items()
            } or None
        case Shape.SET:
            said = zip(row["state_times"], row["state_names"], strict=True)
            return frozenset((at, RANKS[state], state) for at, state in said) or None
        case Shape.ONE:
            return _one_from_sql(group, row)


def _one_from_sql(group: Group, row: Mapping[str, Any]) -> Value | None:
    if is_ordered(group):
        order = row[f"{group.name}_order"]
        said = [_from_column(column, row[sql_name(column)]) for column in group.columns[3:]]
        return None if order is None else (*from_order_key(order), *said)
    values = tuple(
        _implied_rank(row["open_state"]) if column.name == IMPLIED_RANK else _from_column(column, row[sql_name(column)])
        for column in group.columns
    )
    # A flag that is down is nothing said.
    return None if values[0] is None or values[0] is False else values


def _implied_rank(state: Any) -> int | None:
    return None if state is None else RANKS[state]


def _from_column(column: Column, value: Any) -> Any:
    match column.type:
        case "id" if value is not None:
            return value.bytes
        # Who names no root has none; every other id that is not there is empty.
        case "id" if column.name != "root_job_run_id":
            return b""
        case "json" if value is not None:
            return _canonical(value.encode())
        case _:
            return value


def _canonical(body: msgspec.Raw | bytes | None) -> str | None:
    return None if body is None else identity.canonical_json(identity.decoded(bytes(body))).decode()
