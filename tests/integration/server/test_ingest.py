"""The three doors: what is sent, what is answered, what is kept."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import zstandard

from correlator.store.database import Database
from tests.integration.events import run_event
from tests.integration.server.serving import Answer, Client, serving

ONE, BATCH, EVENTS = "/api/v1/lineage", "/api/v1/lineage/batch", "/api/v1/lineage/events"


@pytest.fixture
def client(database: Database) -> Iterator[Client]:
    with serving(database) as client:
        yield client


def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    with database.connect("test") as connection:
        return connection.execute(query.encode(), binary=True).fetchall()


def kept(database: Database) -> list[bytes]:
    return [raw for (raw,) in rows(database, "SELECT raw FROM lineage_events ORDER BY position")]


def rejected(database: Database) -> list[tuple[int, str, str]]:
    return rows(database, "SELECT layer, path, rule FROM rejected_events ORDER BY id")


def ledger(database: Database) -> list[tuple[int, int, int, int]]:
    return rows(database, "SELECT received, stored, duplicates, rejected FROM ingest_totals")


def is_problem(answer: Answer, status: int, slug: str) -> bool:
    document = answer.json()
    return (
        answer.status == status == document["status"]
        and answer.headers["content-type"] == "application/problem+json"
        and document["type"].endswith(f":{slug}")
        and document["correlation_id"] == answer.headers["x-correlation-id"]
        and bool(document["title"])
        and bool(document["detail"])
        and document["instance"].startswith("/")
    )


# --- one event


def test_one_event_is_stored_to_the_byte(client: Client, database: Database) -> None:
    text = json.dumps(run_event(), indent=3).encode() + b"\n"
    answer = client.post(ONE, text)
    assert (answer.status, answer.json()["status"]) == (200, "stored")
    assert kept(database) == [text]
    assert ledger(database) == [(1, 1, 0, 0)]


def test_the_same_event_again_is_a_duplicate(client: Client, database: Database) -> None:
    client.post(ONE, run_event())
    answer = client.post(ONE, dict(reversed(run_event().items())))
    assert (answer.status, answer.json()["status"]) == (200, "duplicate")
    assert len(kept(database)) == 1
    assert ledger(database) == [(2, 1, 1, 0)]


def test_all_three_kinds_are_taken(client: Client, database: Database) -> None:
    common = {"eventTime": "2026-11-01T10:00:00Z", "producer": "https://example.com"}
    url = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/"
    job = common | {"schemaURL": url + "JobEvent", "job": {"namespace": "n", "name": "j"}}
    dataset = common | {"schemaURL": url + "DatasetEvent", "dataset": {"namespace": "n", "name": "d"}}
    assert [client.post(ONE, event).status for event in (run_event(), job, dataset)] == [200] * 3
    assert len(kept(database)) == 3


def test_a_refused_event_is_kept_with_every_reason(client: Client, database: Database) -> None:
    event = run_event()
    del event["producer"]
    event["job"]["name"] = " "
    answer = client.post(ONE, event, x_correlation_id="mine-1")
    assert is_problem(answer, 422, "invalid-events")
    assert {error["path"] for error in answer.json()["errors"]} == {"producer", "job.name"}
    assert answer.json()["correlation_id"] == "mine-1"
    [(raw, sentence, problems, correlation_id)] = rows(
        database, "SELECT raw, sentence, problems, correlation_id FROM rejected_events"
    )
    assert json.loads(raw) == event
    assert "producer is required" in sentence
    assert {problem["path"] for problem in problems} == {"producer", "job.name"}
    assert correlation_id == "mine-1"
    assert ledger(database) == [(1, 0, 0, 1)]


def test_a_warning_is_told_and_the_event_stored(client: Client) -> None:
    answer = client.post(ONE, run_event(run_id="no-uuid"))
    assert answer.status == 200
    assert [warning["path"] for warning in answer.json()["warnings"]] == ["run.runId"]


@pytest.mark.parametrize("path", [ONE, BATCH, EVENTS])
@pytest.mark.parametrize("body", [b"", b"{", b"not json", b"[{},", b'{"a": 1} x', b"\xff\xfe", b"[1 2]"])
def test_a_body_that_is_not_json_is_one_rejected_event(
    client: Client, database: Database, path: str, body: bytes
) -> None:
    assert is_problem(client.post(path, body), 400, "not-json")
    assert rows(database, "SELECT raw FROM rejected_events") == [(body,)]
    assert ledger(database) == [(1, 0, 0, 1)]


def test_an_array_at_the_door_for_one_event_is_told_where_to_go(client: Client, database: Database) -> None:
    answer = client.post(ONE, [run_event()])
    assert is_problem(answer, 422, "invalid-events")
    assert EVENTS in answer.json()["detail"]
    assert rejected(database) == [(1, "$", "type")]


# --- the batch contract of OpenLineage


def test_a_batch_is_stored_and_counted(client: Client, database: Database) -> None:
    answer = client.post(BATCH, [run_event(), run_event("COMPLETE"), run_event()])
    assert answer.status == 200
    said = answer.json()
    assert said["status"] == "success"
    assert said["summary"] == {"received": 3, "successful": 3, "failed": 0, "retriable": 0, "non_retriable": 0}
    assert said["failed_events"] == []
    assert ledger(database) == [(3, 2, 1, 0)]


def test_a_bad_event_of_a_batch_harms_no_other(client: Client, database: Database) -> None:
    answer = client.post(BATCH, [run_event(), {"job": 1}, 7, run_event("COMPLETE")])
    said = answer.json()
    assert (answer.status, said["status"]) == (200, "partial_success")
    assert said["summary"] == {"received": 4, "successful": 2, "failed": 2, "retriable": 0, "non_retriable": 2}
    assert [(failed["index"], failed["retriable"]) for failed in said["failed_events"]] == [(1, False), (2, False)]
    assert all(failed["reason"] for failed in said["failed_events"])
    assert ledger(database) == [(4, 2, 0, 2)]


def test_a_batch_judges_no_run_cycle(client: Client) -> None:
    broken = [run_event("COMPLETE"), run_event("START", event_time="2026-11-01T11:00:00Z")]
    assert client.post(BATCH, broken).json()["status"] == "success"


def test_one_object_is_no_batch(client: Client, database: Database) -> None:
    assert is_problem(client.post(BATCH, run_event()), 422, "invalid-events")
    assert rejected(database) == [(1, "$", "type")]


def test_a_batch_of_nothing_is_fine(client: Client) -> None:
    assert client.post(BATCH, []).json()["summary"]["received"] == 0
    assert client.post(EVENTS, []).json()["summary"] == {"total": 0, "success": 0, "failed": 0}


# --- events with results


def test_all_stored_is_200_with_a_result_for_each_in_order(client: Client) -> None:
    events = [run_event(run_id="1"), run_event(run_id="2"), run_event(run_id="1")]
    answer = client.post(EVENTS, events)
    said = answer.json()
    assert answer.status == 200
    assert (said["stored"], said["duplicates"], said["failed"]) == (2, 1, 0)
    assert [(r["index"], r["status"], r["outcome"], r["message"]) for r in said["results"]] == [
        (0, 200, "success", "stored"),
        (1, 200, "success", "stored"),
        (2, 200, "success", "duplicate"),
    ]
    assert said["summary"] == {"total": 3, "success": 3, "failed": 0}
    assert said["timestamp"].endswith("Z")


def test_some_rejected_is_207_and_the_index_is_the_clients(client: Client, database: Database) -> None:
    nameless = run_event()
    del nameless["job"]["name"]
    answer = client.post(EVENTS, [run_event(run_id="1"), nameless, run_event(run_id="2")])
    said = answer.json()
    assert answer.status == 207
    assert (said["stored"], said["duplicates"], said["failed"]) == (2, 0, 1)
    refused = said["results"][1]
    assert (refused["index"], refused["status"], refused["outcome"]) == (1, 422, "error")
    assert refused["error"] == refused["message"] == "job.name is required"
    assert len(kept(database)) == 2


def test_all_rejected_is_a_problem_with_the_results(client: Client) -> None:
    answer = client.post(EVENTS, [{}, []])
    assert is_problem(answer, 422, "invalid-events")
    said = answer.json()
    assert [result["index"] for result in said["results"]] == [0, 1]
    assert said["summary"] == {"total": 2, "success": 0, "failed": 2}


def test_one_object_is_taken_like_an_array_of_one(client: Client) -> None:
    assert client.post(EVENTS, run_event()).json()["stored"] == 1
    assert client.post(EVENTS, [run_event()]).json()["duplicates"] == 1


# --- layer 2


@pytest.mark.parametrize(
    ("states", "rule", "words"),
    [
        (["START", "START"], "duplicate_start", "duplicate START event"),
        (["RUNNING", "START"], "backward_transition", "cannot go back to START"),
        (["COMPLETE", "FAIL"], "terminal_state_immutable", "is COMPLETE and cannot become FAIL"),
        (["START", "COMPLETE", "START"], "terminal_state_immutable", "is COMPLETE and cannot become START"),
    ],
)
def test_a_broken_cycle_refuses_the_whole_request(
    client: Client, database: Database, states: list[str], rule: str, words: str
) -> None:
    events = [run_event(state, event_time=f"2026-11-01T10:0{minute}:00Z") for minute, state in enumerate(states)]
    answer = client.post(EVENTS, events)
    assert is_problem(answer, 422, "broken-run-cycle")
    assert answer.json()["detail"].startswith("Invalid event sequence: ")
    assert words in answer.json()["detail"]
    assert kept(database) == []
    assert rejected(database) == [(2, "$", rule)] * len(events)
    assert ledger(database) == [(len(events), 0, 0, len(events))]


def test_identical_copies_break_no_cycle(client: Client) -> None:
    assert (
        client.post(
            EVENTS, [run_event(), run_event(), run_event("COMPLETE", event_time="2026-11-02T00:00:00Z")]
        ).json()["stored"]
        == 2
    )


def test_a_mixed_batch_is_judged_event_by_event(client: Client) -> None:
    events = [run_event("COMPLETE"), run_event("START", event_time="2026-11-01T11:00:00Z"), run_event(run_id="other")]
    assert client.post(EVENTS, events).json()["stored"] == 3


def test_fail_after_complete_alone_is_stored(client: Client) -> None:
    assert client.post(ONE, run_event("COMPLETE")).status == 200
    assert client.post(ONE, run_event("FAIL", event_time="2026-11-01T11:00:00Z")).status == 200


# --- what gives other backends a 5xx


@pytest.mark.parametrize("path", [ONE, EVENTS])
@pytest.mark.parametrize(
    ("what", "status"),
    [
        ({"job": {"namespace": "n\u0000", "name": "a\u0000b"}}, 200),
        ({"job": {"namespace": "n", "name": "j", "facets": {"sql": {"query": "SELECT '\u0000'"}}}}, 200),
        ({"job": {"namespace": "n", "name": "j" * 100_000}}, 200),
        ({"outputs": [{"namespace": "n" * 5_000, "name": "d" * 20_000}]}, 200),
        ({"run": {"runId": "no uuid at all \u0000 🙂"}}, 200),
        ({"producer": "\u0000"}, 200),
        ({"eventTime": "2026-13-45T99:99:99Z"}, 422),
        ({"eventTime": "0000-00-00T00:00:00Z"}, 422),
        ({"eventTime": "99999-01-01T00:00:00Z"}, 422),
        ({"eventTime": "0001-01-01T00:00:00+14:00"}, 200),
        ({"eventTime": "9999-12-31T23:59:59.999999-14:00"}, 200),
        ({"eventTime": 7}, 422),
        ({"eventType": "FINISHED"}, 422),
        ({"job": None}, 422),
        ({"inputs": {}}, 422),
        ({"custom": 10**400}, 200),
        ({"custom": [[[[[[{}]]]]]]}, 200),
    ],
)
def test_odd_events_are_judged_and_kept(
    client: Client, database: Database, path: str, what: dict[str, Any], status: int
) -> None:
    answer = client.post(path, run_event() | what)
    assert answer.status == status
    assert ledger(database) == [(1, 1, 0, 0) if status == 200 else (1, 0, 0, 1)]


def test_half_a_surrogate_pair_is_refused_and_kept(client: Client, database: Database) -> None:
    text = json.dumps(run_event()).encode().replace(b'"load"', b'"\\ud800"')
    assert client.post(ONE, text).status in {400, 422}
    assert rows(database, "SELECT raw FROM rejected_events") == [(text,)]


# --- how bodies come


def test_gzip_and_zstd_are_unpacked(client: Client, database: Database) -> None:
    assert client.post_gzip(ONE, run_event(run_id="1")).status == 200
    packed = zstandard.compress(json.dumps(run_event(run_id="2")).encode())
    assert client.post(ONE, packed, content_encoding="zstd").status == 200
    assert [json.loads(raw)["run"]["runId"] for raw in kept(database)] == ["1", "2"]


def test_a_broken_gzip_body_is_one_rejected_event(client: Client, database: Database) -> None:
    assert is_problem(client.post(ONE, b"\x1f\x8bnonsense", content_encoding="gzip"), 400, "not-json")
    assert rows(database, "SELECT raw FROM rejected_events") == [(b"\x1f\x8bnonsense",)]
    assert ledger(database) == [(1, 0, 0, 1)]


# --- limits, each with its name in the answer


def test_an_event_over_the_limit_is_refused_by_its_name(database: Database) -> None:
    with serving(database, max_event_bytes=2_000) as client:
        large = run_event(custom="x" * 3_000)
        alone = client.post(ONE, large)
        assert is_problem(alone, 413, "too-large")
        assert "max_event_bytes" in alone.json()["detail"]
        beside = client.post(EVENTS, [run_event(), large])
        assert beside.status == 207
        assert "max_event_bytes" in beside.json()["results"][1]["error"]
        assert client.post(BATCH, [large]).json()["failed_events"][0]["index"] == 0


def test_too_many_events_are_refused_by_the_limits_name(database: Database) -> None:
    with serving(database, max_batch_events=2) as client:
        for path in (BATCH, EVENTS):
            answer = client.post(path, [run_event(run_id=str(n)) for n in range(3)])
            assert is_problem(answer, 413, "too-large")
            assert "max_batch_events" in answer.json()["detail"]
        assert kept(database) == []


def test_a_request_over_the_limit_is_refused_unpacked_or_packed(database: Database) -> None:
    with serving(database, max_request_bytes=5_000, max_event_bytes=4_000) as client:
        large = [run_event(run_id="x" * 1_000) for _ in range(10)]
        assert is_problem(client.post(EVENTS, large), 413, "too-large")
        answer = client.post_gzip(EVENTS, large)
        assert is_problem(answer, 413, "too-large")
        assert "max_request_bytes" in answer.json()["detail"]


def test_nesting_over_the_limit_is_refused_by_its_name(database: Database) -> None:
    with serving(database, max_nesting=20) as client:
        deep: list[Any] = []
        for _ in range(30):
            deep = [deep]
        answer = client.post(ONE, run_event(custom=deep))
        assert is_problem(answer, 422, "invalid-events")
        assert "max_nesting" in answer.json()["detail"]
        assert client.post(ONE, run_event(custom=[[] for _ in range(500)])).status == 200


def test_a_bomb_of_brackets_costs_nothing(client: Client) -> None:
    assert client.post(ONE, b"[" * 1_000_000).status in {400, 422}
    assert client.post(ONE, run_event()).status == 200


def test_a_sender_over_its_rate_is_told_when_to_come_again(database: Database) -> None:
    with serving(database, rate_limit_per_address=1.0, rate_limit_burst=5.0) as client:
        answer = client.post(EVENTS, [run_event(run_id=str(n)) for n in range(50)])
        assert answer.status == 200
        answer = client.post(ONE, run_event(run_id="next"))
        assert is_problem(answer, 429, "too-many-requests")
        assert int(answer.headers["retry-after"]) >= 1
        assert len(kept(database)) == 50


def test_a_large_batch_is_kept_whole_and_in_order(client: Client, database: Database) -> None:
    events = [run_event(run_id=f"{n:06}") for n in range(5_000)]
    answer = client.post_gzip(EVENTS, events)
    assert answer.json()["stored"] == 5_000
    assert [json.loads(raw)["run"]["runId"] for raw in kept(database)] == [f"{n:06}" for n in range(5_000)]
    assert ledger(database) == [(5_000, 5_000, 0, 0)]
