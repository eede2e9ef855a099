"""What clients have sent and what they were told: the truth that the database is held against afterwards."""

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal
from uuid import UUID

from tests.integration.events import run_event

MARK = "chaos"
"""The property by which an event is known again. Whoever has the same mark has the same content."""

Path = Literal["/api/v1/lineage", "/api/v1/lineage/batch", "/api/v1/lineage/events"]


@dataclass(frozen=True)
class Sent:
    """An event in certain bytes."""

    mark: str
    raw: bytes
    is_valid: bool


@dataclass(frozen=True)
class Errand:
    """One request, which is sent until it is answered."""

    path: Path
    body: bytes
    events: Sequence[Sent]
    expected: int
    """The status. What is not expected is a finding."""


@dataclass
class Story:
    """Written by all clients."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    raws: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    """Of each valid event the bytes in which it was sent."""
    kept: set[str] = field(default_factory=set)
    """Marks of events that were acknowledged, as stored or as duplicates."""
    told_stored: Counter[str] = field(default_factory=Counter)
    """How often somebody was told that he had been the first."""
    refused: set[bytes] = field(default_factory=set)
    """What was answered as rejected, and must be among the rejected events."""
    refusals_attempted: Counter[bytes] = field(default_factory=Counter)
    attempted: int = 0
    """Events in all requests, each as often as it was sent."""
    answered: int = 0
    """Events in requests that were answered."""
    answered_refused: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def attempt(self, errand: Errand) -> None:
        with self.lock:
            self.attempted += len(errand.events)
            for event in errand.events:
                if event.is_valid and errand.expected != BROKEN_CYCLE:
                    self.raws[event.mark].add(event.raw)
                else:
                    self.refusals_attempted[event.raw] += 1

    def answer(self, errand: Errand, status: int, body: bytes) -> None:
        with self.lock:
            self.requests[f"{status}"] += 1
            expected = 422 if errand.expected == BROKEN_CYCLE else errand.expected
            if status != expected:
                self.findings.append(f"{errand.path} answered {status} and not {expected}: {body[:500]!r}")
                return
            self.answered += len(errand.events)
            self._believe(errand, json.loads(body))

    def unanswered(self, why: str) -> None:
        with self.lock:
            self.requests[why] += 1

    def _believe(self, errand: Errand, said: dict[str, Any]) -> None:
        events = errand.events
        if errand.expected in {400, BROKEN_CYCLE} or (errand.path == "/api/v1/lineage" and errand.expected == 422):
            self._refused(events)
        elif errand.path == "/api/v1/lineage":
            self._kept(events[0], said["status"])
        elif errand.path == "/api/v1/lineage/batch":
            failed = [event["index"] for event in said["failed_events"]]
            expected = [index for index, event in enumerate(events) if not event.is_valid]
            if failed != expected or said["summary"]["received"] != len(events):
                self.findings.append(f"/batch called {failed} failed and not {expected}: {said['summary']}")
            for event in events:
                if event.is_valid:
                    self.kept.add(event.mark)
            self._refused([event for event in events if not event.is_valid])
        else:
            self._believe_results(events, said["results"])

    def _believe_results(self, events: Sequence[Sent], results: Sequence[dict[str, Any]]) -> None:
        if [result["index"] for result in results] != list(range(len(events))):
            self.findings.append("/events answered with other indexes than were sent")
        for event, result in zip(events, results, strict=True):
            if (result["status"] == 200) != event.is_valid:
                self.findings.append(f"/events judged {event.raw[:200]!r} wrongly: {result}")
            elif event.is_valid:
                self._kept(event, result["message"])
            else:
                self._refused([event])

    def _kept(self, event: Sent, outcome: str) -> None:
        if outcome not in {"stored", "duplicate"}:
            self.findings.append(f"an event was called {outcome!r}")
        self.kept.add(event.mark)
        self.told_stored[event.mark] += outcome == "stored"

    def _refused(self, events: Sequence[Sent]) -> None:
        self.answered_refused += len(events)
        self.refused.update(event.raw for event in events)


BROKEN_CYCLE = -422
"""Expected of a batch that is refused whole although each of its events is valid."""


class Author:
    """Makes up requests: new events and repeated ones, refused ones among them."""

    def __init__(self, random: Random, name: str) -> None:
        self._random = random
        self._name = name
        self._count = 0
        self._past: list[dict[str, Any]] = []

    def errand(self) -> Errand:
        kind = self._random.choices(
            ("one", "repeated", "refused", "not json", "batch", "events", "cycle"), (50, 8, 4, 2, 14, 20, 2)
        )[0]
        if kind == "one":
            return _one(self._valid(self._new()), 200)
        if kind == "repeated":
            return _one(self._repeated(), 200)
        if kind == "refused":
            return _one(self._refused(), 422)
        if kind == "not json":
            mark = self._mark()
            raw = f'{{"{MARK}": "{mark}", "eventType": '.encode()
            return _one(Sent(mark, raw, is_valid=False), 400)
        if kind == "cycle":
            return self._broken_cycle()
        return self._many("/api/v1/lineage/batch" if kind == "batch" else "/api/v1/lineage/events")

    def _many(self, path: Path) -> Errand:
        size = self._random.choices((self._random.randint(1, 12), 120, 1_300), (90, 9, 1))[0]
        kinds = self._random.choices(("new", "repeated", "refused"), (80, 14, 6), k=size)
        # Two that are not of one run, or else the run cycle would be judged too.
        events = [self._valid(self._new()), self._valid(self._new()), *map(self._of_kind, kinds)]
        body = b"[" + b",".join(event.raw for event in events) + b"]"
        is_mixed = not all(event.is_valid for event in events)
        return Errand(path, body, events, 207 if is_mixed and path.endswith("/events") else 200)

    def _of_kind(self, kind: str) -> Sent:
        if kind == "repeated":
            return self._repeated()
        return self._refused() if kind == "refused" else self._valid(self._new())

    def _broken_cycle(self) -> Errand:
        first = self._new() | {"eventType": "COMPLETE", "eventTime": "2026-11-01T10:00:00Z"}
        second = first | {"eventType": "START", "eventTime": "2026-11-01T11:00:00Z", MARK: self._mark()}
        events = [self._valid(first, is_to_be_repeated=False), self._valid(second, is_to_be_repeated=False)]
        return Errand(
            "/api/v1/lineage/events", b"[" + b",".join(event.raw for event in events) + b"]", events, BROKEN_CYCLE
        )

    def _new(self) -> dict[str, Any]:
        event_type = self._random.choice(("START", "RUNNING", "COMPLETE", "FAIL"))
        run_id = str(UUID(int=self._random.getrandbits(128)))
        second = self._random.randrange(60)
        event = run_event(event_type, run_id, f"2026-11-01T10:00:{second:02}Z", f"job {self._random.randrange(20)}")
        if self._random.random() < 0.02:
            event["padding"] = "x" * self._random.randrange(100_000)
        return event | {MARK: self._mark()}

    def _repeated(self) -> Sent:
        """The same bytes, the same content in other bytes, or another content under the same key."""
        if not self._past:
            return self._valid(self._new())
        event = self._random.choice(self._past)
        how = self._random.randrange(4)
        if how == 0:
            return self._valid(dict(reversed(event.items())))
        if how == 1:
            return self._valid(event | {MARK: self._mark()})
        return self._valid(event)

    def _refused(self) -> Sent:
        event = self._new()
        del event["job"]["name"]
        return Sent(event[MARK], json.dumps(event).encode(), is_valid=False)

    def _valid(self, event: dict[str, Any], *, is_to_be_repeated: bool = True) -> Sent:
        if is_to_be_repeated:
            self._past.append(event)
            del self._past[:-200]
        return Sent(event[MARK], json.dumps(event).encode(), is_valid=True)

    def _mark(self) -> str:
        self._count += 1
        return f"{self._name}.{self._count}"


def _one(event: Sent, expected: int) -> Errand:
    return Errand("/api/v1/lineage", event.raw, [event], expected)
