"""Backends that do as they are told, on a real socket: they record what they have accepted, in order."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE = 60


@dataclass
class Reply:
    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)


Behaviour = Callable[["Backend", str, Sequence[dict[str, Any]]], Reply]


def accepts(backend: "Backend", _path: str, events: Sequence[dict[str, Any]]) -> Reply:
    backend.accept(events)
    return Reply()


class Backend:
    """It can be stopped and started again on its port."""

    def __init__(self, behaviour: Behaviour = accepts) -> None:
        self.behaviour = behaviour
        self.accepted: list[dict[str, Any]] = []
        self.requests: list[tuple[str, int]] = []
        """Path and number of events of each request."""
        self.keys: list[str | None] = []
        self.changed = threading.Condition()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def accept(self, events: Sequence[dict[str, Any]]) -> None:
        with self.changed:
            self.accepted.extend(events)
            self.changed.notify_all()

    def start(self) -> None:
        backend = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                events = body if isinstance(body, list) else [body]
                with backend.changed:
                    backend.requests.append((self.path, len(events)))
                    backend.keys.append(self.headers["Authorization"])
                    backend.changed.notify_all()
                reply = backend.behaviour(backend, self.path, events)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                if reply.status != 204:
                    self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                if reply.status != 204:
                    self.wfile.write(reply.body)

            def log_message(self, *_: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """Whoever hangs up is no trouble here."""

        self._server = Quiet(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        with self.changed:
            while not is_so():
                rest = deadline - time.monotonic()
                assert rest > 0, f"not after {PATIENCE} s: {what}; {len(self.accepted)} accepted"
                self.changed.wait(rest)

    def wait_for_events(self, count: int) -> None:
        self.wait_for(lambda: len(self.accepted) >= count, f"{count} events arrive")

    def wait_for_requests(self, count: int) -> None:
        self.wait_for(lambda: len(self.requests) >= count, f"{count} requests arrive")

    @property
    def marks(self) -> list[Any]:
        return [event.get("mark") for event in self.accepted]


@contextmanager
def backend(behaviour: Behaviour = accepts) -> Iterator[Backend]:
    made = Backend(behaviour)
    try:
        yield made
    finally:
        made.stop()


def refuses(is_refused: Callable[[dict[str, Any]], bool], *, status: int = 422, has_batch: bool = True) -> Behaviour:
    """A backend that does not want some events, and says so as each endpoint does."""

    def behave(backend: Backend, path: str, events: Sequence[dict[str, Any]]) -> Reply:
        if path.endswith("/batch"):
            if not has_batch:
                return Reply(404)
            failed = [
                {"index": index, "reason": "not wanted", "retriable": False}
                for index, event in enumerate(events)
                if is_refused(event)
            ]
            backend.accept([event for event in events if not is_refused(event)])
            said = {"status": "partial_success", "summary": {"failed": len(failed)}, "failed_events": failed}
            return Reply(200, json.dumps(said).encode())
        if is_refused(events[0]):
            return Reply(status, b'{"detail": "not wanted"}')
        backend.accept(events)
        return Reply(201)

    return behave
