"""A server inside the test's own process: the real application on a real socket."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

import msgspec
import uvicorn

from correlator.config import ServerSettings
from correlator.http.connections import bounded
from correlator.http.request_log import Log
from correlator.server.app import App
from correlator.server.auth import KeyCache
from correlator.store.database import Database

DISCARDED = 65_536


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def post(self, path: str, value: Any, **headers: str) -> Answer:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.ask("POST", path, body, **{"content_type": "application/json", **headers})

    def post_gzip(self, path: str, value: Any) -> Answer:
        return self.post(path, gzip.compress(json.dumps(value).encode()), content_encoding="gzip")


@contextmanager
def serving(database: Database, **settings: Any) -> Iterator[Client]:
    log = Log("json", "error")
    with KeyCache(database, interval=0.1) as keys:
        app = App(ServerSettings(port=0, **settings), database, keys, log)
        server = uvicorn.Server(
            uvicorn.Config(
                app.edge,
                port=0,
                loop="uvloop",
                http=bounded(max_head_bytes=64_000, head_seconds=60.0, edge=app.edge),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=5,
            )
        )
        thread = threading.Thread(target=server.run, name="uvicorn")
        thread.start()
        try:
            while not (server.started and server.servers):
                assert thread.is_alive()
            client = Client(server.servers[0].sockets[0].getsockname()[1])
            while client.ask("GET", "/ready").status != 200:
                pass
            yield client
        finally:
            server.should_exit = True
            thread.join()
            log.close()
