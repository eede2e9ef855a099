"""Classes of names in the database: what the rulebook says of all of them at once, however they came about."""

from typing import Any
from uuid import UUID

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from correlator.correlation import names
from correlator.rulebook.aliases import Symlink, called
from correlator.rulebook.events import Event
from correlator.rulebook.fold import fold
from correlator.rulebook.identity import dataset_key
from correlator.store.merge import Merged, merge
from correlator.store.staging import begin, stage
from tests.integration.store.merging import SOURCE, batch_of
from tests.unit.rulebook.histories import dataset, facet, run_event

URNS = [f"{server}/{table}" for server in ("a", "b", "c") for table in ("x", "y", "z")]
PATTERNS = [("a/{t}", "b/{t}"), ("b/{t}", "c/{t}"), ("{s}/x", "d/x"), ("c/{t}", "d/{t}"), ("d/{t}", "a/{t}")]


def key(urn: str) -> UUID:
    return UUID(bytes=dataset_key(urn))


def say(connection: psycopg.Connection, urn: str, links: list[tuple[str, str]] | None) -> None:
    aliases = None if links is None else [[key(other).hex, other, kind] for other, kind in links]
    connection.execute(
        "INSERT INTO datasets (id, canonical_dataset_id, dataset_namespace, dataset_name, named_order, aliases) "
        "VALUES (%s, %s, 'n', 'd', decode(repeat('00', 25), 'hex'), %s) "
        "ON CONFLICT (id) DO UPDATE SET aliases = excluded.aliases",
        [key(urn), urn, None if aliases is None else Jsonb(aliases)],
    )


def classes(connection: psycopg.Connection) -> dict[UUID, tuple[UUID, str]]:
    rows = connection.execute("SELECT dataset_id, class_id, class_urn FROM dataset_classes").fetchall()
    return {dataset_id: (class_id, urn) for dataset_id, class_id, urn in rows}


def expected(connection: psycopg.Connection) -> dict[UUID, tuple[UUID, str]]:
    """The rulebook, asked for all datasets at once."""
    rows = connection.execute("SELECT canonical_dataset_id, aliases FROM datasets").fetchall()
    said = {urn: [Symlink(other, kind) for _, other, kind in aliases or ()] for urn, aliases in rows}
    meant = called(said, said, names.patterns(connection))
    alone = {name for name in meant.values() if sum(other == name for other in meant.values()) == 1}
    return {key(urn): (key(name), name) for urn, name in meant.items() if name not in alone}


LINKS = st.lists(st.tuples(st.sampled_from(URNS), st.sampled_from(["TABLE", "LOCATION"])), max_size=2)
SAID = st.dictionaries(st.sampled_from(URNS), st.none() | LINKS, min_size=1, max_size=3)


@given(
    patterns=st.lists(st.sampled_from(PATTERNS), max_size=3, unique_by=lambda pair: pair[0]),
    batches=st.lists(SAID, min_size=1, max_size=6),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_classes_refreshed_batch_by_batch_are_those_of_all_datasets_at_once(
    connection: psycopg.Connection, patterns: list[tuple[str, str]], batches: list[dict[str, Any]]
) -> None:
    with connection.transaction(force_rollback=True):
        for place, (pattern, target) in enumerate(patterns):
            configure(connection, place, pattern, target)
        for batch in batches:
            for urn, links in batch.items():
                say(connection, urn, links)
            names.refresh(connection, [key(urn) for urn in batch])
            assert classes(connection) == expected(connection)

        incremental = classes(connection)
        names.refresh_all(connection)
        assert classes(connection) == incremental


def configure(connection: psycopg.Connection, place: int, pattern: str, target: str) -> None:
    connection.execute(
        "INSERT INTO kept.dataset_patterns (place, pattern, target, created_by) VALUES (%s, %s, %s, 'test')",
        [place, pattern, target],
    )


def test_a_change_of_patterns_changes_all_classes(connection: psycopg.Connection) -> None:
    for urn in URNS:
        say(connection, urn, None)
    names.refresh_all(connection)
    assert classes(connection) == {}

    configure(connection, 1, "a/{t}", "c/{t}")
    names.refresh_all(connection)
    assert {urn for _, urn in classes(connection).values()} == {"c/x", "c/y", "c/z"}
    # Another goes before it.
    configure(connection, 0, "a/x", "b/x")
    names.refresh_all(connection)
    assert classes(connection)[key("a/x")] == (key("b/x"), "b/x")
    assert key("c/x") not in classes(connection)

    connection.execute("DELETE FROM kept.dataset_patterns")
    names.refresh_all(connection)
    assert classes(connection) == {}


def merged(connection: psycopg.Connection, *events: Event) -> None:
    attempt = begin(connection, SOURCE)
    stage(connection, attempt, fold(events))
    merge(connection, attempt, batch_of(), then=refreshed)


def refreshed(connection: psycopg.Connection[Any], said: Merged) -> None:
    names.refresh(connection, said.renamed, said.schema)


def test_a_merge_joins_names_and_symlinks_that_are_taken_back_split_them(connection: psycopg.Connection) -> None:
    identifier = {"namespace": "hive://m", "name": "orders", "type": "TABLE"}
    linked = dataset("orders", facets={"symlinks": facet(identifiers=[identifier])})
    merged(connection, run_event("COMPLETE", 0, outputs=[linked]))
    table, file = "hive://m:10000/orders", "postgres://db:5432/orders"
    assert classes(connection) == {key(table): (key(table), table), key(file): (key(table), table)}

    deleted = dataset("orders", facets={"symlinks": {**facet(), "_deleted": True}})
    merged(connection, run_event("COMPLETE", 1, outputs=[deleted]))
    assert classes(connection) == {}


def test_a_merge_finds_new_names_that_a_pattern_means(connection: psycopg.Connection) -> None:
    configure(connection, 0, "warehouse/{table}", "postgres://db/{table}")
    merged(connection, run_event("COMPLETE", 0, outputs=[dataset("orders", "warehouse")]))

    assert classes(connection)[key("warehouse/orders")] == (
        key("postgres://db:5432/orders"),
        "postgres://db:5432/orders",
    )


def test_what_stands_is_not_written_again(connection: psycopg.Connection) -> None:
    say(connection, "a/x", [("b/x", "TABLE")])
    names.refresh(connection, [key("a/x")])
    query = "SELECT ctid, xmin, xmax FROM dataset_classes ORDER BY dataset_id"
    before = connection.execute(query).fetchall()

    names.refresh(connection, [key("b/x"), key("a/x")])
    names.refresh_all(connection)

    assert connection.execute(query).fetchall() == before
