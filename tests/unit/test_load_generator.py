"""The load generator of the benchmarks: what it sends is new and valid, and it believes no answer that is not right."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from benchmarks.load import LoadError, Outcome, Plan, events, requests, send

from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from correlator.rulebook.identity import idempotency_key
from tests.corpus import needs_corpus


@needs_corpus
@pytest.mark.parametrize("has_new_facets", [False, True])
def test_every_event_is_accepted_and_has_a_key_of_its_own(*, has_new_facets: bool) -> None:
    accepted = [judge(raw) for raw in itertools.islice(events(has_new_facets=has_new_facets), 500)]
    keys = [idempotency_key(event) for event in accepted if not isinstance(event, Rejection)]
    assert len(set(keys)) == 500


@needs_corpus
def test_facets_come_again_unless_new_ones_are_asked_for() -> None:
    def salts(raws: list[bytes]) -> int:
        return sum(raw.count(b'"salt":"') for raw in raws)

    assert salts(list(itertools.islice(events(), 100))) == 0
    assert salts(list(itertools.islice(events(has_new_facets=True), 100))) > 100


@needs_corpus
def test_a_batch_is_an_array_of_so_many_events() -> None:
    (request,) = requests(msgspec.structs.replace(_PLAN, events_a_request=7))
    head, _, body = request.partition(b"\r\n\r\n")
    assert b"Content-Length: %d" % len(body) in head
    assert body.startswith(b"[{")
    assert body.count(b'"eventTime"') == 7


def test_every_request_is_answered_and_timed() -> None:
    outcome = _sent([b'{"stored":1}'], requests=500, connections=8)
    assert (outcome.requests, outcome.events) == (500, 500)
    assert 0 < outcome.p50_ms <= outcome.p99_ms


def test_an_answer_may_come_in_pieces_and_a_large_request_goes_in_pieces() -> None:
    outcome = _sent([b'{"sto', b'red":1}'], requests=20, connections=2, size=3_000_000)
    assert outcome.requests == 20


def test_when_the_requests_are_used_up_the_load_ends_unless_they_may_be_repeated() -> None:
    assert _sent([b'{"stored":1}'], requests=3, connections=1).requests == 3
    assert _sent([b'{"stored":1}'], requests=3, connections=1, seconds=0.2, may_repeat=True).requests > 3


@pytest.mark.parametrize(
    ("status", "body"), [("200 OK", b'{"stored":0}'), ("503 Service Unavailable", b'{"stored":1}')]
)
def test_a_wrong_answer_is_an_error(status: str, body: bytes) -> None:
    with pytest.raises(LoadError, match=r"An answer without .*stored"):
        _sent([body], requests=5, connections=1, status=status)


def test_a_connection_that_is_closed_is_an_error() -> None:
    with pytest.raises(LoadError, match="closed a connection"):
        _sent([], requests=5, connections=1)


_PLAN = Plan(port=0, path="/", expected='"stored":1}', connections=1, events_a_request=1, requests=1, seconds=60.0)


def _sent(
    pieces: list[bytes], *, requests: int, connections: int, size: int = 10, status: str = "200 OK", **more: Any
) -> Outcome:
    with _server(status, pieces) as port:
        request = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (size, b"x" * size)
        plan = msgspec.structs.replace(_PLAN, port=port, connections=connections, requests=requests, **more)
        return send(plan, [request] * requests)


@contextmanager
def _server(status: str, pieces: list[bytes]) -> Iterator[int]:
    """Answers every request alike, piece by piece; without pieces it hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.rpartition(b": ")[2]))
                if not pieces:
                    break
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {sum(map(len, pieces))}\r\n\r\n".encode())
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port.append(server.sockets[0].getsockname()[1])
            loop.append(asyncio.get_running_loop())
            stop.append(asyncio.Event())
            ready.set()
            await stop[0].wait()

    port: list[int] = []
    loop: list[asyncio.AbstractEventLoop] = []
    stop: list[asyncio.Event] = []
    ready = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    ready.wait()
    try:
        yield port[0]
    finally:
        loop[0].call_soon_threadsafe(stop[0].set)
        thread.join()
