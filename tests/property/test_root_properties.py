"""P2 for roots: which incident stands under which is a function of the set of events."""

import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from correlator.correlation.groups import attach_all
from correlator.rulebook.events import Event
from correlator.store.database import Database
from correlator.store.staging import prepare
from tests.integration.correlation.stories import checked, ran, tell
from tests.integration.store.merging import SOURCE

Connection = psycopg.Connection[Any]
READS = {"a": [], "b": ["a"], "c": ["a", "b"], "d": ["c"]}
SIZES = (1, 2, 5, 20)


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    with database.connect("test", autocommit=True) as connection:
        prepare(connection, SOURCE)
        yield connection


def history(luck: random.Random, rounds: int) -> list[Event]:
    """Tables that go bad, pass it on and are mended, runs that fail or are left out, and two tests of each table."""
    events: list[Event] = []
    bad = dict.fromkeys(READS, False)
    minute = 0.0
    for number in range(rounds):
        for table, inputs in READS.items():
            minute += 3
            name, chance = f"{table} {number}", luck.random()
            if chance < 0.1:
                continue
            state = "FAIL" if chance < 0.22 else "COMPLETE"
            events += ran(f"make {table}", name, minute, minute + 1, reads=inputs, writes=[table], state=state)
            if state == "COMPLETE":
                has_come_in = any(bad[other] for other in inputs) and luck.random() < 0.8
                bad[table] = has_come_in or luck.random() < 0.15
            for test in ("not_null", "unique"):
                if luck.random() < 0.6:
                    good = not (bad[table] and luck.random() < 0.8)
                    severity = None if good else luck.choice([None, None, "warn"])
                    at = minute + 1.2 + luck.random()
                    events += checked(table, f"{test} {name}", at, good=good, test=test, severity=severity)
    return events


def roots(connection: Connection) -> dict[UUID, UUID | None]:
    return dict(connection.execute("SELECT id, root_id FROM incidents").fetchall())


@given(seed=st.integers(0, 1_000_000), rounds=st.integers(2, 6))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_roots_are_the_same_for_any_order_and_split_and_when_all_is_looked_at_anew(
    connection: Connection, seed: int, rounds: int
) -> None:
    luck = random.Random(seed)
    events = history(luck, rounds)
    found = []
    for is_shuffled in (False, True, True):
        if is_shuffled:
            luck.shuffle(events)
        with connection.transaction(force_rollback=True):
            told = 0
            while told < len(events):
                size = luck.choice(SIZES)
                tell(connection, events[told : told + size])
                told += size
            found.append(roots(connection))
            attach_all(connection)
            found.append(roots(connection))

    assert all(one == found[0] for one in found)
