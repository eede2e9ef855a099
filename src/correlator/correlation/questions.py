"""What a test asks: what kind of fault makes it fail, told by its name."""

import re
from typing import Final, Literal

import msgspec

TestKind = Literal["volume", "freshness", "schema", "null", "unique", "value", "run"]

_KINDS: Final[tuple[tuple[TestKind, re.Pattern[str]], ...]] = (
    (
        "freshness",
        re.compile(r"fresh|recen|stale|latest|up_to_date|max_(date|time)|age_of|(date|time)\w*_max|late_arriv"),
    ),
    (
        "schema",
        re.compile(r"schema|column(s)?_(to_)?(exist|match|set|count)|to_exist|of_type|type_list|has_column|in_type"),
    ),
    (
        "volume",
        re.compile(
            r"row_?count|rowcount|table_row|volume|count_(to_)?be|number_of_rows|equal_rowcount|is_empty|not_empty|row_anomal"
        ),
    ),
    ("null", re.compile(r"null|missing|complete|required|populated")),
    ("unique", re.compile(r"uniqu|duplicat|distinct|primary_key")),
)

_MOMENT: Final = re.compile(r"(^|_)(at|on|date|day|time|timestamp|ts|datetime)$|(date|time|stamp)$")
"""A column that says when something was."""
_LAST: Final = re.compile(r"(^|_)(max|maximum|last|newest)(_|$)")

FIT: Final[dict[str, dict[TestKind, float]]] = {
    "less": {"volume": 1.0, "freshness": 0.4, "schema": 0.2, "null": 0.62, "unique": 0.3, "value": 0.68, "run": 0.4},
    "more": {"volume": 1.0, "freshness": 0.25, "schema": 0.2, "null": 0.55, "unique": 1.0, "value": 0.68, "run": 0.4},
    "stale": {
        "volume": 0.85,
        "freshness": 1.0,
        "schema": 0.3,
        "null": 0.7,
        "unique": 0.5,
        "value": 0.75,
        "run": 0.6,
    },
    "schema": {
        "volume": 0.35,
        "freshness": 0.2,
        "schema": 1.0,
        "null": 0.95,
        "unique": 0.4,
        "value": 0.85,
        "run": 1.0,
    },
    "code": {
        "volume": 0.8,
        "freshness": 0.45,
        "schema": 0.7,
        "null": 1.0,
        "unique": 1.0,
        "value": 1.0,
        "run": 1.0,
    },
    "setting": {
        "volume": 0.8,
        "freshness": 0.45,
        "schema": 0.5,
        "null": 1.0,
        "unique": 0.95,
        "value": 1.0,
        "run": 1.0,
    },
    "nulls": {
        "volume": 0.2,
        "freshness": 0.1,
        "schema": 0.2,
        "null": 1.0,
        "unique": 0.3,
        "value": 0.55,
        "run": 0.3,
    },
    "values": {
        "volume": 0.2,
        "freshness": 0.2,
        "schema": 0.1,
        "null": 0.3,
        "unique": 0.4,
        "value": 1.0,
        "run": 0.3,
    },
    "broken": {
        "volume": 1.0,
        "freshness": 0.5,
        "schema": 0.5,
        "null": 0.9,
        "unique": 0.9,
        "value": 0.9,
        "run": 0.8,
    },
    "failed": {
        "volume": 1.0,
        "freshness": 1.0,
        "schema": 0.6,
        "null": 0.8,
        "unique": 0.8,
        "value": 0.8,
        "run": 1.0,
    },
    "red": dict.fromkeys(("volume", "freshness", "schema", "null", "unique", "value", "run"), 1.0),
}
"""How well a finding explains the failure of a test of some kind: from 0, not at all, to 1."""


class Question(msgspec.Struct, frozen=True):
    kind: TestKind
    column: str

    @property
    def columns(self) -> frozenset[str] | None:
        """What it is about; None for all of the dataset."""
        return frozenset({self.column}) if self.column else None


def question(test_name: str, column: str) -> Question:
    words = _split(test_name)
    for kind, pattern in _KINDS:
        if pattern.search(words):
            return Question(kind, column)
    if _LAST.search(words) and _MOMENT.search(_split(column)):
        # Great Expectations has no other name for it.
        return Question("freshness", column)
    return Question("value", column)


def _split(name: str) -> str:
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
