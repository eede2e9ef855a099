from typing import Any

import pytest

from correlator.rulebook.results import Outcome, observes, results, standing_results
from correlator.rulebook.statements import dataset_ref
from tests.unit.rulebook.histories import DB, Json, assertions, dataset, facet, run_event

NOT_NULL = {"assertion": "not_null", "column": "amount", "success": False}


def the_result(*, inputs: list[Json] | None = None, **parts: Any) -> Outcome:
    (outcome,) = results(run_event(inputs=inputs or [], **parts))
    return outcome


@pytest.mark.parametrize("place", ["facets", "inputFacets"])
def test_assertions_are_found_in_both_places_of_an_input(place: str) -> None:
    outcome = the_result(inputs=[dataset("orders") | {place: assertions(NOT_NULL)}])

    assert (outcome.test.name, outcome.test.column, outcome.result.status) == ("not_null", "amount", "fail")
    assert outcome.dataset == dataset_ref(DB, "orders")
    assert not outcome.result.of_own_output


@pytest.mark.parametrize("place", ["facets", "outputFacets"])
def test_assertions_on_an_output_are_about_the_runs_own_write(place: str) -> None:
    assert the_result(outputs=[dataset("orders") | {place: assertions(NOT_NULL)}]).result.of_own_output


def test_the_same_result_in_two_places_counts_once() -> None:
    said = assertions(NOT_NULL)

    assert len(results(run_event(inputs=[dataset("orders", facets=said, inputFacets=said)]))) == 1


def test_two_columns_and_two_parameters_are_different_tests() -> None:
    said = assertions(
        {"assertion": "in_range", "column": "a", "success": True, "params": {"max": 5}},
        {"assertion": "in_range", "column": "a", "success": False, "params": {"max": 9}},
        {"assertion": "in_range", "column": "b", "success": True, "params": {"max": 5}},
    )

    outcomes = results(run_event(inputs=[dataset("orders", inputFacets=said)]))

    assert len({outcome.test.key for outcome in outcomes}) == 3


def test_the_order_of_parameters_and_empty_ones_make_no_other_test() -> None:
    def key(params: Json | None) -> bytes:
        said = NOT_NULL if params is None else NOT_NULL | {"params": params}
        return the_result(inputs=[dataset("orders", inputFacets=assertions(said))]).test.key

    assert key({"a": 1, "b": 2}) == key({"b": 2, "a": 1})
    assert key({}) == key(None)


def test_a_test_that_has_a_name_is_called_by_it() -> None:
    said = assertions(NOT_NULL | {"name": "not_null_orders_amount"})

    assert the_result(inputs=[dataset("orders", inputFacets=said)]).test.name == "not_null_orders_amount"


@pytest.mark.parametrize(
    ("success", "severity", "status"),
    [
        (True, "error", "pass"),
        (False, "error", "fail"),
        (False, "warn", "warn"),
        (False, "WARN", "warn"),
        (True, "warn", "pass"),
    ],
)
def test_severity_turns_a_failure_into_a_warning(*, success: bool, severity: str, status: str) -> None:
    said = assertions(NOT_NULL | {"success": success, "severity": severity})

    assert the_result(inputs=[dataset("orders", inputFacets=said)]).result.status == status


def test_expected_actual_and_the_unofficial_count_of_rows_are_kept() -> None:
    official = assertions(NOT_NULL | {"expected": "0", "actual": "5", "failedRows": 7, "description": "no gaps"})
    unofficial = assertions(NOT_NULL | {"failedRows": 500})

    result = the_result(inputs=[dataset("orders", inputFacets=official)]).result
    assert (result.expected, result.actual, result.description) == ("0", "5", "no gaps")
    assert the_result(inputs=[dataset("orders", inputFacets=unofficial)]).result.actual == "500"


def test_the_facet_of_older_great_expectations_is_understood() -> None:
    old = {
        "greatExpectations_assertions": facet(
            assertions=[
                {"expectationType": "expect_column_to_exist", "success": False, "column": "id"},
                {"success": 1},
                5,
            ]
        )
    }

    outcome = the_result(inputs=[dataset("orders", inputFacets=old)])

    assert (outcome.test.name, outcome.test.column, outcome.result.status) == ("expect_column_to_exist", "id", "fail")


def test_a_deleted_custom_facet_gives_no_results() -> None:
    gone = {
        "greatExpectations_assertions": facet(_deleted=True, assertions=[{"expectationType": "e", "success": False}])
    }

    assert results(run_event(inputs=[dataset("orders", facets=gone)])) == []


def test_a_test_of_a_table_that_is_read_and_written_is_about_what_was_written() -> None:
    said = assertions(NOT_NULL)

    outcome = the_result(inputs=[dataset("t", inputFacets=said)], outputs=[dataset("t", outputFacets=said)])

    assert outcome.result.of_own_output


def test_within_one_event_the_place_that_the_spec_names_speaks_first() -> None:
    official, other = assertions(NOT_NULL | {"actual": "1"}), assertions(NOT_NULL | {"actual": "2"})

    assert the_result(inputs=[dataset("t", facets=other, inputFacets=official)]).result.actual == "1"


@pytest.mark.parametrize("body", [{}, {"assertions": None}, {"assertions": {"a": 1}}, {"assertions": [None, "x"]}])
def test_a_broken_custom_facet_gives_no_results(body: Json) -> None:
    assert results(run_event(inputs=[dataset("o", inputFacets={"greatExpectations_assertions": facet(**body)})])) == []


def test_a_broken_facet_gives_no_results() -> None:
    broken = {"dataQualityAssertions": facet(assertions=[{"assertion": "not_null"}])}

    assert results(run_event(inputs=[dataset("orders", inputFacets=broken)])) == []


@pytest.mark.parametrize(
    ("status", "severity", "expected"),
    [
        ("pass", None, "pass"),
        ("fail", None, "fail"),
        ("fail", "warn", "warn"),
        ("skip", None, "skip"),
        ("odd", None, "skip"),
    ],
)
def test_the_test_run_facet_is_understood(status: str, severity: str | None, expected: str) -> None:
    test = {"name": "no_orphans", "status": status} | ({"severity": severity} if severity else {})

    outcome = the_result(run_facets={"test": facet(tests=[test])})

    assert (outcome.test.name, outcome.result.status, outcome.dataset) == ("no_orphans", expected, None)


def standing(stored: list[Outcome], **parts: Any) -> list[tuple[str, str | None, str, str]]:
    given: dict[str, Any] = {
        "inputs": [dataset_ref(DB, "orders")],
        "job_name": "check_orders",
        "state": "COMPLETE",
        "error_message": "",
        "is_observing": True,
    }
    found = standing_results(stored, **(given | parts))
    return [(o.test.name, o.dataset.name if o.dataset else None, o.result.status, o.result.message) for o in found]


RUN_RESULT = results(run_event(run_facets={"test": facet(tests=[{"name": "no_orphans", "status": "fail"}])}))
DATASET_RESULT = results(
    run_event(inputs=[dataset("orders", inputFacets=assertions({"assertion": "no_orphans", "success": False}))])
)


def test_a_result_of_the_run_belongs_to_each_of_its_inputs() -> None:
    both = [dataset_ref(DB, "orders"), dataset_ref(DB, "customers")]

    assert standing(RUN_RESULT, inputs=both) == [
        ("no_orphans", "customers", "fail", ""),
        ("no_orphans", "orders", "fail", ""),
    ]


def test_a_result_of_the_run_that_is_also_told_of_a_dataset_is_one_result() -> None:
    assert standing(RUN_RESULT + DATASET_RESULT) == [("no_orphans", "orders", "fail", "")]


def test_the_same_test_told_of_the_run_or_of_the_dataset_has_one_identity() -> None:
    (moved,) = standing_results(
        RUN_RESULT, inputs=[dataset_ref(DB, "orders")], job_name="j", state="FAIL", error_message="", is_observing=True
    )

    assert moved.test.key == DATASET_RESULT[0].test.key


def test_a_result_of_a_run_without_inputs_is_still_a_result() -> None:
    assert standing(RUN_RESULT, inputs=[]) == [("no_orphans", None, "fail", "")]


@pytest.mark.parametrize("said", [{"state": "FAIL"}, {"error_message": "boom"}])
def test_an_observing_run_that_failed_without_results_is_one_failed_test_named_after_its_job(said: Json) -> None:
    assert standing([], **said) == [("check_orders", "orders", "fail", said.get("error_message", ""))]


def test_a_run_that_observes_and_is_content_is_no_result() -> None:
    assert standing([]) == []


def test_a_failed_run_that_does_not_observe_is_no_failed_test() -> None:
    assert standing([], state="FAIL", error_message="boom", is_observing=False) == []


def test_the_runs_error_fills_in_messages_that_are_empty() -> None:
    assert standing(DATASET_RESULT, error_message="5 nulls") == [("no_orphans", "orders", "fail", "5 nulls")]


@pytest.mark.parametrize(
    ("job_type", "has_results", "has_outputs", "expected"),
    [
        ("TEST", False, True, True),
        ("test", False, False, True),
        ("MODEL", True, False, True),
        ("MODEL", True, True, False),
        ("", False, False, False),
    ],
)
def test_a_run_observes_if_it_is_a_test_or_has_results_and_writes_nothing(
    *, job_type: str, has_results: bool, has_outputs: bool, expected: bool
) -> None:
    assert observes(job_type, has_results=has_results, has_outputs=has_outputs) is expected
