"""Files of lines on this machine, read by the very tasks that judge the lines, a piece at a time.

By Spark's own reader each line would come to Python through Java and a socket: of a bulk load, a tenth of all that it
costs. A piece is a row of arrivals that holds no event: it has the `length` of a part of a file, which begins at its
`position`. A line belongs to the piece that its first byte lies in.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from correlator.pipeline.arrivals import LENGTH
from correlator.pipeline.places import key_of

BYTES: Final = 32 * 2**20
_LINES: Final = 20_000
"""So many are judged and folded at once, as of what Spark reads: see `session`."""
_ON: Final = 2**16
"""In such steps the end of a piece's last line is looked for in what follows it."""
_BEGINNING: Final = b"{"
_BYTE_ORDER_MARK: Final = "\ufeff".encode()


class Arrived(NamedTuple):
    """Some events, and beside them what else is known of each."""

    raws: list[bytes | None]
    about: pa.RecordBatch
    """The columns of arrivals but for the events themselves."""


def opened(batches: Iterable[pa.RecordBatch]) -> Iterator[Arrived]:
    """What has arrived, the lines of pieces among it."""
    for batch in batches:
        if LENGTH not in batch.schema.names:
            yield _arrived(batch)
            continue
        is_event = pc.is_null(batch.column(LENGTH))
        events = batch.filter(is_event)
        if events.num_rows:
            yield _arrived(events.drop_columns([LENGTH]))
        pieces = batch.filter(pc.invert(is_event))
        for number in range(pieces.num_rows):
            yield from _lines_of(pieces.slice(number, 1))


def _arrived(events: pa.RecordBatch) -> Arrived:
    return Arrived(events.column("raw").to_pylist(), events.drop_columns(["raw"]))


def _lines_of(piece: pa.RecordBatch) -> Iterator[Arrived]:
    start, length = piece.column("position")[0].as_py(), piece.column(LENGTH)[0].as_py()
    with Path(key_of(piece.column("origin")[0].as_py())).open("rb", buffering=0) as file:
        lines = lines_between(file, start, start + length)
    about = piece.drop_columns(["raw", LENGTH])
    # A line has no place that would be the same however the file is cut.
    place = about.schema.get_field_index("position")
    about = about.set_column(place, about.schema.field(place), pa.nulls(1, pa.int64()))
    for first in range(0, len(lines), _LINES):
        some = lines[first : first + _LINES]
        yield Arrived(some, about.take(pa.repeat(pa.scalar(0), len(some))))


def lines_between(file: BinaryIO, start: int, end: int) -> list[bytes | None]:
    """The lines of a file whose first byte lies from one place up to another, but for empty ones."""
    # The byte before tells whether a line begins right here.
    before = min(start, 1)
    file.seek(start - before)
    text = _read(file, end - start + before)
    if before:
        text = text[_end_of_line(text) :]
    if text and not text.endswith((b"\n", b"\r")):
        text += b"".join(_rest_of_line(file))
    # What a file may begin with is not part of its first line.
    text = text if before else text.removeprefix(_BYTE_ORDER_MARK)
    # To look for one letter alone is many times faster.
    lines = text.splitlines() if b"\r" in text else text.split(b"\n")
    return [line for line in lines if line.startswith(_BEGINNING) or not _is_empty(line)]


def _read(file: BinaryIO, size: int) -> bytes:
    """So many bytes, unless the file ends before."""
    read = []
    while size and (some := file.read(size)):
        read.append(some)
        size -= len(some)
    return b"".join(read)


def _end_of_line(text: bytes) -> int:
    """Where the first line ends; where none does, at the end."""
    found = [at + 1 for at in (text.find(b"\n"), text.find(b"\r")) if at >= 0]
    return min(found, default=len(text))


def _rest_of_line(file: BinaryIO) -> Iterator[bytes]:
    while some := file.read(_ON):
        end = _end_of_line(some)
        yield some[:end]
        if some[:end].endswith((b"\n", b"\r")):
            return


def _is_empty(line: bytes) -> bool:
    """Whether it says nothing: files that were put together have such a mark before a line, or instead of one."""
    return not line.replace(_BYTE_ORDER_MARK, b"").strip()
