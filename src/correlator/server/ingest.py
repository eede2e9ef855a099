"""The three doors for events: judge, keep, answer. Everything that is derived from an event is the pipeline's work."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from correlator.http.bodies import BodyReader, BrokenBody
from correlator.http.event_bodies import BrokenArray, EventBodies, Verdict, kind_of, no_single_event
from correlator.http.exchange import EventCounts, Request, Response, Told, answer, encode
from correlator.http.limits import Limits
from correlator.http.problems import (
    BROKEN_RUN_CYCLE,
    INVALID_EVENTS,
    HttpProblem,
    unavailable,
)
from correlator.rulebook.events import Event, Rejection, RunEvent
from correlator.rulebook.judging import Judge
from correlator.rulebook.problems import ROOT, Problem
from correlator.rulebook.run_cycle import CycleError, is_single_run_batch, validate_event_sequence
from correlator.server import answers
from correlator.server.group_commit import GroupCommit, Unavailable
from correlator.server.metrics import Metrics
from correlator.store.event_log import entry_of
from correlator.store.rejects import Reject

_ONE_STORED: Final = EventCounts(1, 1, 0, 0)
_ONE_DUPLICATE: Final = EventCounts(1, 0, 1, 0)


class Ingest:
    def __init__(
        self,
        *,
        bodies: BodyReader,
        commits: GroupCommit,
        limits: Limits,
        metrics: Metrics,
        judge: Judge,
        max_batch_events: int = 10_000,
    ) -> None:
        self._bodies = bodies
        self._commits = commits
        self._limits = limits
        self._metrics = metrics
        self._judge = judge
        self._events = EventBodies(judge, max_batch_events)

    async def one(self, request: Request) -> Response:
        """`POST /api/v1/lineage`: one event, as every official client sends it."""
        body = await self._read(request)
        self._limits.admit(request, 1)
        verdict = self._judge(body)
        if isinstance(verdict, Rejection):
            verdict = no_single_event(body, verdict)
            await self._reject(request, verdict)
            raise _refusal_of_one(verdict)
        try:
            (stored,) = await self._commits.submit((entry_of(verdict),))
        except Unavailable as reason:
            raise _try_again(reason) from reason
        return _answer_to_one(request, verdict, stored=stored)

    def one_whole(self, request: Request, body: bytes, told: Told) -> bool:
        """The same for a body that is there. Nearly every event is valid; what is not goes the way above."""
        self._bodies.take(request, body)
        verdict = self._judge(body)
        if isinstance(verdict, Rejection):
            return False
        self._limits.admit(request, 1)

        def tell(outcome: list[bool] | Exception) -> None:
            if isinstance(outcome, Exception):
                told(_try_again(outcome) if isinstance(outcome, Unavailable) else outcome)
            else:
                told(_answer_to_one(request, verdict, stored=outcome[0]))

        try:
            self._commits.hand_over((entry_of(verdict),), (), tell)
        except Unavailable:
            return False
        return True

    async def batch(self, request: Request) -> Response:
        """`POST /api/v1/lineage/batch`: the batch contract of OpenLineage."""
        body = await self._read(request)
        raws = await self._split(request, body)
        if raws is None:
            rejection = self._events.no_array(body)
            await self._reject(request, rejection)
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
        return answer(said)

    async def events(self, request: Request) -> Response:
        """`POST /api/v1/lineage/events`: one event or an array, a result for each, and the run cycle judged."""
        body = await self._read(request)
        elements = await self._split(request, body)
        raws = [body] if elements is None else elements
        verdicts = await self._events.judge_all(raws)
        if len(raws) == 1 and isinstance(verdicts[0], Rejection) and kind_of(verdicts[0]) is not INVALID_EVENTS:
            await self._reject(request, verdicts[0])
            raise _refusal_of_one(verdicts[0])
        await self._judge_cycle(request, verdicts)
        stored = await self._keep(request, verdicts)
        return _events_answer(request, verdicts, stored)

    async def _read(self, request: Request) -> bytes:
        """The body, unpacked. One that cannot be unpacked is kept as it came."""
        try:
            return await self._bodies.read(request)
        except BrokenBody as broken:
            problem = Problem(ROOT, "invalid_json", broken.detail)
            await self._reject(request, Rejection(raw=broken.raw, errors=(problem,)))
            raise

    # --- judging

    async def _split(self, request: Request, body: bytes) -> list[msgspec.Raw] | None:
        try:
            elements = self._events.split(body)
        except BrokenArray as broken:
            self._limits.admit(request, 1)
            await self._reject(request, broken.rejection)
            raise _refusal_of_one(broken.rejection) from None
        self._limits.admit(request, 1 if elements is None else len(elements))
        return elements

    async def _judge_cycle(self, request: Request, verdicts: Sequence[Verdict]) -> None:
        """Layer 2. A run that cannot have gone this way refuses the whole request."""
        events = [verdict for verdict in verdicts if not isinstance(verdict, Rejection)]
        if len(events) < 2 or not is_single_run_batch(events):  # noqa: PLR2004 (one event has no sequence)
            return
        try:
            validate_event_sequence([event for event in events if isinstance(event, RunEvent)])
        except CycleError as error:
            problem = Problem(ROOT, error.rule, str(error))
            rejects = [
                _reject(request, verdict, 1, verdict.errors)
                if isinstance(verdict, Rejection)
                else _reject(request, verdict, 2, (problem,))
                for verdict in verdicts
            ]
            await self._commit(request, (), rejects)
            raise HttpProblem(BROKEN_RUN_CYCLE, str(error), members={"rule": error.rule}) from error

    # --- keeping

    async def _keep(self, request: Request, verdicts: Sequence[Verdict]) -> list[bool]:
        events = [verdict for verdict in verdicts if not isinstance(verdict, Rejection)]
        rejects = [
            _reject(request, verdict, 1, verdict.errors) for verdict in verdicts if isinstance(verdict, Rejection)
        ]
        return await self._commit(request, events, rejects)

    async def _reject(self, request: Request, rejection: Rejection) -> None:
        await self._commit(request, (), [_reject(request, rejection, 1, rejection.errors)])

    async def _commit(self, request: Request, events: Sequence[Event], rejects: Sequence[Reject]) -> list[bool]:
        if not events and not rejects:
            request.events = EventCounts(0, 0, 0, 0)
            return []
        entries = await self._events.turns.map(entry_of, events)
        try:
            stored = await self._commits.submit(entries, rejects)
        except Unavailable as reason:
            raise _try_again(reason) from reason
        for reject in rejects:
            self._metrics.rejected.add((reject.problems[0].rule,))
        count = sum(stored)
        request.events = EventCounts(len(events) + len(rejects), count, len(events) - count, len(rejects))
        return stored


def _answer_to_one(request: Request, event: Event, *, stored: bool) -> Response:
    request.events = _ONE_STORED if stored else _ONE_DUPLICATE
    return answer(answers.Stored("stored" if stored else "duplicate", request.correlation_id, _told(event)))


def _reject(request: Request, verdict: Verdict, layer: int, problems: tuple[Problem, ...]) -> Reject:
    caller = request.caller
    return Reject(
        raw=verdict.raw,
        layer=layer,
        problems=problems,
        kind=verdict.kind,
        producer=verdict.producer,
        sent_by=None if caller is None or caller.key_id is None else caller.name,
        correlation_id=request.correlation_id,
    )


def _try_again(reason: Unavailable) -> HttpProblem:
    return unavailable(
        f"{reason}. Nothing of this request is acknowledged: send it again, no event is stored twice.",
        retry_after=reason.retry_after,
    )


def _refusal_of_one(rejection: Rejection) -> HttpProblem:
    members: dict[str, object] = {"errors": rejection.errors}
    if rejection.warnings:
        members["warnings"] = rejection.warnings
    return HttpProblem(kind_of(rejection), rejection.sentence, members=members)


def _told(verdict: Verdict) -> list[Problem] | msgspec.UnsetType:
    return list(verdict.warnings) if verdict.warnings else msgspec.UNSET


def _events_answer(request: Request, verdicts: Sequence[Verdict], stored: Sequence[bool]) -> Response:
    outcomes = iter(stored)
    results = [
        _result(index, verdict, stored=not isinstance(verdict, Rejection) and next(outcomes))
        for index, verdict in enumerate(verdicts)
    ]
    now = sum(stored)
    failed = len(verdicts) - len(stored)
    said = answers.EventsAnswer(
        correlation_id=request.correlation_id,
        timestamp=datetime.now(UTC),
        stored=now,
        duplicates=len(stored) - now,
        failed=failed,
        results=results,
        summary=answers.EventsSummary(len(verdicts), len(stored), failed),
    )
    if failed and failed == len(verdicts):
        detail = results[0].message if failed == 1 else f"All {failed:,} events were refused: see results."
        raise HttpProblem(INVALID_EVENTS, detail, members=msgspec.structs.asdict(said))
    return Response(207 if failed else 200, encode(said))


def _result(index: int, verdict: Verdict, *, stored: bool) -> answers.EventResult:
    if isinstance(verdict, Rejection):
        sentence = verdict.sentence
        return answers.EventResult(index, 422, "error", sentence, sentence, list(verdict.errors), _told(verdict))
    return answers.EventResult(index, 200, "success", "stored" if stored else "duplicate", warnings=_told(verdict))
