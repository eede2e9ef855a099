"""Results of data tests: where producers put them, what identifies a test, and what a run's results amount to."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from correlator.rulebook import identity
from correlator.rulebook.events import Dataset, EventType, Facets, RunEvent
from correlator.rulebook.naming import storable
from correlator.rulebook.statements import DatasetRef, dataset_ref

Status = Literal["pass", "fail", "warn", "skip"]

NO_DATASET: Final[identity.Id] = b""
NO_PARAMETERS: Final[identity.Digest] = b""

_ASSERTIONS = "dataQualityAssertions"
_OLD_GREAT_EXPECTATIONS = "greatExpectations_assertions"

_STATUSES: Final[dict[str, Status]] = {
    "pass": "pass",
    "passed": "pass",
    "success": "pass",
    "fail": "fail",
    "failed": "fail",
    "error": "fail",
    "warn": "warn",
    "warning": "warn",
}
"""What producers write for a status; anything else neither passed nor failed."""


class DataTest(msgspec.Struct, frozen=True, gc=False):
    """What is asked. The same question of the same dataset is the same test, whichever run asks it."""

    key: identity.Id
    dataset: identity.Id
    name: str
    column: str
    parameters: str
    """Canonical JSON, empty for none."""


class Result(msgspec.Struct, frozen=True, gc=False):
    """What was answered."""

    status: Status
    severity: str = ""
    expected: str = ""
    actual: str = ""
    message: str = ""
    description: str = ""
    of_own_output: bool = False
    """Asserted by the run that wrote the dataset, about what it wrote."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    test: DataTest
    result: Result
    dataset: DatasetRef | None
    """None for results that a run reports of no dataset in particular."""


def are_among(facets: Facets) -> bool:
    """Whether the facets of a dataset, or of its use, are of a kind that carries results."""
    return _ASSERTIONS in facets.typed or _OLD_GREAT_EXPECTATIONS in facets.raw


def results(event: RunEvent) -> list[Outcome]:
    """The results that an event carries, each test once."""
    found: dict[identity.Id, Outcome] = {}
    # What a run says of what it wrote speaks louder than what it says of what it found there.
    for datasets, of_own_output in ((event.outputs, True), (event.inputs, False)):
        for dataset in datasets:
            for outcome in _of_dataset(dataset, of_own_output=of_own_output):
                found.setdefault(outcome.test.key, outcome)
    for outcome in _of_run(event.run.facets):
        found.setdefault(outcome.test.key, outcome)
    return list(found.values())


def _of_dataset(dataset: Dataset, *, of_own_output: bool) -> Iterator[Outcome]:
    ref: DatasetRef | None = None
    for facets in (dataset.role_facets, dataset.facets):
        for assertion in [*_assertions(facets), *_old_assertions(facets)]:
            ref = ref or dataset_ref(dataset.namespace, dataset.name)
            name = assertion.get("name") or assertion.get("assertion")
            test = _test(ref.key, str(name), assertion)
            yield Outcome(test, _result(assertion, _status_of(assertion), of_own_output=of_own_output), ref)


def _assertions(facets: Facets) -> list[dict[str, Any]]:
    """Read from the raw facet, for the unofficial `failedRows` and `message`; only when the facet keeps its schema."""
    if _ASSERTIONS not in facets.typed:
        return []
    return list(identity.decoded(facets.raw[_ASSERTIONS].text)["assertions"])


def _old_assertions(facets: Facets) -> Iterator[dict[str, Any]]:
    """The custom facet of older Great Expectations integrations, which calls a test by its `expectationType`."""
    raw = None if _OLD_GREAT_EXPECTATIONS in facets.deleted else facets.raw.get(_OLD_GREAT_EXPECTATIONS)
    value = identity.decoded(raw.text) if raw is not None else None
    said = value.get("assertions") if isinstance(value, dict) else None
    for item in said if isinstance(said, list) else ():
        if isinstance(item, dict) and isinstance(item.get("success"), bool):
            name = item.get("expectationType") or item.get("assertion")
            if isinstance(name, str) and name:
                yield item | {"assertion": name}


def _of_run(facets: Facets) -> Iterator[Outcome]:
    facet = facets.typed.get("test")
    for execution in [] if facet is None else identity.decoded(facets.raw["test"].text)["tests"]:
        status = _STATUSES.get(execution["status"].lower(), "skip")
        if status == "fail" and _is_warning(execution):
            status = "warn"
        yield Outcome(_test(NO_DATASET, execution["name"], execution), _result(execution, status), None)


def _test(dataset: identity.Id, name: str, said: dict[str, Any]) -> DataTest:
    column = _text(said.get("column"))
    parameters = said.get("params")
    written = identity.canonical_json(parameters) if isinstance(parameters, dict) and parameters else NO_PARAMETERS
    key = identity.data_test_key(dataset, name, column, written)
    return DataTest(key, dataset, storable(name), column, storable(written.decode()))


def _status_of(assertion: dict[str, Any]) -> Status:
    if assertion["success"]:
        return "pass"
    return "warn" if _is_warning(assertion) else "fail"


def _is_warning(said: dict[str, Any]) -> bool:
    return _text(said.get("severity")).lower() in ("warn", "warning")


def _result(said: dict[str, Any], status: Status, *, of_own_output: bool = False) -> Result:
    actual = said.get("actual")
    return Result(
        status=status,
        severity=_text(said.get("severity")).lower(),
        expected=_text(said.get("expected")),
        actual=_text(actual if actual is not None else said.get("failedRows")),
        message=_text(said.get("message")),
        description=_text(said.get("description")),
        of_own_output=of_own_output,
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    return storable(value if isinstance(value, str) else identity.canonical_json(value).decode())


def observes(job_type: str, *, has_results: bool, has_outputs: bool) -> bool:
    """Whether a run only looks at data: a test job, or one that carries results and writes nothing."""
    return job_type.upper() == "TEST" or (has_results and not has_outputs)


def standing_results(
    stored: Sequence[Outcome],
    *,
    inputs: Iterable[DatasetRef],
    job_name: str,
    state: EventType,
    error_message: str,
    is_observing: bool,
) -> list[Outcome]:
    """What the results of one whole run amount to, given all that its events said.

    - A result of the `test` run facet belongs to the inputs of its run, unless a test of that name is reported of a
      dataset: then it is the same result in another place.
    - An observing run that FAILed or carries an error, with no result at all, is one failed test on each input, named
      after its job.
    - Beside results the run's error fills in the messages that are empty.
    """
    datasets = sorted(inputs, key=lambda dataset: dataset.urn)
    named = {outcome.test.name for outcome in stored if outcome.dataset is not None}
    standing = [outcome for outcome in stored if outcome.dataset is not None]
    for outcome in stored:
        if outcome.dataset is None and outcome.test.name not in named:
            standing.extend(_moved_to(outcome, dataset) for dataset in datasets)
            if not datasets:
                standing.append(outcome)
    if not is_observing:
        return standing
    if not standing and (state == "FAIL" or error_message):
        standing = [_implied(job_name, dataset) for dataset in datasets]
    return [_with_message(outcome, error_message) for outcome in standing]


def _moved_to(outcome: Outcome, dataset: DatasetRef) -> Outcome:
    test = outcome.test
    key = identity.data_test_key(dataset.key, test.name, test.column, test.parameters.encode())
    return Outcome(DataTest(key, dataset.key, test.name, test.column, test.parameters), outcome.result, dataset)


def _implied(job_name: str, dataset: DatasetRef) -> Outcome:
    key = identity.data_test_key(dataset.key, job_name, "", NO_PARAMETERS)
    return Outcome(DataTest(key, dataset.key, job_name, "", ""), Result(status="fail"), dataset)


def _with_message(outcome: Outcome, error_message: str) -> Outcome:
    if outcome.result.message or outcome.result.status not in ("fail", "warn"):
        return outcome
    return Outcome(outcome.test, msgspec.structs.replace(outcome.result, message=error_message), outcome.dataset)
