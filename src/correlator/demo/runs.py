"""What happened: launches of pipelines, runs of jobs, looks of tests. What the events are told from."""

from dataclasses import dataclass, field

from correlator.demo.faults import Fault
from correlator.demo.parts import Check, Job, Pipeline, Table, Test
from correlator.demo.world import Content, Finding, Why


@dataclass(frozen=True, slots=True)
class Code:
    revision: int
    commit: str
    bug: Fault | None = None


@dataclass(slots=True)
class Launch:
    """One time that a pipeline was started."""

    pipeline: Pipeline
    run_id: str
    parent_run_id: str
    engine: str
    nominal: float
    started: float
    waiting: dict[str, int]
    """For each job how many others it waits for."""
    open: int
    """Jobs that are not done with."""
    blocked: dict[str, Why | None] = field(default_factory=dict)
    """Jobs that will not run because of another."""
    has_failed: bool = False
    ended: float = 0.0
    dbt_checks: list[Check] = field(default_factory=list)
    """Checks that come when all models are done."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A table as a run read it."""

    table: Table
    rows: float
    content: Content
    snapshot: str
    """The version that was read, by the name that its writer gave it; empty for what was there before all."""


@dataclass(slots=True)
class Run:
    run_id: str
    job: Job
    launch: Launch
    attempt: int
    started: float
    reads: list[Seen]
    code: Code
    engine: str
    parameters: tuple[tuple[str, str], ...]
    source_version: str = ""
    """Of what is outside; the same again if nothing new was delivered."""
    ended: float = 0.0
    state: str = "COMPLETE"
    written: Content | None = None
    error: str = ""
    own_results: list["Result"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Result:
    run_id: str
    test: Test
    finding: Finding


@dataclass(slots=True)
class Look:
    """One time that the tests of a check looked at a table."""

    check: Check
    launch: Launch | None
    at: float
    content: Content
    results: list[Result]
