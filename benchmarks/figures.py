"""Headline figures: what a benchmark found, in a line, and what was aimed at.

`python -m benchmarks`, which runs one after the other, names a file in the environment, and each appends what it found.
A benchmark that is run by hand has no such file, and says all that it has to say on standard output.
"""

import os
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = "BENCHMARK_FIGURES"
"""The variable that names the file. Not `CORRELATOR_…`: those are settings, and an unknown one is an error."""


class Aim(msgspec.Struct, frozen=True):
    bound: float
    is_least: bool

    def is_held_by(self, value: float) -> bool:
        return value >= self.bound if self.is_least else value <= self.bound

    def __str__(self) -> str:
        return f"at {'least' if self.is_least else 'most'} {self.bound:,g}"


def at_least(bound: float) -> Aim:
    return Aim(bound, is_least=True)


def at_most(bound: float) -> Aim:
    return Aim(bound, is_least=False)


class Figure(msgspec.Struct, frozen=True):
    name: str
    value: float
    unit: str
    aim: Aim | None = None


def figure(name: str, value: float, unit: str, aim: Aim | None = None) -> None:
    """Add it to what was found, if somebody collects it."""
    if place := os.environ.get(FILE):
        with Path(place).open("ab") as file:
            file.write(msgspec.json.encode(Figure(name, value, unit, aim)) + b"\n")


def figures_in(file: Path) -> list[Figure]:
    """What a benchmark has added, in its order."""
    written = file.read_bytes().splitlines() if file.exists() else []
    return [msgspec.json.decode(line, type=Figure) for line in written]
