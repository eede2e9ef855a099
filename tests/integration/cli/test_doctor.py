"""`correlator doctor` on a machine where things are there, and where they are not."""

import json
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from correlator import __version__
from correlator.cli.doctor import machine
from correlator.cli.doctor.database import clock, events_ahead
from correlator.cli.main import main
from correlator.store.database import Database
from tests.integration.cli.command import correlator
from tests.integration.cli.processes import running
from tests.integration.server.running import postmaster
from tests.integration.server.running import running as running_server

NOBODY = 65534


def examined(*arguments: str, exit_code: int, **environment: str) -> dict[str, dict[str, Any]]:
    """What the doctor found, by check."""
    without_ours = dict.fromkeys(name for name in os.environ if name.startswith("CORRELATOR_"))
    looked = CliRunner().invoke(main, ["doctor", "--json", *arguments], env=without_ours | environment)
    assert looked.stderr == ""
    assert looked.exit_code == exit_code, looked.stdout
    answer = json.loads(looked.stdout)
    assert answer["healthy"] is (exit_code == 0)
    findings: list[dict[str, Any]] = answer["findings"]
    assert all((each["advice"] is None) is (each["outcome"] == "ok") for each in findings)
    return {each["check"]: each for each in findings}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def foreign_listener() -> Iterator[int]:
    """Somebody who speaks HTTP and is no Correlator."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(10_000)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def program(directory: Path, name: str, says: str) -> Path:
    directory.mkdir(parents=True)
    file = directory / name
    file.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    file.chmod(0o755)
    return file


def test_a_machine_that_has_everything_is_told_so(database: Database, data_dir: Path) -> None:
    arguments = ("--database-url", database.url, "--data-dir", str(data_dir), "--port", str(free_port()))
    found = examined(*arguments, exit_code=0)
    pages = found.pop("pages")
    assert pages["outcome"] in {"ok", "warning"}
    proxy = found.pop("port of the proxy")
    assert proxy["outcome"] in {"ok", "warning"}
    assert {each["outcome"] for each in found.values()} == {"ok"}
    assert found.keys() == {
        "settings", "python", "packages", "java", "data directory", "disk", "port", "database", "clock",
        "times of events",
    }  # fmt: skip
    assert "pyspark 4" in found["packages"]["said"]
    assert found["database"]["said"].endswith("up to date")
    told = correlator("doctor", *arguments)
    assert told.returncode == 0
    assert f"\nok       data directory: {data_dir} can be written to\n" in told.stdout


def test_where_there_is_no_java_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("correlator.pipeline.java._PACKAGE", "no_such_package")
    program(tmp_path / "old/bin", "java", 'openjdk version "11.0.21" 2023-10-17')

    found = machine.java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path)})

    assert found.outcome == "problem"
    assert found.said.endswith(f"there is none (JAVA_HOME: {tmp_path}/old is Java 11).")
    assert found.advice is not None
    assert "apt install openjdk-17-jre-headless" in found.advice
    assert "do without" in found.advice


def test_a_java_that_will_do_is_named_with_where_it_was_found(tmp_path: Path) -> None:
    program(tmp_path / "new/bin", "java", 'openjdk version "21.0.4" 2024-07-16 LTS')
    found = machine.java({"PATH": str(tmp_path / "new/bin")})
    assert (found.outcome, found.said) == ("ok", f"Java 21, {tmp_path}/new/bin/java (PATH)")


def test_a_problem_is_the_exit_code_and_stands_in_the_lines(data_dir: Path) -> None:
    told = correlator("doctor", "--data-dir", str(data_dir), "--port", str(free_port()), "--min-free", "900TB")
    assert told.returncode == 1
    assert "\nproblem  disk: " in told.stdout


def test_a_package_of_another_version_than_was_declared_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "msgspec-0.1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: msgspec\nVersion: 0.1.0\n")
    assert machine.packages().outcome == "ok"
    monkeypatch.syspath_prepend(tmp_path)
    found = machine.packages()
    assert found.outcome == "problem"
    assert "msgspec is 0.1.0 and must be >=" in found.said


def test_a_data_directory_that_cannot_be_written_to_is_a_problem(data_dir: Path) -> None:
    closed = data_dir / "closed"
    closed.mkdir(mode=0o555)
    is_root = os.geteuid() == 0
    if is_root:  # who may write everywhere
        data_dir.chmod(0o755)
        os.seteuid(NOBODY)
    try:
        found = [machine.data_directory(closed), machine.data_directory(closed / "below" / "it")]
    finally:
        if is_root:
            os.seteuid(0)
    for each in found:
        assert (each.outcome, each.said) == ("problem", f"{closed} cannot be written to: Permission denied.")
    file = data_dir / "file"
    file.write_text("")
    assert machine.data_directory(file).said == f"{file} is not a directory."


def test_a_data_directory_is_looked_at_and_not_made(data_dir: Path) -> None:
    place = data_dir / "to" / "come"
    found = examined("--data-dir", str(place), "--port", str(free_port()), exit_code=0)
    assert found["data directory"]["said"] == f"{place} can be made in {data_dir}"
    assert found["database"]["said"].startswith("The first start will make an embedded PostgreSQL ")
    assert "clock" not in found
    assert list(data_dir.iterdir()) == []


def test_a_disk_with_too_little_room_is_a_problem_and_a_tight_one_a_warning(data_dir: Path) -> None:
    least = ("--min-free", "100000TB")
    found = examined("--data-dir", str(data_dir), "--port", str(free_port()), *least, exit_code=1)
    assert found["disk"]["outcome"] == "problem"
    assert "is the least (--min-free)" in found["disk"]["said"]
    free = shutil.disk_usage(data_dir).free
    assert machine.disk(data_dir, free // 3).outcome == "warning"
    assert machine.disk(data_dir, 1).outcome == "ok"
    assert correlator("doctor", "--min-free", "much").returncode == 2


def test_a_port_that_a_stranger_has_is_a_problem_and_the_stranger_named(data_dir: Path) -> None:
    with foreign_listener() as port:
        found = examined("--data-dir", str(data_dir), "--port", str(port), exit_code=1)
    said = found["port"]["said"]
    assert said.startswith(f"127.0.0.1, port {port} is taken by somebody who is no Correlator")
    assert found["port"]["outcome"] == "problem"
    if Path("/proc/net/tcp").exists():
        assert f"(process {os.getpid()}, " in said


def test_a_port_that_is_not_ours_to_take_is_a_problem(data_dir: Path) -> None:
    found = examined("--data-dir", str(data_dir), "--host", "192.0.2.1", exit_code=1)
    assert found["port"]["said"].startswith("Cannot listen on 192.0.2.1, port 8080: ")


def test_a_port_where_that_part_of_correlator_runs_already_is_fine(data_dir: Path) -> None:
    own = ("--destination", "console", "--data-dir", str(data_dir), "--port", "0")
    with running(data_dir, "proxy", *own) as proxy:
        proxy.wait_for_words("is listening on")
        (port,) = re.findall(r"is listening on http://127\.0\.0\.1:([0-9]+)", proxy.log)
        (data_dir / "proxy.toml").write_text(f"[proxy]\nport = {port}\n[server]\nport = {free_port()}\n")
        as_proxy = examined("--data-dir", str(data_dir), "--config", str(data_dir / "proxy.toml"), exit_code=0)
        assert as_proxy["port of the proxy"]["outcome"] == "ok"
        assert f"runs on 127.0.0.1, port {port}" in as_proxy["port of the proxy"]["said"]
        as_server = examined("--data-dir", str(data_dir), "--port", port, exit_code=1)
        assert f"127.0.0.1, port {port} is taken by a Correlator proxy" in as_server["port"]["said"]


def test_its_own_server_on_the_port_is_fine_and_its_embedded_database_is_looked_at_and_left_as_it_was(
    data_dir: Path,
) -> None:
    with running_server(data_dir) as server:
        place = ("--data-dir", str(data_dir), "--port", str(server.port))
        process = postmaster(data_dir)

        found = examined(*place, exit_code=0)

        where = f"127.0.0.1, port {server.port}"
        assert found["port"]["said"] == f"A Correlator server, version {__version__}, runs on {where}"
        assert re.fullmatch(r"PostgreSQL [0-9.]+, embedded, up to date", found["database"]["said"])
        assert {found[check]["outcome"] for check in ("port", "database", "clock", "times of events")} == {"ok"}
        assert (postmaster(data_dir), server.is_ready()) == (process, True)

        assert server.stop() == 0
        assert postmaster(data_dir) is None

        # One that does not run is started for the look.
        later = examined(*place, exit_code=0)

        assert later["port"]["said"] == f"{where} is free"
        assert later["database"] == found["database"]
        assert later["clock"]["outcome"] == "ok"
        assert postmaster(data_dir) is None


def test_a_database_that_does_not_answer_is_a_problem_and_its_password_is_not_told(data_dir: Path) -> None:
    url = "postgresql://ann:geheim@127.0.0.1:1/lineage"
    found = examined("--database-url", url, "--data-dir", str(data_dir), "--port", str(free_port()), exit_code=1)
    assert found["database"]["outcome"] == "problem"
    assert found["database"]["said"].startswith("The database 'lineage' at 127.0.0.1, port 1 does not answer: ")
    assert "geheim" not in repr(found)


def test_a_database_with_pending_migrations_is_a_warning_and_one_with_another_history_a_problem(
    empty_database: Database, database: Database, data_dir: Path
) -> None:
    place = ("--data-dir", str(data_dir), "--port", str(free_port()))
    fresh = examined("--database-url", empty_database.url, *place, exit_code=0)
    assert fresh["database"]["outcome"] == "warning"
    assert "migrations are pending, from 0001_log on." in fresh["database"]["said"]
    assert fresh["clock"]["outcome"] == "ok"
    with database.connect("test") as connection:
        connection.execute("UPDATE kept.migrations SET hash = 'other' WHERE number = 1")
    other = examined("--database-url", database.url, *place, exit_code=1)
    assert other["database"]["outcome"] == "problem"


def test_clocks_that_differ_are_told_by_how_much(database: Database) -> None:
    with database.connect("test", autocommit=True) as connection:
        assert clock(connection).outcome == "ok"
        slow = clock(connection, lambda: time.time() - 10)
        assert slow.outcome == "warning"
        assert clock(connection, lambda: time.time() + 10).outcome == "warning"
        assert clock(connection, lambda: time.time() + 3600).outcome == "problem"
    assert slow.said.startswith("This machine and the database differ by ")


def test_events_with_times_in_the_future_are_counted(database: Database) -> None:
    with database.connect("test", autocommit=True) as connection:
        assert events_ahead(connection).outcome == "ok"
        connection.execute(
            """
            INSERT INTO kept.lineage_event_idempotency (event_time, key, digest, position, received_at)
            SELECT now() + hours * interval '1 hour', gen_random_uuid(), gen_random_uuid(), hours + 10, now()
            FROM generate_series(-1, 2) AS hours
            """
        )
        found = events_ahead(connection)
    assert (found.outcome, found.said) == (
        "warning",
        "2 events of late have times in the future, the furthest by 2.0 hours.",
    )


@pytest.mark.parametrize("found", [True, False])
def test_pages_that_are_not_built_are_a_warning_that_knows_whether_there_is_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, found: bool
) -> None:
    monkeypatch.setattr(machine, "files", lambda _: tmp_path)
    path = tmp_path / "bin"
    program(path, "node" if found else "other", "").write_text("#!/bin/sh\necho v18.2.0\n")
    said = machine.pages({"PATH": str(path)})
    assert said.outcome == "warning"
    assert ("Node v18.2.0" in said.said) is found
    (tmp_path / "web").mkdir()
    (tmp_path / "web/index.html").write_text("")
    assert machine.pages({"PATH": str(path)}).outcome == "ok"


def test_settings_that_cannot_be_used_are_told_with_exit_code_2() -> None:
    told = correlator("doctor", CORRELATOR_PRT="1")
    assert (told.returncode, told.stdout) == (2, "")
    assert "CORRELATOR_PRT in the environment is not a setting; did you mean CORRELATOR_PORT?" in told.stderr
