"""Log lines: what they tell, that none can be forged, and that nobody waits for them."""

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from correlator.http.callers import Caller
from correlator.http.exchange import EventCounts
from correlator.http.request_log import Log, LogFormat, MessageLine, capture_logging
from tests.unit.http.requests import request


def written(path: Path) -> list[str]:
    return path.read_text().splitlines()


@contextmanager
def log_to(path: Path, log_format: LogFormat = "json", level: str = "info") -> Iterator[Log]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    log = Log(log_format, level, descriptor=descriptor)
    try:
        yield log
    finally:
        log.close()
        os.close(descriptor)


def test_a_request_is_one_json_line(tmp_path: Path) -> None:
    asked = request()
    asked.caller = Caller("airflow", frozenset({"ingest"}), 7)
    asked.events = EventCounts(3, 1, 1, 1)
    asked.bytes_in = 1234
    with log_to(tmp_path / "log") as log:
        log.request(asked, 207, 0.0123456)
    (line,) = map(json.loads, written(tmp_path / "log"))
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "correlation_id": "test-1",
        "method": "POST",
        "path": "/api/v1/lineage",
        "status": 207,
        "duration_ms": 12.346,
        "client": "127.0.0.1",
        "bytes_in": 1234,
        "key": "airflow",
        "received": 3,
        "stored": 1,
        "duplicates": 1,
        "rejected": 1,
        "logger": "correlator.request",
    }


def test_a_request_is_one_line_for_people(tmp_path: Path) -> None:
    asked = request()
    asked.events = EventCounts(1, 1, 0, 0)
    with log_to(tmp_path / "log", "console") as log:
        log.request(asked, 200, 0.001)
        log.request(asked, 503, 0.001, "unavailable")
    first, second = written(tmp_path / "log")
    assert "info    POST /api/v1/lineage 200 1.0 ms · 1 received (1 stored, 0 duplicate, 0 rejected)" in first
    assert first.endswith("[test-1]")
    assert "error   POST" in second
    assert "unavailable" in second


@pytest.mark.parametrize("log_format", ["console", "json"])
@pytest.mark.parametrize("evil", ["/\n2026-01-01 info all is well", "/\x1b[2J", "/\u2028x", "/\x85x", "/\ud800"])
def test_no_path_can_forge_a_line(tmp_path: Path, log_format: LogFormat, evil: str) -> None:
    asked = request()
    asked.path = evil
    with log_to(tmp_path / "log", log_format) as log:
        log.request(asked, 404, 0.001, "not-found")
        log.put(MessageLine(0.0, "info", "x", evil))
    raw = (tmp_path / "log").read_bytes()
    assert raw.count(b"\n") == 2
    assert b"\x1b" not in raw
    if log_format == "console":
        assert len(raw.decode().splitlines()) == 2


def test_the_level_says_what_is_told(tmp_path: Path) -> None:
    for level, told in (("info", [200, 404, 500]), ("warning", [404, 500]), ("error", [500])):
        with log_to(tmp_path / level, level=level) as log:
            for status in (200, 404, 500):
                log.request(request(), status, 0.001)
        assert [json.loads(line)["status"] for line in written(tmp_path / level)] == told


def test_a_very_long_path_is_cut(tmp_path: Path) -> None:
    asked = request()
    asked.path = "/" + "x" * 100_000
    with log_to(tmp_path / "log") as log:
        log.request(asked, 404, 0.001)
    assert (tmp_path / "log").stat().st_size < 1000


def test_many_lines_all_arrive_and_in_order(tmp_path: Path) -> None:
    with log_to(tmp_path / "log") as log:
        for number in range(15_000):
            log.put(MessageLine(0.0, "info", "x", str(number)))
    assert [int(json.loads(line)["message"]) for line in written(tmp_path / "log")] == list(range(15_000))


def test_when_nobody_reads_lines_are_dropped_counted_and_told() -> None:
    reading, writing = os.pipe()
    log = Log("json", descriptor=writing, most_pending=100)
    for number in range(50_000):
        log.put(MessageLine(0.0, "info", "x", f"{number} {'x' * 100}"))
    assert log.dropped > 0, "a full pipe stops the writer, and nobody else"
    # Now somebody reads again, until the log tells what it lost.
    lines = b""
    while b"log lines could not be written" not in lines:
        lines += os.read(reading, 65536)
        log.put(MessageLine(0.0, "info", "x", "more"))
    log.close()
    os.close(reading)
    os.close(writing)


def test_a_terminal_that_somebody_made_non_blocking_gets_every_line() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    log = Log("json", descriptor=writing)
    for number in range(5000):
        log.put(MessageLine(0.0, "info", "x", f"{number} {'x' * 100}"))
    lines = b""
    while lines.count(b"\n") < 5000:
        lines += os.read(reading, 65536)
    log.close()
    assert [int(json.loads(line)["message"].split()[0]) for line in lines.splitlines()] == list(range(5000))
    os.close(reading)
    os.close(writing)


def test_a_closed_descriptor_stops_nobody() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    log = Log("json", descriptor=writing)
    log.request(request(), 200, 0.001)
    log.close()
    assert log.dropped == 1
    os.close(writing)


def test_a_reader_that_never_comes_does_not_keep_the_process() -> None:
    reading, writing = os.pipe()
    log = Log("json", descriptor=writing)
    for _ in range(10_000):
        log.put(MessageLine(0.0, "info", "x", "x" * 100))
    log.close(timeout=0.05)
    # The writer is let go, and ends.
    while len(os.read(reading, 1 << 20)) == 1 << 20:
        pass
    os.close(reading)
    log.close()
    os.close(writing)


@contextmanager
def untouched_logging() -> Iterator[None]:
    """What `capture_logging` changes belongs to the whole process: put it back."""
    root = logging.getLogger()
    loggers = [root, *map(logging.getLogger, ("uvicorn", "uvicorn.error", "uvicorn.access"))]
    before = [(each, each.handlers[:], each.level, each.propagate, each.disabled) for each in loggers]
    shown = warnings.showwarning
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        warnings.showwarning = shown
        for each, handlers, level, propagate, disabled in before:
            each.handlers[:] = handlers
            each.setLevel(level)
            each.propagate = propagate
            each.disabled = disabled


def test_ordinary_loggers_write_through_the_same_writer(tmp_path: Path) -> None:
    with untouched_logging(), log_to(tmp_path / "log") as log:
        capture_logging(log)
        logging.getLogger("correlator.store").warning("the database is %s", "away")
        logging.getLogger("correlator.store").debug("nobody asked")
        logging.getLogger("uvicorn.access").info("this has a line already")
        try:
            raise ValueError("told\nonce")  # noqa: TRY301 - what is caught is the test
        except ValueError:
            logging.getLogger("correlator.edge").exception("failed", extra={"correlation_id": "abc"})
    first, second = map(json.loads, written(tmp_path / "log"))
    assert first["message"] == "the database is away"
    assert first["level"] == "warning"
    assert second["correlation_id"] == "abc"
    assert "ValueError: told" in second["exception"]


def test_a_traceback_for_people_is_set_in_so_that_it_is_no_line_of_the_log(tmp_path: Path) -> None:
    with log_to(tmp_path / "log", "console") as log:
        log.put(MessageLine(0.0, "error", "x", "failed", "abc", "Traceback\n  File x\nValueError: a\nb"))
    first, *rest = written(tmp_path / "log")
    assert first.endswith("x: failed [abc]")
    assert [line[:6] for line in rest] == ["    | "] * 4
