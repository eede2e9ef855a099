"""What Great Expectations has found, as OpenLineage says it. Great Expectations itself is not needed."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from openlineage.client.event_v2 import InputDataset, Job, Run, RunEvent, RunState
from openlineage.client.serde import Serde

from correlator.integrations.great_expectations.extractors import (
    PRODUCER,
    broken_message,
    extract_data_quality_assertions,
    extract_data_quality_metrics,
    extract_job_name,
    extract_parent,
    extract_run_id,
    extract_run_time,
)
from correlator.rulebook.decode import judge
from correlator.rulebook.events import RunEvent as JudgedRunEvent
from correlator.rulebook.policy import SPEC
from correlator.rulebook.results import results

PARENT = "airflow://prod/shop.check/0190f0a2-0000-7000-8000-000000000001"
ROOT = "airflow://prod/shop/0190f0a2-0000-7000-8000-000000000002"


def run(name: str | None = "nightly", at: datetime = datetime(2026, 11, 1, 10, tzinfo=UTC)) -> SimpleNamespace:
    return SimpleNamespace(run_name=name, run_time=at)


def result(
    kind: str,
    *,
    success: bool = True,
    found: Mapping[str, Any] | None = None,
    exception: Mapping[str, Any] | None = None,
    severity: Any = "critical",
    number: str | None = None,
    **arguments: Any,
) -> SimpleNamespace:
    config = SimpleNamespace(
        type=kind, kwargs={"batch_id": "shop-orders", **arguments}, id=number, severity=severity, description=None
    )
    return SimpleNamespace(
        success=success, expectation_config=config, result=dict(found or {}), exception_info=dict(exception or {})
    )


def assertion(one: SimpleNamespace, **templates: Mapping[str, Any]) -> Any:
    (found,) = extract_data_quality_assertions([one], templates).assertions
    return found


# Identity


def test_a_job_is_called_by_its_checkpoint_and_suite() -> None:
    assert extract_job_name("daily", "orders") == "daily.orders"


def test_a_repeated_emission_is_the_same_run_and_anything_else_another() -> None:
    one = extract_run_id(run(), "daily", "orders/shop-orders")
    elsewhere = datetime(2026, 11, 1, 12, tzinfo=timezone(timedelta(hours=2)))

    assert one == extract_run_id(run(), "daily", "orders/shop-orders")
    assert one == extract_run_id(run(at=elsewhere), "daily", "orders/shop-orders")
    others = {
        extract_run_id(run(at=datetime(2026, 11, 2, 10, tzinfo=UTC)), "daily", "orders/shop-orders"),
        extract_run_id(run("morning"), "daily", "orders/shop-orders"),
        extract_run_id(run(None), "daily", "orders/shop-orders"),
        extract_run_id(run(), "hourly", "orders/shop-orders"),
        extract_run_id(run(), "daily", "orders/shop-customers"),
        one,
    }
    assert len(others) == 6
    assert one.version == 5


def test_the_run_time_is_told_in_utc() -> None:
    told = extract_run_time(run(at=datetime(2026, 11, 1, 12, tzinfo=timezone(timedelta(hours=2)))))

    assert told.isoformat() == "2026-11-01T10:00:00+00:00"


def test_the_parent_is_who_has_started_it() -> None:
    facet = extract_parent(PARENT)

    assert facet is not None
    assert facet.root is not None
    assert (facet.job.namespace, facet.job.name) == ("airflow://prod", "shop.check")
    assert facet.run.runId == PARENT[-36:]
    assert facet.root.run.runId == PARENT[-36:]


def test_the_root_is_taken_where_it_is_told() -> None:
    facet = extract_parent(PARENT, ROOT)

    assert facet is not None
    assert facet.root is not None
    assert (facet.root.job.name, facet.root.run.runId) == ("shop", ROOT[-36:])


@pytest.mark.parametrize("said", [None, "", "a/b", "a/b/c", f"/x/{UUID(int=1)}", f"a//{UUID(int=1)}"])
def test_a_parent_that_cannot_be_read_is_none(said: str | None) -> None:
    assert extract_parent(said) is None


# Assertions


def test_a_failed_expectation_tells_column_severity_counts_and_share() -> None:
    found = {
        "element_count": 200,
        "unexpected_count": 3,
        "unexpected_percent": 1.5,
        "partial_unexpected_list": ["x@y.z"],
    }
    told = assertion(result("expect_column_values_to_not_be_null", success=False, found=found, column="email"))

    assert (told.assertion, told.success, told.column, told.severity) == (
        "expect_column_values_to_not_be_null",
        False,
        "email",
        "error",
    )
    assert (told.expected, told.actual, told.unexpectedCount) == ("0 unexpected", "3 unexpected of 200", 3)
    assert told.message == "3 unexpected of 200 (1.5 %)"
    assert "x@y.z" not in Serde.to_json(told)


def test_what_was_expected_and_what_was_found_are_told() -> None:
    told = assertion(
        result(
            "expect_column_max_to_be_between",
            success=False,
            found={"observed_value": Decimal("120.5")},
            column="price",
            min_value=0,
            max_value=100,
            strict_max=None,
        )
    )

    assert (told.expected, told.actual) == ("min_value=0, max_value=100", "120.5")
    assert told.params == {"min_value": 0, "max_value": 100}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("critical", "error"),
        ("warning", "warn"),
        ("info", "warn"),
        (SimpleNamespace(value="warning"), "warn"),
        (None, None),
    ],
)
def test_severities_are_those_of_openlineage(said: Any, told: str | None) -> None:
    assert assertion(result("expect_column_to_exist", severity=said)).severity == told


@pytest.mark.parametrize(
    "exception",
    [
        {"raised_exception": True, "exception_message": "no such column: nosuch", "exception_traceback": "…"},
        {"('column.max', 'x')": {"raised_exception": True, "exception_message": "no such column: nosuch"}},
    ],
    ids=["of the expectation", "of a metric"],
)
def test_a_check_that_broke_says_so_and_nothing_about_the_data(exception: Mapping[str, Any]) -> None:
    told = assertion(result("expect_column_max_to_be_between", success=False, exception=exception, column="nosuch"))

    assert not told.success
    assert told.message is not None
    assert "The check itself broke" in told.message
    assert "no such column: nosuch" in told.message


def test_a_check_that_did_not_break_says_nothing_of_it() -> None:
    assert broken_message({"raised_exception": False, "exception_message": None}) is None
    assert broken_message({}) is None
    assert broken_message(None) is None


def test_a_parameter_of_the_run_is_the_same_test_whatever_its_value() -> None:
    template = {"column": "n", "max_value": {"$PARAMETER": "most"}, "min_value": 0}
    one, other = (
        assertion(
            result("expect_column_max_to_be_between", number="e1", column="n", min_value=0, max_value=most), e1=template
        )
        for most in (10, 20)
    )

    assert one.params == other.params == {"min_value": 0, "max_value": {"$PARAMETER": "most"}}
    assert (one.expected, other.expected) == ("min_value=0, max_value=10", "min_value=0, max_value=20")


def test_arguments_of_any_type_can_be_told() -> None:
    told = assertion(
        result(
            "expect_column_values_to_be_in_set",
            value_set={"b", "a"},
            since=datetime(2026, 11, 1, tzinfo=UTC),
            share=Decimal("0.5"),
            bound=float("nan"),
            nested={"x": [Decimal(1)]},
        )
    )

    assert told.params == {
        "value_set": ["a", "b"],
        "since": "2026-11-01 00:00:00+00:00",
        "share": 0.5,
        "bound": "nan",
        "nested": {"x": [1]},
    }


def test_a_long_value_is_cut() -> None:
    told = assertion(
        result("expect_column_distinct_values_to_be_in_set", found={"observed_value": list(range(10_000))})
    )

    assert told.actual is not None
    assert len(told.actual) == 1001


# Metrics


def test_rows_and_columns_are_those_that_were_measured() -> None:
    facet = extract_data_quality_metrics(
        [
            result("expect_table_row_count_to_be_between", found={"observed_value": 100}),
            result("expect_column_values_to_be_unique", column="id", found={"element_count": 100, "missing_count": 0}),
            result(
                "expect_column_values_to_not_be_null",
                column="price",
                found={"element_count": 100, "unexpected_count": 4},
            ),
            result("expect_column_min_to_be_between", column="price", found={"observed_value": Decimal("0.5")}),
            result("expect_column_max_to_be_between", column="price", found={"observed_value": 9}),
            result("expect_column_sum_to_be_between", column="price", found={"observed_value": 300}),
            result("expect_column_unique_value_count_to_be_between", column="price", found={"observed_value": 50}),
            result("expect_column_median_to_be_between", column="price", found={"observed_value": 3}),
            result("expect_column_max_to_be_between", column="at", found={"observed_value": datetime(2026, 1, 1)}),  # noqa: DTZ001
        ]
    )

    assert facet.rowCount == 100
    price = facet.columnMetrics["price"]
    assert (price.nullCount, price.count, price.min, price.max, price.sum, price.distinctCount, price.quantiles) == (
        4,
        96,
        0.5,
        9,
        300,
        50,
        {"0.5": 3},
    )
    assert (facet.columnMetrics["id"].nullCount, facet.columnMetrics["id"].count) == (0, 100)
    assert "at" not in facet.columnMetrics


def test_without_a_count_of_rows_the_largest_number_of_elements_stands() -> None:
    facet = extract_data_quality_metrics(
        [result("expect_column_values_to_be_unique", column="id", found={"element_count": n}) for n in (3, 7)]
    )

    assert facet.rowCount == 7


def test_a_part_of_the_rows_counts_for_nothing() -> None:
    part = result("expect_table_row_count_to_be_between", found={"observed_value": 5}, row_condition='country == "NL"')

    assert extract_data_quality_metrics([part]).rowCount is None


# All together


def test_the_facets_keep_their_schemas_and_correlator_reads_them() -> None:
    found = [
        result("expect_column_values_to_not_be_null", success=False, column="id", found={"unexpected_count": 2}),
        result("expect_column_values_to_not_be_null", column="name", found={"unexpected_count": 0}),
        result("expect_table_row_count_to_be_between", success=False, severity="warning", min_value=1),
        result(
            "expect_column_to_exist", success=False, exception={"raised_exception": True, "exception_message": "gone"}
        ),
    ]
    parent = extract_parent(PARENT)
    assert parent is not None
    event = RunEvent(
        eventType=RunState.FAIL,
        eventTime="2026-11-01T10:00:00+00:00",
        run=Run(str(UUID(int=7)), facets={"parent": parent}),
        job=Job("great_expectations://default", "daily.orders"),
        inputs=[
            InputDataset(
                "postgres://db:5432",
                "shop.public.orders",
                inputFacets={
                    "dataQualityMetrics": extract_data_quality_metrics(found),
                    "dataQualityAssertions": extract_data_quality_assertions(found),
                },
            )
        ],
        producer=PRODUCER,
    )

    judged = judge(Serde.to_json(event).encode(), SPEC)

    assert isinstance(judged, JudgedRunEvent), judged
    assert judged.warnings == ()
    told = {(one.test.name, one.test.column): one.result for one in results(judged)}
    assert [one.status for one in told.values()] == ["fail", "pass", "warn", "fail"]
    assert told["expect_column_values_to_not_be_null", "id"].actual == "2 unexpected"
    assert "broke" in told["expect_column_to_exist", ""].message
