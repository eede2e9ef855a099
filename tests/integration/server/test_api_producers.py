"""Who sends what, asked over HTTP."""

import json

from correlator.store.database import Database
from tests.integration.events import run_event
from tests.integration.server.serving import serving

DBT = "https://github.com/OpenLineage/OpenLineage/tree/1.54.0/integration/dbt"


def test_producers_are_told_by_version_with_what_is_wrong_and_without_secrets(database: Database) -> None:
    odd = run_event(producer=DBT, run_id="not-a-uuid")
    secret = "postgresql://me:hush@db/shop"  # noqa: S105 (made up)
    refused = {**run_event(producer=DBT), "eventType": secret}
    with serving(database) as client:
        answer = client.post("/api/v1/lineage/batch", [odd, refused]).json()
        assert answer["summary"]["failed"] == 1

        told = client.ask("GET", "/api/v1/health/producers")

    body = told.json()
    (one,) = body["items"]
    assert (one["name"], one["version"]) == ("https://github.com/OpenLineage/OpenLineage/integration/dbt", "1.54.0")
    assert (one["events"], one["warned_events"], one["rejected_events"]) == (1, 1, 1)
    assert one["warnings"][0]["rule"] == "format_uuid"
    assert one["rejects"][0]["rule"] == "enum"
    assert "hush" not in json.dumps(body)
    assert body["looked_at"] == {"jobs": 0, "events": 1, "rejected_events": 1}
