"""How many events wait at a source, and since when, from what Spark sees of it every few seconds."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypeAlias

Offsets: TypeAlias = Mapping[str, int]
"""Of each part of a source, such as a topic's partition, how many events lie before an offset."""

_MOST_LOOKS: Final = 1_000


class Backlog:
    """Remembers how far the source had come at each look.

    What waits came after the last look that saw nothing beyond what has been read by now.
    """

    def __init__(self, since: datetime) -> None:
        self._looks: list[tuple[datetime, Offsets]] = [(since, {})]

    def look(self, at: datetime, read: Offsets, latest: Offsets) -> tuple[int, datetime | None]:
        """How many events wait, and since when the oldest at most."""
        if latest == self._looks[-1][1]:
            del self._looks[-1]
        self._looks.append((at, latest))
        while len(self._looks) > 1 and not _waiting(read, self._looks[1][1]):
            del self._looks[0]
        waiting = _waiting(read, latest)
        if not waiting:
            self._looks = [(at, latest)]
            return 0, None
        if len(self._looks) > _MOST_LOOKS:
            # It stands still for long: the first look is the one that counts.
            del self._looks[1::2]
        return waiting, self._looks[0][0]


def _waiting(read: Offsets, latest: Offsets) -> int:
    return sum(max(0, offset - read.get(part, 0)) for part, offset in latest.items())
