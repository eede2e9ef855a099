"""What real producers sent, folded: the quirks that must not hurt, checked by hand against the events."""

from collections import Counter

import pytest

from correlator.rulebook import facts as f
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection, RunEvent
from correlator.rulebook.facts import Facts, Row
from correlator.rulebook.fold import fold
from correlator.rulebook.results import observes
from correlator.rulebook.runs import RunView, end_write, run_view
from tests import corpus
from tests.unit.rulebook import views
from tests.unit.rulebook.histories import Json, assertions, dataset, facet, run_event

pytestmark = corpus.needs_corpus

DUCKDB = "duckdb:///data/demo/dbtp/tiny.duckdb"


def history(name: str) -> list[Event]:
    events = [judge(raw) for raw in corpus.events(name)]
    assert not any(isinstance(event, Rejection) for event in events)
    return [event for event in events if not isinstance(event, Rejection)]


def runs(facts: Facts) -> dict[str, tuple[Row, RunView]]:
    """Runs by the name of their job."""
    return {row["identity"][3]: (row, run_view(row)) for row in facts.rows(f.JOB_RUNS).values()}


def uses(facts: Facts, job: str, role: str) -> set[str]:
    urns = {key[0]: row["identity"][0] for key, row in facts.rows(f.DATASETS).items()}
    of_job = {key[0] for key, row in facts.rows(f.JOB_RUNS).items() if row["identity"][3] == job}
    return {urns[dataset] for run, dataset, kind in facts.rows(f.LINEAGE_EDGES) if run in of_job and kind == role}


@pytest.mark.parametrize("name", corpus.event_files())
def test_every_real_history_is_accepted_and_folds_the_same_backwards_and_four_times(name: str) -> None:
    events = history(name)

    assert fold(events[::-1] * 4) == fold(events)


def test_dbt_artifacts_the_model_reads_what_its_column_lineage_names() -> None:
    facts = fold(history("dbt_1_11_build.jsonl"))

    assert uses(facts, "tiny.main.tinyp.m1.build.run", "input") == {f"{DUCKDB}/tiny.main.orders"}
    assert uses(facts, "tiny.main.tinyp.m1.build.run", "output") == {f"{DUCKDB}/tiny.main.m1"}
    assert views.column_arrows(facts) == {
        f"{DUCKDB}/tiny.main.orders.{column} -> {DUCKDB}/tiny.main.m1.{column}" for column in ("id", "amount", "city")
    }


def test_dbt_artifacts_results_in_four_places_are_two_results() -> None:
    facts = fold(history("dbt_1_11_build.jsonl"))

    assert views.results(facts) == [("not_null_m1_amount", "amount", "fail"), ("unique_m1_id", "id", "pass")]


def test_dbt_artifacts_the_state_of_every_run() -> None:
    found = runs(fold(history("dbt_1_11_build.jsonl")))

    assert {job: view.state for job, (_, view) in found.items()} == {
        "dbt-run-tinyp": "FAIL",
        "tiny.main.tinyp.m1.build.run": "COMPLETE",
        "tiny.main.tinyp.m1.build.test": "FAIL",
    }
    test, model = found["tiny.main.tinyp.m1.build.test"][0], found["tiny.main.tinyp.m1.build.run"][0]
    assert views.said(f.JOB_RUNS, test, "parent") == views.said(f.JOB_RUNS, model, "parent")


def test_dbt_logs_results_that_stand_only_in_facets_are_found() -> None:
    facts = fold(history("dbt_1_11_structured_logs.jsonl"))

    assert views.results(facts) == [("not_null_m1_amount", "amount", "fail"), ("unique_m1_id", "id", "pass")]


def test_dbt_both_ways_of_sending_agree_on_what_the_tests_are() -> None:
    def tests(name: str) -> set[bytes]:
        return {test for test, _ in fold(history(name)).rows(f.TEST_RESULTS)}

    assert tests("dbt_1_11_build.jsonl") == tests("dbt_1_11_structured_logs.jsonl")


def test_dbt_logs_a_test_that_writes_an_audit_table_still_only_observes() -> None:
    facts = fold(history("dbt_1_11_structured_logs.jsonl"))
    job = "test.tinyp.not_null_m1_amount.4a7586bc99"
    row, view = runs(facts)[job]

    assert uses(facts, job, "output") == {f"{DUCKDB}/tiny.main_dbt_test__audit.not_null_m1_amount"}
    assert observes(views.said(f.JOB_RUNS, row, "type")[2], has_results=True, has_outputs=True)
    assert (view.state, views.said(f.JOB_RUNS, row, "error")) == ("FAIL", "Got 1 result, configured to fail if != 0")


def test_dbt_logs_a_skipped_model_wrote_nothing_although_it_names_its_output() -> None:
    facts = fold(history("dbt_1_11_structured_logs.jsonl"))
    row, view = runs(facts)["model.tinyp.m2"]

    write = end_write(b"m2", row, rows_written=None, version=None)
    assert view.state == "ABORT"
    assert uses(facts, "model.tinyp.m2", "output") == {f"{DUCKDB}/tiny.main.m2"}
    assert write is not None
    assert write.kind == "attempt"


def test_dbt_logs_sub_runs_without_inputs_and_outputs_hang_under_their_node() -> None:
    facts = fold(history("dbt_1_11_structured_logs.jsonl"))
    subs = [row for job, (row, _) in runs(facts).items() if ".sql." in job]

    assert Counter(views.said(f.JOB_RUNS, row, "parent")[3] for row in subs) == {
        "seed.tinyp.orders": 6,
        "model.tinyp.m1": 7,
        "test.tinyp.not_null_m1_amount.4a7586bc99": 3,
        "test.tinyp.unique_m1_id.5e8de06530": 2,
    }


def test_airflow_a_dag_whose_start_never_came_began_with_its_only_event() -> None:
    row, view = runs(fold(history("airflow_3_3_bash.jsonl")))["tiny"]

    assert (view.state, view.started_at) == ("COMPLETE", view.ended_at)
    assert views.said(f.JOB_RUNS, row, "nominal") is not None


def test_airflow_tasks_know_their_dag_run() -> None:
    facts = fold(history("airflow_3_3_bash.jsonl"))
    found = runs(facts)
    dag = next(key for (key,), row in facts.rows(f.JOB_RUNS).items() if row["identity"][3] == "tiny")

    assert {views.said(f.JOB_RUNS, found[task][0], "parent")[0] for task in ("tiny.a", "tiny.b")} == {dag}


def test_spark_a_start_without_an_end_stays_open() -> None:
    states = Counter(
        view.state for _, view in map(_viewed, fold(history("spark_4_3_listener.jsonl")).rows(f.JOB_RUNS).values())
    )

    assert states["START"] == 1
    assert set(states) == {"START", "COMPLETE"}


def _viewed(row: Row) -> tuple[Row, RunView]:
    return row, run_view(row)


def test_spark_events_in_file_order_and_in_time_order_give_the_same_runs() -> None:
    events = history("spark_complete.jsonl")

    assert fold(sorted(events, key=lambda event: event.event_time)) == fold(events)
    assert events != sorted(events, key=lambda event: event.event_time)


def test_spark_several_starts_and_two_ends_of_one_run_are_one_run() -> None:
    events = [run_event("START", minute) for minute in (0, 0.1, 0.2, 0.3, 0.4)]
    events += [run_event("COMPLETE", 5), run_event("COMPLETE", 5.1)]

    view = views.the_run(fold(events))

    assert (view.state, len(view.history), view.contradictions) == ("COMPLETE", 7, [])
    assert view.ended_at == events[5].event_time


def test_spark_running_events_with_statistics_are_versions() -> None:
    events = history("spark_complete.jsonl")
    told = [
        event
        for event in events
        if isinstance(event, RunEvent)
        and event.event_type == "RUNNING"
        and any("outputStatistics" in output.role_facets.typed for output in event.outputs)
    ]

    counted = {at for (_, _, at), row in fold(events).rows(f.RUNNING_WRITES).items() if "statistics" in row}
    assert counted == {event.event_time for event in told}
    assert told


def test_a_failure_that_is_sent_as_complete_is_still_a_failed_test() -> None:
    said = assertions({"assertion": "not_null", "column": "id", "success": False})

    facts = fold([run_event("COMPLETE", 5, inputs=[dataset("orders", inputFacets=said)])])

    assert (views.the_run(facts).state, views.results(facts)) == ("COMPLETE", [("not_null", "id", "fail")])


def test_facets_that_grow_over_the_events_of_a_run_end_as_the_last_one_says() -> None:
    def progress(minute: float, rows: int) -> RunEvent:
        grown: Json = {"outputStatistics": facet(rowCount=rows)}
        return run_event("RUNNING", minute, outputs=[dataset("sales", outputFacets=grown)])

    facts = fold([progress(3, 30), progress(1, 10), progress(2, 20)])

    (row,) = facts.rows(f.LINEAGE_EDGES).values()
    assert views.said(f.LINEAGE_EDGES, row, "statistics") == (30, None, None)
