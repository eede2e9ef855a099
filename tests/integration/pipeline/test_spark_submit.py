"""The built wheel, given to `spark-submit` as docs/scale.md says."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pyspark
import pytest

from correlator.store.database import Database
from correlator.store.fact_rows import read_facts
from tests.integration.events import run_event
from tests.integration.pipeline.pipelines import PATIENCE, environment

_ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    built = subprocess.run(  # noqa: S603 (pip, with arguments of our own)
        [*command, "--wheel-dir", str(directory), str(_ROOT)],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    if built.returncode != 0 and os.environ.get("CI", "").lower() != "true":
        pytest.skip(f"the wheel cannot be built here: {built.stderr.strip().splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    return next(directory.glob("*.whl"))


@pytest.mark.long
def test_the_wheel_and_the_documented_script_are_all_that_spark_submit_needs(
    wheel: Path, tmp_path: Path, database: Database
) -> None:
    (script,) = re.findall(r"```python\n(from correlator.*?)```", (_ROOT / "docs/scale.md").read_text(), re.DOTALL)
    (tmp_path / "submit.py").write_text(script)
    package = shutil.copy(wheel, tmp_path / "correlator.zip")
    events = [run_event(run_id=str(uuid4()), job=f"job {number}") for number in range(100)]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    # Whoever finds another Correlator before that of the wheel, on the driver or in a task, does not get far.
    decoy = tmp_path / "decoy" / "correlator"
    decoy.mkdir(parents=True)
    (decoy / "__init__.py").write_text('raise ImportError("this is not the one of the wheel")')
    settings = {
        "database_url": database.url,
        "data_dir": str(tmp_path / "data"),
        "log_source": "false",
        "files": str(tmp_path / "events.jsonl"),
        # A large batch has all stages.
        "small_batch_events": "0",
    }
    told = subprocess.run(  # noqa: S603 (Spark's own command)
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            *("--master", "local[2]", "--py-files", str(package), str(tmp_path / "submit.py"), "pipeline", "batch"),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(settings) | {"PYTHONPATH": str(decoy.parent), "PYSPARK_PYTHON": sys.executable},
    )
    assert told.returncode == 0, told.stderr
    # It puts what a script says on either of the two into one.
    assert "100 events read" in told.stdout
    with database.connect("test") as connection:
        assert len(list(read_facts(connection))) > 100
        assert connection.execute("SELECT count(*) FROM job_runs").fetchone() == (100,)
