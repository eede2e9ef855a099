"""The name of one request, by which its answer, its log line and a user's report find each other."""

import itertools
import os
import re
from typing import Final

HEADER: Final = b"x-correlation-id"
LONGEST: Final = 64
PATTERN: Final = rf"[A-Za-z0-9._:/=+@-]{{1,{LONGEST}}}"
"""Room for a UUID, a W3C traceparent, an AWS trace id; no character that means anything to a log, a shell or HTML."""

_is_safe = re.compile(PATTERN.encode()).fullmatch


class CorrelationIds:
    """Takes the client's id where it is safe to repeat, else makes one.

    Made of 64 random bits for this process and a counter: a UUID for each request would cost ten times as much.
    """

    def __init__(self) -> None:
        self._prefix = os.urandom(8).hex()
        self._numbers = itertools.count(1)

    def take(self, given: bytes | None) -> str:
        if given is not None and _is_safe(given):
            return given.decode("ascii")
        return f"{self._prefix}-{next(self._numbers):x}"
