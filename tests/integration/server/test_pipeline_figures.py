"""What the server tells of a pipeline that works on the same database."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from correlator.store.database import Database
from correlator.store.ledger import forget_backlogs_but_of, lags, see_backlog
from correlator.store.merge import FACTS, Batch, advance_in_log, merge
from correlator.store.retention import ARCHIVE
from correlator.store.staging import begin, prepare
from tests.integration.events import run_event
from tests.integration.server.running import wait_until
from tests.integration.server.serving import Client, serving


def figures(server: Client) -> dict[str, float]:
    lines = server.ask("GET", "/metrics").body.decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if line.startswith("correlator_pipeline_"))
    return {name: float(value) for name, _, value in pairs}


def health(server: Client) -> dict[str, Any]:
    told: dict[str, Any] = server.ask("GET", "/health").json()
    return told


def test_the_server_tells_what_the_pipeline_has_done_and_how_far_it_is_behind(database: Database) -> None:
    with serving(database) as server, database.connect("test", autocommit=True) as connection:
        events = [run_event(run_id=str(uuid4())) for _ in range(10)]
        assert server.post("/api/v1/lineage/batch", events).status == 200
        wait_until(lambda: (health(server)["pipeline"] or {}).get("lag_events") == 10, "ten events wait")
        assert health(server)["pipeline"]["last_batch_at"] is None
        assert figures(server)['correlator_pipeline_lag_events{source="log",reader="facts"}'] == 10

        prepare(connection, "log")
        batch = Batch(
            query_id="query",
            batch_id=0,
            source="log",
            read=7,
            applied=4,
            duplicates=2,
            rejected=1,
            first_position=1,
            last_position=7,
            reader=FACTS,
            seconds=1.5,
        )
        for _ in range(2):  # repeated, it counts once
            merge(connection, begin(connection, "log"), batch)
        advance_in_log(connection, ARCHIVE, 2)
        wait_until(lambda: health(server)["pipeline"]["lag_events"] == 3, "three events wait")

        told = figures(server)
        assert told['correlator_pipeline_events_total{source="log",outcome="read"}'] == 7
        assert told['correlator_pipeline_events_total{source="log",outcome="applied"}'] == 4
        assert told['correlator_pipeline_events_total{source="log",outcome="duplicate"}'] == 2
        assert told['correlator_pipeline_events_total{source="log",outcome="rejected"}'] == 1
        assert told['correlator_pipeline_batches_total{source="log"}'] == 1
        assert told['correlator_pipeline_last_batch_seconds{source="log"}'] >= 1.5
        assert told['correlator_pipeline_lag_events{source="log",reader="facts"}'] == 3
        assert told['correlator_pipeline_lag_events{source="log",reader="archive"}'] == 8
        facts = told['correlator_pipeline_lag_seconds{source="log",reader="facts"}']
        assert facts >= 0
        at = datetime.fromisoformat(health(server)["pipeline"]["last_batch_at"]).timestamp()
        assert abs(told['correlator_pipeline_last_batch_timestamp_seconds{source="log"}'] - at) < 1

        rest = replace(batch, batch_id=1, read=3, applied=0, first_position=8, last_position=10)
        merge(connection, begin(connection, "log"), rest)
        wait_until(lambda: health(server)["pipeline"]["lag_events"] == 0, "nothing waits")
        assert health(server)["pipeline"]["lag_seconds"] == 0


def test_what_waits_elsewhere_is_told_as_the_pipeline_saw_it_and_a_source_that_nobody_looks_at_is_late(
    database: Database,
) -> None:
    now = datetime.now(UTC)
    with serving(database) as server, database.connect("test", autocommit=True) as connection:
        see_backlog(connection, "kafka", FACTS, (7, now - timedelta(minutes=5)), now)
        see_backlog(connection, "kafka", ARCHIVE, (0, None), now - timedelta(minutes=20))
        wait_until(lambda: (health(server)["pipeline"] or {}).get("lag_events") == 7, "seven messages wait")
        assert health(server)["pipeline"]["lag_seconds"] >= 300
        told = figures(server)
        assert told['correlator_pipeline_lag_events{source="kafka",reader="facts"}'] == 7
        assert told['correlator_pipeline_lag_events{source="kafka",reader="archive"}'] == 0
        assert told['correlator_pipeline_lag_seconds{source="kafka",reader="archive"}'] >= 1200
        readers = server.ask("GET", "/api/v1/health/lag").json()["readers"]
        assert [(each["source"], each["reader"]) for each in readers] == [
            ("kafka", "archive"),
            ("kafka", "facts"),
            ("log", "facts"),
        ]

        see_backlog(connection, "kafka", FACTS, (0, None), datetime.now(UTC))
        wait_until(lambda: health(server)["pipeline"]["lag_events"] == 0, "nothing waits")
        assert figures(server)['correlator_pipeline_lag_seconds{source="kafka",reader="facts"}'] == 0

        forget_backlogs_but_of(connection, ["log", "files"])
        assert [lag.source for lag in lags(connection)] == ["log"]
