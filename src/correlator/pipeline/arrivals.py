"""What every source gives: the bytes of an event, and where and when they arrived."""

from typing import Final

SCHEMA: Final = (
    "origin STRING, position BIGINT, arrived_at TIMESTAMP, size BIGINT, modified_at TIMESTAMP, "
    "key BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, raw BINARY"
)
"""`origin` is the log, the partition of a topic, or a file, and `position` the place in it, where it has one. `size` is
a file's when it was read, as is `modified_at`; `key` and `headers` are those of a message."""

LENGTH: Final = "length"
"""A column that only files have beside these: see `pieces`."""

FOLDED: Final = ("origin", "position", "size", "modified_at", "raw", LENGTH)
"""What the fold looks at."""
