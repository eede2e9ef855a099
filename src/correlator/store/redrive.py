"""Rejected events, judged again: what passes now goes into the log."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from hashlib import sha256
from itertools import islice
from typing import Final

import msgspec
import psycopg

from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.problems import ROOT, Problem, element, under
from correlator.store.event_log import REMEMBERED, EventLog, Group, entry_of
from correlator.store.rejects import MOST_PROBLEMS, Reject

SOURCE: Final = "redrive"

Judge = Callable[[bytes], Event | Rejection]

_READ: Final = """
SELECT id, layer, sent_by, correlation_id, raw FROM kept.rejected_events
WHERE id = ANY (%s) AND redriven_at IS NULL ORDER BY id
"""
# Whoever else redrives the same ones waits, and then sees that it is done.
_READ_AND_LOCK: Final = _READ + "FOR UPDATE"

_HEAD: Final = "SELECT position FROM kept.log_head FOR UPDATE"
# One index probe in each day's partition.
_APPENDED: Final = "SELECT position, sha256(raw) FROM kept.lineage_events WHERE position > %s"

_MARK: Final = """
UPDATE kept.rejected_events AS rejects SET redriven_at = now(), redriven_as = said.position
FROM unnest(%s::bigint[], %s::bigint[]) AS said (id, position) WHERE rejects.id = said.id
"""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one rejected event."""

    id: int
    layer: int
    """The one that had refused it."""
    problems: tuple[Problem, ...] = ()
    """Why it is refused still; none if it was accepted."""
    stored: int = 0
    duplicates: int = 0
    split_off: int | None = None
    """Of an array that was accepted: its elements that were not, and are rejected events of their own from now on."""

    @property
    def is_accepted(self) -> bool:
        return not self.problems


class _Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A rejected event with today's verdict: what to append, what to keep refused, or why nothing can be done."""

    id: int
    layer: int
    events: Sequence[Event] = ()
    rejects: Sequence[Reject] = ()
    problems: tuple[Problem, ...] = ()
    is_array: bool = False


class Redrive:
    """Redriving through one connection, which is in autocommit.

    An event is appended and marked in one transaction: whatever breaks in between, it is in the log and marked, or
    neither. In the ledger, source `redrive` counts what came out of the rejected events. What is refused once more is
    not received once more: it stays the one rejected event of the source that it came from.
    """

    def __init__(self, connection: psycopg.Connection, judge: Judge, remembered: timedelta = REMEMBERED) -> None:
        self._connection = connection
        self._judge = judge
        self._log = EventLog(connection, remembered)

    def rehearse(self, ids: Sequence[int]) -> list[Outcome]:
        """What would become of them. Which of them the log has already is not known before."""
        attempts = [self._attempt(*row) for row in self._connection.execute(_READ, [list(ids)], binary=True)]
        return [_outcome(attempt, [True] * len(attempt.events)) for attempt in attempts]

    def __call__(self, ids: Sequence[int]) -> list[Outcome]:
        """Those that are there and were not redriven before, in one transaction."""
        with self._connection.transaction():
            rows = self._connection.execute(_READ_AND_LOCK, [list(ids)], binary=True).fetchall()
            attempts = [self._attempt(*row) for row in rows]
            entries = [entry_of(event) for attempt in attempts for event in attempt.events]
            rejects = [reject for attempt in attempts for reject in attempt.rejects]
            if not entries:
                return [_outcome(attempt, []) for attempt in attempts]
            ((before,),) = self._connection.execute(_HEAD).fetchall()
            stored = iter(self._log.append(Group(uuid.uuid4(), SOURCE, entries, rejects)))
            appended = self._connection.execute(_APPENDED, [before], binary=True).fetchall()
            positions = {digest: position for position, digest in appended}
            accepted = [attempt for attempt in attempts if attempt.events]
            self._connection.execute(
                _MARK, [[attempt.id for attempt in accepted], [_position(attempt, positions) for attempt in accepted]]
            )
            return [_outcome(attempt, [next(stored) for _ in attempt.events]) for attempt in attempts]

    def _attempt(
        self, number: int, layer: int, sent_by: str | None, correlation_id: str | None, raw: bytes
    ) -> _Attempt:
        verdict = self._judge(raw)
        if not isinstance(verdict, Rejection):
            return _Attempt(id=number, layer=layer, events=[verdict])
        elements = _elements_of(raw)
        verdicts = [self._judge(bytes(part)) for part in elements]
        events = [each for each in verdicts if not isinstance(each, Rejection)]
        if events:
            rejects = [
                Reject(
                    raw=each.raw,
                    layer=1,
                    problems=each.errors,
                    kind=each.kind,
                    producer=each.producer,
                    sent_by=sent_by,
                    correlation_id=correlation_id,
                )
                for each in verdicts
                if isinstance(each, Rejection)
            ]
            return _Attempt(id=number, layer=layer, events=events, rejects=rejects, is_array=True)
        problems = tuple(islice(_problems_of_elements(verdicts), MOST_PROBLEMS))
        return _Attempt(id=number, layer=layer, problems=problems or verdict.errors)


def _elements_of(raw: bytes) -> list[msgspec.Raw]:
    """The elements of a batch that was refused as a whole, sent to where one event belongs."""
    try:
        return _elements(raw.removeprefix(_BYTE_ORDER_MARK))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def _problems_of_elements(verdicts: Sequence[Event | Rejection]) -> Iterator[Problem]:
    for index, verdict in enumerate(verdicts):
        at = element("", index)
        for problem in verdict.errors if isinstance(verdict, Rejection) else ():
            if problem.path == ROOT:
                yield Problem(at, problem.rule, f"{at}: {problem.message.removeprefix(f'{ROOT}: ')}")
            else:
                yield under(at, problem)


def _position(attempt: _Attempt, positions: dict[bytes, int]) -> int | None:
    """Where the first of its events stands that was stored now."""
    found = (positions.get(sha256(event.raw).digest()) for event in attempt.events)
    return next((position for position in found if position is not None), None)


def _outcome(attempt: _Attempt, stored: Sequence[bool]) -> Outcome:
    return Outcome(
        id=attempt.id,
        layer=attempt.layer,
        problems=attempt.problems,
        stored=sum(stored),
        duplicates=len(stored) - sum(stored),
        split_off=len(attempt.rejects) if attempt.is_array else None,
    )
