"""What the server tells of alerts, as the database has it: whichever process sends them."""

from collections.abc import Callable
from typing import Final

from correlator.alerts.outbox import Figures
from correlator.http.metrics import Gauge, Metric, Readings

_OUTCOME: Final = ("outcome",)


def alert_figures(look: Callable[[], Figures | None]) -> tuple[Metric, ...]:
    """Every worker sees the same database: together they have what the last one saw."""

    def totals() -> list[tuple[tuple[str, ...], float]]:
        seen = look()
        return [] if seen is None else [(("sent",), seen.sent), (("failed",), seen.failed)]

    def pending() -> float | None:
        seen = look()
        return None if seen is None else seen.pending

    def oldest() -> float | None:
        seen = look()
        return None if seen is None else seen.oldest_seconds

    return (
        Readings(
            "correlator_alerts_total",
            "Alerts that a receiver took, and those that were given up.",
            _OUTCOME,
            totals,
            kind="counter",
        ),
        Gauge("correlator_alerts_pending", "Alerts on their way.", pending, together="most"),
        Gauge(
            "correlator_alerts_oldest_pending_seconds",
            "How long the oldest alert on its way has waited.",
            oldest,
            together="most",
        ),
    )
