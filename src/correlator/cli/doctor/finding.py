"""What one look of the doctor comes to."""

from typing import Literal, TypeAlias

import msgspec

Outcome: TypeAlias = Literal["ok", "warning", "problem"]


class Finding(msgspec.Struct, frozen=True):
    """As `--json` prints it."""

    check: str
    outcome: Outcome
    said: str
    advice: str | None = None
    """What to do; none where all is well."""
