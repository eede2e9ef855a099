"""What can go wrong: kinds of fault, where each is at work, and what it does to the data."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class FaultKind(StrEnum):
    FAILED_RUN = "failed_run"
    SCHEMA_DRIFT = "schema_drift"
    CODE_CHANGE = "code_change"
    VOLUME_DROP = "volume_drop"
    VOLUME_SPIKE = "volume_spike"
    STALE_INPUT = "stale_input"
    MISSING_RUN = "missing_run"
    ENGINE = "engine"
    PARAMETER = "parameter"
    PARTIAL_WRITE = "partial_write"


@dataclass(frozen=True, slots=True)
class Scaled:
    """So many times the rows."""

    factor: float


@dataclass(frozen=True, slots=True)
class Duplicated:
    """A share of the rows is there once more."""

    share: float


@dataclass(frozen=True, slots=True)
class Nulled:
    column: str
    share: float


@dataclass(frozen=True, slots=True)
class Shifted:
    """Wrong values: cents for euros, the wrong currency, a sign."""

    column: str
    factor: float


@dataclass(frozen=True, slots=True)
class Dropped:
    column: str


@dataclass(frozen=True, slots=True)
class Renamed:
    column: str
    to: str


@dataclass(frozen=True, slots=True)
class Retyped:
    column: str
    to: str


Effect = Scaled | Duplicated | Nulled | Shifted | Dropped | Renamed | Retyped

Carrier = Literal["source", "code", "engine", "parameter", "moment"]
"""What is not as before: what a source delivers, or the job's code, engine or parameters; `moment` when nothing has
changed and a run went wrong."""

Moment = Literal["", "fails", "missing", "late", "undelivered", "fails_halfway"]
"""What befalls the runs of the job: they fail; they never begin; they begin hours late; they find nothing new at the
source; they fail when part of the rows is written."""


@dataclass(frozen=True, slots=True)
class Fault:
    """While it lasts it strikes every run of its job that begins."""

    kind: FaultKind
    job: str
    begins: float
    ends: float
    carrier: Carrier
    effects: tuple[Effect, ...] = ()
    moment: Moment = ""
    delay: float = 0.0
    """Seconds by which a late run is late."""
    is_shared: bool = False
    """Whether every job of the same engine was upgraded with it; to the others it does no harm."""
    is_aborted: bool = False
    """Whether its runs were cancelled rather than failed."""
    is_announced: bool = False
    """Whether a catalogue tells of the change at the source."""

    def strikes(self, now: float) -> bool:
        return self.begins <= now < self.ends

    @property
    def touches_rows(self) -> bool:
        return any(isinstance(each, Scaled | Duplicated) for each in self.effects)

    @property
    def touches_schema(self) -> bool:
        return any(isinstance(each, Dropped | Renamed | Retyped) for each in self.effects)


@dataclass(frozen=True, slots=True)
class Truth:
    """Why a test failed. `root_job` and `direct_job` are (namespace, name) as the events have them."""

    fault: FaultKind
    hops: int
    """Jobs between the writer of the tested table (0) and the root."""
    dataset_namespace: str
    dataset_name: str
    test_name: str
    column: str
    test_run_id: str
    failed_at: float
    direct_job: tuple[str, str]
    direct_run_id: str | None
    """The run whose write the test read; None if nobody had written the table yet."""
    root_job: tuple[str, str]
    root_run_id: str | None
    """The root's run behind the version that the test read; None for a run that never was."""
    onset_run_id: str | None
    """The first run of the root job that the fault struck. The same as `root_run_id`, unless the job ran several times
    before somebody looked."""
    is_told: bool
    """Whether the events say enough to know: the root's state, or its change, or an effect that the root reports."""
    is_first: bool
    """Whether the test passed before: later failures of the same streak have the same cause."""
