"""Histories for the tests, and what can be read from their events alone."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from correlator.demo.faults import FaultKind, Truth
from correlator.demo.scenario import History, Scenario, simulate
from correlator.demo.simulation import Simulation
from correlator.demo.telling import Sent
from correlator.rulebook.statements import dataset_ref
from correlator.rulebook.versions import Kin, Read, Write, WriteKind, responsible_write


@cache
def history(kind: FaultKind, seed: int = 3, hops: int = 1) -> History:
    """A small company with one fault of this kind that a test notices."""
    for attempt in range(seed, seed + 20):
        made = simulate(Scenario(seed=attempt, jobs=14, days=12, kinds=(kind,), hops=(hops,), hourly_share=0.1))
        if made.truths:
            return made
    raise AssertionError(f"no company has a place for {kind}")


def without_faults(made: History, scenario: Scenario) -> Simulation:
    """The same days of the same company, had nothing gone wrong."""
    return Simulation(
        made.company,
        seed=scenario.seed,
        begins=scenario.begins,
        ends=scenario.begins + scenario.days * 86_400,
        noise=scenario.noise,
        quirks=scenario.quirks,
    )


@dataclass
class ToldRun:
    """What the events say of a run."""

    job: tuple[str, str] = ("", "")
    events: list[dict[str, Any]] = field(default_factory=list)
    parent: str | None = None
    root: str | None = None

    @property
    def kin(self) -> Kin:
        def known(run: str | None) -> bytes | None:
            return None if run is None else run.encode()

        return Kin(self.events[0]["run"]["runId"].encode(), known(self.parent), known(self.root))

    @property
    def started(self) -> int:
        starts = [instant(event) for event in self.events if event["eventType"] == "START"]
        return min(starts or [instant(event) for event in self.events])

    @property
    def states(self) -> set[str]:
        return {event["eventType"] for event in self.events}

    @property
    def is_test(self) -> bool:
        return any(event["job"]["facets"].get("jobType", {}).get("jobType") == "TEST" for event in self.events)


class Told:
    """Runs and writes by the events alone: names made one by the rulebook and by symlinks."""

    def __init__(self, events: Sequence[Sent]) -> None:
        self.runs: dict[str, ToldRun] = defaultdict(ToldRun)
        self._aliases: dict[str, str] = {}
        self.writes: dict[str, list[Write]] = defaultdict(list)
        for sent in events:
            event = json.loads(sent.raw)
            if "run" in event:
                self._add(event)
        for run in self.runs.values():
            if not run.is_test:
                self._add_writes(run)

    def _add(self, event: dict[str, Any]) -> None:
        run = self.runs[event["run"]["runId"]]
        run.job = (event["job"]["namespace"], event["job"]["name"])
        run.events.append(event)
        parent = event["run"]["facets"].get("parent")
        if parent is not None:
            run.parent, run.root = parent["run"]["runId"], parent["root"]["run"]["runId"]
        for output in event["outputs"]:
            for other in output["facets"].get("symlinks", {}).get("identifiers", ()):
                name = dataset_ref(other["namespace"], other["name"]).urn
                self._aliases[name] = dataset_ref(output["namespace"], output["name"]).urn

    def _add_writes(self, run: ToldRun) -> None:
        for event in run.events:
            if event["eventType"] not in ("COMPLETE", "FAIL"):
                continue
            for output in event["outputs"]:
                rows = output.get("outputFacets", {}).get("outputStatistics", {}).get("rowCount", 0)
                failed: WriteKind = "partial" if rows else "attempt"
                kind: WriteKind = "complete" if event["eventType"] == "COMPLETE" else failed
                where = self.urn(output["namespace"], output["name"])
                self.writes[where].append(Write(run.kin, instant(event), kind))

    def urn(self, namespace: str, name: str) -> str:
        urn = dataset_ref(namespace, name).urn
        return self._aliases.get(urn, urn)

    def direct_cause(self, truth: Truth) -> str | None:
        """The run whose write a test read, by the rule of the rulebook."""
        test = self.runs[truth.test_run_id]
        is_own = not test.is_test and any(event["outputs"] for event in test.events)
        read = Read(test.kin, test.started, of_own_output=is_own)
        write = responsible_write(read, self.writes[self.urn(truth.dataset_namespace, truth.dataset_name)])
        return None if write is None else write.by.run.decode()

    def has_failed_result(self, truth: Truth) -> bool:
        """Whether the events tell the failure under the names of the truth."""
        of_run = [
            said
            for event in self.runs[truth.test_run_id].events
            for said in event["run"]["facets"].get("test", {}).get("tests", ())
            if [(each["namespace"], each["name"]) for each in event["inputs"]]
            == [(truth.dataset_namespace, truth.dataset_name)]
        ]
        return any(said["name"] == truth.test_name and said["status"] == "fail" for said in of_run) or any(
            (said.get("name") or said["assertion"], said.get("column", "")) == (truth.test_name, truth.column)
            and not said["success"]
            for event in self.runs[truth.test_run_id].events
            for dataset in [*event["inputs"], *event["outputs"]]
            if (dataset["namespace"], dataset["name"]) == (truth.dataset_namespace, truth.dataset_name)
            for facets in (dataset.get("facets", {}), dataset.get("inputFacets", {}))
            for said in facets.get("dataQualityAssertions", {}).get("assertions", ())
        )


def instant(event: dict[str, Any]) -> int:
    text = event["eventTime"]
    return round(datetime.fromisoformat(text if "+" in text else f"{text}+00:00").timestamp() * 1e6)
