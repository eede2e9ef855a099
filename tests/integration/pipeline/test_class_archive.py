"""The archive of Spark's classes, made for real and used by a session."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.server.running import PATIENCE

# What the Java process has mapped into its memory. Of an archive that does not fit it lets go.
MAPPED = """
from pathlib import Path
from correlator.pipeline.session import spark_session
spark = spark_session("local[1]")
process = spark.sparkContext._gateway.proc.pid
print(Path(f"/proc/{process}/maps").read_text())
assert spark.range(3).count() == 3
spark.stop()
"""


def python(cache: Path, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 (our own code)
        [sys.executable, *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
    )
    return done.stdout


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process has mapped is told by Linux alone")
def test_an_archive_is_made_once_and_every_session_after_that_maps_it(tmp_path: Path) -> None:
    assert str(tmp_path) not in python(tmp_path, "-c", MAPPED)

    python(tmp_path, "-m", "correlator.pipeline.class_archive")

    (archive,) = (tmp_path / "correlator").iterdir()
    made_at = archive.stat().st_mtime_ns
    assert str(archive) in python(tmp_path, "-c", MAPPED)
    python(tmp_path, "-m", "correlator.pipeline.class_archive")
    assert archive.stat().st_mtime_ns == made_at
