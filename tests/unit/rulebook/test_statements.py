from typing import Any

import pytest

from correlator.rulebook.identity import job_run_key
from correlator.rulebook.statements import DatasetRef, Edge, JobRef, Node, Statement, statement
from tests.unit.rulebook.histories import (
    DB,
    OTHER_RUN,
    RUN,
    Json,
    dataset,
    dataset_event,
    facet,
    job_event,
    run_event,
)


def name(node: Node) -> str:
    return node.urn if isinstance(node, DatasetRef) else f"job {node.name}"


def arrows(said: Statement) -> list[str]:
    def end(node: Node, field: str) -> str:
        return f"{name(node).removeprefix(f'{DB}/')}{f'.{field}' if field else ''}"

    def kind(edge: Edge) -> str:
        return " ".join(
            filter(None, (edge.origin, edge.transformation, edge.subtype, "masked" if edge.masking else ""))
        )

    return sorted(
        f"{end(edge.source, edge.source_field)} -> {end(edge.target, edge.target_field)} ({kind(edge)})"
        for edge in said.edges
    )


def inputs(said: Statement) -> dict[str, str]:
    return {boundary.dataset.urn.removeprefix(f"{DB}/"): boundary.origin for boundary in said.inputs}


def outputs(said: Statement) -> dict[str, str]:
    return {boundary.dataset.urn.removeprefix(f"{DB}/"): boundary.origin for boundary in said.outputs}


def columns(fields: Json, **members: Any) -> Json:
    return {"columnLineage": facet(fields=fields, **members)}


def source(name: str, field: str, **members: Any) -> Json:
    return {"namespace": DB, "name": name, "field": field, **members}


def data(name: str, **members: Any) -> Json:
    return {"type": "DATASET", "namespace": DB, "name": name, **members}


def lineage(*entries: Json) -> Json:
    return {"lineage": facet(entries=list(entries))}


def test_inputs_and_outputs_are_the_border_of_a_job_and_state_no_edge_of_their_own() -> None:
    said = statement(run_event(inputs=[dataset("a")], outputs=[dataset("b")]))

    assert inputs(said) == {"a": "boundary"}
    assert outputs(said) == {"b": "boundary"}
    assert arrows(said) == []
    assert not said.is_explicit


def test_column_lineage_names_its_sources_even_where_inputs_leave_them_out() -> None:
    fields = {"total": {"inputFields": [source("orders", "amount"), source("rates", "rate")]}}

    said = statement(run_event(inputs=[dataset("orders")], outputs=[dataset("sales", facets=columns(fields))]))

    assert inputs(said) == {"orders": "column_lineage", "rates": "column_lineage"}
    assert arrows(said) == [
        "orders.amount -> sales.total (column_lineage)",
        "rates.rate -> sales.total (column_lineage)",
    ]
    assert list(said.told.values()) == ["column_lineage"]


def test_column_edges_keep_each_transformation() -> None:
    many = [
        {"type": "DIRECT", "subtype": "IDENTITY", "masking": True},
        {"type": "INDIRECT", "subtype": "JOIN"},
    ]
    fields = {"id": {"inputFields": [source("orders", "id", transformations=many)]}}

    said = statement(run_event(outputs=[dataset("sales", facets=columns(fields))]))

    assert arrows(said) == [
        "orders.id -> sales.id (column_lineage DIRECT IDENTITY masked)",
        "orders.id -> sales.id (column_lineage INDIRECT JOIN)",
    ]


def test_the_old_spelling_of_a_transformation_is_understood() -> None:
    fields = {
        "a": {"inputFields": [source("orders", "a")], "transformationType": "IDENTITY"},
        "b": {"inputFields": [source("orders", "b")], "transformationType": "MASKED"},
    }

    said = statement(run_event(outputs=[dataset("sales", facets=columns(fields))]))

    assert arrows(said) == [
        "orders.a -> sales.a (column_lineage DIRECT IDENTITY)",
        "orders.b -> sales.b (column_lineage DIRECT TRANSFORMATION masked)",
    ]


def test_dependencies_of_the_whole_dataset_have_no_target_field() -> None:
    filters = [source("orders", "status", transformations=[{"type": "INDIRECT", "subtype": "FILTER"}])]

    said = statement(run_event(outputs=[dataset("sales", facets=columns({}, dataset=filters))]))

    assert arrows(said) == ["orders.status -> sales (column_lineage INDIRECT FILTER)"]


def test_a_table_that_feeds_itself_does_not_read_its_own_making() -> None:
    fields = {"total": {"inputFields": [source("sales", "total"), source("orders", "amount")]}}

    assert inputs(statement(run_event(outputs=[dataset("sales", facets=columns(fields))]))) == {
        "orders": "column_lineage"
    }


def test_column_lineage_of_an_input_tells_nothing_of_this_run() -> None:
    fields = {"id": {"inputFields": [source("raw", "id")]}}

    said = statement(run_event(inputs=[dataset("orders", facets=columns(fields))], outputs=[dataset("sales")]))

    assert arrows(said) == []
    assert inputs(said) == {"orders": "boundary"}


def test_an_explicit_lineage_facet_states_datasets_and_fields() -> None:
    entry = data(
        "sales",
        inputs=[data("orders")],
        fields={"total": {"inputs": [data("orders", field="amount", transformations=[{"type": "DIRECT"}])]}},
    )

    said = statement(run_event(job_facets=lineage(entry)))

    assert arrows(said) == ["orders -> sales (lineage)", "orders.amount -> sales.total (lineage DIRECT)"]
    assert (inputs(said), outputs(said)) == ({"orders": "lineage"}, {"sales": "lineage"})
    assert said.is_explicit


def test_an_empty_list_of_sources_is_a_statement_too() -> None:
    said = statement(
        run_event(inputs=[dataset("orders")], outputs=[dataset("ids")], job_facets=lineage(data("ids", inputs=[])))
    )

    assert arrows(said) == []
    assert list(said.told.values()) == ["lineage"]


def test_explicit_lineage_is_stronger_than_column_lineage_of_the_same_output() -> None:
    fields = {"id": {"inputFields": [source("orders", "id")]}}

    said = statement(
        run_event(
            outputs=[dataset("sales", facets=columns(fields))], job_facets=lineage(data("sales", inputs=[data("raw")]))
        )
    )

    assert list(said.told.values()) == ["lineage"]


def test_a_job_without_a_name_is_the_events_own() -> None:
    said = statement(run_event(job_facets=lineage({"type": "JOB", "inputs": [data("orders", field="id")]})))

    assert inputs(said) == {"orders": "lineage"}
    assert arrows(said) == ["orders.id -> job etl.orders (lineage)"]


def test_what_another_job_made_is_no_output_of_the_one_that_tells() -> None:
    maker = {"type": "JOB", "namespace": "airflow", "name": "daily.extract"}

    said = statement(run_event(job_facets=lineage(data("summary", inputs=[maker]))))

    assert outputs(said) == {}
    assert arrows(said) == ["job daily.extract -> summary (lineage)"]


def test_a_job_that_is_named_with_a_run_is_that_run() -> None:
    run = "b7dce052-51a6-4d66-98b9-5fd8b78a79c7"
    entry = {"type": "JOB", "namespace": "n", "name": "load", "runId": run, "inputs": [data("orders")]}

    (edge,) = statement(run_event(job_facets=lineage(entry))).edges

    assert isinstance(edge.target, JobRef)
    assert edge.target.run


def own(**members: str) -> Json:
    return {"type": "JOB", **members}


@pytest.mark.parametrize(
    "itself",
    [
        own(),
        own(runId=RUN),
        own(namespace="airflow", name="etl.orders"),
        own(namespace="airflow", name="etl.orders", runId=RUN),
    ],
)
def test_a_lineage_facet_may_name_its_own_job_and_run_or_leave_them_unnamed(itself: Json) -> None:
    said = statement(run_event(job_facets=lineage(data("out", inputs=[itself]), itself | {"inputs": [data("in")]})))

    assert (inputs(said), outputs(said)) == ({"in": "lineage"}, {"out": "lineage"})


def test_another_run_of_the_same_job_is_another() -> None:
    (edge,) = statement(run_event(job_facets=lineage(own(runId=OTHER_RUN) | {"inputs": [data("in")]}))).edges

    assert isinstance(edge.target, JobRef)
    assert edge.target.run == job_run_key("airflow", "etl.orders", OTHER_RUN)


def test_a_rename_is_a_write_of_the_new_name_with_the_old_one_as_input() -> None:
    change = facet(lifecycleStateChange="RENAME", previousIdentifier={"namespace": DB, "name": "t__tmp"})

    said = statement(run_event(outputs=[dataset("t", facets={"lifecycleStateChange": change})]))

    assert (inputs(said), outputs(said)) == ({"t__tmp": "rename"}, {"t": "boundary"})
    assert arrows(said) == ["t__tmp -> t (rename)"]
    assert said.told == {}


def test_any_other_change_of_life_has_no_source() -> None:
    change = facet(lifecycleStateChange="ALTER", previousIdentifier={"namespace": DB, "name": "t__tmp"})

    assert statement(run_event(outputs=[dataset("t", facets={"lifecycleStateChange": change})])).edges == []


def test_a_job_event_declares_inputs_and_outputs() -> None:
    said = statement(job_event(inputs=[dataset("a")], outputs=[dataset("b")]))

    assert (inputs(said), outputs(said)) == ({"a": "boundary"}, {"b": "boundary"})


def test_a_dataset_event_declares_where_its_data_comes_from() -> None:
    facets = {"lineage": facet(inputs=[data("raw")], fields={"id": {"inputs": [data("raw", field="id")]}})}

    said = statement(dataset_event(name="orders", facets=facets))

    assert arrows(said) == ["raw -> orders (lineage)", "raw.id -> orders.id (lineage)"]
    assert said.inputs == []


def test_one_table_in_two_spellings_is_one_input() -> None:
    said = statement(run_event(inputs=[dataset("a"), dataset("a", "postgresql://DB")]))

    assert len({boundary.dataset.key for boundary in said.inputs}) == 1
