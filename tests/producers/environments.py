"""Virtual environments of tools that are too heavy, or too choosy, for ours.

They are made once, lie in `.cache/producers`, and are made anew when what is wanted changes. Where that cannot be done
a test is skipped and says why; in CI it fails, because there nobody would read that.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest

CACHE: Final = Path(__file__).parents[2] / ".cache" / "producers"
_TRIES: Final = 3
_PATIENCE: Final = 1200


def environment(name: str, requirements: Sequence[str]) -> Path:
    """The `bin` of an environment that has these."""
    wanted = repr((sys.version_info[:2], sorted(requirements)))
    place = CACHE / f"{name}-{sha256(wanted.encode()).hexdigest()[:8]}"
    complete = place / "complete"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{place.name}.lock").open("w") as lock:
        # Two workers of one test run may want the same.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            problem = _make(place, requirements)
            if problem is not None:
                shutil.rmtree(place, ignore_errors=True)
                words = f"{' '.join(requirements)} could not be installed: {problem}"
                if os.environ.get("CI", "").lower() == "true":
                    pytest.fail(words)
                pytest.skip(words)
            complete.touch()
    return place / "bin"


def _make(place: Path, requirements: Sequence[str]) -> str | None:
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=_PATIENCE)  # noqa: S603
    command = [str(place / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--retries", "5"]
    said = ""
    for number in range(_TRIES):
        time.sleep(5 * number)
        done = subprocess.run(  # noqa: S603
            [*command, *requirements], check=False, capture_output=True, text=True, timeout=_PATIENCE
        )
        if done.returncode == 0:
            return None
        said = done.stderr.strip()
    return said[-500:] or "pip says nothing"
