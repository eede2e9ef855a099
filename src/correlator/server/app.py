"""The server, put together: what stands behind each path, and what has to run beside the requests."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from correlator import __version__
from correlator.config import ServerSettings
from correlator.http.bodies import BodyReader, Budget
from correlator.http.edge import Edge, Routes
from correlator.http.exchange import Handler, Request, Response, answer
from correlator.http.limits import Buckets, ClientAddress, Limits
from correlator.http.metrics import CONTENT_TYPE, START_TIME, Family, render
from correlator.http.problems import unavailable
from correlator.http.request_log import Log
from correlator.rulebook.judging import Judge
from correlator.rulebook.redaction import Redaction
from correlator.server import answers, openapi_page
from correlator.server.alert_figures import alert_figures
from correlator.server.api.door import Door
from correlator.server.api.operations import Context
from correlator.server.api.questions import Questions
from correlator.server.auth import KeyCache
from correlator.server.group_commit import Committed, GroupCommit
from correlator.server.group_commit import Limits as CommitLimits
from correlator.server.housekeeping import Housekeeping, Kept
from correlator.server.incident_figures import incident_figures
from correlator.server.ingest import Ingest
from correlator.server.metrics import Metrics, restarts_of_embedded
from correlator.server.openapi import document
from correlator.server.pipeline_figures import pipeline_figures, pipeline_health
from correlator.server.sessions import Sessions
from correlator.server.shared_figures import PUBLISH_SECONDS, SharedFigures
from correlator.server.user_interface import UserInterface
from correlator.store.database import Database

_PATIENCE_SECONDS: Final = 3.0
"""For the database to answer before requests are taken. After that they are told why they cannot be stored."""
_POLL_SECONDS: Final = 0.005

_WORKERS: Final = "correlator_workers"
_WAITING_EVENTS: Final = "correlator_waiting_events"
_IN_FLIGHT_BYTES: Final = "correlator_in_flight_bytes"


class App:
    """One server on one database, or one of its workers, which then has `figures`. `edge` is what uvicorn runs."""

    def __init__(
        self,
        settings: ServerSettings,
        database: Database,
        keys: KeyCache,
        log: Log,
        figures: SharedFigures | None = None,
    ) -> None:
        self.metrics = Metrics(__version__)
        self.metrics.add(restarts_of_embedded(lambda: database.restarts))
        self._figures = figures
        self._budget = Budget(settings.max_inflight_bytes)
        self._commits = GroupCommit(
            database,
            CommitLimits(
                max_waiting_events=settings.max_waiting_events,
                patience=settings.commit_patience,
                longest_commit=settings.commit_timeout,
            ),
            remembered=timedelta(seconds=settings.idempotency_window),
            on_commit=self._count_commit,
        )
        self._housekeeping = Housekeeping(
            database,
            Kept(
                idempotency=timedelta(seconds=settings.idempotency_window),
                log=timedelta(seconds=settings.log_retention),
                rejects=timedelta(seconds=settings.rejects_retention),
                reject_bytes=settings.rejects_max_bytes,
                alerts=timedelta(seconds=settings.alert_retention),
            ),
        )
        limits = Limits(
            Buckets(settings.rate_limit_per_key, settings.rate_limit_burst),
            Buckets(settings.rate_limit_per_address, settings.rate_limit_burst),
        )
        bodies = BodyReader(
            max_bytes=settings.max_request_bytes, receive_seconds=settings.request_timeout, budget=self._budget
        )
        judge = Judge.within(settings)
        self._questions = Questions(
            database,
            connections=settings.query_connections,
            timeout=settings.query_timeout,
            patience=settings.query_patience,
        )
        door = Door(Context(settings, Redaction(settings.redact), judge), self._questions, bodies)
        ingest = Ingest(
            bodies=bodies,
            commits=self._commits,
            limits=limits,
            metrics=self.metrics,
            judge=judge,
            max_batch_events=settings.max_batch_events,
        )
        self._watch()
        pages = UserInterface()
        routes = self._routes(settings, ingest, door)
        Sessions(settings, keys, bodies).add_to(routes)
        pages.add_to(routes)
        self.edge = Edge(
            routes,
            keys=keys,
            budget=self._budget,
            limits=limits,
            addresses=ClientAddress(settings.trusted_proxies),
            log=log,
            metrics=self.metrics,
            cors_origins=settings.cors_origins,
            is_for_this_machine=not settings.insecure,
            rest=door.rest,
            page=pages.page,
            lifespan=self._lifespan,
        )

    def _routes(self, settings: ServerSettings, ingest: Ingest, door: Door) -> Routes:
        routes = Routes()
        door.add_shared(routes)
        routes.add("POST", "/api/v1/lineage", ingest.one, scope="ingest", whole=ingest.one_whole)
        routes.add("POST", "/api/v1/lineage/batch", ingest.batch, scope="ingest")
        routes.add("POST", "/api/v1/lineage/events", ingest.events, scope="ingest")
        routes.add("GET", "/ping", self._ping, is_quiet=True)
        routes.add("GET", "/ready", self._ready, is_quiet=True)
        routes.add("GET", "/health", self._health, is_quiet=True)
        routes.add("GET", "/metrics", self._metrics_page, is_quiet=True)
        described = document(settings, __version__)
        routes.add("GET", "/openapi.json", _always(answer(described)))
        routes.add("GET", "/docs", _always(Response(200, openapi_page.page(described), openapi_page.HEADERS)))
        return routes

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        self._commits.start()
        self._housekeeping.start()
        publishing = asyncio.create_task(self._publish(), name="figures")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._commits.trouble is not None and time.monotonic() < deadline:  # noqa: ASYNC110 (once, at the start)
            await asyncio.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            publishing.cancel()
            self._questions.close()
            await self._commits.stop()
            self._housekeeping.stop()
            if self._figures is not None:
                self._figures.publish(self.metrics.families())

    async def _publish(self) -> None:
        while self._figures is not None:
            self._figures.publish(self.metrics.families())
            await asyncio.sleep(PUBLISH_SECONDS)

    def _families(self) -> list[Family]:
        """Of the whole server."""
        families = self.metrics.families()
        return families if self._figures is None else self._figures.of_all(families)

    async def _ping(self, _: Request) -> Response:
        return answer(answers.Ping())

    async def _ready(self, _: Request) -> Response:
        trouble = self._commits.trouble
        if trouble is not None:
            raise unavailable(f"Events cannot be stored: {trouble}.")
        return answer(answers.Ready())

    async def _health(self, _: Request) -> Response:
        is_up = self._commits.trouble is None
        sight = self._housekeeping.sight
        figures = {sample: value for family in self._families() for sample, value in family.samples.items()}
        return answer(
            answers.Health(
                status="ok" if is_up else "degraded",
                version=__version__,
                database="up" if is_up else "down",
                uptime_seconds=max(0.0, time.time() - figures[START_TIME]),
                workers=int(figures[_WORKERS]),
                waiting_events=int(figures[_WAITING_EVENTS]),
                in_flight_bytes=int(figures[_IN_FLIGHT_BYTES]),
                log_head=None if sight is None else sight.log_head,
                pipeline=None if sight is None else pipeline_health(sight),
            )
        )

    async def _metrics_page(self, _: Request) -> Response:
        return Response(200, render(self._families()), ((b"content-type", CONTENT_TYPE.encode()),))

    def _count_commit(self, committed: Committed) -> None:
        self.metrics.commit_events.observe(committed.stored + committed.duplicates + committed.rejected)
        self.metrics.commit_seconds.observe(committed.seconds)

    def _watch(self) -> None:
        gauge = self.metrics.gauge
        gauge(_WORKERS, "Worker processes that run.", lambda: 1)
        gauge(_WAITING_EVENTS, "Events that wait for their commit.", lambda: self._commits.waiting_events)
        gauge(_IN_FLIGHT_BYTES, "Bytes of the bodies of requests.", lambda: self._budget.used)
        gauge(
            "correlator_database_up",
            "Whether events can be stored.",
            lambda: float(self._commits.trouble is None),
            together="least",
        )
        # Every worker sees the same database: together they have what the last one saw.
        sight = self._housekeeping
        gauge(
            "correlator_log_head_position",
            "The position of the newest event in the log.",
            lambda: None if sight.sight is None else sight.sight.log_head,
            together="most",
        )
        gauge(
            "correlator_rejected_events_kept",
            "Rejected events that can still be looked at.",
            lambda: None if sight.sight is None else sight.sight.rejected_events,
            together="most",
        )
        gauge(
            "correlator_rejected_bytes_kept",
            "Bytes of the rejected events that are kept.",
            lambda: None if sight.sight is None else sight.sight.rejected_bytes,
            together="most",
        )
        gauge(
            "correlator_rejected_events_capped",
            "Rejected events that were removed before their time, for want of room (rejects_max_bytes).",
            lambda: None if sight.sight is None else sight.sight.capped_events,
            together="most",
        )
        for metric in (
            *pipeline_figures(lambda: sight.sight),
            *alert_figures(lambda: None if sight.sight is None else sight.sight.alerts),
            *incident_figures(lambda: () if sight.sight is None else sight.sight.incidents),
        ):
            self.metrics.add(metric)


def _always(response: Response) -> Handler:
    async def handler(_: Request) -> Response:
        return response

    return handler
