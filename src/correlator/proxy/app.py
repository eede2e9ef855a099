"""The proxy, put together: what stands behind each path, and what has to run beside the requests."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from correlator import __version__
from correlator.config import ProxySettings
from correlator.http.bodies import BodyReader, Budget
from correlator.http.edge import Edge, Routes
from correlator.http.exchange import Request, Response, answer
from correlator.http.limits import Buckets, ClientAddress
from correlator.http.limits import Limits as RateLimits
from correlator.http.metrics import CONTENT_TYPE, OPEN_CONTENT_TYPE, Family, render, render_open
from correlator.http.problems import unavailable
from correlator.http.request_log import Log
from correlator.proxy import answers
from correlator.proxy.buffer import Buffer, Dropped, Limits
from correlator.proxy.clock import Clock
from correlator.proxy.consumer import Consumer, Habits
from correlator.proxy.dead_letters import DeadLetters
from correlator.proxy.destinations import make, parse_all
from correlator.proxy.failed_events import FailedEvents, make_handler
from correlator.proxy.ingest import Ingest
from correlator.proxy.keys import SenderKeys
from correlator.proxy.metrics import ProxyMetrics
from correlator.proxy.statsd import Statsd
from correlator.proxy.writer import Writer
from correlator.rulebook.judging import Judge
from correlator.rulebook.policy import Policy
from correlator.setting_kinds import show_size

DIRECTORY: Final = "proxy"
_PARTITIONS: Final = 16
_OURS: Final = "correlator_proxy_"

_log = logging.getLogger(__name__)


class App:
    """One proxy on one buffer. `edge` is what uvicorn runs."""

    def __init__(self, settings: ProxySettings, keys: SenderKeys, log: Log, *, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._started_at = time.monotonic()
        specs = parse_all(settings.destination)
        # Made before anything is opened: what is wrong with one is told at once.
        destinations = [(spec.name, make(spec, settings.destination_timeout)) for spec in specs]
        directory = settings.data_dir / DIRECTORY
        self.metrics = ProxyMetrics(__version__)
        self._letters = DeadLetters(
            directory, max_bytes=settings.failed_events_max_bytes, max_seconds=settings.failed_events_retention
        )
        handlers = [(name, make_handler(name, directory, self._letters)) for name in settings.failed_event_handler]
        self._failed = FailedEvents(
            handlers, self._letters, on_failure=lambda name: self.metrics.handler_failures.add((name,))
        )
        buffer = Buffer(directory, limits_of(settings), self._clock)
        self.writer = Writer(
            buffer,
            [spec.name for spec in specs],
            on_dropped=self._tell_dropped,
            on_damaged=self._lose_all,
            on_commit=self.metrics.count_commit,
            reserved_bytes=settings.disk_reserve,
        )
        habits = Habits(
            most_events=settings.destination_batch_events,
            most_bytes=settings.destination_batch_bytes,
            first_pause=settings.retry_first,
            longest_pause=settings.retry_longest,
            on_refusal=settings.on_refusal,
        )
        self.consumers = [
            Consumer(name, destination, self.writer, self._failed, habits, clock=self._clock.wall)
            for name, destination in destinations
        ]
        self.metrics.watch_buffer(self.writer, self._oldest_seconds)
        self.metrics.watch_consumers(self.consumers)
        self._has_metrics_page = settings.metrics
        self._statsd = None
        if settings.statsd is not None:
            self._statsd = Statsd(
                settings.statsd,
                self._own_families,
                prefix=settings.statsd_prefix,
                has_tags=settings.statsd_tags,
                seconds=settings.statsd_interval,
            )
        self._budget = Budget(settings.max_inflight_bytes)
        limits = RateLimits(
            Buckets(settings.rate_limit_per_key, settings.rate_limit_burst),
            Buckets(settings.rate_limit_per_address, settings.rate_limit_burst),
        )
        ingest = Ingest(
            bodies=BodyReader(
                max_bytes=settings.max_request_bytes, receive_seconds=settings.request_timeout, budget=self._budget
            ),
            writer=self.writer,
            failed=self._failed,
            limits=limits,
            judge=judge_of(settings),
            max_batch_events=settings.max_batch_events,
        )
        self.edge = Edge(
            self._routes(ingest),
            keys=keys,
            budget=self._budget,
            limits=limits,
            addresses=ClientAddress(settings.trusted_proxies),
            log=log,
            metrics=self.metrics,
            cors_origins=settings.cors_origins,
            is_for_this_machine=not settings.insecure,
            lifespan=self._lifespan,
        )

    def _routes(self, ingest: Ingest) -> Routes:
        routes = Routes()
        routes.add("POST", "/api/v1/lineage", ingest.one, scope="ingest", whole=ingest.one_whole)
        routes.add("POST", "/api/v1/lineage/batch", ingest.batch, scope="ingest")
        routes.add("POST", "/api/v1/lineage/events", ingest.events, scope="ingest")
        routes.add("GET", "/ping", self._ping, is_quiet=True)
        routes.add("GET", "/ready", self._ready, is_quiet=True)
        routes.add("GET", "/health", self._health, is_quiet=True)
        if self._has_metrics_page:
            routes.add("GET", "/metrics", self._metrics_page, is_quiet=True)
        return routes

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        self._failed.start()
        self.writer.start(asyncio.get_running_loop().call_soon_threadsafe)
        for consumer in self.consumers:
            consumer.start()
        if self._statsd is not None:
            self._statsd.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        for consumer in self.consumers:
            consumer.stop()
        for consumer in self.consumers:
            consumer.join()
        self.writer.stop()
        self._failed.stop()
        if self._statsd is not None:
            self._statsd.stop()

    # --- what is told by the writer's thread

    def _tell_dropped(self, dropped: Sequence[Dropped]) -> None:
        for each in dropped:
            partition = each.partition
            limit = "older than retention_hours" if each.why == "age" else "more than retention_bytes"
            lost = ", ".join(f"{consumer.name} {consumer.missed(partition):,}" for consumer in self.consumers)
            _log.error(
                "EVENTS ARE DROPPED: the buffer holds %s allows. Its oldest partition %s went (%d events, %s). Events "
                "lost for each destination: %s.",
                limit,
                partition.name,
                partition.events,
                show_size(partition.size),
                lost,
            )

    def _lose_all(self) -> None:
        lost = ", ".join(f"{consumer.name} {consumer.lose_all():,}" for consumer in self.consumers)
        _log.error("Events that are only in the damaged buffer, for each destination: %s.", lost)

    # --- what is asked

    def _oldest_seconds(self) -> float:
        partitions = [partition for partition in self.writer.partitions if partition.events]
        return max(0.0, self._clock.wall() - partitions[0].created_at) if partitions else 0.0

    def _own_families(self) -> list[Family]:
        return [family for family in self.metrics.families() if family.name.startswith(_OURS)]

    async def _ping(self, _: Request) -> Response:
        return answer(answers.Ping())

    async def _ready(self, _: Request) -> Response:
        if self.writer.trouble is not None:
            raise unavailable(f"Events cannot be kept: {self.writer.trouble}.")
        return answer(answers.Ready())

    async def _health(self, _: Request) -> Response:
        partitions = self.writer.partitions
        trouble = self.writer.trouble
        is_well = trouble is None and all(consumer.state == "ok" for consumer in self.consumers)
        return answer(
            answers.Health(
                status="ok" if is_well else "degraded",
                version=__version__,
                uptime_seconds=time.monotonic() - self._started_at,
                trouble=trouble,
                buffer=answers.BufferHealth(
                    events=sum([partition.events for partition in partitions]),
                    bytes=sum([partition.size for partition in partitions]),
                    file_bytes=self.writer.file_bytes,
                    partitions=len(partitions),
                    oldest_seconds=self._oldest_seconds(),
                ),
                destinations=[
                    answers.DestinationHealth(
                        name=consumer.name,
                        state=consumer.state,
                        reason=consumer.reason,
                        lag_events=consumer.lag_events,
                        lag_seconds=consumer.lag_seconds,
                        sent=consumer.tally.sent,
                        failed=consumer.tally.failed,
                        retried=consumer.tally.retried,
                        dropped=consumer.tally.dropped,
                    )
                    for consumer in self.consumers
                ],
            )
        )

    async def _metrics_page(self, request: Request) -> Response:
        families = self.metrics.families()
        if b"application/openmetrics-text" in request.headers.get(b"accept", b""):
            return Response(200, render_open(families), ((b"content-type", OPEN_CONTENT_TYPE.encode()),))
        return Response(200, render(families), ((b"content-type", CONTENT_TYPE.encode()),))


def judge_of(settings: ProxySettings) -> Judge:
    return Judge(
        Policy(name=settings.policy, formats=settings.formats),
        max_event_bytes=settings.max_event_bytes,
        max_nesting=settings.max_nesting,
    )


def limits_of(settings: ProxySettings) -> Limits:
    return Limits(
        retention_bytes=settings.retention_bytes,
        retention_seconds=settings.retention_hours * 3600,
        partition_bytes=settings.partition_bytes or max(1, settings.retention_bytes // _PARTITIONS),
        partition_seconds=settings.partition_hours * 3600,
    )
