"""Jars from Maven Central, with the Ivy that PySpark brings along: a machine that runs Spark can fetch them.

They are kept in the user's cache from run to run. Where they cannot be had a test is skipped and says why; in CI it
fails, because there nobody would read that.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

_TRIES = 3
_PATIENCE = 600


class Artifact(NamedTuple):
    organisation: str
    name: str
    version: str
    with_dependencies: bool = False


BROKER = (Artifact("org.apache.kafka", "kafka_2.13", "4.3.1", with_dependencies=True),)

# The connector of the running Spark first. Where that is not to be had (a mirror that lags behind), a set that was
# tried with it.
CONNECTORS = (
    (Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", pyspark.__version__, with_dependencies=True),),
    (
        Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        Artifact("org.apache.kafka", "kafka-clients", "3.9.2"),
        Artifact("org.apache.commons", "commons-pool2", "2.13.1"),
    ),
)


def jars(*choices: Sequence[Artifact]) -> list[Path]:
    """The jars of the first choice that can be had."""
    for choice in choices:
        if found := _cached(choice):
            return found
    problems = ""
    for choice in choices:
        directory = _directory(choice)
        problems = _fetch(choice, directory)
        if found := _cached(choice):
            return found
    words = f"{choices[-1][0].name} could not be fetched from Maven Central: {problems}"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(words)
    pytest.skip(words)


def _cached(choice: Sequence[Artifact]) -> list[Path]:
    return sorted(_directory(choice).glob("*.jar"))


def _directory(choice: Sequence[Artifact]) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "correlator-tests"
    return cache / f"{choice[0].name}-{choice[0].version}-{sha256(repr(choice).encode()).hexdigest()[:8]}"


def _fetch(choice: Sequence[Artifact], directory: Path) -> str:
    """Fetch into a directory, which is there when it is whole; else say what went wrong."""
    java = shutil.which("java")
    if java is None:
        return "there is no java"
    directory.parent.mkdir(parents=True, exist_ok=True)
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    with tempfile.TemporaryDirectory(dir=directory.parent) as work:
        wanted = Path(work) / "ivy.xml"
        wanted.write_text(_ivy_file(choice))
        command = [java, "-jar", str(ivy), "-error", "-cache", str(directory.parent / "ivy"), "-ivy", str(wanted)]
        command += ["-retrieve", f"{work}/jars/[artifact]-[revision].[ext]"]
        said = ""
        for number in range(_TRIES):
            time.sleep(2 * number)
            fetched = subprocess.run(  # noqa: S603 (Ivy, with arguments of our own)
                command, check=False, capture_output=True, text=True, timeout=_PATIENCE
            )
            if fetched.returncode == 0:
                (Path(work) / "jars").rename(directory)
                return ""
            said = next((line.strip() for line in fetched.stdout.splitlines() if "::" in line and ";" in line), "")
            if "not found" in said:
                break
        return said or "Ivy failed"


def _ivy_file(choice: Sequence[Artifact]) -> str:
    dependencies = "".join(
        f'<dependency org="{one.organisation}" name="{one.name}" rev="{one.version}" '
        f'conf="default->{"master,runtime" if one.with_dependencies else "master"}"/>'
        for one in choice
    )
    return (
        '<ivy-module version="2.0"><info organisation="correlator" module="tests"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
