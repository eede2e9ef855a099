"""`correlator validate` as its users meet it: in a shell, in a pipe, on a terminal, in a program."""

import gzip
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from correlator import __version__
from correlator.cli import event_files, report, validate
from correlator.cli.main import COMMANDS, main
from correlator.rulebook.problems import Problem

CORRELATOR = (sys.executable, "-m", "correlator.cli.main")
# As a shell starts it: what runs the tests may be deaf to Ctrl-C, and its children would be too.
WITH_CTRL_C = (
    sys.executable,
    "-c",
    """if True:
    import signal
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from correlator.cli.main import main
    main(prog_name="correlator")
    """,
)
# One that draws its bar at once and at every turn, so that no test needs an input that is long on every machine.
IMPATIENT = (
    sys.executable,
    "-c",
    """if True:
    from correlator.cli import screen
    screen._FIRST_SHOWN_AFTER = screen._SHOWN_EVERY = 0
    from correlator.cli.main import main
    main(prog_name="correlator")
    """,
)
SPEC = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
DBT, SPARK = "https://example.com/dbt", "https://example.com/spark"
PATIENCE = 30


def event(**changes: Any) -> dict[str, Any]:
    whole = {
        "eventTime": "2026-01-01T10:00:00Z",
        "eventType": "COMPLETE",
        "producer": DBT,
        "schemaURL": SPEC,
        "run": {"runId": "0192b0c4-6f1e-7a3b-8c5d-0123456789ab"},
        "job": {"namespace": "shop", "name": "orders"},
    }
    return {key: value for key, value in (whole | changes).items() if value is not None}


def line(**changes: Any) -> str:
    return json.dumps(event(**changes)) + "\n"


NAMELESS = {"job": {"namespace": "shop"}}
ODD_RUN = {"run": {"runId": "no-uuid"}}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str | bytes], str]:
    """Writes a file into an empty working directory, so that files are called by short names."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, content: str | bytes) -> str:
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    return write


Write = Callable[[str, str | bytes], str]


def run(*arguments: str, standard_input: str | bytes | None = None) -> Result:
    result = CliRunner().invoke(main, ["validate", *arguments], input=standard_input)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def objects(result: Result) -> list[dict[str, Any]]:
    return [json.loads(text) for text in result.stdout.splitlines()]


def places(result: Result) -> list[tuple[int, int | None, bool]]:
    """Line, index and verdict of each event that `--json` printed."""
    return [(found["line"], found.get("index"), found["valid"]) for found in objects(result)]


def lines_of_events(result: Result) -> list[str]:
    return result.stdout.partition("\n\n")[0].splitlines()


# --- what is told of an event ---


def test_every_event_gets_a_line(write: Write) -> None:
    result = run(write("orders.jsonl", line() + line(**NAMELESS) + line()))
    assert lines_of_events(result) == [
        "orders.jsonl:1 ok",
        "orders.jsonl:2 invalid  job.name is required [required]",
        "orders.jsonl:3 ok",
    ]


def test_several_errors_and_warnings_stand_below_their_event(write: Write) -> None:
    result = run(write("orders.jsonl", line(**NAMELESS, **ODD_RUN, producer=None) + line(**ODD_RUN)))
    assert lines_of_events(result) == [
        "orders.jsonl:1 invalid  2 errors, 1 warning",
        "    error    producer is required [required]",
        "    error    job.name is required [required]",
        "    warning  run.runId: 'no-uuid' is not a UUID [format_uuid]",
        "orders.jsonl:2 ok  1 warning",
        "    warning  run.runId: 'no-uuid' is not a UUID [format_uuid]",
    ]


def test_quiet_leaves_out_the_events_without_errors(write: Write) -> None:
    result = run("-q", write("orders.jsonl", line() + line(**ODD_RUN) + line(**NAMELESS)))
    assert lines_of_events(result) == ["orders.jsonl:3 invalid  job.name is required [required]"]
    assert "3 events: 2 valid, 1 invalid, 1 with warnings" in result.stdout


def test_quiet_and_nothing_wrong_leaves_only_the_summary(write: Write) -> None:
    assert run("--quiet", write("orders.jsonl", line())).stdout.startswith("1 event: 1 valid, 0 invalid\n")


def test_policy_spec_gives_the_verdict_of_the_official_schemas(write: Write) -> None:
    name = write("orders.jsonl", line(eventType=None))
    assert run("--policy", "spec", name).exit_code == 0
    assert run("--policy", "correlator", name).exit_code == 1
    assert run(name).exit_code == 1


def test_formats_are_warned_of_or_enforced(write: Write) -> None:
    name = write("orders.jsonl", line(**ODD_RUN))
    assert run("--formats", "warn", name).exit_code == 0
    assert run(name).exit_code == 0
    assert run("--formats", "enforce", name).exit_code == 1


def test_a_name_that_would_move_the_cursor_is_made_harmless(write: Write) -> None:
    result = run(write("a\x1b[2Jb.jsonl", line(producer="x:\x1b[2J")))
    assert "\x1b" not in result.stdout
    assert result.stdout.startswith("a\N{REPLACEMENT CHARACTER}[2Jb.jsonl:1 ok")


# --- the summary ---


def test_the_summary_counts_by_producer_and_by_rule(write: Write) -> None:
    text = line(producer=SPARK) * 2 + line(producer=SPARK, **ODD_RUN) + line(**NAMELESS) + line(producer=None) + "{\n"
    result = run(write("orders.jsonl", text), write("more.jsonl", line(producer=SPARK, **NAMELESS)))
    assert result.stdout.partition("\n\n")[2].splitlines() == [
        "7 events: 3 valid, 4 invalid, 1 with warnings",
        "",
        "events  valid  invalid  with warnings  producer",
        "     4      3        1              1  https://example.com/spark",
        "     2      0        2              0  (no producer)",
        "     1      0        1              0  https://example.com/dbt",
        "",
        "errors  warnings  rule          first seen",
        "     3         0  required      orders.jsonl:4  job.name is required",
        "     1         0  invalid_json  orders.jsonl:6  the event is not JSON: it ends in the middle",
        "     0         1  format_uuid   orders.jsonl:3  run.runId: 'no-uuid' is not a UUID",
    ]


def test_the_columns_are_as_wide_as_their_numbers(write: Write) -> None:
    summary = run("-q", write("orders.jsonl", line() * 1_200)).stdout
    assert "events  valid  invalid  with warnings  producer\n 1,200  1,200        0              0  https" in summary


def test_producers_beyond_the_first_twenty_are_counted_together(write: Write) -> None:
    text = "".join(line(producer=f"https://example.com/{number:02}") for number in range(23))
    result = run("-q", write("orders.jsonl", text))
    assert "     1      1        0              0  https://example.com/19\n" in result.stdout
    assert "     3      3        0              0  (3 more producers)\n" in result.stdout


def test_what_is_counted_stays_small_when_every_event_has_its_own_producer() -> None:
    tally = report.Tally()
    for number in range(10_050):
        tally.count(f"https://example.com/{number}/{'x' * 1_000}")
    assert tally.total.events == 10_050
    assert "(10,001 more producers)" not in tally.summary(lambda text, _: text)
    assert "(other producers)" in tally.summary(lambda text, _: text)


# --- for programs ---


def test_json_prints_one_object_per_event_and_nothing_else(write: Write) -> None:
    dataset = {"job": None, "run": None, "eventType": None, "dataset": {"namespace": "s", "name": "n"}}
    job = {"run": None, "eventType": None}
    url = {"schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json"}
    text = line(**NAMELESS, **ODD_RUN) + line() + line(**dataset, **url) + line(**job, **url) + "[1]\n"
    result = run("--json", write("orders.jsonl", text), "missing.jsonl")
    warning = {
        "path": "run.runId",
        "rule": "format_uuid",
        "message": "run.runId: 'no-uuid' is not a UUID",
    }
    error = {"path": "job.name", "rule": "required", "message": "job.name is required"}
    no_object = {"path": "$", "rule": "type", "message": "the event must be a JSON object, got number"}

    def told(line: int, kind: str | None, errors: list[Any], warnings: list[Any], **index: int) -> dict[str, Any]:
        place = {"source": "orders.jsonl", "line": line, **index}
        return {**place, "kind": kind, "valid": not errors, "errors": errors, "warnings": warnings}

    expected = [
        told(1, "run", [error], [warning]),
        told(2, "run", [], []),
        told(3, "dataset", [], []),
        told(4, "job", [], []),
        told(5, None, [no_object], [], index=0),
    ]
    assert [json.dumps(found) for found in objects(result)] == [json.dumps(found) for found in expected]
    assert result.stderr == "missing.jsonl: cannot be read: there is no such file\n"


def test_json_and_quiet_print_the_invalid_events_only(write: Write) -> None:
    result = run("--json", "-q", write("orders.jsonl", line() + line(**ODD_RUN) + line(**NAMELESS)))
    assert places(result) == [(3, None, False)]


def test_the_help_documents_the_objects_and_the_exit_codes() -> None:
    result = run("--help")
    for word in (*objects(run("--json", "-", standard_input=line()))[0], "path", "rule", "message", "index"):
        assert f'"{word}"' in result.stdout
    for code in (0, 1, 2, 130):
        assert f"\n    {code} " in result.stdout


# --- exit codes ---


def test_the_exit_code_is_0_when_all_events_are_valid(write: Write) -> None:
    assert run(write("orders.jsonl", line() + line(**ODD_RUN))).exit_code == 0


def test_the_exit_code_is_1_when_an_event_is_invalid(write: Write) -> None:
    assert run(write("orders.jsonl", line() + line(**NAMELESS)), write("more.jsonl", line())).exit_code == 1


def test_an_unreadable_file_wins_over_invalid_events_and_the_others_are_still_judged(write: Write) -> None:
    Path("folder").mkdir()
    result = run("missing.jsonl", write("orders.jsonl", line(**NAMELESS)), "folder", write("more.jsonl", line()))
    assert result.exit_code == 2
    assert lines_of_events(result) == [
        "orders.jsonl:1 invalid  job.name is required [required]",
        "more.jsonl:1 ok",
    ]
    assert result.stderr.splitlines() == [
        "missing.jsonl: cannot be read: there is no such file",
        "folder: cannot be read: it is a directory; name the files in it",
    ]
    assert "2 events: 1 valid, 1 invalid, 2 inputs not fully read" in result.stdout


def test_a_file_that_may_not_be_read_is_said_to_be_so(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, _mode: str) -> io.BufferedReader:
        raise PermissionError(13, "Permission denied", name)

    monkeypatch.setattr(event_files, "open", refuse, raising=False)  # root, as in many containers, may read everything
    result = run(write("secret.jsonl", line()))
    assert result.exit_code == 2
    assert result.stderr == "secret.jsonl: cannot be read: it may not be read (permission denied)\n"


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file whose first byte cannot be read is Linux's")
def test_a_file_that_breaks_while_it_is_read_is_unreadable() -> None:
    result = run("/proc/self/mem")
    assert result.exit_code == 2
    assert result.stderr == "/proc/self/mem: cannot be read: input/output error\n"


def test_no_file_at_all_is_wrong_usage() -> None:
    result = run()
    assert result.exit_code == 2
    assert "Missing argument 'FILE…'" in result.stderr


@pytest.mark.parametrize("content", [b"", b"\n \r\n\n", b"[]", b"[\n]\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_an_input_without_events_is_said_to_have_none_and_is_fine(write: Write, content: bytes) -> None:
    result = run(write("empty", content))
    assert result.exit_code == 0
    assert result.stderr == "empty: there are no events in it\n"
    assert result.stdout == "no events\n"


# --- what a file can be ---


@pytest.mark.parametrize(
    "text",
    [
        line() + "\n  \n" + line(),
        (line() + "\n\n" + line()).replace("\n", "\r\n"),
        "\ufeff" + line() + "\n\n" + line().rstrip(),
        "\n\n" + line() + line(),
    ],
    ids=["blank lines", "CRLF", "byte order mark, no newline at the end", "blank lines first"],
)
def test_json_lines_may_be_written_in_many_ways(write: Write, text: str) -> None:
    result = run("--json", write("orders", text))
    assert result.exit_code == 0
    wanted = [number for number, each in enumerate(text.splitlines(), start=1) if each.strip()]
    assert places(result) == [(number, None, True) for number in wanted]


def test_a_broken_line_costs_only_itself(write: Write) -> None:
    result = run("--json", write("orders.jsonl", line() + line()[:80] + "\n" + "hello\n" + "\x00\n" + line()))
    assert places(result) == [(1, None, True), *((number, None, False) for number in (2, 3, 4)), (5, None, True)]


@pytest.mark.parametrize("cut", [10, 50, 60, 80, 100, 150])
def test_even_if_it_is_the_first(write: Write, cut: int) -> None:
    result = run("--json", write("orders.jsonl", line()[:cut] + "\n\n" + line() * 2))
    assert places(result) == [(1, None, False), (3, None, True), (4, None, True)]


@pytest.mark.parametrize("odd", [line()[:90] + "\n", "hello\n", "[]\n", "{}\n"])
def test_and_even_if_others_that_are_broken_follow_it(write: Write, odd: str) -> None:
    found = objects(run("--json", write("orders.jsonl", line()[:100] + "\n" + odd + line() * 3)))

    assert [each["line"] for each in found if each["valid"]] == [3, 4, 5]
    assert found[0]["line"] == 1


def test_a_document_may_have_an_object_in_a_line_of_its_own(write: Write) -> None:
    for text in ("[\n{0}\n]", "[\n{0},\n{0}]", '{{"a":\n{0}\n}}', '{{"a":\n{0}}}', "[\n\n{0}\n\n, {0}]"):
        found = objects(run("--json", write("orders.json", text.format(line().strip()))))
        assert not [each for each in found if each["errors"] and each["errors"][0]["rule"] == "invalid_json"]


def test_lines_that_are_no_json_at_all_get_a_line_each(write: Write) -> None:
    assert places(run("--json", write("orders.csv", "id;name\n1;a\n"))) == [(1, None, False), (2, None, False)]


def test_one_event_over_many_lines_is_one_event(write: Write) -> None:
    result = run("--json", write("event.json", "\n" + json.dumps(event(), indent=4)))
    assert places(result) == [(2, None, True)]


def test_several_documents_over_many_lines_are_as_many_events(write: Write) -> None:
    text = "\n".join(json.dumps(each, indent=2) for each in (event(), event(**NAMELESS), event()))
    result = run("--json", write("events.json", text))
    height = len(json.dumps(event(), indent=2).splitlines())
    assert places(result) == [(1, None, True), (1 + height, None, False), (2 * height, None, True)]


def test_an_array_holds_an_event_per_element(write: Write) -> None:
    result = run(write("events.json", json.dumps([event(), event(**NAMELESS), 3], indent=2)))
    height = len(json.dumps(event(), indent=2).splitlines())
    assert lines_of_events(result) == [
        "events.json:2[0] ok",
        f"events.json:{2 + height}[1] invalid  job.name is required [required]",
        f"events.json:{2 * height + 1}[2] invalid  the event must be a JSON object, got number [type]",
    ]


def test_an_array_may_stand_in_one_line(write: Write) -> None:
    result = run("--json", write("events.json", json.dumps([event(), event(**NAMELESS)])))
    assert places(result) == [(1, 0, True), (1, 1, False)]


def test_lines_may_be_arrays(write: Write) -> None:
    batch = json.dumps([event(), event()]) + "\n"
    result = run("--json", write("batches.jsonl", batch + "[]\n" + line() + " " + batch))
    assert places(result) == [(1, 0, True), (1, 1, True), (3, None, True), (4, 0, True), (4, 1, True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[\n{0},\n]", [(2, 0, True), (3, 1, False)]),
        ("[\n{0}\n{0}]", [(2, 0, False)]),
        ("[\n{0},\n{0}", [(2, 0, True), (3, 1, True), (1, None, False)]),
        ('[\n{0},\n{{"a": [', [(2, 0, True), (3, 1, False)]),
        ("[\n{0},", [(2, 0, True), (1, None, False)]),
        ("[\n{0}}},\n{0}]", [(2, 0, False), (2, None, False), (3, None, True), (3, None, False)]),
        ("[\n{0}] and\n {0}", [(2, 0, True), (2, None, False), (3, None, True)]),
        ('[\n{{"forgotten: 1}},\n{0}]', [(2, 0, False), (1, None, False)]),
    ],
    ids=[
        "comma too many",
        "comma missing",
        "no end",
        "no end of an element",
        "no end after a comma",
        "bracket too many",
        "something behind it",
        "a quotation mark missing",
    ],
)
def test_a_broken_array_is_noticed_and_its_sound_elements_are_judged(
    write: Write, text: str, expected: list[tuple[int, int | None, bool]]
) -> None:
    result = run("--json", write("events.json", text.format(line().strip())))
    assert places(result) == expected
    assert result.exit_code == 1


def test_gzip_is_known_by_its_content_and_not_by_its_name(write: Write) -> None:
    packed = gzip.compress(line().encode()) + gzip.compress(line().encode())
    assert places(run("--json", write("orders.txt", packed))) == [(1, None, True), (2, None, True)]
    assert places(run("--json", write("orders.gz", line()))) == [(1, None, True)]
    pretty = gzip.compress(json.dumps([event()], indent=1).encode())
    assert places(run("--json", write("orders.json", pretty))) == [(2, 0, True)]


def test_what_a_truncated_gzip_file_still_holds_is_judged(write: Write) -> None:
    text = "".join(line(run={"runId": os.urandom(8).hex()}) for _ in range(2_000))
    packed = gzip.compress(text.encode())
    result = run("--json", write("orders.gz", packed[: len(packed) // 2]))
    judged = len(objects(result))
    assert 800 < judged < 1_200
    assert result.exit_code == 2
    assert result.stderr == f"orders.gz, after line {judged:,}: cannot be read: the gzip file is truncated\n"


def test_a_damaged_gzip_file_is_unreadable(write: Write) -> None:
    packed = bytearray(gzip.compress(line().encode()))
    packed[-6] ^= 0xFF
    result = run(write("orders.gz", bytes(packed)))
    assert result.exit_code == 2
    assert "orders.gz, after line 1: cannot be read: the gzip file is damaged (CRC check failed" in result.stderr


@pytest.mark.parametrize(
    ("magic", "name"), [(b"PAR1", "Parquet"), (b"\x28\xb5\x2f\xfd", "compressed with zstd"), (b"BZh9", "with bzip2")]
)
def test_a_file_of_another_format_is_called_by_its_name(write: Write, magic: bytes, name: str) -> None:
    result = run(write("orders", magic + b"\x00\n" * 10))
    assert result.exit_code == 2
    assert name in result.stderr
    assert result.stdout == "nothing could be read\n"


def test_a_dash_is_standard_input() -> None:
    for text in (line().encode(), gzip.compress(line().encode()), json.dumps(event(), indent=2).encode()):
        result = run("-", standard_input=text)
        assert lines_of_events(result) == ["<stdin>:1 ok"]
        assert result.exit_code == 0


# --- too large ---


def large(**changes: Any) -> dict[str, Any]:
    return event(remark="x" * 5_000, **changes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (line() + json.dumps(large()) + "\n" + line(), [(1, None, True), (2, None, False), (3, None, True)]),
        (json.dumps(large()) + "\n" + line(), [(1, None, False), (2, None, True)]),
        (line() + json.dumps(large()), [(1, None, True), (2, None, False)]),
        (json.dumps([event(), large(), event()]), [(1, 0, True), (1, 1, False), (1, 2, True)]),
        (json.dumps([large(), event()], indent=0), [(2, 0, False), (16, 1, True)]),
        (json.dumps(large(), indent=0) + "\n" + json.dumps(event(), indent=0), [(1, None, False), (15, None, True)]),
    ],
    ids=["line", "first line", "last line", "in an array", "first of an array", "document"],
)
def test_an_event_beyond_the_limit_is_not_judged_and_the_rest_is(
    write: Write, text: str, expected: list[tuple[int, int | None, bool]]
) -> None:
    result = run("--json", "--max-bytes", "1000", write("orders", text))
    assert places(result) == expected
    errors = [found["errors"] for found in objects(result) if not found["valid"]]
    message = "the event is larger than 1,000 bytes, the limit of --max-bytes"
    assert errors == [[{"path": "$", "rule": "too_large", "message": message}]]
    assert result.exit_code == 2


def test_the_limit_itself_is_allowed(write: Write) -> None:
    name = write("orders.jsonl", line() * 2)
    assert run("--max-bytes", str(len(line()) - 1), name).exit_code == 0
    assert run("--max-bytes", str(len(line()) - 2), name).exit_code == 2


def test_an_array_may_be_larger_than_the_limit_of_an_event(write: Write) -> None:
    name = write("orders.json", json.dumps([event()] * 5_000))
    assert run("-q", "--max-bytes", "1000", name).exit_code == 0


# --- where one event ends and the next begins, in general ---

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers(-5, 5) | st.text('ab"\\{}[],:\n\u00e9', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a"{[\\', max_size=3), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text("abc", max_size=2), VALUES, min_size=1, max_size=4)


class Drip(io.RawIOBase):
    """A text that comes in pieces of a few bytes."""

    def __init__(self, text: bytes, size: int) -> None:
        self._text = io.BytesIO(text)
        self._size = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._text.readinto(buffer[: self._size])


def found_in(text: str, size: int) -> list[tuple[int, int | None, Any]]:
    stream = io.BufferedReader(Drip(text.encode(), size), size)
    found = event_files.events_in(stream, validate.MAX_BYTES)
    return [(line, index, json.loads(text)) for line, index, text in found if isinstance(text, bytes)]


@settings(deadline=None)  # the machine may have other work
@given(st.lists(VALUES, min_size=1, max_size=5), st.sampled_from([None, 0, 2]), st.integers(1, 40))
def test_an_array_is_cut_into_its_elements_however_it_is_written(
    values: list[Any], indent: int | None, size: int
) -> None:
    found = found_in(json.dumps(values, indent=indent), size)
    assert [(index, value) for _, index, value in found] == list(enumerate(values))


@settings(deadline=None)
@given(st.lists(OBJECTS, min_size=1, max_size=5), st.sampled_from([None, 0, 2]), st.integers(1, 40))
def test_documents_are_told_apart_however_they_are_written(values: list[Any], indent: int | None, size: int) -> None:
    texts = [json.dumps(value, indent=indent, ensure_ascii=False) for value in values]
    lines = [1 + sum(text.count("\n") + 1 for text in texts[:index]) for index in range(len(texts))]
    assert found_in("\n".join(texts), size) == [(line, None, value) for line, value in zip(lines, values, strict=True)]


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text('{}[]",\\\n ab', max_size=60).map(str.encode), st.integers(1, 40))
def test_no_input_breaks_the_reader_and_nothing_of_it_goes_unnoticed(text: bytes, size: int) -> None:
    stream = io.BufferedReader(Drip(text, size), size)
    found = list(event_files.events_in(stream, max_bytes=50))
    assert bool(found) >= bool(text.removeprefix(b"\xef\xbb\xbf").translate(None, b" \n\r\t\v\f[]"))
    for _, _, piece in found:
        assert isinstance(piece, Problem) or piece.strip() in text


# --- in a shell ---


def shell(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*CORRELATOR, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, **options)  # noqa: S603


def test_it_runs_as_a_program(write: Write) -> None:
    done = shell("validate", write("orders.jsonl", line() + line(**NAMELESS)))
    assert done.returncode == 1
    assert done.stdout.splitlines()[:2] == [
        "orders.jsonl:1 ok",
        "orders.jsonl:2 invalid  job.name is required [required]",
    ]
    assert done.stderr == ""


def test_without_a_terminal_there_are_no_colours_and_no_bar(write: Write) -> None:
    done = shell("validate", write("orders.jsonl", line() * 30_000))
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stderr == ""


def test_a_reader_that_goes_away_is_no_reason_for_a_traceback(write: Write) -> None:
    name = write("orders.jsonl", line() * 30_000)
    with subprocess.Popen(  # noqa: S603
        [*CORRELATOR, "validate", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as head:
        assert head.stdout is not None
        assert head.stderr is not None
        assert [head.stdout.readline() for _ in range(3)] == [f"orders.jsonl:{number} ok\n" for number in (1, 2, 3)]
        head.stdout.close()
        assert head.stderr.read() == ""
        assert head.wait(PATIENCE) == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_said_in_words(write: Write) -> None:
    name = write("orders.jsonl", line())
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(  # noqa: S603
            [*CORRELATOR, "validate", name], stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE, check=False
        )
    assert done.stderr == b"the results cannot be written: no space left on device\n"
    assert done.returncode == 2


def test_standard_input_that_is_closed_is_unreadable() -> None:
    done = shell("validate", "-", preexec_fn=lambda: os.close(0))
    assert done.returncode == 2
    assert done.stderr == "<stdin>: cannot be read: it is closed\n"


def test_events_are_told_as_they_come_and_ctrl_c_ends_with_the_summary_so_far() -> None:
    with subprocess.Popen(  # noqa: S603
        [*WITH_CTRL_C, "validate", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watched:
        assert watched.stdin is not None
        assert watched.stdout is not None
        watched.stdin.write(line() + line(**NAMELESS))
        watched.stdin.flush()
        assert watched.stdout.readline() == "<stdin>:1 ok\n"
        assert watched.stdout.readline() == "<stdin>:2 invalid  job.name is required [required]\n"
        watched.send_signal(signal.SIGINT)
        told, complaints = watched.communicate(timeout=PATIENCE)
    assert watched.returncode == 130
    assert "2 events: 1 valid, 1 invalid\n" in told
    assert complaints == "interrupted; so far:\n"


# --- on a terminal ---


class Terminal:
    """A terminal with somebody at it."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        self.seen = ""

    def watch(self, until: Callable[[str], bool]) -> None:
        """Read what appears until it is there; what is not there in time fails the test."""
        deadline = time.monotonic() + PATIENCE
        while not until(self.seen):
            ready, _, _ = select.select([self._ours], [], [], max(deadline - time.monotonic(), 0))
            assert ready, self.seen
            self.seen += os.read(self._ours, 65_536).decode()

    def close(self) -> None:
        os.close(self.theirs)
        # What is left. Linux answers EIO where others answer an end.
        with suppress(OSError):
            while more := os.read(self._ours, 65_536):
                self.seen += more.decode()
        os.close(self._ours)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    try:
        opened = Terminal()
    except OSError as error:
        pytest.skip(f"no terminal is to be had here: {error}")
    yield opened
    with suppress(OSError):
        opened.close()


ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")} | {
    "TERM": "xterm",
    "COLUMNS": "100",
}


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def start(
        *arguments: str, stdout: int, stderr: int, program: tuple[str, ...] = CORRELATOR, **environment: str
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603
            [*program, "validate", *arguments],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            env=ENVIRONMENT | environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def give(process: subprocess.Popen[bytes], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text.encode())
    process.stdin.flush()


def end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(PATIENCE) == 0


CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\r")


def test_a_terminal_that_watches_long_input_sees_a_bar_below_the_lines(terminal: Terminal, start: Start) -> None:
    process = start("-", stdout=terminal.theirs, stderr=terminal.theirs)
    give(process, line())
    terminal.watch(lambda seen: "<stdin>:1" in seen)
    assert "events/s" not in terminal.seen  # not long yet
    number = 1
    while "events/s" not in terminal.seen:
        time.sleep(0.1)
        number += 1
        give(process, line())
        terminal.watch(lambda seen, number=number: f"<stdin>:{number} " in seen)  # type: ignore[misc]
    give(process, line() * 10)
    end(process)
    terminal.close()
    seen = CONTROL.sub("", terminal.seen)
    for each in range(1, number + 11):
        assert f"<stdin>:{each} ok\n" in seen
    assert "━" in seen
    assert f"{number + 10} events: {number + 10} valid" in seen.rpartition("events/s")[2]


def test_the_bar_stays_away_from_lines_that_go_elsewhere(terminal: Terminal, start: Start, tmp_path: Path) -> None:
    path = tmp_path / "told"
    with path.open("wb") as told:
        process = start("-", stdout=told.fileno(), stderr=terminal.theirs)
        while "events/s" not in terminal.seen:
            give(process, line())
            time.sleep(0.1)
            ready, _, _ = select.select([terminal._ours], [], [], 0)  # noqa: SLF001
            if ready:
                terminal.watch(lambda seen: "events/s" in seen)
        end(process)
    terminal.close()
    assert "<stdin>" not in terminal.seen
    assert "\x1b" not in path.read_text()
    assert path.read_text().startswith("<stdin>:1 ok\n<stdin>:2 ok\n")


def test_a_file_has_its_share_and_the_time_left_on_the_bar(terminal: Terminal, start: Start, tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_text(line() * 10_000)
    process = start("-q", str(path), stdout=terminal.theirs, stderr=terminal.theirs, program=IMPATIENT)
    terminal.watch(lambda seen: "10,000 events: 10,000 valid" in seen)
    share = r" \d+% \d\.\d/2\.\d MB [0-9,]+ events/s [-\d]:[-\d]{2}:[-\d]{2}"
    assert len(re.findall(share, CONTROL.sub("", terminal.seen))) > 3
    end(process)


@pytest.mark.parametrize(("no_color", "ok"), [("", "\x1b[32mok\x1b[0m"), ("1", "ok")])
def test_a_terminal_gets_colours_unless_it_wants_none(terminal: Terminal, start: Start, no_color: str, ok: str) -> None:
    process = start("-", stdout=terminal.theirs, stderr=terminal.theirs, NO_COLOR=no_color)
    give(process, line())
    terminal.watch(lambda seen: f"<stdin>:1 {ok}" in seen)
    end(process)


# --- the door ---


def test_help_and_version_import_no_command() -> None:
    program = (
        "import sys; from correlator.cli.main import main; main(['--help'], standalone_mode=False); "
        "main(['--version'], standalone_mode=False); "
        "print([name for name in sys.modules if name.startswith(('correlator.rulebook', 'rich'))])"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert f"correlator, version {__version__}\n[]\n" in done.stdout
    assert "validate   Judge the OpenLineage events in files." in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_is_listed_exists(name: str) -> None:
    assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0


def test_a_command_that_does_not_exist_is_wrong_usage() -> None:
    result = CliRunner().invoke(main, ["explode"])
    assert result.exit_code == 2
    assert "No such command 'explode'" in result.stderr
