"""Who is calling: keys held in memory, so that a request never waits for the database to be let in."""

import hmac
import logging
import math
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

import psycopg

from correlator.http.callers import ANYBODY, Caller, Refusal, presented_key
from correlator.key_scopes import KEY_START, hash_of
from correlator.store.api_keys import HashedKey, load_keys, record_denials, touch_keys
from correlator.store.database import Database

_log = logging.getLogger(__name__)

REFRESH_INTERVAL: Final = 2.0
"""Seconds until a server knows of a key that was made or revoked."""
LONGEST_BLINDNESS: Final = 60.0
"""Seconds for which keys are believed while the database cannot be asked whether they still stand."""
_TOUCH_INTERVAL: Final = 60.0
_DENIAL_INTERVAL: Final = 3600.0
_CLOSE_TIMEOUT: Final = 2.0

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
        presented = presented_key(authorization, x_api_key)
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


def _known(key: HashedKey) -> _Known:
    expires = math.inf if key.expires_at is None else key.expires_at.timestamp()
    return _Known(key.hash, Caller(key.name, frozenset(key.scopes), key.id), expires, key.revoked_at is not None)
