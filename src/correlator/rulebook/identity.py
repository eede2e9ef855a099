"""What makes two things the same: runs, jobs, datasets, tests, events, contents.

An identity is a SHA-256. Tables refer to each other by its first half, 16 bytes: half the size, and still beyond any
chance of two being equal.
"""

import json
import re
from hashlib import sha256
from typing import Any, Final, TypeAlias

import msgspec

from correlator.rulebook.events import Dataset, DatasetEvent, Event, Facets, JobEvent, Kind, RawFacet, RunEvent
from correlator.rulebook.formats import rfc3339
from correlator.rulebook.fresh_stack import with_enough_stack
from correlator.rulebook.naming import storable

Id: TypeAlias = bytes
"""16 bytes."""
Digest: TypeAlias = bytes
"""32 bytes."""

_SEPARATOR = "\x1f"
_ENVELOPE = ("_producer", "_schemaURL")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_canonical = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode
_packed = msgspec.msgpack.Encoder().encode


def canonical_job_run_id(namespace: str, name: str, run_id: str) -> str:
    """Hex SHA-256 of the three texts, one after the other."""
    return sha256(storable(f"{namespace}{name}{run_id}").encode()).hexdigest()


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


def event_identity(event: Event) -> Id:
    """Of events with one identity all but one are duplicates: the same happened, and the same is said of it.

    The content holds all that the idempotency key is made of, so its digest stands for both.
    """
    return content_digest(event)[:16]


def content_digest(event: Event) -> Digest:
    """Of the decoded content: white space, order of keys and the time's offset make no difference, all else does.

    It is composed of the digests of sets of facets, since most of these come again to the letter.
    """
    made = event.digest
    if made is None:
        made = sha256(_packed(_content(event))).digest()
        msgspec.structs.force_setattr(event, "digest", made)
    return made


def _content(event: Event) -> tuple[Any, ...]:
    beyond = event.beyond
    if beyond is None:
        beyond = beyond_fields(event.raw, event.kind)
    if isinstance(event, DatasetEvent):
        return event.event_time, event.producer, event.schema_url, beyond, *_of_dataset(event.dataset)
    job = event.job
    said = (
        event.event_time,
        event.producer,
        event.schema_url,
        beyond,
        job.namespace,
        job.name,
        job.facets.digest or digest_of_facets(job.facets),
        [_of_dataset(dataset) for dataset in event.inputs],
        [_of_dataset(dataset) for dataset in event.outputs],
    )
    if isinstance(event, JobEvent):
        return said
    run = event.run
    return *said, event.event_type, run.run_id, run.facets.digest or digest_of_facets(run.facets)


def _of_dataset(dataset: Dataset) -> tuple[Any, ...]:
    facets, own = dataset.facets, dataset.role_facets
    return (
        dataset.namespace,
        dataset.name,
        facets.digest or digest_of_facets(facets),
        own.digest or digest_of_facets(own),
    )


_KNOWN: Final[dict[Kind, frozenset[str]]] = {
    "run": frozenset({"eventTime", "producer", "schemaURL", "eventType", "run", "job", "inputs", "outputs"}),
    "job": frozenset({"eventTime", "producer", "schemaURL", "job", "inputs", "outputs"}),
    "dataset": frozenset({"eventTime", "producer", "schemaURL", "dataset"}),
}
_KNOWN_OF_MEMBERS: Final[dict[str, frozenset[str]]] = {
    "run": frozenset({"runId", "facets"}),
    "job": frozenset({"namespace", "name", "facets"}),
    "dataset": frozenset({"namespace", "name", "facets"}),
    "inputs": frozenset({"namespace", "name", "facets", "inputFacets"}),
    "outputs": frozenset({"namespace", "name", "facets", "outputFacets"}),
}


def beyond_fields(raw: bytes, kind: Kind) -> bytes:
    """Canonical JSON of what the fields of an Event do not tell.

    That is every property that the spec does not know, and whether a list is absent, null or there.
    """
    return with_enough_stack(lambda: _beyond(decoded(raw.removeprefix(_BYTE_ORDER_MARK)), kind))


def _beyond(value: dict[str, Any], kind: Kind) -> bytes:
    said: dict[str, Any] = {key: member for key, member in value.items() if key not in _KNOWN[kind]}
    for key in _KNOWN[kind] & _KNOWN_OF_MEMBERS.keys() & value.keys():
        known, member = _KNOWN_OF_MEMBERS[key], value[key]
        if isinstance(member, list):
            members = {str(place): _unknown(item, known) for place, item in enumerate(member)}
            said[key] = {place: unknown for place, unknown in members.items() if unknown}
        elif member is None:
            said[key] = None
        elif unknown := _unknown(member, known):
            said[key] = unknown
    return canonical_json(said)


def _unknown(member: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in member.items() if key not in known}


NOTHING_BEYOND: Final = {
    (type(inputs), type(outputs)): _canonical(
        {key: said and {} for key, said in (("inputs", inputs), ("outputs", outputs)) if said is not msgspec.UNSET}
    )
    for inputs in (msgspec.UNSET, None, [0])
    for outputs in (msgspec.UNSET, None, [0])
}
"""By the types of the lists, of an event all of whose properties the spec knows."""


NO_DIGEST: Final[Digest] = b""
"""Of facets that are not there, not even as an empty set."""


def digest_of_facets(facets: Facets) -> Digest:
    """Of the content of every facet by its key, in the order of keys."""
    made = facets.digest
    if made is None:
        raw = facets.raw
        contents = [(key, facet_content(raw[key]).canonical) for key in sorted(raw)]
        made = facets.digest = sha256(_packed(contents)).digest()
    return made


def bodies(facets: Facets) -> dict[str, str | None]:
    """Every facet as facts keep it, by storable key; None for one that is deleted."""
    made = facets.bodies
    if made is None:
        raw, deleted = facets.raw, facets.deleted
        made = facets.bodies = {
            storable(key): None if key in deleted else facet_content(raw[key]).kept for key in sorted(raw)
        }
    return made


class FacetContent(msgspec.Struct, gc=False):
    """A facet's content, as JSON with sorted keys."""

    canonical: str
    kept: str
    """As facts keep it: nothing that a database cannot hold, and no envelope that says no more than the facet's key."""
    _body: tuple[str, Id] | None = None

    @property
    def body(self) -> str:
        """Without its envelope (`_producer`, `_schemaURL`): a new release of the producer is no change of a schema."""
        return self._without_envelope()[0]

    @property
    def body_digest(self) -> Id:
        return self._without_envelope()[1]

    def _without_envelope(self) -> tuple[str, Id]:
        # Few facets are asked for it: those that have a history.
        if self._body is None:
            value = decoded(self.kept.encode())
            text = canonical_json(_beyond_envelope(value) if isinstance(value, dict) else value)
            self._body = text.decode(), sha256(text).digest()[:16]
        return self._body


def facet_content(raw: RawFacet) -> FacetContent:
    """Made once for a facet that is remembered."""
    made: FacetContent | None = raw.content
    if made is None:
        made = raw.content = with_enough_stack(lambda: _content_of(decoded(raw.text)))
    return made


def _content_of(value: Any) -> FacetContent:
    canonical = _canonical(value).decode()
    kept = canonical
    if "\\u0000" in canonical:
        value = _storable_value(value)
        kept = _canonical(value).decode()
    if isinstance(value, dict) and str(value.get("_schemaURL")).startswith(_OWN):
        # Nearly always it comes first.
        envelope = _OWN_ENVELOPE.match(kept)
        kept = _canonical(_beyond_envelope(value)).decode() if envelope is None else "{" + kept[envelope.end() :]
    return FacetContent(canonical, kept)


# It is a third of what a run has to say, in every run. Who sends it is told beside the facets, and OpenLineage's own
# facets are known by their keys; what the maker of another facet says of its form is kept.
_OWN: Final = "https://openlineage.io/spec/"
_OWN_ENVELOPE: Final = re.compile(r'\{"_producer":"[^"\\]*","_schemaURL":"[^"\\]*"(?:,|(?=\}))')


def _beyond_envelope(value: dict[str, Any]) -> dict[str, Any]:
    return {key: member for key, member in value.items() if key not in _ENVELOPE}


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
        return _decode(text)
    except msgspec.ValidationError:  # numbers beyond what floats and integers hold: their digits are their content
        return json.loads(bytes(text), parse_float=_number, parse_int=_number)


def _number(digits: str) -> Any:
    try:
        return _decode(digits.encode())
    except msgspec.ValidationError:
        return f"number {digits}"


def canonical_json(value: Any) -> bytes:
    return _canonical(value)
