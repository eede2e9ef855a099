"""Moments as Python has them. PostgreSQL holds years that it cannot, and a producer may send them: then the nearest."""

from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Annotated, Any, Final, TypeAlias

import psycopg
from msgspec import Meta
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.types.datetime import TimestamptzLoader

Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
"""As answers have it."""

FIRST: Final = datetime.min.replace(tzinfo=UTC)
LAST: Final = datetime.max.replace(tzinfo=UTC)

_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_microseconds: Final = Struct("!q").unpack


class _OfText(TimestamptzLoader):
    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            return FIRST if bytes(data).startswith(b"-") or bytes(data).endswith(b"BC") else LAST


class _OfBinary(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> datetime:
        (microseconds,) = _microseconds(data)
        try:
            return _EPOCH + timedelta(microseconds=microseconds)
        except OverflowError:
            return FIRST if microseconds < 0 else LAST


def read_any_moment(context: AdaptContext) -> None:
    """Let a connection, or a cursor, read whatever moment a table holds."""
    adapters: Any = context.adapters
    adapters.register_loader("timestamptz", _OfText)
    adapters.register_loader("timestamptz", _OfBinary)
