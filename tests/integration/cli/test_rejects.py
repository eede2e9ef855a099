"""`correlator rejects` as an operator types it, against a real database."""

import base64
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import uuid
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from correlator.cli.main import main
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from correlator.rulebook.problems import ROOT, Problem
from correlator.store.database import Database
from correlator.store.event_log import EventLog, Group
from correlator.store.rejects import Reject
from correlator.store.retention import cap_rejects
from tests.integration.cli.command import PATIENCE, correlator
from tests.integration.events import run_event

ONCE_A_RULE = Problem(ROOT, "type", "a rule of former times")
CYCLE = Problem(ROOT, "backward_transition", "Invalid event sequence: backward transition")
NAUGHTY = b'{"a": "\x7f\xc2\x9b2J\\u001b[2J \xe2\x80\xae", "n": 1.50, "n": 2}'

WAITING = """
FROM pg_stat_activity WHERE datname = current_database()
AND application_name = 'correlator rejects command' AND wait_event_type = 'Lock'
"""


def text(run_id: str = "1", **changes: Any) -> bytes:
    return json.dumps(run_event(run_id=run_id, **changes)).encode()


def refuse(database: Database, *raws: bytes, layer: int = 1, problem: Problem | None = None) -> None:
    """As the server does it; what today's rules do not refuse was refused by a rule of former times."""
    rejects = []
    for raw in raws:
        verdict = judge(raw)
        problems = verdict.errors if isinstance(verdict, Rejection) else (ONCE_A_RULE,)
        rejects.append(
            Reject(
                raw=raw,
                layer=layer,
                problems=problems if problem is None else (problem,),
                kind=verdict.kind,
                producer=verdict.producer,
                sent_by="airflow",
                correlation_id="c-1",
            )
        )
    with database.connect("test", autocommit=True) as connection:
        EventLog(connection).append(Group(uuid.uuid4(), "http", (), rejects))


def rejects(database: Database, *arguments: str) -> Result:
    """The command within this process: a new one would take most of a second to begin. Exceptions come through."""
    ours = {name: None for name in os.environ if name.startswith("CORRELATOR_")}
    return CliRunner().invoke(
        main, ["rejects", *arguments], env=ours | {"CORRELATOR_DATABASE_URL": database.url}, catch_exceptions=False
    )


def started(
    database: Database, *arguments: str, stdout: int | None = None, stderr: int | None = None
) -> "subprocess.Popen[bytes]":
    """The command as a process of its own."""
    inherited = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "CORRELATOR_CONFIG"}}
    return subprocess.Popen(  # noqa: S603 (our own command)
        [sys.executable, "-m", "correlator.cli.main", "rejects", *arguments],
        env=inherited | {"CORRELATOR_DATABASE_URL": database.url, "TERM": "xterm"},
        stdout=stdout,
        stderr=stderr,
    )


def answer(database: Database, *arguments: str) -> Any:
    return json.loads(rejects(database, *arguments, "--json").stdout)


def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    with database.connect("test", autocommit=True) as connection:
        return connection.execute(query.encode(), binary=True).fetchall()


def on_terminal(database: Database, *arguments: str, columns: int = 100) -> tuple[int, str]:
    """Exit code, and what a terminal of that width got to see."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with started(database, *arguments, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        seen = b""
        try:
            while more := os.read(controller, 65536):
                seen += more
        except OSError:  # the other end is closed
            pass
        os.close(controller)
        return process.wait(PATIENCE), seen.decode().replace("\r\n", "\n")


# --- list


def test_without_rejected_events_the_list_says_so(database: Database) -> None:
    listed = rejects(database, "list")
    assert (listed.exit_code, listed.stdout, listed.stderr) == (0, "There are no rejected events.\n", "")
    assert answer(database, "list") == {
        "items": [],
        "next_cursor": None,
        "totals": {"events": 0, "bytes": 0, "capped_events": 0, "capped_bytes": 0, "last_capped_at": None},
    }


def test_the_list_has_a_line_for_each_the_newest_first(database: Database) -> None:
    refuse(database, text(job=""), b"{")
    listed = correlator("rejects", "list", CORRELATOR_DATABASE_URL=database.url)
    assert (listed.returncode, listed.stderr) == (0, "")
    head, newest, oldest, blank, totals = listed.stdout.splitlines()
    assert head.split() == ["ID", "WHEN", "(UTC)", "LAYER", "SIZE", "REDRIVEN", "RULE", "PATH", "PRODUCER", "SENTENCE"]
    assert newest.split()[0] == "2"
    assert "invalid_json" in newest
    judged = judge(text(job=""))
    assert isinstance(judged, Rejection)
    cells = oldest.split()
    assert cells[0] == "1"
    assert cells[3:] == [
        *("1", str(len(text(job=""))), "B", "no", "blank", "job.name", "https://example.com/producer"),
        *judged.sentence.split(),
    ]
    assert blank == ""
    assert totals.startswith("2 shown; 2 rejected events kept in all, ")


def test_more_than_fits_is_told_with_the_way_to_it(database: Database) -> None:
    refuse(database, *[b"{"] * 5)
    listed = rejects(database, "list", "--limit", "2")
    assert "There are more: add --before 4 for the next, or a larger --limit." in listed.stdout
    first = answer(database, "list", "--limit", "2")
    assert ([item["id"] for item in first["items"]], first["next_cursor"]) == ([5, 4], 4)
    last = answer(database, "list", "--before", "4")
    assert ([item["id"] for item in last["items"]], last["next_cursor"]) == ([3, 2, 1], None)


def test_a_program_gets_everything_but_the_event(database: Database) -> None:
    refuse(database, text(job=""))
    (item,) = answer(database, "list")["items"]
    assert item.pop("rejected_at").endswith("Z")
    assert "job.name" in item.pop("sentence")
    assert item == {
        "id": 1,
        "source": "http",
        "layer": 1,
        "rule": "blank",
        "path": "job.name",
        "kind": "run",
        "producer": "https://example.com/producer",
        "sent_by": "airflow",
        "correlation_id": "c-1",
        "bytes": len(text(job="")),
        "redriven_at": None,
        "redriven_as": None,
    }


def test_the_list_can_be_narrowed(database: Database) -> None:
    refuse(database, text(job=""), b"{")
    refuse(database, text(), layer=2, problem=CYCLE)

    def ids(*arguments: str) -> list[int]:
        return [item["id"] for item in answer(database, "list", *arguments)["items"]]

    assert ids("--rule", "blank", "--rule", "invalid_json") == [2, 1]
    assert ids("--layer", "2", "--source", "http", "--since", "1h") == [3]
    assert ids("--producer", "EXAMPLE.com", "--until", "2999-12-31T12:00") == [3, 1]
    assert ids("--until", "1d") == []
    assert ids("--not-redriven", "--since", "2020-01-31") == [3, 2, 1]
    nothing = rejects(database, "list", "--producer", os.fsdecode(b"\xff"))
    assert nothing.stdout.startswith("No rejected event is like that.\n0 shown; 3 rejected events kept in all")


def test_what_the_byte_cap_has_cost_is_told(database: Database) -> None:
    refuse(database, *[b"x" * 10_000] * 3)
    with database.connect("test", autocommit=True) as connection:
        cap_rejects(connection, 15_000)
    listed = rejects(database, "list").stdout
    assert "Lost: the oldest 2 (20." in listed
    assert "because all took more than rejects_max_bytes of the server. Raise it to keep more." in listed
    assert answer(database, "list")["totals"]["capped_events"] == 2


def test_on_a_terminal_lines_fit_and_in_a_pipe_they_are_whole(database: Database) -> None:
    refuse(database, text(job=""), problem=Problem("job.name", "blank", f"{'宽' * 20} {'long ' * 50}end"))
    for columns in (80, 120):
        code, seen = on_terminal(database, "list", columns=columns)
        assert code == 0
        _, row, sentence, *_ = seen.splitlines()
        assert "https://" in row
        assert sentence.startswith("    宽宽宽")
        assert sentence.endswith("…")
        for line in (row, sentence):
            assert sum(2 if character == "宽" else 1 for character in line) <= columns
    assert rejects(database, "list").stdout.splitlines()[1].endswith("long end")


def test_nothing_of_an_event_reaches_the_terminal_as_a_command(database: Database) -> None:
    evil = Problem("a\x1b[2J", "type", "a\x1b[2J\x9b31m: \u202eexpected\r\nobject")
    refuse(database, NAUGHTY, b"\x1b[2J\x07 no JSON", b"\xff\x1b[2J", problem=evil)
    for arguments in (("list",), ("show", "1"), ("show", "2"), ("show", "3"), ("redrive", "--all")):
        code, seen = on_terminal(database, *arguments)
        assert code in {0, 1}
        assert all(character.isprintable() or character == "\n" for character in seen), arguments


# --- show


def test_an_event_is_shown_with_all_reasons_and_laid_out(database: Database) -> None:
    refuse(database, text(job="", eventType="STOP"))
    shown = rejects(database, "show", "1")
    assert (shown.exit_code, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert lines[0] == "Rejected event 1"
    for line in (
        "  layer:          1 (one event)",
        "  sent by:        the key 'airflow'",
        "  correlation id: c-1",
        "  producer:       https://example.com/producer",
        f"  size:           {len(text(job='', eventType='STOP')):,} bytes",
        "  redriven:       no",
        "Reasons:",
        '    "runId": "1"',
    ):
        assert line in lines
    assert any("[enum, at eventType]" in line for line in lines)
    assert any("[blank, at job.name]" in line for line in lines)


def test_what_is_shown_is_what_came_even_where_json_has_two_minds(database: Database) -> None:
    refuse(database, NAUGHTY)
    shown = rejects(database, "show", "1").stdout
    assert '  "a": "\\u007f\\u009b2J\\u001b[2J \\u202e",\n  "n": 1.50,\n  "n": 2\n}' in shown


def test_an_event_that_is_no_text_is_shown_in_hexadecimal(database: Database) -> None:
    refuse(database, b"\x1f\x8bnonsense and more of it")
    shown = rejects(database, "show", "1").stdout
    assert "The event, which is not UTF-8, in hexadecimal:" in shown
    assert "00000000  1f 8b 6e 6f 6e 73 65 6e 73 65 20 61 6e 64 20 6d  ..nonsense and m\n" in shown


def test_the_raw_bytes_can_be_had(database: Database, tmp_path: Path) -> None:
    raw = b"\xff\x00\r\n\x1b[2J" + NAUGHTY
    refuse(database, raw)
    with (
        (tmp_path / "raw").open("wb") as file,
        started(database, "show", "1", "--raw", stdout=file.fileno()) as process,
    ):
        assert process.wait(PATIENCE) == 0
    assert (tmp_path / "raw").read_bytes() == raw
    code, seen = on_terminal(database, "show", "1", "--raw")
    assert code == 2
    assert "Send it to a file or through a pipe" in seen
    assert "\x1b" not in seen


def test_a_terminal_is_not_flooded(database: Database) -> None:
    refuse(database, b"x" * 50_000)
    _, seen = on_terminal(database, "show", "1")
    assert len(seen) < 30_000
    assert "… and 30,000 characters more: correlator rejects show 1 | less" in seen
    assert len(rejects(database, "show", "1").stdout) > 50_000


def test_a_program_gets_the_event_too(database: Database) -> None:
    refuse(database, text(job=""), b"\xff")
    shown = answer(database, "show", "1")
    assert shown["raw"] == text(job="").decode()
    assert [problem["rule"] for problem in shown["problems"]] == ["blank"]
    shown = answer(database, "show", "2")
    assert base64.b64decode(shown["raw_base64"]) == b"\xff"
    assert "raw" not in shown


def test_an_event_that_is_not_there_is_exit_code_1(database: Database) -> None:
    shown = rejects(database, "show", "7")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr.startswith("Error: There is no rejected event 7. Old ones are removed (rejects_retention, ")


# --- redrive


def test_redriving_stores_what_passes_now_and_says_what_does_not(database: Database) -> None:
    refuse(database, text("a"), text("b", job=""), text("a"))
    rehearsed = rejects(database, "redrive", "--all", "--dry-run")
    assert rehearsed.exit_code == 1
    assert "3 rejected events judged: 2 would be accepted, 1 still refused." in rehearsed.stdout
    assert rows(database, "SELECT FROM lineage_events") == []
    done = rejects(database, "redrive", "--all")
    assert (done.exit_code, done.stderr) == (1, "")
    first, second = done.stdout.splitlines()
    assert first == "3 rejected events judged: 2 accepted (1 stored, 1 duplicate), 1 still refused."
    assert second.startswith("  2  job.name")
    assert second.endswith("[blank]")
    assert rows(database, "SELECT raw FROM lineage_events") == [(text("a"),)]
    redriven = {item["id"]: item["redriven_as"] for item in answer(database, "list")["items"]}
    assert redriven == {1: 1, 2: None, 3: 1}
    assert [item["id"] for item in answer(database, "list", "--not-redriven")["items"]] == [2]
    assert "redriven:       20" in rejects(database, "show", "1").stdout
    again = answer(database, "redrive", "--all")
    assert (again["judged"], again["accepted"], again["still_refused"]) == (1, 0, 1)
    assert again["refused"][0]["id"] == 2
    assert again["refused"][0]["problems"][0]["rule"] == "blank"


def test_some_are_chosen_by_id_or_by_what_is_known_of_them(database: Database) -> None:
    refuse(database, text("a"), text("b"), text("c", producer="https://other.example"))
    one = rejects(database, "redrive", "2")
    assert one.stderr == ""
    assert (one.exit_code, one.stdout) == (
        0,
        "1 rejected event judged: 1 accepted (1 stored, 0 duplicates), 0 still refused.\n",
    )
    some = answer(database, "redrive", "--producer", "other")
    assert (some["judged"], some["accepted"]) == (1, 1)
    again = rejects(database, "redrive", "2", "3")
    assert again.exit_code == 0
    assert again.stdout == "There is nothing to redrive.\n2 had been redriven before and were left alone.\n"
    missing = rejects(database, "redrive", "1", "2", "98", "99")
    assert missing.exit_code == 2
    assert "1 accepted" in missing.stdout
    assert "There is no rejected event 98, 99." in missing.stderr
    assert rows(database, "SELECT count(*) FROM lineage_events") == [(3,)]


def test_one_has_to_say_which(database: Database) -> None:
    for arguments in ((), ("1", "--all"), ("1", "--rule", "blank"), ("--all", "--since", "1h")):
        wrong = rejects(database, "redrive", *arguments)
        assert (wrong.exit_code, wrong.stdout) == (2, "")
        assert "Say which: IDs, or options that select, or --all" in wrong.stderr


def test_events_of_a_broken_run_cycle_pass_and_the_user_is_told_why(database: Database) -> None:
    refuse(database, text(event_type="COMPLETE"), text(event_time="2026-11-01T11:00:00Z"), layer=2, problem=CYCLE)
    done = rejects(database, "redrive", "--layer", "2")
    assert done.exit_code == 0
    assert (
        "2 of the accepted had been refused with their whole request, for a broken run cycle (layer 2)." in done.stdout
    )
    assert "each was judged by itself" in done.stdout


def test_arrays_are_taken_apart(database: Database) -> None:
    refuse(database, b"[" + text("a") + b", 17]")
    done = rejects(database, "redrive", "--all")
    assert done.exit_code == 1
    assert (
        "1 of the accepted was an array, taken apart: 1 of the elements are rejected events of their own."
        in done.stdout
    )
    assert answer(database, "redrive", "--all", "--dry-run")["still_refused"] == 1


def test_the_judge_is_set_as_the_server_s(database: Database, tmp_path: Path) -> None:
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    refuse(database, text("no uuid"), text("x" * 2000), text("deep")[:-1] + b', "deep": ' + deep + b"}")
    (tmp_path / "correlator.toml").write_text('[server]\nformats = "enforce"\nmax_event_bytes = "2kB"\n')
    config = ("--config", str(tmp_path / "correlator.toml"))
    refused = {one["id"]: one["problems"][0] for one in answer(database, "redrive", "--all", *config)["refused"]}
    assert [problem["rule"] for problem in refused.values()] == ["format_uuid", "too_large", "too_large"]
    assert "(max_event_bytes)" in refused[2]["message"]
    (refused_one,) = answer(database, "redrive", "--all")["refused"]
    assert refused_one["id"] == 3
    assert "(max_nesting)" in refused_one["problems"][0]["message"]
    assert answer(database, "redrive", "--all", "--max-nesting", "400")["accepted"] == 1


def test_a_redrive_that_is_killed_in_the_middle_can_be_run_again(database: Database) -> None:
    count = 2500
    refuse(database, *[text(str(number)) for number in range(count)])
    with database.connect("test", autocommit=True) as connection, connection.transaction():
        # It comes to the last chunk, and no further.
        connection.execute("SELECT FROM rejected_events WHERE id = %s FOR UPDATE", [count])
        with started(database, "redrive", "--all") as process:
            while not rows(database, f"SELECT pid {WAITING}"):
                assert process.poll() is None
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE)
    assert rows(database, "SELECT count(*) FROM lineage_events") == [(2000,)]
    again = answer(database, "redrive", "--all")
    assert (again["judged"], again["stored"], again["duplicates"]) == (500, 500, 0)
    assert rows(database, "SELECT count(*), count(DISTINCT raw) FROM lineage_events") == [(count, count)]
    assert rows(database, "SELECT count(*) FROM rejected_events WHERE redriven_at IS NULL") == [(0,)]
    assert rows(database, "SELECT * FROM ingest_totals ORDER BY source") == [
        ("http", count, 0, 0, count),
        ("redrive", count, count, 0, 0),
    ]


def test_a_database_that_goes_away_in_the_middle_leaves_word_of_what_was_done(database: Database) -> None:
    refuse(database, *[text(str(number)) for number in range(1500)])
    with database.connect("test", autocommit=True) as connection, connection.transaction():
        connection.execute("SELECT FROM rejected_events WHERE id = 1500 FOR UPDATE")
        with started(database, "redrive", "--all", stderr=subprocess.PIPE) as process:
            while not rows(database, f"SELECT pg_terminate_backend(pid) {WAITING}"):
                assert process.poll() is None
            told = process.communicate(timeout=PATIENCE)[1].decode()
    assert process.returncode == 2
    assert "So far:\n1,000 rejected events judged: 1,000 accepted (1,000 stored" in told
    assert "does not answer" in told
    assert "Traceback" not in told


def test_an_interrupted_redrive_says_what_was_done(database: Database) -> None:
    refuse(database, *[text(str(number)) for number in range(1500)])
    with database.connect("test", autocommit=True) as connection, connection.transaction():
        connection.execute("SELECT FROM rejected_events WHERE id = 1500 FOR UPDATE")
        with started(database, "redrive", "--all", stderr=subprocess.PIPE) as process:
            while not rows(database, f"SELECT pid {WAITING}"):
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            told = process.communicate(timeout=PATIENCE)[1].decode()
    assert process.returncode == 130
    assert told.startswith("So far:\n1,000 rejected events judged: 1,000 accepted (1,000 stored")
    assert rows(database, "SELECT count(*) FROM lineage_events") == [(1000,)]


# --- export


def test_an_export_has_everything(database: Database, tmp_path: Path) -> None:
    refuse(database, text(job=""), b"\xff{", b'{"a":\x00"\\u0000"}')
    file = tmp_path / "rejects.jsonl"
    done = rejects(database, "export", "--output", str(file))
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("3 rejected events (")
    assert done.stderr.endswith(f" written to {file}.\n")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["id"] for line in lines] == [1, 2, 3]
    assert lines[0] == answer(database, "show", "1")
    assert base64.b64decode(lines[1]["raw_base64"]) == b"\xff{"
    assert lines[2]["raw"].encode() == b'{"a":\x00"\\u0000"}'
    assert file.stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["rejects.jsonl"]


def test_events_alone_are_lines_to_mend_and_to_send_again(database: Database) -> None:
    laid_out = json.dumps(run_event(job=""), indent=2).encode()
    refuse(
        database,
        b"\xef\xbb\xbf" + text("a", job="") + b"\r\n",
        laid_out,
        b"[" + text("b") + b",\n" + text("c") + b"]",
        b"{",
        b"17",
        b"[]",
        b'{"a": "\xff"}',
    )
    done = rejects(database, "export", "--events-only")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == text("a", job="").decode()
    assert [json.loads(line) for line in lines[1:]] == [run_event(job=""), run_event(run_id="b"), run_event(run_id="c")]
    assert "4 rejected events left out, being no JSON object: 4, 5, 6, 7." in done.stderr


def test_an_export_can_be_narrowed_and_be_empty(database: Database, tmp_path: Path) -> None:
    refuse(database, text(job=""), b"{")
    done = rejects(database, "export", "--rule", "blank", "--not-redriven")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1]
    done = rejects(database, "export", "--source", "none", "-o", str(tmp_path / "empty"))
    assert (done.exit_code, (tmp_path / "empty").read_bytes()) == (0, b"")


def test_a_file_is_replaced_only_when_told_so(database: Database, tmp_path: Path) -> None:
    refuse(database, b"{")
    file = tmp_path / "precious"
    file.write_text("mine")
    refused = rejects(database, "export", "-o", str(file))
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"{file} is there already. Choose another name, or replace it with --force." in refused.stderr
    assert file.read_text() == "mine"
    assert rejects(database, "export", "-o", str(file), "--force").exit_code == 0
    assert json.loads(file.read_text())["raw"] == "{"
    for place in (tmp_path, Path("/dev/null")):
        assert "is no file" in rejects(database, "export", "-o", str(place), "--force").stderr
    nowhere = rejects(database, "export", "-o", str(tmp_path / "no" / "where"))
    assert nowhere.exit_code == 2
    assert "cannot be written" in nowhere.stderr
    assert "Traceback" not in nowhere.stderr


def test_an_export_that_fails_leaves_nothing(database: Database, tmp_path: Path) -> None:
    refuse(database, b"{")
    with database.connect("test", autocommit=True) as connection:
        connection.execute("ALTER TABLE rejected_events DROP COLUMN problems")
    failed = rejects(database, "export", "-o", str(tmp_path / "rejects"))
    assert failed.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_enough_is_no_trouble(database: Database) -> None:
    refuse(database, *[b"x" * 100_000] * 30)
    with started(database, "export", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) == 141


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("list", "--since", "soon"), "it takes a time ago such as 24h or 7d, or a date such as 2030-01-31"),
        (("list", "--since", "99999999999d"), "further back than any calendar goes"),
        (("list", "--layer", "3"), "3 is not in the range 1<=x<=2"),
        (("show", "1", "--raw", "--json"), "--raw and --json exclude each other"),
        (("show", "99999999999999999999"), "is not in the range"),
    ],
)
def test_wrong_usage_is_told_with_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    wrong = CliRunner().invoke(main, ["rejects", *arguments])
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert words in " ".join(wrong.stderr.split())


def test_a_database_that_does_not_answer_is_exit_code_2() -> None:
    url = "postgresql://ann:geheim@127.0.0.1:1/lineage"
    for arguments in (("list",), ("show", "1"), ("redrive", "--all"), ("export",)):
        failed = CliRunner().invoke(main, ["rejects", *arguments, "--database-url", url])
        assert (failed.exit_code, failed.stdout) == (2, "")
        assert "does not answer" in failed.stderr
        assert "geheim" not in failed.stderr
