"""The graph as it stood at a moment, asked of real tables."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from correlator.correlation import names
from correlator.correlation.lineage import ColumnNode, DatasetNode, Edge, Graph, JobNode, difference, graph
from correlator.correlation.starts import NodeError, UnknownNodeError, find_start
from correlator.rulebook.events import Event
from correlator.rulebook.fold import fold
from tests.integration.store.merging import apply
from tests.unit.rulebook.histories import DB, Json, assertions, dataset, dataset_event, facet, job_event, run_event


def stored(connection: psycopg.Connection, events: Iterable[Event]) -> None:
    apply(connection, fold(events))


def moment(minute: float) -> datetime:
    return datetime(2026, 5, 4, 10, tzinfo=UTC) + timedelta(minutes=minute)


def ran(job: str, minute: float, inputs: str = "", outputs: str = "", state: str = "COMPLETE", **parts: Any) -> Event:
    return run_event(
        state,
        minute,
        job=job,
        run=str(uuid4()),
        inputs=[dataset(name) for name in inputs.split()],
        outputs=[dataset(name) for name in outputs.split()],
        **parts,
    )


def ask(connection: psycopg.Connection, node: str, **question: Any) -> Graph:
    return graph(connection, find_start(connection, node), **question)


def short(id_: str) -> str:
    """Without what is the same everywhere."""
    return id_.replace(f"dataset:{DB}/", "").replace(f"column:{DB}/", "").replace("job:airflow/", "@")


def drawn(found: Graph) -> set[str]:
    """Each edge as `source > target`, with `~` for what is only declared."""
    return {f"{short(e.source)} {'~' if e.declared else '>'} {short(e.target)}" for e in found.edges}


def shown(found: Graph) -> dict[str, int]:
    return {short(node.id): node.distance for node in found.nodes}


def edge(found: Graph, source: str, target: str) -> Edge:
    (one,) = [e for e in found.edges if (short(e.source), short(e.target)) == (source, target)]
    return one


CHAIN = [ran("one", 0, "a", "b"), ran("two", 1, "b", "c"), ran("three", 2, "c", "d")]


def test_a_chain_is_walked_both_ways_as_far_as_asked(connection: psycopg.Connection) -> None:
    stored(connection, CHAIN)

    down = ask(connection, f"dataset:{DB}/a", direction="down")
    assert drawn(down) == {"a > @one", "@one > b", "b > @two", "@two > c", "c > @three", "@three > d"}
    assert shown(down) == {"a": 0, "@one": 1, "b": 1, "@two": 2, "c": 2, "@three": 3, "d": 3}
    up = ask(connection, f"dataset:{DB}/d", direction="up", depth=2)
    assert drawn(up) == {"b > @two", "@two > c", "c > @three", "@three > d"}
    both = ask(connection, f"dataset:{DB}/b", depth=1)
    assert shown(both) == {"b": 0, "@one": -1, "a": -1, "@two": 1, "c": 1}
    assert drawn(ask(connection, f"dataset:{DB}/a", direction="up")) == set()


def test_a_job_and_a_run_are_nodes_to_ask_from(connection: psycopg.Connection) -> None:
    stored(connection, [*CHAIN, run_event("FAIL", 5, job="two", run="bad", inputs=[dataset("x")])])

    two = ask(connection, "job:airflow/two", depth=1)
    assert drawn(two) == {"b > @two", "@two > c"}
    assert drawn(ask(connection, "job:airflow/two", depth=2)) == drawn(two) | {"a > @one", "@one > b"} | {
        "c > @three",
        "@three > d",
    }
    # What this very run did, whatever became of it.
    assert drawn(ask(connection, "run:bad")) == {"x > @two"}
    (job,) = [node for node in two.nodes if isinstance(node, JobNode)]
    assert job.run_at == moment(1)


@pytest.mark.parametrize("node", ["a", "table:a", "dataset:", "column:x", "column:#c", "column:x#"])
def test_what_is_no_node_is_told_how_to_write_one(connection: psycopg.Connection, node: str) -> None:
    with pytest.raises(NodeError, match="write"):
        find_start(connection, node)


@pytest.mark.parametrize("node", ["dataset:no", "job:a/b", "job:a", "run:no", f"run:{'0' * 64}", "column:no#c"])
def test_what_nobody_named_is_unknown(connection: psycopg.Connection, node: str) -> None:
    with pytest.raises(UnknownNodeError, match="No event"):
        find_start(connection, node)


def test_as_of_a_moment_the_last_completed_run_of_each_job_counts(connection: psycopg.Connection) -> None:
    stored(
        connection,
        [ran("load", 0, "a", "out"), ran("load", 10, "b", "out"), ran("load", 20, "c", "out", state="FAIL")],
    )

    def inputs(as_of: datetime | None) -> set[str]:
        return drawn(ask(connection, f"dataset:{DB}/out", direction="up", as_of=as_of)) - {"@load > out"}

    assert inputs(None) == {"b > @load"}
    assert inputs(moment(10)) == {"b > @load"}
    assert inputs(moment(9.9)) == {"a > @load"}
    assert inputs(moment(-1)) == set()
    # Who was read once is not read any more.
    assert drawn(ask(connection, f"dataset:{DB}/a")) == set()


def test_a_stream_counts_while_it_runs(connection: psycopg.Connection) -> None:
    streaming = {"jobType": facet(processingType="STREAMING", integration="FLINK")}
    events = [
        run_event(state, minute, job="flow", inputs=[dataset("in")], outputs=[dataset(name)], job_facets=streaming)
        for state, minute, name in (("START", 0, "out"), ("RUNNING", 5, "out"), ("RUNNING", 9, "late"))
    ]
    stored(connection, events)

    assert drawn(ask(connection, f"dataset:{DB}/in")) == {"in > @flow", "@flow > out", "@flow > late"}
    assert drawn(ask(connection, f"dataset:{DB}/in", as_of=moment(6))) == {"in > @flow", "@flow > out"}
    assert drawn(ask(connection, f"dataset:{DB}/in", as_of=moment(4))) == set()


def test_names_of_one_dataset_are_one_node(connection: psycopg.Connection) -> None:
    link = {"symlinks": facet(identifiers=[{"namespace": "hive://m", "name": "orders", "type": "TABLE"}])}
    stored(
        connection,
        [
            run_event(
                "COMPLETE", 0, job="write", run="w", inputs=[dataset("a")], outputs=[dataset("file", facets=link)]
            ),
            run_event(
                "COMPLETE", 1, job="read", run="r", inputs=[dataset("orders", "hive://m")], outputs=[dataset("z")]
            ),
        ],
    )
    names.refresh_all(connection)
    table = "dataset:hive://m:10000/orders"

    for node in (table, f"dataset:{DB}/file"):
        found = ask(connection, node)
        assert found.start == table
        assert drawn(found) == {"a > @write", f"@write > {table}", f"{table} > @read", "@read > z"}
    (one,) = [n for n in ask(connection, table).nodes if isinstance(n, DatasetNode) and n.distance == 0]
    assert (one.urn, one.name, one.names) == ("hive://m:10000/orders", "orders", [f"{DB}/file"])


def test_what_only_looks_at_data_is_no_lineage(connection: psycopg.Connection) -> None:
    test = {"jobType": facet(processingType="BATCH", integration="DBT", jobType="TEST")}
    checked = dataset("a", inputFacets=assertions({"assertion": "unique", "success": True}))
    stored(
        connection,
        [
            ran("test", 0, "a", "audit", job_facets=test),
            run_event("COMPLETE", 0, job="check", run="c", inputs=[checked]),
            ran("export", 0, "a"),
        ],
    )

    assert drawn(ask(connection, f"dataset:{DB}/a")) == {"a > @export"}


def columns(**fields: list[tuple[str, str]]) -> Json:
    return {
        "columnLineage": facet(
            fields={
                field: {"inputFields": [{**dataset(table), "field": column} for table, column in sources]}
                for field, sources in fields.items()
            }
        )
    }


def test_column_lineage_says_which_input_goes_where(connection: psycopg.Connection) -> None:
    stored(
        connection,
        [
            run_event(
                "COMPLETE",
                job="load",
                inputs=[dataset("a"), dataset("b"), dataset("unused")],
                outputs=[
                    dataset("x", facets=columns(id=[("a", "id")])),
                    dataset("y", facets=columns(id=[("b", "id")])),
                    dataset("all"),
                ],
            )
        ],
    )

    assert drawn(ask(connection, f"dataset:{DB}/a", direction="down")) == {"a > @load", "@load > x", "@load > all"}
    assert drawn(ask(connection, f"dataset:{DB}/y", direction="up")) == {"b > @load", "@load > y"}
    assert drawn(ask(connection, f"dataset:{DB}/unused", direction="down")) == {"unused > @load", "@load > all"}
    whole = ask(connection, "job:airflow/load")
    assert edge(whole, "@load", "x").sources == [f"dataset:{DB}/a"]
    assert edge(whole, "@load", "all").sources is UNSET


def test_of_an_only_output_the_inputs_that_columns_name_are_its_sources(connection: psycopg.Connection) -> None:
    told = dataset("x", facets=columns(id=[("a", "id"), ("hidden", "id")]))
    stored(connection, [run_event("COMPLETE", job="load", inputs=[dataset("a"), dataset("looked_up")], outputs=[told])])

    assert drawn(ask(connection, f"dataset:{DB}/x")) == {"a > @load", "hidden > @load", "@load > x"}
    assert drawn(ask(connection, f"dataset:{DB}/looked_up")) == {"looked_up > @load"}


def test_an_explicit_lineage_facet_is_the_strongest(connection: psycopg.Connection) -> None:
    entry = {"type": "DATASET", **dataset("x"), "inputs": [{"type": "DATASET", **dataset("a")}]}
    explicit = {"lineage": facet(entries=[entry])}
    told = dataset("x", facets=columns(id=[("b", "id")]))
    stored(
        connection,
        [
            run_event(
                "COMPLETE", job="load", job_facets=explicit, inputs=[dataset("b")], outputs=[told, dataset("other")]
            )
        ],
    )

    assert drawn(ask(connection, f"dataset:{DB}/x", direction="up")) == {"a > @load", "@load > x"}
    assert drawn(ask(connection, f"dataset:{DB}/other", direction="up")) == {"@load > other"}


def test_a_rename_leads_from_the_old_name_to_the_new_one_alone(connection: psycopg.Connection) -> None:
    renamed = {"lifecycleStateChange": facet(lifecycleStateChange="RENAME", previousIdentifier=dataset("t__tmp"))}
    outputs = [dataset("t", facets=renamed), dataset("log")]
    stored(connection, [run_event("COMPLETE", job="swap", inputs=[dataset("a")], outputs=outputs)])

    assert drawn(ask(connection, f"dataset:{DB}/t__tmp")) == {"t__tmp > @swap", "@swap > t"}
    assert drawn(ask(connection, f"dataset:{DB}/log")) == {"a > @swap", "@swap > log"}


def test_what_is_declared_stands_until_it_is_declared_again_and_is_told_apart(connection: psycopg.Connection) -> None:
    stored(
        connection,
        [
            job_event(0, job="plan", inputs=[dataset("a")], outputs=[dataset("x")]),
            job_event(10, job="plan", inputs=[dataset("b")], outputs=[dataset("x")]),
            ran("plan", 20, "b", "y"),
        ],
    )

    assert drawn(ask(connection, f"dataset:{DB}/x", as_of=moment(5))) == {"a ~ @plan", "@plan ~ x"}
    assert drawn(ask(connection, f"dataset:{DB}/x", as_of=moment(15))) == {"b ~ @plan", "@plan ~ x"}
    assert drawn(ask(connection, f"dataset:{DB}/b")) == {"b > @plan", "@plan ~ x", "@plan > y"}
    assert drawn(ask(connection, f"dataset:{DB}/a")) == set()
    declared_only = ask(connection, f"dataset:{DB}/a", as_of=moment(5))
    assert [node.run_id for node in declared_only.nodes if isinstance(node, JobNode)] == [None]


def test_a_dataset_tells_itself_what_it_is_made_of(connection: psycopg.Connection) -> None:
    stored(connection, [dataset_event(0, name="view", facets=columns(id=[("a", "id"), ("b", "id")]))])

    assert drawn(ask(connection, f"dataset:{DB}/view")) == {"a ~ view", "b ~ view"}
    assert drawn(ask(connection, f"dataset:{DB}/a")) == {"a ~ view"}
    assert drawn(ask(connection, f"dataset:{DB}/a", as_of=moment(-1))) == set()
    found = ask(connection, f"column:{DB}/a#id", level="column")
    assert drawn(found) == {"a#id ~ view#id"}


def test_columns_are_followed_from_table_to_table(connection: psycopg.Connection) -> None:
    stored(
        connection,
        [
            run_event(
                "COMPLETE",
                job="one",
                run="1",
                outputs=[dataset("b", facets=columns(id=[("a", "id")], total=[("a", "price"), ("a", "tax")]))],
            ),
            run_event("COMPLETE", job="two", run="2", outputs=[dataset("c", facets=columns(sum=[("b", "total")]))]),
        ],
    )

    down = ask(connection, f"column:{DB}/a#tax", direction="down", level="column")
    assert drawn(down) == {"a#tax > b#total", "b#total > c#sum"}
    assert {n.column: n.distance for n in down.nodes if isinstance(n, ColumnNode)} == {"tax": 0, "total": 1, "sum": 2}
    assert down.edges[0].job == "job:airflow/one"
    up = ask(connection, f"column:{DB}/c#sum", direction="up", level="column")
    assert drawn(up) == {"b#total > c#sum", "a#price > b#total", "a#tax > b#total"}
    whole = ask(connection, f"dataset:{DB}/b", direction="up", level="column")
    assert drawn(whole) == {"a#id > b#id", "a#price > b#total", "a#tax > b#total"}
    assert drawn(ask(connection, "job:airflow/two", level="column", direction="down", depth=1)) == {"b#total > c#sum"}


def test_a_difference_says_what_came_and_went(connection: psycopg.Connection) -> None:
    stored(connection, [ran("load", 0, "a", "out"), ran("load", 10, "b", "out"), ran("new", 12, "out", "more")])
    node = f"dataset:{DB}/out"

    found = difference(ask(connection, node, as_of=moment(5)), ask(connection, node, as_of=moment(15)))

    assert {short(n.id) for n in found.added_nodes} == {"b", "@new", "more"}
    assert {short(n.id) for n in found.removed_nodes} == {"a"}
    assert {(short(e.source), short(e.target)) for e in found.removed_edges} == {("a", "@load")}
    assert len(found.added_edges) == 3
    same = difference(ask(connection, node), ask(connection, node))
    assert [*same.added_nodes, *same.removed_nodes, *same.added_edges, *same.removed_edges] == []


def test_what_is_ignored_is_not_shown(connection: psycopg.Connection) -> None:
    stored(connection, [*CHAIN, ran("sandbox.try", 5, "a", "junk"), ran("keep", 6, "a", "tmp_x")])
    connection.execute(
        "INSERT INTO kept.ignored_names (kind, pattern, created_by) "
        "VALUES ('job', 'airflow/sandbox.*', 'me'), ('dataset', '*/tmp?x', 'me')"
    )

    assert drawn(ask(connection, f"dataset:{DB}/a", depth=1)) == {"a > @one", "@one > b", "a > @keep"}


def test_a_graph_larger_than_an_answer_may_be_says_so(connection: psycopg.Connection) -> None:
    stored(connection, CHAIN)
    found = ask(connection, f"dataset:{DB}/a", most_nodes=3)
    assert found.truncated
    assert not ask(connection, f"dataset:{DB}/a").truncated


def test_a_cycle_ends(connection: psycopg.Connection) -> None:
    stored(connection, [ran("one", 0, "a", "b"), ran("two", 1, "b", "a"), ran("self", 2, "a", "a")])
    found = ask(connection, f"dataset:{DB}/a", depth=100)
    assert drawn(found) == {"a > @one", "@one > b", "b > @two", "@two > a", "a > @self", "@self > a"}


JOBS = st.lists(
    st.tuples(st.lists(st.integers(0, 7), max_size=3), st.lists(st.integers(0, 7), max_size=2)), min_size=1, max_size=8
)


@given(jobs=JOBS, start=st.integers(0, 7), depth=st.integers(1, 5))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_walk_reaches_what_can_be_reached(
    connection: psycopg.Connection, jobs: list[tuple[list[int], list[int]]], start: int, depth: int
) -> None:
    events = [
        ran(f"j{number}", number, " ".join(f"d{i}" for i in inputs), " ".join(f"d{o}" for o in outputs))
        for number, (inputs, outputs) in enumerate(jobs)
    ]
    expected = {start}
    for _ in range(depth):
        expected |= {output for inputs, outputs in jobs if expected & set(inputs) for output in outputs}
    with connection.transaction(force_rollback=True):
        stored(connection, [*events, ran("other", 0, f"d{start}")])

        found = ask(connection, f"dataset:{DB}/d{start}", direction="down", depth=depth)

    assert {short(n.id) for n in found.nodes if isinstance(n, DatasetNode)} == {f"d{number}" for number in expected}
