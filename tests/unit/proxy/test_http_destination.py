"""What is made of every answer that a backend may give."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from correlator.proxy.destinations import ACCEPTED, DestinationError, Later, Refused, Result, make, parse
from correlator.proxy.destinations.http import HttpDestination
from tests.integration.proxy.backends import Backend, Behaviour, Reply, accepts, backend, refuses

EVENTS = [json.dumps({"mark": number}).encode() for number in range(4)]


@contextmanager
def sending(
    behaviour: Behaviour = accepts, options: str = "", timeout: float = 10.0
) -> Iterator[tuple[Backend, HttpDestination]]:
    with backend(behaviour) as there:
        destination = make(parse(there.url + options), timeout)
        assert isinstance(destination, HttpDestination)
        try:
            yield there, destination
        finally:
            destination.close()


def always(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda *_: Reply(status, body, named)


def kinds(results: Sequence[Result]) -> list[type]:
    return [type(result) for result in results]


@pytest.mark.parametrize(
    "reply", [Reply(200), Reply(204), Reply(201, b""), Reply(202, b"thank you"), Reply(200, b'{"status":"success"}')]
)
def test_any_success_of_a_batch_is_one_of_all_its_events(reply: Reply) -> None:
    with sending(lambda *_: reply) as (there, destination):
        assert destination.send(EVENTS) == [ACCEPTED] * 4
        assert there.requests == [("/api/v1/lineage/batch", 4)]


def test_one_event_alone_goes_to_the_endpoint_that_every_backend_has() -> None:
    with sending() as (there, destination):
        assert destination.send(EVENTS[:1]) == [ACCEPTED]
        assert there.requests == [("/api/v1/lineage", 1)]


def test_failed_events_of_a_batch_are_told_apart() -> None:
    said = {
        "status": "partial_success",
        "summary": {"received": 4, "successful": 2, "failed": 2, "retriable": 1, "non_retriable": 1},
        "failed_events": [
            {"index": 1, "reason": "later", "retriable": True},
            {"index": 3, "reason": "never", "retriable": False},
        ],
    }
    with sending(always(200, json.dumps(said).encode())) as (_, destination):
        results = destination.send(EVENTS)
        assert results == [ACCEPTED, Later("later"), ACCEPTED, Refused("never", 200, "never")]


def test_a_batch_answer_that_does_not_say_which_events_failed_is_asked_for_each() -> None:
    def behave(there: Backend, path: str, events: Sequence[dict[str, Any]]) -> Reply:
        if path.endswith("/batch"):
            return Reply(200, b'{"summary":{"failed":2},"failed_events":[]}')
        there.accept(events)
        return Reply(200)

    with sending(behave) as (there, destination):
        assert destination.send(EVENTS) == [ACCEPTED] * 4
        assert there.marks == [0, 1, 2, 3]


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_backend_without_a_batch_endpoint_gets_one_event_after_the_other(status: int) -> None:
    def behave(there: Backend, path: str, events: Sequence[dict[str, Any]]) -> Reply:
        if path.endswith("/batch"):
            return Reply(status)
        there.accept(events)
        return Reply(201)

    with sending(behave) as (there, destination):
        assert destination.send(EVENTS) == [ACCEPTED] * 4
        assert destination.send(EVENTS) == [ACCEPTED] * 4
        assert there.marks == [0, 1, 2, 3] * 2
        # It is not asked again each time.
        assert [path for path, _ in there.requests].count("/api/v1/lineage/batch") == 1


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refusal_is_for_good_with_status_and_answer(status: int) -> None:
    with sending(always(status, b'{"detail":"no"}')) as (_, destination):
        (result,) = destination.send(EVENTS[:1])
        assert isinstance(result, Refused)
        assert (result.status, result.answer) == (status, '{"detail":"no"}')


def test_of_a_batch_that_is_refused_whole_only_the_guilty_are_refused() -> None:
    def behave(there: Backend, _: str, events: Sequence[dict[str, Any]]) -> Reply:
        if any(event["mark"] == 2 for event in events):
            return Reply(400, b"one of them is bad")
        there.accept(events)
        return Reply(200)

    with sending(behave) as (there, destination):
        assert kinds(destination.send(EVENTS)) == kinds([ACCEPTED, ACCEPTED, Refused(""), ACCEPTED])
        assert there.marks == [0, 1, 3]


def test_a_batch_that_is_too_large_is_sent_in_halves_and_in_order() -> None:
    def behave(there: Backend, _: str, events: Sequence[dict[str, Any]]) -> Reply:
        if len(events) > 2:
            return Reply(413)
        there.accept(events)
        return Reply(200)

    many = [json.dumps({"mark": number}).encode() for number in range(9)]
    with sending(behave) as (there, destination):
        assert destination.send(many) == [ACCEPTED] * 9
        assert there.marks == list(range(9))


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408, 429])
def test_what_may_pass_is_tried_later(status: int) -> None:
    with sending(always(status)) as (_, destination):
        results = destination.send(EVENTS)
        assert kinds(results) == [Later] * 4
        assert not any(isinstance(result, Later) and result.is_misdirected for result in results)


@pytest.mark.parametrize("status", [401, 403, 404, 410, 301, 308, 415])
def test_what_somebody_has_to_mend_waits_and_is_told(status: int) -> None:
    with sending(always(status)) as (_, destination):
        for events in (EVENTS, EVENTS[:1]):
            results = destination.send(events)
            assert all(isinstance(result, Later) and result.is_misdirected for result in results)
            assert len(results) == len(events)


def test_a_redirect_names_where_it_points_to() -> None:
    with sending(always(308, location="https://elsewhere.example/")) as (_, destination):
        (result,) = destination.send(EVENTS[:1])
        assert isinstance(result, Later)
        assert "https://elsewhere.example/" in result.reason


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("0", 0.0), ("nonsense", None), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0)]
)
def test_retry_after_is_read_as_seconds_or_as_a_date(header: str, seconds: float | None) -> None:
    with sending(always(503, retry_after=header)) as (_, destination):
        (result,) = destination.send(EVENTS[:1])
        assert isinstance(result, Later)
        assert result.retry_after == seconds


def test_one_by_one_nothing_is_sent_past_an_event_that_has_to_wait() -> None:
    def behave(there: Backend, path: str, events: Sequence[dict[str, Any]]) -> Reply:
        if path.endswith("/batch"):
            return Reply(404)
        if events[0]["mark"] == 1:
            return Reply(503)
        there.accept(events)
        return Reply(200)

    with sending(behave) as (there, destination):
        assert kinds(destination.send(EVENTS)) == kinds([ACCEPTED, Later(""), Later(""), Later("")])
        assert there.marks == [0]


def test_a_backend_that_is_not_there_is_tried_later_and_then_found() -> None:
    with sending() as (there, destination):
        destination.send(EVENTS[:1])
        there.stop()
        # An old connection may still be served by a thread that ends; a new one is not.
        destination.close()
        assert kinds(destination.send(EVENTS)) == [Later] * 4
        there.start()
        assert destination.send(EVENTS) == [ACCEPTED] * 4


def test_a_connection_that_the_backend_has_closed_meanwhile_is_made_anew() -> None:
    with sending(always(200, connection="close")) as (there, destination):
        assert destination.send(EVENTS[:1]) == [ACCEPTED]
        assert destination.send(EVENTS[:1]) == [ACCEPTED]
        assert len(there.requests) == 2


def test_a_backend_that_does_not_answer_in_time_is_tried_later() -> None:
    def behave(*_: object) -> Reply:
        time.sleep(0.5)  # slower than the timeout of this test
        return Reply(200)

    with sending(behave, timeout=0.1) as (_, destination):
        (result,) = destination.send(EVENTS[:1])
        assert result == Later("it does not answer in time (destination_timeout)")


def test_the_key_comes_from_a_file_that_may_change_or_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text("first\n")
    with sending(options=f";key_file={file}") as (there, destination):
        destination.send(EVENTS[:1])
        file.write_text("second\n")
        destination.send(EVENTS[:1])
        assert there.keys == ["Bearer first", "Bearer second"]
    monkeypatch.setenv("PROD_KEY", "third")
    with sending(options=";key_env=PROD_KEY") as (there, destination):
        destination.send(EVENTS[:1])
        assert there.keys == ["Bearer third"]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("", "/api/v1/lineage"),
        ("/", "/api/v1/lineage"),
        ("/marquez", "/marquez/api/v1/lineage"),
        ("/api/v1/lineage", "/api/v1/lineage"),
        ("/openlineage/lineage/", "/openlineage/lineage"),
        ("?team=a", "/api/v1/lineage?team=a"),
    ],
)
def test_the_address_may_be_that_of_the_host_or_of_the_endpoint(url: str, path: str) -> None:
    with sending(options=url) as (there, destination):
        destination.send(EVENTS[:1])
        assert there.requests == [(path, 1)]


def test_a_backend_that_gets_a_batch_endpoint_is_not_asked_where_the_settings_say_so() -> None:
    with sending(refuses(lambda _: False), options=";batch=false") as (there, destination):
        assert destination.send(EVENTS) == [ACCEPTED] * 4
        assert {path for path, _ in there.requests} == {"/api/v1/lineage"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ftp://host", "'ftp://host' is no destination"),
        ("https://", "names no host"),
        ("http://host;colour=red", "has no option colour; there are key_file"),
        ("http://host;batch", "is not written OPTION=VALUE"),
        ("http://host;batch=perhaps", "is true or false"),
        ("http://host;key_env=NOT_THERE_AT_ALL", "NOT_THERE_AT_ALL"),
        ("https://host;ca=/nowhere.pem", "TLS files"),
        ("kafka:host:9092", "is not written kafka:"),
        ("file:", "names no file"),
        ("file:/tmp/x;a=b", "has no option a; there are none"),
    ],
)
def test_what_cannot_be_a_destination_is_told_why(text: str, words: str) -> None:
    with pytest.raises(DestinationError) as caught:
        make(parse(text), 1.0)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("http://localhost:8080", "http://localhost:8080", "http"),
        ("prod=https://h/api?x=y;verify=false", "prod", "http"),
        ("https://user:secret@h/api", "https://h/api", "http"),
        ("kafka:a:9092,b:9092/topic", "kafka:a:9092,b:9092/topic", "kafka"),
        ("log=file:/var/x.jsonl", "log", "file"),
        ("console", "console", "console"),
        ("out=console", "out", "console"),
    ],
)
def test_a_destination_has_a_name_which_never_holds_its_password(text: str, name: str, kind: str) -> None:
    spec = parse(text)
    assert (spec.name, spec.kind) == (name, kind)
    assert "secret" not in spec.name
