"""The figures of several worker processes as those of one server, whichever of them is asked.

Each process leaves what it has counted in a file of a directory that they share, every second and whenever it is asked
itself, and adds what lies in the others' to its own. A file belongs to a place, not to a process: whoever takes the
place of a worker that died goes on from its counters, so that none is lost or goes back.
"""

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from correlator.http.metrics import Family

PUBLISH_SECONDS: Final = 1.0
_STALE_SECONDS: Final = 5.0
"""Nobody is there any more: what was counted still counts, but nothing waits and nothing takes memory."""
_SUFFIX: Final = ".figures"

_log = logging.getLogger(__name__)


class Snapshot(msgspec.Struct, frozen=True):
    at: float
    families: list[Family]

    def counted(self) -> list[Family]:
        return [family for family in self.families if family.kind != "gauge"]


class SharedFigures:
    """One process's place among the files."""

    def __init__(self, directory: Path, place: str) -> None:
        self._directory = directory
        self._path = directory / (place + _SUFFIX)
        before = _read(self._path)
        self._inherited = [] if before is None else before.counted()
        self._is_lost = False

    def publish(self, families: list[Family]) -> list[Family]:
        """Leave these for the others; with what was inherited, as they are returned."""
        own = combined([families, self._inherited]) if self._inherited else families
        unfinished = self._path.with_suffix(".new")
        try:
            unfinished.write_bytes(msgspec.msgpack.encode(Snapshot(time.time(), own)))
            unfinished.rename(self._path)
        except OSError as error:
            # The server does not stop for that. It is told once.
            if not self._is_lost:
                _log.warning("/metrics is not whole, since %s cannot be written: %s", self._path, error.strerror)
            self._is_lost = True
        else:
            self._is_lost = False
        return own

    def of_all(self, families: list[Family]) -> list[Family]:
        """These and the others'."""
        others = [_read(path) for path in sorted(self._directory.glob("*" + _SUFFIX)) if path != self._path]
        fresh_since = time.time() - _STALE_SECONDS
        return combined(
            [
                self.publish(families),
                *(other.families if other.at > fresh_since else other.counted() for other in others if other),
            ]
        )


def combined(everybody: Iterable[list[Family]]) -> list[Family]:
    """One family for each name, in the order in which the names first come."""
    together: dict[str, Family] = {}
    for families in everybody:
        for family in families:
            known = together.setdefault(family.name, msgspec.structs.replace(family, samples={}))
            samples = known.samples
            for sample, value in family.samples.items():
                if sample not in samples:
                    samples[sample] = value
                elif family.together == "sum":
                    samples[sample] += value
                else:
                    samples[sample] = (min if family.together == "least" else max)(samples[sample], value)
    return list(together.values())


_decode = msgspec.msgpack.Decoder(Snapshot).decode


def _read(path: Path) -> Snapshot | None:
    try:
        return _decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
