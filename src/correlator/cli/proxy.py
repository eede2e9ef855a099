"""`correlator proxy`: take events, keep them on local disk, forward them; and what is done with those that failed."""

import http.client
import logging
import secrets
import signal
import sqlite3
import sys
from datetime import UTC, datetime
from typing import IO, Final
from urllib.parse import urlsplit

import click
import msgspec

from correlator.cli.listening import bind, cannot_listen, end_at_once, is_loopback, url_of
from correlator.cli.options import CouldNotTellError, with_settings
from correlator.config import CommonSettings, ProxySettings
from correlator.http.listener import BACKLOG, SWITCH_INTERVAL, HttpServer
from correlator.http.request_log import Log, capture_logging
from correlator.key_scopes import KEY_START, hash_of
from correlator.proxy.app import DIRECTORY, App, judge_of
from correlator.proxy.buffer import BufferLockedError
from correlator.proxy.dead_letters import DeadLetter, DeadLetters
from correlator.proxy.destinations import Accepted, Destination, DestinationError, make, parse_all
from correlator.proxy.failed_events import HandlerError
from correlator.proxy.keys import KeyFileError, SenderKeys
from correlator.rulebook.events import Rejection

_HELP: Final = {"help_option_names": ["-h", "--help"]}
_RANDOM_BYTES: Final = 32
_LONGEST_SHOWN: Final = 100
_SUCCESS: Final = range(200, 300)
_TIMEOUT: Final = 30.0

_log = logging.getLogger(__name__)


@click.group("proxy", invoke_without_command=True, context_settings=_HELP)
@click.pass_context
@with_settings(ProxySettings)
def command(context: click.Context, settings: ProxySettings) -> None:
    """Take events, keep them on local disk, and forward them in order when the backend is there.

    Every event that is answered with 200 is on disk. Stops on SIGTERM or Ctrl-C; what is not forwarded by then is
    forwarded after the next start.
    """
    if context.invoked_subcommand is None:
        _run(settings)


def _run(settings: ProxySettings) -> None:
    for file in (settings.tls_certificate, settings.tls_key):
        if file is not None and not file.is_file():
            raise CouldNotTellError(f"There is no file {file}, which tls_certificate or tls_key names.")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end_at_once)
    sys.setswitchinterval(SWITCH_INTERVAL)
    log = Log(settings.log_format, settings.log_level)
    capture_logging(log)
    try:
        _serve(settings, log)
    finally:
        log.close()


def _serve(settings: ProxySettings, log: Log) -> None:
    try:
        keys = SenderKeys(settings.sender_keys, settings.sender_keys_file)
        _check_exposure(settings, keys)
        listener = bind(settings)
        app = App(settings, keys, log)
    except (BufferLockedError, DestinationError, HandlerError, KeyFileError) as error:
        raise CouldNotTellError(str(error)) from error
    except (OSError, sqlite3.Error) as error:
        raise CouldNotTellError(f"The buffer in {settings.data_dir / DIRECTORY} cannot be used: {error}.") from error
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise cannot_listen(settings, error) from error
    names = ", ".join(consumer.name for consumer in app.consumers)
    told = f"Correlator's proxy is listening on {url_of(settings, listener)}, and forwards to {names}"
    HttpServer(settings, app.edge, on_started=lambda: click.echo(told, err=True)).serve_on(listener)


def _check_exposure(settings: ProxySettings, keys: SenderKeys) -> None:
    if keys.is_open and not settings.insecure and not is_loopback(settings.host):
        raise CouldNotTellError(
            f"Without keys the proxy listens on this machine only, not on {settings.host}. Make a key "
            "(correlator proxy key NAME), or say --insecure if anybody who can reach it may send."
        )


@command.command("key", context_settings=_HELP)
@click.argument("name")
def key(name: str) -> None:
    """Make a key for a sender.

    The key goes to standard output, once; nobody can see it again. The line for the proxy's sender_keys_file goes to
    standard error.
    """
    if not name.isprintable() or not name or set(name) & set(" \t=,#"):
        raise CouldNotTellError("A name has printable characters, and none of blank, comma, = and #.")
    secret = KEY_START + secrets.token_urlsafe(_RANDOM_BYTES)
    click.echo(secret)
    click.echo(f"{name} {hash_of(secret.encode()).hex()}", err=True)


@command.group("failed", context_settings=_HELP)
def failed() -> None:
    """Look at events that failed, and drive them in again.

    They are the dead letters of the handler sqlite: events that did not comply, and events that a destination refused
    for good.
    """


@failed.command("list", context_settings=_HELP)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on each line.")
@click.option("--all", "with_redriven", is_flag=True, help="Also those that were driven in again.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True)
@with_settings(CommonSettings)
def list_failed(*, as_json: bool, with_redriven: bool, limit: int, settings: CommonSettings) -> None:
    """The newest first, without the events themselves."""
    letters = _letters(settings)
    try:
        found = letters.list(with_redriven=with_redriven, limit=limit)
    except sqlite3.Error as error:
        raise CouldNotTellError(f"{letters.path} cannot be read: {error}.") from error
    finally:
        letters.close()
    for letter in found:
        click.echo(msgspec.json.encode(letter).decode() if as_json else _in_words(letter))
    if not found and not as_json:
        click.echo("No event has failed.", err=True)


@failed.command("show", context_settings=_HELP)
@click.argument("number", type=click.IntRange(1))
@with_settings(CommonSettings)
def show(*, number: int, settings: CommonSettings) -> None:
    """Print an event as it came. It may hold secrets."""
    letters = _letters(settings)
    try:
        _, raw = next(letters.waiting([number]), (None, None))
    finally:
        letters.close()
    if raw is None:
        raise CouldNotTellError(f"No event {number} has failed and is still to be driven in again.")
    sys.stdout.buffer.write(raw + b"\n")


@failed.command("redrive", context_settings=_HELP)
@click.argument("numbers", type=click.IntRange(1), nargs=-1)
@click.option("--url", help="The proxy that takes events which did not comply.  [default: host and port of settings]")
@click.option("--key-file", type=click.File("r"), help="A file with a key for that proxy.")
@with_settings(ProxySettings)
def redrive(*, numbers: tuple[int, ...], url: str | None, key_file: IO[str] | None, settings: ProxySettings) -> None:
    """Drive events in again: those of these numbers, or all.

    What did not comply is sent to the proxy, which judges it anew. What a destination has refused is sent to that
    destination, as the settings name it. Exits with 1 if some failed again.
    """
    letters = _letters(settings)
    secret = None if key_file is None else key_file.read().strip()
    again = _Again(settings, url or _own_url(settings), secret)
    done = refused = 0
    try:
        for letter, raw in letters.waiting(numbers or None):
            trouble = again.send(letter, raw)
            if trouble is None:
                letters.mark_redriven(letter.id)
                done += 1
            else:
                refused += 1
                click.echo(f"{letter.id}: {trouble}", err=True)
    except sqlite3.Error as error:
        raise CouldNotTellError(f"{letters.path} cannot be used: {error}.") from error
    finally:
        again.close()
        letters.close()
    click.echo(f"{done} driven in again, {refused} failed again.", err=True)
    sys.exit(1 if refused else 0)


class _Again:
    """Sends a failed event to where it failed."""

    def __init__(self, settings: ProxySettings, url: str, key: str | None) -> None:
        self._url = urlsplit(url)
        self._judge = judge_of(settings)
        self._headers = {"Content-Type": "application/json"} | (
            {} if key is None else {"Authorization": f"Bearer {key}"}
        )
        self._destinations: dict[str, Destination] = {}
        try:
            if settings.destination:
                self._destinations = {
                    spec.name: make(spec, settings.destination_timeout) for spec in parse_all(settings.destination)
                }
        except DestinationError as error:
            raise CouldNotTellError(str(error)) from error

    def send(self, letter: DeadLetter, raw: bytes) -> str | None:
        """Why it failed again, if so."""
        if letter.destination is None:
            # Judged here first: the proxy would keep what it refuses once more.
            verdict = self._judge(raw)
            return verdict.sentence if isinstance(verdict, Rejection) else self._to_proxy(raw)
        destination = self._destinations.get(letter.destination)
        if destination is None:
            return f"the settings name no destination {letter.destination}"
        (result,) = destination.send([raw])
        return None if isinstance(result, Accepted) else result.reason

    def _to_proxy(self, raw: bytes) -> str | None:
        secure = self._url.scheme == "https"
        connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = connect(self._url.hostname or "", self._url.port, timeout=_TIMEOUT)
        try:
            path = self._url.path.rstrip("/") + "/api/v1/lineage"
            connection.request("POST", path, raw, self._headers)
            response = connection.getresponse()
            body = response.read()
        except OSError as error:
            raise CouldNotTellError(f"The proxy at {self._url.geturl()} cannot be reached: {error}.") from error
        finally:
            connection.close()
        if response.status in _SUCCESS:
            return None
        try:
            return str(msgspec.json.decode(body)["detail"])
        except (msgspec.DecodeError, KeyError, TypeError):
            return f"the proxy answered {response.status}"

    def close(self) -> None:
        for destination in self._destinations.values():
            destination.close()


def _letters(settings: CommonSettings) -> DeadLetters:
    letters = DeadLetters(settings.data_dir / DIRECTORY)
    if not letters.path.exists():
        raise CouldNotTellError(f"There are no dead letters in {letters.path.parent}. (Is --data-dir the proxy's?)")
    return letters


def _own_url(settings: ProxySettings) -> str:
    host = "127.0.0.1" if settings.host in {"0.0.0.0", "::"} else settings.host  # noqa: S104 (what one listens on)
    host = f"[{host}]" if ":" in host else host
    return f"{'http' if settings.tls_certificate is None else 'https'}://{host}:{settings.port}"


def _in_words(letter: DeadLetter) -> str:
    at = datetime.fromtimestamp(letter.failed_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    where = "refused here" if letter.destination is None else f"refused by {letter.destination}"
    reason = " ".join(letter.reason.split())
    reason = reason if len(reason) <= _LONGEST_SHOWN else f"{reason[: _LONGEST_SHOWN - 1]}…"
    again = "" if letter.redriven_at is None else " (driven in again)"
    return f"{letter.id}  {at}  {letter.size:,} bytes  {where}: {reason}{again}"
