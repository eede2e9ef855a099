"""The pages of `docs/producers`, and others by their way from there: what a test runs is what a reader types.

A page has files (blocks with a path after the language: ```` ```sql models/orders.sql ````) and commands (lines of
`console` blocks that begin with `$`), under headings. Only places differ: what a page calls `http://localhost:8080` is
where the test's Correlator listens.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

DIRECTORY: Final = Path(__file__).parents[2] / "docs" / "producers"
PATIENCE: Final = 600

NOT_COUNTED: Final = {
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
}
"""A test is nobody's user, and tools that cannot tell so wait for an answer."""

_BLOCK: Final = re.compile(r"^```(?P<language>\S+)(?: (?P<path>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^## (.+)$", re.MULTILINE)


class Block(NamedTuple):
    heading: str
    language: str
    path: str | None
    text: str


class Page:
    def __init__(self, name: str, places: Mapping[str, str] | None = None) -> None:
        """`places` are what stands on the page, and what the test has instead."""
        self._places = dict(places or {})
        self.text = (DIRECTORY / name).read_text()
        headings = [(found.start(), found[1]) for found in _HEADING.finditer(self.text)]
        self._blocks = [
            Block(
                next((name for start, name in reversed(headings) if start < found.start()), ""),
                found["language"],
                found["path"],
                found["text"],
            )
            for found in _BLOCK.finditer(self.text)
        ]

    def write_files(self, directory: Path) -> None:
        for block in self._blocks:
            if block.path is not None:
                place = directory / block.path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(self._placed(block.text))

    def commands(self, heading: str) -> list[str]:
        """What is typed under a heading, each command in one piece."""
        found: list[str] = []
        goes_on = False
        for block in self._blocks:
            for line in block.text.splitlines() if (block.heading, block.language) == (heading, "console") else ():
                if line.startswith("$ "):
                    found.append(line.removeprefix("$ "))
                elif goes_on:
                    found[-1] += f"\n{line}"
                else:
                    continue
                goes_on = line.endswith("\\")
        assert found, f"nothing is typed under {heading!r}"
        return [self._placed(command) for command in found]

    @property
    def requirements(self) -> list[str]:
        """What the page installs with pip."""
        lines = [
            shlex.split(command) for block in {block.heading for block in self._blocks} for command in self._all(block)
        ]
        return [word for line in lines if line[:2] == ["pip", "install"] for word in line[2:]]

    @property
    def all_commands(self) -> list[str]:
        """Everything that is typed on the page, in order."""
        headings = dict.fromkeys(block.heading for block in self._blocks)
        return [command for heading in headings for command in self._all(heading)]

    def _all(self, heading: str) -> list[str]:
        has_any = any((block.heading, block.language) == (heading, "console") for block in self._blocks)
        return self.commands(heading) if has_any else []

    def _placed(self, text: str) -> str:
        for written, meant in self._places.items():
            text = text.replace(written, meant)
        return text


def run(
    commands: list[str], directory: Path, *programs: Path, check: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The commands in one shell, as they are typed, with these directories of programs in front."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENLINEAGE_", "CORRELATOR_", "PYTEST_", "AIRFLOW_", "DBT_", "PYTHON"))
    }
    path = os.pathsep.join([*map(str, programs), inherited.get("PATH", "")])
    done = subprocess.run(  # noqa: S603 (what the page says)
        ["/bin/bash", "-c", "\n".join(["set -e" if check else "", *commands])],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=directory,
        env=inherited | NOT_COUNTED | {"PATH": path, "HOME": str(directory)} | environment,
    )
    assert not check or done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done
