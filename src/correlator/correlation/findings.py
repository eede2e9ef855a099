"""What is odd about one run of the bad trace."""

from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from correlator.correlation.changes import CodeChange, MetricChange, SchemaChange, SettingChange
from correlator.correlation.history import Run
from correlator.correlation.ids import Id
from correlator.correlation.past import PastRun
from correlator.correlation.usual import Oddity

Topic: TypeAlias = Literal["amount", "schema", "values"]
"""What a run may say of what it wrote."""


class Unchanged(msgspec.Struct, frozen=True):
    """A sign that what a run read was what its last run had read already."""

    sentence: str
    is_certain: bool
    """Whether the producer names the version. Equal counts alone may be chance, or the nature of the table."""
    first: PastRun | None = None
    """The first of the former runs that repeated it too, if any did."""


class InputChange(msgspec.Struct, frozen=True):
    """That it reads other datasets than before; by their names."""

    gone: tuple[str, ...] = ()
    new: tuple[str, ...] = ()


class TakeOver(msgspec.Struct, frozen=True):
    """That another job had written a dataset before."""

    job: Id
    """The other one."""
    name: str
    dataset: Id


class Repeat(msgspec.Struct, frozen=True):
    """That it ran for a moment that it had run for before, or for one that was past already."""

    run: PastRun
    moment: datetime
    last: datetime
    """What its run before it was for."""

    @property
    def is_older(self) -> bool:
        return self.moment < self.last


class RedTest(msgspec.Struct, frozen=True):
    """That a test failed on what a run wrote."""

    dataset: Id
    name: str
    column: str
    at: datetime


class OddRuns(NamedTuple):
    """Runs of a job that wrote more or less than is usual."""

    first: PastRun
    odd: Oddity
    number: int = 1
    """Of more than one none is odd by itself: it is what they wrote together."""


class Findings(msgspec.Struct):
    """What is odd about one run of the bad trace; datasets are those that it wrote."""

    run: Run
    distance: int
    baseline: PastRun | None
    """The run of the same job that it is compared with."""
    is_new: bool
    """Whether it is not on the good side as well, or not by the same way."""
    is_new_way: bool = False
    """Whether it is there too, by another way."""
    code: list[CodeChange] = msgspec.field(default_factory=list)
    settings: list[SettingChange] = msgspec.field(default_factory=list)
    inputs: InputChange | None = None
    took_over: TakeOver | None = None
    sources: dict[Id, SchemaChange] = msgspec.field(default_factory=dict)
    """Of what it reads and nobody is known to write."""
    repeated: Repeat | None = None
    schemas: dict[Id, SchemaChange] = msgspec.field(default_factory=dict)
    volumes: dict[Id, tuple[str, Oddity]] = msgspec.field(default_factory=dict)
    """How much it wrote, of rows or bytes."""
    metrics: dict[Id, list[MetricChange]] = msgspec.field(default_factory=dict)
    between: dict[Id, OddRuns] = msgspec.field(default_factory=dict)
    """Of earlier runs that went into what the next job read."""
    metrics_between: dict[Id, tuple[PastRun, list[MetricChange]]] = msgspec.field(default_factory=dict)
    """The same for what columns held: of the first of those runs that was not as before."""
    said: dict[Topic, set[Id]] = msgspec.field(
        default_factory=lambda: {"amount": set(), "schema": set(), "values": set()}
    )
    """Of which datasets the run says how much it wrote, which columns they have, and what these hold."""
    red_tests: list[RedTest] = msgspec.field(default_factory=list)
    """Those of what it wrote that were not red when all was well; of what went into what failed, not of that itself."""
    unchanged: list[Unchanged] = msgspec.field(default_factory=list)
    duration: Oddity | None = None

    @property
    def has_changed(self) -> bool:
        """Whether it was not set up as before."""
        return bool(any(change.is_notable for change in self.code) or self.settings or self.inputs or self.took_over)

    @property
    def is_partial(self) -> bool:
        """Whether what it wrote is what it had written when it failed."""
        return self.run.state in ("FAIL", "ABORT")


class Pair(msgspec.Struct, frozen=True):
    """A run, and the one of the same job that it is compared with."""

    found: Findings
    before: PastRun
    older: list[PastRun]
    """A few of the runs before that, which tell what changes from run to run anyway."""
