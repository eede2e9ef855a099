"""A real Spark cluster on this machine: a master and workers in processes of their own, from the PySpark wheel."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from correlator.pipeline.class_archive import java_options
from tests.integration.pipeline.brokers import free_ports
from tests.integration.pipeline.pipelines import PATIENCE, environment

_SPARK = Path(pyspark.__file__).parent


class Cluster:
    def __init__(self, directory: Path, url: str) -> None:
        self.url = url
        self._directory = directory

    @property
    def settings(self) -> dict[str, str]:
        """What a pipeline is told to run here."""
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.cores": "1",
            "spark.executor.memory": "700m",
            "spark.executor.extraJavaOptions": " ".join([*java_options(), "-XX:TieredStopAtLevel=1"]),
        }
        return {"spark_master": self.url, "spark_conf": ",".join(f"{key}={value}" for key, value in conf.items())}

    def executors(self) -> set[str]:
        """The workers that have had one."""
        return {path.parts[-4] for path in self._directory.glob("worker-*/work/app-*/*") if path.is_dir()}


@contextmanager
def running_cluster(directory: Path, workers: int = 2) -> Iterator[Cluster]:
    (port,) = free_ports(1)
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        master = directory / "master"
        command = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        stack.enter_context(_process(master, [*command, "--webui-port", "0"], "I have been elected leader"))
        for number in range(workers):
            worker = directory / f"worker-{number}"
            command = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0"]
            command += ["--cores", "1", "--memory", "1g", "--work-dir", str(worker / "work"), url]
            stack.enter_context(_process(worker, command, "Successfully registered with master"))
        yield Cluster(directory, url)


@contextmanager
def _process(directory: Path, command: list[str], ready: str) -> Iterator[None]:
    """One of the cluster's own, until it says that it is ready."""
    directory.mkdir()
    log_file = directory / "log"
    own = {"SPARK_DAEMON_JAVA_OPTS": " ".join(java_options())}
    own |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(directory)}
    with log_file.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 (Spark's own command)
            [str(_SPARK / "bin" / "spark-class"), *command],
            stdout=log,
            stderr=log,
            env=environment({}) | own,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while ready not in log_file.read_text():
            assert process.poll() is None, log_file.read_text()
            assert time.monotonic() < deadline, log_file.read_text()
            time.sleep(0.1)
        yield
    finally:
        # A worker's executors are of its session.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
