"""Jobs, runs, datasets and search, asked of real tables."""

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from correlator.correlation import names
from correlator.correlation.datasets import DatasetQuestion, find_dataset, list_datasets
from correlator.correlation.jobs import JobQuestion, find_job, list_jobs
from correlator.correlation.runs import AmbiguousRunError, find_run
from correlator.correlation.search import search
from correlator.rulebook.events import Event
from correlator.rulebook.fold import fold
from correlator.rulebook.identity import canonical_job_run_id
from correlator.rulebook.redaction import Redaction
from tests.integration.store.merging import apply
from tests.unit.rulebook.histories import DB, Json, assertions, dataset, facet, parent, run_event

OPEN = Redaction()


def stored(connection: psycopg.Connection, events: Iterable[Event]) -> None:
    apply(connection, fold(events))


def ran(job: str, minute: float = 0, **parts: Any) -> Event:
    return run_event(parts.pop("state", "COMPLETE"), minute, job=job, run=parts.pop("run", str(uuid4())), **parts)


def schema(*columns: str) -> Json:
    return {"schema": facet(fields=[{"name": column, "type": "int"} for column in columns])}


def test_jobs_are_listed_page_by_page_and_new_ones_disturb_no_page(connection: psycopg.Connection) -> None:
    stored(connection, [ran(f"job{number}") for number in range(5)])

    first = list_jobs(connection, JobQuestion(), limit=2)
    stored(connection, [ran("job0a"), ran("job2a")])
    second = list_jobs(connection, JobQuestion(), limit=10, after=first[-1][0])

    assert [job.name for _, job in first] == ["job0", "job1"]
    assert [job.name for _, job in second] == ["job2", "job2a", "job3", "job4"]
    assert [job.name for _, job in list_jobs(connection, JobQuestion(q="JOB2"), limit=9)] == ["job2", "job2a"]
    assert list_jobs(connection, JobQuestion(namespace="other"), limit=9) == []


def test_a_job_has_its_children_over_all_runs_also_if_it_never_spoke_itself(connection: psycopg.Connection) -> None:
    stored(
        connection,
        [ran("dag.old", 0, run_facets=parent("dag1"))]
        + [ran("dag.load", minute, run_facets=parent(f"dag{minute}")) for minute in range(3)]
        + [ran("dag.test", 3, state="FAIL", run_facets=parent("dag3")), ran("elsewhere")],
    )

    found = find_job(connection, "airflow", "dag", OPEN)

    assert found is not None
    assert [child.name for child in found.children] == ["dag.load", "dag.old", "dag.test"]
    assert [child.last_run and child.last_run.state for child in found.children] == ["COMPLETE", "COMPLETE", "FAIL"]
    assert (found.runs, found.last_event_at) == ([], None)
    task = find_job(connection, "airflow", "dag.load", OPEN)
    assert task is not None
    assert [(each.namespace, each.name) for each in task.parents] == [("airflow", "dag")]
    assert len(task.runs) == 3
    assert find_job(connection, "airflow", "no", OPEN) is None


def test_a_run_that_says_later_that_it_ran_under_another_job_is_no_child_of_the_first(
    connection: psycopg.Connection,
) -> None:
    run = str(uuid4())
    stored(connection, [ran("dag.load", 0, state="START", run=run, run_facets=parent("dag1"))])
    stored(connection, [ran("dag.load", 1, run=run, run_facets=parent("other1", job="other"))])

    first, other = (find_job(connection, "airflow", name, OPEN) for name in ("dag", "other"))

    assert first is not None
    assert other is not None
    assert [child.name for child in other.children] == ["dag.load"]
    assert first.children == []


def test_a_run_has_its_states_its_family_what_it_used_and_what_cannot_be_true(connection: psycopg.Connection) -> None:
    rows = {"outputStatistics": facet(rowCount=7, size=70)}
    family = parent("dag1", root="root1")
    stored(
        connection,
        [
            run_event("START", 0, run="r", run_facets=family, inputs=[dataset("a")]),
            run_event("COMPLETE", 1, run="r", outputs=[dataset("b", outputFacets=rows)]),
            run_event("FAIL", 2, run="r"),
            ran(
                "child",
                1,
                run_facets={"parent": facet(run={"runId": "r"}, job={"namespace": "airflow", "name": "etl.orders"})},
            ),
        ],
    )

    found = find_run(connection, "r", OPEN)

    assert found is not None
    assert [(change.state) for change in found.state_history] == ["START", "COMPLETE", "FAIL"]
    assert found.state == "COMPLETE"
    assert [said.kind for said in found.contradictions] == ["two_ends"]
    assert found.parent is not None
    assert (found.parent.run_id, found.parent.job.name) == ("dag1", "dag")
    assert found.root is not None
    assert found.root.run_id == "root1"
    assert [child.job.name for child in found.children] == ["child"]
    assert ([use.urn for use in found.inputs], [use.rows for use in found.outputs]) == ([f"{DB}/a"], [7])
    assert find_run(connection, found.id, OPEN) == found
    # Known as a parent only.
    dag = find_run(connection, canonical_job_run_id("airflow", "dag", "dag1"), OPEN)
    assert dag is not None
    assert (dag.run_id, dag.state, [child.run_id for child in dag.children]) == ("dag1", None, ["r"])
    assert find_run(connection, "nothing", OPEN) is None


def test_a_run_id_that_several_jobs_use_is_ambiguous(connection: psycopg.Connection) -> None:
    stored(connection, [ran("one", run="same"), ran("two", run="same")])
    with pytest.raises(AmbiguousRunError, match="2 runs have the id 'same'"):
        find_run(connection, "same", OPEN)


def test_a_dataset_is_told_of_under_all_its_names(connection: psycopg.Connection) -> None:
    link = {"symlinks": facet(identifiers=[{"namespace": "hive://m", "name": "orders", "type": "TABLE"}])}
    owner = {"ownership": facet(owners=[{"name": "team:shop", "type": "OWNER"}])}
    tested = dataset(
        "orders", "hive://m", inputFacets=assertions({"assertion": "unique", "success": False, "column": "id"})
    )
    stored(
        connection,
        [
            ran("write", 0, outputs=[dataset("file", facets=schema("id") | link | owner)]),
            ran("write", 1, outputs=[dataset("file", facets=schema("id"))]),
            ran("write", 2, outputs=[dataset("file", facets=schema("id", "price"))]),
            ran("read", 3, inputs=[dataset("orders", "hive://m")]),
            ran("test", 4, inputs=[tested]),
        ],
    )
    names.refresh_all(connection)

    for urn in (f"{DB}/file", "hive://m:10000/orders"):
        found = find_dataset(connection, urn, OPEN)
        assert found is not None
        assert found.called == "hive://m:10000/orders"
        assert [owner.name for owner in found.owners] == ["team:shop"]
        assert [len(version.body["fields"]) for version in found.schema_versions] == [2, 1]
        assert [change.facet for change in found.history] == ["ownership"]
        assert [use.run.job.name for use in found.writes] == ["write", "write", "write"]
        assert {use.run.job.name for use in found.reads} == {"read", "test"}
        assert [(test.name, test.column, test.last_result and test.last_result.status) for test in found.tests] == [
            ("unique", "id", "fail")
        ]
    listed = list_datasets(connection, DatasetQuestion(), limit=9)
    assert {dataset.called for _, dataset in listed} == {"hive://m:10000/orders"}
    assert find_dataset(connection, "no/such", OPEN) is None


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("order_items", {"dataset:shop.order_items"}),
        ("ITEMS shop", {"dataset:shop.order_items"}),
        ("item", {"dataset:shop.order_items", "column:shop.order_items#item_id", "job:airflow/loadItems"}),
        ("load", {"job:airflow/loadItems"}),
        ("item_id", {"column:shop.order_items#item_id"}),
        ("unique", {"test"}),
        ("run-77", {"run"}),
        ("rder", set()),
        ("...", set()),
        ("it's", {"dataset:shop.order_items"}),
        ("'\\", set()),
    ],
)
def test_search_finds_names_by_the_beginnings_of_their_words(
    connection: psycopg.Connection, typed: str, found: set[str]
) -> None:
    tested = dataset("shop.order_items", inputFacets=assertions({"assertion": "unique", "success": True}))
    output = dataset("shop.order_items", facets=schema("item_id", "Price"))
    stored(connection, [ran("loadItems", run="run-77", outputs=[output]), ran("check", inputs=[tested])])

    items = search(connection, typed)

    short = {
        item.id.replace(f"{DB}/", "") if item.kind in ("job", "dataset", "column") else item.kind for item in items
    }
    assert short == found


def test_what_is_ignored_is_neither_listed_nor_found(connection: psycopg.Connection) -> None:
    stored(connection, [ran("sandbox.load", outputs=[dataset("tmp_orders")]), ran("load", outputs=[dataset("orders")])])
    connection.execute(
        "INSERT INTO kept.ignored_names (kind, pattern, created_by) "
        "VALUES ('job', '*/sandbox.*', 'me'), ('dataset', '*/tmp_*', 'me')"
    )

    assert [job.name for _, job in list_jobs(connection, JobQuestion(), limit=9)] == ["load"]
    assert [each.name for _, each in list_datasets(connection, DatasetQuestion(), limit=9)] == ["orders"]
    assert {item.name for item in search(connection, "load")} == {"load"}
    assert {item.name for item in search(connection, "orders")} == {"orders"}


def test_secrets_are_hidden_where_facets_are_shown(connection: psycopg.Connection) -> None:
    facets = {
        "environmentVariables": facet(environmentVariables=[{"name": "X", "value": "hush"}]),
        "spark_properties": facet(properties={"spark.s3.secret.key": "hush", "spark.app.name": "shop"}),
    }
    sql = {"sql": facet(query="COPY t FROM 's3://b' CREDENTIALS 'hush' -- postgres://me:hush@db/x")}
    stored(connection, [ran("load", run="r", run_facets=facets, job_facets=sql)])
    hiding = Redaction(["**.*secret*", "**.environmentVariables.*.value"])

    run, job = find_run(connection, "r", hiding), find_job(connection, "airflow", "load", hiding)

    assert "hush" not in str(run)
    assert "hush" not in str(job)
    assert "spark.app.name" in str(run)
    assert "'shop'" in str(run)
    assert "COPY t FROM" in str(job)
    assert "hush" in str(find_run(connection, "r", OPEN))
