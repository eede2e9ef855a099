"""A message that says of itself that it is a test, and what the receiver answers."""

from uuid import uuid4

from msgspec.structs import replace

from correlator.alerts.delivery import Outcome, send
from correlator.alerts.payloads import addressed, of_test, rendered
from correlator.config import AlertSettings
from correlator.store.alert_routes import Destination


def try_route(destination: Destination, settings: AlertSettings) -> Outcome:
    """Past the outbox, at once and only once. PagerDuty is told right after that it is over."""
    alert = of_test(destination.name, key=uuid4(), public_url=settings.public_url)
    alerts = [alert, replace(alert, event="resolved")] if destination.kind == "pagerduty" else [alert]
    outcome = Outcome(is_taken=False, words="")
    for each in alerts:
        outcome = send(
            destination,
            addressed(rendered(each, destination.kind), destination),
            key=str(each.key),
            timeout=settings.alert_timeout,
            allow_private=settings.alerts_allow_private,
        )
        if not outcome.is_taken:
            break
    return outcome
