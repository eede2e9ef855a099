"""One POST, one deadline, and words for whatever goes wrong: against real sockets."""

import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest
import requests
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

from correlator.integrations.great_expectations.emitter import EmissionError, emit_events, endpoint_url

KEY = "correlator_0123456789abcdef"


class Seen(NamedTuple):
    path: str
    key: str | None
    body: Any


class Backend:
    """Answers every POST as it is told, and remembers what came."""

    def __init__(self, status: int, answer: bytes, headers: dict[str, str] | None = None) -> None:
        self.seen: list[Seen] = []
        backend = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                backend.seen.append(Seen(self.path, self.headers["X-API-Key"], body))
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                if status != 204:
                    self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def backend(status: int, answer: Any = b"", **headers: str) -> Iterator[Backend]:
    text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    running = Backend(status, text, headers)
    try:
        yield running
    finally:
        running.stop()


def event(state: RunState = RunState.COMPLETE) -> RunEvent:
    return RunEvent(
        eventType=state,
        eventTime="2026-11-01T10:00:00+00:00",
        run=Run("0190f0a2-0000-7000-8000-000000000001"),
        job=Job("great_expectations://default", "daily.orders"),
        producer="https://example.com",
    )


def failure_of(url: str, **options: Any) -> str:
    with pytest.raises(EmissionError) as caught:
        emit_events([event(RunState.START), event()], url, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("http://correlator:8080", "http://correlator:8080/api/v1/lineage/events"),
        ("http://correlator:8080/", "http://correlator:8080/api/v1/lineage/events"),
        ("https://correlator", "https://correlator/api/v1/lineage/events"),
        ("http://proxy:8090/api/v1/lineage/batch", "http://proxy:8090/api/v1/lineage/batch"),
        (" http://correlator/in?team=a ", "http://correlator/in?team=a"),
    ],
)
def test_a_bare_base_gets_the_path_and_a_full_url_stays(given: str, meant: str) -> None:
    assert endpoint_url(given) == meant


@pytest.mark.parametrize("given", ["", "correlator:8080", "ftp://x", "http://", "http://x:99999", "http://x:0"])
def test_what_is_no_url_is_refused_with_an_example(given: str) -> None:
    with pytest.raises(ValueError, match="such as http://correlator:8080"):
        endpoint_url(given)


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_all_events_go_in_one_post_with_the_key(status: int) -> None:
    with backend(status, {"stored": 2}) as there:
        emit_events([event(RunState.START), event()], there.url, KEY)

    (seen,) = there.seen
    assert (seen.path, seen.key) == ("/api/v1/lineage/events", KEY)
    assert [one["eventType"] for one in seen.body] == ["START", "COMPLETE"]


def test_an_injected_session_is_used_and_left_open() -> None:
    used = []

    class Session(requests.Session):
        def post(self, *arguments: Any, **options: Any) -> requests.Response:
            used.append(arguments)
            return super().post(*arguments, **options)

    with backend(200) as there, Session() as session:
        emit_events([event()], there.url, session=session)
        emit_events([event()], there.url, session=session)

    assert len(used) == len(there.seen) == 2
    assert there.seen[0].key is None


def test_events_that_are_refused_are_told_with_their_reasons(caplog: pytest.LogCaptureFixture) -> None:
    answer = {
        "results": [
            {"index": 0, "status": 200, "outcome": "success", "message": "stored"},
            {"index": 1, "status": 422, "outcome": "error", "error": "job.name is required"},
        ]
    }
    with backend(207, answer) as there, caplog.at_level(logging.WARNING):
        words = failure_of(there.url)

    assert "refused 1 of 2 events: job.name is required" in words
    assert words in caplog.text


def test_what_the_contract_for_batches_answers_is_understood() -> None:
    answer = {
        "status": "partial_success",
        "summary": {"received": 2, "successful": 1, "failed": 1},
        "failed_events": [{"index": 0, "reason": "job.name is required", "retriable": False}],
    }
    with backend(200, answer) as there:
        words = failure_of(f"{there.url}/api/v1/lineage/batch")

    assert "refused 1 of 2 events: job.name is required" in words


@pytest.mark.parametrize(
    ("status", "answer", "words"),
    [
        (
            400,
            {"title": "Not JSON", "detail": "line 1: a comma is missing"},
            "400: Not JSON: line 1: a comma is missing",
        ),
        (401, {"title": "A key is needed"}, "does not accept the API key (401): A key is needed"),
        (413, b"<html>too   big</html>", "413: <html>too big</html>"),
        (422, {"results": [{"outcome": "error", "error": "no runId"}]}, "422: no runId"),
        (500, b"", "500: no words"),
        (503, b"x" * 5000, "xxx…"),
        (302, b"", "redirects (302)"),
    ],
)
def test_what_the_answer_says_is_logged_and_raised(
    status: int, answer: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with backend(status, answer, Location="http://127.0.0.1:1/elsewhere") as there, caplog.at_level(logging.WARNING):
        told = failure_of(there.url, api_key=KEY)

    assert words in told
    assert told in caplog.text
    assert len(there.seen) == 1
    assert KEY not in caplog.text


def test_nobody_there_is_told_without_user_and_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    words = failure_of(f"http://me:secret@127.0.0.1:{port}")

    assert words.startswith(f"http://127.0.0.1:{port}: ")
    assert "no connection" in words
    assert "secret" not in words


# Each of these would go on for ever if the deadline did not hold for the whole.


@contextmanager
def never_done(beginning: bytes) -> Iterator[str]:
    """A server that sends this, and then one byte after the other, each of them in time."""
    is_over = threading.Event()

    def drip(client: socket.socket) -> None:
        with client:
            client.recv(65536)
            try:
                client.sendall(beginning)
                while not is_over.wait(0.05):
                    client.sendall(b"x")
            except OSError:
                pass

    def serve(listening: socket.socket) -> None:
        while not is_over.is_set():
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            is_over.set()


@pytest.mark.parametrize(
    "beginning",
    [b"", b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 500 Oh\r\nContent-Length: 100000\r\n\r\n"],
    ids=["no status line", "headers without end", "a body without end"],
)
def test_an_answer_that_never_ends_does_not_outlast_the_timeout(beginning: bytes) -> None:
    with never_done(beginning) as url:
        assert failure_of(url, timeout=0.3)


def test_a_server_that_says_nothing_does_not_outlast_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = failure_of(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.3)

    assert "in time" in words or "within" in words


def test_a_name_server_that_does_not_answer_does_not_outlast_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: is_over.wait() and [])
    try:
        words = failure_of("http://correlator.example:8080", timeout=0.3)
    finally:
        is_over.set()

    assert "no answer within 0.3 s" in words
    assert "`timeout`" in words


def test_when_no_time_is_left_nothing_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert failure_of(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0)
