"""The three string formats of the OpenLineage schemas (date-time, uri, uuid), and time as Correlator reads it.

Each judge says what the format's own document says: RFC 3339, RFC 3986, RFC 4122. Whether a broken format is an
error or a warning is the policy's business, not theirs.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from typing import Final, TypeAlias

import msgspec

Instant: TypeAlias = int
"""A moment, in microseconds since 1970-01-01T00:00:00Z: what PostgreSQL and Arrow can hold."""

ZERO_TIME: Final[Instant] = -62_135_596_800_000_000
"""0001-01-01T00:00:00Z, which Go and Java clients send for a time that was never set."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY = 86_400_000_000
_MINUTE = 60_000_000
_SHORTEST = len("2026-01-31T12:00:00Z")
_LONGEST = len("2026-01-31T12:00:00.123456+00:00")
_GREGORIAN_CYCLE_YEARS = 400
_GREGORIAN_CYCLE = timedelta(days=146_097) // _MICROSECOND

match_uuid: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch
"""Whether a text is a UUID, as a match or None: a call more would be felt."""

_UNRESERVED = r"[A-Za-z0-9\-._~]|%[0-9A-Fa-f]{2}|[!$&'()*+,;=]"
_PCHAR = rf"(?:{_UNRESERVED}|[:@])"
_URI = re.compile(
    rf"""
    [A-Za-z][A-Za-z0-9+\-.]* :
    (?:
        // (?:(?:{_UNRESERVED}|:)*@)?
           (?: \[(?P<literal>[^\[\]]*)\] | (?:{_UNRESERVED})* )
           (?::[0-9]*)?
        (?:/{_PCHAR}*)*
      | /(?:{_PCHAR}+(?:/{_PCHAR}*)*)?
      | {_PCHAR}+(?:/{_PCHAR}*)*
      |
    )
    (?:\?(?:{_PCHAR}|[/?])*)?
    (?:\#(?:{_PCHAR}|[/?])*)?
    """,
    re.VERBOSE,
)
_IP_FUTURE = re.compile(r"v[0-9A-Fa-f]+\.(?:[A-Za-z0-9\-._~]|[!$&'()*+,;=]|:)+", re.IGNORECASE)

_TIME = re.compile(
    r"""
    (?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})
    (?:
        (?P<separator>[Tt ])
        (?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})
        (?: :(?P<second>[0-9]{2}) (?:[.,](?P<fraction>[0-9]+))? )?
        (?P<offset> [Zz] | (?P<sign>[+-]) (?P<ahead_hours>[0-9]{2}) (?P<colon>:?) (?P<ahead_minutes>[0-9]{2})? )?
    )?
    (?P<zone> \[ [A-Za-z0-9_+\-/]{1,64} \] )?
    """,
    re.VERBOSE,
)


class ReadTime(msgspec.Struct, frozen=True):
    """A time as it was read: the moment, and how its text departs from RFC 3339, if it does."""

    instant: Instant
    rfc3339: bool
    has_offset: bool


def is_uri(text: str) -> bool:
    match = _URI.fullmatch(text)
    if match is None:
        return False
    literal = match["literal"]
    return literal is None or _is_ip_literal(literal)


def _is_ip_literal(text: str) -> bool:
    if "%" in text:  # a zone id is RFC 6874's, not RFC 3986's
        return False
    try:
        IPv6Address(text)
    except AddressValueError:
        return _IP_FUTURE.fullmatch(text) is not None
    return True


def is_date_time(text: str) -> bool:
    if plain_instant(text) is not None:
        return True
    read = read_time(text)
    return read is not None and read.rfc3339


def plain_instant(text: str) -> Instant | None:
    """The moment of a time as nearly all producers write it, such as 2026-01-31T12:00:00.5Z; None for all others.

    fromisoformat() reads far more than RFC 3339 allows, so what it is given is narrowed first, by single characters:
    an expression or a slice would cost more than the reading itself.
    """
    length = len(text)
    if length < _SHORTEST or text[10] != "T" or text[16] != ":":
        return None
    if text[-1] != "Z" and (text[-6] != "+" or text[-5:] != "00:00"):
        return None
    if length > _SHORTEST and (text[19] not in ".+" or text[20] in "Z+" or length > _LONGEST - (text[-1] == "Z") * 5):
        return None
    try:
        since = datetime.fromisoformat(text) - _EPOCH
    except ValueError:
        return None
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def read_time(text: str) -> ReadTime | None:
    """The moment that a text means, or None when it means none.

    More is read than RFC 3339 allows, because real producers send it: no offset (then UTC), a space for the `T`, no
    seconds, a date alone, and Java's `[Europe/London]` at the end. What is finer than a microsecond is cut off.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    part = match.groupdict()
    second = int(part["second"] or 0)
    ahead_hours, ahead_minutes = int(part["ahead_hours"] or 0), int(part["ahead_minutes"] or 0)
    if second > 60 or ahead_hours > 23 or ahead_minutes > 59:  # noqa: PLR2004
        return None
    # The calendar repeats after 400 years, so that year 0000, which datetime does not know, is read by way of year 400.
    year, before_year_one = int(part["year"]), part["year"] == "0000"
    try:
        minute = datetime(
            year + (_GREGORIAN_CYCLE_YEARS if before_year_one else 0),
            int(part["month"]),
            int(part["day"]),
            int(part["hour"] or 0),
            int(part["minute"] or 0),
            tzinfo=UTC,
        )
    except ValueError:
        return None
    ahead = (ahead_hours * 3600 + ahead_minutes * 60) * 1_000_000 * (-1 if part["sign"] == "-" else 1)
    utc_minute = (minute - _EPOCH) // _MICROSECOND - (_GREGORIAN_CYCLE if before_year_one else 0) - ahead
    if second == 60 and utc_minute % _DAY != 86_340_000_000:  # noqa: PLR2004
        return None  # a leap second is the last one of a day in UTC
    instant = utc_minute + second * 1_000_000 + int((part["fraction"] or "0")[:6].ljust(6, "0"))
    rfc3339 = bool(
        part["separator"] in ("T", "t")
        and part["second"]
        and "," not in text
        and part["offset"]
        and (part["sign"] is None or (part["colon"] and part["ahead_minutes"]))
        and not part["zone"]
    )
    return ReadTime(instant, rfc3339, part["offset"] is not None)


def to_datetime(instant: Instant) -> datetime:
    """For people and databases. An offset can lead out of the years 1 to 9999; that raises an OverflowError."""
    return _EPOCH + timedelta(microseconds=instant)


def rfc3339(instant: Instant) -> str:
    """The moment in UTC, with as many digits of a second as it needs; the bare number where no calendar has a year."""
    minute, rest = divmod(instant, _MINUTE)
    try:
        text = _minute(minute)
    except OverflowError:
        return f"{instant} µs"
    second, fraction = divmod(rest, 1_000_000)
    return f"{text}:{second:02}.{fraction:06}".rstrip("0") + "Z" if fraction else f"{text}:{second:02}Z"


@lru_cache(maxsize=4096)
def _minute(minute: int) -> str:
    """Of a minute counted from 1970. Events of one time come together, so few minutes are asked for."""
    return to_datetime(minute * _MINUTE).isoformat(timespec="minutes").removesuffix("+00:00")


class Verdicts(dict[str, bool]):
    """Remembers a format's verdicts, because producers repeat the same few URIs in every event.

    A dict answers a known text in C. When it has grown to `most` texts it starts afresh: cheaper than keeping an order
    of use, and just as bounded. Long texts are judged but not remembered.
    """

    def __init__(self, judge: Callable[[str], bool], most: int = 16_384, longest: int = 512) -> None:
        super().__init__()
        self._judge = judge
        self._most = most
        self._longest = longest

    def __missing__(self, text: str) -> bool:
        verdict = self._judge(text)
        if len(text) <= self._longest:
            if len(self) >= self._most:
                self.clear()
            self[text] = verdict
        return verdict
