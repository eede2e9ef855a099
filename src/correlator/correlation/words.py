"""What people type, as the indexes of words and of pieces of texts understand it."""

import re
from typing import Final

_ASCII_LOWER: Final = {capital: capital + 32 for capital in range(ord("A"), ord("Z") + 1)}
# As `words_of` of the database cuts names: at white space and at ASCII's signs.
_BORDER: Final = re.compile(r"[\s!-/:-@\[-`{-~\x00]+")
_MOST: Final = 12


def query_of(text: str) -> str | None:
    """Every word the beginning of one in the name, as a tsquery; None where there is no word in it."""
    words = [word[:100] for word in _BORDER.split(text.translate(_ASCII_LOWER)) if word]
    return " & ".join(f"'{word}':*" for word in words[:_MOST]) or None


_PIECE: Final = 3
"""Letters in a row, as `pieces_of` of the database cuts texts."""
_MOST_PIECES: Final = 30


def pieces_of(text: str) -> str | None:
    """A tsquery for what has this text within it, and may have its pieces elsewhere; None for the empty one."""
    lower = text.translate(_ASCII_LOWER)
    if len(lower) < _PIECE:
        return f"{_quoted(lower)}:*" if lower else None
    pieces = dict.fromkeys(lower[start : start + _PIECE] for start in range(len(lower) - _PIECE + 1))
    return " & ".join([_quoted(piece) for piece in pieces][:_MOST_PIECES])


def _quoted(piece: str) -> str:
    return "'" + piece.replace("\\", "\\\\").replace("'", "''") + "'"
