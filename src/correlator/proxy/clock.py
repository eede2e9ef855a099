"""Time by the wall, and how far it was moved: what is kept for hours must not go because somebody has set a clock."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOLERANCE: Final = 30.0
"""Seconds by which the two clocks may differ without anybody having set one: slewing, a sleep between two readings."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Reading:
    """Both clocks at one moment."""

    boot_id: str
    since_boot: float
    """Seconds on a clock that nobody can set, and that goes on while the machine sleeps."""
    wall: float
    """Seconds since 1970, as somebody has set it."""

    def jump_since(self, earlier: "Reading") -> float:
        """By how much the wall clock was set since then. Backwards is negative."""
        passed = self.wall - earlier.wall
        # Nobody knows how long the machine was off, but it was no negative time.
        real = self.since_boot - earlier.since_boot if self.boot_id == earlier.boot_id else max(passed, 0.0)
        jump = passed - real
        return jump if abs(jump) > TOLERANCE else 0.0


class Clock:
    def __init__(self) -> None:
        self._boot_id = _boot_id()

    def read(self) -> Reading:
        return Reading(self._boot_id, time.clock_gettime(_BOOT_CLOCK), time.time())

    def wall(self) -> float:
        return time.time()


_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        # Elsewhere than on Linux: a restart of the proxy counts as one of the machine.
        return f"process {time.monotonic_ns()}"
