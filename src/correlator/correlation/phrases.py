"""Amounts, times and messages as the sentences of an answer say them."""

from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 3600


def count(amount: float) -> str:
    return f"{round(amount):,}"


def span(seconds: float) -> str:
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE:.0f} min" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f} h"


def first_line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else ""


def said(message: str) -> str:
    """An error message at the end of a sentence."""
    return f": {first_line(message)}" if message else ""
