"""The three doors for events: judge, keep, answer. Whatever the backend does, it is not asked here."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from correlator.http.bodies import BodyReader, BrokenBody
from correlator.http.event_bodies import BrokenArray, EventBodies, Verdict, kind_of, no_single_event
from correlator.http.exchange import EventCounts, Request, Response, Told, answer, encode
from correlator.http.limits import Limits
from correlator.http.problems import INVALID_EVENTS, HttpProblem, Kind, unavailable
from correlator.proxy import answers
from correlator.proxy.failed_events import FailedEvent, FailedEvents, now
from correlator.proxy.writer import Unwritable, Writer
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.judging import Judge
from correlator.rulebook.problems import ROOT, Problem

NOT_COMPLIANT: Final = Kind(
    "not-compliant",
    400,
    "The event does not comply",
    "It was refused, with every reason, and its bytes were handed to the handlers of failed events.",
)
_HANDLER_PATIENCE: Final = 5.0
"""Seconds for which an answer waits for the handlers of failed events. It is the same afterwards."""
_RETRY_SECONDS: Final = 5.0
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_ONE_WRITTEN: Final = EventCounts(1, 1, 0, 0)


class Ingest:
    def __init__(
        self,
        *,
        bodies: BodyReader,
        writer: Writer,
        failed: FailedEvents,
        limits: Limits,
        judge: Judge,
        max_batch_events: int,
    ) -> None:
        self._bodies = bodies
        self._writer = writer
        self._failed = failed
        self._limits = limits
        self._judge = judge
        self._events = EventBodies(judge, max_batch_events)

    async def one(self, request: Request) -> Response:
        """`POST /api/v1/lineage`: one event, as every official client sends it."""
        body = await self._read(request)
        self._limits.admit(request, 1)
        verdict = self._judge(body)
        if isinstance(verdict, Rejection):
            verdict = no_single_event(body, verdict)
            await self._hand_over(request, [verdict])
            raise _refusal_of_one(verdict)
        await self._keep(request, [verdict])
        return _answer_to_one(request, verdict)

    def one_whole(self, request: Request, body: bytes, told: Told) -> bool:
        """The same for a body that is there. Nearly every event is valid; what is not goes the way above."""
        self._bodies.take(request, body)
        verdict = self._judge(body)
        if isinstance(verdict, Rejection):
            return False
        self._limits.admit(request, 1)

        def tell(outcome: Exception | None) -> None:
            if outcome is None:
                told(_answer_to_one(request, verdict))
            else:
                told(_try_again(outcome) if isinstance(outcome, Unwritable) else outcome)

        self._writer.hand_over((_plain(body),), tell)
        return True

    async def batch(self, request: Request) -> Response:
        """`POST /api/v1/lineage/batch`: the batch contract of OpenLineage."""
        body = await self._read(request)
        raws = await self._split(request, body)
        if raws is None:
            rejection = self._events.no_array(body)
            await self._hand_over(request, [rejection])
            raise _refusal_of_one(rejection)
        verdicts = await self._events.judge_all(raws)
        await self._keep(request, verdicts)
        failed = [
            answers.FailedEvent(index, verdict.sentence, retriable=False)
            for index, verdict in enumerate(verdicts)
            if isinstance(verdict, Rejection)
        ]
        summary = answers.BatchSummary(len(verdicts), len(verdicts) - len(failed), len(failed), 0, len(failed))
        said = answers.BatchAnswer("partial_success" if failed else "success", summary, failed, request.correlation_id)
        return _array_answer(said, len(failed), len(verdicts), failed[0].reason if failed else "")

    async def events(self, request: Request) -> Response:
        """`POST /api/v1/lineage/events`: one event or an array, and a result for each."""
        body = await self._read(request)
        elements = await self._split(request, body)
        raws: Sequence[bytes | msgspec.Raw] = [body] if elements is None else elements
        verdicts = await self._events.judge_all(raws)
        if len(raws) == 1 and isinstance(verdicts[0], Rejection) and kind_of(verdicts[0]) is not INVALID_EVENTS:
            await self._hand_over(request, [verdicts[0]])
            raise _refusal_of_one(verdicts[0])
        await self._keep(request, verdicts)
        failed = sum([isinstance(verdict, Rejection) for verdict in verdicts])
        results = [_result(index, verdict) for index, verdict in enumerate(verdicts)]
        said = answers.EventsAnswer(
            correlation_id=request.correlation_id,
            timestamp=datetime.now(UTC),
            stored=len(verdicts) - failed,
            duplicates=0,
            failed=failed,
            results=results,
            summary=answers.EventsSummary(len(verdicts), len(verdicts) - failed, failed),
        )
        return _array_answer(said, failed, len(verdicts), results[0].message if results else "")

    async def _read(self, request: Request) -> bytes:
        """The body, unpacked. One that cannot be unpacked is handed over as it came."""
        try:
            return await self._bodies.read(request)
        except BrokenBody as broken:
            problem = Problem(ROOT, "invalid_json", broken.detail)
            await self._hand_over(request, [Rejection(raw=broken.raw, errors=(problem,))])
            raise

    async def _split(self, request: Request, body: bytes) -> list[msgspec.Raw] | None:
        try:
            elements = self._events.split(body)
        except BrokenArray as broken:
            self._limits.admit(request, 1)
            await self._hand_over(request, [broken.rejection])
            raise _refusal_of_one(broken.rejection) from None
        self._limits.admit(request, 1 if elements is None else len(elements))
        return elements

    async def _keep(self, request: Request, verdicts: Sequence[Verdict]) -> None:
        """The compliant ones on disk, the others with their handlers. When the disk fails, nothing is acknowledged."""
        events = [_plain(verdict.raw) for verdict in verdicts if not isinstance(verdict, Rejection)]
        rejections = [verdict for verdict in verdicts if isinstance(verdict, Rejection)]
        if events:
            try:
                await self._committed(events)
            except Unwritable as reason:
                raise _try_again(reason) from reason
        if rejections:
            await self._hand_over(request, rejections)
        request.events = EventCounts(len(verdicts), len(events), 0, len(rejections))

    def _committed(self, events: Sequence[bytes]) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell(outcome: Exception | None) -> None:
            if future.done():
                return
            if outcome is None:
                future.set_result(None)
            else:
                future.set_exception(outcome)

        self._writer.hand_over(events, tell)
        return future

    async def _hand_over(self, request: Request, rejections: Sequence[Rejection]) -> None:
        caller = request.caller
        failed_at = now()
        kept = self._failed.hand_over(
            [
                FailedEvent(
                    raw=rejection.raw,
                    reason=rejection.sentence,
                    failed_at=failed_at,
                    stage="request",
                    problems=rejection.errors,
                    correlation_id=request.correlation_id,
                    sent_by=None if caller is None or caller.key_id is None else caller.name,
                )
                for rejection in rejections
            ]
        )
        request.events = EventCounts(len(rejections), 0, 0, len(rejections))
        # Handlers that are slow delay no answer for long, unless what waits for them would fill the memory.
        patience = None if self._failed.is_behind else _HANDLER_PATIENCE
        await asyncio.wait([asyncio.wrap_future(kept)], timeout=patience)


def _plain(raw: bytes) -> bytes:
    """An event that can stand in an array."""
    return raw.removeprefix(_BYTE_ORDER_MARK)


def _answer_to_one(request: Request, event: Event) -> Response:
    request.events = _ONE_WRITTEN
    return answer(answers.Buffered("buffered", request.correlation_id, _told(event)))


def _array_answer(said: answers.BatchAnswer | answers.EventsAnswer, failed: int, total: int, first: str) -> Response:
    if failed and failed == total:
        detail = first if failed == 1 else f"None of the {failed:,} events complies; the first: {first}"
        raise HttpProblem(NOT_COMPLIANT, detail, members=msgspec.structs.asdict(said))
    return Response(207 if failed else 200, encode(said))


def _result(index: int, verdict: Verdict) -> answers.EventResult:
    if isinstance(verdict, Rejection):
        sentence = verdict.sentence
        return answers.EventResult(index, 400, "error", sentence, sentence, list(verdict.errors), _told(verdict))
    return answers.EventResult(index, 200, "success", "buffered", warnings=_told(verdict))


def _told(verdict: Verdict) -> list[Problem] | msgspec.UnsetType:
    return list(verdict.warnings) if verdict.warnings else msgspec.UNSET


def _refusal_of_one(rejection: Rejection) -> HttpProblem:
    kind = kind_of(rejection)
    members: dict[str, object] = {"errors": rejection.errors}
    if rejection.warnings:
        members["warnings"] = rejection.warnings
    return HttpProblem(NOT_COMPLIANT if kind is INVALID_EVENTS else kind, rejection.sentence, members=members)


def _try_again(reason: Unwritable) -> HttpProblem:
    return unavailable(f"Nothing of this request is acknowledged: {reason}. Send it again.", retry_after=_RETRY_SECONDS)
