"""A real `correlator pipeline` in a process of its own, and how long to wait for it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import correlator

PATIENCE = 400
"""Seconds for what takes ten on a quiet machine: nothing is measured with it."""

QUICKLY = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"
"""A `spark_conf` for a batch of a few events, for which Java's better compiler would take more than all the rest."""


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """What a process inherits, without settings but these. Spark's own processes find the code under test as well."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CORRELATOR_")}
    code = str(Path(correlator.__file__).parent.parent)
    paths = [code, *filter(None, inherited.get("PYTHONPATH", "").split(os.pathsep))]
    inherited["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    return inherited | {f"CORRELATOR_{name.upper()}": value for name, value in settings.items()}


def run_batch(settings: Mapping[str, str], patience: float = PATIENCE) -> subprocess.CompletedProcess[str]:
    """`correlator pipeline batch`, to its end."""
    return _run(["pipeline", "batch"], settings, patience)


def run_audit(settings: Mapping[str, str], patience: float = PATIENCE) -> subprocess.CompletedProcess[str]:
    """`correlator audit --json`, to its end."""
    return _run(["audit", "--json"], settings, patience)


def _run(arguments: Sequence[str], settings: Mapping[str, str], patience: float) -> subprocess.CompletedProcess[str]:
    conf = ",".join(filter(None, [QUICKLY, settings.get("spark_conf")]))
    return subprocess.run(  # noqa: S603 (our own command)
        [sys.executable, "-m", "correlator.cli.main", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=patience,
        env=environment({**settings, "spark_conf": conf}),
    )


class Stream:
    """`correlator pipeline stream`."""

    def __init__(self, settings: Mapping[str, str], log_file: Path) -> None:
        self.log_file = log_file
        with log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "correlator.cli.main", "pipeline", "stream"],
                stdout=log,
                stderr=log,
                env=environment(settings),
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.1)


@contextmanager
def running_stream(settings: Mapping[str, str], log_file: Path) -> Iterator[Stream]:
    stream = Stream(settings, log_file)
    try:
        yield stream
    finally:
        try:
            stream.process.send_signal(signal.SIGTERM)
            stream.process.wait(PATIENCE)
        finally:
            # Its JVM and its Python workers are of the same session, and go with it.
            with suppress(ProcessLookupError):
                os.killpg(stream.process.pid, signal.SIGKILL)
