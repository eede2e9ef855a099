"""The body of a request: what kind it is, how it comes in, unpacked and bounded.

Every limit counts the bytes that Correlator will hold, which are the unpacked ones. A body is unpacked in steps whose
size is known beforehand, so that a bomb costs one step more than the limit and no memory beyond it.
"""

import asyncio
import zlib
from functools import lru_cache
from time import monotonic
from typing import Final, Protocol

import zstandard

from correlator.http.exchange import ClientDisconnect, Header, Request
from correlator.http.problems import (
    NOT_JSON,
    REQUEST_TIMEOUT,
    TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    HttpProblem,
    unavailable,
)

_ACCEPTED_ENCODINGS: Final[Header] = (b"accept-encoding", b"gzip, zstd")
_ACCEPTED_TYPES: Final[Header] = (b"accept", b"application/json")
_CLOSE: Final[Header] = (b"connection", b"close")

_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
_ENCODINGS: Final[dict[str, str]] = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}

_ON_THE_LOOP = 256 * 1024
"""Up to this many bytes are unpacked at once (about a millisecond); the rest is the work of a thread."""
_PACKED_ON_THE_LOOP = 64 * 1024
_IN_A_THREAD = 4 * 1024 * 1024
"""After this many bytes a thread comes back to ask for more of the budget."""
_GZIP_STEP = 64 * 1024
_GZIP_INPUT = 16 * 1024
"""What is left of the input is copied at the end of each gzip member: short slices keep many members cheap."""
_ZSTD_INPUT = 256
"""The binding cannot stop within an input. A zstd block of 4 bytes can mean 128 KiB, so this means 8 MiB at most."""
_ZSTD_WINDOW = 8 * 1024 * 1024
"""RFC 9659: who sends `Content-Encoding: zstd` must not need a larger window."""
_MOST_PARTS = 10_000
"""gzip members or zstd frames in one body: empty ones cost time and never reach the limit of bytes."""
_SWEEP_SECONDS = 1.0


class Budget:
    """The bytes of all requests in flight. It never waits: who does not fit is told to come back.

    A request that is alone always fits, so that no body within its own limit is refused for good.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0

    def reserve(self, request: Request, size: int) -> None:
        used = self.used + size
        if used > self.most and self.used > request.reserved:
            raise unavailable(
                f"The requests in flight hold {self.used:,} bytes; with this one it would be more than the "
                f"{self.most:,} of max_inflight_bytes. Nothing was stored; send it again."
            )
        self.used = used
        request.reserved += size

    def shrink(self, request: Request, size: int) -> None:
        """Give back what the request no longer holds."""
        self.used -= size
        request.reserved -= size

    def release(self, request: Request) -> None:
        """Give back all that the request holds; once more does no harm."""
        self.used -= request.reserved
        request.reserved = 0


class BrokenBody(HttpProblem):
    """A body that is not what its Content-Encoding says."""

    raw = b""
    """As it was sent."""


class BodyReader:
    """Reads bodies within the limits. What it reserves is released by the edge when the request is over."""

    def __init__(self, *, max_bytes: int, receive_seconds: float, budget: Budget) -> None:
        self.max_bytes = max_bytes
        self.budget = budget
        self._deadlines = _Deadlines(receive_seconds)

    def take(self, request: Request, body: bytes) -> None:
        """As `read`, of a body that is there and sent as it is."""
        _check_type(request)
        if len(body) > self.max_bytes:
            raise self._too_large(f"The body has {len(body):,} bytes")
        self.budget.reserve(request, len(body))
        request.bytes_in = len(body)

    async def read(self, request: Request) -> bytes:
        """The body, unpacked, or an `HttpProblem`, or `ClientDisconnect`."""
        headers = request.headers
        _check_type(request)
        coding = headers.get(b"content-encoding")
        encoding = None if coding is None else _encoding(coding)
        declared = headers.get(b"content-length")
        if declared is not None:
            self._reserve_declared(request, declared)

        body = await self._receive(request)
        request.bytes_in = len(body)
        if encoding is None:
            return body
        try:
            return await self._unpack(request, body, encoding)
        except BrokenBody as broken:
            broken.raw = body
            raise

    def _reserve_declared(self, request: Request, declared: bytes) -> None:
        # The parser has already refused what is not a number; a client cannot make this raise.
        size = int(declared)
        if size > self.max_bytes:
            raise self._too_large(f"Content-Length is {size:,} bytes")
        self.budget.reserve(request, size)

    async def _receive(self, request: Request) -> bytes:
        """All bytes as they were sent."""
        receive = request.receive
        task = self._deadlines.begin()
        try:
            message = await receive()
            # Nearly every event comes in one piece.
            if message["type"] == "http.request" and not message.get("more_body", False):
                body: bytes = message.get("body", b"")
                self._grow(request, len(body))
                return body
            pieces: list[bytes] = []
            size = 0
            while message["type"] == "http.request":
                piece: bytes = message.get("body", b"")
                size += len(piece)
                self._grow(request, size)
                pieces.append(piece)
                if not message.get("more_body", False):
                    return b"".join(pieces)
                message = await receive()
            raise ClientDisconnect
        except asyncio.CancelledError:
            if not self._deadlines.has_cancelled(task):
                raise
            raise HttpProblem(
                REQUEST_TIMEOUT,
                f"The body was not whole after {self._deadlines.seconds:g} s (request_timeout). Nothing was stored.",
                headers=(_CLOSE,),
            ) from None
        finally:
            self._deadlines.end(task)

    def _grow(self, request: Request, size: int) -> None:
        """So much has come; without a Content-Length only now known."""
        if size > request.reserved:
            if size > self.max_bytes:
                raise self._too_large("The body goes on")
            self.budget.reserve(request, size - request.reserved)

    async def _unpack(self, request: Request, packed: bytes, encoding: str) -> bytes:
        unpacker: _Unpacker = _Gzip(packed) if encoding == "gzip" else _Zstd(packed)
        pieces: list[bytes] = []
        size = 0
        while True:
            room = self.max_bytes - size
            if size == 0 and len(packed) <= _PACKED_ON_THE_LOOP:
                news = _take(unpacker, min(room, _ON_THE_LOOP))
            else:
                news = await asyncio.to_thread(_take, unpacker, min(room, _IN_A_THREAD))
            grown = sum(map(len, news))
            size += grown
            if size > self.max_bytes:
                raise self._too_large(f"The body ({len(packed):,} bytes of {encoding}) goes on")
            self.budget.reserve(request, grown)
            pieces += news
            if unpacker.is_done:
                break
        body = b"".join(pieces)
        self.budget.shrink(request, len(packed))
        return body

    def _too_large(self, what: str) -> HttpProblem:
        return HttpProblem(
            TOO_LARGE,
            f"{what}; this server takes {self.max_bytes:,} bytes in one request, unpacked (max_request_bytes). "
            "Nothing was stored: send fewer events at once, or raise the limit.",
        )


def _unsupported(detail: str, accepted: Header) -> HttpProblem:
    return HttpProblem(UNSUPPORTED_MEDIA_TYPE, detail, headers=(accepted,))


def _check_type(request: Request) -> None:
    content_type = request.headers.get(b"content-type", b"")
    if content_type != b"application/json" and (refusal := _type_refusal(content_type)) is not None:
        raise _unsupported(refusal, _ACCEPTED_TYPES)


@lru_cache(maxsize=256)
def _type_refusal(content_type: bytes) -> str | None:
    """Why a body of this Content-Type is refused. No Content-Type is taken as JSON."""
    media_type, *parameters = content_type.decode("latin-1").split(";")
    media_type = media_type.strip().lower()
    if not media_type and not parameters:
        return None
    is_json = media_type == "application/json" or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )
    if not is_json:
        return _words_for(media_type)
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        charset = value.strip().strip('"').lower()
        if name.strip().lower() == "charset" and charset not in _CHARSETS:
            return f"The charset {charset[:40]!a} is not taken: JSON is sent in UTF-8 (RFC 8259, 8.1)."
    return None


def _words_for(media_type: str) -> str:
    told = f"Content-Type {media_type[:80]!a} is not taken here: send application/json"
    match media_type:
        case "application/x-www-form-urlencoded":
            return (
                f"{told}. (It is what curl sends with -d unless told otherwise: -H 'Content-Type: application/json'.)"
            )
        case "application/x-ndjson" | "application/jsonl" | "application/jsonlines" | "application/json-lines":
            return f"{told}, with the lines as elements of one array."
        case _:
            return f"{told}."


@lru_cache(maxsize=256)
def _encoding(content_encoding: bytes) -> str | None:
    """`gzip`, `zstd`, or None for a body that is sent as it is."""
    codings = [coding.strip().lower() for coding in content_encoding.decode("latin-1").split(",")]
    codings = [coding for coding in codings if coding not in {"", "identity"}]
    if not codings:
        return None
    if len(codings) > 1:
        raise _unsupported("A body is taken under one Content-Encoding, not several.", _ACCEPTED_ENCODINGS)
    known = _ENCODINGS.get(codings[0])
    if known is None:
        raise _unsupported(
            f"Content-Encoding {codings[0][:40]!a} is not taken: send gzip, zstd, or the plain body.",
            _ACCEPTED_ENCODINGS,
        )
    return known


class _Unpacker(Protocol):
    is_done: bool

    def step(self) -> bytes:
        """Some more bytes, a bounded number of them, possibly none."""


def _take(unpacker: _Unpacker, size: int) -> list[bytes]:
    """Unpack until there are more than `size` bytes, or no more."""
    pieces: list[bytes] = []
    while size >= 0 and not unpacker.is_done:
        piece = unpacker.step()
        size -= len(piece)
        pieces.append(piece)
    return pieces


class _Gzip:
    """gzip, also of several members one after the other, as `cat a.gz b.gz` makes them."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._next = 0
        self._tail = b""
        self._parts = 1
        self._member = zlib.decompressobj(wbits=31)
        self.is_done = False

    def step(self) -> bytes:
        data = self._tail
        if not data:
            data = self._packed[self._next : self._next + _GZIP_INPUT]
            self._next += len(data)
            if not data:
                # Nothing more comes, but the decoder may hold output back: it is asked with no input.
                return self._last(self._inflate(b""))
        piece = self._inflate(data)
        self._tail = self._member.unconsumed_tail
        if self._member.eof:
            self._tail = self._member.unused_data
            self._end_member()
        return piece

    def _inflate(self, data: bytes) -> bytes:
        try:
            return self._member.decompress(data, _GZIP_STEP)
        except zlib.error as error:
            what = "is damaged" if self._parts == 1 else "is damaged, or something else follows its end"
            raise _broken("gzip", f"{what} ({error})") from None

    def _last(self, piece: bytes) -> bytes:
        if self._member.eof:
            self.is_done = True
        elif not piece:
            raise _broken("gzip", "breaks off before its end")
        return piece

    def _end_member(self) -> None:
        if not self._tail and self._next >= len(self._packed):
            self.is_done = True
            return
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise _broken("gzip", f"has more than {_MOST_PARTS:,} members")
        self._member = zlib.decompressobj(wbits=31)


class _Zstd:
    """zstd, also of several frames one after the other."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._next = 0
        self._parts = 1
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self._frame = self._decompressor.decompressobj()
        self.is_done = False

    def step(self) -> bytes:
        data = self._packed[self._next : self._next + _ZSTD_INPUT]
        self._next += len(data)
        if not data:
            raise _broken("zstd", "breaks off before its end")
        try:
            piece = self._frame.decompress(data)
        except zstandard.ZstdError as error:
            what = "is damaged, or something else follows its end, or its window is larger than RFC 9659 allows (8 MiB)"
            raise _broken("zstd", f"{what} ({error})") from None
        if self._frame.eof:
            self._next -= len(self._frame.unused_data)
            self._end_frame()
        return piece

    def _end_frame(self) -> None:
        if self._next >= len(self._packed):
            self.is_done = True
            return
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise _broken("zstd", f"has more than {_MOST_PARTS:,} frames")
        self._frame = self._decompressor.decompressobj()


def _broken(encoding: str, what: str) -> BrokenBody:
    return BrokenBody(NOT_JSON, f"The body is sent as {encoding}, but it {what}.")


class _Deadlines:
    """One timer for all bodies that are still coming in: a timer for each would cost more than reading it.

    It looks around once a second while there is anything to look at.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._pending: dict[asyncio.Task[object], float] = {}
        self._cancelled: set[asyncio.Task[object]] = set()
        self._is_sweeping = False

    def begin(self) -> asyncio.Task[object]:
        task = asyncio.current_task()
        if task is None:  # pragma: no cover - a coroutine that runs outside of a task has no deadline to keep
            raise RuntimeError("a body is read inside a task")
        self._pending[task] = monotonic() + self.seconds
        if not self._is_sweeping:
            self._sweep_later(task.get_loop())
        return task

    def end(self, task: asyncio.Task[object]) -> None:
        # The sweep has moved a late one from the one to the other.
        if self._pending.pop(task, None) is None:
            self._cancelled.discard(task)

    def has_cancelled(self, task: asyncio.Task[object]) -> bool:
        """Whether the cancellation came from here, and from nobody else too."""
        return task in self._cancelled and task.uncancel() == 0

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = monotonic()
        # Oldest first, so that the first in time ends the search.
        for task, deadline in list(self._pending.items()):
            if deadline > now:
                break
            del self._pending[task]
            self._cancelled.add(task)
            task.cancel()
        self._is_sweeping = False
        if self._pending:
            self._sweep_later(loop)

    def _sweep_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_sweeping = True
        loop.call_later(min(_SWEEP_SECONDS, self.seconds), self._sweep, loop)
