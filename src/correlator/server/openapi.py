"""The OpenAPI 3.1 document of the server, made from the structs that it answers with.

It promises no more and no less than what is answered: the tests send it thousands of made-up requests and hold every
answer against it.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from correlator import __version__
from correlator.config import ServerSettings
from correlator.http import correlation_id, problems
from correlator.server import answers
from correlator.server.api.catalogue import OPERATIONS, TAGS
from correlator.server.api.operations import Nothing, Operation
from correlator.server.sessions import PATH as SESSION_PATH
from correlator.server.sessions import Session, SignIn
from correlator.setting_kinds import show_duration, show_size

Node = dict[str, Any]

EXAMPLE_EVENT: Final[Node] = {
    "eventType": "COMPLETE",
    "eventTime": "2026-02-03T10:05:00Z",
    "producer": "https://example.com/etl",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    "run": {"runId": "0195a7c4-6b2e-7c3a-9d41-3f6f0a5b8e21"},
    "job": {"namespace": "shop", "name": "daily.load_orders"},
    "inputs": [{"namespace": "postgres://db:5432", "name": "shop.public.orders_raw"}],
    "outputs": [{"namespace": "postgres://db:5432", "name": "shop.public.orders"}],
}
_STRUCTS: Final = (
    answers.Stored,
    answers.BatchAnswer,
    answers.EventsAnswer,
    answers.Ping,
    answers.Ready,
    answers.Health,
    answers.ProblemDocument,
    answers.InvalidEvent,
    answers.InvalidEvents,
    answers.BrokenRunCycle,
    Session,
    SignIn,
)
_REFUSALS_OF_INGEST: Final = (400, 401, 403, 408, 413, 415, 429, 431, 500, 503)
_KINDS_BY_STATUS: Final = {
    status: [kind for kind in problems.KINDS if kind.status == status]
    for status in sorted({kind.status for kind in problems.KINDS})
}


def document(settings: ServerSettings, version: str) -> Node:
    """The document as data; the limits that it names are those of this server."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Correlator",
            "version": version,
            "summary": "Takes OpenLineage events, judges them, and keeps them for good.",
            "description": _about(settings),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": "ingest", "description": "Events come in. Scope `ingest`."},
            *({"name": name, "description": told} for name, told in TAGS.items()),
            {"name": "operation", "description": "For load balancers, monitoring and people. No key needed."},
        ],
        "paths": {
            **_questions(),
            "/api/v1/lineage": {"post": _post_one(), **_questions()["/api/v1/lineage"]},
            "/api/v1/lineage/batch": {"post": _post_batch()},
            "/api/v1/lineage/events": {"post": _post_events()},
            "/ping": {"get": _probe("ping", "Is the process alive?", answers.Ping)},
            "/ready": {"get": _probe("ready", "Can events be stored now?", answers.Ready, 503)},
            "/health": {"get": _probe("health", "How is the server?", answers.Health, 503)},
            "/metrics": {"get": _text("metrics", "Figures for Prometheus, text format 0.0.4.", "text/plain")},
            SESSION_PATH: _session(),
            "/openapi.json": {"get": _own_document()},
            "/docs": {"get": _text("docs", "This document as a page for people.", "text/html")},
        },
        "components": {
            "schemas": _schemas(),
            "responses": {str(status): _problem(status) for status in _KINDS_BY_STATUS},
            "headers": _headers(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "As every OpenLineage client sends it."},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _about(settings: ServerSettings) -> str:
    return (
        "An answer of 200 means that the events are on disk. The same event sent twice is stored once, so whatever was "
        "not answered can be sent again.\n\n"
        "Bodies are JSON in UTF-8, plain or with `Content-Encoding: gzip` or `zstd`, with a length or chunked; up to "
        f"`{show_size(settings.max_request_bytes)}` for a request and `{show_size(settings.max_event_bytes)}` for an "
        f"event (unpacked), and `{settings.max_batch_events:,}` events in a request. A body that takes longer than "
        f"`{show_duration(settings.request_timeout)}` to arrive is given up. Where events come in, query parameters "
        "are ignored, and a slash too many is forgiven.\n\n"
        "A list answers with `items` and, if there is more, a `next_cursor` for the next page. Names that are a part "
        "of a path are percent-encoded, slashes too. Answers about facts carry `facts_as_of`: what was received until "
        "then is in them.\n\n"
        "Keys come as `Authorization: Bearer KEY` or `X-API-Key: KEY`; a server that has no keys takes anybody. "
        "Every answer has an `X-Correlation-ID`: the request's own where it has one of up to "
        f"{correlation_id.LONGEST} plain characters.\n\n"
        "Errors are problem documents (RFC 9457), `application/problem+json`. 429 and 503 carry `Retry-After`."
    )


def _post_one() -> Node:
    return _ingest(
        "postEvent",
        "One event, as every OpenLineage client sends it.",
        "The event is judged by itself. One that is no event at all is refused, and kept among the rejected ones.",
        _ref("Event"),
        EXAMPLE_EVENT,
        {
            "200": _json("The event is stored, or was already.", answers.Stored),
            "422": _unprocessable(answers.InvalidEvent),
        },
    )


def _post_batch() -> Node:
    return _ingest(
        "postEventBatch",
        "An array of events: the batch contract of OpenLineage.",
        "Each event is judged by itself; those that are refused are listed, and all others are stored: an element that "
        "is no event does no harm to the others.",
        _BATCH,
        [EXAMPLE_EVENT],
        {
            "200": _json("The array was read. `failed_events` lists what was refused.", answers.BatchAnswer),
            "422": _unprocessable(answers.InvalidEvent),
        },
    )


def _post_events() -> Node:
    return _ingest(
        "postEvents",
        "One event or an array, with a result for each.",
        "Where all events belong to one run, the run cycle is judged too: a sequence that cannot be "
        "(`COMPLETE` and then `START`) refuses the whole request.",
        {"anyOf": [_ref("Event"), _BATCH]},
        [EXAMPLE_EVENT],
        {
            "200": _json("Every event is stored, or was already.", answers.EventsAnswer),
            "207": _json("Some events were refused, all others are stored.", answers.EventsAnswer),
            "422": _unprocessable(answers.InvalidEvents, answers.BrokenRunCycle, answers.InvalidEvent),
        },
    )


def _ingest(
    name: str, summary: str, description: str, schema: Node, example: object, responses: Mapping[str, Node]
) -> Node:
    refusals = {str(status): {"$ref": f"#/components/responses/{status}"} for status in _REFUSALS_OF_INGEST}
    return {
        "operationId": name,
        "tags": ["ingest"],
        "summary": summary,
        "description": description,
        "security": [{"bearer": []}, {"key": []}, {}],
        "parameters": [
            {
                "name": "X-Correlation-ID",
                "in": "header",
                "required": False,
                "description": "A name for this request, given back in the answer and found in the server's log.",
                "schema": {"type": "string"},
            }
        ],
        "requestBody": {
            "required": True,
            "description": "Also with `Content-Encoding: gzip` or `zstd`.",
            "content": {"application/json": {"schema": schema, "example": example}},
        },
        "responses": dict(sorted({**responses, **refusals}.items())),
    }


def _questions() -> Node:
    paths: Node = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.written_path, {})[operation.method.lower()] = _question(operation)
    return paths


def _question(operation: Operation) -> Node:
    refusals = {401, 403, 422, 431, 500, 503, *operation.refuses}
    if operation.body is not None:
        refusals |= {400, 408, 413, 415}
    if operation.answers is None:
        done: Node = {"204": {"description": "Done.", "headers": _refer_headers()}}
    else:
        done = {str(operation.status): _json("The answer.", operation.answers)}
    if operation.moves:
        location = {"description": "The path that it has.", "schema": {"type": "string"}}
        headers = {**_refer_headers(), "Location": location}
        done["308"] = {"description": "It has another path.", "headers": headers}
    node: Node = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": f"{operation.description} Scope `{operation.scope}`.".strip(),
        "security": [{"bearer": []}, {"key": []}, {}],
        "parameters": [*map(_in_path, operation.parameters), *_in_query(operation.query)],
        "responses": {
            **done,
            **{str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(refusals)},
        },
    }
    if operation.body is not None:
        content = {"application/json": {"schema": _ref(operation.body.__name__), "example": operation.example}}
        node["requestBody"] = {"required": True, "description": "", "content": content}
    return node


def _in_path(name: str) -> Node:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _in_query(query: type[msgspec.Struct]) -> list[Node]:
    if query is Nothing:
        return []
    (_, components) = msgspec.json.schema_components([query], ref_template="{name}")
    described = components[query.__name__]
    parameters = []
    for name, schema in described["properties"].items():
        shape = {key: value for key, value in schema.items() if key not in ("description", "default", "examples")}
        # What is left out is null; nobody can write null into a query.
        if "anyOf" in shape:
            kinds = [kind for kind in shape["anyOf"] if kind != {"type": "null"}]
            shape = {**kinds[0]} if len(kinds) == 1 else {"anyOf": kinds}
        parameter = {"name": name, "in": "query", "required": name in described.get("required", ()), "schema": shape}
        if schema.get("default") is not None:
            shape["default"] = schema["default"]
        if "description" in schema:
            parameter["description"] = schema["description"]
        parameters.append(parameter)
    return parameters


def _probe(name: str, summary: str, answer: type[msgspec.Struct], *refusals: int) -> Node:
    return _get(name, summary, _json("Yes.", answer), *refusals)


def _session() -> Node:
    headers = {**_refer_headers(), "Set-Cookie": {"description": "The session.", "schema": {"type": "string"}}}
    refusals = (400, 401, 403, 408, 413, 415, 422, 503)
    body = {"application/json": {"schema": _ref("SignIn"), "example": {"key": "corr_…"}}}
    shown = _probe("getSession", "Who is signed in with this browser?", Session)
    signed_in = _get("signIn", "Sign in with a key.", _json("You are signed in.", Session), *refusals)
    signed_out = _get("signOut", "Sign out.", {"description": ""}, 403)
    gone = {"204": {"description": "Nobody is signed in.", "headers": headers}}
    return {
        "get": shown,
        "post": {
            **signed_in,
            "description": (
                "The key is kept in a cookie that scripts cannot read and that other sites cannot have sent; it is "
                "taken where a key may read, act or administer, from pages of this server only."
            ),
            "security": [{}],
            "requestBody": {"required": True, "description": "", "content": body},
        },
        "delete": {
            **signed_out,
            "responses": {**gone, **{k: v for k, v in signed_out["responses"].items() if k != "200"}},
        },
    }


def _own_document() -> Node:
    content = {"application/json": {"schema": {"type": "object"}}}
    return _get("openapi", "This document.", {"description": "OpenAPI 3.1.", "content": content})


def _text(name: str, summary: str, media_type: str) -> Node:
    return _get(name, summary, {"description": summary, "content": {media_type: {"schema": {"type": "string"}}}})


def _get(name: str, summary: str, response: Node, *refusals: int) -> Node:
    return {
        "operationId": name,
        "tags": ["operation"],
        "summary": summary,
        "responses": {
            "200": {**response, "headers": _refer_headers()},
            **{str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted({*refusals, 431, 500})},
        },
    }


def _json(description: str, answer: type[msgspec.Struct]) -> Node:
    return {
        "description": description,
        "headers": _refer_headers(),
        "content": {"application/json": {"schema": _ref(answer.__name__)}},
    }


def _unprocessable(*documents: type[msgspec.Struct]) -> Node:
    schemas = [_ref(each.__name__) for each in documents]
    return {
        "description": _meanings((problems.INVALID_EVENTS, problems.BROKEN_RUN_CYCLE)[: len(documents)]),
        "headers": _refer_headers(),
        "content": {problems.MEDIA_TYPE: {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}},
    }


def _problem(status: int) -> Node:
    kinds = _KINDS_BY_STATUS[status]
    extra = {401: ("WWW-Authenticate",), 405: ("Allow",), 429: ("Retry-After",), 503: ("Retry-After",)}
    return {
        "description": _meanings(kinds),
        "headers": _refer_headers(*extra.get(status, ())),
        "content": {
            problems.MEDIA_TYPE: {
                "schema": _ref("ProblemDocument"),
                "examples": {kind.slug: {"value": _example(kind)} for kind in kinds},
            }
        },
    }


def _meanings(kinds: Sequence[problems.Kind]) -> str:
    return "\n\n".join(f"`{kind.type}`: {kind.title}. {kind.meaning}" for kind in kinds)


def _example(kind: problems.Kind) -> Node:
    return {
        "type": kind.type,
        "title": kind.title,
        "status": kind.status,
        "detail": "What happened to this request, and what to do about it.",
        "instance": "/api/v1/lineage",
        "correlation_id": "f3b1c0de9a774e21-1a",
    }


def _refer_headers(*names: str) -> Node:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in ("X-Correlation-ID", *names)}


def _headers() -> Node:
    def header(description: str, schema: Node) -> Node:
        return {"description": description, "required": True, "schema": schema}

    return {
        "X-Correlation-ID": header(
            "The name of this request, for the log and for questions.",
            {"type": "string", "pattern": f"^{correlation_id.PATTERN}$"},
        ),
        "Retry-After": header("Seconds to wait before the same is sent again.", {"type": "integer", "minimum": 1}),
        "WWW-Authenticate": header("How to show a key.", {"type": "string"}),
        "Allow": header("The methods that the path takes.", {"type": "string"}),
    }


def _ref(name: str) -> Node:
    return {"$ref": f"#/components/schemas/{name}"}


def _schemas() -> Node:
    asked = {kind for operation in OPERATIONS for kind in (operation.answers, operation.body) if kind is not None}
    structs = (*_STRUCTS, *sorted(asked, key=lambda kind: kind.__name__))
    _, components = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    return {**_EVENT_SCHEMAS, **dict(sorted(components.items()))}


def main() -> None:
    """Print the document of a server as it comes: the pages' types are made from it, without a running server."""
    sys.stdout.write(msgspec.json.encode(document(ServerSettings(), __version__)).decode() + "\n")


_BATCH: Final[Node] = {"type": "array", "items": _ref("Event")}
# As Python sees it: the separators from U+001C on, and U+0085, are white space too.
_NAME: Final[Node] = {"type": "string", "pattern": "[^\\s\\u001c-\\u001f\\u0085]"}
_FACETS: Final[Node] = {
    "type": "object",
    "additionalProperties": True,
    "description": "Facets by their key. One that breaks its schema costs only itself, and a warning.",
}
_NAMES: Final[Node] = {"namespace": _NAME, "name": _NAME}
_INPUTS: Final[Node] = {"type": ["array", "null"], "items": _ref("InputDataset")}
_OUTPUTS: Final[Node] = {"type": ["array", "null"], "items": _ref("OutputDataset")}
_COMMON: Final[Node] = {
    "eventTime": {
        "type": "string",
        "format": "date-time",
        "not": {"pattern": "^000[01]-"},
        "description": "When it happened. Without an offset it is read as UTC, with a warning. Not the zero time.",
    },
    "producer": {**_NAME, "description": "A URI that names the program that made the event."},
    "schemaURL": {
        "type": "string",
        "pattern": r"^https://openlineage\.io/spec/[A-Za-z0-9.-]+/(OpenLineage|RunEvent|JobEvent|DatasetEvent)\.json"
        r"(#[A-Za-z0-9/$]*)?$",
        "description": "The spec, in any version. The raw URL of its repository is taken too.",
    },
}
_ALWAYS: Final = ["eventTime", "producer", "schemaURL"]

_EVENT_SCHEMAS: Final[Node] = {
    "Event": {
        "description": "An OpenLineage event; its kind is told by its shape. Unknown properties are kept.",
        "anyOf": [_ref("RunEvent"), _ref("JobEvent"), _ref("DatasetEvent")],
    },
    "RunEvent": {
        "type": "object",
        "description": "Something about one run of a job.",
        "required": ["eventType", *_ALWAYS, "run", "job"],
        "properties": {
            "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "FAIL", "ABORT", "OTHER"]},
            **_COMMON,
            "run": _ref("Run"),
            "job": _ref("Job"),
            "inputs": _INPUTS,
            "outputs": _OUTPUTS,
        },
    },
    "JobEvent": {
        "type": "object",
        "description": "Something about a job, whenever it runs.",
        "required": [*_ALWAYS, "job"],
        "properties": {**_COMMON, "job": _ref("Job"), "inputs": _INPUTS, "outputs": _OUTPUTS},
        "not": {"anyOf": [{"required": ["run"]}, {"required": ["dataset"]}]},
    },
    "DatasetEvent": {
        "type": "object",
        "description": "Something about a dataset, whoever writes it.",
        "required": [*_ALWAYS, "dataset"],
        "properties": {**_COMMON, "dataset": _ref("Dataset")},
        "not": {"required": ["job"]},
    },
    "Run": {
        "type": "object",
        "required": ["runId"],
        "properties": {
            "runId": {**_NAME, "description": "A UUID. Another text is taken, with a warning."},
            "facets": _FACETS,
        },
    },
    "Job": {"type": "object", "required": ["namespace", "name"], "properties": {**_NAMES, "facets": _FACETS}},
    "Dataset": {"type": "object", "required": ["namespace", "name"], "properties": {**_NAMES, "facets": _FACETS}},
    "InputDataset": {
        "type": "object",
        "required": ["namespace", "name"],
        "properties": {
            **_NAMES,
            "facets": _FACETS,
            "inputFacets": {**_FACETS, "description": "Facets of this reading alone."},
        },
    },
    "OutputDataset": {
        "type": "object",
        "required": ["namespace", "name"],
        "properties": {
            **_NAMES,
            "facets": _FACETS,
            "outputFacets": {**_FACETS, "description": "Facets of this writing alone."},
        },
    },
}


if __name__ == "__main__":
    main()
