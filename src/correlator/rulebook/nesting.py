"""How deep objects and arrays stand inside each other, without decoding them."""

import re
from typing import Final

_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKETS: Final = b"{}[]"
_OTHER_BYTES: Final = bytes(set(range(256)) - set(_BRACKETS))


def is_nested_deeper_than(most: int, raw: bytes) -> bool:
    """Whether a JSON text has a bracket inside more than `most` others.

    What has no more than `most` opening brackets cannot: that is nearly every event, and costs next to nothing.
    """
    if raw.count(b"{") + raw.count(b"[") <= most:
        return False
    brackets = _STRING.sub(b"", raw).translate(None, _OTHER_BYTES)
    # Each round takes away the innermost level.
    for _ in range(most):
        rest = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if len(rest) == len(brackets):
            break
        brackets = rest
    # What is left of a text that does not even balance is the decoder's business, unless it is deep itself.
    return brackets.count(b"{") + brackets.count(b"[") > (0 if _balances(brackets) else most)


def _balances(brackets: bytes) -> bool:
    return brackets.count(b"{") == brackets.count(b"}") and brackets.count(b"[") == brackets.count(b"]")
