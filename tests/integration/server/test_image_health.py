"""The health check of the image, against a real server."""

import os
import subprocess
import sys
from pathlib import Path

from correlator.store.database import Database
from tests.integration.server.running import running
from tests.unit.deploy.dockerfile import health_command, stages


def is_healthy(port: int) -> bool:
    _, *arguments = health_command(stages()[-1])
    environment = {**os.environ, "CORRELATOR_PORT": str(port)}
    asked = subprocess.run([sys.executable, *arguments], check=False, env=environment, capture_output=True)  # noqa: S603 (our own)
    return asked.returncode == 0


def test_the_health_check_of_the_image_says_whether_the_server_is_ready(database: Database, data_dir: Path) -> None:
    with running(data_dir, database=database) as server:
        port = server.port
        assert is_healthy(port)
    assert not is_healthy(port)
