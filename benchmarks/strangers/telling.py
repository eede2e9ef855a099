"""What the producers say of it: the events of a world, each producer in its own manner."""

import json
import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.strangers.contents import Content
from benchmarks.strangers.life import Result, Run, World
from benchmarks.strangers.shape import Check, Job, Table

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
PRODUCER = "https://example.com/strangers"
SPEC = "https://openlineage.io/spec"
CHECK_TAKES = 0.002
"""Hours. Who tells of a check only when it is over says that it looked then."""
Json = dict[str, Any]


def facet(kind: str, /, **members: Any) -> Json:
    return {"_producer": PRODUCER, "_schemaURL": f"{SPEC}/facets/1-0-0/{kind}.json", **members}


def schema_of(columns: dict[str, str]) -> Json:
    return facet("SchemaDatasetFacet", fields=[{"name": name, "type": kind} for name, kind in columns.items()])


class Teller:
    def __init__(self, world: World) -> None:
        self.world = world
        self.tables = world.warehouse.tables
        self.first_day = MONDAY + timedelta(days=world.warehouse.weekday)

    def moment(self, hours: float) -> str:
        return (self.first_day + timedelta(hours=hours)).isoformat(timespec="milliseconds")

    def events(self) -> list[bytes]:
        """In the order in which they arrive: near that of their times, some much later."""
        told = [*self._runs(), *self._pipelines(), *self._checks()]
        luck = random.Random(f"arrival/{self.world.warehouse.seed}")
        arrival = [at + luck.expovariate(60) + (luck.uniform(1, 9) if luck.random() < 0.02 else 0) for at, _ in told]
        order = sorted(range(len(told)), key=arrival.__getitem__)
        return [json.dumps(told[number][1]).encode() for number in order]

    def event(self, state: str, at: float, job: tuple[str, str], run_id: str, **members: Any) -> tuple[float, Json]:
        run: Json = {"runId": run_id, "facets": members.pop("run_facets", {})}
        named: Json = {"namespace": job[0], "name": job[1], "facets": members.pop("job_facets", {})}
        body = {
            "eventType": state,
            "eventTime": self.moment(at),
            "producer": PRODUCER,
            "schemaURL": f"{SPEC}/2-0-2/OpenLineage.json",
            "run": run,
            "job": named,
            **members,
        }
        return at, body

    def _runs(self) -> Iterator[tuple[float, Json]]:
        for run in self.world.runs:
            if run.slot < 0 and run.start < 0:
                continue
            yield from self._run(run)

    def _run(self, run: Run) -> Iterator[tuple[float, Json]]:
        job = run.job
        members: Json = {
            "run_facets": self._run_facets(run),
            "job_facets": self._job_facets(run),
            "inputs": self._inputs(run),
        }
        plain = {"outputs": [self._output(run, is_final=False)]}
        if run.state == "SKIPPED":
            if job.dialect == "dbt":
                yield self.event("ABORT", run.end, job.address, run.run_id, **members, **plain)
            return
        final = {"outputs": [self._output(run, is_final=True)]}
        if job.dialect in ("airflow", "spark") or (job.dialect == "dbt" and "repo" in job.says):
            yield self.event("START", run.start, job.address, run.run_id, **members, **plain)
        if job.dialect == "spark":
            again = run.start + (run.end - run.start) / 4
            yield self.event("START", again, job.address, run.run_id, **members)
            yield self.event("RUNNING", again + 0.001, job.address, run.run_id, **members, **plain)
        if run.state == "FAIL":
            error = facet("ErrorMessageRunFacet", message="it broke", programmingLanguage="SQL")
            members["run_facets"] = {**members["run_facets"], "errorMessage": error}
        yield self.event(run.state, run.end, job.address, run.run_id, **members, **final)

    def _run_facets(self, run: Run) -> Json:
        job = run.job
        said: Json = {}
        if job.dialect in ("airflow", "dbt"):
            nominal = facet("NominalTimeRunFacet", nominalStartTime=self.moment(run.slot))
            said = {"parent": self._parent(job, run.slot)}
            if job.dialect == "airflow":
                said["nominalTime"] = nominal
        if "engine" in job.says:
            said["processing_engine"] = facet("ProcessingEngineRunFacet", name=job.dialect, version=run.engine)
        if "parameters" in job.says:
            parameters = [{"key": "batch", "value": run.parameters}, {"key": "ds", "value": self.moment(run.slot)[:10]}]
            said["executionParameters"] = facet("ExecutionParametersRunFacet", parameters=parameters)
        return said

    def _parent(self, job: Job, slot: float) -> Json:
        return facet(
            "ParentRunFacet",
            run={"runId": self._pipeline_run(job, slot)},
            job={"namespace": f"{job.dialect}-prod", "name": self._pipeline(job)},
        )

    def _pipeline(self, job: Job) -> str:
        return job.pipeline if job.dialect == "airflow" else f"dbt-run-{job.pipeline}"

    def _pipeline_run(self, job: Job, slot: float) -> str:
        luck = random.Random(f"{self.world.warehouse.seed}/{job.dialect}/{job.pipeline}/{slot}")
        return str(uuid.UUID(int=luck.getrandbits(128), version=4))

    def _pipelines(self) -> Iterator[tuple[float, Json]]:
        """The DAGs that started the tasks."""
        spans: dict[tuple[str, float], tuple[Job, float, float, bool]] = {}
        for run in self.world.runs:
            if run.job.dialect not in ("airflow", "dbt") or run.start < 0 or run.slot < 0:
                continue
            key = (self._pipeline(run.job), run.slot)
            _, start, end, good = spans.get(key, (run.job, run.start, run.end, True))
            spans[key] = run.job, min(start, run.start), max(end, run.end), good and run.state == "COMPLETE"
        for (name, slot), (job, start, end, good) in spans.items():
            address = (f"{job.dialect}-prod", name)
            run_id = self._pipeline_run(job, slot)
            nominal = {"nominalTime": facet("NominalTimeRunFacet", nominalStartTime=self.moment(slot))}
            yield self.event("START", start - 0.002, address, run_id, run_facets=nominal)
            yield self.event("COMPLETE" if good else "FAIL", end + 0.002, address, run_id, run_facets=nominal)

    def _job_facets(self, run: Run) -> Json:
        job, said = run.job, {}
        if "code" in job.says:
            tables = ", ".join(job.inputs) or "source"
            where = " WHERE is_valid" if "where" in run.code else ""
            columns = ", ".join(name for name, _, _ in job.taken)
            query = f"SELECT {columns} FROM {tables}{where} -- {run.code.split(' +')[0]}"  # noqa: S608 (never executed)
            if job.dialect == "airflow" and not job.inputs:
                said["sourceCode"] = facet("SourceCodeJobFacet", language="python", sourceCode=f"load({query!r})")
            else:
                said["sql"] = facet("SQLJobFacet", query=query)
        if "repo" in job.says:
            version = self.world.repo_version(run.start)
            said["sourceCodeLocation"] = facet(
                "SourceCodeLocationJobFacet", type="git", url="https://example.com/shop.git", version=version
            )
        return said

    def _inputs(self, run: Run) -> list[Json]:
        job = run.job
        named = []
        if job.source is not None and job.dialect != "quiet":
            facets: Json = {}
            if "schema" in job.says and run.source is not None:
                facets["schema"] = schema_of(run.source.columns)
            if "version" in job.says and run.source_version:
                facets["version"] = facet("DatasetVersionDatasetFacet", datasetVersion=run.source_version)
            named.append({"namespace": "sftp://partner.example.com", "name": job.source, "facets": facets})
        for name in job.inputs:
            address = self.tables[name].called if job.dialect != "spark" else self.tables[name].address
            named.append({"namespace": address[0], "name": address[1]})
        return named

    def _output(self, run: Run, *, is_final: bool) -> Json:
        job, table = run.job, self.tables[run.job.output]
        facets, output_facets = self._names(table), {}
        content = run.written
        if "schema" in job.says:
            facets["schema"] = schema_of(content.columns if content is not None and is_final else dict(table.columns))
        if "columns" in job.says and job.inputs:
            fields = {
                column: {"inputFields": [self._column(each, of) for each in sides(job, source)]}
                for column, source, of in job.taken
            }
            facets["columnLineage"] = facet("ColumnLineageDatasetFacet", fields=fields)
        if content is not None and is_final:
            if "rows" in job.says:
                rows = round(content.rows)
                output_facets["outputStatistics"] = facet(
                    "OutputStatisticsOutputDatasetFacet", rowCount=rows, size=rows * 8 * len(content.columns)
                )
            if "profile" in job.says:
                facets["dataQualityMetrics"] = profile(content)
            for result in run.results:
                output_facets_of = facets.setdefault(
                    "dataQualityAssertions", facet("DataQualityAssertionsDatasetFacet", assertions=[])
                )
                output_facets_of["assertions"].append(assertion(result))
        namespace, name = table.address
        return {"namespace": namespace, "name": name, "facets": facets, "outputFacets": output_facets}

    def _column(self, table: str, column: str) -> Json:
        namespace, name = self.tables[table].called
        return {"namespace": namespace, "name": name, "field": column}

    def _names(self, table: Table) -> Json:
        if table.alias is None:
            return {}
        namespace, name = table.called
        identifier = {"namespace": namespace, "name": name, "type": "TABLE"}
        return {"symlinks": facet("SymlinksDatasetFacet", identifiers=[identifier])}

    def _checks(self) -> Iterator[tuple[float, Json]]:
        for check, at, run_id, bound, results in self.world.checked:
            if at < 0 or not results:
                continue
            yield from self._check(check, at, run_id, bound, results)

    def _check(
        self, check: Check, at: float, run_id: str, bound: Run | None, results: list[Result]
    ) -> Iterator[tuple[float, Json]]:
        said: Json = {}
        family: Json = {}
        if check.dialect in ("dbt", "airflow") and bound is not None:
            family = {"parent": self._parent(bound.job, bound.slot)}
        if check.profiles:
            said["dataQualityMetrics"] = profile(results[0].seen)
        assertions = facet("DataQualityAssertionsDatasetFacet", assertions=[assertion(each) for each in results])
        namespace, name = dataset_of(self.tables[check.table])
        place = "inputFacets" if check.in_input_facets and check.dialect != "dbt" else "facets"
        named: Json = {"namespace": namespace, "name": name, place: {**said, "dataQualityAssertions": assertions}}
        job = (f"{check.dialect}-checks", check.name)
        if check.dialect == "airflow":
            yield self.event("START", at, job, run_id, run_facets=family, inputs=[{**named, place: {}}])
        yield self.event("COMPLETE", at + CHECK_TAKES, job, run_id, run_facets=family, inputs=[named])


def dataset_of(table: Table) -> tuple[str, str]:
    """Checks are made by SQL: they call a table as the catalogue does."""
    return table.called


def sides(job: Job, source: str) -> tuple[str, ...]:
    """Of a union a column comes from all of them."""
    return job.drivers if source in job.drivers else (source,)


def assertion(result: Result) -> Json:
    said: Json = {"assertion": result.test.kind, "success": result.passed}
    return said | ({"column": result.test.column} if result.test.column else {})


def profile(content: Content) -> Json:
    rows = round(content.rows)
    columns: Json = {
        name: {"nullCount": round(content.nulls.get(name, 0.0) * rows), "count": rows} for name in content.columns
    }
    if "amount" in columns:
        columns["amount"]["sum"] = round(content.amount, 2)
    return facet("DataQualityMetricsDatasetFacet", rowCount=rows, columnMetrics=columns)
