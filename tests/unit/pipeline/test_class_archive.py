"""The archive of Spark's classes: a cache that may be missing, foreign or broken, and nobody notices."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from correlator.pipeline import class_archive


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def put(content: bytes) -> None:
    path = class_archive.path_here()
    assert path is not None
    path.parent.mkdir()
    path.write_bytes(content)


def test_without_an_archive_java_is_told_nothing() -> None:
    assert class_archive.java_options() == ()


def test_an_archive_that_is_no_archive_hinders_no_start_and_says_nothing() -> None:
    put(b"not what it should be")
    options = class_archive.java_options()
    java = shutil.which("java")
    assert java is not None

    told = subprocess.run([java, *options, "-version"], check=False, capture_output=True, text=True)  # noqa: S603

    assert any("SharedArchiveFile" in option for option in options)
    assert told.returncode == 0
    assert told.stdout == ""
    assert "version" in told.stderr.splitlines()[0]
    assert "archive" not in told.stderr


def test_what_is_there_is_not_made_again() -> None:
    put(b"made before")
    path = class_archive.make()
    assert path is not None
    assert path.read_bytes() == b"made before"


@pytest.fixture
def another_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    return java


def test_another_java_has_another(another_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    its_own = class_archive.path_here()
    os.utime(another_java, (0, 0))
    after_an_update = class_archive.path_here()
    monkeypatch.delenv("JAVA_HOME")
    assert len({its_own, after_an_update, class_archive.path_here()}) == 3


def test_an_image_that_has_lost_the_parts_of_seconds_has_the_same(another_java: Path) -> None:
    second = 1_000_000_000
    os.utime(another_java, ns=(0, 1_700_000_000 * second + second // 3))
    before = class_archive.path_here()
    os.utime(another_java, ns=(0, 1_700_000_000 * second))
    assert class_archive.path_here() == before


def test_without_java_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "")
    assert class_archive.path_here() is None
    assert class_archive.java_options() == ()


def test_who_has_no_home_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", dict[int, object]().__getitem__)  # as for a number that nobody has
    assert class_archive.path_here() is None
    assert class_archive.java_options() == ()
