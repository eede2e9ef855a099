"""One message to one receiver: what it gets, and what is made of what it answers."""

import hashlib
import hmac
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from correlator.alerts.delivery import Outcome, send, tls
from correlator.store.alert_routes import Destination, RouteKind
from tests.integration.alerts.receivers import Receiver, Reply

SIGNED_WITH = "hush"
BODY = '{"text": "é"}'.encode()


def sent(
    url: str,
    *,
    kind: RouteKind = "webhook",
    secret: str | None = SIGNED_WITH,
    timeout: float = 30.0,
    allow_private: bool = True,
) -> Outcome:
    where = Destination("route", kind, url, secret)
    return send(where, BODY, key="a-key", timeout=timeout, allow_private=allow_private)


def test_a_webhook_is_signed_over_time_and_body(receiver: Receiver) -> None:
    assert sent(receiver.url).is_taken

    (received,) = receiver.received
    timestamp = received.headers["X-Correlator-Timestamp"]
    expected = hmac.digest(b"hush", timestamp.encode() + b"." + received.body, hashlib.sha256).hex()
    assert received.headers["X-Correlator-Signature"] == f"sha256={expected}"
    assert abs(int(timestamp) - time.time()) < 600
    assert received.body == BODY
    assert received.headers["Content-Type"] == "application/json"
    assert received.headers["Idempotency-Key"] == "a-key"


def test_the_documentation_shows_how_to_verify_it(receiver: Receiver) -> None:
    text = (Path(__file__).parents[3] / "docs" / "alerts.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(text.partition("```python\n")[2].partition("```")[0], names)  # noqa: S102 (our own documentation)
    is_genuine = names["is_genuine"]
    assert sent(receiver.url).is_taken
    (received,) = receiver.received

    assert is_genuine("hush", received.headers, received.body)
    assert not is_genuine("other", received.headers, received.body)
    assert not is_genuine("hush", received.headers, received.body + b" ")
    old = {**received.headers, "X-Correlator-Timestamp": str(int(time.time()) - 4000)}
    assert not is_genuine("hush", old, received.body)


@pytest.mark.parametrize(("kind", "secret"), [("webhook", None), ("slack", "hush"), ("pagerduty", "hush")])
def test_what_is_no_signature_is_not_sent_as_one(receiver: Receiver, kind: RouteKind, secret: str | None) -> None:
    assert sent(receiver.url, kind=kind, secret=secret).is_taken
    assert "X-Correlator-Signature" not in receiver.received[0].headers


def test_path_query_and_password_of_the_url_are_used(receiver: Receiver) -> None:
    assert sent(f"http://me:p%40ss@127.0.0.1:{receiver.port}/a/b?c=d").is_taken

    assert receiver.received[0].path == "/a/b?c=d"
    assert receiver.received[0].headers["Authorization"] == "Basic bWU6cEBzcw=="
    assert receiver.received[0].headers["Host"] == f"127.0.0.1:{receiver.port}"


@pytest.mark.parametrize("status", [400, 404, 410, 429, 500, 503])
def test_an_error_is_told_in_the_receivers_words(receiver: Receiver, status: int) -> None:
    receiver.replies = [Reply(status, body=b"no  such\nchannel")]
    outcome = sent(receiver.url)

    assert (outcome.is_taken, outcome.status, outcome.retry_after) == (False, status, None)
    assert outcome.words.startswith(str(status))
    assert outcome.words.endswith(": no such channel")


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.replies = [Reply(307, (("Location", f"http://127.0.0.1:{receiver.port}/elsewhere"),))]
    outcome = sent(receiver.url)

    assert not outcome.is_taken
    assert "alerts follow no redirect" in outcome.words
    assert [one.path for one in receiver.received] == ["/hook"]


def test_retry_after_is_read_as_seconds_or_as_a_date(receiver: Receiver) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    receiver.replies = [Reply(429, (("Retry-After", value),)) for value in ("17", later, "soon", "-3")]

    told = [sent(receiver.url).retry_after for _ in range(4)]

    assert told[0] == 17
    assert told[1] is not None
    assert 3000 < told[1] <= 3600
    assert told[2:] == [None, None]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "[::ffff:127.0.0.1]"])
def test_nothing_is_sent_to_this_machine_unless_that_is_allowed(receiver: Receiver, host: str) -> None:
    outcome = sent(f"http://{host}:{receiver.port}/", allow_private=False)

    assert not outcome.is_taken
    assert "alerts_allow_private" in outcome.words
    assert receiver.received == []


def test_a_name_is_resolved_once_and_what_was_checked_is_talked_to(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads elsewhere the second time (DNS rebinding) has no second time."""
    asked: list[str] = []

    def resolve(host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        if host != "127.0.0.1":
            asked.append(host)
        address = "127.0.0.1" if len(asked) <= 1 else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert sent(f"http://receiver.example:{receiver.port}/").is_taken

    assert asked == ["receiver.example"]
    assert receiver.received[0].headers["Host"] == f"receiver.example:{receiver.port}"


@pytest.mark.parametrize(
    "url",
    ["ftp://127.0.0.1/", "http:///x", "http://127.0.0.1:port/", "http://[::1/", "http://a b/", "file:///etc/passwd"],
)
def test_a_url_that_cannot_be_used_is_told(url: str) -> None:
    outcome = sent(url)
    assert not outcome.is_taken
    assert outcome.words


def test_a_receiver_that_is_not_there_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        outcome = sent(f"http://127.0.0.1:{taken.getsockname()[1]}/")

    assert (outcome.is_taken, outcome.words) == (False, "127.0.0.1: connection refused.")


@contextmanager
def talking(pieces: bytes) -> Iterator[int]:
    """Whoever comes is told a byte at a time, and never the end."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk() -> None:
            with suppress(OSError):
                connected, _ = listener.accept()
                with connected:
                    for number in count():
                        connected.sendall(pieces[number % len(pieces) :][:1])
                        if over.wait(0.01):
                            return

        thread = threading.Thread(target=talk)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("pieces", [b"HTTP/1.1 200 OK\r\nX-A: ", b"HTTP/1.1 100 Continue\r\n\r\n", b"a"])
def test_a_receiver_that_never_ends_holds_nobody(pieces: bytes) -> None:
    with talking(pieces) as port:
        outcome = sent(f"http://127.0.0.1:{port}/", timeout=0.3)

    assert (outcome.is_taken, outcome.status) == (False, None)


def test_a_receiver_that_is_silent_is_not_waited_for(receiver: Receiver) -> None:
    receiver.is_silent.set()
    outcome = sent(receiver.url, timeout=0.3)

    assert outcome.words == "127.0.0.1 did not answer within 0.3 s (alert_timeout)."


def test_a_handshake_that_never_ends_holds_nobody() -> None:
    with talking(b"\x16\x03\x03\x40\x00" + b"\x02" * 50) as port:
        outcome = sent(f"https://127.0.0.1:{port}/", timeout=0.3)

    assert not outcome.is_taken


def test_a_certificate_has_to_be_trusted_and_to_be_the_hosts_own(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    made = ["-out", str(certificate), "-keyout", str(key)]
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(  # noqa: S603 (constants)
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *named, *made],  # noqa: S607
        check=True,
        capture_output=True,
    )
    receiver.speak_tls(certificate, key)
    secure, other = (f"https://{host}:{receiver.port}/" for host in ("localhost", "127.0.0.1"))
    assert "localhost: its certificate is not to be trusted" in sent(secure).words

    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    tls.cache_clear()
    try:
        assert "its certificate is not to be trusted" in sent(other).words
        assert sent(secure).is_taken
    finally:
        tls.cache_clear()
    assert len(receiver.received) == 1
