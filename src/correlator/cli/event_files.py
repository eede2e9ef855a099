"""Events in files: opening, unpacking, and finding where one event ends and the next begins."""

import gzip
import io
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Final, TypeAlias, cast

import msgspec

from correlator.rulebook.problems import ROOT, Problem


class UnreadableError(Exception):
    """An input, or the rest of it, cannot be read. Its text is for people."""


Found: TypeAlias = tuple[int, int | None, bytes | Problem]
"""The line where an event begins, its index if it is the element of an array, and its text, or why there is none."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_READ_AT_ONCE = 256 * 1024
_SIDE_BY_SIDE = 2
_LOOKED_AHEAD = 1024 * 1024
_GZIP = b"\x1f\x8b"
_NOT_TEXT = {
    b"PAR1": "Parquet",
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"\xfd7zXZ": "compressed with xz",
    b"BZh": "compressed with bzip2",
}
_LONGEST_MAGIC = max(map(len, _NOT_TEXT))


class _Metered(io.RawIOBase):
    """The bytes of an input as they come.

    It calls `before_read` whenever it has to wait for more: the moment to show what has been found so far, so that
    the loop over the events has to watch neither clock nor buffers.
    """

    def __init__(self, source: io.BufferedIOBase, before_read: Callable[[int], None]) -> None:
        self._source = source
        self._before_read = before_read
        self._last = 0
        self._head = b""
        while len(self._head) < _LONGEST_MAGIC and (more := self._read(_LONGEST_MAGIC - len(self._head))):
            self._head += more
        self.head = self._head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the interpreter passes nothing else
        more, self._head = self._head or self._read(len(buffer)), b""
        buffer[: len(more)] = more
        return len(more)

    def _read(self, size: int) -> bytes:
        self._before_read(self._last)
        try:
            more = self._source.read1(size)
        except OSError as error:
            raise UnreadableError(in_words(error)) from error
        self._last = len(more)
        return more


class _Gunzipped(io.RawIOBase):
    """What is in a gzip file, up to the place where it is damaged."""

    def __init__(self, source: io.BufferedIOBase) -> None:
        self._file = gzip.GzipFile(fileobj=source)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            # Not `read`, which would throw away what it has when it comes to the damage.
            more = self._file.read1(len(buffer))
        except EOFError as error:
            raise UnreadableError("the gzip file is truncated") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise UnreadableError(f"the gzip file is damaged ({error})") from error
        buffer[: len(more)] = more
        return len(more)


@contextmanager
def opened(name: str, before_read: Callable[[int], None]) -> Iterator[io.BufferedIOBase]:
    """The text of a file, or of standard input for `-`, unpacked if it is gzip whatever its name says."""
    try:
        source = cast("io.BufferedReader", sys.stdin.buffer) if name == "-" else open(name, "rb")  # noqa: PTH123, SIM115
    except OSError as error:
        raise UnreadableError(in_words(error)) from error
    except AttributeError as error:  # `<&-` leaves no sys.stdin at all
        raise UnreadableError("it is closed") from error
    try:
        metered = _Metered(source, before_read)
        for magic, what in _NOT_TEXT.items():
            if metered.head.startswith(magic):
                raise UnreadableError(f"it is {what}; only JSON, JSON lines and gzip of them can be read")
        plain = io.BufferedReader(metered, _READ_AT_ONCE)
        yield io.BufferedReader(_Gunzipped(plain), _READ_AT_ONCE) if metered.head.startswith(_GZIP) else plain
    finally:
        if name != "-":
            source.close()


def in_words(error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return "there is no such file"
        case IsADirectoryError():
            return "it is a directory; name the files in it"
        case PermissionError():
            return "it may not be read (permission denied)"
        case _:
            return (error.strerror or str(error)).lower()


def events_in(text: io.BufferedIOBase, max_bytes: int) -> Iterator[Found]:
    """Every event of a text: JSON lines; or JSON documents over any number of lines, whose arrays hold events.

    Which of the two it is, its first lines tell. Lines have the benefit of the doubt, because a broken line among them
    costs only itself.
    """
    before, first = 0, b""
    for before, piece in enumerate(iter(partial(text.readline, min(_READ_AT_ONCE, max_bytes + 1)), b"")):  # noqa: B007
        first = piece.removeprefix(_BYTE_ORDER_MARK)
        if first and not first.isspace():
            break
    else:
        return
    lines = iter(partial(text.readline, max_bytes + 1), b"")
    opening = [first]
    if not first.endswith(b"\n"):
        is_document = first.lstrip().startswith(b"[")
        if not is_document:
            opening = [first + text.readline(max_bytes + 1 - len(first))]
    elif is_document := _leaves_open(first):
        # A document breaks its lines where JSON allows it; a line that is broken ends anywhere.
        is_cut = not first.rstrip().endswith((b"{", b"[", b",", b":"))
        is_document = not _are_lines(lines, opening, is_cut=is_cut)
    if is_document:
        rest = iter(partial(text.read1, _READ_AT_ONCE), b"")
        yield from _events_of_documents(chain(opening, rest), before + 1, max_bytes)
    else:
        yield from _events_of_lines(chain(opening, lines), before + 1, max_bytes, text)


def _are_lines(lines: Iterator[bytes], opening: list[bytes], *, is_cut: bool) -> bool:
    """Whether what begins with brackets that stay open is no document, but JSON lines of which the first are broken.

    Some lines ahead tell, and are added to `opening`: inside a document two objects never stand side by side; and after
    a line that is cut off, a line that is a whole event can hardly be part of it.
    """
    side_by_side = looked_at = 0
    for line in lines:
        opening.append(line)
        looked_at += len(line)
        if line.isspace():
            continue
        members = _members(line)
        side_by_side = 0 if members is None else side_by_side + 1
        if side_by_side == _SIDE_BY_SIDE or (members is not None and "eventTime" in members and is_cut):
            return True
        if looked_at > _LOOKED_AHEAD:
            break
    return False


def _leaves_open(text: bytes) -> bool:
    """Whether there are brackets that it opens and does not close."""
    depth = 0
    for token in _TOKENS.finditer(text):
        match token[2]:
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]":
                depth = max(depth - 1, 0)
    return depth > 0


def _members(text: bytes) -> dict[str, msgspec.Raw] | None:
    """What is in an object; None if the text is no object."""
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _too_large(max_bytes: int) -> Problem:
    return Problem(ROOT, "too_large", f"the event is larger than {max_bytes:,} bytes, the limit of --max-bytes")


def _events_of_lines(lines: Iterable[bytes], number: int, max_bytes: int, text: io.BufferedIOBase) -> Iterator[Found]:
    for at, line in enumerate(lines, number):
        if len(line) > max_bytes and not line.endswith(b"\n"):
            while (rest := text.readline(_READ_AT_ONCE)) and not rest.endswith(b"\n"):
                pass
            yield at, None, _too_large(max_bytes)
        elif line[0] == _OPEN_BRACE:  # nearly all
            yield at, None, line.rstrip(b"\r\n")
        elif line.lstrip().startswith(b"["):
            yield from _events_of_documents([line], at, max_bytes)
        elif not line.isspace():
            yield at, None, line.rstrip(b"\r\n")


def _events_of_documents(pieces: Iterable[bytes], line: int, max_bytes: int) -> Iterator[Found]:
    splitter = _Splitter(line, max_bytes)
    for piece in pieces:
        yield from splitter.feed(piece)
    yield from splitter.finish()


_COMMA, _OPEN_BRACE, _OPEN_BRACKET, _CLOSE_BRACKET = b",{[]"
# Everything up to the next bracket or comma outside of strings, or to the end: it always matches, so that a long string
# is never searched twice. The first group is the end of the last string in between, empty if it has none; the second is
# the bracket or comma. A string ends at the latest with its line: no JSON string goes on in the next one, and so a
# forgotten quotation mark does not turn the rest of the file inside out.
_TOKENS: Final = re.compile(
    rb"""(?: [^"\[\]{},]++ | "[^"\\\n]*+(?:\\.[^"\\\n]*+)*+("?) )*+  (?: ([\[\]{},]) | \Z )""", re.VERBOSE
)


class _Splitter:
    """Cuts a text into its values, and arrays into their elements, by nothing but brackets, commas and strings.

    Only the value that is being read is held, so that an array of any size can be judged. Whether a piece is JSON is
    for the rulebook to say; what does not belong to any value is a piece of its own, so that nothing goes unnoticed.
    """

    def __init__(self, line: int, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._line = line
        """Where what is held begins, white space included."""
        self._held = bytearray()
        self._too_large_at: int | None = None
        self._depth = 0
        self._array_at: int | None = None
        """The line of the array that we are in."""
        self._index: int | None = None
        self._in_string = False
        self._backslash = b""

    def feed(self, piece: bytes) -> Iterator[Found]:
        # A string that goes on is scanned from a quotation mark that is not kept. An escape must not be cut in two.
        piece = b'"' * self._in_string + self._backslash + piece
        start = int(self._in_string)
        whole = len(piece) - (len(piece) - len(piece.rstrip(b"\\"))) % 2
        piece, self._backslash = piece[:whole], piece[whole:]
        depth = self._depth
        for token in _TOKENS.finditer(piece):
            at = token.start(2)
            if at < 0:
                self._in_string = token.start(1) == len(piece)
                break
            byte = piece[at]
            if byte == _COMMA:
                if depth == 1 and self._index is not None:
                    yield from self._take(piece[start:at], needed=True)
                    start = at + 1
                    self._index += 1
            elif byte in b"{[":
                if depth == 0:
                    yield from self._take(piece[start:at])
                    start = at
                    if byte == _OPEN_BRACKET:
                        self._array_at, self._index = self._line, 0
                        start = at + 1
                depth += 1
            elif depth == 1:
                ends_array = self._index is not None and byte == _CLOSE_BRACKET
                yield from self._take(piece[start : at if ends_array else at + 1], needed=bool(self._index))
                start = at + 1
                self._array_at = self._index = None
                depth = 0
            elif depth:
                depth -= 1
        self._depth = depth
        self._hold(piece[start:])

    def finish(self) -> Iterator[Found]:
        array_at, is_open = self._array_at, self._depth == 1
        yield from self._take(self._backslash)
        if array_at is not None and is_open:  # deeper down, the element does not end either, and was judged for it
            yield (
                array_at,
                None,
                Problem(ROOT, "invalid_json", "the array that begins here is not JSON: it has no end"),
            )

    def _hold(self, text: bytes) -> None:
        self._held += text
        if len(self._held) > self._max_bytes:
            if self._too_large_at is None:
                self._too_large_at = self._first_line(self._held)
            self._line += self._held.count(b"\n")
            self._held.clear()

    def _take(self, text: bytes, *, needed: bool = False) -> Iterator[Found]:
        """What is held, with its last part; nothing if that is blank, unless it is needed there."""
        self._hold(text)
        if self._too_large_at is not None:
            yield self._too_large_at, self._index, _too_large(self._max_bytes)
        elif needed or not (self._held.isspace() or not self._held):
            yield self._first_line(self._held), self._index, bytes(self._held.strip())
        self._line += self._held.count(b"\n")
        self._held.clear()
        self._too_large_at = None

    def _first_line(self, text: bytearray) -> int:
        return self._line + text.count(b"\n", 0, len(text) - len(text.lstrip()))
