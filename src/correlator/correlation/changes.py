"""What differs between two looks at the same thing: a schema, code, an engine, parameters."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any, Final

import msgspec

CODE: Final = ("sql", "sourceCode", "sourceCodeLocation")
ENGINE: Final = ("processing_engine",)
_OF_EVERY_RUN: Final = frozenset(
    {
        "parent",
        "nominalTime",
        "errorMessage",
        "externalQuery",
        "extractionError",
        "test",
        "jobDependencies",
        "correlator_incidentContext",
        "spark.logicalPlan",
        "spark_unknown",
        "outputStatistics",
        "inputStatistics",
    }
)
"""Run facets that say what happened, not how the run was set up."""
_OF_ITS_OWN: Final = re.compile(
    r"(^|[._])(id|ids|uuid|guid|pid|host|hostname|url|uri|try_number|attempt|attempts|start|started|end|ended|duration|"
    r"start_date|end_date|logical_date|execution_date|data_interval_start|data_interval_end|run_after|queued_at|"
    r"timestamp|created_at|updated_at|start_time|end_time|invocation|session|token)$"
)
"""Settings that are another for every run."""
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|\d+(?:\.\d+)?|\S")
_MOST_LEAVES: Final = 400
_COMMENT: Final = re.compile(r"('(?:[^']|'')*')|--[^\n]*|/\*(?!\+).*?\*/", re.DOTALL)
"""In SQL, beside the literals that may look like one. A hint is none: it says how to do it."""
_HABIT: Final = 0.34
"""What has changed in more than every third stretch of time says nothing when it does so again."""
_CLAUSE: Final = frozenset(
    {"select", "from", "where", "join", "on", "using", "group", "having", "order", "limit", "qualify", "union", "set"}
)
_OF_ROWS: Final = frozenset(
    {"where", "join", "on", "using", "having", "limit", "qualify", "union", "distinct", "intersect", "except", "filter"}
)
"""What says which rows there are, and not what is in them."""
NOT_SET: Final = "not set"
_DATE: Final = re.compile(r"^(\d{4})-?(\d{2})-?(\d{2})($|[T _]?\d{2}:?\d{2})")
_MINOR: Final = 2
"""A version with no more numbers than these has none for patches."""
_BACK: Final = 2
"""So many of the oldest runs that are looked at tell what it was before."""
_STEADY_FOR: Final = 2
"""Looks back at which nothing had changed: then it does not change all the time."""
_CALENDAR: Final = timedelta(days=1, hours=12)
"""What moves on by as much as the time between two runs, to within the change of a day."""


class SchemaChange(msgspec.Struct, frozen=True):
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    retyped: tuple[tuple[str, str, str], ...] = ()
    """Name, type before, type after."""

    @property
    def broken(self) -> frozenset[str]:
        """Columns that are not what they were."""
        return frozenset(self.removed) | frozenset(name for name, _, _ in self.retyped)

    def instead_of(self, columns: Iterable[str]) -> frozenset[str]:
        """Those of which a new column has the name and more: with `country_v2`, `country` may be there and empty."""
        return frozenset(
            column
            for column in columns
            if column and any(name.startswith(f"{column}_") or name.endswith(f"_{column}") for name in self.added)
        )

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.retyped)


def columns(schema: Any) -> dict[str, str]:
    """Names and types of a schema facet, nested fields by their path."""
    found: dict[str, str] = {}

    def look(fields: Any, path: str) -> None:
        for field in fields if isinstance(fields, list) else ():
            if isinstance(field, dict) and isinstance(field.get("name"), str):
                name = path + field["name"]
                found[name] = str(field.get("type") or "").upper()
                look(field.get("fields"), f"{name}.")

    look(schema.get("fields") if isinstance(schema, dict) else None, "")
    return found


def schema_change(before: Any, after: Any) -> SchemaChange:
    one, other = columns(before), columns(after)
    if not one or not other:
        return SchemaChange()
    return SchemaChange(
        removed=tuple(name for name in one if name not in other),
        added=tuple(name for name in other if name not in one),
        retyped=tuple(
            (name, one[name], other[name])
            for name in one
            if name in other and one[name] != other[name] and one[name] and other[name]
        ),
    )


class CodeChange(msgspec.Struct, frozen=True):
    facet: str
    before: str
    after: str
    words: frozenset[str]
    """What was written where the two differ; empty when only a version tells."""
    is_of_rows: bool = False
    """Whether it is about which rows there are: that reaches every column."""
    is_elsewhere: bool = False
    """Whether only a version tells, while the code itself is known and the same: others share the repository."""
    habit: float = 0.0
    """How often it changed in as much time before: what is deployed every other day did no harm all those times."""
    whose: str = ""
    """The job, if it is the one that started the run in question."""

    @property
    def is_notable(self) -> bool:
        return not self.is_elsewhere and self.habit < _HABIT


def code_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[CodeChange]:
    found: list[CodeChange] = []
    is_known_same = False
    for facet in CODE:
        one, other = _code(facet, before.get(facet)), _code(facet, after.get(facet))
        if not one or not other:
            continue
        if _meant(facet, one) == _meant(facet, other):
            is_known_same = is_known_same or facet != "sourceCodeLocation"
        elif facet == "sourceCodeLocation":
            found.append(CodeChange(facet, one, other, frozenset(), is_elsewhere=is_known_same and not found))
        else:
            words, is_of_rows = _difference(_meant(facet, one), _meant(facet, other))
            found.append(CodeChange(facet, one, other, words, is_of_rows))
    return found


def _meant(facet: str, code: str) -> str:
    """Without what says nothing to the engine: dbt and others write into a comment who runs it, each time anew."""
    return " ".join(_COMMENT.sub(r"\1", code).split()) if facet == "sql" else code


def _code(facet: str, body: Any) -> str:
    if not isinstance(body, dict):
        return ""
    match facet:
        case "sql":
            return str(body.get("query") or "")
        case "sourceCode":
            return str(body.get("sourceCode") or "")
        case _:
            return str(body.get("version") or body.get("tag") or body.get("branch") or "")


def _difference(one: str, other: str) -> tuple[frozenset[str], bool]:
    """The words where two texts differ, and whether that is about which rows there are."""
    before, after = _WORD.findall(one[:20_000].lower()), _WORD.findall(other[:20_000].lower())
    found: set[str] = set()
    is_of_rows = False
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            # The words around count too: what is compared with what is on the same line.
            found.update(before[max(0, a - 3) : b + 3], after[max(0, c - 3) : d + 3])
            clause = next((word for word in reversed(before[:a]) if word in _CLAUSE), "")
            is_of_rows = is_of_rows or not _OF_ROWS.isdisjoint({clause, *before[a:b], *after[c:d]})
    return frozenset(word for word in found if word[0].isalpha() or word[0] == "_"), is_of_rows


class SettingChange(msgspec.Struct, frozen=True):
    facet: str
    path: str
    before: str
    """`NOT_SET`, if it was not among the others of its facet; as of what is after."""
    after: str
    whose: str = ""
    """As of a change of code."""

    @property
    def is_engine(self) -> bool:
        return self.facet in ENGINE

    @property
    def is_patch(self) -> bool:
        """Whether an engine is another only by the last number of its version: most of these do no harm."""
        one, other = (version.split(".") for version in (self.before, self.after))
        return self.is_engine and len(one) == len(other) > _MINOR and one[:-1] == other[:-1]

    @property
    def factor(self) -> float:
        """How many times as much or as little a number became; 1 for what is none."""
        try:
            one, other = abs(float(self.before)), abs(float(self.after))
        except ValueError:
            return 1.0
        return max(one, other) / max(min(one, other), 1e-9)


def setting_changes(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    older: Iterable[Mapping[str, Any]],
    apart: timedelta | None = None,
) -> list[SettingChange]:
    """How a run was set up, compared with another of its job, so much time apart.

    What changes from run to run anyway does not count, nor does a date that has moved on by as much as the runs are
    apart: an hourly job has the same one for a day. And what is as it was before has been changed back: the run that it
    is compared with is the odd one. What is set for the first time, or no longer, counts in a facet that always had the
    same names before. `older` has the latest first.
    """
    one, other = _leaves(before), _leaves(after)
    history = [_leaves(facets) for facets in older]
    steady = _facets_of_same_names([one, *history]) & _facets(other)
    found = []
    for key in sorted(one.keys() | other.keys()):
        was, is_ = one.get(key, NOT_SET), other.get(key, NOT_SET)
        if NOT_SET in (was, is_) and key[0] not in steady:
            continue
        if was == is_ or _OF_ITS_OWN.search(key[1].lower()):
            continue
        if apart is not None and _is_calendar(was, is_, apart):
            continue
        seen = [leaves[key] for leaves in history if key in leaves]
        if _is_restless([was, *seen]) or (len(seen) >= _BACK and set(seen[-_BACK:]) == {is_}):
            continue
        found.append(SettingChange(key[0], key[1], was, is_))
    return found


def _facets(leaves: Mapping[tuple[str, str], str]) -> set[str]:
    """Of which all is known."""
    return {facet for facet, _ in leaves} if len(leaves) < _MOST_LEAVES else set()


def _facets_of_same_names(runs: Sequence[Mapping[tuple[str, str], str]]) -> set[str]:
    """Facets that have the same names in all runs that have them, the first of which is looked at."""
    named: dict[str, set[frozenset[str]]] = {}
    for leaves in runs:
        of_run: dict[str, set[str]] = {}
        for facet, path in leaves:
            of_run.setdefault(facet, set()).add(path)
        for facet, paths in of_run.items():
            named.setdefault(facet, set()).add(frozenset(paths))
    return {facet for facet in _facets(runs[0]) if len(named[facet]) == 1}


def _is_restless(seen: Sequence[str]) -> bool:
    """Whether it was another at every second look, the latest first. Two upgrades in a row are over some days later."""
    changed = [value != other for value, other in pairwise(seen)]
    return bool(changed) and any(changed[:_STEADY_FOR]) and sum(changed) * 2 >= len(changed)


def _is_calendar(was: str, is_: str, apart: timedelta) -> bool:
    one, other = _date(was), _date(is_)
    return one is not None and other is not None and abs((other - one) - apart) <= _CALENDAR


def _date(text: str) -> date | None:
    found = _DATE.match(text)
    try:
        return None if found is None else date(*(int(part) for part in found.groups()[:3]))
    except ValueError:
        return None


def _leaves(facets: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}

    def look(facet: str, path: str, value: Any) -> None:
        if len(found) >= _MOST_LEAVES:
            return
        if isinstance(value, dict):
            for name, inner in value.items():
                if name not in ("_producer", "_schemaURL", "_deleted"):
                    look(facet, f"{path}.{name}" if path else name, inner)
        elif isinstance(value, list):
            named = [item for item in value if isinstance(item, dict) and ("name" in item or "key" in item)]
            for item in named:
                rest = {k: v for k, v in item.items() if k not in ("name", "key")}
                inner = rest["value"] if rest.keys() == {"value"} else rest
                look(facet, f"{path}.{item.get('name') or item.get('key')}", inner)
            if not named:
                found[facet, path] = msgspec.json.encode(value).decode()[:200]
        elif value is not None:
            found[facet, path] = str(value)[:200]

    for facet, body in facets.items():
        if facet not in _OF_EVERY_RUN:
            look(facet, "", body)
    return found


class MetricChange(msgspec.Struct, frozen=True):
    """That a column holds something else than before."""

    column: str
    what: str
    """`nulls` or `values`."""
    before: float
    after: float

    @property
    def growth(self) -> float:
        """How many times as much an average has become; 1 for what is none."""
        is_amount = self.what == "values" and self.before > 0 and self.after > 0
        return self.after / self.before if is_amount else 1.0


def metric_changes(before: Any, after: Any, older: Iterable[Any]) -> list[MetricChange]:
    """From two `dataQualityMetrics` facets; what swings from run to run anyway does not count."""
    one, other = _metrics(before), _metrics(after)
    history = [_metrics(facet) for facet in older]
    found = []
    for key in sorted(one.keys() & other.keys()):
        column, what = key
        swings = [_distance(what, one[key], seen[key]) for seen in history if key in seen]
        if _distance(what, one[key], other[key]) > max(_STEADY[what], 3 * max(swings, default=0.0)):
            found.append(MetricChange(column, what, one[key], other[key]))
    return found


_STEADY: Final = {"nulls": 0.02, "values": 0.12}


def _distance(what: str, one: float, other: float) -> float:
    if what == "nulls":
        return abs(one - other)
    return abs(one - other) / max(abs(one), abs(other), 1e-9)


def rows_of(facet: Any) -> int | None:
    """How many rows a `dataQualityMetrics` facet counts."""
    rows = facet.get("rowCount") if isinstance(facet, dict) else None
    return int(rows) if isinstance(rows, int | float) else None


def _metrics(facet: Any) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    columns_ = facet.get("columnMetrics") if isinstance(facet, dict) else None
    if not isinstance(columns_, dict):
        return found
    rows = facet.get("rowCount")
    for name, said in columns_.items():
        if not isinstance(said, dict):
            continue
        count = said.get("count") if isinstance(said.get("count"), int | float) else rows
        nulls, total = said.get("nullCount"), said.get("sum")
        if isinstance(count, int | float) and count > 0:
            if isinstance(nulls, int | float):
                found[name, "nulls"] = nulls / count
            if isinstance(total, int | float):
                found[name, "values"] = total / count
    return found
