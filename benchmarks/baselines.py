"""What Correlator's server is measured against, with the same events, the same PostgreSQL and the same driver.

    parse    an endpoint that only parses the JSON and answers
    insert   an endpoint that stores the bytes of each event by an INSERT in a transaction of its own: nothing is
             judged, nothing is deduplicated, nothing is entered in a ledger
    direct   the same INSERTs in a loop, without HTTP and JSON: as much as driver and database can do

The endpoints are bare ASGI on uvicorn with uvloop and httptools. INSERTs are prepared and binary, from as many
connections as there are clients: through psycopg's asynchronous connections in the endpoint, and in the direct loop by
the shortest way that there is, its libpq layer.
"""

import gc
import itertools
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

import msgspec
import psycopg
import uvicorn
import uvloop
from psycopg import pq

from benchmarks.load import Outcome, events, take_part

TABLE: Final = """
CREATE TABLE baseline_events (
    position    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    received_at timestamptz NOT NULL DEFAULT now(),
    raw         bytea STORAGE EXTERNAL NOT NULL
) WITH (toast_tuple_target = 8160)
"""
_INSERT: Final = b"INSERT INTO baseline_events (raw) VALUES ($1)"

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]

_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _connected(url: str) -> tuple[psycopg.Connection, pq.abc.PGconn]:
    connection = psycopg.connect(url, autocommit=True)
    connection.pgconn.prepare(b"insert", _INSERT, [psycopg.adapters.types["bytea"].oid])
    return connection, connection.pgconn


def _check(result: pq.abc.PGresult | None) -> None:
    if result is None or result.status != pq.ExecStatus.COMMAND_OK:
        raise RuntimeError(result.error_message.decode(errors="replace") if result else "no answer")


class Inserter:
    """One connection for a thread, which waits without the interpreter's lock."""

    def __init__(self, url: str) -> None:
        self._connection, self._pgconn = _connected(url)

    def insert(self, raw: bytes) -> None:
        _check(self._pgconn.exec_prepared(b"insert", [raw], [pq.Format.BINARY]))


class AsyncInserter:
    """One connection for an event loop, as whoever stores each request by itself would use the driver."""

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection

    @classmethod
    async def connected(cls, url: str) -> "AsyncInserter":
        return cls(await psycopg.AsyncConnection.connect(url, autocommit=True))

    async def insert(self, raw: bytes) -> None:
        await self._connection.execute("INSERT INTO baseline_events (raw) VALUES (%b)", [raw], prepare=True)


class Endpoint:
    """Takes one event or an array of events at any path, and says how many there were."""

    def __init__(self, inserters: list[AsyncInserter]) -> None:
        self._idle = inserters
        self._handle = self._store if inserters else self._parse

    async def __call__(self, _: _Message, receive: _Receive, send: _Send) -> None:
        parts = []
        while True:
            message = await receive()
            parts.append(message["body"])
            if not message["more_body"]:
                break
        answer = b'{"events":%d}' % await self._handle(b"".join(parts))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _parse(self, body: bytes) -> int:
        value = msgspec.json.decode(body)
        return len(value) if isinstance(value, list) else 1

    async def _store(self, body: bytes) -> int:
        raws = [bytes(raw) for raw in _elements(body)] if body.startswith(b"[") else [body]
        inserter = self._idle.pop()
        for raw in raws:
            await inserter.insert(raw)
        self._idle.append(inserter)
        return len(raws)


async def serve(url: str | None, connections: int) -> None:
    endpoint = Endpoint([] if url is None else [await AsyncInserter.connected(url) for _ in range(connections)])
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    # Parsed events are many small objects: without this each collection walks through all modules too, and parsing a
    # batch takes twice as long.
    gc.freeze()
    config = uvicorn.Config(endpoint, http="httptools", ws="none", lifespan="off", log_level="error", access_log=False)
    await uvicorn.Server(config).serve(sockets=[listener])


class DirectPlan(msgspec.Struct, frozen=True):
    url: str
    connections: int
    events: int
    seconds: float


def prepare_direct(written: bytes) -> Callable[[], Outcome]:
    plan = msgspec.json.decode(written, type=DirectPlan)
    inserters = [Inserter(plan.url) for _ in range(plan.connections)]
    # `next` on it is one step of the interpreter, which no other thread can come between.
    prepared = iter(list(itertools.islice(events(), plan.events)))
    latencies: list[float] = []

    def work(inserter: Inserter, deadline: float) -> None:
        now = time.perf_counter()
        while now < deadline and (raw := next(prepared, None)) is not None:
            inserter.insert(raw)
            began, now = now, time.perf_counter()
            latencies.append(now - began)

    def run() -> Outcome:
        cpu_before, started = time.process_time(), time.perf_counter()
        threads = [threading.Thread(target=work, args=(one, started + plan.seconds)) for one in inserters]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return Outcome.of(latencies, 1, time.perf_counter() - started, time.process_time() - cpu_before)

    return run


def main() -> None:
    match sys.argv[1:]:
        case ["parse"]:
            uvloop.run(serve(None, 0))
        case ["insert", url, connections]:
            uvloop.run(serve(url, int(connections)))
        case ["direct"]:
            take_part(prepare_direct)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
