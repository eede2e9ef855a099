"""Who is calling: keys held in memory, so that a request never waits for the database to be let in."""

import hmac
import logging
import math
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self, TypeAlias

import psycopg

from correlator.store.api_keys import (
    KEY_START,
    SCOPES,
    HashedKey,
    Scope,
    hash_of,
    load_keys,
    record_denials,
    touch_keys,
)
from correlator.store.database import Database

_log = logging.getLogger(__name__)

REFRESH_INTERVAL: Final = 2.0
"""Seconds until a server knows of a key that was made or revoked."""
LONGEST_BLINDNESS: Final = 60.0
"""Seconds for which keys are believed while the database cannot be asked whether they still stand."""
_TOUCH_INTERVAL: Final = 60.0
_DENIAL_INTERVAL: Final = 3600.0
_CLOSE_TIMEOUT: Final = 2.0

# What RFC 6750 and every key of ours is made of, and more; but nothing that a log or a terminal would trip over.
_KEY: Final = re.compile(rb"[\x21-\x7e]{1,512}")
_BEARER: Final = re.compile(rb"bearer(?:[ \t]+(.*))?", re.IGNORECASE | re.DOTALL)

Reason: TypeAlias = Literal[
    "missing_key",
    "malformed_key",
    "conflicting_keys",
    "unknown_key",
    "expired_key",
    "revoked_key",
    "missing_scope",
    "keys_unavailable",
]


class Caller(NamedTuple):
    """Whoever a request comes from, as far as its key tells."""

    name: str
    scopes: frozenset[Scope]
    key_id: int | None
    """None where the server has no keys and takes anybody."""


class Refusal(NamedTuple):
    """Why a request is not let in."""

    status: Literal[401, 403, 503]
    reason: Reason
    detail: str
    retry_after: int | None = None

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """RFC 9110 wants every 401 to say what would help."""
        if self.status == 401:  # noqa: PLR2004 (HTTP's own number)
            return ((b"www-authenticate", b'Bearer realm="correlator"'),)
        if self.retry_after is not None:
            return ((b"retry-after", str(self.retry_after).encode()),)
        return ()


ANYBODY: Final = Caller("anybody", frozenset(SCOPES), None)
"""The caller of a server without keys."""

_HOW: Final = "Send it as `Authorization: Bearer KEY` or as `X-API-Key: KEY`."
_MISSING: Final = Refusal(401, "missing_key", f"This server takes no request without a key. {_HOW}")
_MALFORMED_BEARER: Final = Refusal(
    401, "malformed_key", f"The Authorization header is not `Bearer` and one key without blanks in it. {_HOW}"
)
_OTHER_SCHEME: Final = Refusal(401, "malformed_key", f"The Authorization header has another scheme than Bearer. {_HOW}")
_MALFORMED_HEADER: Final = Refusal(
    401, "malformed_key", f"The X-API-Key header is not one key without blanks in it. {_HOW}"
)
_CONFLICTING: Final = Refusal(
    401, "conflicting_keys", "The Authorization and the X-API-Key header hold different keys. Send one of them."
)
_UNKNOWN: Final = Refusal(
    401,
    "unknown_key",
    "This server does not know the key. `correlator keys list` shows the beginnings of all it knows.",
)
_UNLIKE_A_KEY: Final = Refusal(
    401, "unknown_key", f"This server does not know the key, nor does it begin as its keys do ({KEY_START}…)."
)
_UNAVAILABLE: Final = Refusal(
    503, "keys_unavailable", "Keys cannot be checked: the database does not answer. Nothing was stored.", 5
)


class _Known(NamedTuple):
    hash: bytes
    caller: Caller
    expires: float
    """Seconds since 1970; infinite for a key that does not expire."""
    is_revoked: bool


class KeyCache:
    """Every key, by its hash, read again every few seconds by a thread of its own.

    While the database does not answer, the last known keys stand for `longest_blindness` seconds; after that nobody is
    let in, because a revoked key could not be told from a good one.
    """

    def __init__(
        self,
        database: Database,
        *,
        interval: float = REFRESH_INTERVAL,
        longest_blindness: float = LONGEST_BLINDNESS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._interval = interval
        self._longest_blindness = longest_blindness
        self._clock = clock
        self._known: dict[bytes, _Known] = {}
        self._is_open = False
        self._may_be_open = True
        self._fresh_until = -math.inf
        self._used: dict[int, float] = {}
        self._touch_after = 0.0
        self._denied: dict[int, str] = {}
        self._denial_recorded: dict[int, float] = {}
        self._connection: psycopg.Connection | None = None
        self._refreshing = threading.Lock()
        self._is_away = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._refresh_for_ever, name="keys", daemon=True)

    def start(self) -> None:
        """Read the keys, and go on doing so. Blocks: not for the event loop."""
        self.refresh()
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_TIMEOUT)
            if self._thread.is_alive():
                _log.warning("The database does not answer; when keys were used last is not noted.")
                return
        with self._refreshing:
            try:
                if self._connection is not None and not self._connection.closed:
                    self._write_down(self._connection)
            except psycopg.Error as error:
                _log.warning("When keys were used last could not be noted: %s", error)
            self._disconnect()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether there has never been a key. Revoking the last one does not open a server again."""
        return self._is_open

    def authenticate(self, authorization: bytes | None, x_api_key: bytes | None) -> Caller | Refusal:
        """Judge the two headers, from memory alone."""
        if time.monotonic() > self._fresh_until:
            return _UNAVAILABLE
        if self._is_open:
            return ANYBODY
        presented = _presented(authorization, x_api_key)
        if isinstance(presented, Refusal):
            return presented
        # Looked up by its hash: how long that takes tells nothing about any key, whose hash nobody can steer.
        digest = hash_of(presented)
        known = self._known.get(digest)
        if known is None or not hmac.compare_digest(known.hash, digest):
            return _UNKNOWN if presented.startswith(KEY_START.encode()) else _UNLIKE_A_KEY
        caller, now = known.caller, self._clock()
        if known.is_revoked:
            return self._deny(known, "revoked_key", f"The key {caller.name!r} was revoked.")
        if now >= known.expires:
            at = datetime.fromtimestamp(known.expires, UTC).isoformat(timespec="seconds")
            return self._deny(known, "expired_key", f"The key {caller.name!r} expired at {at}.")
        self._used[known.caller.key_id or 0] = now
        return caller

    def refresh(self) -> None:
        """Read the keys again now, and write down which were used. Blocks: not for the event loop."""
        with self._refreshing:
            began = time.monotonic()
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = self._database.connect("keys", autocommit=True)
                # All of them: keys are few, and a mark of the last change could be missed, since transactions
                # commit in another order than they begin.
                keys = load_keys(self._connection)
                self._known = {key.hash: _known(key) for key in keys}
                self._is_open = self._may_be_open = self._may_be_open and not keys
                self._fresh_until = began + self._longest_blindness
                self._write_down(self._connection)
            except psycopg.Error:
                self._disconnect()
                raise

    def _refresh_for_ever(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self.refresh()
            except psycopg.Error as error:
                if not self._is_away:
                    _log.warning(
                        "Keys cannot be read again; those known stand for %.0f s more: %s",
                        max(0.0, self._fresh_until - time.monotonic()),
                        error,
                    )
                self._is_away = True
            else:
                if self._is_away:
                    _log.info("Keys are read again.")
                self._is_away = False

    def _deny(self, known: _Known, reason: Literal["revoked_key", "expired_key"], what: str) -> Refusal:
        self._denied[known.caller.key_id or 0] = reason.replace("_", " ")
        return Refusal(401, reason, f"{what} Ask for a new one: `correlator keys create`.")

    def _write_down(self, connection: psycopg.Connection) -> None:
        now = time.monotonic()
        if self._used and (now >= self._touch_after or self._stop.is_set()):
            # Requests go on meanwhile: they write into the new dictionary, and a copy is whole.
            used, self._used = self._used, {}
            touch_keys(connection, {id_: datetime.fromtimestamp(at, UTC) for id_, at in used.copy().items()})
            self._touch_after = now + _TOUCH_INTERVAL
        if self._denied:
            denied, self._denied = self._denied, {}
            # Once an hour is enough to learn that somebody still uses an old key, and the record stays small.
            due = {
                id_: why
                for id_, why in denied.copy().items()
                if now >= self._denial_recorded.get(id_, -math.inf) + _DENIAL_INTERVAL
            }
            if due:
                record_denials(connection, due, actor="server")
                self._denial_recorded |= dict.fromkeys(due, now)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def permit(caller: Caller, scope: Scope) -> Refusal | None:
    """None if the caller may. Scopes do not include each other: `admin` alone may not send events."""
    if scope in caller.scopes:
        return None
    has = ", ".join(each for each in SCOPES if each in caller.scopes)
    return Refusal(403, "missing_scope", f"This needs the scope {scope}; the key {caller.name!r} has {has}.")


def _known(key: HashedKey) -> _Known:
    expires = math.inf if key.expires_at is None else key.expires_at.timestamp()
    return _Known(key.hash, Caller(key.name, frozenset(key.scopes), key.id), expires, key.revoked_at is not None)


def _presented(authorization: bytes | None, x_api_key: bytes | None) -> bytes | Refusal:
    """The key that a request brings."""
    bearer = None
    if authorization is not None:
        parts = _BEARER.fullmatch(authorization.strip())
        if parts is not None:
            bearer = parts[1]
            if bearer is None or not _KEY.fullmatch(bearer):
                return _MALFORMED_BEARER
        elif x_api_key is None:
            return _OTHER_SCHEME
        # Else it is for a proxy on the way, such as Basic, and the other header is for us.
    if x_api_key is None:
        return bearer or _MISSING
    x_api_key = x_api_key.strip()
    if not _KEY.fullmatch(x_api_key):
        return _MALFORMED_HEADER
    if bearer is not None and not hmac.compare_digest(bearer, x_api_key):
        return _CONFLICTING
    return x_api_key
