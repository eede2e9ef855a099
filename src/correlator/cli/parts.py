"""The parts of a Correlator that runs, how each of them is, and what has happened to them."""

import threading
from collections import deque
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TypeAlias

State: TypeAlias = Literal["off", "starting", "up", "down", "stopping", "stopped"]

_MOST_NOTES: Final = 4


class Part(NamedTuple):
    name: str
    state: State
    words: str
    """What else there is to say of it, in one line."""
    restarts: int


class Note(NamedTuple):
    at: datetime
    sentence: str


class Parts:
    """Told from any thread, and looked at from another."""

    def __init__(self, *names: str) -> None:
        self._lock = threading.Lock()
        self._parts = {name: Part(name, "starting", "", 0) for name in names}
        self._notes: deque[Note] = deque(maxlen=_MOST_NOTES)

    def tell(self, name: str, state: State, words: str = "") -> None:
        with self._lock:
            self._parts[name] = self._parts[name]._replace(state=state, words=" ".join(words.split()))

    def note(self, sentence: str, *, restarted: str | None = None) -> None:
        """Something that was not meant to happen; `restarted` names the part that was started again for it."""
        with self._lock:
            self._notes.append(Note(datetime.now(UTC), " ".join(sentence.split())))
            if restarted is not None:
                part = self._parts[restarted]
                self._parts[restarted] = part._replace(restarts=part.restarts + 1)

    def all(self) -> list[Part]:
        with self._lock:
            return list(self._parts.values())

    def notes(self) -> list[Note]:
        with self._lock:
            return list(self._notes)
