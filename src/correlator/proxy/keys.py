"""Keys of the senders, where there is no database: their hashes stand in a file or in the environment.

A line of the file is `NAME HASH`, the hash being the SHA-256 of the key in hexadecimal, as `correlator proxy key NAME`
prints it. The file is read again when it changes, so that a key can be added or taken away while the proxy runs.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from correlator.http.callers import ANYBODY, Caller, Refusal, presented_key
from correlator.key_scopes import hash_of

_LOOK_SECONDS: Final = 2.0
_HASH_BYTES: Final = 32
_UNKNOWN: Final = Refusal(401, "unknown_key", "This proxy does not know the key.")

_log = logging.getLogger(__name__)


class KeyFileError(Exception):
    """Keys that cannot be read. Its text is for people."""


class SenderKeys:
    """Whoever has one may send; without any, everybody may."""

    def __init__(self, pairs: Sequence[tuple[str, str]] = (), file: Path | None = None) -> None:
        self._fixed = _callers(dict(pairs), "sender_keys")
        self._file = file
        self._from_file: Mapping[bytes, Caller] = {}
        self._stamp: object = None
        self._look_at = 0.0
        if file is not None:
            self._read()

    @property
    def is_open(self) -> bool:
        # A file without keys lets nobody in: somebody has meant it to hold some.
        return not self._fixed and self._file is None

    def authenticate(self, authorization: bytes | None, x_api_key: bytes | None) -> Caller | Refusal:
        if self.is_open:
            return ANYBODY
        self._look()
        presented = presented_key(authorization, x_api_key)
        if isinstance(presented, Refusal):
            return presented
        digest = hash_of(presented)
        # Looked up by its hash: how long that takes tells nothing about any key.
        return self._fixed.get(digest) or self._from_file.get(digest) or _UNKNOWN

    def _look(self) -> None:
        if self._file is None or time.monotonic() < self._look_at:
            return
        try:
            if self._stamp != self._stamp_now():
                self._read()
                _log.info("The keys of the senders are read again: there are %d.", len(self._from_file))
        except (OSError, KeyFileError) as error:
            _log.error("The keys of the senders cannot be read again; the last ones stand: %s", error)
        self._look_at = time.monotonic() + _LOOK_SECONDS

    def _read(self) -> None:
        assert self._file is not None  # noqa: S101 (or else nobody asks)
        try:
            stamp = self._stamp_now()
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise KeyFileError(
                f"{self._file}, the file of the senders' keys, cannot be read: {error.strerror}."
            ) from error
        named: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            words = line.partition("#")[0].split()
            if words and len(words) != 2:  # noqa: PLR2004 (a name and a hash)
                raise KeyFileError(f"{self._file}, line {number}: a line is a name and a hash.")
            if words:
                named[words[0]] = words[1]
        self._from_file = _callers(named, str(self._file))
        self._stamp = stamp

    def _stamp_now(self) -> object:
        assert self._file is not None  # noqa: S101
        found = self._file.stat()
        return found.st_mtime_ns, found.st_size, found.st_ino


def _callers(hashes: Mapping[str, str], where: str) -> dict[bytes, Caller]:
    callers = {}
    for number, (name, text) in enumerate(hashes.items(), 1):
        try:
            digest = bytes.fromhex(text.removeprefix("sha256:"))
        except ValueError:
            digest = b""
        if len(digest) != _HASH_BYTES:
            raise KeyFileError(
                f"The hash of the key {name!r} in {where} is not 64 hexadecimal digits. `correlator proxy key {name}` "
                "makes a key and prints its line."
            )
        callers[digest] = Caller(name, frozenset({"ingest", "read"}), number)
    return callers
