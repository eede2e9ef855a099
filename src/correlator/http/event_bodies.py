"""Bodies of events: one or an array, taken apart as they were written, and judged in turns."""

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final, TypeAlias, TypeVar

import msgspec

from correlator.http.problems import INVALID_EVENTS, NOT_JSON, TOO_LARGE, HttpProblem, Kind
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.judging import Judge
from correlator.rulebook.problems import ROOT, Problem

_LONGEST_TURN: Final = 0.002
"""Seconds of judging after which others get their turn."""
_EVENTS_A_LOOK: Final = 16
_MOST_TURNS: Final = 10
"""After so many a request has to stand in line again: one with ten thousand events must not hold up all small ones."""

_MOST_PROBLEMS: Final = 10_000
_FEW_PROBLEMS: Final = 3
"""What is told of one request, and of each event once that many are told. Two bytes can be wrong in 500 bytes' worth of
words, so that a batch within all limits could ask for gigabytes of them."""

_NOT_EVEN_JSON: Final = frozenset({"invalid_json", "invalid_utf8"})
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode

Verdict: TypeAlias = Event | Rejection
T = TypeVar("T")
U = TypeVar("U")


class Turns:
    """One request after the other is judged, and between its turns whatever else there is to do gets done.

    If all were judged at once, the loop would come to the database only after a turn of each of them, and all would be
    ready at the same time: the database would wait for the judging, and then the judging for the database.
    """

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def map(self, work: Callable[[T], U], items: Sequence[T]) -> list[U]:
        results: list[U] = []
        while len(results) < len(items):
            async with self._one_at_a_time:
                for _ in range(_MOST_TURNS):
                    turn_ends = perf_counter() + _LONGEST_TURN
                    while len(results) < len(items) and perf_counter() < turn_ends:
                        begin = len(results)
                        results += [work(item) for item in items[begin : begin + _EVENTS_A_LOOK]]
                    if len(results) == len(items):
                        break
                    await asyncio.sleep(0)
        return results


class BrokenArray(Exception):  # noqa: N818 (what it carries is a verdict)
    """A body that begins as an array and is not JSON from beginning to end."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.sentence)
        self.rejection = rejection


class EventBodies:
    """Judges what requests bring, one of them at a time."""

    def __init__(self, judge: Judge, max_batch_events: int) -> None:
        self._judge = judge
        self._max_batch_events = max_batch_events
        self.turns = Turns()

    async def judge_all(self, raws: Sequence[bytes | msgspec.Raw]) -> list[Verdict]:
        room = _MOST_PROBLEMS

        def judge(raw: bytes | msgspec.Raw) -> Verdict:
            nonlocal room
            verdict = self._judge(bytes(raw))
            room -= len(verdict.warnings) + (len(verdict.errors) if isinstance(verdict, Rejection) else 0)
            return _in_few_words(verdict) if room < 0 else verdict

        return await self.turns.map(judge, raws)

    def split(self, body: bytes) -> list[msgspec.Raw] | None:
        """The elements of an array, as they were written; None for a body that is some other value."""
        try:
            elements = _elements(body.removeprefix(_BYTE_ORDER_MARK))
        except msgspec.ValidationError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # Not JSON from beginning to end, which judging the whole says in better words.
            if body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"[":
                return None
            raise BrokenArray(self._not_json(body)) from None
        if len(elements) > self._max_batch_events:
            most = f"{self._max_batch_events:,}"
            raise HttpProblem(
                TOO_LARGE,
                f"The request has {len(elements):,} events; the limit is {most} (max_batch_events). "
                "Nothing was stored: send them in several requests.",
            )
        return elements

    def no_array(self, body: bytes) -> Rejection:
        """The refusal of a body that is some other value than an array."""
        verdict = self._judge(body)
        if isinstance(verdict, Rejection) and kind_of(verdict) is not INVALID_EVENTS:
            return verdict
        message = f"{ROOT}: expected an array of events; one event alone goes to /api/v1/lineage"
        return Rejection(raw=body, errors=(Problem(ROOT, "type", message),))

    def _not_json(self, body: bytes) -> Rejection:
        rejection = self._judge(body)
        if isinstance(rejection, Rejection) and _NOT_EVEN_JSON.intersection(error.rule for error in rejection.errors):
            return rejection
        return Rejection(raw=body, errors=(Problem(ROOT, "invalid_json", "the body is not valid JSON"),))


def no_single_event(body: bytes, rejection: Rejection) -> Rejection:
    """What is said of an array where one event is expected; of anything else what was said already."""
    if body[:1] == b"[" and kind_of(rejection) is INVALID_EVENTS:
        message = f"{ROOT}: expected one event; an array goes to /api/v1/lineage/events"
        return Rejection(raw=body, errors=(Problem(ROOT, "type", message),))
    return rejection


def kind_of(rejection: Rejection) -> Kind:
    rules = {error.rule for error in rejection.errors}
    if rules & _NOT_EVEN_JSON:
        return NOT_JSON
    return TOO_LARGE if "too_large" in rules else INVALID_EVENTS


def _in_few_words(verdict: Verdict) -> Verdict:
    if isinstance(verdict, Rejection):
        return msgspec.structs.replace(verdict, errors=_few(verdict.errors), warnings=_few(verdict.warnings))
    return msgspec.structs.replace(verdict, warnings=_few(verdict.warnings))


def _few(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    if len(problems) <= _FEW_PROBLEMS + 1:
        return problems
    more = len(problems) - _FEW_PROBLEMS
    words = f"and {more:,} more; the events before it have used up the {_MOST_PROBLEMS:,} that one answer tells"
    return (*problems[:_FEW_PROBLEMS], Problem(ROOT, "more_problems", words))
