"""One message, sent: an HTTP POST to a checked address, signed where the route has a secret.

No redirect is followed and no proxy asked: what was checked is what is talked to.
"""

import hashlib
import hmac
import http.client
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from socket import SHUT_RDWR, create_connection, socket
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from correlator import __version__
from correlator.alerts.addresses import AddressError, resolved
from correlator.store.alert_routes import Destination

TIMESTAMP: Final = "X-Correlator-Timestamp"
SIGNATURE: Final = "X-Correlator-Signature"
KEY: Final = "Idempotency-Key"

_MOST_READ: Final = 2_000
"""Bytes of an answer: enough to see what is wrong."""
_MOST_TOLD: Final = 300
_GOOD: Final = range(200, 300)
_ELSEWHERE: Final = range(300, 400)


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of one attempt."""

    is_taken: bool
    """Whether the receiver has said 2xx."""
    words: str
    """What the receiver said, or why it was not asked."""
    status: int | None = None
    retry_after: float | None = None
    """Seconds for which the receiver wants to be left alone."""


class _NotSentError(Exception):
    """Why there is no answer."""


def send(destination: Destination, payload: bytes, *, key: str, timeout: float, allow_private: bool) -> Outcome:
    """Try once. Nothing that a receiver does, or fails to do, raises."""
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"correlator/{__version__}",
        KEY: key,
    }
    if destination.kind == "webhook" and destination.secret is not None:
        timestamp = str(int(time.time()))
        headers[TIMESTAMP] = timestamp
        headers[SIGNATURE] = signature(destination.secret, timestamp, payload)
    try:
        return _post(destination.url, payload, headers, timeout, allow_private=allow_private)
    except (_NotSentError, AddressError) as error:
        return Outcome(is_taken=False, words=str(error))


def signature(secret: str, timestamp: str, payload: bytes) -> str:
    """Over the time and the body, so that what was overheard cannot be sent again later."""
    signed = hmac.new(secret.encode(), timestamp.encode() + b"." + payload, hashlib.sha256)
    return f"sha256={signed.hexdigest()}"


def _post(url: str, payload: bytes, headers: Mapping[str, str], timeout: float, *, allow_private: bool) -> Outcome:
    parts, port = _read(url)
    host = parts.hostname or ""
    addresses = resolved(host, port, allow_private=allow_private)
    connection = _connection(parts, port)
    deadline = time.monotonic() + timeout
    guard: threading.Timer | None = None
    try:
        connection.sock = _connected(addresses, deadline)
        if parts.scheme == "https":
            connection.sock = tls().wrap_socket(connection.sock, server_hostname=host, do_handshake_on_connect=False)
        # Every step has its limit, and all of them together: a receiver may speak a byte at a time.
        guard = threading.Timer(max(0.0, deadline - time.monotonic()), _cut, [connection.sock])
        guard.daemon = True
        guard.start()
        if isinstance(connection.sock, ssl.SSLSocket):
            connection.sock.do_handshake()
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, payload, {**headers, **_credentials(parts)})
        response = connection.getresponse()
        if time.monotonic() >= deadline:
            # What was cut off looks like a head that has ended.
            raise TimeoutError
        return _outcome(response.status, response.reason, response.getheader("Retry-After"), _body(response))
    except (OSError, http.client.HTTPException, ValueError) as error:
        if time.monotonic() >= deadline or isinstance(error, TimeoutError):
            raise _NotSentError(f"{host} did not answer within {timeout:g} s (alert_timeout).") from None
        raise _NotSentError(f"{host}: {_words(error)}.") from None
    finally:
        if guard is not None:
            guard.cancel()
        connection.close()


def _read(url: str) -> tuple[SplitResult, int]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _NotSentError(f"The route's URL cannot be read: {error}.") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise _NotSentError("The route's URL is none of http or https with a host.")
    return parts, port or (443 if parts.scheme == "https" else 80)


def _connection(parts: SplitResult, port: int) -> http.client.HTTPConnection:
    """Only for what it says: connected by us, and never by itself."""
    host = parts.hostname or ""
    try:
        if parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, context=tls())
        else:
            connection = http.client.HTTPConnection(host, port)
    except (http.client.HTTPException, ValueError) as error:
        raise _NotSentError(f"The route's URL cannot be used: {error}.") from None
    connection.auto_open = 0
    return connection


def _connected(addresses: list[tuple[str, int]], deadline: float) -> socket:
    """The first address that answers."""
    last: OSError | None = None
    for address in addresses:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:
            return create_connection(address, timeout=left)
        except OSError as error:
            last = error
    raise last or TimeoutError


@lru_cache(maxsize=1)
def tls() -> ssl.SSLContext:
    """Whom the system trusts."""
    return ssl.create_default_context()


def _body(response: http.client.HTTPResponse) -> bytes:
    """Its beginning. The head has said all that counts."""
    try:
        return response.read(_MOST_READ)
    except (OSError, http.client.HTTPException, ValueError):
        return b""


def _cut(connected: socket) -> None:
    with suppress(OSError):
        connected.shutdown(SHUT_RDWR)


def _credentials(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _outcome(status: int, reason: str, retry_after: str | None, body: bytes) -> Outcome:
    said = " ".join(body.decode("utf-8", "replace").split())[:_MOST_TOLD]
    answered = f"{status} {reason}".strip()
    if status in _GOOD:
        return Outcome(is_taken=True, status=status, words=f"{answered}: {said}" if said else answered)
    if status in _ELSEWHERE:
        answered += ", which leads elsewhere; alerts follow no redirect"
    words = f"{answered}: {said}" if said else answered
    return Outcome(is_taken=False, status=status, words=words, retry_after=_seconds(retry_after))


def _seconds(retry_after: str | None) -> float | None:
    """As a number, or until a date."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not to be trusted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
