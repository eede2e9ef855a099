"""The README tells the truth."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_readmes_command_prints_what_the_readme_shows() -> None:
    (command,) = re.findall(r"^\$ \.venv/bin/correlator (validate .+)$", README, re.MULTILINE)
    (shown,) = re.findall(r"```text\n(examples/.+?)```", README, re.DOTALL)

    printed = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "correlator.cli.main", *shlex.split(command)],
        capture_output=True,
        check=False,
        cwd=ROOT,
        text=True,
    )

    assert printed.stdout.startswith(shown)
    assert (printed.returncode, printed.stderr) == (1, "")


def test_every_make_target_that_the_readme_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"make ([a-z-]+)", README)) <= targets


def test_every_file_that_the_readme_links_to_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]

    assert [link for link in links if not (ROOT / link).exists()] == []
    assert links
