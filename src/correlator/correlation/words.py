"""What people type, as the index of words understands it: every word the beginning of one in the name."""

import re
from typing import Final

_ASCII_LOWER: Final = {capital: capital + 32 for capital in range(ord("A"), ord("Z") + 1)}
# As `words_of` of the database cuts names: at white space and at ASCII's signs.
_BORDER: Final = re.compile(r"[\s!-/:-@\[-`{-~\x00]+")
_MOST: Final = 12


def query_of(text: str) -> str | None:
    """A tsquery; None where there is no word in it."""
    words = [word[:100] for word in _BORDER.split(text.translate(_ASCII_LOWER)) if word]
    return " & ".join(f"'{word}':*" for word in words[:_MOST]) or None
