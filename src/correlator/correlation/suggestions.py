"""Tests on datasets that nobody is known to write, and which pattern of names would tell who does.

A producer that calls a table `warehouse/orders`, and another that calls it `postgres://db:5432/shop.orders`, have
nothing in common for a machine but the ends of their names. What speaks for two names to mean one table is counted, and
each reason is told: nothing is joined before somebody says so.
"""

from typing import Annotated, Any, Final
from uuid import UUID

import psycopg
from msgspec import Meta, Struct
from psycopg.rows import class_row

from correlator.correlation.ignored import Ignored, sql_of_datasets
from correlator.correlation.words import query_of
from correlator.rulebook.identity import dataset_key
from correlator.rulebook.naming import same_end
from correlator.rulebook.patterns import NamePattern, PatternError

MOST_ORPHANS: Final = 200
_MOST_ALIKE: Final = 50
_MOST_SUGGESTED: Final = 3
_HIGHEST: Final = 0.99
_PORT: Final = ", with another port or scheme"


class Suggestion(Struct, frozen=True, kw_only=True):
    pattern: str
    target: str
    means: Annotated[str, Meta(description="What the dataset would then be called: one that somebody writes.")]
    score: Annotated[float, Meta(ge=0, le=1, description="The strength of the evidence; no probability.")]
    reasons: list[str]
    explains: Annotated[int, Meta(ge=1, description="How many of the orphans it would find a producer for.")]


class Orphan(Struct, frozen=True, kw_only=True):
    """A dataset that is tested, and that nobody is known to write."""

    urn: str
    tests: Annotated[int, Meta(ge=1)]
    failing: Annotated[int, Meta(ge=0, description="Of these, how many have an open incident.")]
    suggestions: list[Suggestion]


class _Tested(Struct, frozen=True):
    id: UUID
    urn: str
    tests: int
    failing: int
    columns: list[str]


class _Alike(Struct, frozen=True):
    urn: str
    columns: list[str]


_COLUMNS: Final = """
ARRAY(SELECT lower(field #>> '{}') FROM jsonb_path_query(dataset.schema_json, 'lax $.fields[*].name') AS field)
"""
# A dataset, under any of its names, that a job has as output.
_IS_WRITTEN: Final = """
EXISTS (
    SELECT FROM (
        SELECT dataset.id
        UNION ALL
        SELECT mate.dataset_id FROM dataset_classes AS known
        JOIN dataset_classes AS mate ON mate.class_id = known.class_id WHERE known.dataset_id = dataset.id
    ) AS name
    JOIN dataset_jobs AS used ON used.dataset_id = name.id AND used.edge_type = 'output'
)
"""

_ORPHANS: Final = f"""
SELECT dataset.id, dataset.canonical_dataset_id AS urn, test.tests, test.failing, {_COLUMNS} AS columns
FROM (
    SELECT data_tests.dataset_id, count(*) AS tests, count(*) FILTER (WHERE EXISTS (
        SELECT FROM incidents WHERE incidents.test_id = data_tests.id AND incidents.resolved_at IS NULL
    )) AS failing
    FROM data_tests WHERE data_tests.dataset_id IS NOT NULL GROUP BY data_tests.dataset_id
) AS test
JOIN datasets AS dataset ON dataset.id = test.dataset_id
WHERE NOT {_IS_WRITTEN} AND {sql_of_datasets("dataset.dataset_namespace", "dataset.canonical_dataset_id")}
ORDER BY test.failing DESC, test.tests DESC, dataset.canonical_dataset_id LIMIT %(limit)s
"""  # noqa: S608 (constants of our own)

# By the words of the table's name, then only those that somebody writes.
_ALIKE: Final = f"""
SELECT dataset.canonical_dataset_id AS urn, {_COLUMNS} AS columns
FROM datasets AS dataset
WHERE words_of(dataset.canonical_dataset_id) @@ %(words)s::tsquery AND dataset.id <> %(id)s AND {_IS_WRITTEN}
LIMIT {_MOST_ALIKE}
"""  # noqa: S608

_WRITTEN: Final = f"""
SELECT dataset.id FROM datasets AS dataset WHERE dataset.id = ANY (%s::uuid[]) AND {_IS_WRITTEN}
"""  # noqa: S608


def orphans(connection: psycopg.Connection[Any], limit: int = MOST_ORPHANS) -> list[Orphan]:
    """Those with open incidents first, each with the patterns that would tell most."""
    values = {"limit": limit, **Ignored.load(connection).parameters}
    with connection.cursor(row_factory=class_row(_Tested)) as cursor:
        found = cursor.execute(_ORPHANS.encode(), values).fetchall()
    explained: dict[tuple[str, str], int] = {}
    return [
        Orphan(
            urn=tested.urn,
            tests=tested.tests,
            failing=tested.failing,
            suggestions=_suggestions(connection, tested, found, explained),
        )
        for tested in found
    ]


def _suggestions(
    connection: psycopg.Connection[Any],
    tested: _Tested,
    every: list[_Tested],
    explained: dict[tuple[str, str], int],
) -> list[Suggestion]:
    words = query_of(_last_part(tested.urn))
    if words is None:
        return []
    with connection.cursor(row_factory=class_row(_Alike)) as cursor:
        alike = cursor.execute(_ALIKE.encode(), {"words": words.replace(":*", ""), "id": tested.id}).fetchall()
    made = []
    for other in alike:
        score, reasons = _evidence(tested, other)
        pair = pattern_of(tested.urn, other.urn)
        if not reasons or pair is None:
            continue
        if pair not in explained:
            explained[pair] = _explained(connection, pair, every)
        helps = explained[pair]
        if helps > 1:
            score += 0.1 * min(helps - 1, 3)
            reasons.append(f"the same pattern finds a producer for {helps} of the datasets that have none")
        made.append(
            Suggestion(
                pattern=pair[0],
                target=pair[1],
                means=other.urn,
                score=round(min(score, _HIGHEST), 2),
                reasons=reasons,
                explains=max(helps, 1),
            )
        )
    return sorted(made, key=lambda each: (-each.score, each.means))[:_MOST_SUGGESTED]


def _evidence(tested: _Tested, other: _Alike) -> tuple[float, list[str]]:
    equal = same_end(tested.urn, other.urn)
    if equal == 0:
        return 0.0, []
    score, reasons = 0.35, [f"the table's name is equal: {_last_part(tested.urn)}"]
    if equal > 1:
        score += 0.1 * min(equal - 1, 2)
        reasons.append(f"the last {equal} parts of the names are equal")
    if tested.columns and other.columns:
        both, either = set(tested.columns) & set(other.columns), set(tested.columns) | set(other.columns)
        share = len(both) / len(either)
        score += 0.3 * share
        reasons.append(
            "the schemas are equal" if share == 1 else f"{len(both)} of {len(either)} columns have the same name"
        )
    host, others_host = _host(tested.urn), _host(other.urn)
    if host and host == others_host:
        score += 0.2
        is_one_server = _server(tested.urn) == _server(other.urn)
        reasons.append(
            f"both are on the {'server' if is_one_server else 'host'} {host}" + ("" if is_one_server else _PORT)
        )
    return score, reasons


def pattern_of(urn: str, meant: str) -> tuple[str, str] | None:
    """The pattern that leads from one name to the other, and to more of the kind; None if there is none."""
    length = 0
    while length < min(len(urn), len(meant)) and urn[-length - 1] == meant[-length - 1]:
        length += 1
    # What varies begins where a part begins in both.
    end = urn[len(urn) - length :]
    while end and not (_is_border(urn, end) and _is_border(meant, end)):
        end = end[1:]
    if not end:
        return None
    # The table's name alone varies, not the schema that both call the same.
    last = _last_part(end)
    variable = "{table}" if "/" not in last else "{path*}"
    pattern, target = (
        name.removesuffix(last).replace("{", "{{").replace("}", "}}") + variable for name in (urn, meant)
    )
    try:
        return (pattern, target) if NamePattern.parse(pattern, target).apply(urn) == meant else None
    except PatternError:
        return None


def _explained(connection: psycopg.Connection[Any], pair: tuple[str, str], every: list[_Tested]) -> int:
    pattern = NamePattern.parse(*pair)
    meant = [target for tested in every if (target := pattern.apply(tested.urn)) is not None]
    keys = [UUID(bytes=dataset_key(target)) for target in meant]
    return len(connection.execute(_WRITTEN.encode(), [keys]).fetchall())


def _is_border(name: str, end: str) -> bool:
    return len(name) == len(end) or name[-len(end) - 1] in "./:"


def _last_part(urn: str) -> str:
    """After the last sign that parts are cut at, unless it is the ending of a file."""
    path = urn.rpartition("/")[2]
    return path.rpartition(".")[2] or path or urn


def _server(urn: str) -> str:
    scheme, separator, rest = urn.partition("://")
    return f"{scheme}{separator}{rest.partition('/')[0]}" if separator else ""


def _host(urn: str) -> str:
    authority = _server(urn).partition("://")[2]
    host, colon, port = authority.rpartition(":")
    return host if colon and port.isdigit() else authority
