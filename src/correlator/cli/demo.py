"""`correlator demo`: a company that does not exist, played into a server that does."""

import http.client
import ssl
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Self
from urllib.parse import SplitResult, urlsplit

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from correlator.cli.options import CouldNotTellError
from correlator.cli.report import printable
from correlator.demo.company import HISTORY_DAYS, play_shop, shop
from correlator.demo.telling import Sent

_EVENTS_A_BATCH: Final = 500
_PATIENCE: Final = 60.0
"""Seconds for an answer."""
_MOST_TRIES: Final = 8
_LONGEST_PAUSE: Final = 30.0
_BUSY: Final = (429, 503)


class _Failure(msgspec.Struct):
    index: int = 0
    reason: str = ""


class _Summary(msgspec.Struct):
    received: int = 0
    failed: int = 0


class _BatchAnswer(msgspec.Struct):
    summary: _Summary
    failed_events: list[_Failure] = msgspec.field(default_factory=list)


class _Problem(msgspec.Struct):
    title: str = ""
    detail: str = ""


@click.command("demo", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--url",
    envvar="CORRELATOR_URL",
    default="http://localhost:8080",
    show_default=True,
    help="Where the server listens.  [env: CORRELATOR_URL]",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Another number, another three weeks.")
@click.option("--api-key", envvar="CORRELATOR_API_KEY", help="A key with the scope ingest.  [env: CORRELATOR_API_KEY]")
@click.option(
    "--day",
    type=click.DateTime(formats=["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
    help="The day (UTC) before which the bad morning was.  [default: today]",
)
@click.option(
    "--pace",
    type=click.FloatRange(min=0),
    default=0.5,
    show_default=True,
    metavar="SECONDS",
    help="Between two events of the bad morning.",
)
@click.option("--fast", is_flag=True, help="Do not wait between events.")
@click.option("--then-type", default="correlator incidents", hidden=True, help="What lists the incidents there.")
def command(
    *, url: str, seed: int, api_key: str | None, day: datetime | None, pace: float, fast: bool, then_type: str
) -> None:
    """Play a believable shop into a running server, through its ordinary door.

    Three weeks of a data platform (loaders, Airflow, Spark, dbt, Great Expectations) are sent at once; then, event by
    event, the morning after a careless deploy, until a dashboard is wrong. It ends by saying where to look.

    The same seed on the same day sends the same events, so that playing it again adds nothing.

    \b
    Exit code:
      0  everything was taken
      1  the server refused something
      2  there is no server, or it does not answer
    """  # noqa: D301 (click's mark for a paragraph that must not be wrapped anew)
    with _Door(_address(url), api_key) as door:
        door.knock()
        company = shop()
        click.echo(
            f"A shop with {len(company.jobs)} jobs in {len(company.pipelines)} pipelines, "
            f"{len(company.tables)} tables and {sum(len(check.tests) for check in company.checks.values())} tests."
        )
        played = play_shop(seed, datetime.now(UTC) if day is None else day.replace(tzinfo=UTC))
        with _Shown(f"{HISTORY_DAYS} days", len(played.history)) as shown:
            for batch in _batches(played.history):
                door.send_batch(batch)
                shown.advance(len(batch))
        click.echo("Then somebody deploys a change to stg_orders, and the morning's runs begin.")
        with _Shown("The morning", len(played.incident)) as shown:
            for sent in played.incident:
                door.send_one(sent)
                shown.advance(1)
                if not fast:
                    time.sleep(pace)
    failed = len({(truth.dataset_name, truth.test_name, truth.column) for truth in played.truths})
    click.echo(f"{failed} tests have failed, up to the dashboard dash_revenue. Why? Look here:\n")
    click.echo(f"  {url.rstrip('/')}/incidents")
    click.echo(f"  {then_type}")


def _address(url: str) -> SplitResult:
    parts = urlsplit(url)
    with suppress(ValueError):
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    raise CouldNotTellError(f"--url takes an address such as http://localhost:8080, not {printable(url)!r}.")


def _batches(events: Sequence[Sent]) -> Iterator[Sequence[Sent]]:
    for start in range(0, len(events), _EVENTS_A_BATCH):
        yield events[start : start + _EVENTS_A_BATCH]


class _Door:
    """One connection to the server, made again when it breaks: what is sent twice is kept once."""

    def __init__(self, address: SplitResult, api_key: str | None) -> None:
        self._address = address
        self._path = address.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        if address.scheme == "https":
            context = ssl.create_default_context()
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                address.netloc.rpartition("@")[2], timeout=_PATIENCE, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(address.netloc.rpartition("@")[2], timeout=_PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @property
    def _name(self) -> str:
        return f"{self._address.scheme}://{self._address.netloc.rpartition('@')[2]}{self._path}"

    def knock(self) -> None:
        """See that somebody is there before three weeks are made up."""
        status, _ = self._ask("GET", "/ping", None)
        if status != http.HTTPStatus.OK:
            raise CouldNotTellError(
                f"{self._name} answers {status} to /ping. Is a Correlator there? One starts with: correlator up"
            )

    def send_batch(self, batch: Iterable[Sent]) -> None:
        body = b"[" + b",".join(sent.raw for sent in batch) + b"]"
        answer = msgspec.json.decode(self._post("/api/v1/lineage/batch", body), type=_BatchAnswer)
        if answer.summary.failed:
            reason = answer.failed_events[0].reason if answer.failed_events else "no reason was given"
            _refused(f"The server refused {answer.summary.failed} of {answer.summary.received} events: {reason}")

    def send_one(self, sent: Sent) -> None:
        self._post("/api/v1/lineage", sent.raw)

    def _post(self, path: str, body: bytes) -> bytes:
        status, answer = self._ask("POST", path, body)
        if status == http.HTTPStatus.OK:
            return answer
        said = _words(answer)
        match status:
            case http.HTTPStatus.UNAUTHORIZED | http.HTTPStatus.FORBIDDEN:
                _refused(
                    f"The server wants a key that may send events: {said} "
                    "Make one with `correlator keys create demo`, and give it as --api-key or CORRELATOR_API_KEY."
                )
            case http.HTTPStatus.NOT_FOUND | http.HTTPStatus.METHOD_NOT_ALLOWED:
                _refused(f"{self._name} has no {path}. Is it a Correlator?")
            case _:
                _refused(f"The server answered {status}: {said}")
        return answer

    def _ask(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """The answer; asked again for a while when the server is busy or the connection breaks."""
        for attempt in range(1, _MOST_TRIES + 1):
            try:
                self._connection.request(method, self._path + path, body, self._headers)
                response = self._connection.getresponse()
                answer = response.read()
            except ConnectionRefusedError as error:
                raise CouldNotTellError(
                    f"Nobody listens at {self._name}. Start Correlator with `correlator up`, or name another --url."
                ) from error
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if attempt == _MOST_TRIES or not isinstance(error, ConnectionError | http.client.HTTPException):
                    raise CouldNotTellError(
                        f"{self._name} does not answer: {str(error) or type(error).__name__}"
                    ) from error
                time.sleep(min(0.2 * 2**attempt, _LONGEST_PAUSE))
                continue
            if response.status not in _BUSY or attempt == _MOST_TRIES:
                return response.status, answer
            time.sleep(_pause(response.getheader("Retry-After")))
        raise AssertionError("the last try returns or raises")


def _pause(told: str | None) -> float:
    with suppress(TypeError, ValueError):
        return min(max(float(told or ""), 0.1), _LONGEST_PAUSE)
    return 1.0


def _words(answer: bytes) -> str:
    """What a problem document says, or that nothing was said."""
    with suppress(msgspec.DecodeError):
        problem = msgspec.json.decode(answer, type=_Problem)
        return printable(problem.detail or problem.title) or "no reason was given"
    return "no reason was given"


def _refused(sentence: str) -> None:
    click.echo(f"Error: {printable(sentence)}", err=True)
    sys.exit(1)


class _Shown:
    """A bar on a terminal, a line elsewhere."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TextColumn("events"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(what, total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def advance(self, count: int) -> None:
        self._bar.advance(self._task, count)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bar.stop()
        if kind is None:
            click.echo(f"{self._what}: {self._total:,} events are sent.")
