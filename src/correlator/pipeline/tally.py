"""What a task has to say for itself: how many events it read, what became of them, and where they lay.

The tallies of all tasks are added up on the driver. They are the only thing that comes back there, and do not grow with
the events: a task says one line for each partition of a topic or each file that it read.
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec
import pyarrow as pa

from correlator.store.merge import Span

T = TypeVar("T")


class Tally(msgspec.Struct):
    read: int = 0
    rejected: int = 0
    duplicates: int = 0
    spans: dict[str, Span] = {}

    def look(self, arrivals: pa.RecordBatch) -> None:
        """Count what has arrived, by its origin."""
        self.read += arrivals.num_rows
        table = pa.Table.from_batches([arrivals.select(["origin", "position", "size", "modified_at"])])
        counted = table.group_by("origin").aggregate(
            [("position", "min"), ("position", "max"), ("size", "max"), ("modified_at", "max"), ([], "count_all")]
        )
        for row in counted.to_pylist():
            self._add(
                Span(
                    row["origin"],
                    row["count_all"],
                    row["position_min"],
                    row["position_max"],
                    row["size_max"],
                    row["modified_at_max"],
                )
            )

    def add(self, other: "Tally") -> None:
        self.read += other.read
        self.rejected += other.rejected
        self.duplicates += other.duplicates
        for span in other.spans.values():
            self._add(span)

    def _add(self, span: Span) -> None:
        known = self.spans.get(span.origin)
        self.spans[span.origin] = span if known is None else _joined(known, span)

    @property
    def applied(self) -> int:
        return self.read - self.rejected - self.duplicates

    def without_spans(self) -> "Tally":
        """The numbers alone."""
        return Tally(self.read, self.rejected, self.duplicates)

    def encode(self) -> bytes:
        return _encode(self)

    @staticmethod
    def decoded(payload: bytes) -> "Tally":
        return _decode(payload)

    @staticmethod
    def total(payloads: Iterable[bytes]) -> "Tally":
        total = Tally()
        for payload in payloads:
            total.add(_decode(payload))
        return total


def _joined(one: Span, other: Span) -> Span:
    return Span(
        one.origin,
        one.events + other.events,
        min(_said(one.first, other.first), default=None),
        max(_said(one.last, other.last), default=None),
        max(_said(one.size, other.size), default=None),
        max(_said(one.modified_at, other.modified_at), default=None),
    )


def _said(*values: T | None) -> list[T]:
    return [value for value in values if value is not None]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Tally).decode
