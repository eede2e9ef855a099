"""deploy/Dockerfile, read as far as the tests ask."""

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy" / "Dockerfile"


@dataclass
class Stage:
    image: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)
    """Instruction and what follows it, continued lines in one."""

    def all(self, instruction: str) -> list[str]:
        return [rest for name, rest in self.steps if name == instruction]

    def last(self, instruction: str) -> str:
        return self.all(instruction)[-1]


def stages() -> list[Stage]:
    text = "".join(
        line for line in FILE.read_text(encoding="utf-8").splitlines(True) if not line.lstrip().startswith("#")
    )
    found: list[Stage] = []
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if not line.strip():
            continue
        instruction, rest = line.split(maxsplit=1)
        if instruction == "FROM":
            image, _, name = rest.partition(" AS ")
            found.append(Stage(image, name))
        else:
            found[-1].steps.append((instruction, rest))
    return found


def environment(stage: Stage) -> dict[str, str]:
    return dict(pair.split("=", 1) for line in stage.all("ENV") for pair in shlex.split(line))


def health_command(stage: Stage) -> list[str]:
    command: list[str] = json.loads(stage.last("HEALTHCHECK").partition(" CMD ")[2])
    return command
