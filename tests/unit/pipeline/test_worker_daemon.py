"""How Spark's Python processes start."""

import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from correlator.pipeline import session, worker_daemon

SCRIPT = Path(session.__file__).with_name("worker_python")

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
    archive = tmp_path / "a spark" / "python" / "lib" / "pyspark.zip"
    ours = {
        "PYTHON_WITH_SPARK": sys.executable,
        "INSTALLED_SPARK": str(tmp_path / "a spark"),
        "PYTHONPATH": given.format(archive=archive),
    }
    tell = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:], sep='\\n')"

    said = subprocess.run(  # noqa: S603 (our own script)
        [SCRIPT, "-c", tell, "an argument", "b"], check=True, capture_output=True, text=True, env=os.environ | ours
    )

    assert said.stdout.splitlines() == [left, "['an argument', 'b']"]


OF_TASKS = (worker_daemon.MODULE, "pyspark.worker")
OF_PLANNERS = ("pyspark.daemon", "pyspark.sql.worker.lookup_data_sources")


@pytest.mark.parametrize(
    ("command", "said", "told"),
    [(OF_TASKS, b"", ""), (OF_TASKS, b"\0\0", "BrokenPipeError"), (OF_PLANNERS, b"", "")],
)
def test_a_worker_that_is_let_go_says_nothing_unless_it_was_asked_something(
    command: tuple[str, str], said: bytes, told: str
) -> None:
    # The path of a socket may be no longer than a hundred letters.
    with TemporaryDirectory() as directory:
        as_spark_says = {
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": directory,
            "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
            "SPARK_REUSE_WORKER": "1",
        }
        ours = {"PYTHON_WITH_SPARK": sys.executable, "INSTALLED_SPARK": directory}
        with subprocess.Popen(  # noqa: S603 (our own script)
            [SCRIPT, "-m", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | as_spark_says | ours,
        ) as daemon:
            assert daemon.stdout is not None
            (length,) = struct.unpack("!i", daemon.stdout.read(4))
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(daemon.stdout.read(length))
                (worker,) = struct.unpack("!i", connection.recv(4))
                connection.sendall(said)
            wait_until_gone(worker)
            _, errors = daemon.communicate(timeout=10)

    assert told in errors.decode()
    assert bool(told) == bool(errors)


def wait_until_gone(process: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError(f"process {process} is still there")
