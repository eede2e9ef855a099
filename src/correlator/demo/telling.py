"""The events of a company, as the tools would send them: what they tell, where, and when."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final

import msgspec

from correlator.demo.code_text import query
from correlator.demo.luck import Luck, number_of
from correlator.demo.parts import Check, Company, Job, Name, Test, TestKind, Tool
from correlator.demo.runs import Launch, Look, Result, Run, Seen
from correlator.demo.world import Column, Content

_OPENLINEAGE: Final = "https://github.com/OpenLineage/OpenLineage/tree/1.42.0"
PRODUCERS: Final = {
    Tool.AIRFLOW: "https://github.com/apache/airflow/tree/providers-openlineage/2.7.0",
    Tool.DBT: f"{_OPENLINEAGE}/integration/dbt",
    Tool.SPARK: f"{_OPENLINEAGE}/integration/spark",
    Tool.PLAIN: f"{_OPENLINEAGE}/client/python",
}
_CHECKER: Final = f"{_OPENLINEAGE}/integration/great_expectations"
_CATALOGUE: Final = "https://git.example/platform/catalogue"
_ADAPTERS: Final = {Tool.AIRFLOW: "2.7.0", Tool.DBT: "1.42.0", Tool.SPARK: "1.42.0", Tool.PLAIN: "1.42.0"}
_ENGINES: Final = {Tool.AIRFLOW: "Airflow", Tool.DBT: "dbt", Tool.SPARK: "spark", Tool.PLAIN: "python"}
_RUN_EVENT: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_JOB_EVENT: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"
_DATASET_EVENT: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetEvent"
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
_BYTES_A_ROW: Final = 118

Facets = dict[str, Any]
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Quirks:
    """How the way from a producer to us goes wrong, as shares of events."""

    late: float = 0.015
    duplicates: float = 0.01
    missing_starts: float = 0.01


@dataclass(frozen=True, slots=True)
class Sent:
    at: float
    """When it leaves its producer, in seconds since 1970; what happened may have been earlier."""
    raw: bytes


def snapshot_of(run_id: str) -> str:
    """What a table format calls the version that a run wrote."""
    return str(int(run_id[-12:], 16))


def _test_name(check: Check, test: Test) -> str:
    match check.manner, test.kind:
        case "dbt", _:
            return f"{_DBT_TESTS[test.kind]}_{check.table}" + (f"_{test.column}" if test.column else "")
        case "own_output", _:
            return {"rows": "size", "not_null": "completeness", "unique": "uniqueness"}.get(test.kind, test.kind.value)
        case _:
            return _EXPECTATIONS[test.kind]


_DBT_TESTS: Final = {
    TestKind.ROWS: "dbt_expectations_expect_table_row_count_to_be_between",
    TestKind.NOT_NULL: "not_null",
    TestKind.UNIQUE: "unique",
    TestKind.FRESHNESS: "dbt_utils_recency",
    TestKind.COLUMNS: "dbt_expectations_expect_table_columns_to_match_set",
    TestKind.TYPE: "dbt_expectations_expect_column_values_to_be_of_type",
    TestKind.RANGE: "dbt_expectations_expect_column_mean_to_be_between",
}
_EXPECTATIONS: Final = {
    TestKind.ROWS: "expect_table_row_count_to_be_between",
    TestKind.NOT_NULL: "expect_column_values_to_not_be_null",
    TestKind.UNIQUE: "expect_column_values_to_be_unique",
    TestKind.FRESHNESS: "expect_table_to_be_fresh",
    TestKind.COLUMNS: "expect_table_columns_to_match_set",
    TestKind.TYPE: "expect_column_values_to_be_of_type",
    TestKind.RANGE: "expect_column_mean_to_be_between",
}


@dataclass(slots=True)
class _Said:
    """Who speaks in an event, and of what."""

    run_id: str
    run_facets: Facets
    job: Name
    job_facets: Facets
    producer: str
    inputs: Sequence[Facets] = ()
    outputs: Sequence[Facets] = ()


class Teller:
    """Puts what happened into events, and keeps them until they are sent."""

    def __init__(self, company: Company, random: Luck, quirks: Quirks) -> None:
        self._company = company
        self._random = random
        self._quirks = quirks
        self._waiting: list[tuple[float, int, bytes]] = []
        self._order = count()
        self._known: dict[object, msgspec.Raw] = {}
        self._held: dict[str, list[tuple[float, Facets]]] = {}
        """What dbt's artifacts tell only when all is over, for each launch."""

    def test_name(self, check: Check, test: Test) -> str:
        """What the events call a test."""
        name = _test_name(check, test)
        return f"{name}({test.column})" if test.column and self._is_of_run(check) else name

    def told_column(self, check: Check, test: Test) -> str:
        return "" if self._is_of_run(check) else test.column

    def _is_of_run(self, check: Check) -> bool:
        """Whether results are told of the run and not of the dataset: then no column is named."""
        return check.manner == "schedule" and self._company.flavour.get("results") == "test_facet"

    def due(self, now: float) -> Iterator[Sent]:
        while self._waiting and self._waiting[0][0] <= now:
            at, _, raw = heapq.heappop(self._waiting)
            yield Sent(at, raw)

    # What happened

    def launched(self, launch: Launch) -> None:
        pipeline = launch.pipeline
        if pipeline.tool is not Tool.PLAIN:
            self._send(self._of_launch(launch, "START", launch.started), launch.started)

    def started(self, run: Run) -> None:
        if run.launch.pipeline.mode == "artifacts" or self._random.has(self._quirks.missing_starts):
            return
        self._send(self._of_run(run, "START", run.started), run.started)
        if run.launch.pipeline.mode == "structured_logs":
            self._tell_statement(run, "START", run.started + 0.2)
        if run.job.tool is Tool.SPARK:
            middle = run.started + (run.ended - run.started) / 2
            self._send(self._of_run(run, "RUNNING", middle), middle)

    def finished(self, run: Run) -> None:
        if run.launch.pipeline.mode == "artifacts":
            held = self._held.setdefault(run.launch.run_id, [])
            held.append((run.started, self._of_run(run, "START", run.started)))
            held.append((run.ended, self._of_run(run, run.state, run.ended)))
            return
        if run.launch.pipeline.mode == "structured_logs":
            self._tell_statement(run, run.state, run.ended)
        self._send(self._of_run(run, run.state, run.ended), run.ended)

    def skipped(self, launch: Launch, job: Job, run_id: str, now: float) -> None:
        """Only dbt's structured logs tell of what did not happen."""
        if launch.pipeline.mode != "structured_logs":
            return
        facets = self._run_facets(job, launch, launch.engine)
        table = self._company.tables[job.output]
        inputs = [self._dataset(self._company.tables[each.table].read_as, {}) for each in job.inputs]
        outputs = [self._dataset(table.written_as, {})]
        said = _Said(run_id, facets, job.told_as, {}, PRODUCERS[job.tool], inputs, outputs)
        for state in ("START", "ABORT"):
            self._send(self._event(state, now, said), now)

    def ended(self, launch: Launch) -> None:
        pipeline = launch.pipeline
        for _, event in self._held.pop(launch.run_id, ()):
            self._send(event, launch.ended)
        if pipeline.tool is not Tool.PLAIN:
            state = "FAIL" if launch.has_failed else "COMPLETE"
            self._send(self._of_launch(launch, state, launch.ended), launch.ended)

    def looked(self, look: Look) -> None:
        match look.check.manner:
            case "dbt":
                self._tell_dbt_tests(look)
            case _:
                self._tell_expectations(look)

    def changed(self, job: Job, now: float) -> None:
        """Now and then a catalogue tells of a job."""
        if number_of(f"{job.key}/{now}") % 10:
            return
        description = f"Writes {job.output}. Owned by {job.owner}."
        facets = {
            "documentation": self._facet("documentation", _CATALOGUE, description=description),
            "ownership": self._facet("ownership", _CATALOGUE, owners=[{"name": job.owner, "type": "TEAM"}]),
        }
        event = {
            "eventTime": _iso(now),
            "producer": _CATALOGUE,
            "schemaURL": _JOB_EVENT,
            "job": {"namespace": job.told_as.namespace, "name": job.told_as.name, "facets": facets},
        }
        self._send(event, now)

    def catalogued(self, now: float) -> None:
        """A catalogue tells who owns what."""
        for number, job in enumerate(self._company.jobs.values()):
            at = now + number * 0.1
            table = self._company.tables[job.output]
            owners = self._facet("ownershipDataset", _CATALOGUE, owners=[{"name": table.owner, "type": "OWNER"}])
            event = {
                "eventTime": _iso(at),
                "producer": _CATALOGUE,
                "schemaURL": _DATASET_EVENT,
                "dataset": self._dataset(table.written_as, {"ownership": owners}),
            }
            self._send(event, at)

    def announced(self, job: Job, columns: dict[str, Column], now: float) -> None:
        """A catalogue tells that a source looks different now."""
        if job.source is None:
            return
        facets = {"schema": self._schema(_CATALOGUE, columns, ())}
        event = {
            "eventTime": _iso(now),
            "producer": _CATALOGUE,
            "schemaURL": _DATASET_EVENT,
            "dataset": {"namespace": job.source.namespace, "name": job.source.name, "facets": facets},
        }
        self._send(event, now)

    # Events

    def _send(self, event: Facets, happened: float) -> None:
        random, quirks = self._random, self._quirks
        at = happened + random.uniform(0.02, 1.5)
        if random.has(quirks.late):
            at += random.uniform(300, 6 * 3600)
        raw = _encode(event)
        heapq.heappush(self._waiting, (at, next(self._order), raw))
        if random.has(quirks.duplicates):
            heapq.heappush(self._waiting, (at + random.uniform(0.5, 90), next(self._order), raw))

    def _event(self, state: str, at: float, said: _Said) -> Facets:
        return {
            "eventTime": _iso(at),
            "eventType": state,
            "run": {"runId": said.run_id, "facets": said.run_facets},
            "job": {"namespace": said.job.namespace, "name": said.job.name, "facets": said.job_facets},
            "inputs": said.inputs,
            "outputs": said.outputs,
            "producer": said.producer,
            "schemaURL": _RUN_EVENT,
        }

    def _of_launch(self, launch: Launch, state: str, at: float) -> Facets:
        pipeline = launch.pipeline
        tool, producer = pipeline.tool, PRODUCERS[pipeline.tool]
        facets: Facets = {"processing_engine": self._engine(tool, launch.engine)}
        kind = {Tool.AIRFLOW: "DAG", Tool.DBT: "JOB", Tool.SPARK: "APPLICATION"}[tool]
        if tool is Tool.AIRFLOW:
            facets["nominalTime"] = self._nominal(launch, producer)
            facets["airflowDagRun"] = self._dag_run(launch, producer)
        if tool is Tool.DBT:
            facets["dbt_run"] = self._dbt_run(launch, producer)
            if state == "FAIL":
                facets["errorMessage"] = self._error("Command `dbt build` failed", "sql", producer)
        if pipeline.parent is not None:
            dag = Name(pipeline.parent.namespace, pipeline.parent.name.partition(".")[0])
            facets["parent"] = self._parent(pipeline.parent, launch.parent_run_id, dag, launch.parent_run_id, producer)
        owner = self._company.jobs[pipeline.jobs[0]].owner
        job_facets = {"jobType": self._job_type(tool, kind), "ownership": self._owners(owner, producer)}
        if tool is not Tool.AIRFLOW:
            del job_facets["ownership"]
        return self._event(state, at, _Said(launch.run_id, facets, pipeline.told_as, job_facets, producer))

    def _of_run(self, run: Run, state: str, at: float) -> Facets:
        job = run.job
        producer = PRODUCERS[job.tool]
        is_end = state not in ("START", "RUNNING")
        facets = self._run_facets(job, run.launch, run.engine if job.voice.engine else "")
        if job.tool is Tool.AIRFLOW:
            facets["airflow"] = self._airflow(run, producer)
        if job.voice.parameters:
            facets.update(self._parameters(run, producer))
        if run.error and is_end:
            facets["errorMessage"] = self._error(run.error, _language(job.tool), producer)
        job_facets = self._job_facets(run, producer)
        inputs, outputs = self._inputs(run, producer), self._outputs(run, producer, is_end=is_end)
        if job.tool is Tool.AIRFLOW and not is_end and not job.voice.sql:
            inputs, outputs = [], []  # operators without SQL know what they touched when they are done
        return self._event(state, at, _Said(run.run_id, facets, job.told_as, job_facets, producer, inputs, outputs))

    def _tell_statement(self, run: Run, state: str, at: float) -> None:
        """The structured logs of dbt tell the query as a run of its own below the model."""
        job = run.job
        name = Name(job.told_as.namespace, f"{job.told_as.name}.sql.1")
        producer = PRODUCERS[Tool.DBT]
        facets: Facets = {
            "parent": self._parent(job.told_as, run.run_id, run.launch.pipeline.told_as, run.launch.run_id, producer),
            "processing_engine": self._engine(Tool.DBT, run.engine),
        }
        job_facets = {"jobType": self._job_type(Tool.DBT, "SQL"), "sql": self._sql(run, producer)}
        own_id = f"{run.run_id[:24]}{int(run.run_id[24:], 16) ^ 0xFFFF:012x}"
        if state == "FAIL":
            facets["errorMessage"] = self._error(run.error, "sql", producer)
        self._send(self._event(state, at, _Said(own_id, facets, name, job_facets, producer)), at)

    def _tell_dbt_tests(self, look: Look) -> None:
        launch = look.launch
        if launch is None or not look.results:
            return
        job = self._company.producers[look.check.table]
        run_facets = self._run_facets(job, launch, launch.engine)
        if launch.pipeline.mode == "artifacts":
            self._hold_dbt_tests(look, launch, job, run_facets)
            return
        for each in look.results:
            self._tell_dbt_test(look, each, job, run_facets)

    def _hold_dbt_tests(self, look: Look, launch: Launch, job: Job, run_facets: Facets) -> None:
        """From artifacts: one run for all tests of a model, everything in its START already."""
        producer = PRODUCERS[Tool.DBT]
        facet = self._assertions(look.check, look.results, producer)
        dataset = self._dataset(self._company.tables[look.check.table].written_as, {"dataQualityAssertions": facet})
        dataset["inputFacets"] = {"dataQualityAssertions": facet}
        name = Name(job.told_as.namespace, f"{job.told_as.name.removesuffix('.run')}.test")
        job_facets = {"jobType": self._job_type(Tool.DBT, "TEST")}
        said = _Said(look.results[0].run_id, run_facets, name, job_facets, producer, [dataset])
        failed = any(_is_failure(each) for each in look.results)
        # Stamped when the artifacts are read, not when the test ran.
        base = max(look.at, launch.started) + 40
        held = self._held.setdefault(launch.run_id, [])
        held.append((base, self._event("START", base, said)))
        held.append((base, self._event("FAIL" if failed else "COMPLETE", base + 0.00002, said)))

    def _tell_dbt_test(self, look: Look, result: Result, job: Job, run_facets: Facets) -> None:
        """From structured logs: each test a run that fails when the test does, and names a table of its own."""
        producer = PRODUCERS[Tool.DBT]
        table = self._company.tables[look.check.table].written_as
        told = self.test_name(look.check, result.test)
        project = self._company.flavour.get("project", "dbt")
        name = Name(job.told_as.namespace, f"test.{project}.{told}.{number_of(told):010x}")
        facets: Facets = {"schema": self._schema(producer, look.content.columns, ())}
        outputs = [self._dataset(Name(table.namespace, f"{project}.dbt_test__audit.{told}"), {})]
        job_facets = {"jobType": self._job_type(Tool.DBT, "TEST")}
        said = _Said(result.run_id, run_facets, name, job_facets, producer, [self._dataset(table, facets)], outputs)
        self._send(self._event("START", look.at, said), look.at)
        if not result.finding.passed:
            said.run_facets = run_facets | {"errorMessage": self._error(result.finding.message, "sql", producer)}
        found = facets | {"dataQualityAssertions": self._assertions(look.check, [result], producer)}
        said.inputs = [self._dataset(table, found)]
        end = look.at + 0.8
        self._send(self._event("FAIL" if _is_failure(result) else "COMPLETE", end, said), end)

    def _tell_expectations(self, look: Look) -> None:
        """One COMPLETE and nothing else, whatever was found."""
        if not look.results:
            return
        facets: Facets = {}
        if look.launch is not None:
            dag = look.launch.pipeline.told_as
            facets["parent"] = self._parent(dag, look.launch.run_id, dag, look.launch.run_id, _CHECKER)
        schema = {"schema": self._schema(_CHECKER, look.content.columns, look.content.extra)}
        dataset = self._dataset(self._company.tables[look.check.table].read_as, schema)
        if self._is_of_run(look.check):
            facets["test"] = self._test_facet(look)
        else:
            dataset["inputFacets"] = {"dataQualityAssertions": self._assertions(look.check, look.results, _CHECKER)}
        said = _Said(look.results[0].run_id, facets, look.check.told_as, {}, _CHECKER, [dataset])
        event = self._event("COMPLETE", look.at, said)
        if self._company.flavour.get("naive_checks"):
            event["eventTime"] = event["eventTime"].removesuffix("+00:00")
        self._send(event, look.at)

    # Datasets

    def _dataset(self, name: Name, facets: Facets) -> Facets:
        return {"namespace": name.namespace, "name": name.name, "facets": facets}

    def _inputs(self, run: Run, producer: str) -> list[Facets]:
        job = run.job
        if job.source is not None:
            facets: Facets = {}
            if job.voice.versions:
                version = f"{job.output}-{run.source_version}"
                facets["version"] = self._facet("version", producer, datasetVersion=version)
            return [self._dataset(job.source, facets)]
        if not job.voice.inputs:
            return []
        return [self._input(run, each, producer) for each in run.reads] or [
            self._dataset(self._company.tables[each.table].read_as, {}) for each in job.inputs
        ]

    def _input(self, run: Run, seen: Seen, producer: str) -> Facets:
        facets: Facets = {}
        if run.job.voice.schema:
            facets["schema"] = self._schema(producer, seen.content.columns, seen.content.extra)
        if run.job.voice.snapshots and seen.snapshot:
            facets["version"] = self._facet("version", producer, datasetVersion=seen.snapshot)
        dataset = self._dataset(seen.table.read_as, facets)
        if run.job.tool is Tool.SPARK:
            size = round(seen.rows) * _BYTES_A_ROW
            dataset["inputFacets"] = {"inputStatistics": self._facet("inputStatistics", producer, size=size)}
        return dataset

    def _outputs(self, run: Run, producer: str, *, is_end: bool) -> list[Facets]:
        job, content = run.job, run.written
        table = self._company.tables[job.output]
        voice = job.voice
        facets: Facets = {}
        columns = content.columns if content is not None else self._usual(job)
        if voice.schema:
            facets["schema"] = self._schema(producer, columns, content.extra if content is not None else ())
        if table.symlink is not None:
            identifier = {"namespace": table.symlink.namespace, "name": table.symlink.name, "type": "TABLE"}
            facets["symlinks"] = self._facet("symlinks", producer, identifiers=[identifier])
        if voice.column_lineage and job.inputs:
            facets["columnLineage"] = self._column_lineage(job, columns, producer)
        if job.tool is Tool.PLAIN:
            facets["ownership"] = self._owners(table.owner, producer, "ownershipDataset")
        if voice.snapshots and is_end and content is not None:
            facets["version"] = self._facet("version", producer, datasetVersion=snapshot_of(run.run_id))
        if run.own_results and is_end:
            check = next(c for c in self._company.checks.values() if c.table == table.key and c.manner == "own_output")
            facets["dataQualityAssertions"] = self._assertions(check, run.own_results, producer)
        dataset = self._dataset(table.written_as, facets)
        if is_end and content is not None and voice.rows:
            own: Facets = {"outputStatistics": self._statistics(content, producer)}
            dataset["outputFacets"] = own
        if is_end and content is not None and voice.metrics:
            facets["dataQualityMetrics"] = self._metrics(content, producer)
        return [dataset]

    def _usual(self, job: Job) -> dict[str, Column]:
        return {each.name: Column(each.type) for each in job.fields}

    def _statistics(self, content: Content, producer: str) -> Facets:
        rows = round(content.rows)
        return self._facet("outputStatistics", producer, rowCount=rows, size=rows * _BYTES_A_ROW)

    def _metrics(self, content: Content, producer: str) -> Facets:
        rows = round(content.rows)
        columns = {
            name: {"nullCount": round(rows * column.nulls), "count": rows, "sum": round(rows * column.value * 50, 2)}
            for name, column in content.columns.items()
        }
        return self._facet("dataQualityMetrics", producer, rowCount=rows, columnMetrics=columns)

    # Facets

    def _run_facets(self, job: Job, launch: Launch, engine: str) -> Facets:
        producer = PRODUCERS[job.tool]
        facets: Facets = {}
        if engine:
            facets["processing_engine"] = self._engine(job.tool, engine)
        if job.voice.nominal_time:
            facets["nominalTime"] = self._nominal(launch, producer)
        if job.tool is Tool.PLAIN:
            return facets
        pipeline = launch.pipeline
        root, root_id = pipeline.told_as, launch.run_id
        if pipeline.parent is not None:
            root = Name(pipeline.parent.namespace, pipeline.parent.name.partition(".")[0])
            root_id = launch.parent_run_id
        facets["parent"] = self._parent(pipeline.told_as, launch.run_id, root, root_id, producer)
        if job.tool is Tool.DBT:
            facets["dbt_run"] = self._dbt_run(launch, producer)
        return facets

    def _job_facets(self, run: Run, producer: str) -> Facets:
        job = run.job
        kind = {Tool.AIRFLOW: "TASK", Tool.DBT: "MODEL", Tool.SPARK: "SQL_JOB", Tool.PLAIN: "JOB"}[job.tool]
        facets: Facets = {"jobType": self._job_type(job.tool, kind)}
        if job.tool in (Tool.AIRFLOW, Tool.PLAIN):
            facets["ownership"] = self._owners(job.owner, producer)
        if job.voice.sql:
            facets["sql"] = self._sql(run, producer)
        if job.voice.commit:
            facets["sourceCodeLocation"] = self._location(run, producer)
        return facets

    def _facet(self, key: str, producer: str, **body: Any) -> Facets:
        file = _FACETS[key]
        name = file.partition("/")[2]
        return {
            "_producer": producer,
            "_schemaURL": f"https://openlineage.io/spec/facets/{file}.json#/$defs/{name}",
            **body,
        }

    def _custom(self, producer: str, **body: Any) -> Facets:
        return {"_producer": producer, "_schemaURL": _CUSTOM, **body}

    def _remember(self, key: object, facet: Facets) -> msgspec.Raw:
        raw = self._known[key] = msgspec.Raw(_encode(facet))
        return raw

    def _schema(self, producer: str, columns: dict[str, Column], extra: tuple[str, ...]) -> msgspec.Raw:
        fields = tuple((name, column.type) for name, column in columns.items())
        key = (producer, fields, extra)
        found = self._known.get(key)
        if found is not None:
            return found
        listed = [{"name": name, "type": kind} for name, kind in fields]
        listed += [{"name": name, "type": "varchar"} for name in extra]
        return self._remember(key, self._facet("schema", producer, fields=listed))

    def _column_lineage(self, job: Job, columns: dict[str, Column], producer: str) -> msgspec.Raw:
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
        return self._remember(key, self._facet("columnLineage", producer, **body))

    def _sql(self, run: Run, producer: str) -> msgspec.Raw:
        key = (run.job.key, "sql", run.code.revision, run.code.bug)
        found = self._known.get(key)
        if found is not None:
            return found
        return self._remember(key, self._facet("sql", producer, query=query(self._company, run.job, run.code)))

    def _location(self, run: Run, producer: str) -> msgspec.Raw:
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
        return self._remember(key, self._facet("sourceCodeLocation", producer, **body))

    def _engine(self, tool: Tool, version: str) -> msgspec.Raw:
        key = (tool, "engine", version)
        found = self._known.get(key)
        if found is not None:
            return found
        name, adapter = _ENGINES[tool], _ADAPTERS[tool]
        producer = PRODUCERS[tool]
        facet = self._facet(
            "processing_engine", producer, version=version, name=name, openlineageAdapterVersion=adapter
        )
        return self._remember(key, facet)

    def _job_type(self, tool: Tool, kind: str) -> msgspec.Raw:
        key = (tool, "jobType", kind)
        found = self._known.get(key)
        if found is not None:
            return found
        integration = "PYTHON" if tool is Tool.PLAIN else tool.upper()
        body = {"processingType": "BATCH", "integration": integration, "jobType": kind}
        return self._remember(key, self._facet("jobType", PRODUCERS[tool], **body))

    def _owners(self, owner: str, producer: str, key: str = "ownership") -> msgspec.Raw:
        known = (owner, producer, key)
        found = self._known.get(known)
        if found is not None:
            return found
        return self._remember(known, self._facet(key, producer, owners=[{"name": owner, "type": "TEAM"}]))

    def _parent(self, job: Name, run_id: str, root: Name, root_id: str, producer: str) -> Facets:
        return self._facet(
            "parent",
            producer,
            run={"runId": run_id},
            job={"namespace": job.namespace, "name": job.name},
            root={"run": {"runId": root_id}, "job": {"namespace": root.namespace, "name": root.name}},
        )

    def _nominal(self, launch: Launch, producer: str) -> Facets:
        end = launch.nominal
        return self._facet(
            "nominalTime", producer, nominalStartTime=_iso(end - launch.pipeline.period), nominalEndTime=_iso(end)
        )

    def _error(self, message: str, language: str, producer: str) -> Facets:
        return self._facet("errorMessage", producer, message=message, programmingLanguage=language)

    def _parameters(self, run: Run, producer: str) -> Facets:
        if run.job.tool is Tool.SPARK:
            properties = {f"spark.app.{name}": value for name, value in run.parameters}
            return {"spark_properties": self._custom(producer, properties=properties)}
        parameters = [{"key": name, "value": value} for name, value in run.parameters]
        return {"executionParameters": self._facet("executionParameters", producer, parameters=parameters)}

    def _airflow(self, run: Run, producer: str) -> Facets:
        dag, _, task = run.job.told_as.name.partition(".")
        return self._custom(
            producer,
            dag={"dag_id": dag, "owner": run.job.owner, "tags": "[]", "timetable": {}},
            dagRun={"dag_id": dag, "conf": {}, "run_id": _dag_run_id(run.launch), "run_type": "scheduled"},
            task={"task_id": task, "operator_class": "SQLExecuteQueryOperator", "retries": run.job.retries},
            taskInstance={"try_number": run.attempt},
            taskUuid=run.run_id,
        )

    def _dag_run(self, launch: Launch, producer: str) -> Facets:
        dag = launch.pipeline.told_as.name
        run = {"dag_id": dag, "conf": {}, "run_id": _dag_run_id(launch), "run_type": "scheduled"}
        return self._custom(producer, dag={"dag_id": dag, "tags": "[]"}, dagRun=run)

    def _dbt_run(self, launch: Launch, producer: str) -> Facets:
        project = self._company.flavour.get("project", "dbt")
        return self._custom(producer, invocation_id=launch.run_id, project_name=project, dbt_runtime="core")

    def _assertions(self, check: Check, results: Sequence[Result], producer: str) -> Facets:
        return self._facet(
            "dataQualityAssertions", producer, assertions=[self._assertion(check, each) for each in results]
        )

    def _test_facet(self, look: Look) -> Facets:
        tests = [
            {
                "name": self.test_name(look.check, each.test),
                "status": "pass" if each.finding.passed else "fail",
                "severity": each.test.severity,
                "type": str(each.test.kind),
                "expected": each.finding.expected,
                "actual": each.finding.actual,
                **({} if each.finding.passed else {"description": each.finding.message}),
            }
            for each in look.results
        ]
        return self._facet("test", _CHECKER, tests=tests)

    def _assertion(self, check: Check, result: Result) -> Facets:
        test, finding = result.test, result.finding
        name = self.test_name(check, test)
        kind = _DBT_TESTS[test.kind] if check.manner == "dbt" else name
        said: Facets = {"assertion": kind, "success": finding.passed}
        if test.column:
            said["column"] = test.column
        if check.manner == "dbt":
            said |= {"name": name, "severity": test.severity, "expected": finding.expected, "actual": finding.actual}
        elif check.manner == "own_output":
            said |= {"severity": test.severity}
        else:
            said |= {"severity": test.severity, "expected": finding.expected, "actual": finding.actual}
            if not finding.passed:
                said["description"] = finding.message
        return said


def _is_failure(result: Result) -> bool:
    return not result.finding.passed and result.test.severity != "warn"


def _language(tool: Tool) -> str:
    return {Tool.DBT: "sql", Tool.SPARK: "java"}.get(tool, "python")


def _dag_run_id(launch: Launch) -> str:
    return f"scheduled__{_iso(launch.nominal - launch.pipeline.period)}"


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds")
