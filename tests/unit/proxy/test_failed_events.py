"""Events that fail are kept by somebody, whatever a handler does."""

import base64
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from correlator.proxy.dead_letters import DeadLetters
from correlator.proxy.failed_events import (
    FailedEvent,
    FailedEventHandler,
    FailedEvents,
    FileHandler,
    HandlerError,
    LogHandler,
    SqliteHandler,
    make_handler,
)
from correlator.rulebook.problems import Problem


def failed(raw: bytes = b'{"a":1}', **more: Any) -> FailedEvent:
    given: dict[str, Any] = {"reason": "job is required", "failed_at": 1_800_000_000.0, "stage": "request", **more}
    return FailedEvent(raw=raw, **given)


class Raising:
    def handle(self, events: Sequence[FailedEvent]) -> None:
        raise RuntimeError(f"{len(events)} are too many for me")


def kept_by(directory: Path, handlers: Sequence[FailedEventHandler], *events: FailedEvent) -> tuple[bool, list[bytes]]:
    """Whether somebody took them, and what is in the dead letters afterwards."""
    letters = DeadLetters(directory)
    all_ = FailedEvents([(type(handler).__name__, handler) for handler in handlers], letters)
    all_.start()
    is_kept = all_.hand_over(events).result(30)
    all_.stop()
    found = [raw for _, raw in letters.waiting(None)]
    letters.close()
    return is_kept, found


def test_every_handler_gets_every_event(tmp_path: Path) -> None:
    file = tmp_path / "failed.jsonl"
    letters = DeadLetters(tmp_path)
    is_kept, found = kept_by(tmp_path, [FileHandler(file), SqliteHandler(letters)], failed(), failed(b"\xff no json"))
    letters.close()
    assert is_kept
    assert found == [b'{"a":1}', b"\xff no json"]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0]["raw"] == '{"a":1}'
    assert lines[0]["reason"] == "job is required"
    assert base64.b64decode(lines[1]["raw_base64"]) == b"\xff no json"


def test_a_handler_that_raises_keeps_no_other_from_it_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "failed.jsonl"
    is_kept, found = kept_by(tmp_path, [Raising(), FileHandler(file)], failed())
    assert is_kept
    # What one did not take is in the dead letters, though nobody has asked for them.
    assert found == [b'{"a":1}']
    assert file.read_text().count("\n") == 1
    assert "1 are too many for me" in caplog.text


def test_what_nobody_at_all_can_keep_is_at_least_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("no directory")
    letters = DeadLetters(tmp_path / "file" / "below")
    all_ = FailedEvents([("raising", Raising())], letters)
    all_.start()
    assert not all_.hand_over([failed(b'{"where":"log"}'), failed(b"{}", stage="destination")]).result(30)
    all_.stop()
    assert "where" in caplog.text


def test_a_handler_that_hangs_does_not_hang_who_hands_over(tmp_path: Path) -> None:
    gate = threading.Event()

    class Hanging:
        def handle(self, events: Sequence[FailedEvent]) -> None:
            assert events
            gate.wait(30)

    all_ = FailedEvents([("hanging", Hanging())], DeadLetters(tmp_path))
    all_.start()
    futures = [all_.hand_over([failed()]) for _ in range(3)]
    assert not any(future.done() for future in futures[1:])
    gate.set()
    assert all(future.result(30) for future in futures)
    all_.stop()


def test_the_log_handler_tells_the_whole_event_and_why(caplog: pytest.LogCaptureFixture) -> None:
    LogHandler().handle([failed(b'{"b":2}')])
    assert "job is required" in caplog.text
    assert r"{\"b\":2}" in caplog.text


def test_a_full_file_is_renamed_and_the_oldest_goes(tmp_path: Path) -> None:
    file = tmp_path / "failed.jsonl"
    handler = FileHandler(file, max_bytes=500, kept=2)
    for number in range(30):
        handler.handle([failed(b"%d" % number)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["failed.jsonl", "failed.jsonl.1", "failed.jsonl.2"]
    lines = [
        json.loads(line)["raw"]
        for path in ("failed.jsonl.2", "failed.jsonl.1", "failed.jsonl")
        for line in (tmp_path / path).read_text().splitlines()
    ]
    assert lines == [str(number) for number in range(30)][-len(lines) :]
    assert all(path.stat().st_size <= 500 for path in tmp_path.iterdir())


def test_dead_letters_are_listed_newest_first_and_marked_when_driven_in_again(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path)
    problem = Problem("job", "required", "job is required")
    letters.add(
        [failed(b"one", problems=(problem,)), failed(b"two", stage="destination", destination="prod", status=422)]
    )
    assert [letter.id for letter in letters.list()] == [2, 1]
    assert [raw for _, raw in letters.waiting([1])] == [b"one"]
    letters.mark_redriven(1)
    assert [raw for _, raw in letters.waiting(None)] == [b"two"]
    assert [letter.id for letter in letters.list()] == [2]
    assert [letter.id for letter in letters.list(with_redriven=True)] == [2, 1]
    letters.close()


def test_dead_letters_have_a_limit_of_bytes_and_of_age(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, max_bytes=25)
    import time  # noqa: PLC0415

    for number in range(5):
        letters.add([failed(b"%010d" % number, failed_at=time.time())])
    assert [raw for _, raw in letters.waiting(None)] == [b"0000000003", b"0000000004"]
    assert letters.removed == 3
    letters.close()
    letters = DeadLetters(tmp_path, max_seconds=3600)
    letters.add([failed(b"old", failed_at=time.time() - 7200), failed(b"new", failed_at=time.time())])
    assert b"old" not in [raw for _, raw in letters.waiting(None)]
    letters.close()


def test_a_class_of_the_users_is_made_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[FailedEvent] = []

    class Mine:
        def handle(self, events: Sequence[FailedEvent]) -> None:
            kept.extend(events)

    module = ModuleType("my_handlers")
    module.Mine = Mine  # type: ignore[attr-defined]
    module.Useless = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_handlers", module)
    letters = DeadLetters(tmp_path)
    make_handler("my_handlers:Mine", tmp_path, letters).handle([failed()])
    assert kept == [failed()]
    for text, words in (
        ("my_handlers:Useless", "has no method `handle(events)`"),
        ("my_handlers:Missing", "cannot be made"),
        ("no_such_module:Any", "cannot be made"),
        ("nonsense", "there are log, file, sqlite and module:Class"),
        ("file;colour=red", "has no option colour"),
        ("file;keep=many", "cannot be used"),
    ):
        with pytest.raises(HandlerError) as caught:
            make_handler(text, tmp_path, letters)
        assert words in str(caught.value)


def test_the_handler_file_has_a_place_of_its_own_or_the_one_that_is_named(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path)
    make_handler("file", tmp_path, letters).handle([failed()])
    make_handler(f"file:{tmp_path}/other.jsonl;max_bytes=1MB;keep=3", tmp_path, letters).handle([failed()])
    assert (tmp_path / "failed-events.jsonl").read_text() == (tmp_path / "other.jsonl").read_text()
