"""The rules of an event's core that its types do not state: kinds, times, names, and what a policy adds.

Everything here looks at a plain decoded value, finds all problems and says them in sentences. `decode` calls it only
when an event is not plainly fine.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from correlator.rulebook import explain, spec
from correlator.rulebook.events import Kind
from correlator.rulebook.formats import ZERO_TIME, ReadTime, Verdicts, match_uuid, read_time
from correlator.rulebook.policy import Findings, Policy
from correlator.rulebook.problems import ROOT, Problem, child, element, quote

SHAPES: Final[dict[Kind, spec.Shape]] = {
    "run": spec.RUN_EVENT,
    "job": spec.JOB_EVENT,
    "dataset": spec.DATASET_EVENT,
}
EVENT_NAMES: Final[dict[Kind, str]] = {"run": "RunEvent", "job": "JobEvent", "dataset": "DatasetEvent"}

_SPEC_URL = re.compile(
    r"https://(openlineage\.io/spec/[^/?#]+|raw\.githubusercontent\.com/OpenLineage/OpenLineage/[^?#]+/spec)"
    r"/(OpenLineage|RunEvent|JobEvent|DatasetEvent)\.json(#.*)?"
)
_NAMED_EVENT = re.compile(r"(?:/(\w+Event)\.json|/(\w+Event))$")

SPEC_URLS: Final = Verdicts(lambda url: _SPEC_URL.fullmatch(url) is not None)
"""Whether a `schemaURL` is one of the OpenLineage spec, in any version."""


def _names_no_other(kind: Kind) -> Verdicts:
    return Verdicts(lambda url: _named_event(url) in (None, EVENT_NAMES[kind]))


URLS_OF_KIND: Final[dict[Kind, Verdicts]] = {kind: _names_no_other(kind) for kind in SHAPES}
"""Whether a `schemaURL` leaves the kind open or names the right one, in its fragment or its file name."""


PLAIN_URLS: Final[dict[Kind, Verdicts]] = {
    kind: Verdicts(lambda url, urls=urls: urls[url] and SPEC_URLS[url] and explain.URIS[url])  # type: ignore[misc]
    for kind, urls in URLS_OF_KIND.items()
}
"""Whether a `schemaURL` leaves nothing to say about it, under any policy."""


def _named_event(url: str) -> str | None:
    document, _, fragment = url.partition("#")
    named = _NAMED_EVENT.search(fragment) or _NAMED_EVENT.search(document)
    name = (named[1] or named[2]) if named else None
    return name if name in EVENT_NAMES.values() else None


def kind_by_shape(members: Mapping[str, Any]) -> Kind | None:
    """As the official schema's `oneOf` decides: by which of three properties are there."""
    if "job" in members:
        if "run" in members:
            return "run"
        return None if "dataset" in members else "job"
    return "dataset" if "dataset" in members else None


def judge_core(value: dict[str, Any], kind: Kind | None, policy: Policy, findings: Findings) -> None:
    """Everything that is wrong with an event but for its facets."""
    if kind is None:
        findings.add(_unknown_kind(value))
    for problem in explain.problems(value, explain.type_of(SHAPES[kind] if kind else spec.BASE_EVENT), ROOT):
        if problem.path == "eventTime" and problem.rule == "format_date_time":
            _judge_time(value["eventTime"], policy, findings)
        else:
            findings.add(problem)
        if findings.is_full:
            return
    if kind is not None and isinstance(url := value.get("schemaURL"), str) and not URLS_OF_KIND[kind][url]:
        findings.remark(kind_mismatch(url, kind))
    if kind in ("job", "dataset"):
        for problem in properties_without_meaning(value, kind):
            findings.remark(problem)
    if policy.name == "correlator":
        for problem in _demands_of_correlator(value, kind):
            findings.add(problem)
            if findings.is_full:
                return
    elif kind in ("run", "job"):
        for key in ("inputs", "outputs"):
            if value.get(key, ()) is None:
                findings.add(Problem(key, "type", f"{key}: expected array, got null"))


def _judge_time(text: str, policy: Policy, findings: Findings) -> None:
    """A time that cannot be read at all is an error under every policy: nothing can be ordered by it."""
    time = read_time(text)
    if time is None or policy.formats == "enforce":
        findings.errors.append(explain.bad_format("eventTime", text, "date-time"))
    else:
        findings.remark(unusual_time(text, time))


def _demands_of_correlator(value: dict[str, Any], kind: Kind | None) -> Iterator[Problem]:
    """What lineage cannot do without. Absent or mistyped values are the types' business, not repeated here."""
    yield from _blank(value, ("producer",), ROOT)
    url = value.get("schemaURL")
    if isinstance(url, str) and not SPEC_URLS[url]:
        yield Problem("schemaURL", "schema_url", f"schemaURL: {quote(url)} is not the URL of an OpenLineage spec")
    text = value.get("eventTime")
    if isinstance(text, str) and (time := read_time(text)) is not None and time.instant == ZERO_TIME:
        yield Problem("eventTime", "zero_time", "eventTime is the zero time: it was never set")
    if kind == "run":
        if "eventType" not in value:
            yield Problem("eventType", "required", "eventType is required")
        yield from _blank(value.get("run"), ("runId",), "run")
    if kind in ("run", "job"):
        yield from blank_names(value.get("job"), "job")
        for key in ("inputs", "outputs"):
            if isinstance(datasets := value.get(key), list):
                for index, dataset in enumerate(datasets):
                    yield from blank_names(dataset, element(key, index))
    if kind == "dataset":
        yield from blank_names(value.get("dataset"), "dataset")


def blank_names(entity: Any, path: str) -> Iterator[Problem]:
    yield from _blank(entity, ("namespace", "name"), path)


def _blank(holder: Any, keys: tuple[str, ...], path: str) -> Iterator[Problem]:
    if not isinstance(holder, dict):
        return
    for key in keys:
        if isinstance(text := holder.get(key), str) and is_blank(text):
            place = child(path, key)
            yield Problem(place, "blank", f"{place} is required: {'only white space' if text else 'it is empty'}")


def is_blank(text: str) -> bool:
    return not text or text.isspace()


def _unknown_kind(value: dict[str, Any]) -> Problem:
    if "job" in value:
        sentence = "an event has either job and run, or job, or dataset: job and dataset without run is none of them"
    elif "run" in value:
        sentence = "job is required: a run belongs to a job"
    else:
        sentence = "an event needs run and job (RunEvent), job (JobEvent) or dataset (DatasetEvent)"
    return Problem(ROOT, "unknown_kind", sentence)


def properties_without_meaning(members: Mapping[str, Any], kind: Kind) -> Iterator[Problem]:
    """Old examples put these on job and dataset events, where the spec gives them no meaning."""
    for key in ("eventType", "facets"):
        if key in members:
            yield Problem(key, "says_nothing", f"{key} says nothing on a {EVENT_NAMES[kind]}; it is kept but not used")


def oddities(wire: Any, time: ReadTime | None, kind: Kind) -> Iterator[Problem]:
    """What is worth a warning in a core that keeps every rule. `time` is given when it is written unusually."""
    if time is not None and not time.rfc3339:
        yield unusual_time(wire.eventTime, time)
    for path, text in (("producer", wire.producer), ("schemaURL", wire.schemaURL)):
        if not explain.URIS[text]:
            yield explain.bad_format(path, text, "uri")
    if kind == "run" and not match_uuid(wire.run.runId):
        yield explain.bad_format("run.runId", wire.run.runId, "uuid")
    if not URLS_OF_KIND[kind][wire.schemaURL]:
        yield kind_mismatch(wire.schemaURL, kind)


def kind_mismatch(url: str, kind: Kind) -> Problem:
    name = EVENT_NAMES[kind]
    return Problem(
        "schemaURL", "kind_mismatch", f"schemaURL names a {_named_event(url)}, but by its shape this is a {name}"
    )


def unusual_time(text: str, time: ReadTime) -> Problem:
    if not time.has_offset:
        return Problem("eventTime", "no_offset", f"eventTime: {quote(text)} has no offset; it is read as UTC")
    return Problem(
        "eventTime", "format_date_time", f"eventTime: {quote(text)} is not a date-time as RFC 3339 writes it"
    )
