"""The action that a checkpoint runs after its validations: it tells Correlator what they found."""

import logging
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from great_expectations import __version__ as tool_version
from great_expectations.checkpoint.actions import ValidationAction
from great_expectations.compatibility.pydantic import Field, validator
from great_expectations.datasource.fluent.config_str import ConfigStr
from great_expectations.exceptions.exceptions import GreatExpectationsError
from openlineage.client.event_v2 import InputDataset, Job, Run, RunEvent, RunState
from openlineage.client.facet_v2 import RunFacet, job_type_job, parent_run, processing_engine_run

from correlator import __version__
from correlator.integrations.great_expectations.datasets import DatasetName, dataset_name
from correlator.integrations.great_expectations.deadline import DeadlineError, within
from correlator.integrations.great_expectations.emitter import EmissionError, emit_events, endpoint_url
from correlator.integrations.great_expectations.extractors import (
    PRODUCER,
    extract_data_quality_assertions,
    extract_data_quality_metrics,
    extract_job_name,
    extract_parent,
    extract_run_id,
    extract_run_time,
)

if TYPE_CHECKING:
    from great_expectations.checkpoint.actions import ActionContext
    from great_expectations.checkpoint.checkpoint import CheckpointResult

_log: Final = logging.getLogger("correlator.integrations.great_expectations")


class CorrelatorValidationAction(ValidationAction):
    """Send the results of a checkpoint to Correlator, as OpenLineage events.

    Nothing that goes wrong here fails the checkpoint, or delays it beyond `timeout` seconds.
    """

    type: Literal["correlator"] = "correlator"

    correlator_endpoint: ConfigStr | str
    api_key: ConfigStr | str | None = Field(default=None, repr=False)
    emit_on: Literal["all", "success", "failure"] = "all"
    job_namespace: str = "great_expectations://default"
    timeout: int = Field(default=30, gt=0)

    @validator("correlator_endpoint")
    def _is_url(cls, endpoint: ConfigStr | str) -> ConfigStr | str:  # noqa: N805 (the validator is a class method)
        # What a variable stands for is known when the checkpoint runs.
        if isinstance(endpoint, str):
            endpoint_url(endpoint)
        return endpoint

    def run(
        self, checkpoint_result: "CheckpointResult", action_context: "ActionContext | None" = None
    ) -> dict[str, Any]:
        """Tell what was emitted, or why nothing was."""
        del action_context
        if not self._should_emit(is_success=bool(checkpoint_result.success)):
            outcome = "success" if checkpoint_result.success else "failure"
            return {"emitted": False, "reason": f"the checkpoint was a {outcome}, and emit_on is {self.emit_on}"}
        deadline = time.monotonic() + self.timeout
        try:
            # To name a dataset an engine may be asked, which may ask others: that too has to end.
            return within(self.timeout, lambda: self._emit(checkpoint_result, deadline))
        except EmissionError as error:
            # The emitter has logged it.
            return {"emitted": False, "reason": str(error)}
        except DeadlineError:
            reason = f"the results were not sent within {self.timeout} s; `timeout` says how long it may take"
            _log.warning("checkpoint %s: %s", checkpoint_result.name, reason)
            return {"emitted": False, "reason": reason}
        except Exception as error:  # noqa: BLE001 (fire and forget: a checkpoint never fails because of who listens)
            _log.exception("the results of checkpoint %s were not sent to Correlator", checkpoint_result.name)
            return {"emitted": False, "reason": f"{type(error).__name__}: {error}"}

    def _emit(self, checkpoint_result: "CheckpointResult", deadline: float) -> dict[str, Any]:
        events = self._build_events(checkpoint_result)
        emit_events(
            events,
            self._filled_in("correlator_endpoint") or "",
            api_key=self._filled_in("api_key"),
            timeout=max(0.0, deadline - time.monotonic()),
        )
        runs = dict.fromkeys(event.run.runId for event in events)
        return {"emitted": True, "events": len(events), "runs": list(runs)}

    def _should_emit(self, *, is_success: bool) -> bool:
        return self.emit_on == "all" or (self.emit_on == "success") == is_success

    def _build_events(self, checkpoint_result: "CheckpointResult") -> list[RunEvent]:
        """START and COMPLETE or FAIL of each validation."""
        parent = extract_parent(os.environ.get("OPENLINEAGE_PARENT_ID"), os.environ.get("OPENLINEAGE_ROOT_PARENT_ID"))
        events: list[RunEvent] = []
        for key, result in checkpoint_result.run_results.items():
            definition = _definition_of(checkpoint_result.checkpoint_config, result)
            suite = key.expectation_suite_identifier.name
            validation = f"{suite}/{key.batch_identifier}"
            started_at = extract_run_time(checkpoint_result.run_id)
            run_id = extract_run_id(checkpoint_result.run_id, checkpoint_result.name, validation)
            job = Job(
                namespace=self.job_namespace,
                name=extract_job_name(checkpoint_result.name, suite),
                facets={
                    "jobType": job_type_job.JobTypeJobFacet(
                        processingType="BATCH", integration="GREAT_EXPECTATIONS", jobType="TEST", producer=PRODUCER
                    )
                },
            )
            run = Run(runId=str(run_id), facets=_run_facets(parent))
            named = _dataset_of(definition, result)
            start = RunEvent(
                eventType=RunState.START,
                eventTime=started_at.isoformat(),
                run=run,
                job=job,
                inputs=[InputDataset(named.namespace, named.name)],
                producer=PRODUCER,
            )
            tested = InputDataset(
                named.namespace,
                named.name,
                inputFacets={
                    "dataQualityMetrics": extract_data_quality_metrics(result.results),
                    "dataQualityAssertions": extract_data_quality_assertions(result.results, _templates(definition)),
                },
            )
            end = RunEvent(
                eventType=RunState.COMPLETE if result.success else RunState.FAIL,
                # A run that was given a time to come has not ended before it began.
                eventTime=max(datetime.now(UTC), started_at).isoformat(),
                run=run,
                job=job,
                inputs=[tested],
                producer=PRODUCER,
            )
            events += [start, end]
        return events

    def _filled_in(self, setting: Literal["correlator_endpoint", "api_key"]) -> str | None:
        """A setting, with the variable that may stand in it."""
        try:
            return self._substitute_config_str_if_needed(getattr(self, setting))
        except GreatExpectationsError as error:
            raise ValueError(
                f"{setting} names a variable that is set neither in the environment nor in config_variables.yml"
            ) from error


def _run_facets(parent: parent_run.ParentRunFacet | None) -> dict[str, RunFacet]:
    facets: dict[str, RunFacet] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version=tool_version,
            name="great_expectations",
            openlineageAdapterVersion=__version__,
            producer=PRODUCER,
        )
    }
    return facets if parent is None else facets | {"parent": parent}


def _definition_of(checkpoint: Any, result: Any) -> Any | None:
    """The validation definition that a result is of: by its id; before it had one, by suite and asset."""
    definitions = list(checkpoint.validation_definitions)
    wanted = (result.meta or {}).get("validation_id")
    for definition in definitions:
        if wanted is not None and definition.id == wanted:
            return definition
    batch = _batch_of(result)
    for definition in definitions:
        if (definition.suite.name, definition.data.data_asset.name) == (
            result.suite_name,
            batch.get("data_asset_name"),
        ):
            return definition
    return None


def _dataset_of(definition: Any | None, result: Any) -> DatasetName:
    batch = _batch_of(result)
    if definition is not None:
        spec = (result.meta or {}).get("batch_spec")
        try:
            return dataset_name(definition.data.data_asset, spec if isinstance(spec, Mapping) else {})
        except Exception as error:  # noqa: BLE001 (a result under a lesser name is worth more than none)
            # Its words may quote a connection, and the password in it.
            _log.warning("a tested dataset cannot be named by its connection: %s", type(error).__name__)
    return DatasetName(batch.get("datasource_name") or "great_expectations", batch.get("data_asset_name") or "unknown")


def _batch_of(result: Any) -> Mapping[str, Any]:
    found = (result.meta or {}).get("active_batch_definition")
    return found if isinstance(found, Mapping) else {}


def _templates(definition: Any | None) -> dict[str, Mapping[str, Any]]:
    """The arguments of the suite's expectations before parameters were filled in, by the expectations' ids."""
    expectations = [] if definition is None else definition.suite.expectations
    return {str(each.id): each.configuration.kwargs for each in expectations if each.id}
