"""The events of a company, as the tools would send them: what they tell, where, and when."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from correlator.demo.facets import BYTES_A_ROW, CATALOGUE, CHECKER, PRODUCERS, FacetMaker, Facets, encode, iso
from correlator.demo.luck import Luck, number_of
from correlator.demo.parts import Check, Company, Job, Name, Test, TestKind, Tool
from correlator.demo.runs import Launch, Look, Result, Run, Seen
from correlator.demo.world import Column

_RUN_EVENT: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_JOB_EVENT: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"
_DATASET_EVENT: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetEvent"


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
        self._facets = FacetMaker(company)
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
            "documentation": self._facets.facet("documentation", CATALOGUE, description=description),
            "ownership": self._facets.facet("ownership", CATALOGUE, owners=[{"name": job.owner, "type": "TEAM"}]),
        }
        event = {
            "eventTime": iso(now),
            "producer": CATALOGUE,
            "schemaURL": _JOB_EVENT,
            "job": {"namespace": job.told_as.namespace, "name": job.told_as.name, "facets": facets},
        }
        self._send(event, now)

    def catalogued(self, now: float) -> None:
        """A catalogue tells who owns what."""
        for number, job in enumerate(self._company.jobs.values()):
            at = now + number * 0.1
            table = self._company.tables[job.output]
            owners = self._facets.facet("ownershipDataset", CATALOGUE, owners=[{"name": table.owner, "type": "OWNER"}])
            event = {
                "eventTime": iso(at),
                "producer": CATALOGUE,
                "schemaURL": _DATASET_EVENT,
                "dataset": self._dataset(table.written_as, {"ownership": owners}),
            }
            self._send(event, at)

    def announced(self, job: Job, columns: dict[str, Column], now: float) -> None:
        """A catalogue tells that a source looks different now."""
        if job.source is None:
            return
        facets = {"schema": self._facets.schema(CATALOGUE, columns, ())}
        event = {
            "eventTime": iso(now),
            "producer": CATALOGUE,
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
        raw = encode(event)
        heapq.heappush(self._waiting, (at, next(self._order), raw))
        if random.has(quirks.duplicates):
            heapq.heappush(self._waiting, (at + random.uniform(0.5, 90), next(self._order), raw))

    def _event(self, state: str, at: float, said: _Said) -> Facets:
        return {
            "eventTime": iso(at),
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
        facets: Facets = {"processing_engine": self._facets.engine(tool, launch.engine)}
        kind = {Tool.AIRFLOW: "DAG", Tool.DBT: "JOB", Tool.SPARK: "APPLICATION"}[tool]
        if tool is Tool.AIRFLOW:
            facets["nominalTime"] = self._facets.nominal(launch, producer)
            facets["airflowDagRun"] = self._facets.dag_run(launch, producer)
        if tool is Tool.DBT:
            facets["dbt_run"] = self._facets.dbt_run(launch, producer)
            if state == "FAIL":
                facets["errorMessage"] = self._facets.error("Command `dbt build` failed", "sql", producer)
        if pipeline.parent is not None:
            dag = Name(pipeline.parent.namespace, pipeline.parent.name.partition(".")[0])
            facets["parent"] = self._facets.parent(
                pipeline.parent, launch.parent_run_id, dag, launch.parent_run_id, producer
            )
        owner = self._company.jobs[pipeline.jobs[0]].owner
        job_facets = {"jobType": self._facets.job_type(tool, kind), "ownership": self._facets.owners(owner, producer)}
        if tool is not Tool.AIRFLOW:
            del job_facets["ownership"]
        return self._event(state, at, _Said(launch.run_id, facets, pipeline.told_as, job_facets, producer))

    def _of_run(self, run: Run, state: str, at: float) -> Facets:
        job = run.job
        producer = PRODUCERS[job.tool]
        is_end = state not in ("START", "RUNNING")
        facets = self._run_facets(job, run.launch, run.engine if job.voice.engine else "")
        if job.tool is Tool.AIRFLOW:
            facets["airflow"] = self._facets.airflow(run, producer)
        if job.voice.parameters:
            facets.update(self._facets.parameters(run, producer))
        if run.error and is_end:
            facets["errorMessage"] = self._facets.error(run.error, _language(job.tool), producer)
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
            "parent": self._facets.parent(
                job.told_as, run.run_id, run.launch.pipeline.told_as, run.launch.run_id, producer
            ),
            "processing_engine": self._facets.engine(Tool.DBT, run.engine),
        }
        job_facets = {"jobType": self._facets.job_type(Tool.DBT, "SQL"), "sql": self._facets.sql(run, producer)}
        own_id = f"{run.run_id[:24]}{int(run.run_id[24:], 16) ^ 0xFFFF:012x}"
        if state == "FAIL":
            facets["errorMessage"] = self._facets.error(run.error, "sql", producer)
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
        job_facets = {"jobType": self._facets.job_type(Tool.DBT, "TEST")}
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
        facets: Facets = {"schema": self._facets.schema(producer, look.content.columns, ())}
        outputs = [self._dataset(Name(table.namespace, f"{project}.dbt_test__audit.{told}"), {})]
        job_facets = {"jobType": self._facets.job_type(Tool.DBT, "TEST")}
        said = _Said(result.run_id, run_facets, name, job_facets, producer, [self._dataset(table, facets)], outputs)
        self._send(self._event("START", look.at, said), look.at)
        if not result.finding.passed:
            said.run_facets = run_facets | {"errorMessage": self._facets.error(result.finding.message, "sql", producer)}
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
            facets["parent"] = self._facets.parent(dag, look.launch.run_id, dag, look.launch.run_id, CHECKER)
        schema = {"schema": self._facets.schema(CHECKER, look.content.columns, look.content.extra)}
        dataset = self._dataset(self._company.tables[look.check.table].read_as, schema)
        if self._is_of_run(look.check):
            facets["test"] = self._test_facet(look)
        else:
            dataset["inputFacets"] = {"dataQualityAssertions": self._assertions(look.check, look.results, CHECKER)}
        said = _Said(look.results[0].run_id, facets, look.check.told_as, {}, CHECKER, [dataset])
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
                facets["version"] = self._facets.facet("version", producer, datasetVersion=version)
            return [self._dataset(job.source, facets)]
        if not job.voice.inputs:
            return []
        return [self._input(run, each, producer) for each in run.reads] or [
            self._dataset(self._company.tables[each.table].read_as, {}) for each in job.inputs
        ]

    def _input(self, run: Run, seen: Seen, producer: str) -> Facets:
        facets: Facets = {}
        if run.job.voice.schema:
            facets["schema"] = self._facets.schema(producer, seen.content.columns, seen.content.extra)
        if run.job.voice.snapshots and seen.snapshot:
            facets["version"] = self._facets.facet("version", producer, datasetVersion=seen.snapshot)
        dataset = self._dataset(seen.table.read_as, facets)
        if run.job.tool is Tool.SPARK:
            size = round(seen.rows) * BYTES_A_ROW
            dataset["inputFacets"] = {"inputStatistics": self._facets.facet("inputStatistics", producer, size=size)}
        return dataset

    def _outputs(self, run: Run, producer: str, *, is_end: bool) -> list[Facets]:
        job, content = run.job, run.written
        table = self._company.tables[job.output]
        voice = job.voice
        facets: Facets = {}
        columns = content.columns if content is not None else self._usual(job)
        if voice.schema:
            facets["schema"] = self._facets.schema(producer, columns, content.extra if content is not None else ())
        if table.symlink is not None:
            identifier = {"namespace": table.symlink.namespace, "name": table.symlink.name, "type": "TABLE"}
            facets["symlinks"] = self._facets.facet("symlinks", producer, identifiers=[identifier])
        if voice.column_lineage and job.inputs:
            facets["columnLineage"] = self._facets.column_lineage(job, columns, producer)
        if job.tool is Tool.PLAIN:
            facets["ownership"] = self._facets.owners(table.owner, producer, "ownershipDataset")
        if voice.snapshots and is_end and content is not None:
            facets["version"] = self._facets.facet("version", producer, datasetVersion=snapshot_of(run.run_id))
        if run.own_results and is_end:
            check = next(c for c in self._company.checks.values() if c.table == table.key and c.manner == "own_output")
            facets["dataQualityAssertions"] = self._assertions(check, run.own_results, producer)
        dataset = self._dataset(table.written_as, facets)
        if is_end and content is not None and voice.rows:
            own: Facets = {"outputStatistics": self._facets.statistics(content, producer)}
            dataset["outputFacets"] = own
        if is_end and content is not None and voice.metrics:
            facets["dataQualityMetrics"] = self._facets.metrics(content, producer)
        return [dataset]

    def _usual(self, job: Job) -> dict[str, Column]:
        return {each.name: Column(each.type) for each in job.fields}

    # Facets

    def _run_facets(self, job: Job, launch: Launch, engine: str) -> Facets:
        producer = PRODUCERS[job.tool]
        facets: Facets = {}
        if engine:
            facets["processing_engine"] = self._facets.engine(job.tool, engine)
        if job.voice.nominal_time:
            facets["nominalTime"] = self._facets.nominal(launch, producer)
        if job.tool is Tool.PLAIN:
            return facets
        pipeline = launch.pipeline
        root, root_id = pipeline.told_as, launch.run_id
        if pipeline.parent is not None:
            root = Name(pipeline.parent.namespace, pipeline.parent.name.partition(".")[0])
            root_id = launch.parent_run_id
        facets["parent"] = self._facets.parent(pipeline.told_as, launch.run_id, root, root_id, producer)
        if job.tool is Tool.DBT:
            facets["dbt_run"] = self._facets.dbt_run(launch, producer)
        return facets

    def _job_facets(self, run: Run, producer: str) -> Facets:
        job = run.job
        kind = {Tool.AIRFLOW: "TASK", Tool.DBT: "MODEL", Tool.SPARK: "SQL_JOB", Tool.PLAIN: "JOB"}[job.tool]
        facets: Facets = {"jobType": self._facets.job_type(job.tool, kind)}
        if job.tool in (Tool.AIRFLOW, Tool.PLAIN):
            facets["ownership"] = self._facets.owners(job.owner, producer)
        if job.voice.sql:
            facets["sql"] = self._facets.sql(run, producer)
        if job.voice.commit:
            facets["sourceCodeLocation"] = self._facets.location(run, producer)
        return facets

    def _assertions(self, check: Check, results: Sequence[Result], producer: str) -> Facets:
        return self._facets.facet(
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
        return self._facets.facet("test", CHECKER, tests=tests)

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
