"""Any OpenLineage backend over HTTP: its batch endpoint where it has one, else one event after the other.

One connection, one request at a time: that is what keeps the order. The client is the one of Python's library, which
costs no memory that is not there already, and a batch of events is one request whatever the client.
"""

import http.client
import logging
import math
import os
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from correlator import __version__
from correlator.proxy.destinations import ACCEPTED, DestinationError, Later, Options, Refused, Result, Spec

_ENDPOINT: Final = "/api/v1/lineage"
_OPTIONS: Final = ("key_file", "key_env", "ca", "certificate", "certificate_key", "verify", "batch")
_LARGEST_ANSWER: Final = 16 * 2**20
_LONGEST_TOLD: Final = 4000
"""Characters of a backend's answer that are kept with an event."""
_LONGEST_REASON: Final = 300
_ASK_AGAIN_SECONDS: Final = 600.0
"""After so long a backend without a batch endpoint is asked for one again: it may have been updated."""

_NO_BATCH: Final = frozenset({404, 405, 501})
_FOR_GOOD: Final = frozenset({400, 413, 422})
_LATER: Final = frozenset({408, 425, 429})
_FIRST_SUCCESS, _FIRST_REDIRECT, _FIRST_SERVER_ERROR = 200, 300, 500
_TOO_LARGE: Final = 413
_UNAUTHORIZED, _FORBIDDEN = 401, 403

_log = logging.getLogger(__name__)


class _Failed(msgspec.Struct):
    index: int
    reason: str = "no reason given"
    retriable: bool = False


class _Summary(msgspec.Struct):
    failed: int = 0


class _BatchAnswer(msgspec.Struct):
    """What is read of the answer to a batch; whatever else it says is its own affair."""

    failed_events: list[_Failed] | None = None
    summary: _Summary | None = None


_decode_batch: Final = msgspec.json.Decoder(_BatchAnswer).decode


class _Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None
    location: str | None

    @property
    def is_success(self) -> bool:
        return _FIRST_SUCCESS <= self.status < _FIRST_REDIRECT

    @property
    def text(self) -> str:
        return self.body[: 4 * _LONGEST_TOLD].decode("utf-8", "replace")[:_LONGEST_TOLD]


class HttpDestination:
    def __init__(self, spec: Spec, timeout: float) -> None:
        self._name = spec.name
        self._timeout = timeout
        options = Options(spec)
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": f"correlator-proxy/{__version__}",
        }
        parts = urlsplit(spec.target)
        if not parts.hostname:
            raise DestinationError(f"{spec.target!r} names no host.")
        self._key_file = options.text("key_file")
        self._key = _key(spec, options.text("key_env"))
        self._host, self._port, self._is_tls = parts.hostname, parts.port, parts.scheme == "https"
        path = parts.path.rstrip("/")
        self._path = path if path.endswith("/lineage") else path + _ENDPOINT
        self._query = f"?{parts.query}" if parts.query else ""
        self._context = _tls(spec, options) if self._is_tls else None
        self._has_batch = options.flag("batch", default=True)
        self._may_ask_again_at = -math.inf if self._has_batch else math.inf
        self._connection: http.client.HTTPConnection | None = None
        self._is_interrupted = False
        options.check(*_OPTIONS)

    def send(self, events: Sequence[bytes]) -> Sequence[Result]:
        if len(events) > 1 and self._asks_for_batches():
            results = self._send_batch(events)
            if results is not None:
                return results
        return self._send_each(events)

    def interrupt(self) -> None:
        self._is_interrupted = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- batches

    def _asks_for_batches(self) -> bool:
        return self._has_batch or time.monotonic() >= self._may_ask_again_at

    def _send_batch(self, events: Sequence[bytes]) -> Sequence[Result] | None:
        """None if they have to be sent one by one for each to be answered."""
        answer = self._post(f"{self._path}/batch", b"[" + b",".join(events) + b"]")
        if isinstance(answer, Later):
            return [answer] * len(events)
        if answer.status in _NO_BATCH:
            return self._send_without_batch(events, answer.status)
        if answer.status in _FOR_GOOD:
            if answer.status == _TOO_LARGE and len(events) > 1:
                half = len(events) // 2
                return self._in_halves(events[:half], events[half:])
            # One of them is to blame for all; alone, each is answered for itself.
            return None
        if not answer.is_success:
            return [self._later(answer)] * len(events)
        self._has_batch = True
        return _results(answer, len(events))

    def _send_without_batch(self, events: Sequence[bytes], status: int) -> Sequence[Result]:
        """There is no batch endpoint; or there is nothing at all, which only the other one can tell."""
        results = self._send_each(events)
        if not (isinstance(results[0], Later) and results[0].is_misdirected):
            if self._has_batch:
                _log.info("%s has no batch endpoint (%d): events are sent one by one.", self._name, status)
            self._has_batch, self._may_ask_again_at = False, time.monotonic() + _ASK_AGAIN_SECONDS
        return results

    def _in_halves(self, first: Sequence[bytes], second: Sequence[bytes]) -> Sequence[Result]:
        results = list(self.send(first))
        if any(isinstance(result, Later) for result in results):
            return results + [Later("it waits for those before it")] * len(second)
        return results + list(self.send(second))

    # --- one by one

    def _send_each(self, events: Sequence[bytes]) -> Sequence[Result]:
        results: list[Result] = []
        for event in events:
            result = self._send_one(event)
            results.append(result)
            if isinstance(result, Later):
                return results + [result] * (len(events) - len(results))
        return results

    def _send_one(self, event: bytes) -> Result:
        answer = self._post(self._path, event)
        if isinstance(answer, Later):
            return answer
        if answer.is_success:
            return ACCEPTED
        if answer.status in _FOR_GOOD:
            return Refused(f"{self._name} answered {answer.status}", answer.status, answer.text)
        return self._later(answer)

    def _later(self, answer: _Answer) -> Later:
        status = answer.status
        if status >= _FIRST_SERVER_ERROR or status in _LATER:
            return Later(f"it answered {status}", _seconds(answer.retry_after))
        if status in {_UNAUTHORIZED, _FORBIDDEN}:
            return Later(f"it answered {status}: the key is wrong or missing", is_misdirected=True)
        if answer.location is not None:
            told = answer.location[:_LONGEST_REASON]
            return Later(f"it answered {status} and points to {told!r}: name that address", is_misdirected=True)
        where = f"{self._path} on {self._host}"
        return Later(f"it answered {status} to {where}: the address is wrong, or no backend", is_misdirected=True)

    # --- the connection

    def _post(self, path: str, body: bytes) -> _Answer | Later:
        """Once more on a new connection if an old one turns out to be closed: servers close those that are idle."""
        is_fresh = self._connection is None
        try:
            return self._exchange(path, body)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            self.close()
            if is_fresh or self._is_interrupted:
                return Later(_words(error))
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return Later(_words(error), is_misdirected=isinstance(error, ssl.SSLCertVerificationError))
        try:
            return self._exchange(path, body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return Later(_words(error))

    def _exchange(self, path: str, body: bytes) -> _Answer:
        if self._connection is None:
            self._connection = self._connect()
        headers = self._headers
        key = self._key if self._key_file is None else _read_key(self._key_file)
        if key is not None:
            headers = {**headers, "Authorization": f"Bearer {key}"}
        self._connection.request("POST", path + self._query, body, headers)
        with self._connection.getresponse() as response:
            answer = _Answer(
                response.status,
                response.read(_LARGEST_ANSWER),
                response.getheader("Retry-After"),
                response.getheader("Location"),
            )
            if not response.isclosed():
                # Longer than anybody reads: what is left would be taken for the next answer.
                self.close()
            elif response.will_close:
                self.close()
        return answer

    def _connect(self) -> http.client.HTTPConnection:
        if self._context is not None:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=self._context, blocksize=2**18
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout, blocksize=2**18)


def make(spec: Spec, timeout: float) -> HttpDestination:
    return HttpDestination(spec, timeout)


def _results(answer: _Answer, count: int) -> Sequence[Result] | None:
    """What a batch's answer says of each event; None where it does not say it."""
    if not answer.body.strip():
        return [ACCEPTED] * count
    try:
        said = _decode_batch(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # A success in words that nobody reads.
        return [ACCEPTED] * count
    failed = {each.index: each for each in said.failed_events or () if 0 <= each.index < count}
    if said.summary is not None and said.summary.failed != len(failed):
        return None
    results: list[Result] = [ACCEPTED] * count
    for index, each in failed.items():
        reason = each.reason[:_LONGEST_TOLD]
        results[index] = Later(reason[:_LONGEST_REASON]) if each.retriable else Refused(reason, answer.status, reason)
    return results


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After as a number of seconds; it may also be a date."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(int(retry_after)))
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _key(spec: Spec, variable: str | None) -> str | None:
    if variable is not None:
        key = os.environ.get(variable)
        if not key:
            raise DestinationError(f"The variable {variable}, the key of the destination {spec.name}, is not set.")
        return key.strip()
    password = urlsplit(spec.target).password
    return None if password is None else unquote(password)


def _read_key(file: str) -> str:
    """Read each time, because secrets are replaced while the proxy runs."""
    return Path(file).read_text(encoding="utf-8").strip()


def _tls(spec: Spec, options: Options) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.text("ca"))
        certificate = options.text("certificate")
        key = options.text("certificate_key")
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except OSError as error:
        raise DestinationError(f"The TLS files of the destination {spec.name} cannot be used: {error}.") from error
    if not options.flag("verify", default=True):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _words(error: Any) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer in time (destination_timeout)"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text or type(error).__name__)[:_LONGEST_REASON]
