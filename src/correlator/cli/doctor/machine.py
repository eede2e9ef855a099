"""What the machine has to have: Python and packages, Java, room on a disk, the pages."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.resources import files
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from correlator.cli.doctor.finding import Finding
from correlator.pipeline.java import NoJavaError, find_java
from correlator.setting_kinds import Bytes

_PACKAGE: Final = "openlineage-correlator"
_PARTS: Final = ("", "server", "pipeline", "proxy")
"""The extras that `correlator up` and `correlator proxy` are made of, and what stands in none."""
_NAMED: Final = ("openlineage-python", "psycopg", "pyspark")
_OLDEST_PYTHON: Final = (3, 11)
_OLDEST_NODE: Final = (20, 19)
_PATIENCE_SECONDS: Final = 30.0
_FEW_FILES: Final = 10_000
_GIGABYTE: Final = 1_000_000_000
_ROOM_TO_BREATHE: Final = 5
"""So many times the least room is where it begins to be tight."""

INSTALL: Final = f"Install what is missing: pip install --upgrade '{_PACKAGE}[all]'"


def python() -> Finding:
    said = f"Python {'.'.join(map(str, sys.version_info[:3]))}, {sys.executable}"
    if sys.version_info < _OLDEST_PYTHON:
        return Finding("python", "problem", said, "Correlator needs Python 3.11 or newer.")
    return Finding("python", "ok", said)


def packages() -> Finding:
    """Whether everything is installed that this version of Correlator declares, in a version that it was made for."""
    try:
        declared = [Requirement(text) for text in requires(_PACKAGE) or ()]
        own = version(_PACKAGE)
    except PackageNotFoundError:
        return Finding("packages", "problem", f"{_PACKAGE} is not installed in this Python.", INSTALL)
    amiss = []
    found = {}
    for requirement in declared:
        name = requirement.name
        if name == _PACKAGE or not any(_holds(requirement, part) for part in _PARTS):
            continue
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            amiss.append(f"{name} is missing")
            continue
        if not requirement.specifier.contains(found[name], prereleases=True):
            amiss.append(f"{name} is {found[name]} and must be {requirement.specifier}")
    if amiss:
        return Finding("packages", "problem", f"Correlator {own}: {'; '.join(dict.fromkeys(amiss))}.", INSTALL)
    named = ", ".join(f"{name} {found[name]}" for name in _NAMED)
    return Finding("packages", "ok", f"Correlator {own} with {named}")


def _holds(requirement: Requirement, part: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": part})


def java(environ: Mapping[str, str] | None = None) -> Finding:
    """The one that Spark is going to run on."""
    try:
        found = find_java(environ)
    except NoJavaError as error:
        said, _, advice = str(error).partition("). ")
        only = "Only the pipeline needs it: `correlator serve` and `correlator proxy` do without."
        return Finding("java", "problem", f"{said}).", f"{advice} {only}")
    return Finding("java", "ok", f"Java {found.version}, {found.program} ({found.origin})")


def data_directory(directory: Path) -> Finding:
    """Whether something can be written there, tried and not guessed."""
    advice = "Choose another with --data-dir (CORRELATOR_DATA_DIR), or run Correlator as the user to whom it belongs."
    there = _nearest(directory)
    if not there.is_dir():
        return Finding("data directory", "problem", f"{there} is not a directory.", advice)
    try:
        with tempfile.NamedTemporaryFile(prefix=".correlator-doctor-", dir=there) as file:
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return Finding("data directory", "problem", f"{there} cannot be written to: {error.strerror}.", advice)
    said = f"{directory} can be written to" if there == directory else f"{directory} can be made in {there}"
    return Finding("data directory", "ok", said)


def disk(directory: Path, least: Bytes) -> Finding:
    """Below `least` nothing should be started; what is tight is told in time."""
    there = _nearest(directory)
    try:
        free = shutil.disk_usage(there).free
        files_left = os.statvfs(there).f_favail
    except OSError as error:
        return Finding("disk", "problem", f"The disk of {there} cannot be looked at: {error.strerror}.", None)
    said = f"{_in_words(free)} free for {directory}"
    advice = (
        "Make room, or move the data with --data-dir. How long things are kept is set by log_retention and "
        "rejects_retention, and whether there is an archive by archive (docs/settings.md)."
    )
    if free < least:
        return Finding("disk", "problem", f"{said}; {_in_words(least)} is the least (--min-free).", advice)
    if free < _ROOM_TO_BREATHE * least:
        return Finding("disk", "warning", f"{said}, which is little: under load that is hours.", advice)
    if 0 < files_left < _FEW_FILES:
        return Finding("disk", "warning", f"{said}, and only {files_left:,} more files (inodes).", advice)
    return Finding("disk", "ok", said)


def pages(environ: Mapping[str, str] = os.environ) -> Finding:
    """Node is asked for only where there is something to build; a browser is nobody's affair but the reader's."""
    if (files("correlator.server") / "web" / "index.html").is_file():
        return Finding("pages", "ok", "The pages are built; no Node is needed.")
    node = _node(environ.get("PATH"))
    return Finding(
        "pages",
        "warning",
        f"The pages are not built: everything works but they. {node}",
        "In the source run `make web`, which needs Node 20.19 or newer; a released wheel carries them.",
    )


def _node(path: str | None) -> str:
    node = shutil.which("node", path=path)
    if node is None:
        return "There is no Node on PATH."
    try:
        asked = subprocess.run(  # noqa: S603 (the Node that npm would run)
            [node, "--version"], check=False, capture_output=True, text=True, timeout=_PATIENCE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{node} cannot be run: {error}."
    told = re.match(r"v([0-9]+)\.([0-9]+)", asked.stdout)
    if told is None:
        return f"{node} does not tell its version."
    is_old = (int(told[1]), int(told[2])) < _OLDEST_NODE
    return f"Node {asked.stdout.strip()}, {node}, is {'too old' if is_old else 'here'}."


def _nearest(directory: Path) -> Path:
    """The directory, or what is nearest to it of what there is."""
    return next(path for path in _upwards(directory) if path.exists())


def _upwards(directory: Path) -> Iterator[Path]:
    yield directory
    yield from directory.parents


def _in_words(size: Bytes) -> str:
    return f"{size / _GIGABYTE:,.1f} GB"
