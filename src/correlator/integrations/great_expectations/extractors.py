"""From what Great Expectations has found to what OpenLineage can say. Pure: no network, no clock, no import of either.

Results are read by their attributes, as they are documented, so that every version from 1.3 on will do.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

import attr
from openlineage.client.facet_v2 import (
    data_quality_assertions_dataset,
    data_quality_metrics_input_dataset,
    parent_run,
)

from correlator import __version__

PRODUCER: Final = f"https://github.com/correlator-io/correlator/{__version__}"

_NO_PARAMETERS: Final = frozenset({"batch_id", "catch_exceptions", "column", "include_config", "meta", "result_format"})
"""Arguments of an expectation that are not part of the question it asks."""

_LONGEST: Final = 1_000
"""Characters of one value that are told: an observed value may be every distinct value of a column."""

_SEVERITIES: Final = {"critical": "error", "warning": "warn", "info": "warn"}
"""As OpenLineage calls them, which has no word for less than a warning; another word stays."""

# `min` and so on of the facet are numbers: of dates and texts they are not told.
_COLUMN_METRICS: Final = {
    "expect_column_max_to_be_between": "max",
    "expect_column_min_to_be_between": "min",
    "expect_column_sum_to_be_between": "sum",
    "expect_column_unique_value_count_to_be_between": "distinctCount",
}
_COUNTS_ROWS: Final = frozenset(
    {
        "expect_table_row_count_to_be_between",
        "expect_table_row_count_to_equal",
        "expect_table_row_count_to_equal_other_table",
    }
)


@attr.define
class Assertion(data_quality_assertions_dataset.Assertion):
    """With what OpenLineage has no field for, and Correlator reads or shows."""

    message: str | None = attr.field(default=None)
    unexpectedCount: int | None = attr.field(default=None)  # noqa: N815 (spelled as its neighbours in the facet)


def extract_job_name(checkpoint: str, suite: str) -> str:
    return f"{checkpoint}.{suite}"


def extract_run_time(run_id: Any) -> datetime:
    """When the checkpoint was started, in UTC. Without an offset it is the time of this machine, as for the tool."""
    started: datetime = run_id.run_time
    return started.astimezone(UTC)


def extract_run_id(run_id: Any, checkpoint: str, validation: str) -> UUID:
    """The same for a repeated emission of one run, another for a new run of the same name."""
    said = [run_id.run_name or "", extract_run_time(run_id).isoformat(), checkpoint, validation]
    # As JSON, in which no name can reach into the next.
    return uuid5(NAMESPACE_URL, f"great_expectations:{json.dumps(said, ensure_ascii=False)}")


def extract_parent(parent: str | None, root: str | None = None) -> parent_run.ParentRunFacet | None:
    """From `NAMESPACE/JOB/RUN`, as schedulers hand it on, slashes in the namespace or not; None for anything else."""
    found = _identified(parent)
    if found is None:
        return None
    above = _identified(root) or found
    return parent_run.ParentRunFacet(
        run=parent_run.Run(runId=found[2]),
        job=parent_run.Job(namespace=found[0], name=found[1]),
        root=parent_run.Root(
            run=parent_run.RootRun(runId=above[2]), job=parent_run.RootJob(namespace=above[0], name=above[1])
        ),
        producer=PRODUCER,
    )


def _identified(text: str | None) -> tuple[str, str, str] | None:
    namespace, job, run = [*(text or "").strip().rsplit("/", 2), "", "", ""][:3]
    try:
        return (namespace, job, str(UUID(run))) if namespace and job else None
    except ValueError:
        return None


# Assertions


def extract_data_quality_assertions(
    results: Iterable[Any], templates: Mapping[str, Mapping[str, Any]] | None = None
) -> data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet:
    """One assertion for each expectation.

    `templates` are the arguments of expectations, by their ids, as they stand in the suite: what is a parameter there
    (`$PARAMETER`) has another value in each run, and is still the same test.
    """
    found: list[data_quality_assertions_dataset.Assertion] = [
        _assertion(result, (templates or {}).get(str(getattr(result.expectation_config, "id", "")), {}))
        for result in results
    ]
    return data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions=found, producer=PRODUCER)


def _assertion(result: Any, template: Mapping[str, Any]) -> Assertion:
    config = result.expectation_config
    arguments = {
        name: value for name, value in config.kwargs.items() if name not in _NO_PARAMETERS and value is not None
    }
    parameters = {
        name: template[name] if _is_parameter(template.get(name)) else value for name, value in arguments.items()
    }
    column = config.kwargs.get("column")
    observed = result.result or {}
    broken = broken_message(getattr(result, "exception_info", None))
    return Assertion(
        assertion=config.type,
        success=bool(result.success),
        column=None if column is None else str(column),
        severity=_severity(getattr(config, "severity", None)),
        description=_description(config),
        expected=_expected(arguments, observed),
        actual=_actual(observed),
        params={name: _plain(value) for name, value in parameters.items()},
        message=broken if broken is not None else _failure(observed, is_passed=bool(result.success)),
        unexpectedCount=_whole(observed.get("unexpected_count")),
    )


def _expected(arguments: Mapping[str, Any], observed: Mapping[str, Any]) -> str | None:
    said = ", ".join(f"{name}={_text(value)}" for name, value in arguments.items())
    return _short(said) or (None if observed.get("unexpected_count") is None else "0 unexpected")


def _is_parameter(value: Any) -> bool:
    return isinstance(value, Mapping) and "$PARAMETER" in value


def _severity(value: Any) -> str | None:
    word = getattr(value, "value", value)
    return None if word is None else _SEVERITIES.get(str(word), str(word))


def _description(config: Any) -> str | None:
    found = getattr(config, "description", None)
    return _short(str(found)) if found else None


def broken_message(exception_info: Any) -> str | None:
    """What kept an expectation from being evaluated: that is no finding about the data, and says so."""
    raised = [one for one in _exceptions(exception_info) if one.get("raised_exception")]
    if not raised:
        return None
    words = dict.fromkeys(str(one.get("exception_message") or "no message").strip() for one in raised)
    return _short(f"The check itself broke, and says nothing about the data: {'; '.join(words)}")


def _exceptions(info: Any) -> list[Mapping[str, Any]]:
    """One exception, or one for each metric that was to be computed."""
    if not isinstance(info, Mapping):
        return []
    if "raised_exception" in info:
        return [info]
    return [one for one in info.values() if isinstance(one, Mapping)]


def _actual(observed: Mapping[str, Any]) -> str | None:
    if observed.get("observed_value") is not None:
        return _short(_text(observed["observed_value"]))
    unexpected = _whole(observed.get("unexpected_count"))
    if unexpected is None:
        return None
    elements = _whole(observed.get("element_count"))
    return f"{unexpected} unexpected" + ("" if elements is None else f" of {elements}")


def _failure(observed: Mapping[str, Any], *, is_passed: bool) -> str | None:
    """In words without values of the data, which may be personal."""
    unexpected = _whole(observed.get("unexpected_count"))
    if is_passed or unexpected is None:
        return None
    share = _number(observed.get("unexpected_percent"))
    return f"{_actual({**observed, 'observed_value': None})}" + ("" if share is None else f" ({share:.3g} %)")


# Metrics


def extract_data_quality_metrics(
    results: Iterable[Any],
) -> data_quality_metrics_input_dataset.DataQualityMetricsInputDatasetFacet:
    """Counts and values that expectations have measured on the way; what looks at a part of the rows does not count."""
    rows: int | None = None
    elements: list[int] = []
    columns: dict[str, dict[str, Any]] = {}
    for result in results:
        config, observed = result.expectation_config, result.result or {}
        if config.kwargs.get("row_condition") is not None:
            continue
        value = observed.get("observed_value")
        if config.type in _COUNTS_ROWS:
            rows = _whole(value.get("self") if isinstance(value, Mapping) else value) if rows is None else rows
        if (number := _whole(observed.get("element_count"))) is not None:
            elements.append(number)
        if (column := config.kwargs.get("column")) is not None:
            measured = columns.setdefault(str(column), {})
            for name, found in _column_metrics(config, observed).items():
                measured.setdefault(name, found)
    if rows is None:
        rows = max(elements, default=None)
    return data_quality_metrics_input_dataset.DataQualityMetricsInputDatasetFacet(
        rowCount=rows,
        columnMetrics={
            column: data_quality_metrics_input_dataset.ColumnMetrics(**measured)
            for column, measured in columns.items()
            if measured
        },
        producer=PRODUCER,
    )


def _column_metrics(config: Any, observed: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    elements = _whole(observed.get("element_count"))
    nulls = _nulls(config.type, observed, elements)
    if nulls is not None:
        found["nullCount"] = nulls
        if elements is not None:
            found["count"] = elements - nulls
    value = observed.get("observed_value")
    metric = _COLUMN_METRICS.get(config.type)
    if metric is not None:
        number = _whole(value) if metric == "distinctCount" else _number(value)
        if number is not None:
            found[metric] = number
    quantiles = _quantiles(config.type, value)
    if quantiles:
        found["quantiles"] = quantiles
    return found


def _nulls(kind: str, observed: Mapping[str, Any], elements: int | None) -> int | None:
    if observed.get("missing_count") is not None:
        return _whole(observed["missing_count"])
    unexpected = _whole(observed.get("unexpected_count"))
    if kind == "expect_column_values_to_not_be_null":
        return unexpected
    if kind == "expect_column_values_to_be_null" and elements is not None and unexpected is not None:
        return elements - unexpected
    return None


def _quantiles(kind: str, value: Any) -> dict[str, float]:
    if kind == "expect_column_median_to_be_between" and (median := _number(value)) is not None:
        return {"0.5": median}
    if kind == "expect_column_quantile_values_to_be_between" and isinstance(value, Mapping):
        pairs = zip(value.get("quantiles") or (), value.get("values") or (), strict=False)
        return {str(share): number for share, found in pairs if (number := _number(found)) is not None}
    return {}


# Values, of whatever library measured them


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, bool | str):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """What JSON can hold: numbers of numpy and Decimal as numbers, moments and all else as text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(one) for one in value), key=str)
    number = _number(value)
    if number is None:
        return str(value)
    return int(number) if number.is_integer() else number


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
