"""Which integration sends what, and what of it is wrong."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg

from correlator.correlation import producers as module
from correlator.correlation.ignored import ignore
from correlator.correlation.producers import Producer, producers
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Event, Rejection
from correlator.rulebook.fold import fold
from correlator.rulebook.problems import Problem
from correlator.store.event_log import EventLog, Group, entry_of
from correlator.store.rejects import Reject, keep_rejects
from tests.integration.events import run_event as sent
from tests.integration.store.merging import apply
from tests.unit.rulebook.histories import DB, assertions, dataset, facet, run_event

DBT = "https://github.com/OpenLineage/OpenLineage/tree/1.54.0/integration/dbt"
OLDER = "https://github.com/OpenLineage/OpenLineage/tree/1.40.0/integration/dbt"
CHECKS = "https://github.com/correlator-io/correlator/0.1.0"


def ran(job: str, *states: str, producer: str = DBT, minute: float = 0, **parts: Any) -> list[Event]:
    run = str(uuid4())
    return [
        run_event(state, minute + number, job=job, run=run, producer=producer, **parts)
        for number, state in enumerate(states)
    ]


def told(connection: psycopg.Connection, producer: str | None) -> Producer:
    (found,) = [one for one in producers(connection).items if one.producer == producer]
    return found


def log(connection: psycopg.Connection, *events: dict[str, Any]) -> None:
    verdicts = [judge(json.dumps(event).encode()) for event in events]
    entries = [entry_of(verdict) for verdict in verdicts if not isinstance(verdict, Rejection)]
    assert len(entries) == len(events)
    EventLog(connection).append(Group(uuid4(), "http", entries))


def test_each_version_of_a_producer_is_told_by_itself(connection: psycopg.Connection) -> None:
    events = [
        *ran("a", "START", "COMPLETE"),
        *ran("b", "START", "FAIL"),
        *ran("c", "START", "COMPLETE", producer=OLDER, minute=-60),
    ]
    apply(connection, fold(events))

    new, old = producers(connection).items

    assert (new.name, new.version, new.jobs, new.failing_jobs) == (old.name, "1.54.0", 2, 1)
    assert (old.version, old.jobs, old.failing_jobs) == ("1.40.0", 1, 0)
    assert new.jobs_without_start == new.jobs_without_end == 0


def test_missing_starts_and_ends_are_counted_by_job(connection: psycopg.Connection) -> None:
    # The histories' times are months ago: whoever has not ended by now never will.
    stream = facet(processingType="STREAMING", integration="FLINK")
    apply(
        connection,
        fold(
            [
                *ran("never started", "COMPLETE"),
                *ran("never ended", "START"),
                *ran("did not end before the next began", "START"),
                *ran("did not end before the next began", "START", "COMPLETE", minute=10),
                *ran("as it should be", "START", "COMPLETE"),
                *ran("a stream", "START", "RUNNING", job_facets={"jobType": stream}),
            ]
        ),
    )

    one = told(connection, DBT)

    assert (one.jobs, one.jobs_without_start, one.jobs_without_end) == (5, 1, 2)


def test_a_run_that_goes_on_has_not_lost_its_end(connection: psycopg.Connection) -> None:
    now = datetime.now(UTC)
    event = judge(json.dumps(sent(event_time=(now - timedelta(hours=1)).isoformat())).encode())
    assert not isinstance(event, Rejection)
    apply(connection, fold([event]))

    (one,) = producers(connection).items

    assert (one.jobs, one.jobs_without_end) == (1, 0)


def test_warnings_and_rejects_are_told_by_rule_with_an_example(connection: psycopg.Connection) -> None:
    log(
        connection,
        sent(producer=DBT, run_id="not a uuid"),
        sent(producer=DBT, run_id="no uuid either"),
        sent(producer=DBT, run_id=str(uuid4())),
        sent(producer=CHECKS, run_id=str(uuid4())),
    )
    nameless = Problem("job.name", "required", "job.name is required")
    for producer in (DBT, None):
        keep_rejects(connection, "http", [Reject(raw=b"{}", layer=1, problems=(nameless,), producer=producer)])

    report = producers(connection)
    one = told(connection, DBT)

    assert (report.looked_at.events, report.looked_at.rejected_events) == (4, 2)
    assert (one.events, one.warned_events, one.rejected_events) == (3, 2, 1)
    (warning,) = one.warnings
    assert (warning.rule, warning.events) == ("format_uuid", 2)
    assert "no uuid either" in warning.example
    (reject,) = one.rejects
    assert (reject.rule, reject.events, reject.example) == ("required", 1, "job.name is required")
    assert told(connection, CHECKS).warnings == []
    assert told(connection, None).rejected_events == 1


def test_a_name_that_nobody_else_uses_is_told_to_who_tests_it(connection: psycopg.Connection) -> None:
    tested = dataset("orders", "warehouse", inputFacets=assertions({"assertion": "unique", "success": False}))
    apply(
        connection,
        fold(
            [
                *ran("write", "START", "COMPLETE", outputs=[dataset("shop.orders", DB)]),
                *ran("check", "START", "COMPLETE", producer=CHECKS, inputs=[tested]),
            ]
        ),
    )

    assert told(connection, DBT).unmatched_names == []
    (name,) = told(connection, CHECKS).unmatched_names
    assert (name.urn, name.means) == ("warehouse/orders", f"{DB}/shop.orders")


def test_what_is_ignored_is_not_counted(connection: psycopg.Connection) -> None:
    apply(connection, fold(ran("a", "START", "COMPLETE")))
    ignore(connection, "job", "*/a", actor="me")

    assert producers(connection).items == []


def test_the_newest_events_are_looked_at_and_no_more_bytes_than_a_limit(
    connection: psycopg.Connection, monkeypatch: Any
) -> None:
    log(connection, *(sent(producer=DBT, run_id=str(uuid4())) for _ in range(3)))
    size = len(json.dumps(sent(producer=DBT, run_id=str(uuid4()))))
    limited = module._EVENTS.replace(str(module.MOST_EVENT_BYTES), str(int(size * 2.5)))  # noqa: SLF001
    monkeypatch.setattr(module, "_EVENTS", limited)

    assert told(connection, DBT).events == 2
