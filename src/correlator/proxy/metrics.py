"""What the proxy counts. Names and labels are documented in docs/metrics.md; programs rely on them."""

from collections.abc import Callable, Iterable, Sequence

from correlator.http.metrics import SIZES, Gauge, HttpMetrics, Readings
from correlator.proxy.consumer import Consumer
from correlator.proxy.writer import Committed, Writer

_PREFIX = "correlator_proxy_"


class ProxyMetrics(HttpMetrics):
    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.received = self.counter(f"{_PREFIX}received_total", "Events that came in requests.")
        self.invalid = self.counter(f"{_PREFIX}invalid_total", "Events that were refused because they do not comply.")
        self.handler_failures = self.counter(
            f"{_PREFIX}handler_failures_total", "How often a handler of failed events has not taken any.", ("handler",)
        )
        self._commit_events = self.histogram(f"{_PREFIX}commit_events", "Events that one commit carried.", SIZES)
        self._commit_seconds = self.histogram(f"{_PREFIX}commit_duration_seconds", "How long one commit took.")

    def count_events(self, endpoint: str, received: int, stored: int, duplicates: int, rejected: int) -> None:  # noqa: ARG002
        self.received.add((), received)
        if rejected:
            self.invalid.add((), rejected)

    def count_commit(self, committed: Committed) -> None:
        self._commit_events.observe(committed.events)
        self._commit_seconds.observe(committed.seconds)

    def watch_buffer(self, writer: Writer, age: Callable[[], float]) -> None:
        counts = writer.counts
        self._reads("written_total", "Events that were committed to the buffer.", lambda: counts.written)
        self._reads(
            "written_bytes_total",
            "Bytes of the events that were committed to the buffer.",
            lambda: counts.written_bytes,
        )
        self._reads("buffer_replaced_total", "Damaged files that were set aside.", lambda: counts.replaced)
        self.gauge(
            f"{_PREFIX}buffer_events",
            "Events in the buffer.",
            lambda: sum([partition.events for partition in writer.partitions]),
        )
        self.gauge(
            f"{_PREFIX}buffer_bytes",
            "Bytes of messages in the buffer.",
            lambda: sum([partition.size for partition in writer.partitions]),
        )
        self.gauge(f"{_PREFIX}buffer_partitions", "Partitions of the buffer.", lambda: len(writer.partitions))
        self.gauge(f"{_PREFIX}buffer_age_seconds", "The age of the oldest partition.", age)
        self.gauge(f"{_PREFIX}buffer_file_bytes", "What the buffer takes on disk.", lambda: writer.file_bytes)
        self.gauge(f"{_PREFIX}writable", "Whether events can be kept.", lambda: float(writer.trouble is None))
        self.add(
            Readings(
                f"{_PREFIX}dropped_partitions_total",
                "Partitions that went before every destination had them, by the limit that was reached.",
                ("limit",),
                lambda: [((why,), count) for why, count in counts.dropped_partitions.items()],
                kind="counter",
            )
        )

    def watch_consumers(self, consumers: Sequence[Consumer]) -> None:
        def read(value: Callable[[Consumer], float]) -> Callable[[], Iterable[tuple[tuple[str, ...], float]]]:
            return lambda: [((consumer.name,), value(consumer)) for consumer in consumers]

        counted: tuple[tuple[str, str, Callable[[Consumer], float]], ...] = (
            ("sent_total", "Events that a destination has accepted.", lambda each: each.tally.sent),
            ("failed_total", "Events that a destination refused for good.", lambda each: each.tally.failed),
            (
                "retried_total",
                "Events that had to be sent to a destination once more.",
                lambda each: each.tally.retried,
            ),
            ("dropped_total", "Events that a destination will never get: lost.", lambda each: each.tally.dropped),
        )
        for name, about, value in counted:
            self.add(Readings(_PREFIX + name, about, ("destination",), read(value), kind="counter"))
        seen: tuple[tuple[str, str, Callable[[Consumer], float]], ...] = (
            ("lag_events", "Events that a destination has not had yet.", lambda each: each.lag_events),
            (
                "lag_seconds",
                "The age of the oldest event that a destination has not had yet.",
                lambda each: each.lag_seconds,
            ),
            ("destination_up", "Whether a destination takes events.", lambda each: float(each.state == "ok")),
        )
        for name, about, value in seen:
            self.add(Readings(_PREFIX + name, about, ("destination",), read(value)))

    def _reads(self, name: str, about: str, read: Callable[[], float]) -> None:
        self.add(Gauge(_PREFIX + name, about, read, kind="counter"))
