"""The table of docs/metrics.md, read."""

import re
from dataclasses import dataclass
from pathlib import Path

MANUAL = Path(__file__).parents[1] / "docs" / "metrics.md"
_ROW = re.compile(r"\| `(\w+)` \| ([a-z, ]+) \| (counter|gauge|histogram) \| ([^|]*) \| ([^|]+) \|")


@dataclass(frozen=True)
class Row:
    name: str
    parts: frozenset[str]
    kind: str
    labels: tuple[str, ...]
    meaning: str

    def __str__(self) -> str:
        labels = ", ".join(f"`{label}`" for label in self.labels)
        parts = ", ".join(sorted(self.parts, reverse=True))
        return f"| `{self.name}` | {parts} | {self.kind} | {labels} | {self.meaning} |"


def rows() -> dict[str, Row]:
    found = {}
    table = MANUAL.read_text(encoding="utf-8").partition("| metric |")[2].partition("\n\n")[0]
    for line in table.splitlines():
        if line.startswith("| `"):
            told = _ROW.fullmatch(line)
            assert told, f"not as the other rows: {line}"
            row = Row(told[1], frozenset(told[2].split(", ")), told[3], tuple(re.findall(r"`(\w+)`", told[4])), told[5])
            assert row.name not in found, f"twice: {line}"
            assert str(row) == line
            found[row.name] = row
    return found
