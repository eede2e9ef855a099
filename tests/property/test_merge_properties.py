"""P2 in the database: the tables are a function of the set of events, however these are batched and repeated."""

from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from correlator.rulebook.bundles import bundles, unbundle
from correlator.rulebook.facts import Facts
from correlator.rulebook.fold import fold
from correlator.store.database import Database
from correlator.store.fact_rows import read_facts
from correlator.store.merge import merge
from correlator.store.staging import FactRow, begin, prepare, stage
from tests.integration.store.merging import (
    SOURCE,
    apply,
    batch_of,
    check_constraints,
    check_what_is_derived,
    differences,
    versions,
)
from tests.property.test_fold_properties import HISTORIES, RUN_EVENTS
from tests.unit.rulebook.histories import Json, accepted, at

OF_ONE_RUN = st.lists(RUN_EVENTS, min_size=2, max_size=8).map(
    lambda history: [event | {"run": event["run"] | {"runId": "one"}, "job": history[0]["job"]} for event in history]
)
"""The states of one run in every order, with facets that come, change and go."""

in_one_database = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
"""Each example is rolled back; a commit's own checks are asked for."""


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect("test", autocommit=True) as connection:
        prepare(connection, SOURCE)
        yield connection


@given(history=st.one_of(HISTORIES, OF_ONE_RUN), data=st.data())
@in_one_database
def test_any_order_duplication_and_split_gives_equal_tables(
    connection: psycopg.Connection, history: list[Json], data: st.DataObject
) -> None:
    expected = fold(map(accepted, history))
    again = data.draw(st.lists(st.sampled_from(history), max_size=4))
    batches: list[list[Json]] = [[], [], []]
    for event in data.draw(st.permutations(history + again)):
        batches[data.draw(st.integers(0, 2))].append(event)

    with connection.transaction(force_rollback=True):
        for batch in batches:
            attempt = begin(connection, SOURCE)
            for task, rows in enumerate(tasks(fold(map(accepted, batch)), data)):
                stage(connection, attempt, rows, number=attempt.part(task))
            for _ in range(data.draw(st.integers(1, 2))):
                merge(connection, attempt, batch_of())
        check_constraints(connection)

        assert differences(expected, read_facts(connection)) == []
        check_what_is_derived(connection, expected)


def tasks(facts: Facts, data: st.DataObject) -> Iterator[list[FactRow]]:
    """Rows as two tasks have them, each entity in one; either may have been tried twice."""
    entities = [payload for _, payload in bundles(facts)]
    shares = [[row for payload in entities[number::2] for row in unbundle(payload)] for number in range(2)]
    return (share for share in shares for _ in range(data.draw(st.integers(1, 2))))


@given(history=HISTORIES)
@in_one_database
def test_a_batch_that_is_merged_again_writes_nothing(connection: psycopg.Connection, history: list[Json]) -> None:
    with connection.transaction(force_rollback=True):
        apply(connection, fold(map(accepted, history)))
        before = versions(connection)

        for part in (history, history[1:], history[:1]):
            apply(connection, fold(map(accepted, part)))

        assert versions(connection) == before


STATES = st.sampled_from(["START", "RUNNING", "COMPLETE", "FAIL"])


@given(said=st.lists(st.tuples(STATES, st.integers(0, 90)), min_size=100, max_size=180), data=st.data())
@settings(in_one_database, max_examples=15)
def test_a_history_that_never_ends_keeps_its_beginning_and_its_end(
    connection: psycopg.Connection, said: list[tuple[str, int]], data: st.DataObject
) -> None:
    events = [
        accepted(
            {
                "eventType": state,
                "eventTime": at(minute),
                "producer": "https://example.com/producer",
                "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json",
                "run": {"runId": "one"},
                "job": {"namespace": "airflow", "name": "stream"},
            }
        )
        for state, minute in said
    ]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), min_size=1, max_size=4)))
    with connection.transaction(force_rollback=True):
        for first, last in zip([0, *cuts], [*cuts, len(events)], strict=True):
            apply(connection, fold(events[first:last]))

        assert differences(fold(events), read_facts(connection)) == []
        check_what_is_derived(connection, fold(events))
