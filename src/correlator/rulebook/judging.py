"""Layer 1 within limits of size and depth: the same judge for every door, and for what is driven in again."""

from typing import Protocol

from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.nesting import is_nested_deeper_than
from correlator.rulebook.policy import CORRELATOR, Formats, Policy
from correlator.rulebook.problems import ROOT, Problem


class Limits(Protocol):
    """As settings have them."""

    @property
    def formats(self) -> Formats: ...
    @property
    def max_event_bytes(self) -> int: ...
    @property
    def max_nesting(self) -> int: ...


class Judge:
    def __init__(
        self, policy: Policy = CORRELATOR, *, max_event_bytes: int = 32_000_000, max_nesting: int = 200
    ) -> None:
        self.policy = policy
        self._max_event_bytes = max_event_bytes
        self._max_nesting = max_nesting

    @classmethod
    def within(cls, limits: Limits) -> "Judge":
        return cls(
            Policy(formats=limits.formats), max_event_bytes=limits.max_event_bytes, max_nesting=limits.max_nesting
        )

    def __call__(self, raw: bytes) -> Event | Rejection:
        if len(raw) > self._max_event_bytes:
            most = f"{self._max_event_bytes:,}"
            message = f"the event has {len(raw):,} bytes; the limit is {most} (max_event_bytes)"
            return Rejection(raw=raw, errors=(Problem(ROOT, "too_large", message),))
        if is_nested_deeper_than(self._max_nesting, raw):
            message = f"the event is nested deeper than {self._max_nesting:,} levels (max_nesting)"
            return Rejection(raw=raw, errors=(Problem(ROOT, "too_deep", message),))
        return judge(raw, self.policy)
