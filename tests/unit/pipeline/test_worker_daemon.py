"""How Spark's Python processes start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from correlator.pipeline import session

COUNT_THREADS = """
import os
from correlator.pipeline.worker_daemon import prepare
prepare()
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system does not tell threads here")
def test_who_forks_workers_has_no_thread_but_its_first() -> None:
    said = subprocess.run([sys.executable, "-c", COUNT_THREADS], check=True, capture_output=True, text=True)  # noqa: S603

    assert said.stdout == "1\n"


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("{archive}", ""),
        ("{archive}:/one", "/one"),
        ("/one:{archive}:/two words:{archive}:{archive}", "/one:/two words"),
        ("/one:/other/python/lib/pyspark.zip", "/one:/other/python/lib/pyspark.zip"),
        ("", ""),
    ],
)
def test_the_archive_of_the_installed_spark_is_left_out_and_nothing_else(tmp_path: Path, given: str, left: str) -> None:
    script = Path(session.__file__).with_name("worker_python")
    archive = tmp_path / "a spark" / "python" / "lib" / "pyspark.zip"
    ours = {
        "PYTHON_WITH_SPARK": sys.executable,
        "INSTALLED_SPARK": str(tmp_path / "a spark"),
        "PYTHONPATH": given.format(archive=archive),
    }
    tell = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:], sep='\\n')"

    said = subprocess.run(  # noqa: S603 (our own script)
        [script, "-c", tell, "an argument", "b"], check=True, capture_output=True, text=True, env=os.environ | ours
    )

    assert said.stdout.splitlines() == [left, "['an argument', 'b']"]
