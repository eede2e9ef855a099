"""The fact tables hold whatever the fold makes of events, and give it back as it was."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.errors import CheckViolation, ForeignKeyViolation
from psycopg.types.json import Jsonb

from correlator.rulebook import facts as f
from correlator.rulebook import identity
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.fold import fold
from correlator.store.database import Database
from correlator.store.fact_rows import from_order_key, order_key, read_facts
from correlator.store.migrations import known_migrations
from correlator.store.staging import prepare
from tests import corpus
from tests.integration.store.merging import (
    SOURCE,
    apply,
    check_constraints,
    check_what_is_derived,
    differences,
    stored,
)
from tests.property.test_fold_properties import HISTORIES
from tests.unit.rulebook.histories import (
    DB,
    OTHER_RUN,
    RUN,
    Json,
    accepted,
    assertions,
    at,
    dataset,
    dataset_event,
    facet,
    job_event,
    parent,
    run_event,
    run_json,
)

ROOT = Path(__file__).parents[3]

NIL: Final = UUID(int=0)
MIGRATIONS: Final = [migration.sql.encode() for migration in known_migrations() if migration.makes_facts]


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect("test") as connection:
        prepare(connection, SOURCE)
        connection.commit()
        yield connection


def judged(raw: bytes) -> Event | None:
    verdict = judge(raw)
    return None if isinstance(verdict, Rejection) else verdict


# What is written can be read


@corpus.needs_corpus
@pytest.mark.parametrize("name", corpus.event_files())
def test_the_facts_of_real_producers_come_back_as_they_were(connection: psycopg.Connection, name: str) -> None:
    events = [event for raw in corpus.events(name) if (event := judged(raw)) is not None]
    assert events

    facts = stored(connection, events)

    assert differences(facts, read_facts(connection)) == []


@given(history=HISTORIES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_facts_of_any_history_come_back_as_they_were(connection: psycopg.Connection, history: list[Json]) -> None:
    facts = fold(map(accepted, history))

    with connection.transaction(force_rollback=True):
        apply(connection, facts)
        check_constraints(connection)

        assert differences(facts, read_facts(connection)) == []
        check_what_is_derived(connection, facts)


def test_names_of_thousands_of_characters_fit(connection: psycopg.Connection) -> None:
    """Random ones: what repeats itself would be compressed, and then fit into any index."""
    long = "".join(random.Random(4).choices("abcdefghijklmnopqrstuvwxyzäöüß€", k=5000))
    field = {"inputFields": [{"namespace": long, "name": f"{long}2", "field": long}]}
    events: list[Event] = [
        run_event(
            "RUNNING",
            run=long,
            job=long,
            inputs=[dataset(long, long, inputFacets=assertions({"assertion": long, "column": long, "success": False}))],
            outputs=[
                dataset(
                    long,
                    facets={
                        "columnLineage": facet(fields={long: field}),
                        "symlinks": facet(identifiers=[{"namespace": long, "name": long, "type": long}]),
                        "version": facet(datasetVersion=long),
                        long: facet(),
                    },
                )
            ],
            run_facets={**parent(long, long, long), "errorMessage": facet(message=long, programmingLanguage=long)},
            job_facets={"jobType": facet(processingType=long, integration=long, jobType=long)},
        ),
        job_event(job=long, inputs=[dataset(long)]),
        dataset_event(name=long, facets={"schema": facet(fields=[{"name": long}])}),
    ]

    facts = stored(connection, events)

    assert all(facts.rows(table) for table in f.TABLES)
    assert differences(facts, read_facts(connection)) == []


def test_what_postgresql_cannot_hold_never_gets_there(connection: psycopg.Connection) -> None:
    nul, lone = "a\x00b", "a\ud800b"
    for text in (nul, lone):
        event = run_json(
            run=text,
            job=text,
            outputs=[dataset(text, facets={text: facet(said=text), "schema": facet(fields=[{"name": text}])})],
            job_facets={"sql": facet(query=text)},
            run_facets={"test": facet(tests=[{"name": text, "status": "fail"}]), **parent(text, text)},
        )
        verdict = judge(json.dumps(event).encode())
        if isinstance(verdict, Rejection):
            continue
        facts = fold([verdict])
        with connection.transaction(force_rollback=True):
            apply(connection, facts)
            assert differences(facts, read_facts(connection)) == []


def test_a_facet_as_deep_as_the_judge_allows_fits(connection: psycopg.Connection) -> None:
    event = json.dumps(run_json(run_facets={"deep": facet(nested=0)}))
    accepted_depths = []
    for depth in range(100, 1000, 50):
        verdict = judge(event.replace('"nested": 0', f'"nested": {"[" * depth}{"]" * depth}').encode())
        if isinstance(verdict, Rejection):
            break
        accepted_depths.append(depth)
        with connection.transaction(force_rollback=True):
            apply(connection, fold([verdict]))
    assert accepted_depths


@pytest.mark.parametrize(
    "time",
    [
        "0001-01-01T00:00:00.000001Z",
        "0000-06-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
        "9999-12-31T23:59:59.999999-12:00",
        "1969-12-31T23:59:59.999999Z",
    ],
)
def test_every_time_that_an_event_can_have_fits_to_the_microsecond(connection: psycopg.Connection, time: str) -> None:
    event = run_json("FAIL", outputs=[dataset("orders")], run_facets={"nominalTime": facet(nominalStartTime=time)})
    facts = stored(connection, [accepted(event | {"eventTime": time})])

    assert differences(facts, read_facts(connection)) == []


def test_numbers_keep_their_value(connection: psycopg.Connection) -> None:
    numbers = [0, -1, 2**63 - 1, 2**64, 1.5, 1e-300, 1e22, 1.7976931348623157e308, 0.1, 3.141592653589793]
    stored(connection, [run_event(run_facets={"numbers": facet(said=numbers)})])

    (said,) = connection.execute("SELECT facets -> 'numbers' ->> 'said' FROM job_runs").fetchone() or ("",)

    # PostgreSQL writes all digits, so a large float comes back as the integer that it is.
    assert [kind(number) for kind, number in zip(map(type, numbers), json.loads(said), strict=True)] == numbers


def test_a_parent_need_not_have_events_of_its_own(connection: psycopg.Connection) -> None:
    stored(connection, [run_event("START", run_facets=parent(OTHER_RUN, "dag", OTHER_RUN))])

    rows = connection.execute("SELECT parent_run_id, parent_job_run_id, root_job_run_id FROM job_runs").fetchall()

    dag = UUID(bytes=identity.job_run_key("airflow", "dag", OTHER_RUN))
    root = UUID(bytes=identity.job_run_key("airflow", "root", OTHER_RUN))
    assert rows == [(OTHER_RUN, dag, root)]


def test_a_deleted_facet_is_gone_and_its_deletion_is_remembered(connection: psycopg.Connection) -> None:
    stored(
        connection,
        [
            dataset_event(
                0, facets={"schema": facet(fields=[{"name": "id"}]), "documentation": facet(description="d")}
            ),
            dataset_event(1, facets={"schema": facet(_deleted=True)}),
        ],
    )

    (row,) = connection.execute(
        """
        SELECT schema_json, ARRAY(SELECT jsonb_object_keys(facets)), ARRAY(SELECT jsonb_object_keys(facet_orders))
        FROM datasets
        """
    ).fetchall()
    history = connection.execute(
        "SELECT body_digest = %s FROM facet_history ORDER BY first_at", [UUID(int=0)]
    ).fetchall()

    assert row == (None, ["documentation"], ["schema", "documentation"])
    assert history == [(False,), (True,)]


# What people ask with SQL


def test_the_history_of_states_reads_in_order(connection: psycopg.Connection) -> None:
    stored(
        connection, [run_event("COMPLETE", 5), run_event("START", 0), run_event("RUNNING", 2), run_event("OTHER", 9)]
    )

    (row,) = connection.execute(
        "SELECT state_history, current_state, event_type, ended_at - started_at = interval '5 minutes' FROM job_runs"
    ).fetchall()

    assert row == (
        [
            {"state": "START", "event_time": at(0).replace("Z", "+00:00")},
            {"state": "RUNNING", "event_time": at(2).replace("Z", "+00:00")},
            {"state": "COMPLETE", "event_time": at(5).replace("Z", "+00:00")},
        ],
        "COMPLETE",
        "OTHER",
        True,
    )


def test_other_names_of_a_dataset_are_found_from_both_ends(connection: psycopg.Connection) -> None:
    link = {"namespace": "s3://lake", "name": "orders", "type": "LOCATION"}
    stored(connection, [dataset_event(facets={"symlinks": facet(identifiers=[link])}), dataset_event(name="other")])
    orders, alias = (UUID(bytes=identity.dataset_key(urn)) for urn in (f"{DB}/orders", "s3://lake/orders"))

    assert connection.execute("SELECT * FROM dataset_aliases").fetchall() == [
        (orders, alias, "s3://lake/orders", "LOCATION")
    ]
    back = connection.execute("SELECT id FROM datasets WHERE aliases @> %s", [Jsonb([[alias.hex]])]).fetchall()
    assert back == [(orders,)]


@given(
    keys=st.lists(
        st.tuples(st.integers(-(2**62), 2**62), st.integers(0, 3), st.binary(min_size=16, max_size=16)), max_size=6
    )
)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_order_keys_compare_as_the_rulebook_compares(
    connection: psycopg.Connection, keys: list[tuple[int, int, bytes]]
) -> None:
    rows = connection.execute(
        "SELECT key FROM unnest(%s::order_key[]) AS key ORDER BY key", [[order_key(*key) for key in keys]]
    ).fetchall()

    assert [from_order_key(row[0]) for row in rows] == sorted(keys)


# What the database will not have


def test_an_edge_needs_its_run_and_its_dataset_when_the_transaction_ends(connection: psycopg.Connection) -> None:
    facts = fold([run_event(outputs=[dataset("orders")])])
    for table in ("job_runs", "datasets"):
        apply(connection, facts)
        connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
        with pytest.raises(ForeignKeyViolation, match="lineage_edges"):
            connection.commit()


def test_a_run_may_be_taken_out_and_put_back_under_its_edges(connection: psycopg.Connection) -> None:
    """What the merge does when a late event changes which end came first."""
    source = {"inputFields": [{"namespace": DB, "name": "raw", "field": "id"}]}
    tested = assertions({"assertion": "unique", "success": True})
    stored(
        connection,
        [
            run_event(
                "RUNNING",
                outputs=[dataset("orders", facets={"columnLineage": facet(fields={"id": source})})],
                inputs=[dataset("raw", inputFacets=tested)],
            ),
            run_event("COMPLETE", 1),
        ],
    )
    columns = connection.execute(
        """
        SELECT string_agg(quote_ident(attname), ',') FROM pg_attribute
        WHERE attrelid = 'job_runs'::regclass AND attnum > 0 AND attgenerated = '' AND attname <> 'current_state'
        """
    ).fetchone()
    assert columns is not None
    names = sql.SQL(columns[0])

    connection.execute("CREATE TEMP TABLE standing ON COMMIT DROP AS SELECT * FROM job_runs")
    connection.execute("DELETE FROM job_runs")
    connection.execute(
        sql.SQL("INSERT INTO job_runs ({0}, current_state) SELECT {0}, 'FAIL' FROM standing").format(names)
    )
    connection.commit()

    assert connection.execute("SELECT current_state FROM job_runs").fetchall() == [("FAIL",)]
    for child in ("lineage_edges", "running_writes", "test_results", "run_column_mappings"):
        counted = connection.execute(
            sql.SQL("SELECT count(*) FROM {} JOIN job_runs ON job_runs.id = job_run_id").format(sql.Identifier(child))
        ).fetchone()
        assert counted is not None
        assert counted[0] > 0, child


@pytest.mark.parametrize("subject", [{}, {"job_id": NIL}, {"job_id": NIL, "test_id": NIL}])
def test_an_incident_of_a_test_is_about_that_test_alone(
    connection: psycopg.Connection, subject: dict[str, UUID]
) -> None:
    values = {"id": NIL, "kind": "test", "job_run_id": NIL, "opened_at": at(0), "last_failed_at": at(0), **subject}
    insert = sql.SQL("INSERT INTO incidents ({}) VALUES ({})").format(
        sql.SQL(",").join(map(sql.Identifier, values)), sql.SQL(",").join(sql.Placeholder() * len(values))
    )

    with pytest.raises(CheckViolation, match="incidents_check"):
        connection.execute(insert, list(values.values()))


def test_an_order_key_has_25_bytes(connection: psycopg.Connection) -> None:
    with pytest.raises(CheckViolation, match="order_key"):
        connection.execute("SELECT '\\x00'::order_key")


def test_no_text_of_any_length_is_in_a_b_tree(connection: psycopg.Connection) -> None:
    found = connection.execute(
        """
        SELECT DISTINCT attname FROM pg_index
        JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam
        JOIN pg_attribute ON attrelid = indexrelid
        WHERE relnamespace = 'facts'::regnamespace AND amname = 'btree'
          AND atttypid IN ('text'::regtype, 'bytea'::regtype, 'jsonb'::regtype)
        """
    ).fetchall()

    # Of a few values each, all of them our own; and no more than the beginnings of names.
    ours = {"edge_type", "entity_kind", "said_by", "facet_key", "current_state", "status"}
    assert {name for (name,) in found} == ours | {"left", "left1"}


# The second copy, which replay fills


def test_the_same_files_make_the_tables_in_another_schema_which_then_takes_the_first_ones_place(
    database: Database, connection: psycopg.Connection
) -> None:
    before = described(connection, "facts")
    stored(connection, [run_event("COMPLETE", run=OTHER_RUN)])

    connection.execute("CREATE SCHEMA facts_next")
    connection.execute("SET LOCAL search_path = facts_next")
    for migration in MIGRATIONS:
        connection.execute(migration)
    stored(connection, [run_event("COMPLETE", outputs=[dataset("orders")]), run_event("FAIL", 1)], "facts_next")
    connection.execute("ALTER SCHEMA facts RENAME TO facts_old")
    connection.execute("ALTER SCHEMA facts_next RENAME TO facts")
    connection.execute("DROP SCHEMA facts_old CASCADE")
    connection.commit()

    with database.connect("test") as other:
        assert described(other, "facts") == before
        assert other.execute("SELECT run_id FROM job_runs").fetchall() == [(RUN,)]
        assert other.execute("SELECT kind FROM run_contradictions").fetchall() == [("two_ends",)]
        with pytest.raises(CheckViolation) as refused, other.transaction():
            other.execute("UPDATE job_runs SET current_state = 'START'")
        assert refused.value.diag.message_primary == (
            "Invalid state transition: COMPLETE -> START (terminal states are immutable)"
        )
        other.execute("DELETE FROM job_runs")
        with pytest.raises(ForeignKeyViolation, match="lineage_edges"):
            other.commit()


def described(connection: psycopg.Connection, schema: str) -> list[tuple[Any, ...]]:
    """Every column, constraint, index, trigger and view of a schema, as PostgreSQL spells it."""
    return connection.execute(
        """
        SELECT relname, attname, format_type(atttypid, atttypmod), attnotnull::text
        FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE relnamespace = %(schema)s::regnamespace AND attnum > 0
        UNION ALL
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), '' FROM pg_constraint
        WHERE connamespace = %(schema)s::regnamespace AND contype <> 'n'
        UNION ALL
        SELECT relname, '', pg_get_indexdef(pg_class.oid), '' FROM pg_class
        WHERE relnamespace = %(schema)s::regnamespace AND relkind = 'i'
        UNION ALL
        SELECT relname, '', pg_get_viewdef(pg_class.oid), '' FROM pg_class
        WHERE relnamespace = %(schema)s::regnamespace AND relkind = 'v'
        UNION ALL
        SELECT relname, tgname, pg_get_triggerdef(pg_trigger.oid), tgenabled::text FROM pg_trigger
        JOIN pg_class ON pg_class.oid = tgrelid
        WHERE relnamespace = %(schema)s::regnamespace AND NOT tgisinternal
        ORDER BY 1, 2, 3
        """,
        {"schema": schema},
    ).fetchall()


def test_everything_of_the_facts_is_in_their_schema(connection: psycopg.Connection) -> None:
    found = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'facts'::regnamespace AND relkind IN ('r', 'v')"
    ).fetchall()

    derived = {"dataset_aliases", "dataset_classes", "failures", "implied_results", "incidents", "standing_results"}
    derived |= {"data_tests", "dataset_jobs", "incident_mentions", "incident_texts", "incident_totals"}
    derived |= {"job_children", "last_runs", "producer_jobs", "standing_lineage"}
    named = {"run_contradictions", *derived, *(table.name for table in f.TABLES)}
    assert {name for (name,) in found} == named | {"column_mappings", "run_column_mappings"}


def test_the_page_on_tables_names_every_table_and_column(connection: psycopg.Connection) -> None:
    page = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### `(\w+)`.*?\n(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE))
    columns = connection.execute(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'facts'"
    ).fetchall()

    assert [(t, c) for t, c in columns if f"`{c}`" not in sections.get(t, "")] == []
    assert sections.keys() == {table for table, _ in columns}


def test_the_queries_of_the_page_on_tables_answer(connection: psycopg.Connection) -> None:
    page = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    (examples,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    output = dataset("shop.public.orders", facets={"schema": facet(fields=[{"name": "id"}])})
    stored(connection, [run_event("START"), run_event("COMPLETE", 1, outputs=[output]), run_event("COMPLETE", 2)])

    queries = [query for query in examples.split(";") if query.strip()]

    assert [len(connection.execute(query.encode()).fetchall()) for query in queries] == [1, 1, 1]


@pytest.mark.parametrize("letter", ["x", "ß", "語", "\U0001f600", "a.", "aB"])
def test_names_of_any_length_and_alphabet_are_stored_and_found_by_their_words(
    connection: psycopg.Connection, letter: str
) -> None:
    long = letter * 5_000
    fields = [{"name": f"{long}{number}"} for number in range(3_000)] if letter == "x" else [{"name": long}]
    output = dataset(f"shop orders {long}", facets={"schema": facet(fields=fields)})
    stored(connection, [run_event("COMPLETE", job=f"load {long}", outputs=[output])])

    for table, name in (("jobs", "job_namespace || ' ' || job_name"), ("datasets", "canonical_dataset_id")):
        query = f"SELECT count(*) FROM {table} WHERE words_of({name}) @@ %s::tsquery"  # noqa: S608
        for word in ("'load':*", "'airfl':*") if table == "jobs" else ("'ord':* & 'shop'", "'5432'"):
            assert connection.execute(query.encode(), [word]).fetchone() == (1,)
