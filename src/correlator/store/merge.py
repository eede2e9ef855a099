"""From staging into the fact tables: one set-based transaction for each batch, and one at a time.

The rules are those that `rulebook/facts` declares: the SQL is made of its groups. What is in the tables already and
would not change is not written to, nor locked: a batch that is repeated leaves no trace but in the ledger.

    prepare(connection, source)                when the pipeline starts on a source
    attempt = begin(connection, source)        for each attempt at a batch
    stage(connection, attempt, rows)           in each task
    merge(connection, attempt, batch)          when all tasks are done; or `merge_beside`, while they go on
    sweep(connection, attempt)                 when that is committed
"""

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec
import psycopg
from psycopg.errors import ForeignKeyViolation

from correlator.rulebook import facts as f
from correlator.rulebook.facts import Group, MergeRule, Shape
from correlator.rulebook.run_cycle import RANKS, TERMINAL
from correlator.rulebook.runs import ENDS
from correlator.store import lookups, rejects
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
from correlator.store.incidents import Changed, after_merge, before_merge, derive_touched, used_at
from correlator.store.last_runs import note_last_runs
from correlator.store.staging import Attempt, of_attempt, parts, probed, staged_rejects, staged_table, staged_touched

# Any number will do that nobody else locks in this database.
_LOCK: Final = 40_172_831
_LOOK_EVERY_S: Final = 0.1
"""For parts that are whole, while others are still staged."""

Staged = TypeVar("Staged")


FACTS: Final = "facts"
"""Who reads the sources for the fact tables; the archive is another."""


class Span(msgspec.Struct, frozen=True):
    """What was read of one origin: a topic's partition, or a file."""

    origin: str
    events: int
    first: int | None = None
    last: int | None = None
    size: int | None = None
    modified_at: datetime | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger says of a batch."""

    query_id: str
    batch_id: int
    source: str
    read: int
    applied: int
    duplicates: int = 0
    rejected: int = 0
    first_position: int | None = None
    last_position: int | None = None
    """Of the event log."""
    spans: tuple[Span, ...] = ()
    """Where the source has no positions of the log."""
    reader: str | None = None
    """Who reads the log, and by this batch has read it up to `last_position`."""
    seconds: float = 0.0
    """What it took until it could be merged."""

    @property
    def offsets(self) -> str | None:
        """The spans as the ledger has them."""
        return msgspec.json.encode(self.spans).decode() if self.spans else None


class Merged(msgspec.Struct, frozen=True):
    """What a merge leaves to those who know more of the world than tables."""

    schema: str
    incidents: Changed = Changed()
    renamed: tuple[UUID, ...] = ()
    """Datasets of which other names were said, or to which a pattern may apply."""
    concerned: tuple[UUID, ...] = ()
    """Incidents that are as they were, and whose reasons may be others now."""


class StagingLostError(Exception):
    """What was staged is no longer there, or no longer what is to be merged. The batch has to be staged again."""


Follow: TypeAlias = Callable[[psycopg.Connection[Any], "Merged"], None]


def merge(
    connection: psycopg.Connection[Any],
    attempt: Attempt,
    batch: Batch | None,
    schema: str = "facts",
    *,
    derives: bool = True,
    then: Follow | None = None,
) -> None:
    """Merge what was staged, and enter the batch into the ledger, if it is to be there: all of it or nothing.

    Incidents are derived of what it touches, unless they are to be derived later, all at once. `then` is called within
    the transaction, if there is anything that may concern it.
    """
    with connection.transaction():
        merging = _Merging(connection, attempt, schema)
        merging.take(parts(connection, attempt), batch)
        merging.finish(derives, then)


def merge_beside(
    connection: psycopg.Connection[Any],
    attempt: Attempt,
    staging: Callable[[], Staged],
    batch_of: Callable[[Staged], Batch | None],
    schema: str = "facts",
    *,
    derives: bool = True,
    then: Follow | None = None,
) -> Staged:
    """The same while `staging` goes on: part by part as tasks have finished theirs, still in one transaction.

    One connection merges, and that is one core: the others would have to wait for it.
    """
    stop = threading.Event()
    with connection.transaction(), ThreadPoolExecutor(1, "merge") as pool:
        merging = _Merging(connection, attempt, schema, in_bulk=True)
        rounds = pool.submit(merging.take_as_they_come, stop)
        try:
            staged = staging()
        except BaseException:
            connection.cancel_safe()
            raise
        finally:
            stop.set()
        rounds.result()
        merging.take(parts(connection, attempt), batch_of(staged))
        merging.finish(derives, then)
    return staged


class _Merging:
    """A merge on its way, within a transaction.

    In bulk, that what the facts refer to is there is looked at once, of all that was staged, if the database lets us:
    to look for each row by itself would take a quarter of the time.
    """

    def __init__(
        self, connection: psycopg.Connection[Any], attempt: Attempt, schema: str, *, in_bulk: bool = False
    ) -> None:
        self._connection = connection
        self._attempt = attempt
        self._schema = schema
        self._in_bulk = in_bulk
        self._taken: set[int] = set()

    def take_as_they_come(self, stop: threading.Event) -> None:
        while not stop.wait(_LOOK_EVERY_S):
            there = parts(self._connection, self._attempt)
            if there - self._taken:
                self.take(there)

    def take(self, there: Collection[int], batch: Batch | None = None) -> None:
        """Merge the parts that were not merged yet, and enter a batch of which these are the last."""
        connection, numbers = self._connection, sorted(set(there) - self._taken)
        if not self._taken:
            lock_merges(connection, self._schema)
            connection.execute(SETTINGS, prepare=True)
            if self._in_bulk:
                self._in_bulk = bool(connection.execute(_REFER_UNSEEN).rowcount)
        self._check(batch)
        # All at once: over a network every question and answer would cost more than a small batch's work.
        with connection.pipeline():
            connection.execute(_ROUND, prepare=True)
            # One after the other: two may speak of the same run.
            for number in numbers:
                for statement in statements(self._attempt.slot, self._schema):
                    connection.execute(statement, {"part": number}, prepare=True)
            if batch is not None:
                _enter(connection, self._attempt, batch)
        self._taken.update(numbers)

    def _check(self, batch: Batch | None) -> None:
        if self._connection.execute(_IS_CURRENT, msgspec.structs.asdict(self._attempt), prepare=True).rowcount == 0:
            which = "A batch" if batch is None else f"Batch {batch.batch_id} of {batch.source}"
            raise StagingLostError(
                f"{which} was not merged: what was staged for it is gone, because the database was restarted, or "
                "because another process has begun with the same source. Nothing was changed; the batch has to be "
                "tried again."
            )

    def finish(self, derives: bool, then: Follow | None) -> None:  # noqa: FBT001 - passed on
        connection, attempt, schema = self._connection, self._attempt, self._schema
        if self._in_bulk:
            self._check_references()
        if not derives:
            return
        note_last_runs(connection, attempt, schema)
        changed = derive_touched(connection, attempt, schema)
        if then is not None:
            renamed, concerned = _renamed(connection, attempt), _concerned(connection, attempt, schema)
            if changed or renamed or concerned:
                then(connection, Merged(schema, changed, renamed, concerned))

    def _check_references(self) -> None:
        connection = self._connection
        connection.execute(_REFER_AGAIN)
        dangling = connection.execute(_dangling(self._attempt.slot).encode(), {"number": self._attempt.number})
        for table, column, id_ in dangling.fetchall():
            raise ForeignKeyViolation(
                f"A row that was staged for {table} has the {column} {id_}, and nothing is staged by that id. "
                "Nothing of the batch was merged. This is a defect of Correlator: please report it."
            )
        connection.execute(SETTINGS, prepare=True)


def _renamed(connection: psycopg.Connection[Any], attempt: Attempt) -> tuple[UUID, ...]:
    query = f"""
        SELECT DISTINCT id FROM {staged_table(attempt.slot, BY_NAME[f.DATASETS.name])}
        WHERE {of_attempt()} AND (symlinks_order IS NOT NULL OR EXISTS (SELECT FROM kept.dataset_patterns))
    """  # noqa: S608
    return tuple(id_ for (id_,) in connection.execute(query.encode(), [attempt.number], prepare=True))


def _concerned(connection: psycopg.Connection[Any], attempt: Attempt, schema: str) -> tuple[UUID, ...]:
    """Those since the first moment of which something was said; and those of the families of these runs.

    What happened after an incident is no reason for it, but for a test that ran before what it tested was finished.
    """
    query = f"""
        WITH said AS MATERIALIZED (
            SELECT staged.first_event_at AS at, staged.parent_job_run_id
            FROM {staged_table(attempt.slot, BY_NAME[f.JOB_RUNS.name])} AS staged
            WHERE {of_attempt("staged", "%(number)s")}
            UNION ALL
            SELECT NULL, run.parent_job_run_id
            FROM {staged_touched(attempt.slot)} AS before
            {probed(f"{schema}.job_runs", "run", "run.id = before.id")}
            WHERE {of_attempt("before", "%(number)s")} AND before.kind = 'r'
        ), since AS MATERIALIZED (SELECT min(at) AS at FROM said)
        (SELECT incident.id FROM since CROSS JOIN LATERAL (
            SELECT id FROM {schema}.incidents WHERE opened_at >= since.at ORDER BY opened_at, id LIMIT 1000
        ) AS incident)
        UNION
        (SELECT failure.incident_id
         FROM (SELECT DISTINCT parent_job_run_id AS id FROM said WHERE parent_job_run_id IS NOT NULL) AS parent
         JOIN {schema}.job_runs AS kin ON kin.parent_job_run_id = parent.id
         JOIN {schema}.failures AS failure ON failure.job_run_id = kin.id
         WHERE EXISTS (
             SELECT FROM since JOIN {schema}.incidents AS recent ON recent.opened_at >= since.at - interval '1 day'
         ))
    """  # noqa: S608
    given = {"number": attempt.number}
    return tuple(id_ for (id_,) in connection.execute(query.encode(), given, prepare=True))


def _enter(connection: psycopg.Connection[Any], attempt: Attempt, batch: Batch) -> None:
    """Into the ledger, with all that goes with it."""
    connection.execute(_LEDGER, {**msgspec.structs.asdict(batch), "offsets": batch.offsets}, prepare=True)
    if batch.rejected:
        connection.execute(_keep_rejects(attempt.slot).encode(), [attempt.number])
    if batch.reader is not None and batch.last_position is not None:
        advance_in_log(connection, batch.reader, batch.last_position)
    if batch.spans:
        advance(connection, batch.source, FACTS, batch.spans)


def advance_in_log(connection: psycopg.Connection[Any], reader: str, position: int) -> None:
    """Write down how far a reader has read the log, within the caller's transaction."""
    connection.execute(_READER, [reader, position], prepare=True)


def advance(connection: psycopg.Connection[Any], source: str, reader: str, spans: Sequence[Span]) -> None:
    """Write down how far a reader has read, within the caller's transaction."""
    columns = [[getattr(span, name) for span in spans] for name in ("origin", "last", "size", "modified_at", "events")]
    connection.execute(_ADVANCE, [source, reader, *columns])


def lock_merges(connection: psycopg.Connection[Any], schema: str = "facts") -> None:
    """Let no one else merge into a schema until this transaction ends."""
    connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_LOCK, schema], prepare=True)


_IS_CURRENT: Final = "SELECT FROM staging.attempts WHERE slot = %(slot)s AND number = %(number)s"

# Every row is looked up by its key, however large its table is: what a batch costs depends on the batch alone. Without
# this, a plan that was made while a table was small would go on reading all of it. The memory is for sorting.
SETTINGS: Final = """
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_nestloop', 'on', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('jit', 'off', true), set_config('work_mem', '64MB', true)
"""

# Whoever may do so: a superuser, and whom one has granted it. Our own triggers are set to fire nonetheless.
_REFER_UNSEEN: Final = """
SELECT set_config('session_replication_role', 'replica', true)
WHERE has_parameter_privilege(current_user, 'session_replication_role', 'SET')
"""
# And all that was staged is read, once.
_REFER_AGAIN: Final = """
SELECT set_config('session_replication_role', 'origin', true), set_config('enable_seqscan', 'on', true),
       set_config('enable_hashjoin', 'on', true), set_config('enable_nestloop', 'off', true)
"""

_REFERENCES: Final = {
    "lineage_edges": {"job_run_id": f.JOB_RUNS, "dataset_id": f.DATASETS},
    "running_writes": {"job_run_id": f.JOB_RUNS, "dataset_id": f.DATASETS},
    "run_column_mappings": {"job_run_id": f.JOB_RUNS},
    "test_results": {"job_run_id": f.JOB_RUNS, "dataset_id": f.DATASETS},
}
"""The foreign keys of what is merged. Whatever is said of a run or a dataset is staged with it."""


@lru_cache(maxsize=64)
def _dangling(slot: str) -> str:
    """Ask for staged rows that refer to none that was staged."""
    return " UNION ALL ".join(
        f"""
        (SELECT '{table}', '{column}', said.{column}
         FROM {staged_table(slot, BY_NAME[table])} AS said
         WHERE {of_attempt("said", "%(number)s")} AND said.{column} IS NOT NULL
           AND NOT EXISTS (
               SELECT FROM {staged_table(slot, BY_NAME[referred.name])} AS there
               WHERE {of_attempt("there", "%(number)s")} AND there.id = said.{column}
           )
         LIMIT 1)
        """  # noqa: S608
        for table, columns in _REFERENCES.items()
        for column, referred in columns.items()
    )


_ROUND: Final = "SELECT set_config('correlator.round_began', extract(epoch FROM clock_timestamp())::text, true)"

# A batch that is repeated takes the place of itself, in the totals too.
_LEDGER: Final = """
WITH before AS (
    SELECT source, read, applied, duplicates, rejected FROM kept.pipeline_batches
    WHERE query_id = %(query_id)s AND batch_id = %(batch_id)s
), entered AS (
    INSERT INTO kept.pipeline_batches AS known (
        query_id, batch_id, source, read, applied, duplicates, rejected,
        first_position, last_position, offsets, seconds, committed_at
    )
    VALUES (
        %(query_id)s, %(batch_id)s, %(source)s, %(read)s, %(applied)s, %(duplicates)s, %(rejected)s,
        %(first_position)s, %(last_position)s, %(offsets)s::jsonb,
        %(seconds)s + extract(epoch FROM clock_timestamp()) - current_setting('correlator.round_began')::float8,
        clock_timestamp()
    )
    ON CONFLICT (query_id, batch_id) DO UPDATE SET
        source = excluded.source, read = excluded.read, applied = excluded.applied, duplicates = excluded.duplicates,
        rejected = excluded.rejected, first_position = excluded.first_position, last_position = excluded.last_position,
        offsets = excluded.offsets, seconds = excluded.seconds, committed_at = excluded.committed_at
    RETURNING *
)
INSERT INTO kept.pipeline_totals AS total (
    source, batches, read, applied, duplicates, rejected, seconds, committed_at
)
SELECT entered.source, CASE WHEN before.source IS NULL THEN 1 ELSE 0 END,
       entered.read - coalesce(before.read, 0), entered.applied - coalesce(before.applied, 0),
       entered.duplicates - coalesce(before.duplicates, 0), entered.rejected - coalesce(before.rejected, 0),
       entered.seconds, entered.committed_at
FROM entered LEFT JOIN before ON true
ON CONFLICT (source) DO UPDATE SET
    batches = total.batches + excluded.batches,
    read = total.read + excluded.read,
    applied = total.applied + excluded.applied,
    duplicates = total.duplicates + excluded.duplicates,
    rejected = total.rejected + excluded.rejected,
    seconds = excluded.seconds,
    committed_at = excluded.committed_at
"""

# A file is what it was when it was last read; the partition of a topic goes on.
_ADVANCE: Final = """
INSERT INTO kept.source_origins AS known (source, reader, origin, position, size, modified_at, events)
SELECT %s, %s, said.origin, said.position, said.size, said.modified_at, said.events
FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::timestamptz[], %s::bigint[])
     AS said (origin, position, size, modified_at, events)
ORDER BY said.origin
ON CONFLICT (source, reader, origin) DO UPDATE SET
    position = greatest(known.position, excluded.position), size = excluded.size,
    modified_at = excluded.modified_at, events = excluded.events
"""

# A batch that is repeated, and one that another checkpoint begins further back, has been read before.
_READER: Final = """
INSERT INTO kept.log_readers AS known (reader, position) VALUES (%s, %s)
ON CONFLICT (reader) DO UPDATE SET position = excluded.position, read_at = clock_timestamp()
WHERE known.position < excluded.position
"""


def _keep_rejects(slot: str) -> str:
    """A rejected event that a repeated batch brings again is there already."""
    columns = ", ".join(rejects.COLUMNS)
    return f"""
        WITH added AS (
            INSERT INTO kept.rejected_events (arrival, {columns})
            SELECT DISTINCT ON (arrival) arrival, {columns}
            FROM {staged_rejects(slot)} WHERE {of_attempt()} ORDER BY arrival
            ON CONFLICT (arrival) WHERE arrival IS NOT NULL DO NOTHING
            RETURNING kept_bytes
        )
        UPDATE kept.reject_totals AS kept SET events = kept.events + new.events, bytes = kept.bytes + new.bytes
        FROM (SELECT count(*) AS events, coalesce(sum(kept_bytes), 0) AS bytes FROM added) AS new
        WHERE new.events > 0
    """  # noqa: S608


@lru_cache(maxsize=64)
def statements(slot: str, schema: str) -> tuple[bytes, ...]:
    """The whole merge, each statement with the number of a part for its only parameter."""
    made = [_restate_runs(slot, schema)]
    made += [_merge(slot, schema, table) for table in FACT_TABLES]
    made += [_merge(slot, schema, COLUMN_MAPPINGS), _merge_mappings_of_runs(slot, schema)]
    facts = tuple(statement.encode() for statement in made)
    return (*before_merge(slot, schema), *facts, *after_merge(slot, schema), *lookups.after_merge(slot, schema))


def _said(slot: str, table: FactTable) -> str:
    """What was staged, each key once, in the order of the primary key: neighbours are written together."""
    key = ", ".join(table.sorted_by)
    return (
        f"SELECT DISTINCT ON ({key}) {', '.join(_names(table.columns))} "  # noqa: S608  (names of our own)
        f"FROM {staged_table(slot, table)} WHERE attempt = %(part)s ORDER BY {key}"
    )


def _merge(slot: str, schema: str, table: FactTable) -> str:
    """One index probe for each row that was staged; what is new is inserted, what differs updated."""
    rules = [_rule(group) for group in table.groups]
    sets = {name: value for rule in rules for name, value in rule.sets.items()}
    inserted = {name: f"said.{name}" for name in _names(table.columns)}
    for name, derive in _DERIVED.get(table.name, {}).items():
        inserted[name] = derive("said", inserted, schema)
        sets[name] = derive("standing", sets, schema)
    on = " AND ".join(f"standing.{name} = said.{name}" for name in table.sorted_by)
    differs = " OR ".join(rule.differs for rule in rules if rule.sets)
    update = f"WHEN MATCHED AND ({differs}) THEN UPDATE SET {_assignments(sets)} " if differs else ""
    return f"""
        MERGE INTO {schema}.{table.name} AS standing
        USING ({_said(slot, table)}) AS said ON {on}
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
