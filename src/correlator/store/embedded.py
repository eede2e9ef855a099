"""The PostgreSQL that Correlator brings along: a real server, made, started, watched and stopped here.

Several processes may share one directory. Three `flock`s say who may do what, and the kernel lets them go when their
holder dies, however it dies:

    start.lock    exclusive, while somebody makes, starts or stops the server
    users.lock    shared, by each user for as long as it lives; who can have it alone at the end is the last one
    server.lock   exclusive, by the server: postmaster and children inherit the open file, so that the lock is free
                  exactly when no process of theirs is left. No process number has to be believed, which may be
                  somebody else's after a crash or in another container.
"""

import fcntl
import logging
import os
import shlex
import shutil
import signal
import socket
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote, urlencode

import msgspec
import psycopg
from psycopg.pq import Conninfo

from correlator.store.installation import Account, EmbeddedPostgresError, Installation, wheel_installations

__all__ = ["EmbeddedPostgres", "EmbeddedPostgresError"]

_log = logging.getLogger("correlator.store.embedded")

_NAME: Final = "correlator"
"""The database, and the role that owns it."""

_PORT: Final = 5432
"""Only a part of the socket's name: the server does not listen on TCP."""

_SOCKET: Final = f".s.PGSQL.{_PORT}"
_LONGEST_SOCKET_PATH: Final = 103
"""In bytes, on macOS; Linux takes 107."""

_TEMPORARY: Final = Path("/tmp")  # noqa: S108  (what is made in it is made private, and checked to be so)

_ATTEMPTS: Final = 2
"""To start the server: one that is killed while it starts is no reason to give up."""

_POLL_S: Final = 0.01
_WATCH_S: Final = 0.1
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0
_QUOTED_LINES: Final = 12
_MEGABYTE: Final = 1024 * 1024

# These stand on the command line, where no edited file can undo them. "Acknowledged means on disk" and the privacy of
# the socket rest on them, and that the log never quotes an event, as an error's DETAIL, CONTEXT or statement would.
_PINNED: Final = {
    "listen_addresses": "",
    "port": str(_PORT),
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "logging_collector": "on",
    "log_destination": "stderr",
    # A file for each day of the week, emptied when its day comes again.
    "log_filename": "postgres-%a.log",
    "log_truncate_on_rotation": "on",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
}

# libpq takes these from the environment whatever a URL says.
_STUBBORN_VARIABLES: Final = ("PGSERVICE", "PGTZ", "PGDATESTYLE", "PGGEQO")

# Where "not said" is not a value that libpq takes, and its own default has no name.
_NEUTRAL: Final = {"min_protocol_version": "3.0", "max_protocol_version": "3.0", "sslcertmode": "allow"}


class _NoLongerWanted(Exception):  # noqa: N818  (no error: `close` ends a wait of the watch)
    pass


class _Postmaster(msgspec.Struct, frozen=True):
    """What a server has written down about itself in its data directory."""

    pid: int
    sockets: Path
    is_ready: bool

    @classmethod
    def of(cls, data: Path) -> Self | None:
        try:
            lines = (data / "postmaster.pid").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
            # Process, data directory, start, port, sockets, address, shared memory, status; written bit by bit.
            return cls(int(lines[0]), Path(lines[4]), lines[7].strip() == "ready")
        except (FileNotFoundError, IndexError, ValueError):
            return None

    def listener(self) -> tuple[int, int] | None:
        """Process and user of who listens at the socket, as the kernel knows them; our own words where it does not."""
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(os.fsencode(self.sockets / _SOCKET))
            except OSError:
                return None
            if not hasattr(socket, "SO_PEERCRED"):
                return self.pid, (self.sockets / _SOCKET).stat().st_uid
            layout = struct.Struct("3i")
            pid, uid, _ = layout.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size))
            return pid, uid


class EmbeddedPostgres:
    """One user's hold on the server of a directory: it runs at least until `close`.

    `url` is where the database is. If the server dies in between it is started again, in the same place.
    """

    def __init__(self, directory: Path, start_timeout: float, stop_timeout: float) -> None:
        self.url = ""
        self.restarts = 0
        """How often the server was found dead and runs again."""
        self._directory = directory
        self._data = directory / "data"
        self._logs = directory / "log"
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._account = Account.for_directory(directory)
        self._installations = wheel_installations()
        self._process = os.getpid()
        self._users = -1
        self._refusal = ""
        self._closing = threading.Event()
        self._closed = threading.Lock()
        self._watch = threading.Thread(target=self._watch_server, name="embedded PostgreSQL", daemon=True)

    @classmethod
    def open(cls, directory: Path, *, start_timeout: float = 300, stop_timeout: float = 60) -> Self:
        """Make the database if there is none, start its server or join the one that runs, wait until it answers.

        Both limits are in seconds: after a crash PostgreSQL first goes through what it had not yet written out, and
        before it stops it writes out the rest. Variables for libpq that would get in the way leave the environment.
        """
        for name in _STUBBORN_VARIABLES:
            os.environ.pop(name, None)
        directory = Path(os.path.abspath(directory))  # noqa: PTH100  (`resolve` would rename what is reached by a link)
        try:
            self = cls(directory, start_timeout, stop_timeout)
            self._make_directory()
            with self._starting(start_timeout):
                self._users = self._open_lock("users.lock")
                try:
                    self._ensure_server(may_initialise=True)
                except BaseException as error:
                    # Ctrl-C, say. A server that is slow to start goes on, so that the next attempt finds it further.
                    if not isinstance(error, EmbeddedPostgresError) and _try_lock(self._users):
                        self._stop_server()
                    os.close(self._users)
                    raise
                fcntl.flock(self._users, fcntl.LOCK_SH)
        except OSError as error:
            raise EmbeddedPostgresError(
                f"The embedded PostgreSQL in {directory} cannot be used: {error}. "
                "Run Correlator as the owner of that directory, or choose another with --data-dir."
            ) from error
        self._watch.start()
        return self

    def close(self) -> None:
        """Let go. The last user of all processes stops the server."""
        # A forked child has inherited an object, and locks with it, that are its parent's.
        if os.getpid() != self._process or not self._closed.acquire(blocking=False):
            return
        self._closing.set()
        self._watch.join()
        try:
            with self._starting(self._stop_timeout):
                fcntl.flock(self._users, fcntl.LOCK_UN)
                if _try_lock(self._users):
                    self._stop_server()
        except (EmbeddedPostgresError, OSError) as error:
            _log.warning("the embedded PostgreSQL in %s may be left running: %s", self._directory, error)
        finally:
            fcntl.flock(self._users, fcntl.LOCK_UN)
            os.close(self._users)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_running(self) -> bool:
        """Whether there is a server, be it one that is only starting."""
        with self._lock("server.lock") as lock:
            return not _try_lock(lock, fcntl.LOCK_SH)

    # Directories and locks

    def _make_directory(self) -> None:
        missing = [path for path in (self._directory, *self._directory.parents) if not path.exists()]
        for path in reversed(missing):
            # Made by root on the way to another user's files: open to pass through, not to look into.
            mode = 0o700 if self._account.is_me else 0o711
            with suppress(FileExistsError):
                path.mkdir(mode)
                path.chmod(mode)
        closed = None if self._account.is_me else self._account.first_closed(self._directory)
        if closed is not None:
            raise EmbeddedPostgresError(
                f"PostgreSQL refuses to run as root, so {self._account.name} runs it, who cannot pass through {closed} "
                f"to the data directory {self._directory}. With --data-dir choose a directory that everybody can pass "
                "through, for example under /var/lib; or run Correlator as an ordinary user."
            )

    def _make_private(self, path: Path) -> None:
        """A directory for the server alone, safe from whoever may have made something of that name before."""
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        try:
            opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except NotADirectoryError:
            status = None
        else:
            if os.geteuid() == 0 and os.fstat(opened).st_uid == 0:
                os.fchown(opened, self._account.uid, self._account.gid)
            status = os.fstat(opened)
            os.close(opened)
        if status is None or status.st_uid != self._account.uid or stat.S_IMODE(status.st_mode) & 0o077:
            raise EmbeddedPostgresError(
                f"{path} must be a directory of {self._account.name} that is closed to everybody else, and it is not. "
                "See who has made it and remove it, or choose another directory with --data-dir."
            )

    def _open_lock(self, name: str) -> int:
        path = self._directory / name
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            lock = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return os.open(path, flags)
        if os.geteuid() == 0:
            # Where the directory is another user's, that user must be able to lock after root has been there first.
            owner = self._directory.stat()
            os.fchown(lock, owner.st_uid, owner.st_gid)
        return lock

    @contextmanager
    def _lock(self, name: str) -> Iterator[int]:
        lock = self._open_lock(name)
        try:
            yield lock
        finally:
            # Said aloud, since a child that was forked meanwhile has the same open file.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    @contextmanager
    def _starting(self, timeout: float) -> Iterator[None]:
        """Alone with the server's fate."""
        deadline = time.monotonic() + timeout
        with self._lock("start.lock") as lock:
            while not _try_lock(lock):
                if time.monotonic() > deadline:
                    raise EmbeddedPostgresError(
                        f"Another process has been starting or stopping the PostgreSQL in {self._directory} for more "
                        f"than {timeout:.0f} s. Its logs are in {self._logs}."
                    )
                self._pause()
            yield

    def _pause(self) -> None:
        if self._closing.is_set() and threading.current_thread() is self._watch:
            raise _NoLongerWanted
        time.sleep(_POLL_S)

    # Starting and stopping, by one at a time

    def _ensure_server(self, *, may_initialise: bool) -> None:
        """Return when the server answers, whoever has started it."""
        self._check_data(may_initialise=may_initialise)
        deadline = time.monotonic() + self._start_timeout
        attempts = 0
        started_at = 0.0
        lock = self._open_lock("server.lock")
        try:
            while True:
                if _try_lock(lock):
                    # No process of a server is left.
                    if attempts == _ATTEMPTS:
                        raise EmbeddedPostgresError(
                            f"PostgreSQL does not start in {self._data}.{self._last_words(started_at)}"
                        )
                    attempts += 1
                    started_at = time.time()
                    self._start_server(lock)
                    # The lock is the server's now; opened anew, the file tells whether it still holds it.
                    os.close(lock)
                    lock = self._open_lock("server.lock")
                elif self._answers():
                    break
                elif time.monotonic() > deadline:
                    raise EmbeddedPostgresError(
                        f"PostgreSQL in {self._data} did not answer within {self._start_timeout:.0f} s. It goes on "
                        f"starting, which after a crash may take long: try again later.{self._refusal}"
                        f"{self._last_words(started_at)}"
                    )
                self._pause()
        finally:
            os.close(lock)
        done = "started" if attempts else "joined"
        _log.info("%s the embedded PostgreSQL in %s", done, self._directory)

    def _check_data(self, *, may_initialise: bool) -> None:
        if not self._data.exists() or not any(self._data.iterdir()):
            if not may_initialise:
                raise EmbeddedPostgresError(f"The data directory {self._data} is gone.")
            self._initialise()
        if self._data.stat().st_uid != self._account.uid:
            raise EmbeddedPostgresError(
                f"The data directory {self._data} does not belong to {self._account.name}, who would run it. "
                "Run Correlator as its owner, or choose another directory with --data-dir."
            )
        try:
            version = (self._data / "PG_VERSION").read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            raise EmbeddedPostgresError(
                f"{self._data} holds something else than a database of PostgreSQL. "
                "Choose another directory with --data-dir."
            ) from None
        if version != str(self._installation.major):
            raise EmbeddedPostgresError(self._how_to_move(version))

    def _initialise(self) -> None:
        """Beside its place and then moved there: what is in its place is whole, even if we are killed in between."""
        # A name of its own: where we were killed, initdb may still be at work on the one before.
        new = Path(tempfile.mkdtemp(prefix="data.new-", dir=self._directory))
        self._make_private(new)
        done = self._account.run(
            [
                self._reachable_installation().program("initdb"),
                f"--pgdata={new}",
                f"--username={_NAME}",
                # Whoever reaches the socket is in; its directory is closed to everybody but the server's own user.
                "--auth=trust",
                "--encoding=UTF8",
                # By code point, as PostgreSQL itself defines it: no upgrade of the system's C library can change the
                # order under an index. Letters and their cases are Unicode's all the same.
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                "--locale=C",
                "--data-checksums",
                "--no-instructions",
                *(f"--set={name}={value}" for name, value in _settings(new).items()),
            ]
        )
        if done.returncode != 0:
            shutil.rmtree(new)
            raise EmbeddedPostgresError(
                f"No database could be made in {self._directory}. initdb says:\n{_tail(done.stderr)}"
            )
        new.rename(self._data)
        _sync(self._directory)
        _log.info("made a database of PostgreSQL %s in %s", self._installation.version, self._data)

    def _start_server(self, lock: int) -> None:
        self._make_private(self._logs)
        sockets = self._socket_directory()
        self._make_private(sockets)
        self._clear_leftovers(sockets)
        settings = {
            **_PINNED,
            # A list, in which a name may be quoted.
            "unix_socket_directories": '"{}"'.format(str(sockets).replace('"', '""')),
            "log_directory": str(self._logs),
        }
        command: list[str | Path] = [self._reachable_installation().program("postgres"), "-D", self._data]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        # The shell leaves the server to init: it is nobody's child and outlives who has started it.
        script = 'output=$1; shift; "$@" >"$output" 2>&1 &'
        shell = self._account.run(["/bin/sh", "-c", script, "sh", self._logs / "start.log", *command], keep_open=[lock])
        if shell.stderr:
            raise EmbeddedPostgresError(f"PostgreSQL cannot be started in {self._data}: {shell.stderr.strip()}")

    def _clear_leftovers(self, sockets: Path) -> None:
        """What a killed server has left, and PostgreSQL takes for a running one's if its number is in use again."""
        postmaster = _Postmaster.of(self._data)
        if postmaster is not None and postmaster.listener() is not None:
            raise EmbeddedPostgresError(
                f"A PostgreSQL that Correlator has not started (process {postmaster.pid}) runs on {self._data}. "
                f"Stop it first: {self._command(self._installation, 'pg_ctl', '-D', self._data, 'stop')}"
            )
        for leftover in (self._data / "postmaster.pid", sockets / _SOCKET, sockets / f"{_SOCKET}.lock"):
            leftover.unlink(missing_ok=True)
        for half_made in self._directory.glob("data.new-*"):
            shutil.rmtree(half_made, ignore_errors=True)

    def _stop_server(self) -> None:
        with self._lock("server.lock") as lock:
            # First with a checkpoint. If that takes too long at once, at the price of a recovery at the next start.
            for how in (signal.SIGINT, signal.SIGQUIT):
                deadline = time.monotonic() + self._stop_timeout
                signalled = False
                while not _try_lock(lock):
                    postmaster = _Postmaster.of(self._data)
                    if not signalled and postmaster is not None and (listener := postmaster.listener()):
                        if listener != (postmaster.pid, self._account.uid):
                            _log.warning(
                                "the PostgreSQL in %s is left running: it runs in another container", self._directory
                            )
                            return
                        with suppress(ProcessLookupError):
                            os.kill(postmaster.pid, how)
                        signalled = True
                    if time.monotonic() > deadline:
                        break
                    self._pause()
                else:
                    if (sockets := self._socket_directory()).parent == _TEMPORARY:
                        with suppress(OSError):
                            sockets.rmdir()
                    _log.info("stopped the embedded PostgreSQL in %s", self._directory)
                    return
            _log.error("the PostgreSQL in %s does not stop and is left running", self._directory)

    # Programs and paths

    @property
    def _installation(self) -> Installation:
        return self._installations[0]

    def _reachable_installation(self) -> Installation:
        if self._installation.usable_by(self._account):
            return self._installation
        # The wheel lies in a directory that is closed to the server's user.
        return self._installation.copied_to(self._directory / "programs")

    def _socket_directory(self) -> Path:
        path = self._directory / "socket"
        # A comma would separate hosts.
        if len(os.fsencode(path / _SOCKET)) <= _LONGEST_SOCKET_PATH and "," not in str(path):
            return path
        # Not $TMPDIR: every process that shares the server has to come to the same place.
        return _TEMPORARY / f"correlator-{self._account.uid}-{sha256(os.fsencode(self._directory)).hexdigest()[:16]}"

    # Words

    def _last_words(self, since: float) -> str:
        files = [
            file for file in self._logs.glob("*.log") if not file.is_symlink() and file.stat().st_mtime > since - 1
        ]
        files.sort(key=lambda file: file.stat().st_mtime)
        said = "\n".join(_tail(file.read_text(encoding="utf-8", errors="replace")) for file in files[-2:])
        return f" The last lines of its logs in {self._logs}:\n{said}" if said else f" Its logs are in {self._logs}."

    def _command(self, installation: Installation, program: str, *words: str | Path) -> str:
        user = [] if self._account.is_me else ["runuser", "-u", self._account.name, "--"]
        return shlex.join([*user, str(installation.program(program)), *map(str, words)])

    def _how_to_move(self, version: str) -> str:
        kept = self._directory / f"data-{version}"
        dump = kept / "correlator.dump"
        sockets = self._socket_directory()
        self._make_private(sockets)
        options = f"-c listen_addresses= -p {_PORT} -k {shlex.quote(str(sockets))}"
        reach = ("-h", sockets, "-p", str(_PORT), "-U", _NAME)
        # Where Debian puts it, if the wheel does not have it.
        old = Installation(Path("/usr/lib/postgresql") / version, version)
        old = next((other for other in self._installations if str(other.major) == version), old)
        new = self._installation
        steps = [
            shlex.join(["mv", str(self._data), str(kept)]),
            self._command(old, "pg_ctl", "start", "-w", "-D", kept, "-l", kept / "move.log", "-o", options),
            self._command(old, "pg_dump", *reach, "-Fc", "-f", dump, _NAME),
            self._command(old, "pg_ctl", "stop", "-w", "-D", kept),
            shlex.join(["correlator", "migrate", "--data-dir", str(self._directory.parent)]),
            self._command(new, "pg_ctl", "start", "-w", "-D", self._data, "-l", kept / "move.log", "-o", options),
            self._command(new, "pg_restore", *reach, "-d", "postgres", "--clean", "--if-exists", "--create", dump),
            self._command(new, "pg_ctl", "stop", "-w", "-D", self._data),
        ]
        return (
            f"{self._data} was made by PostgreSQL {version}; this Correlator brings PostgreSQL {new.major}, which "
            "cannot read it. Nothing has been changed. Go on with the Correlator that made it, or move the data while "
            f"no Correlator runs; PostgreSQL {version} must be installed, here in {old.root / 'bin'}:\n"
            + "\n".join(f"  {number}. {step}" for number, step in enumerate(steps, start=1))
            + f"\nThen start Correlator as before. When all is there, remove {kept}."
        )

    # The server, seen from outside

    def _answers(self) -> bool:
        postmaster = _Postmaster.of(self._data)
        if postmaster is None or not postmaster.is_ready:
            return False
        try:
            connection = psycopg.connect(_url(postmaster.sockets, "postgres"), autocommit=True, connect_timeout=10)
        except psycopg.OperationalError as error:
            self._refusal = f" It says: {error}"
            return False
        with connection:
            try:
                if not connection.execute("SELECT FROM pg_database WHERE datname = 'correlator'").rowcount:
                    connection.execute("CREATE DATABASE correlator")
            except psycopg.Error as error:
                if connection.broken:
                    return False
                raise EmbeddedPostgresError(f"PostgreSQL in {self._data} cannot make the database: {error}") from error
        self.url = _url(postmaster.sockets, _NAME)
        return True

    def _watch_server(self) -> None:
        pause, complaint = _FIRST_PAUSE_S, ""
        with self._lock("server.lock") as lock:
            while not self._closing.wait(_WATCH_S):
                if not _try_lock(lock, fcntl.LOCK_SH):
                    continue
                fcntl.flock(lock, fcntl.LOCK_UN)
                try:
                    with self._starting(self._start_timeout):
                        self._ensure_server(may_initialise=False)
                except _NoLongerWanted:
                    return
                except (EmbeddedPostgresError, OSError, psycopg.Error) as error:
                    # The same again, with later lines of a log below it, is said once.
                    first_line = str(error).partition("\n")[0]
                    if first_line != complaint:
                        _log.error("the embedded PostgreSQL has died: %s", error)
                    complaint = first_line
                    if self._closing.wait(pause):
                        return
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
                else:
                    _log.warning("the embedded PostgreSQL in %s had died and runs again", self._directory)
                    self.restarts += 1
                    pause, complaint = _FIRST_PAUSE_S, ""


def _settings(directory: Path) -> dict[str, str]:
    """For steady writing on a small machine. They go into `postgresql.conf` once and are its owner's to change."""
    memory, room = _memory() // _MEGABYTE, shutil.disk_usage(directory).free // _MEGABYTE
    return {
        "max_connections": "100",
        # Python and Spark want memory on the same machine. But a page of an index that has no room here is written
        # again for each batch, and a load of millions touches most of them with each.
        "shared_buffers": f"{max(32, min(memory // 8, 4096))}MB",
        "effective_cache_size": f"{max(64, memory // 2)}MB",
        "maintenance_work_mem": f"{max(32, min(memory // 16, 256))}MB",
        "work_mem": "16MB",
        # Few checkpoints: after each of them the first change of a page writes the whole page to the log.
        "checkpoint_timeout": "15min",
        "max_wal_size": f"{max(1024, min(room // 8, 8192))}MB",
        "min_wal_size": "512MB",
        # The wheel is built without lz4, and pglz costs more time than the bytes are worth.
        "wal_compression": "off",
        "random_page_cost": "1.1",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_line_prefix": "%m [%p] %a ",
    }


def _memory() -> int:
    """Bytes: the machine's, or the container's share of it."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            found.append(int(Path(limit).read_text(encoding="utf-8")))
    return min(found)


def _try_lock(lock: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _url(sockets: Path, database: str) -> str:
    parameters = {"host": str(sockets), "port": str(_PORT), "user": _NAME}
    # What a URL does not say libpq takes from the environment. How long to wait for a connection is the caller's.
    for option in Conninfo.get_defaults():
        keyword, variable = option.keyword.decode(), (option.envvar or b"").decode()
        if variable in os.environ and keyword not in {*parameters, "dbname", "connect_timeout"}:
            parameters[keyword] = (option.compiled or b"").decode() or _NEUTRAL.get(keyword, "")
    return f"postgresql:///{database}?{urlencode(parameters, quote_via=quote, errors='surrogateescape')}"


def _sync(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _tail(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-_QUOTED_LINES:])
