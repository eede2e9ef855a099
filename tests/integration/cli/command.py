"""The real command in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

PATIENCE = 120


def correlator(*arguments: str, directory: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `correlator` with nothing of ours in its environment but what is given."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CORRELATOR_")}
    return subprocess.run(  # noqa: S603 (our own command)
        [sys.executable, "-m", "correlator.cli.main", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=directory,
        env=inherited | environment,
    )
