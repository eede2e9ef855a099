import json
from typing import Any

import pytest

from correlator.rulebook import facts as f
from correlator.rulebook import identity
from correlator.rulebook.events import RunEvent
from correlator.rulebook.facts import Facts
from correlator.rulebook.fold import fold
from correlator.rulebook.formats import rfc3339
from correlator.rulebook.runs import end_write, kin, read_of, running_write
from correlator.rulebook.statements import dataset_ref
from tests.unit.rulebook import views
from tests.unit.rulebook.histories import (
    DB,
    OTHER_RUN,
    RUN,
    Json,
    assertions,
    at,
    dataset,
    dataset_event,
    facet,
    job_event,
    parent,
    run_event,
)

# The state of a run


def test_a_run_starts_with_its_start_and_ends_with_its_end() -> None:
    run = views.the_run(fold([run_event("START", 0), run_event("RUNNING", 1), run_event("COMPLETE", 5)]))

    assert (run.state, rfc3339(run.started_at), run.ended_at and rfc3339(run.ended_at)) == ("COMPLETE", at(0), at(5))
    assert [(rfc3339(time), state) for time, state in run.history] == [
        (at(0), "START"),
        (at(1), "RUNNING"),
        (at(5), "COMPLETE"),
    ]
    assert run.contradictions == []


def test_a_late_start_fills_in_started_at() -> None:
    run = views.the_run(fold([run_event("COMPLETE", 5), run_event("START", 0)]))

    assert (run.state, rfc3339(run.started_at)) == ("COMPLETE", at(0))


def test_a_run_without_a_start_began_with_its_first_event() -> None:
    run = views.the_run(fold([run_event("COMPLETE", 5), run_event("OTHER", 2)]))

    assert rfc3339(run.started_at) == at(2)


def test_the_earliest_of_five_starts_counts() -> None:
    run = views.the_run(fold([run_event("START", minute) for minute in (3, 1, 4, 2, 5)]))

    assert (run.state, rfc3339(run.started_at), run.ended_at) == ("START", at(1), None)


def test_the_first_end_is_the_end_and_the_second_a_contradiction() -> None:
    run = views.the_run(fold([run_event("COMPLETE", 5), run_event("FAIL", 7), run_event("START", 0)]))

    assert (run.state, run.ended_at and rfc3339(run.ended_at)) == ("COMPLETE", at(5))
    assert [(c.kind, rfc3339(c.at)) for c in run.contradictions] == [("two_ends", at(7))]


def test_a_late_event_may_change_which_end_was_first() -> None:
    assert views.the_run(fold([run_event("COMPLETE", 5), run_event("FAIL", 4)])).state == "FAIL"


@pytest.mark.parametrize(
    ("ends", "state"),
    [(("COMPLETE", "FAIL"), "FAIL"), (("COMPLETE", "ABORT"), "ABORT"), (("ABORT", "FAIL"), "FAIL")],
)
def test_of_two_ends_at_one_instant_the_worse_counts(ends: tuple[str, str], state: str) -> None:
    assert views.the_run(fold([run_event(end, 5) for end in ends])).state == state
    assert views.the_run(fold([run_event(end, 5) for end in reversed(ends)])).state == state


def test_work_after_the_end_is_a_contradiction_and_changes_nothing() -> None:
    run = views.the_run(fold([run_event("COMPLETE", 5), run_event("RUNNING", 6)]))

    assert run.state == "COMPLETE"
    assert [c.kind for c in run.contradictions] == ["active_after_end"]


def test_a_start_at_the_very_moment_of_the_end_is_no_contradiction() -> None:
    assert views.the_run(fold([run_event("START", 5), run_event("ABORT", 5)])).contradictions == []


def test_while_a_run_has_not_ended_the_last_of_start_and_running_is_its_state() -> None:
    assert views.the_run(fold([run_event("RUNNING", 2), run_event("START", 1)])).state == "RUNNING"
    assert views.the_run(fold([run_event("RUNNING", 2), run_event("START", 3)])).state == "START"
    assert views.the_run(fold([run_event("RUNNING", 2), run_event("OTHER", 3)])).state == "RUNNING"


def test_a_run_of_which_only_metadata_is_known_is_other() -> None:
    assert views.the_run(fold([run_event("OTHER", 2)])).state == "OTHER"


def test_the_last_event_in_order_gives_type_time_and_producer() -> None:
    facts = fold([run_event("COMPLETE", 5, producer="https://example.com/end"), run_event("START", 0)])

    assert views.said(f.JOB_RUNS, views.run_row(facts), "last_event") == ("COMPLETE", "https://example.com/end")


def test_the_history_of_a_run_that_never_ends_keeps_its_first_and_its_last_fifty() -> None:
    events = [run_event("RUNNING", minute) for minute in range(130)]
    facts = fold(events)
    halves = fold(events[::2])
    halves.merge(fold(events[1::2]))

    kept = [rfc3339(time) for time, _ in views.the_run(facts).history]
    assert kept == [at(minute) for minute in (*range(50), *range(80, 130))]
    assert halves == facts


# Facets


def test_facets_of_a_run_accumulate_and_the_latest_of_a_key_stands() -> None:
    facts = fold(
        [
            run_event("COMPLETE", 5, run_facets={"my_b": facet(n=3)}),
            run_event("START", 0, run_facets={"my_a": facet(n=1), "my_b": facet(n=2)}),
        ]
    )

    bodies = views.said(f.JOB_RUNS, views.run_row(facts), "facets")
    assert {key: json.loads(body)["n"] for key, body in bodies.items()} == {"my_a": 1, "my_b": 3}


def test_a_facet_of_a_dataset_stands_until_it_is_replaced_or_deleted() -> None:
    def documentation(facts: Facts) -> str | None:
        said = views.said(f.DATASETS, views.dataset_row(facts, "orders"), "facets")["documentation"]
        return None if said is None else json.loads(said)["description"]

    old = dataset_event(0, facets={"documentation": facet(description="old")})
    new = run_event("COMPLETE", 1, outputs=[dataset("orders", facets={"documentation": facet(description="new")})])
    gone = dataset_event(2, facets={"documentation": facet(_deleted=True)})

    assert documentation(fold([new, old])) == "new"
    assert documentation(fold([gone, new, old])) is None
    assert documentation(fold([gone, dataset_event(3, facets={"documentation": facet(description="back")})])) == "back"


def test_a_deletion_that_comes_first_still_deletes_what_was_said_before_it() -> None:
    facts = fold(
        [job_event(5, facets={"sql": facet(_deleted=True)}), job_event(1, facets={"sql": facet(query="select 1")})]
    )

    assert views.said(f.JOBS, views.job_row(facts), "facets") == {"sql": None}
    assert views.history(facts, "sql")[1] == (at(5), b"")


def test_a_schema_keeps_its_history_and_each_body_once() -> None:
    def writes(minute: float, *columns: str, run: str = RUN) -> Any:
        schema = {"schema": facet(fields=[{"name": column} for column in columns])}
        return run_event("COMPLETE", minute, run=run, outputs=[dataset("orders", facets=schema)])

    facts = fold([writes(3, "id", "amount", run=OTHER_RUN), writes(1, "id"), writes(2, "id", run="third")])

    digests = [digest for _, digest in views.history(facts, "schema")]
    assert digests[0] == digests[1] != digests[2]
    assert len(facts.rows(f.FACET_BODIES)) == 2


def test_what_a_run_says_of_a_facet_again_within_an_hour_is_one_statement() -> None:
    def said(*minutes: float) -> list[tuple[str, str]]:
        sql = {"sql": facet(query="select 1")}
        facts = fold([run_event("RUNNING", minute, job_facets=sql) for minute in minutes])
        return sorted(
            (rfc3339(row["first"][0]), rfc3339(row["last"][0])) for row in facts.rows(f.FACET_HISTORY).values()
        )

    assert said(50, 5, 20) == [(at(5), at(50))]
    assert said(50, 70, 65, 20) == [(at(20), at(50)), (at(65), at(70))]


def test_of_a_table_that_is_read_and_written_at_once_the_new_schema_is_remembered() -> None:
    def columns(*names: str) -> Json:
        return dataset("orders", facets={"schema": facet(fields=[{"name": name} for name in names])})

    rewritten = run_event("COMPLETE", 1, inputs=[columns("id")], outputs=[columns("id", "price")])
    written = run_event("COMPLETE", 1, outputs=[columns("id", "price")])

    assert views.history(fold([rewritten]), "schema") == views.history(fold([written]), "schema")


def test_the_engine_of_a_run_is_remembered_as_its_jobs() -> None:
    facts = fold([run_event("START", 0, run_facets={"processing_engine": facet(version="3.5", name="spark")})])

    ((kind, entity, key, *_),) = facts.rows(f.FACET_HISTORY)
    assert (kind, entity, key) == ("job", identity.job_key("airflow", "etl.orders"), "processing_engine")


def test_sql_is_read_from_the_jobs_facets_else_from_the_runs() -> None:
    def body(**facets: Json) -> str:
        facts = fold([run_event("START", 0, **facets)])
        ((*_, digest),) = facts.rows(f.FACET_HISTORY)
        query: str = json.loads(facts.rows(f.FACET_BODIES)[digest,]["body"][0])["query"]
        return query

    of_run, of_job = {"sql": facet(query="of the run")}, {"sql": facet(query="of the job")}
    assert body(run_facets=of_run) == "of the run"
    assert body(run_facets=of_run, job_facets=of_job) == "of the job"


def test_a_broken_facet_of_the_job_does_not_silence_the_runs() -> None:
    facts = fold([run_event(run_facets={"sql": facet(query="select 1")}, job_facets={"sql": facet(query=5)})])

    assert len(views.history(facts, "sql")) == 1


def test_a_custom_facet_of_the_job_does_not_silence_the_engine_of_the_run() -> None:
    engine = {"processing_engine": facet(version="3.5")}

    assert len(views.history(fold([run_event(run_facets=engine, job_facets=engine)]), "processing_engine")) == 1


def test_of_a_table_that_is_read_and_overwritten_the_new_schema_stands() -> None:
    old, new = ({"schema": facet(fields=[{"name": name}])} for name in ("old", "new"))
    event = run_event(inputs=[dataset("t", facets=old)], outputs=[dataset("t", facets=new)])
    expected = run_event(outputs=[dataset("t", facets=new)])

    assert json.loads(views.said(f.DATASETS, views.dataset_row(fold([event]), "t"), "facets")["schema"])["fields"] == [
        {"name": "new"}
    ]
    assert views.history(fold([event]), "schema") == views.history(fold([expected]), "schema")


def test_a_broken_facet_is_kept_but_has_no_history() -> None:
    facts = fold([run_event("COMPLETE", 0, outputs=[dataset("orders", facets={"schema": facet(fields="oops")})])])

    assert (
        json.loads(views.said(f.DATASETS, views.dataset_row(facts, "orders"), "facets")["schema"])["fields"] == "oops"
    )
    assert views.history(facts, "schema") == []


# Parents, times, kinds


def test_parent_and_root_are_known_even_if_their_own_events_never_come() -> None:
    facts = fold([run_event("START", 0, run_facets=parent(OTHER_RUN, "dag", root="root-run"))])

    dag, root = identity.job_run_key("airflow", "dag", OTHER_RUN), identity.job_run_key("airflow", "root", "root-run")
    of_parent, of_root = (dag, OTHER_RUN, "airflow", "dag"), (root, "root-run", "airflow", "root")
    assert views.said(f.JOB_RUNS, views.run_row(facts), "parent") == (*of_parent, *of_root)
    assert views.said(f.JOBS, views.job_row(facts, "dag"), "identity") == ("airflow", "dag")
    assert dag not in {key for (key,) in facts.rows(f.JOB_RUNS)}


def test_a_later_parent_does_not_inherit_the_root_of_an_earlier_one() -> None:
    facts = fold(
        [
            run_event("START", 0, run_facets=parent(OTHER_RUN, "dag", root="root-run")),
            run_event("COMPLETE", 1, run_facets=parent("another", "dag")),
        ]
    )
    another = identity.job_run_key("airflow", "dag", "another")

    family = kin(b"x", views.run_row(facts))
    assert (family.parent, family.root) == (another, another)


def test_the_old_spelling_of_parent_is_understood() -> None:
    facts = fold([run_event("START", 0, run_facets={"parentRun": parent(OTHER_RUN)["parent"]})])

    assert views.said(f.JOB_RUNS, views.run_row(facts), "parent")[1] == OTHER_RUN


def test_who_names_no_root_has_its_parent_for_one() -> None:
    facts = fold([run_event("START", 0, run_facets=parent(OTHER_RUN))])
    dag = identity.job_run_key("airflow", "dag", OTHER_RUN)

    family = kin(b"x", views.run_row(facts))
    assert (family.parent, family.root) == (dag, dag)


def test_nominal_time_error_and_job_type_are_kept() -> None:
    facts = fold(
        [
            run_event(
                "FAIL",
                5,
                run_facets={
                    "nominalTime": facet(nominalStartTime=at(0)),
                    "errorMessage": facet(message="boom", programmingLanguage="python"),
                },
                job_facets={"jobType": facet(processingType="BATCH", integration="DBT", jobType="MODEL")},
            )
        ]
    )
    row = views.run_row(facts)

    assert rfc3339(views.said(f.JOB_RUNS, row, "nominal")[0]) == at(0)
    assert views.said(f.JOB_RUNS, row, "error") == "boom"
    assert views.said(f.JOB_RUNS, row, "type") == ("BATCH", "DBT", "MODEL")


# Edges, reads, writes


def test_inputs_and_outputs_of_all_events_of_a_run_are_joined() -> None:
    facts = fold([run_event("COMPLETE", 5, outputs=[dataset("b")]), run_event("START", 0, inputs=[dataset("a")])])

    assert views.edges(facts) == {("input", f"{DB}/a"), ("output", f"{DB}/b")}


def test_a_dataset_is_called_as_it_was_first_sent() -> None:
    later = run_event("COMPLETE", 5, outputs=[dataset("orders", "postgresql://DB")])
    first = run_event("START", 0, inputs=[dataset("orders", "postgres://db:5432")])

    row = views.dataset_row(fold([later, first]), "orders")
    assert views.said(f.DATASETS, row, "identity") == "postgres://db:5432/orders"
    assert views.said(f.DATASETS, row, "named") == ("postgres://db:5432", "orders")
    assert views.said(f.DATASETS, views.dataset_row(fold([later]), "orders"), "named") == ("postgresql://DB", "orders")


def test_the_order_of_keys_within_an_event_does_not_choose_between_two_spellings_of_a_name() -> None:
    def writes(*spellings: str) -> RunEvent:
        fields = {spelling: {"inputFields": [source | {"field": "id"}]} for spelling, source in sources(spellings)}
        return run_event(outputs=[dataset("o", facets={"columnLineage": facet(fields=fields)})])

    def sources(spellings: tuple[str, ...]) -> list[tuple[str, Json]]:
        return [(spelling, dataset("x", spelling)) for spelling in spellings]

    one, other = writes(DB, "postgresql://DB"), writes("postgresql://DB", DB)

    assert identity.content_digest(one) == identity.content_digest(other)
    assert fold([one]) == fold([other]) == fold([one, other]) == fold([other, one])


def test_the_order_of_keys_does_not_choose_between_facets_that_only_a_nul_tells_apart() -> None:
    facets = {"x\x00": facet(n=1), "x\ufffd": facet(n=2)}
    one, other = run_event(run_facets=facets), run_event(run_facets=dict(reversed(facets.items())))

    assert fold([one, other]) == fold([other, one])


def edge(facts: Facts, name: str, role: str) -> f.Row:
    return facts.rows(f.LINEAGE_EDGES)[
        identity.job_run_key("airflow", "etl.orders", RUN), dataset_ref(DB, name).key, role
    ]


def test_statistics_of_inputs_and_outputs_are_kept() -> None:
    facts = fold(
        [
            run_event(
                inputs=[
                    dataset("a", inputFacets={"inputStatistics": facet(rowCount=10, size=20, fileCount=3)}),
                    dataset("b", inputFacets={"dataQualityMetrics": facet(rowCount=7, columnMetrics={})}),
                ],
                outputs=[dataset("c", outputFacets={"outputStatistics": facet(rowCount=5)})],
            )
        ]
    )

    assert views.said(f.LINEAGE_EDGES, edge(facts, "a", "input"), "statistics") == (10, 20, 3)
    assert views.said(f.LINEAGE_EDGES, edge(facts, "b", "input"), "statistics") == (7, None, None)
    assert views.said(f.LINEAGE_EDGES, edge(facts, "c", "output"), "statistics") == (5, None, None)


def test_empty_statistics_do_not_hide_what_the_metrics_count() -> None:
    counted = {"inputStatistics": facet(), "dataQualityMetrics": facet(rowCount=7, columnMetrics={})}
    facts = fold([run_event(inputs=[dataset("a", inputFacets=counted)])])

    assert views.said(f.LINEAGE_EDGES, edge(facts, "a", "input"), "statistics") == (7, None, None)


@pytest.mark.parametrize("count", [2**63 - 1, 2**63, 2**200, -1])
def test_eight_exabytes_mean_that_the_size_is_unknown(count: int) -> None:
    facts = fold([run_event(outputs=[dataset("c", outputFacets={"outputStatistics": facet(rowCount=5, size=count)})])])

    assert views.said(f.LINEAGE_EDGES, edge(facts, "c", "output"), "statistics") == (5, None, None)


def test_the_version_and_the_change_of_life_of_a_dataset_belong_to_the_run() -> None:
    facets = {"version": facet(datasetVersion="42"), "lifecycleStateChange": facet(lifecycleStateChange="OVERWRITE")}
    facts = fold([run_event(outputs=[dataset("c", facets=facets)])])

    assert views.said(f.LINEAGE_EDGES, edge(facts, "c", "output"), "version") == "42"
    assert views.said(f.LINEAGE_EDGES, edge(facts, "c", "output"), "lifecycle") == "OVERWRITE"


def test_a_completed_run_wrote_at_its_end_and_read_at_its_start() -> None:
    row = views.run_row(fold([run_event("START", 0), run_event("COMPLETE", 5)]))

    write = end_write(b"r", row, rows_written=None, version=None)
    assert write is not None
    assert (rfc3339(write.at), write.kind, rfc3339(read_of(b"r", row).at)) == (at(5), "complete", at(0))


@pytest.mark.parametrize("end", ["FAIL", "ABORT"])
def test_a_failed_run_only_tried_to_write_unless_it_says_how_much(end: str) -> None:
    row = views.run_row(fold([run_event(end, 5)]))

    tried, wrote = (end_write(b"r", row, rows_written=rows, version=None) for rows in (None, 3))
    assert tried is not None
    assert wrote is not None
    assert (tried.kind, wrote.kind) == ("attempt", "partial")


def test_a_run_that_has_not_ended_has_written_nothing_yet() -> None:
    assert end_write(b"r", views.run_row(fold([run_event("RUNNING", 5)])), rows_written=3, version=None) is None


def running_writes(*events: RunEvent) -> list[str]:
    facts = fold(events)
    row = views.run_row(facts)
    found = [
        running_write(b"r", row, at, rows_written=said["statistics"][3] if "statistics" in said else None)
        for (_, _, at), said in facts.rows(f.RUNNING_WRITES).items()
    ]
    return sorted(rfc3339(write.at) for write in found if write is not None)


@pytest.mark.parametrize("kind", ["STREAMING", "SERVICE", "streaming"])
def test_a_stream_writes_at_each_running_event_whichever_event_says_that_it_is_one(kind: str) -> None:
    stream = {"jobType": facet(processingType=kind, integration="FLINK")}
    start = run_event("START", 0, job_facets=stream)
    works = [run_event("RUNNING", minute, outputs=[dataset("a")]) for minute in (1, 2)]
    end = run_event("COMPLETE", 4, outputs=[dataset("a")], job_facets=stream)

    assert running_writes(*works, start, end) == [at(1), at(2)]
    assert running_writes(*works) == []


def test_a_batch_writes_before_its_end_only_if_it_says_how_much() -> None:
    counted = {"outputStatistics": facet(rowCount=5)}
    batch = {"jobType": facet(processingType="BATCH", integration="SPARK")}

    assert running_writes(
        run_event("RUNNING", 1, outputs=[dataset("a")], job_facets=batch),
        run_event("RUNNING", 2, outputs=[dataset("a", outputFacets=counted)], job_facets=batch),
    ) == [at(2)]


def test_a_run_that_states_its_lineage_says_so_and_its_outputs_who_told() -> None:
    entry = {"type": "DATASET", "namespace": DB, "name": "b", "inputs": []}
    facts = fold([run_event(outputs=[dataset("b"), dataset("c")], job_facets={"lineage": facet(entries=[entry])})])

    assert views.said(f.JOB_RUNS, views.run_row(facts), "explicit") is True
    assert views.said(f.LINEAGE_EDGES, edge(facts, "b", "output"), "told") == 0
    assert views.said(f.LINEAGE_EDGES, edge(facts, "c", "output"), "told") is None


# Declarations


def declarations(facts: Facts) -> dict[tuple[str, str], Json]:
    return {
        (said_by, rfc3339(time)): json.loads(row["edges"][1])
        for (_, _, said_by, time), row in facts.rows(f.DECLARATIONS).items()
    }


def test_a_declaration_is_kept_whole_with_its_time_so_that_the_last_one_before_a_moment_stands() -> None:
    facts = fold([job_event(9, inputs=[dataset("b")]), job_event(1, inputs=[dataset("a")], outputs=[dataset("c")])])

    assert {when: len(said["inputs"]) for when, said in declarations(facts).items()} == {
        ("job", at(1)): 1,
        ("job", at(9)): 1,
    }
    assert facts.rows(f.JOB_RUNS) == {}
    assert facts.rows(f.LINEAGE_EDGES) == {}


def test_a_job_event_without_inputs_and_outputs_declares_nothing() -> None:
    assert declarations(fold([job_event(1, inputs=[], outputs=[], facets={"sql": facet(query="select 1")})])) == {}


def test_a_table_that_is_declared_in_two_spellings_is_declared_once() -> None:
    facts = fold([job_event(1, inputs=[dataset("a"), dataset("a", "postgresql://DB")])])

    assert len(declarations(facts)["job", at(1)]["inputs"]) == 1


@pytest.mark.parametrize("lineage", [facet(entries=[]), facet(_deleted=True)])
def test_a_declaration_is_taken_back_by_an_empty_or_deleted_lineage_facet(lineage: Json) -> None:
    facts = fold([job_event(1, inputs=[dataset("a")]), job_event(2, facets={"lineage": lineage})])

    assert declarations(facts)["job", at(2)]["inputs"] == []


SOURCES = [{"type": "DATASET", "namespace": DB, "name": "raw"}]
COLUMNS = {"id": {"inputFields": [{"namespace": DB, "name": "raw", "field": "id"}]}}


def test_a_dataset_event_declares_its_sources() -> None:
    facts = fold([dataset_event(1, facets={"lineage": facet(inputs=SOURCES)})])

    assert len(declarations(facts)["lineage", at(1)]["edges"]) == 1
    assert views.said(f.DATASETS, views.dataset_row(facts, "raw"), "identity") == f"{DB}/raw"


def test_each_facet_of_a_dataset_declares_by_itself_and_is_taken_back_by_itself() -> None:
    facts = fold(
        [
            dataset_event(1, facets={"lineage": facet(inputs=SOURCES), "columnLineage": facet(fields=COLUMNS)}),
            dataset_event(2, facets={"columnLineage": facet(_deleted=True)}),
            dataset_event(3, facets={"lifecycleStateChange": facet(lifecycleStateChange="ALTER")}),
        ]
    )

    assert {when: len(said["edges"]) for when, said in declarations(facts).items()} == {
        ("lineage", at(1)): 1,
        ("columnLineage", at(1)): 1,
        ("columnLineage", at(2)): 0,
    }


# Results


def test_the_latest_result_of_a_test_in_a_run_stands() -> None:
    def check(minute: float, *, success: bool) -> Any:
        said = assertions({"assertion": "not_null", "column": "id", "success": success})
        return run_event("RUNNING", minute, inputs=[dataset("orders", inputFacets=said)])

    assert views.results(fold([check(2, success=False), check(1, success=True)])) == [("not_null", "id", "fail")]


OLD_AND_NEW: dict[str, tuple[Json, Json]] = {
    "last_event": ({"producer": "https://example.com/1"}, {"producer": "https://example.com/2"}),
    "parent": ({"run_facets": parent("1")}, {"run_facets": parent("2")}),
    "nominal": (
        {"run_facets": {"nominalTime": facet(nominalStartTime=at(1))}},
        {"run_facets": {"nominalTime": facet(nominalStartTime=at(2))}},
    ),
    "type": (
        {"job_facets": {"jobType": facet(processingType="BATCH", integration="A")}},
        {"job_facets": {"jobType": facet(processingType="BATCH", integration="B")}},
    ),
    "error": (
        {"run_facets": {"errorMessage": facet(message="1", programmingLanguage="x")}},
        {"run_facets": {"errorMessage": facet(message="2", programmingLanguage="x")}},
    ),
}


def _of_output(**members: Json) -> Json:
    return {"outputs": [dataset("t") | members]}


OLD_AND_NEW_OF_AN_EDGE: dict[str, tuple[Json, Json]] = {
    "statistics": (
        _of_output(outputFacets={"outputStatistics": facet(rowCount=1)}),
        _of_output(outputFacets={"outputStatistics": facet(rowCount=2)}),
    ),
    "version": (
        _of_output(facets={"version": facet(datasetVersion="1")}),
        _of_output(facets={"version": facet(datasetVersion="2")}),
    ),
    "lifecycle": (
        _of_output(facets={"lifecycleStateChange": facet(lifecycleStateChange="CREATE")}),
        _of_output(facets={"lifecycleStateChange": facet(lifecycleStateChange="DROP")}),
    ),
}


@pytest.mark.parametrize("group", [*OLD_AND_NEW, *OLD_AND_NEW_OF_AN_EDGE])
def test_what_was_said_last_stands_and_what_was_said_before_changes_nothing_when_it_comes_late(group: str) -> None:
    old, new = (OLD_AND_NEW | OLD_AND_NEW_OF_AN_EDGE)[group]
    before, after = run_event("RUNNING", 1, **old), run_event("RUNNING", 2, **new)

    def value(*events: RunEvent) -> Any:
        facts = fold(events)
        return (edge(facts, "t", "output") if group in OLD_AND_NEW_OF_AN_EDGE else views.run_row(facts))[group]

    assert value(after, before) == value(before, after) == value(after)
    assert value(after) != value(before)


def test_a_deep_event_is_folded_however_deep_the_caller_stands() -> None:
    nested: Any = 1
    for _ in range(400):
        nested = [nested]
    event = run_event(inputs=[dataset("o", inputFacets={"greatExpectations_assertions": facet(assertions=nested)})])

    def deeper(levels: int) -> Facts:
        return deeper(levels - 1) if levels else fold([event])

    assert deeper(700) == fold([event])


def test_a_name_with_a_nul_in_it_is_kept_as_a_name_that_a_database_can_hold() -> None:
    facts = fold(
        [run_event(job="a\x00b", inputs=[dataset("t\x00", facets={"documentation": facet(description="\x00")})])]
    )

    def texts(value: Any) -> list[str]:
        if isinstance(value, str):
            return [value]
        if isinstance(value, dict):
            return [text for item in value.items() for text in texts(item)]
        return [text for item in value for text in texts(item)] if isinstance(value, tuple | frozenset | list) else []

    assert [text for _, key, row in facts for text in texts((key, row)) if "\x00" in text or "\\u0000" in text] == []
