"""Facets, as the tools write them."""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from correlator.demo.code_text import query
from correlator.demo.parts import Company, Job, Name, Tool
from correlator.demo.runs import Launch, Run
from correlator.demo.world import Column, Content

_OPENLINEAGE: Final = "https://github.com/OpenLineage/OpenLineage/tree/1.42.0"
PRODUCERS: Final = {
    Tool.AIRFLOW: "https://github.com/apache/airflow/tree/providers-openlineage/2.7.0",
    Tool.DBT: f"{_OPENLINEAGE}/integration/dbt",
    Tool.SPARK: f"{_OPENLINEAGE}/integration/spark",
    Tool.PLAIN: f"{_OPENLINEAGE}/client/python",
}
CHECKER: Final = f"{_OPENLINEAGE}/integration/great_expectations"
CATALOGUE: Final = "https://git.example/platform/catalogue"
_ADAPTERS: Final = {Tool.AIRFLOW: "2.7.0", Tool.DBT: "1.42.0", Tool.SPARK: "1.42.0", Tool.PLAIN: "1.42.0"}
_ENGINES: Final = {Tool.AIRFLOW: "Airflow", Tool.DBT: "dbt", Tool.SPARK: "spark", Tool.PLAIN: "python"}
_CUSTOM: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunFacet"
_FACETS: Final = {
    "columnLineage": "1-2-0/ColumnLineageDatasetFacet",
    "dataQualityAssertions": "1-0-1/DataQualityAssertionsDatasetFacet",
    "dataQualityMetrics": "1-0-2/DataQualityMetricsInputDatasetFacet",
    "dataSource": "1-0-1/DatasourceDatasetFacet",
    "documentation": "1-1-0/DocumentationJobFacet",
    "errorMessage": "1-0-1/ErrorMessageRunFacet",
    "executionParameters": "1-0-0/ExecutionParametersRunFacet",
    "inputStatistics": "1-0-0/InputStatisticsInputDatasetFacet",
    "jobType": "2-0-3/JobTypeJobFacet",
    "nominalTime": "1-0-1/NominalTimeRunFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet",
    "ownership": "1-0-1/OwnershipJobFacet",
    "ownershipDataset": "1-0-1/OwnershipDatasetFacet",
    "parent": "1-1-0/ParentRunFacet",
    "processing_engine": "1-1-1/ProcessingEngineRunFacet",
    "schema": "1-1-1/SchemaDatasetFacet",
    "sourceCodeLocation": "1-0-1/SourceCodeLocationJobFacet",
    "sql": "1-0-1/SQLJobFacet",
    "symlinks": "1-0-1/SymlinksDatasetFacet",
    "test": "1-0-0/TestRunFacet",
    "version": "1-0-1/DatasetVersionDatasetFacet",
}
BYTES_A_ROW: Final = 118

Facets = dict[str, Any]
encode: Final = msgspec.json.Encoder().encode


class FacetMaker:
    """What comes again and again is written once and kept as text."""

    def __init__(self, company: Company) -> None:
        self._company = company
        self._known: dict[object, msgspec.Raw] = {}

    def facet(self, key: str, producer: str, **body: Any) -> Facets:
        file = _FACETS[key]
        name = file.partition("/")[2]
        return {
            "_producer": producer,
            "_schemaURL": f"https://openlineage.io/spec/facets/{file}.json#/$defs/{name}",
            **body,
        }

    def custom(self, producer: str, **body: Any) -> Facets:
        return {"_producer": producer, "_schemaURL": _CUSTOM, **body}

    def _remember(self, key: object, facet: Facets) -> msgspec.Raw:
        raw = self._known[key] = msgspec.Raw(encode(facet))
        return raw

    def schema(self, producer: str, columns: dict[str, Column], extra: tuple[str, ...]) -> msgspec.Raw:
        fields = tuple((name, column.type) for name, column in columns.items())
        key = (producer, fields, extra)
        found = self._known.get(key)
        if found is not None:
            return found
        listed = [{"name": name, "type": kind} for name, kind in fields]
        listed += [{"name": name, "type": "varchar"} for name in extra]
        return self._remember(key, self.facet("schema", producer, fields=listed))

    def column_lineage(self, job: Job, columns: dict[str, Column], producer: str) -> msgspec.Raw:
        key = (job.key, "columnLineage", tuple(columns))
        found = self._known.get(key)
        if found is not None:
            return found
        fields = {}
        for each in job.fields:
            if each.source is None or each.name not in columns:
                continue
            name = self._company.tables[job.inputs[each.source[0]].table].read_as
            subtype = {"identity": "IDENTITY", "expression": "TRANSFORMATION"}.get(each.operation, "AGGREGATION")
            origin = {
                "namespace": name.namespace,
                "name": name.name,
                "field": each.source[1],
                "transformations": [{"type": "DIRECT", "subtype": subtype, "description": "", "masking": False}],
            }
            fields[each.name] = {"inputFields": [origin]}
        indirect = []
        for each_input in job.inputs:
            if each_input.role in ("filter", "union"):
                name = self._company.tables[each_input.table].read_as
                subtype = "JOIN" if each_input.role == "filter" else "CONDITIONAL"
                how = {"type": "INDIRECT", "subtype": subtype, "description": "", "masking": False}
                column = self._company.producers[each_input.table].fields[0].name
                indirect.append(
                    {"namespace": name.namespace, "name": name.name, "field": column, "transformations": [how]}
                )
        body: Facets = {"fields": fields}
        if indirect:
            body["dataset"] = indirect
        return self._remember(key, self.facet("columnLineage", producer, **body))

    def sql(self, run: Run, producer: str) -> msgspec.Raw:
        key = (run.job.key, "sql", run.code.revision, run.code.bug)
        found = self._known.get(key)
        if found is not None:
            return found
        return self._remember(key, self.facet("sql", producer, query=query(self._company, run.job, run.code)))

    def location(self, run: Run, producer: str) -> msgspec.Raw:
        key = (run.job.key, "commit", run.code.commit)
        found = self._known.get(key)
        if found is not None:
            return found
        repository = run.job.repository
        path = f"jobs/{run.job.key}.py"
        body = {
            "type": "git",
            "url": f"{repository}/blob/{run.code.commit}/{path}",
            "repoUrl": f"{repository}.git",
            "path": path,
            "version": run.code.commit,
            "branch": "main",
        }
        return self._remember(key, self.facet("sourceCodeLocation", producer, **body))

    def engine(self, tool: Tool, version: str) -> msgspec.Raw:
        key = (tool, "engine", version)
        found = self._known.get(key)
        if found is not None:
            return found
        name, adapter = _ENGINES[tool], _ADAPTERS[tool]
        producer = PRODUCERS[tool]
        facet = self.facet("processing_engine", producer, version=version, name=name, openlineageAdapterVersion=adapter)
        return self._remember(key, facet)

    def job_type(self, tool: Tool, kind: str) -> msgspec.Raw:
        key = (tool, "jobType", kind)
        found = self._known.get(key)
        if found is not None:
            return found
        integration = "PYTHON" if tool is Tool.PLAIN else tool.upper()
        body = {"processingType": "BATCH", "integration": integration, "jobType": kind}
        return self._remember(key, self.facet("jobType", PRODUCERS[tool], **body))

    def owners(self, owner: str, producer: str, key: str = "ownership") -> msgspec.Raw:
        known = (owner, producer, key)
        found = self._known.get(known)
        if found is not None:
            return found
        return self._remember(known, self.facet(key, producer, owners=[{"name": owner, "type": "TEAM"}]))

    def parent(self, job: Name, run_id: str, root: Name, root_id: str, producer: str) -> Facets:
        return self.facet(
            "parent",
            producer,
            run={"runId": run_id},
            job={"namespace": job.namespace, "name": job.name},
            root={"run": {"runId": root_id}, "job": {"namespace": root.namespace, "name": root.name}},
        )

    def nominal(self, launch: Launch, producer: str) -> Facets:
        end = launch.nominal
        return self.facet(
            "nominalTime", producer, nominalStartTime=iso(end - launch.pipeline.period), nominalEndTime=iso(end)
        )

    def error(self, message: str, language: str, producer: str) -> Facets:
        return self.facet("errorMessage", producer, message=message, programmingLanguage=language)

    def parameters(self, run: Run, producer: str) -> Facets:
        if run.job.tool is Tool.SPARK:
            properties = {f"spark.app.{name}": value for name, value in run.parameters}
            return {"spark_properties": self.custom(producer, properties=properties)}
        parameters = [{"key": name, "value": value} for name, value in run.parameters]
        return {"executionParameters": self.facet("executionParameters", producer, parameters=parameters)}

    def airflow(self, run: Run, producer: str) -> Facets:
        dag, _, task = run.job.told_as.name.partition(".")
        return self.custom(
            producer,
            dag={"dag_id": dag, "owner": run.job.owner, "tags": "[]", "timetable": {}},
            dagRun={"dag_id": dag, "conf": {}, "run_id": _dag_run_id(run.launch), "run_type": "scheduled"},
            task={"task_id": task, "operator_class": "SQLExecuteQueryOperator", "retries": run.job.retries},
            taskInstance={"try_number": run.attempt},
            taskUuid=run.run_id,
        )

    def dag_run(self, launch: Launch, producer: str) -> Facets:
        dag = launch.pipeline.told_as.name
        run = {"dag_id": dag, "conf": {}, "run_id": _dag_run_id(launch), "run_type": "scheduled"}
        return self.custom(producer, dag={"dag_id": dag, "tags": "[]"}, dagRun=run)

    def dbt_run(self, launch: Launch, producer: str) -> Facets:
        project = self._company.flavour.get("project", "dbt")
        return self.custom(producer, invocation_id=launch.run_id, project_name=project, dbt_runtime="core")

    def statistics(self, content: Content, producer: str) -> Facets:
        rows = round(content.rows)
        return self.facet("outputStatistics", producer, rowCount=rows, size=rows * BYTES_A_ROW)

    def metrics(self, content: Content, producer: str) -> Facets:
        rows = round(content.rows)
        columns = {
            name: {"nullCount": round(rows * column.nulls), "count": rows, "sum": round(rows * column.value * 50, 2)}
            for name, column in content.columns.items()
        }
        return self.facet("dataQualityMetrics", producer, rowCount=rows, columnMetrics=columns)


def _dag_run_id(launch: Launch) -> str:
    return f"scheduled__{iso(launch.nominal - launch.pipeline.period)}"


def iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds")
