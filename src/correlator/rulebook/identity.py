"""What makes two things the same: runs, jobs, datasets, tests, events, contents.

An identity is a SHA-256. Tables refer to each other by its first half, 16 bytes: half the size, and still beyond any
chance of two being equal.
"""

import json
from hashlib import sha256
from typing import Any, TypeAlias

import msgspec

from correlator.rulebook.events import DatasetEvent, Event, RunEvent
from correlator.rulebook.formats import rfc3339
from correlator.rulebook.fresh_stack import with_enough_stack
from correlator.rulebook.naming import storable

Id: TypeAlias = bytes
"""16 bytes."""
Digest: TypeAlias = bytes
"""32 bytes."""

_SEPARATOR = "\x1f"
_ENVELOPE = ("_producer", "_schemaURL")
_MOST_REMEMBERED = 2048
_LONGEST_REMEMBERED = 2048

_canonical = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode


def canonical_job_run_id(namespace: str, name: str, run_id: str) -> str:
    """Hex SHA-256 of the three texts, one after the other."""
    return sha256(f"{storable(namespace)}{storable(name)}{storable(run_id)}".encode()).hexdigest()


def job_run_key(namespace: str, name: str, run_id: str) -> Id:
    """The first half of `canonical_job_run_id`."""
    return bytes.fromhex(canonical_job_run_id(namespace, name, run_id)[:32])


def job_key(namespace: str, name: str) -> Id:
    return sha256(f"{storable(namespace)}{_SEPARATOR}{storable(name)}".encode()).digest()[:16]


def dataset_key(urn: str) -> Id:
    return sha256(urn.encode()).digest()[:16]


def data_test_key(dataset: Id, name: str, column: str, parameters: Digest) -> Id:
    """A test is the same as long as it asks the same of the same: dataset, name, column, parameters."""
    said = f"{storable(name)}{_SEPARATOR}{storable(column)}{_SEPARATOR}".encode()
    return sha256(dataset + said + parameters).digest()[:16]


def idempotency_key(event: Event) -> Digest:
    """One key for one thing that happened, whoever repeats it, in whatever offset its time is written.

    Job and dataset events use the fields that they have.
    """
    time = rfc3339(event.event_time)
    match event:
        case RunEvent(run=run, job=job, event_type=event_type):
            said = f"{event.producer}{job.namespace}{job.name}{run.run_id}{time}{event_type or ''}"
        case DatasetEvent(dataset=dataset):
            said = f"{event.producer}{dataset.namespace}{dataset.name}{time}"
        case _:
            said = f"{event.producer}{event.job.namespace}{event.job.name}{time}"
    return sha256(said.encode()).digest()


def content_digest(event: Event) -> Digest:
    """Of the decoded value with sorted keys: white space, order of keys and the time's offset make no difference."""
    return with_enough_stack(lambda: digest_of(decoded(event.raw) | {"eventTime": event.event_time}))


class FacetContent(msgspec.Struct, frozen=True, gc=False):
    """A facet as facts keep it: sorted keys, nothing that a database cannot hold."""

    whole: str
    body: str
    """Without its envelope (`_producer`, `_schemaURL`): a new release of the producer is no change of a schema."""
    body_digest: Id


_facet_contents: dict[bytes, FacetContent] = {}


def facet_content(raw: msgspec.Raw) -> FacetContent:
    """Remembered for short facets, because most of them come again and again to the letter."""
    text = bytes(raw)
    if (known := _facet_contents.get(text)) is not None:
        return known
    content = with_enough_stack(lambda: _content(text))
    if len(text) <= _LONGEST_REMEMBERED:
        if len(_facet_contents) >= _MOST_REMEMBERED:
            _facet_contents.clear()
        _facet_contents[text] = content
    return content


def _content(text: bytes) -> FacetContent:
    value = decoded(text)
    if b"\\u0000" in text:
        value = _storable_value(value)
    body = {key: member for key, member in value.items() if key not in _ENVELOPE} if isinstance(value, dict) else value
    return FacetContent(canonical_json(value).decode(), canonical_json(body).decode(), digest_of(body)[:16])


def _storable_value(value: Any) -> Any:
    match value:
        case str():
            return storable(value)
        case dict():
            return {storable(key): _storable_value(member) for key, member in sorted(value.items())}
        case list():
            return [_storable_value(item) for item in value]
        case _:
            return value


def digest_of(value: Any) -> Digest:
    return sha256(canonical_json(value)).digest()


def decoded(text: bytes | msgspec.Raw) -> Any:
    """The value of a JSON text, the last of repeated keys; numbers that nothing can hold are kept by their digits."""
    try:
        return _decode(bytes(text).removeprefix(b"\xef\xbb\xbf"))
    except msgspec.ValidationError:  # numbers beyond what floats and integers hold: their digits are their content
        return json.loads(bytes(text), parse_float=_number, parse_int=_number)


def _number(digits: str) -> Any:
    try:
        return _decode(digits.encode())
    except msgspec.ValidationError:
        return f"number {digits}"


def canonical_json(value: Any) -> bytes:
    return _canonical(value)
