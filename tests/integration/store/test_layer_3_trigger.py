"""Layer 3: the database itself refuses to change how a run ended, whoever asks and however."""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.errors import CheckViolation, InsufficientPrivilege

from correlator.store.database import Database
from tests.integration.conftest import Postgres, database_url, new_database

RUN = UUID("550e8400-e29b-41d4-a716-446655440000")
TERMINAL = ("COMPLETE", "FAIL", "ABORT")
STATES = ("START", "RUNNING", "OTHER", *TERMINAL)
HINT = "Terminal states (COMPLETE/FAIL/ABORT) can only transition to themselves (idempotent)"

INSERT = """
INSERT INTO job_runs (
    id, job_id, first_event_at, event_time, current_state, event_type,
    canonical_job_run_id, job_namespace, job_name, run_id, producer, last_event_order
) VALUES (%s, %s, now(), now(), %s, %s, 'id', 'airflow', 'etl.orders', 'run', 'https://example.com', %s)
"""


@pytest.fixture(scope="module")
def shared(postgres: Postgres, migrated_template: str) -> Iterator[Database]:
    with new_database(postgres, migrated_template) as name:
        yield Database(database_url(postgres, name))


@pytest.fixture
def database(shared: Database) -> Iterator[Database]:
    """One for all tests here, without the runs of the last."""
    yield shared
    with shared.connect("test", autocommit=True) as connection:
        connection.execute("DELETE FROM job_runs")


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect("test", autocommit=True) as connection:
        yield connection


def insert(connection: psycopg.Connection, state: str, run: UUID = RUN, more: str = "") -> None:
    connection.execute(INSERT + more, [run, uuid4(), state, state, bytes(25)])


def state(connection: psycopg.Connection, run: UUID = RUN) -> str | None:
    row = connection.execute("SELECT current_state FROM job_runs WHERE id = %s", [run]).fetchone()
    return None if row is None else row[0]


def update(connection: psycopg.Connection, new: str | None) -> None:
    connection.execute("UPDATE job_runs SET current_state = %s", [new])


@pytest.mark.parametrize(("old", "new"), [(old, new) for old, new in itertools.product(TERMINAL, STATES) if old != new])
def test_no_update_turns_an_end_into_anything_else(connection: psycopg.Connection, old: str, new: str) -> None:
    insert(connection, old)

    with pytest.raises(CheckViolation) as refused:
        update(connection, new)

    said = refused.value.diag
    assert said.message_primary == f"Invalid state transition: {old} -> {new} (terminal states are immutable)"
    assert said.message_hint == HINT
    assert (said.schema_name, said.table_name) == ("facts", "job_runs")
    assert said.constraint_name == "job_run_state_validation"
    assert state(connection) == old


@pytest.mark.parametrize("end", TERMINAL)
def test_an_end_may_be_said_again(connection: psycopg.Connection, end: str) -> None:
    insert(connection, end)

    update(connection, end)
    connection.execute("""UPDATE job_runs SET facets = '{"late": {}}', complete_at = now() - interval '1 day'""")

    assert state(connection) == end


@pytest.mark.parametrize("end", TERMINAL)
def test_a_run_that_has_not_ended_may_become_anything(connection: psycopg.Connection, end: str) -> None:
    insert(connection, "OTHER")

    for new in ("START", "RUNNING", "OTHER", "START", end):
        update(connection, new)
        assert state(connection) == new


def test_an_end_cannot_be_emptied(connection: psycopg.Connection) -> None:
    insert(connection, "FAIL")

    with pytest.raises(CheckViolation, match="FAIL -> <NULL>"):
        update(connection, None)


def test_an_upsert_is_an_update(connection: psycopg.Connection) -> None:
    insert(connection, "COMPLETE")
    upsert = "ON CONFLICT (id) DO UPDATE SET current_state = excluded.current_state"

    with pytest.raises(CheckViolation, match="COMPLETE -> RUNNING"):
        insert(connection, "RUNNING", more=upsert)
    insert(connection, "COMPLETE", more=upsert)


def test_a_merge_is_an_update(connection: psycopg.Connection) -> None:
    insert(connection, "FAIL")

    with pytest.raises(CheckViolation, match="FAIL -> COMPLETE"):
        connection.execute(
            """
            MERGE INTO job_runs USING (VALUES (%s::uuid)) AS said (id) ON job_runs.id = said.id
            WHEN MATCHED THEN UPDATE SET current_state = 'COMPLETE'
            """,
            [RUN],
        )


def test_one_ended_run_among_many_refuses_the_whole_update(connection: psycopg.Connection) -> None:
    runs = [uuid4() for _ in range(20)]
    for run in runs:
        insert(connection, "RUNNING", run)
    insert(connection, "ABORT")

    with pytest.raises(CheckViolation, match="ABORT -> COMPLETE"):
        update(connection, "COMPLETE")
    assert {state(connection, run) for run in runs} == {"RUNNING"}


def test_an_ended_run_cannot_be_renamed_to_make_room_for_another(connection: psycopg.Connection) -> None:
    insert(connection, "COMPLETE")

    with pytest.raises(CheckViolation, match=f"run {RUN} cannot become run"):
        connection.execute("UPDATE job_runs SET id = %s", [uuid4()])


def test_turning_triggers_off_for_the_session_does_not_help(connection: psycopg.Connection) -> None:
    insert(connection, "COMPLETE")
    with suppress(InsufficientPrivilege):  # who may not even try is refused as well
        connection.execute("SET session_replication_role = replica")

    with pytest.raises(CheckViolation, match="COMPLETE -> START"):
        update(connection, "START")


def test_it_holds_for_who_has_another_search_path(database: Database) -> None:
    with database.connect("test") as connection:
        insert(connection, "COMPLETE")
        connection.execute("SET search_path = ''")
        with pytest.raises(CheckViolation, match="COMPLETE -> START"):
            connection.execute("UPDATE facts.job_runs SET current_state = 'START'")


def test_the_merge_may_put_another_row_in_place_of_one(database: Database) -> None:
    """How a late event that changes which end came first gets through: by no UPDATE."""
    with database.connect("test") as connection:
        insert(connection, "COMPLETE")
        connection.execute("DELETE FROM job_runs WHERE id = %s", [RUN])
        insert(connection, "FAIL")
        connection.commit()

        assert state(connection) == "FAIL"


@pytest.mark.parametrize("state", ["", "complete", "DONE"])
def test_a_state_is_one_that_openlineage_knows(connection: psycopg.Connection, state: str) -> None:
    with pytest.raises(CheckViolation, match="current_state"):
        insert(connection, state)


def test_it_goes_by_the_names_of_the_validation_document(connection: psycopg.Connection) -> None:
    found = connection.execute(
        """
        SELECT tgname, proname, pg_get_triggerdef(pg_trigger.oid) LIKE '%BEFORE UPDATE ON facts.job_runs FOR EACH ROW%'
        FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid
        WHERE tgrelid = 'job_runs'::regclass AND NOT tgisinternal
        """
    ).fetchall()

    assert found == [("job_run_state_validation", "validate_job_run_state_transition", True)]
