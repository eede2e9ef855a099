"""What the spec demands and the classes of `openlineage-python` do not say.

The classes carry names, types and which fields may be absent. The rest of the official schemas is these tables, keyed
by class and field; `tests/unit/rulebook/test_spec_tables.py` holds them against the schemas themselves.
"""

from typing import Final, Literal

Format = Literal["date-time", "uri", "uuid"]
Entity = Literal["run", "job", "dataset", "input", "output"]
FacetKey = tuple[Entity, str]

FACET_KEYS: Final = {
    "DatasetVersionDatasetFacet": "version",
    "DatasourceDatasetFacet": "dataSource",
    "InputSubsetInputDatasetFacet": "subset",
    "OutputSubsetOutputDatasetFacet": "subset",
    "ProcessingEngineRunFacet": "processing_engine",
    "SQLJobFacet": "sql",
}
"""Facets whose key is not their class name without the entity (`ErrorMessageRunFacet` → `errorMessage`)."""

ALWAYS_REQUIRED: Final = frozenset({"producer", "schemaURL", "_producer", "_schemaURL"})
"""The classes fill these in for their users; on the wire they have to be there."""

FORMATS: Final[dict[str, Format]] = {
    "BaseEvent.eventTime": "date-time",
    "BaseEvent.producer": "uri",
    "BaseEvent.schemaURL": "uri",
    "BaseFacet._producer": "uri",
    "BaseFacet._schemaURL": "uri",
    "Run.runId": "uuid",
    "RootRun.runId": "uuid",
    "RunIdentifier.runId": "uuid",
    "LineageJobEntry.runId": "uuid",
    "LineageJobInput.runId": "uuid",
    "NominalTimeRunFacet.nominalStartTime": "date-time",
    "NominalTimeRunFacet.nominalEndTime": "date-time",
    "DataQualityMetricsDatasetFacet.lastUpdated": "date-time",
    "DataQualityMetricsInputDatasetFacet.lastUpdated": "date-time",
    "DatasourceDatasetFacet.uri": "uri",
    "SourceCodeLocationJobFacet.url": "uri",
}

MINIMUMS: Final = {"EmissionPattern.windowDuration": 1}

CLOSED: Final = frozenset({"ExecutionParameter"})
"""The only object of the spec that takes no property but its own."""

TOGETHER: Final = {
    "LineageJobEntry": ("namespace", "name"),
    "LineageJobInput": ("namespace", "name"),
}
"""Fields of which none or both are there (`dependentRequired`)."""

FACET_MAPS: Final = frozenset({"facets", "inputFacets", "outputFacets"})
"""Where the facets of an event stand. They are left as they are written, and read one by one."""

NULLABLE: Final = frozenset({"JobEvent.inputs", "JobEvent.outputs", "RunEvent.inputs", "RunEvent.outputs"})
"""Decoded even when null, because policy `correlator` reads that as an empty list; policy `spec` refuses it."""

OTHER_HOMES: Final[dict[FacetKey, FacetKey]] = {
    ("run", "parentRun"): ("run", "parent"),
    ("run", "sql"): ("job", "sql"),
    ("dataset", "dataQualityAssertions"): ("input", "dataQualityAssertions"),
    ("output", "dataQualityAssertions"): ("input", "dataQualityAssertions"),
}
"""Standard facets that real producers put where the spec does not: understood there, and worth a warning at most."""
