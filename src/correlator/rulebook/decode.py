"""Layer 1: bytes become an Event, or a Rejection that says why.

Almost every event is fine, so the way of a fine event is short: one decode of the core, one of each facet, a few
look-ups. An event whose core is in doubt is looked at again from the start and gets every reason; a doubtful facet is
looked at alone.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from correlator.rulebook import core, explain, spec
from correlator.rulebook.constraints import Entity
from correlator.rulebook.events import (
    Dataset,
    DatasetEvent,
    Event,
    Facets,
    Job,
    JobEvent,
    Kind,
    Rejection,
    Run,
    RunEvent,
)
from correlator.rulebook.facets import MAPS, Doubt, KnownMaps, members
from correlator.rulebook.formats import ZERO_TIME, Instant, ReadTime, match_uuid, plain_instant, read_time
from correlator.rulebook.fresh_stack import with_enough_stack
from correlator.rulebook.identity import NOTHING_BEYOND
from correlator.rulebook.policy import CORRELATOR, Findings, Policy
from correlator.rulebook.problems import ROOT, Problem, child, element, json_type, under

Members = dict[str, msgspec.Raw]
Place = tuple[str, int | None, str]
"""Where facets stand: the property, the index if it is a list, and the name of the set."""
Doubts = list[tuple[Place, tuple[Doubt, ...]]]
"""What is doubtful and where. The place is put into words only when somebody asks."""
FacetsInPlace = tuple[Entity, msgspec.Raw, Place]
ReadFacets = Callable[[KnownMaps, msgspec.Raw | None, Place, Doubts], Facets]


class _Role(msgspec.Struct, frozen=True):
    """A dataset's part in a job, and where the facets stand that belong to it alone."""

    name: str
    facets: str
    maps: KnownMaps


_INPUTS: Final = _Role("inputs", "inputFacets", MAPS["input"])
_OUTPUTS: Final = _Role("outputs", "outputFacets", MAPS["output"])


_DECODE: Final = {kind: msgspec.json.Decoder(shape).decode for kind, shape in core.SHAPES.items()}
_decode_run = _DECODE["run"]
_decode_closed = msgspec.json.Decoder(spec.CLOSED_RUN_EVENT).decode
_skim = msgspec.json.Decoder(msgspec.Raw).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OF_RUN, _OF_JOB, _OF_DATASET = MAPS["run"], MAPS["job"], MAPS["dataset"]
_RUN_FACETS: Final = ("run", None, "facets")
_JOB_FACETS: Final = ("job", None, "facets")
_DATASET_FACETS: Final = ("dataset", None, "facets")


def judge(raw: bytes, policy: Policy = CORRELATOR) -> Event | Rejection:
    """Decode and judge one event."""
    if raw.isascii():
        try:
            verdict = _judge_decoded(raw, _decode_closed(raw), "run", policy)
        except (msgspec.DecodeError, RecursionError):
            verdict = None
        if verdict is not None:
            return verdict
    try:
        return with_enough_stack(lambda: _judge(raw, policy))
    except RecursionError:
        message = "the event is nested deeper than can be followed (some hundred levels)"
        return Rejection(raw=raw, errors=(Problem(ROOT, "too_deep", message),))


def _judge(raw: bytes, policy: Policy) -> Event | Rejection:
    """The same for whatever is not a RunEvent of plain letters that keeps every rule."""
    text = raw
    if not raw.isascii():
        # The decoder does not look into what it skips, so the encoding is checked here, once and for all of the text.
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            message = f"the event is not UTF-8: byte {error.start} cannot be read"
            return Rejection(raw=raw, errors=(Problem(ROOT, "invalid_utf8", message),))
        text = raw.removeprefix(_BYTE_ORDER_MARK)
    try:
        try:
            wire = _run_wire(text)
        except msgspec.ValidationError:
            return _judge_unusual(raw, text, policy)
        return _judge_decoded(raw, wire, "run", policy) or _explain(raw, text, "run", policy)
    except msgspec.DecodeError as error:
        return Rejection(raw=raw, errors=(_not_json(text, error),))


def _run_wire(text: bytes) -> Any:
    try:
        return _decode_closed(text)
    except msgspec.ValidationError:
        return _decode_run(text)


def _judge_unusual(raw: bytes, text: bytes, policy: Policy) -> Event | Rejection:
    """No RunEvent at first sight: another kind, or broken."""
    found = _members(text)
    if found is None:
        _skim(text)  # the decoder stopped at the first character, and the rest may not be JSON at all
        message = f"the event must be a JSON object, got {json_type(explain.plain(text))}"
        return Rejection(raw=raw, errors=(Problem(ROOT, "type", message),))
    kind = core.kind_by_shape(found)
    if kind in ("job", "dataset"):
        try:
            wire = _DECODE[kind](text)
        except msgspec.ValidationError:
            return _explain(raw, text, kind, policy)
        remarks = list(core.properties_without_meaning(found, kind))
        return _judge_decoded(raw, wire, kind, policy, remarks) or _explain(raw, text, kind, policy)
    return _explain(raw, text, kind, policy)


def _judge_decoded(
    raw: bytes, wire: Any, kind: Kind, policy: Policy, remarks: list[Problem] | None = None
) -> Event | Rejection | None:
    """The verdict on a core that decoded; None when it breaks a rule and has to be explained."""
    instant, unusual = plain_instant(wire.eventTime), None
    is_plain = (
        instant is not None
        and explain.URIS[wire.producer]
        and core.PLAIN_URLS[kind][wire.schemaURL]
        and (kind != "run" or match_uuid(wire.run.runId))
        and not remarks
    )
    if instant is None:
        unusual = read_time(wire.eventTime)
        if unusual is None:
            return None
        instant = unusual.instant
    if not is_plain and not _is_tolerable(wire, unusual, kind, policy):
        return None
    doubts: Doubts = []
    try:
        event = _event(raw, wire, instant, kind, policy, doubts)
    except msgspec.ValidationError:  # facets that are no object
        return None
    if event is None or (is_plain and not doubts):
        return event
    findings = Findings(policy)
    if not is_plain:
        for problem in (*(remarks or ()), *core.oddities(wire, unusual, kind)):
            findings.remark(problem)
    _report(doubts, findings)
    if findings.errors:
        return _rejection(raw, kind, wire.producer, findings)
    # Nobody has seen the event yet; a copy would cost more than all of its warnings.
    msgspec.structs.force_setattr(event, "warnings", findings.bounded(findings.warnings))
    return event


def _is_tolerable(wire: Any, unusual: ReadTime | None, kind: Kind, policy: Policy) -> bool:
    """Whether what is not plain about the texts of a core is worth no more than a warning."""
    if policy.name == "correlator" and not core.SPEC_URLS[wire.schemaURL]:
        return False
    return policy.formats == "warn" or bool(
        (unusual is None or unusual.rfc3339)
        and explain.URIS[wire.producer]
        and explain.URIS[wire.schemaURL]
        and (kind != "run" or match_uuid(wire.run.runId))
    )


def _event(raw: bytes, wire: Any, instant: Instant, kind: Kind, policy: Policy, doubts: Doubts) -> Event | None:
    """The event, and on the way what `core.judge_core` demands beyond types and formats; None when that is not met."""
    read = _facets if policy.formats == "warn" else _facets_enforced
    demanding = policy.name == "correlator"
    if demanding and (instant == ZERO_TIME or not wire.producer.strip()):
        return None
    if kind == "dataset":
        dataset = wire.dataset
        if demanding and not (dataset.name.strip() and dataset.namespace.strip()):
            return None
        facets = read(_OF_DATASET, dataset.facets, _DATASET_FACETS, doubts)
        described = Dataset(dataset.namespace, dataset.name, facets, _INPUTS.maps.nothing)
        return DatasetEvent(raw, instant, wire.producer, wire.schemaURL, described)
    job = wire.job
    if demanding:
        if not (job.name.strip() and job.namespace.strip()):
            return None
    elif wire.inputs is None or wire.outputs is None:
        return None
    inputs = _datasets(_INPUTS, wire.inputs, read, doubts, demanding=demanding) if wire.inputs else []
    outputs = _datasets(_OUTPUTS, wire.outputs, read, doubts, demanding=demanding) if wire.outputs else []
    if inputs is None or outputs is None:
        return None
    described_job = Job(job.namespace, job.name, read(_OF_JOB, job.facets, _JOB_FACETS, doubts))
    if kind == "job":
        return JobEvent(raw, instant, wire.producer, wire.schemaURL, described_job, inputs, outputs)
    if demanding and (wire.eventType is None or not wire.run.runId.strip()):
        return None
    run = Run(wire.run.runId, read(_OF_RUN, wire.run.facets, _RUN_FACETS, doubts))
    is_closed = isinstance(wire, spec.CLOSED_RUN_EVENT)
    beyond = NOTHING_BEYOND[type(wire.inputs), type(wire.outputs)] if is_closed else None
    return RunEvent(
        raw,
        instant,
        wire.producer,
        wire.schemaURL,
        wire.eventType,
        run,
        described_job,
        inputs,
        outputs,
        beyond=beyond,
    )


def _datasets(
    role: _Role, wires: list[Any], read: ReadFacets, doubts: Doubts, *, demanding: bool
) -> list[Dataset] | None:
    datasets: list[Dataset] = []
    for index, wire in enumerate(wires):
        if demanding and not (wire.name.strip() and wire.namespace.strip()):
            return None
        facets = read(_OF_DATASET, wire.facets, (role.name, index, "facets"), doubts)
        own = read(role.maps, getattr(wire, role.facets), (role.name, index, role.facets), doubts)
        datasets.append(Dataset(wire.namespace, wire.name, facets, own))
    return datasets


def _facets(known: KnownMaps, raw: msgspec.Raw | None, place: Place, doubts: Doubts) -> Facets:
    if raw is None:
        return known.nothing
    facets = known[bytes(raw)]
    if facets.doubts:
        doubts.append((place, facets.doubts))
    return facets


def _facets_enforced(known: KnownMaps, raw: msgspec.Raw | None, place: Place, doubts: Doubts) -> Facets:
    """The same where a broken format breaks a facet: then nothing is derived from it."""
    before = len(doubts)
    facets = _facets(known, raw, place, doubts)
    broken = {doubt.key for _, found in doubts[before:] for doubt in found if doubt.reading.problems}
    if not broken:
        return facets
    return Facets(facets.raw, {k: v for k, v in facets.typed.items() if k not in broken}, facets.deleted)


def _report(doubts: Doubts, findings: Findings) -> None:
    for place, found in doubts:
        holder, index, facets = place
        path = f"{holder if index is None else element(holder, index)}.{facets}"
        for doubt in found:
            where = child(path, doubt.key)
            dropped = doubt.is_dropped(findings.policy.formats)
            for problem in doubt.reading.problems:
                findings.add_of_facet(under(where, problem), dropped=dropped)
            for problem in doubt.reading.remarks:
                findings.remark(under(where, problem), dropped=dropped)


def _explain(raw: bytes, text: bytes, kind: Kind | None, policy: Policy) -> Event | Rejection:
    """Every reason against an event whose core is in doubt; or, if there is none after all, the event."""
    value = explain.plain(text)
    findings = Findings(policy)
    core.judge_core(value, kind, policy, findings)
    if kind is None or findings.is_full:
        return _rejection(raw, kind, value.get("producer"), findings)
    if findings.errors:
        doubts: Doubts = []
        for entity, facets, place in _facet_maps(_members(text) or {}, kind):
            _facets(MAPS[entity], facets, place, doubts)
        _report(doubts, findings)
        return _rejection(raw, kind, value.get("producer"), findings)
    # Only a repeated key leads here: its first value broke a rule and its last one, which counts, does not.
    wire = _DECODE[kind](_without_repeated_keys(text))
    remarks = [] if kind == "run" else list(core.properties_without_meaning(value, kind))
    verdict = _judge_decoded(raw, wire, kind, policy, remarks)
    if verdict is None:
        raise AssertionError("the two readers of the core's rules disagree")
    return verdict


def _rejection(raw: bytes, kind: Kind | None, producer: Any, findings: Findings) -> Rejection:
    return Rejection(
        raw=raw,
        errors=findings.bounded(findings.errors),
        warnings=findings.bounded(findings.warnings),
        kind=kind,
        producer=producer if isinstance(producer, str) else None,
    )


def _members(text: bytes | msgspec.Raw) -> Members | None:
    """The members of an object, each as it is written; None for anything that is no object."""
    try:
        return members(text)
    except msgspec.ValidationError:
        return None


def _items(text: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return _decode_items(text)
    except msgspec.ValidationError:
        return []


_HOLDERS: Final[dict[Kind, tuple[str, ...]]] = {
    "run": ("run", "job", "inputs", "outputs"),
    "job": ("job", "inputs", "outputs"),
    "dataset": ("dataset",),
}
"""Which properties mean anything on an event of a kind."""


def _facet_maps(event: Members, kind: Kind) -> Iterator[FacetsInPlace]:
    """All facets that can be found in an event whose core is broken somewhere."""

    def maps(holder: msgspec.Raw, name: str, index: int | None, **keys: Entity) -> Iterator[FacetsInPlace]:
        inner = _members(holder) or {}
        for key, entity in keys.items():
            if key in inner and _members(inner[key]) is not None:
                yield entity, inner[key], (name, index, key)

    for key in _HOLDERS[kind]:
        holder = event.get(key)
        match key:
            case _ if holder is None:
                continue
            case "run" | "job" | "dataset":
                yield from maps(holder, key, None, facets=key)
            case "inputs":
                for index, item in enumerate(_items(holder)):
                    yield from maps(item, key, index, inputFacets="input", facets="dataset")
            case "outputs":
                for index, item in enumerate(_items(holder)):
                    yield from maps(item, key, index, outputFacets="output", facets="dataset")


def _without_repeated_keys(text: bytes) -> bytes:
    """The event with the last of repeated keys, everything else byte for byte."""
    event: dict[str, Any] = dict(_members(text) or {})
    for key in ("run", "job", "dataset"):
        if key in event and (inner := _members(event[key])) is not None:
            event[key] = inner
    for key in ("inputs", "outputs"):
        if key in event and (items := _items(event[key])):
            event[key] = [_members(item) or item for item in items]
    return msgspec.json.encode(event)


def _not_json(text: bytes, error: Exception) -> Problem:
    if not text.strip():
        return Problem(ROOT, "invalid_json", "the event is not JSON: there is no text at all")
    if _HALF_A_PAIR.search(text):
        return Problem(ROOT, "invalid_json", "the event is not JSON: it holds half of a surrogate pair")
    reason = str(error).removeprefix("JSON is malformed: ").replace("Input data was truncated", "it ends in the middle")
    return Problem(ROOT, "invalid_json", f"the event is not JSON: {reason}")


_HALF_A_PAIR = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
