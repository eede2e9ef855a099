"""Load for an HTTP server: prepared requests over connections that stay open, each with one request at a time.

It runs in a process of its own and spends as little as it can, since it takes its share of the cores that it measures:
requests are made before the clock starts, and of an answer only what proves it is read. Every answer is checked.

The events are those of real producers, as their pipelines would send them on other days: new run ids and times, while
most facets come again to the letter. Each is one that no server has seen before.
"""

import gc
import itertools
import json
import random
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, Self

import msgspec
from tests import corpus

SMALLEST, LARGEST = 1_000, 4_000
"""Bytes of the events that are sent: 2.9 KB on average."""

_MOST_SECONDS_OF_SILENCE: Final = 30
_RECEIVED_AT_ONCE: Final = 1 << 18
_OK: Final = b"HTTP/1.1 200 "
_QUOTED: Final = 500
_RUN_ID = re.compile(r"[0-9a-f]{8}(?=-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)

# Places in a template. No JSON text holds such bytes.
_RUN, _DAY, _TIME, _SALT = b"\x00r", b"\x00d", b"\x00t", b"\x00s"
_PLACE = re.compile(rb"(\x00[rdts])")


class Plan(msgspec.Struct, frozen=True):
    """What to send, and what an answer must hold to count."""

    port: int
    path: str
    expected: str
    connections: int
    events_a_request: int
    """1 sends the event itself, more an array of so many."""
    requests: int
    """How many are made. With the last one the load ends, however early."""
    seconds: float
    may_repeat: bool = False
    """Begin again with the first when all are sent: for who does not remember what it has seen."""
    has_new_facets: bool = False
    """Whether every single facet is one that was never seen before."""


class Outcome(msgspec.Struct, frozen=True):
    requests: int
    events: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_seconds: float
    """Of the generator."""

    @classmethod
    def of(cls, latencies: list[float], events_a_request: int, seconds: float, cpu_seconds: float) -> Self:
        count = len(latencies)
        ordered = sorted(latencies)
        p50, p99 = ordered[count // 2] * 1e3, ordered[count * 99 // 100] * 1e3
        return cls(count, count * events_a_request, seconds, p50, p99, cpu_seconds)


class LoadError(Exception):
    """The server has not done what it was asked."""


# Events


def events(*, has_new_facets: bool = False) -> Iterator[bytes]:
    """Without end."""
    # Text and places take turns.
    templates = [
        (parts, parts[1::2])
        for template in _templates(has_new_facets=has_new_facets)
        for parts in [_PLACE.split(template)]
    ]
    time_of_event = datetime.now(UTC)
    step = timedelta(milliseconds=1)
    while True:
        # One more day of the same pipelines. Events of one run, and of its parents, still belong together.
        run = b"%08x" % random.getrandbits(32)
        day = b"20%d-%d-%d" % (random.randint(10, 99), random.randint(10, 12), random.randint(10, 28))
        values = {_RUN: run, _DAY: day}
        for template, places in templates:
            time_of_event += step
            values[_TIME] = time_of_event.isoformat(timespec="milliseconds")[:-6].encode() + b"Z"
            values[_SALT] = b"%016x" % random.getrandbits(64)
            template[1::2] = [values[place] for place in places]
            yield b"".join(template)


def requests(plan: Plan) -> list[bytes]:
    """HTTP requests, ready to be sent."""
    one_after_the_other = events(has_new_facets=plan.has_new_facets)
    head = (
        f"POST {plan.path} HTTP/1.1\r\nHost: 127.0.0.1:{plan.port}\r\n"
        "Content-Type: application/json\r\nContent-Length: "
    ).encode()
    made = []
    for _ in range(plan.requests):
        if plan.events_a_request == 1:
            body = next(one_after_the_other)
        else:
            body = b"[%b]" % b",".join([next(one_after_the_other) for _ in range(plan.events_a_request)])
        made.append(b"%b%d\r\n\r\n%b" % (head, len(body), body))
    return made


def _templates(*, has_new_facets: bool) -> list[bytes]:
    found = [event for event in corpus.all_events() if SMALLEST <= len(event) <= LARGEST]
    if not found:
        raise LoadError(f"There are no events in {corpus.ROOT}: name the folder of the corpus with CORRELATOR_CORPUS.")
    return [_template(event, has_new_facets=has_new_facets) for event in found]


def _template(event: bytes, *, has_new_facets: bool) -> bytes:
    decoded = json.loads(event)
    if has_new_facets:
        event = json.dumps(_salted(decoded), separators=(",", ":")).encode().replace(b"\\u0000s", _SALT)
    event_time: str = decoded["eventTime"]
    text = event.decode().replace(event_time, _TIME.decode())
    return _RUN_ID.sub(_RUN.decode(), text).replace(event_time[:10], _DAY.decode()).encode()


def _salted(value: object) -> object:
    """With one more member in each facet."""
    match value:
        case dict():
            salted = {key: _salted(member) for key, member in value.items()}
            return salted | {"salt": _SALT.decode()} if "_schemaURL" in salted else salted
        case list():
            return [_salted(item) for item in value]
        case _:
            return value


# Sending


def send(plan: Plan, prepared: Sequence[bytes]) -> Outcome:
    """Send until the time is over or nothing is left, and wait for the last answer."""
    poll = select.epoll()
    connections = {}
    for _ in range(plan.connections):
        connection = socket.create_connection(("127.0.0.1", plan.port), timeout=_MOST_SECONDS_OF_SILENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        connections[connection.fileno()] = connection
        poll.register(connection, select.EPOLLIN)
    try:
        return _exchange(plan, prepared, poll, connections)
    finally:
        poll.close()
        for connection in connections.values():
            connection.close()


def _exchange(  # noqa: PLR0915 (a call costs as much as half of what is done here for a request)
    plan: Plan, prepared: Sequence[bytes], poll: select.epoll, connections: dict[int, socket.socket]
) -> Outcome:
    expected = plan.expected.encode()
    unsent = itertools.cycle(prepared) if plan.may_repeat else iter(prepared)
    clock = time.perf_counter
    sent_at: dict[int, float] = {}
    rest_to_send: dict[int, memoryview] = {}
    half_answers: dict[int, bytes] = {}
    latencies: list[float] = []
    idle = list(connections)
    cpu_before = time.process_time()
    started = ended = clock()
    deadline = started + plan.seconds
    while True:
        for number in idle:
            now = clock()
            if now >= deadline or (request := next(unsent, None)) is None:
                continue
            sent_at[number] = now
            count = connections[number].send(request)
            if count < len(request):
                rest_to_send[number] = memoryview(request)[count:]
                poll.modify(number, select.EPOLLIN | select.EPOLLOUT)
        if not sent_at:
            break
        idle = []
        ready = poll.poll(_MOST_SECONDS_OF_SILENCE)
        if not ready:
            raise LoadError(f"{len(sent_at)} requests had no answer within {_MOST_SECONDS_OF_SILENCE} s.")
        for number, happened in ready:
            if happened == select.EPOLLOUT:
                rest = rest_to_send.pop(number)
                rest = rest[connections[number].send(rest) :]
                if rest:
                    rest_to_send[number] = rest
                else:
                    poll.modify(number, select.EPOLLIN)
                continue
            received = connections[number].recv(_RECEIVED_AT_ONCE)
            if not received:
                raise LoadError("The server has closed a connection that was to stay open.")
            answer = half_answers.pop(number, b"") + received
            body = answer.find(b"\r\n\r\n") + 4
            length = _LENGTH.search(answer, 0, body) if body > 3 else None
            if length is None and body > 3:
                raise LoadError(f"An answer without a length: {answer[:_QUOTED]!r}")
            if length is None or len(answer) < body + int(length[1]):
                half_answers[number] = answer
                continue
            if not answer.startswith(_OK) or answer.find(expected, body) < 0:
                raise LoadError(f"An answer without {plan.expected!r}: {answer[:_QUOTED]!r}")
            ended = clock()
            latencies.append(ended - sent_at.pop(number))
            idle.append(number)
    cpu_seconds = time.process_time() - cpu_before
    return Outcome.of(latencies, plan.events_a_request, ended - started, cpu_seconds)


# The process: in comes the plan and out goes "ready", in comes "go" and out goes the outcome, each on a line.


@contextmanager
def prepared_load(plan: Plan) -> Iterator[Callable[[], Outcome]]:
    """What starts the load and waits for its end. All requests are ready by then."""
    with prepared_process("benchmarks.load", msgspec.json.encode(plan)) as run:
        yield run


@contextmanager
def prepared_process(module: str, plan: bytes, *arguments: str) -> Iterator[Callable[[], Outcome]]:
    with subprocess.Popen(  # noqa: S603 (our own modules)
        [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told, said = process.stdin, process.stdout

        def ask(line: bytes) -> bytes:
            told.write(line + b"\n")
            told.flush()
            answer = said.readline()
            if not answer:
                raise LoadError("The load generator has given up; its reason stands above.")
            return answer

        try:
            ask(plan)
            yield lambda: msgspec.json.decode(ask(b"go"), type=Outcome)
        finally:
            process.kill()


def take_part(work: Callable[[bytes], Callable[[], Outcome]]) -> None:
    """The other side of `prepared_process`: `work` prepares itself for a plan and returns what is to be timed."""
    run = work(sys.stdin.buffer.readline())
    gc.disable()
    print("ready", flush=True)
    sys.stdin.buffer.readline()
    print(msgspec.json.encode(run()).decode(), flush=True)


def _prepare(written: bytes) -> Callable[[], Outcome]:
    plan = msgspec.json.decode(written, type=Plan)
    prepared = requests(plan)

    def run() -> Outcome:
        try:
            return send(plan, prepared)
        except (LoadError, OSError) as error:
            sys.exit(f"{plan.path}, {plan.connections} connections: {error}")

    return run


if __name__ == "__main__":
    take_part(_prepare)
