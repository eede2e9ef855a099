"""The rules of `rulebook/facts` in SQL: the statements by which staged rows become rows of the fact tables.

Each is made of what a table declares. What is in the tables already and would not change is not written to, nor locked.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

import msgspec

from correlator.rulebook import facts as f
from correlator.rulebook.facts import Group, MergeRule, Shape
from correlator.rulebook.run_cycle import RANKS, TERMINAL
from correlator.rulebook.runs import ENDS
from correlator.store import lookups
from correlator.store.fact_rows import (
    BY_NAME,
    COLUMN_MAPPINGS,
    FACT_TABLES,
    IMPLIED_RANK,
    RUN_COLUMN_MAPPINGS,
    FactTable,
    GroupColumns,
    SqlColumn,
    is_ordered,
    sql_name,
)
from correlator.store.incidents import after_merge, before_merge, used_at
from correlator.store.staging import STAGED_IN_ORDER, probed, staged_table, staged_touched


@lru_cache(maxsize=64)
def statements(slot: str, schema: str) -> tuple[bytes, ...]:
    """The whole merge, each statement with the number of a part for its only parameter."""
    made = [_restate_runs(slot, schema)]
    for table in FACT_TABLES:
        made += _merge_table(slot, schema, table)
    made += [_merge(slot, schema, COLUMN_MAPPINGS), _merge_mappings_of_runs(slot, schema)]
    facts = tuple(statement.encode() for statement in made)
    return (*before_merge(slot, schema), *facts, *after_merge(slot, schema), *lookups.after_merge(slot, schema))


def _said(slot: str, table: FactTable, where: str = "true") -> str:
    """What was staged, each key once, in the order of the primary key: neighbours are written together."""
    key = ", ".join(table.sorted_by)
    return (
        f"SELECT DISTINCT ON ({key}) {', '.join(_names(table.columns))} "  # noqa: S608  (names of our own)
        f"FROM {staged_table(slot, table)} WHERE attempt = %(part)s AND {where} ORDER BY {key}"
    )


def _merge_table(slot: str, schema: str, table: FactTable) -> list[str]:
    """Whatever is said of a run is staged with it: of one that was not there before nothing else was."""
    run_at = f.RUN_AT.get(table.name)
    if run_at is None:
        return [_merge(slot, schema, table)]
    run = table.key[run_at].name
    # Looked up in memory. Said so that the planner does not join them, for which it is left one way only.
    before = f"SELECT id FROM {staged_touched(slot)} WHERE attempt = %(part)s AND kind = 'r'"  # noqa: S608
    was_there = f"{run} IN ({before})"
    if table is BY_NAME[f.FACET_HISTORY.name]:
        # A JobEvent or DatasetEvent may say it as well.
        was_there = f"({was_there} OR {run} = '{_NIL}')"
        merged = _merge(slot, schema, table, f"{was_there} IS TRUE")
    else:
        merged = _merge(slot, schema, table, f"{was_there} IS TRUE AND EXISTS ({before})")
    return [_insert(slot, schema, table, f"{was_there} IS NOT TRUE"), merged]


def _insert(slot: str, schema: str, table: FactTable, where: str) -> str:
    values = _inserted(table, schema)
    if table.name in STAGED_IN_ORDER:
        # Once in a part: to sort such wide rows here would be to make each of them once more.
        said = f"{staged_table(slot, table)} AS said WHERE said.attempt = %(part)s AND {where}"
    else:
        said = f"({_said(slot, table, where)}) AS said"
    return f"""
        INSERT INTO {schema}.{table.name} ({", ".join(values)})
        SELECT {", ".join(values.values())} FROM {said}
    """  # noqa: S608


def _inserted(table: FactTable, schema: str) -> dict[str, str]:
    """What a row that is new has in each column, of what is `said`."""
    values = {name: f"said.{name}" for name in _names(table.columns)}
    derived = _DERIVED.get(table.name, {})
    return values | {name: derive("said", values, schema) for name, derive in derived.items()}


def _merge(slot: str, schema: str, table: FactTable, where: str = "true") -> str:
    """One index probe for each row that was staged; what is new is inserted, what differs updated."""
    rules = [_rule(group) for group in table.groups]
    sets = {name: value for rule in rules for name, value in rule.sets.items()}
    inserted = _inserted(table, schema)
    for name, derive in _DERIVED.get(table.name, {}).items():
        sets[name] = derive("standing", sets, schema)
    on = " AND ".join(f"standing.{name} = said.{name}" for name in table.sorted_by)
    differs = " OR ".join(rule.differs for rule in rules if rule.sets)
    update = f"WHEN MATCHED AND ({differs}) THEN UPDATE SET {_assignments(sets)} " if differs else ""
    return f"""
        MERGE INTO {schema}.{table.name} AS standing
        USING ({_said(slot, table, where)}) AS said ON {on}
        {update}
        WHEN NOT MATCHED THEN INSERT ({", ".join(inserted)}) VALUES ({", ".join(inserted.values())})
    """  # noqa: S608


def _assignments(sets: dict[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in sets.items())


class _Rule(msgspec.Struct, frozen=True):
    """A group's rule in SQL, between the row that is `standing` and what is `said`."""

    differs: str
    """Whether what is said changes what stands."""
    sets: dict[str, str]
    """What stands afterwards, by column."""


def _rule(columns: GroupColumns) -> _Rule:
    match columns.group:
        case Group(shape=Shape.MAP):
            return _map_rule()
        case Group(shape=Shape.SET, keep=keep):
            return _history_rule(keep)
        case Group(rule=MergeRule.ABSENT):
            # Two that have the same key are the same.
            return _Rule("false", {})
        case group:
            return _one_rule(group, columns)


def _one_rule(group: Group, columns: GroupColumns) -> _Rule:
    first = columns.names[0]
    if columns.columns[0].type == "boolean":
        return _Rule(f"said.{first} AND NOT standing.{first}", {first: f"standing.{first} OR said.{first}"})
    sign, choose = (">", "greatest") if group.rule is MergeRule.GREATEST else ("<", "least")
    said, standing = _deciding(columns, "said"), _deciding(columns, "standing")
    differs = f"(standing.{first} IS NULL AND said.{first} IS NOT NULL OR ({said}) {sign} ({standing}))"
    if len(columns.columns) == 1:
        return _Rule(differs, {first: f"{choose}(standing.{first}, said.{first})"})
    return _Rule(
        differs, {name: f"CASE WHEN {differs} THEN said.{name} ELSE standing.{name} END" for name in columns.names}
    )


def _deciding(columns: GroupColumns, row: str) -> str:
    """What is compared, in order."""
    group = columns.group
    compared = []
    declared = group.columns[: group.decided_by]
    if is_ordered(group):
        compared.append(f"{row}.{columns.names[0]}")
        declared = declared[3:]
    for column in declared:
        if column.name == IMPLIED_RANK:
            compared.append(_rank_of(f"{row}.open_state"))
        elif column.type == "id":
            # An id that is not there is less than any.
            compared.append(f"coalesce({row}.{sql_name(column)}, '{_NIL}')")
        else:
            compared.append(f"{row}.{sql_name(column)}")
    return ", ".join(compared)


_NIL: Final = "00000000-0000-0000-0000-000000000000"


def _rank_of(state: str) -> str:
    ranks = " ".join(f"WHEN '{name}' THEN {rank}" for name, rank in RANKS.items() if name is not None)
    return f"CASE {state} {ranks} END"


def _map_rule() -> _Rule:
    """Facet by facet the greater order key; in hex they compare as their bytes do. What was deleted stays deleted."""
    orders = """
        FROM jsonb_each_text(said.facet_orders) AS one (name, at)
        CROSS JOIN LATERAL (SELECT (standing.facet_orders ->> one.name) COLLATE "C" AS at) AS before
    """
    # One pass over what is said, whatever it changes; a facet that is gone has an order and no body.
    changed = f"""(
        SELECT
            CASE WHEN newer > 0 THEN (standing.facets - gone) || (said.facets - late) ELSE standing.facets END,
            CASE WHEN newer > 0 THEN standing.facet_orders || (said.facet_orders - late) ELSE standing.facet_orders END
        FROM (
            SELECT
                count(*) FILTER (WHERE before.at IS NULL OR before.at < one.at) AS newer,
                coalesce(array_agg(one.name) FILTER (WHERE before.at >= one.at), '{{}}') AS late,
                coalesce(
                    array_agg(one.name) FILTER (WHERE before.at < one.at AND NOT said.facets ? one.name), '{{}}'
                ) AS gone
            {orders}
        ) AS compared
    )"""  # noqa: S608
    differs = f"""
        said.facet_orders <> standing.facet_orders
        AND EXISTS (SELECT {orders} WHERE before.at IS NULL OR before.at < one.at)
    """
    return _Rule(differs, {"(facets, facet_orders)": changed})


def _history_rule(keep: int | None) -> _Rule:
    """The union of both, in order, each once; of a long one the beginning and the end."""
    within = "true" if keep is None else f"number <= {keep} OR number > total - {keep}"
    has_room = (
        "true" if keep is None else f"jsonb_array_length(standing.state_history || said.state_history) <= {2 * keep}"
    )
    union = f"""(
        SELECT jsonb_agg(one ORDER BY number)
        FROM (
            SELECT one, count(*) OVER () AS total, row_number() OVER (
                ORDER BY (one ->> 'event_time')::timestamptz, {_rank_of("one ->> 'state'")}, one ->> 'state' COLLATE "C"
            ) AS number
            FROM (
                SELECT DISTINCT one
                FROM jsonb_array_elements(standing.state_history || said.state_history) AS one
            ) AS of_both
        ) AS numbered
        WHERE {within}
    )"""  # noqa: S608
    known = "standing.state_history @> said.state_history"
    # Nearly always what is said comes after all that stands.
    follows = """
        (standing.state_history -> -1 ->> 'event_time')::timestamptz
        < (said.state_history -> 0 ->> 'event_time')::timestamptz
    """
    return _Rule(
        f"NOT {known} AND ({has_room} OR standing.state_history <> {union})",
        {
            "state_history": f"""
            CASE
                WHEN {known} THEN standing.state_history
                WHEN {follows} AND {has_room} THEN standing.state_history || said.state_history
                ELSE {union}
            END"""
        },
    )


# What is worked out of the facts and stored beside them


def _state(_: str, values: dict[str, str], __: str = "") -> str:
    """A run's state: its first end, else its last sign of life."""
    moments = {state: values[f"{group}_at"] for group, state in ENDS}
    ends = " ".join(f"WHEN {moment} THEN '{state}'" for state, moment in moments.items())
    return f"CASE least({', '.join(moments.values())}) {ends} ELSE coalesce({values['open_state']}, 'OTHER') END"


def _schema(row: str, _: dict[str, str], __: str) -> str:
    """The schema facet, copied only when it changes."""
    if row == "said":
        return "said.facets -> 'schema'"
    return (
        """CASE WHEN (said.facet_orders ->> 'schema') COLLATE "C" > coalesce(standing.facet_orders ->> 'schema', '') """
        "THEN said.facets -> 'schema' ELSE standing.schema_json END"
    )


def _used_at(_: str, values: dict[str, str], schema: str) -> str:
    """Its run was merged before it."""
    used = used_at("said.edge_type", f"({values['row_count']})")
    return f"(SELECT {used} FROM {schema}.job_runs AS run WHERE run.id = said.job_run_id)"  # noqa: S608


_DERIVED: Final[dict[str, dict[str, Callable[[str, dict[str, str], str], str]]]] = {
    "job_runs": {"current_state": _state},
    "datasets": {"schema_json": _schema},
    "lineage_edges": {"used_at": _used_at},
}


def _restate_runs(slot: str, schema: str) -> str:
    """Take out the ended runs of which another end turns out to be the first, and put them back with that end.

    No UPDATE may change how a run ended. What else was said of them is merged like everything else, afterwards.
    """
    runs = BY_NAME[f.JOB_RUNS.name]
    moments = {f"{group}_at": f"least(standing.{group}_at, said.{group}_at)" for group, _ in ENDS}
    changed = moments | {"current_state": _state("", moments | {"open_state": "standing.open_state"})}
    kept = [name for name in _names(runs.columns) if name not in moments]
    ended = " OR ".join(f"said.{name} IS NOT NULL" for name in moments)
    terminal = ", ".join(f"'{state}'" for state in sorted(TERMINAL))
    return f"""
        WITH restated AS (
            SELECT standing.id, {", ".join(f"{value} AS {name}" for name, value in changed.items())}
            FROM ({_said(slot, runs)}) AS said {probed(f"{schema}.job_runs", "standing", "standing.id = said.id")}
            WHERE EXISTS (SELECT FROM {staged_touched(slot)} WHERE attempt = %(part)s AND kind = 'r')
              AND ({ended}) AND standing.current_state IN ({terminal})
              AND standing.current_state <> {changed["current_state"]}
        ), taken_out AS (
            DELETE FROM {schema}.job_runs AS run USING restated WHERE run.id = restated.id
            RETURNING {", ".join(f"run.{name}" for name in kept)}
        )
        INSERT INTO {schema}.job_runs ({", ".join(kept)}, {", ".join(changed)})
        SELECT {", ".join(f"taken_out.{name}" for name in kept)}, {", ".join(f"restated.{name}" for name in changed)}
        FROM taken_out JOIN restated ON restated.id = taken_out.id
    """  # noqa: S608


def _merge_mappings_of_runs(slot: str, schema: str) -> str:
    """A run's column edges are a set. A long list may have been staged in several parts."""
    staged = staged_table(slot, RUN_COLUMN_MAPPINGS)
    union = """
        SELECT array_agg(DISTINCT id ORDER BY id)
        FROM unnest(standing.mapping_ids || said.mapping_ids) AS id
    """
    return f"""
        MERGE INTO {schema}.run_column_mappings AS standing
        USING (
            WITH counted AS MATERIALIZED (
                SELECT job_run_id, mapping_ids, count(*) OVER (PARTITION BY job_run_id) AS parts
                FROM {staged} WHERE attempt = %(part)s
            )
            SELECT job_run_id, mapping_ids FROM counted WHERE parts = 1
            UNION ALL
            SELECT job_run_id, array_agg(DISTINCT id ORDER BY id)
            FROM counted CROSS JOIN LATERAL unnest(mapping_ids) AS id
            WHERE parts > 1
            GROUP BY job_run_id
        ) AS said
        ON standing.job_run_id = said.job_run_id
        WHEN MATCHED AND NOT standing.mapping_ids @> said.mapping_ids THEN UPDATE SET mapping_ids = ({union})
        WHEN NOT MATCHED THEN INSERT (job_run_id, mapping_ids) VALUES (said.job_run_id, said.mapping_ids)
    """  # noqa: S608


def _names(columns: Iterable[SqlColumn]) -> list[str]:
    return [column.name for column in columns]
