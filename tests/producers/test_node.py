"""The pages are built on a machine that has no Node: with the one of a Python package, by `make web`."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.bare import path_without

ROOT = Path(__file__).parents[2]
PARTS = ("Makefile", "pyproject.toml", "README.md", "src", "web")
NODE = ("node", "nodejs", "npm", "npx", "corepack")
PATIENCE = 900


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """This project with an environment that has all of ours, and nothing that was built."""
    root = tmp_path / "clone"
    root.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            left_out = shutil.ignore_patterns("node_modules", ".built", "__pycache__", "openapi.json", "schema.ts")
            shutil.copytree(ROOT / part, root / part, ignore=left_out)
        else:
            shutil.copy(ROOT / part, root / part)
    shutil.rmtree(root / "src" / "correlator" / "server" / "web", ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(root / ".venv")], check=True)  # noqa: S603
    (packages,) = (root / ".venv" / "lib").glob("python*/site-packages")
    (packages / "ours.pth").write_text(f"{root / 'src'}\n{sysconfig.get_path('purelib')}\n")
    (root / ".venv" / ".installed").touch()
    return root


def make_web(clone: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    # The tests themselves may have been started by make.
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MAKE"))}
    bare["PATH"] = path_without(clone.parent, *NODE)
    return subprocess.run(
        ["make", "web"],  # noqa: S607
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=clone,
        env=bare | environment,
    )


def test_where_none_can_be_had_it_says_what_to_install(clone: Path) -> None:
    # Port 9 is where nobody listens.
    done = make_web(clone, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="0", PIP_NO_CACHE_DIR="1")

    assert done.returncode == 0, done.stderr
    assert "install Node 20.19 or newer (https://nodejs.org), then run 'make web'" in done.stdout
    assert not (clone / "src" / "correlator" / "server" / "web").exists()


def test_pages_that_are_built_already_are_no_news(clone: Path) -> None:
    (clone / ".venv" / "bin" / "npm").symlink_to("/bin/false")
    (clone / "web" / ".built").touch()

    done = make_web(clone)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.producers
def test_the_pages_are_built_with_the_node_of_a_package(clone: Path) -> None:
    done = make_web(clone)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "one is installed into .venv" in done.stdout
    assert (clone / "src" / "correlator" / "server" / "web" / "index.html").is_file()
