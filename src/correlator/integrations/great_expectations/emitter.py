"""One POST with all events of a checkpoint, within one deadline, or an error that says what happened."""

import json
import logging
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

import requests
from openlineage.client.event_v2 import RunEvent
from openlineage.client.serde import Serde

from correlator.integrations.great_expectations.deadline import DeadlineError, within

_log: Final = logging.getLogger("correlator.integrations.great_expectations")

_PATH: Final = "/api/v1/lineage/events"
_ACCEPTED: Final = (200, 201, 202, 204)
_PARTLY: Final = 207
_MOST_BYTES: Final = 64 * 1024
"""Of an answer that are read: enough for the words of one, whatever else stands behind the endpoint."""
_MOST_WORDS: Final = 1_000
"""Characters of an answer that are told."""


class EmissionError(Exception):
    """The events, or some of them, did not get there; the message says why."""


def endpoint_url(endpoint: str) -> str:
    """A full URL as it is; a bare base (`http://correlator:8080`) with the path of Correlator's events."""
    parts = urlsplit(endpoint.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname or not _has_port_that_can_be(parts):
        raise ValueError(
            "correlator_endpoint must be a URL such as http://correlator:8080 or "
            f"http://correlator:8080{_PATH}, and is not"
        )
    return urlunsplit(parts._replace(path=parts.path if parts.path.strip("/") else _PATH))


def _has_port_that_can_be(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:
        return False


def emit_events(
    events: Sequence[RunEvent],
    endpoint: str,
    api_key: str | None = None,
    session: requests.Session | None = None,
    timeout: float = 30,
) -> None:
    """Return when all events were accepted; raise `EmissionError` else, in any case within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    try:
        within(timeout, lambda: _post(events, endpoint_url(endpoint), api_key, session, deadline))
    except DeadlineError:
        raise _logged(_too_late(endpoint, timeout)) from None
    except EmissionError as error:
        raise _logged(error) from None
    except Exception as error:
        raise _logged(EmissionError(f"{_place(endpoint)}: {_reason(error)}")) from error


def _logged(error: EmissionError) -> EmissionError:
    _log.warning("%s", error)
    return error


def _post(
    events: Sequence[RunEvent],
    url: str,
    api_key: str | None,
    session: requests.Session | None,
    deadline: float,
) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if api_key:
        headers["X-API-Key"] = api_key
    body = "[" + ",".join(Serde.to_json(event) for event in events) + "]"
    own = requests.Session() if session is None else session
    try:
        left = max(0.001, deadline - time.monotonic())
        # A redirect would carry the key elsewhere, and turn the POST into a GET.
        with own.post(
            url, data=body.encode(), headers=headers, timeout=(left, left), allow_redirects=False, stream=True
        ) as answer:
            _judge(answer.status_code, _text(answer, deadline), url, len(events))
    finally:
        if session is None:
            own.close()


def _judge(status: int, text: str, url: str, sent: int) -> None:
    place, refused = _place(url), _refused(text)
    if status in _ACCEPTED and not refused:
        _log.debug("%s has taken %d events", place, sent)
        return
    if status in (*_ACCEPTED, _PARTLY):
        raise EmissionError(f"{place} refused {len(refused) or 'some'} of {sent} events: {_words(text, refused)}")
    if status in (401, 403):
        raise EmissionError(f"{place} does not accept the API key ({status}): {_words(text)}")
    if 300 <= status < 400:  # noqa: PLR2004
        raise EmissionError(f"{place} redirects ({status}), and events are sent to nobody else: name the final URL")
    raise EmissionError(f"{place} answered {status}: {_words(text, refused)}")


def _text(answer: requests.Response, deadline: float) -> str:
    """The beginning of the answer; of one that is still coming at the deadline nothing is waited for."""
    read = b""
    for part in answer.iter_content(8192):
        read += part
        if len(read) >= _MOST_BYTES or time.monotonic() > deadline:
            break
    return read.decode(errors="replace")


def _refused(text: str) -> list[str]:
    """The sentences about single events, in an answer of Correlator's or to OpenLineage's contract for batches."""
    document = _decoded(text)
    results = [one for one in _list(document, "results") if _member(one, "outcome") == "error"]
    return [
        str(_member(one, "error") or _member(one, "reason") or _member(one, "message") or "no reason given")
        for one in [*results, *_list(document, "failed_events")]
    ]


def _list(document: Any, name: str) -> list[Any]:
    found = _member(document, name)
    return found if isinstance(found, list) else []


def _words(text: str, sentences: Sequence[str] = ()) -> str:
    """What an answer says: the sentences about events, else the words of its problem document, else all of it."""
    document = _decoded(text)
    said = "; ".join(dict.fromkeys(sentences))
    if not said:
        parts = [_member(document, "title"), _member(document, "detail")]
        said = ": ".join(part for part in parts if isinstance(part, str) and part) or text
    said = " ".join(said.split())
    if not said:
        return "no words"
    return said if len(said) <= _MOST_WORDS else f"{said[:_MOST_WORDS]}…"


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _reason(error: Exception) -> str:
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError):
        return "no connection; is Correlator running there?"
    return str(error) or type(error).__name__


def _too_late(endpoint: str, timeout: float) -> EmissionError:
    return EmissionError(
        f"{_place(endpoint)}: no answer within {timeout:.3g} s, and the checkpoint goes on. The events may or may not "
        "have arrived; `timeout` of the action says how long to wait"
    )


def _place(url: str) -> str:
    """Scheme, host and path: what may stand in a log, unlike user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
