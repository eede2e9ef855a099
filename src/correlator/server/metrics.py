"""What the server counts beside its requests. Names and labels stand in docs/metrics.md: programs rely on it."""

from collections.abc import Callable

from correlator.http.metrics import SIZES, Counter, Gauge, HttpMetrics


class Metrics(HttpMetrics):
    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.events = self.counter(
            "correlator_events_total",
            "Events by endpoint and outcome: received = stored + duplicate + rejected.",
            ("endpoint", "outcome"),
        )
        self.rejected = self.counter(
            "correlator_events_rejected_total", "Rejected events by the rule of their first error.", ("rule",)
        )
        self.commit_events = self.histogram(
            "correlator_group_commit_events", "Events that one transaction carried.", SIZES
        )
        self.commit_seconds = self.histogram(
            "correlator_group_commit_duration_seconds",
            "How long one transaction took, from its first row to its commit.",
        )

    def count_events(self, endpoint: str, received: int, stored: int, duplicates: int, rejected: int) -> None:
        add = self.events.add
        add((endpoint, "received"), received)
        if stored:
            add((endpoint, "stored"), stored)
        if duplicates:
            add((endpoint, "duplicate"), duplicates)
        if rejected:
            add((endpoint, "rejected"), rejected)


def restarts_of_embedded(read: Callable[[], int]) -> Gauge:
    about = "How often the embedded PostgreSQL died and was started again."
    return Gauge("correlator_embedded_restarts_total", about, read, kind="counter")


def restarts_of_workers() -> Counter:
    return Counter("correlator_worker_restarts_total", "How often a worker died and was started again.")
