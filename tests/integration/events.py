"""Small valid events."""

from typing import Any


def run_event(
    event_type: str = "START",
    run_id: str = "3f5e83fa-3480-44ff-99c5-ff943904e5e8",
    event_time: str = "2026-11-01T10:00:00Z",
    job: str = "load",
    **extra: Any,
) -> dict[str, Any]:
    return {
        "eventType": event_type,
        "eventTime": event_time,
        "producer": "https://example.com/producer",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": run_id},
        "job": {"namespace": "tests", "name": job},
        "inputs": [],
        "outputs": [{"namespace": "postgres://db:5432", "name": "shop.public.orders"}],
        **extra,
    }
