"""Forwarding: in order, until it succeeds, and never past an event that nobody has answered for."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from correlator.proxy.buffer import Buffer, Dropped, Limits, Position
from correlator.proxy.clock import Clock
from correlator.proxy.consumer import Consumer, Habits
from correlator.proxy.dead_letters import DeadLetters
from correlator.proxy.destinations import ACCEPTED, Later, Refused, Result
from correlator.proxy.failed_events import FailedEvent, FailedEvents, SqliteHandler
from correlator.proxy.writer import Unwritable, Writer
from tests.unit.proxy.buffers import SetClock, wait_until

REFUSED = Refused("not wanted", 422, "no")
AWAY = Later("it is away")


class Scripted:
    """A destination that answers as a test says, and remembers what it has accepted."""

    def __init__(self, answer: Callable[["Scripted", Sequence[bytes]], Sequence[Result]] | None = None) -> None:
        self.answer = answer or (lambda _, events: [ACCEPTED] * len(events))
        self.calls: list[list[bytes]] = []
        self.accepted: list[bytes] = []
        self.called = threading.Semaphore(0)

    def send(self, events: Sequence[bytes]) -> Sequence[Result]:
        self.calls.append(list(events))
        results = self.answer(self, events)
        self.accepted += [event for event, result in zip(events, results, strict=True) if result is ACCEPTED]
        self.called.release()
        return results

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


class Place:
    """A buffer with its writer and consumers, as the proxy has them."""

    def __init__(self, directory: Path, destinations: dict[str, Scripted], clock: Clock, **options: object) -> None:
        on_refusal = options.pop("on_refusal", "park")
        handler = options.pop("handler", None)
        self.letters = DeadLetters(directory)
        handlers = [("sqlite", handler or SqliteHandler(self.letters))]
        self.failed = FailedEvents(handlers, self.letters)  # type: ignore[arg-type]  # whatever a test wants to try
        self.buffer = Buffer(directory, Limits(**options), clock)  # type: ignore[arg-type]
        self.dropped: list[Dropped] = []
        self.writer = Writer(self.buffer, list(destinations), on_dropped=self._drop, collect_seconds=0.05)
        habits = Habits(most_events=4, first_pause=0.001, longest_pause=0.01, on_refusal=on_refusal)  # type: ignore[arg-type]
        self.consumers = {
            name: Consumer(name, destination, self.writer, self.failed, habits, clock=clock.wall)
            for name, destination in destinations.items()
        }

    def _drop(self, dropped: Sequence[Dropped]) -> None:
        self.dropped += dropped
        for each in dropped:
            for consumer in self.consumers.values():
                consumer.missed(each.partition)

    def start(self) -> None:
        self.failed.start()
        self.writer.start(lambda work: work())
        for consumer in self.consumers.values():
            consumer.start()

    def stop(self) -> None:
        for consumer in self.consumers.values():
            consumer.stop()
            consumer.join()
        self.writer.stop()
        self.failed.stop()

    def put(self, *events: bytes) -> None:
        """On disk when it returns."""
        told = threading.Event()
        outcomes: list[Exception | None] = []

        def tell(outcome: Exception | None) -> None:
            outcomes.append(outcome)
            told.set()

        self.writer.hand_over(events, tell)
        assert told.wait(30)
        assert outcomes == [None]

    def wait_until_forwarded(self) -> None:
        wait_until(lambda: all(each.lag_events == 0 for each in self.consumers.values()), "all is forwarded")


@contextmanager
def place(directory: Path, clock: Clock | None = None, /, **given: object) -> Iterator[Place]:
    destinations = {name: each for name, each in given.items() if isinstance(each, Scripted)}
    options = {name: each for name, each in given.items() if not isinstance(each, Scripted)}
    made = Place(directory, destinations, clock or Clock(), **options)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def numbered(*numbers: int) -> list[bytes]:
    return [f'{{"n":{number}}}'.encode() for number in numbers]


def test_events_are_forwarded_in_order_across_partitions(tmp_path: Path) -> None:
    prod = Scripted()
    with place(tmp_path, prod=prod, partition_bytes=50) as made:
        for number in range(100):
            made.put(*numbered(number))
        made.wait_until_forwarded()
    assert prod.accepted == numbered(*range(100))


def test_a_destination_that_comes_back_gets_everything_in_order(tmp_path: Path) -> None:
    is_away = threading.Event()
    is_away.set()
    prod = Scripted(lambda _, events: [AWAY if is_away.is_set() else ACCEPTED] * len(events))
    with place(tmp_path, prod=prod) as made:
        made.put(*numbered(*range(20)))
        for _ in range(3):
            assert prod.called.acquire(timeout=30)
        assert made.consumers["prod"].state == "retrying"
        assert made.consumers["prod"].lag_events == 20
        assert made.consumers["prod"].lag_seconds > 0
        is_away.clear()
        made.wait_until_forwarded()
        wait_until(lambda: made.consumers["prod"].state == "ok", "it is well again")
        assert made.consumers["prod"].tally.retried
    assert prod.accepted == numbered(*range(20))


def test_one_destination_that_is_away_does_not_hold_the_others(tmp_path: Path) -> None:
    away, there = Scripted(lambda _, events: [AWAY] * len(events)), Scripted()
    with place(tmp_path, away=away, there=there) as made:
        made.put(*numbered(*range(50)))
        wait_until(lambda: len(there.accepted) == 50, "the other has all")
        assert made.consumers["away"].lag_events == 50
    assert there.accepted == numbered(*range(50))


def test_a_new_start_goes_on_at_the_checkpoint_and_loses_nothing(tmp_path: Path) -> None:
    first, second = Scripted(), Scripted()
    with place(tmp_path, prod=first, partition_bytes=50) as made:
        made.put(*numbered(*range(30)))
        made.wait_until_forwarded()
    with place(tmp_path, prod=second, partition_bytes=50) as made:
        made.put(*numbered(30, 31))
        made.wait_until_forwarded()
    assert first.accepted == numbered(*range(30))
    assert second.accepted == numbered(30, 31)


def test_of_a_batch_only_what_has_to_wait_is_sent_again_and_before_anything_else(tmp_path: Path) -> None:
    def answer(scripted: Scripted, events: Sequence[bytes]) -> Sequence[Result]:
        if len(scripted.calls) == 1:
            return [ACCEPTED, AWAY, ACCEPTED, AWAY]
        return [ACCEPTED] * len(events)

    prod = Scripted(answer)
    with place(tmp_path, prod=prod) as made:
        made.put(*numbered(0, 1, 2, 3, 4, 5))
        made.wait_until_forwarded()
    assert prod.calls == [numbered(0, 1, 2, 3), numbered(1, 3), numbered(4, 5)]


def test_the_checkpoint_never_passes_an_event_that_was_not_answered(tmp_path: Path) -> None:
    def answer(scripted: Scripted, events: Sequence[bytes]) -> Sequence[Result]:
        return [ACCEPTED, AWAY, ACCEPTED, ACCEPTED] if len(scripted.calls) == 1 else [AWAY] * len(events)

    prod = Scripted(answer)
    with place(tmp_path, prod=prod) as made:
        made.put(*numbered(0, 1, 2, 3))
        for _ in range(3):
            assert prod.called.acquire(timeout=30)
        assert made.consumers["prod"].position == Position(1, 1)
    again = Scripted()
    with place(tmp_path, prod=again) as made:
        made.wait_until_forwarded()
    assert again.accepted == numbered(1, 2, 3)


def test_what_is_refused_for_good_is_handed_over_with_the_answer_and_the_queue_moves_on(tmp_path: Path) -> None:
    prod = Scripted(lambda _, events: [REFUSED if int(event[5:-1]) % 10 == 0 else ACCEPTED for event in events])
    with place(tmp_path, prod=prod) as made:
        made.put(*numbered(*range(40)))
        made.wait_until_forwarded()
        letters = [(letter, raw) for letter, raw in made.letters.waiting(None)]
        assert [raw for _, raw in letters] == numbered(0, 10, 20, 30)
        assert {(each.destination, each.status, each.reason, each.answer) for each, _ in letters} == {
            ("prod", 422, "not wanted", "no")
        }
        assert made.consumers["prod"].tally.failed == 4
        assert made.consumers["prod"].tally.sent == 36
    assert prod.accepted == [event for event in numbered(*range(40)) if event not in numbered(0, 10, 20, 30)]


def test_on_refusal_block_tries_for_ever_and_moves_on_when_it_is_wanted(tmp_path: Path) -> None:
    is_wanted = threading.Event()
    prod = Scripted(lambda _, events: [ACCEPTED if is_wanted.is_set() else REFUSED] * len(events))
    with place(tmp_path, prod=prod, on_refusal="block") as made:
        made.put(*numbered(0, 1))
        for _ in range(4):
            assert prod.called.acquire(timeout=30)
        assert made.consumers["prod"].state == "misdirected"
        assert made.consumers["prod"].lag_events == 2
        is_wanted.set()
        made.wait_until_forwarded()
    assert prod.accepted == numbered(0, 1)


def test_an_event_that_no_handler_takes_stays_in_the_queue(tmp_path: Path) -> None:
    class Unwilling:
        is_willing = False
        kept: tuple[bytes, ...] = ()

        def handle(self, events: Sequence[FailedEvent]) -> None:
            if not self.is_willing:
                raise OSError("no room")
            self.kept += tuple(event.raw for event in events)

    handler = Unwilling()
    prod = Scripted(lambda _, events: [REFUSED] * len(events))
    with place(tmp_path, prod=prod, handler=handler) as made:
        made.letters.add = handler.handle  # type: ignore[method-assign]  # the disk is full for the dead letters too
        made.put(*numbered(0))
        for _ in range(3):
            assert prod.called.acquire(timeout=30)
        assert made.consumers["prod"].lag_events == 1
        handler.is_willing = True
        made.wait_until_forwarded()
    assert handler.kept == tuple(numbered(0))


def test_a_consumer_whose_partition_was_dropped_goes_on_at_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    is_away = threading.Event()
    is_away.set()
    prod = Scripted(lambda _, events: [AWAY if is_away.is_set() else ACCEPTED] * len(events))
    with place(tmp_path, prod=prod, partition_bytes=40, retention_bytes=120) as made:
        for number in range(40):
            made.put(*numbered(number))
        wait_until(lambda: not made.buffer.is_over_its_size, "the oldest partitions are dropped")
        wait_until(
            lambda: made.consumers["prod"].lag_events + made.consumers["prod"].tally.dropped == 40, "all is told"
        )
        is_away.clear()
        made.wait_until_forwarded()
        tally = made.consumers["prod"].tally
        # Nothing is lost without being counted, and nothing is counted that was not lost.
        assert tally.dropped + tally.sent == 40
        assert tally.dropped > 20
    assert prod.accepted == numbered(*range(40))[-len(prod.accepted) :]
    assert "were dropped while they waited" in caplog.text


def test_what_is_too_old_is_dropped_under_a_consumer_that_waits(tmp_path: Path) -> None:
    clock = SetClock()
    is_away = threading.Event()
    is_away.set()
    prod = Scripted(lambda _, events: [AWAY if is_away.is_set() else ACCEPTED] * len(events))
    with place(tmp_path, clock, prod=prod, retention_seconds=3600.0, partition_seconds=600.0) as made:
        made.put(*numbered(0, 1, 2))
        clock.pass_seconds(4000)
        wait_until(lambda: made.consumers["prod"].tally.dropped == 3, "the old ones are dropped and counted")
        made.put(*numbered(3))
        is_away.clear()
        made.wait_until_forwarded()
    assert prod.accepted == numbered(3)


def test_processed_partitions_are_removed_also_when_nothing_comes(tmp_path: Path) -> None:
    prod = Scripted()
    with place(tmp_path, prod=prod, partition_bytes=40) as made:
        made.put(*numbered(*range(50)))
        wait_until(lambda: len(made.writer.partitions) == 1, "only the current partition is left")
        assert made.dropped == []


def test_a_retry_after_is_honoured(tmp_path: Path) -> None:
    prod = Scripted(
        lambda scripted, events: (
            [Later("busy", retry_after=3600.0) if len(scripted.calls) == 1 else ACCEPTED] * len(events)
        )
    )
    with place(tmp_path, prod=prod) as made:
        made.put(*numbered(0))
        assert prod.called.acquire(timeout=30)
        # It would be tried again after a millisecond.
        assert not prod.called.acquire(timeout=0.3)
        assert made.consumers["prod"].reason == "busy"


def test_a_damaged_page_that_a_consumer_meets_begins_a_new_buffer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    is_away = threading.Event()
    is_away.set()
    prod = Scripted(lambda _, events: [AWAY if is_away.is_set() else ACCEPTED] * len(events))
    with place(tmp_path, prod=prod) as made:
        made.put(*[event.ljust(1000) for event in numbered(*range(500))])
        is_away.clear()
        made.wait_until_forwarded()
        is_away.set()
        made.put(*[event.ljust(1000) for event in numbered(*range(500, 1000))])
    content = bytearray((tmp_path / "buffer.db").read_bytes())
    for page in range(20 * 8192, len(content) - 8192, 8192):
        content[page : page + 64] = b"\xff" * 64
    (tmp_path / "buffer.db").write_bytes(content)
    is_away.clear()
    with place(tmp_path, prod=prod) as made:
        wait_until(lambda: "THE BUFFER IS DAMAGED" in caplog.text, "the damage is told")
        wait_until(lambda: list(tmp_path.glob("buffer.db.corrupt-*")) != [], "the file is set aside")
        made.put(b'{"n":"new"}')
        wait_until(lambda: b'{"n":"new"}' in prod.accepted, "it goes on")


def test_a_buffer_that_an_error_of_the_disk_has_closed_is_opened_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prod = Scripted()
    with place(tmp_path, prod=prod) as made:
        made.put(*numbered(0))
        # As such an error leaves it: nothing can be done with what is open.
        made.buffer._connection.close()  # noqa: SLF001
        acknowledged = []
        for number in range(1, 50):
            told: list[Exception | None] = []
            made.writer.hand_over(numbered(number), told.append)
            wait_until(lambda: bool(told), "it is answered")  # noqa: B023
            if told == [None]:
                acknowledged.append(number)
            else:
                assert isinstance(told[0], Unwritable)
        made.wait_until_forwarded()
        assert made.writer.trouble is None
    assert acknowledged[-1] == 49
    assert prod.accepted == numbered(0, *acknowledged)
    assert "Events cannot be kept" in caplog.text
