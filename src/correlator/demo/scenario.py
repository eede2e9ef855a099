"""A history made to order: a random company, so many weeks, and faults whose causes are known."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from correlator.demo.faults import Fault, FaultKind, Truth
from correlator.demo.luck import Luck
from correlator.demo.parts import DAY, Company
from correlator.demo.planting import plant
from correlator.demo.simulation import Noise, Simulation
from correlator.demo.telling import Quirks, Sent
from correlator.demo.topology import random_company

_BEGINS: Final = datetime(2026, 3, 2, tzinfo=UTC).timestamp()
_DAYS_BETWEEN: Final = 3


@dataclass(frozen=True)
class Scenario:
    """Equal scenarios give equal histories, to the byte."""

    seed: int
    jobs: int = 30
    days: int = 21
    begins: float = _BEGINS
    """Seconds since 1970; a midnight."""
    faults: int = 1
    kinds: tuple[FaultKind, ...] = tuple(FaultKind)
    """Of which the faults are drawn."""
    hops: tuple[int, ...] = (0, 1, 2, 3, 4)
    """How far from the root a test has to notice."""
    hourly_share: float = 0.25
    noise: Noise = field(default_factory=Noise)
    quirks: Quirks = field(default_factory=Quirks)


@dataclass(frozen=True)
class History:
    events: list[Sent]
    """In the order in which they are sent."""
    truths: list[Truth]
    """For every failed test result why it failed."""
    company: Company
    faults: list[Fault]
    unexplained: int
    """Failed results that no fault explains."""


class Play:
    """A history as it happens, for histories that are too large to be kept: iterate once, then ask for the truths."""

    def __init__(self, scenario: Scenario) -> None:
        self.company = random_company(scenario.seed, scenario.jobs, scenario.hourly_share)
        self.faults = _faults(scenario, self.company)
        self._simulation = Simulation(
            self.company,
            seed=scenario.seed,
            begins=scenario.begins,
            ends=scenario.begins + scenario.days * DAY,
            faults=self.faults,
            noise=scenario.noise,
            quirks=scenario.quirks,
        )

    def __iter__(self) -> Iterator[Sent]:
        return self._simulation.events()

    @property
    def truths(self) -> list[Truth]:
        """Complete when all events are out."""
        return self._simulation.truths

    @property
    def unexplained(self) -> int:
        return self._simulation.unexplained


def simulate(scenario: Scenario) -> History:
    play = Play(scenario)
    events = list(play)
    return History(events, play.truths, play.company, play.faults, play.unexplained)


def _faults(scenario: Scenario, company: Company) -> list[Fault]:
    """Spread over the days after the first weeks, so that it is known what is usual."""
    random = Luck(f"faults/{scenario.seed}")
    first = min(max(scenario.days // 2, 1), 14)
    found: list[Fault] = []
    for number in range(scenario.faults):
        day = first + number * _DAYS_BETWEEN + (0 if number else random.randint(0, 1))
        if day + 2 > scenario.days:
            break
        kinds = random.sample(scenario.kinds, len(scenario.kinds))
        hops = random.sample(scenario.hops, len(scenario.hops))
        wanted = [(kind, distance) for distance in hops for kind in kinds[:3]]
        for kind, distance in wanted:
            planted = plant(company, random, kind, distance, scenario.begins + day * DAY)
            if planted is not None:
                found.append(planted.fault)
                break
    return found
