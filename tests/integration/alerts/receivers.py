"""A receiver of alerts: a real HTTP server on a real socket, which answers as it is told."""

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PATIENCE = 60


@dataclass(frozen=True)
class Received:
    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b"ok"


class Receiver:
    def __init__(self) -> None:
        self.received: list[Received] = []
        self.replies: list[Reply] = []
        """What it answers next; when there is none, 200."""
        self.is_silent = threading.Event()
        """While set, it answers nothing and holds whoever asks."""
        self._changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                reply = receiver.take(Received(self.path, dict(self.headers.items()), body))
                self.send_response(reply.status)
                for name, value in reply.headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Whoever breaks off (because he does not trust us, or has no patience) is no error of a receiver."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def speak_tls(self, certificate: Path, key: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)

    def take(self, received: Received) -> Reply:
        with self._changed:
            self.received.append(received)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self.is_silent.is_set(), PATIENCE)
            return self.replies.pop(0) if self.replies else Reply()

    def speak(self) -> None:
        with self._changed:
            self.is_silent.clear()
            self._changed.notify_all()

    def wait_for(self, count: int) -> list[Received]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.received) >= count, PATIENCE), self.received
            return list(self.received)

    def close(self) -> None:
        self.speak()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    try:
        yield made
    finally:
        made.close()
