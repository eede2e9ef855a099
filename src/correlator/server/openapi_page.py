"""The OpenAPI document as a page for people: one file, no script, nothing loaded from elsewhere."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from correlator.http import problems
from correlator.http.exchange import Header

_STYLE: Final = """
:root { color-scheme: light dark; --text: #1c2430; --soft: #5b6777; --line: #d9dfe7; --page: #fbfcfd; --box: #f1f4f8;
  --accent: #0b63c5; --get: #16794c; --post: #0b63c5; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e9f0; --soft: #9aa7b8; --line: #2d3743; --page: #12171e;
  --box: #1b222c; --accent: #6cb0ff; --get: #4fc08d; --post: #6cb0ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 5rem; }
h1 { margin: 0; font-size: 2rem; } h2 { margin: 3rem 0 .75rem; font-size: 1.35rem; } h3 { margin: 0; font-size: 1rem; }
p { margin: .6rem 0; } a { color: var(--accent); } .soft { color: var(--soft); }
code, pre { font: .87em/1.5 ui-monospace, monospace; } code { background: var(--box); padding: .1em .3em;
  border-radius: 4px; } pre { background: var(--box); padding: .9rem 1rem; border-radius: 8px; overflow-x: auto; }
pre code { background: none; padding: 0; }
nav { columns: 2 18rem; margin: 1.5rem 0; padding: 1rem; border: 1px solid var(--line); border-radius: 8px; }
nav a { display: block; padding: .15rem 0; text-decoration: none; }
article { margin: 1.25rem 0; border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
article > header { display: flex; flex-wrap: wrap; gap: .75rem; align-items: baseline; padding: .8rem 1rem;
  background: var(--box); } article > div { padding: .4rem 1rem 1rem; }
.method { font-weight: 700; font-size: .8rem; letter-spacing: .05em; } .get { color: var(--get); }
.post, .put, .patch, .delete { color: var(--post); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; margin: .6rem 0; font-size: .93rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; } td p { margin: 0 0 .35rem; }
details { margin: .6rem 0; } summary { cursor: pointer; color: var(--soft); }
"""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

HEADERS: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/html; charset=utf-8"),
    (
        b"content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'".encode(),
    ),
    (b"referrer-policy", b"no-referrer"),
)
_CODE = re.compile(r"`([^`]+)`")


def page(document: Mapping[str, Any]) -> bytes:
    return "".join(_page(document)).encode()


def _page(document: Mapping[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style></head><body><main>"
    yield f"<h1>{escape(info['title'])}</h1>"
    yield f'<p class="soft">{escape(info["summary"])} Version {escape(info["version"])}.</p>'
    yield _prose(info["description"])
    yield '<p>For programs: <a href="/openapi.json">/openapi.json</a> (OpenAPI 3.1).</p>'
    yield from _contents(document)
    for tag in document["tags"]:
        yield f'<h2 id="tag-{escape(tag["name"])}">{escape(tag["name"].capitalize())}</h2>{_prose(tag["description"])}'
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation["tags"]:
                    yield from _operation(document, method, path, operation)
    yield from _schemas(document)
    yield from _problems()
    yield "</main></body></html>\n"


def _contents(document: Mapping[str, Any]) -> Iterator[str]:
    yield "<nav>"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f'<a href="#{escape(operation["operationId"])}">{method.upper()} {escape(path)}</a>'
    yield '<a href="#schemas">Schemas</a><a href="#problems">Problems</a></nav>'


def _operation(document: Mapping[str, Any], method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f'<article id="{escape(operation["operationId"])}"><header>'
    yield f'<span class="method {method}">{method.upper()}</span><h3><code>{escape(path)}</code></h3>'
    yield f"<span>{_inline(operation['summary'])}</span></header><div>"
    yield _prose(operation.get("description", ""))
    yield f"<pre><code>{escape(_curl(method, path, operation))}</code></pre>"
    body = operation.get("requestBody")
    if body is not None:
        content = body["content"]["application/json"]
        yield f"<p>Body: {_type(content['schema'])}. {_inline(body['description'])}</p>"
        example = escape(json.dumps(content["example"], indent=2))
        yield f"<details><summary>Example</summary><pre><code>{example}</code></pre></details>"
    yield from _parameters(operation)
    yield '<div class="wide"><table><tr><th>Status</th><th>Meaning</th><th>Body</th></tr>'
    for status, response in operation["responses"].items():
        told = _resolve(document, response)
        yield f"<tr><td><code>{status}</code></td><td>{_prose(told['description'])}</td>"
        yield f"<td>{_contents_of(told)}</td></tr>"
    yield "</table></div></div></article>"


def _parameters(operation: Mapping[str, Any]) -> Iterator[str]:
    parameters = [each for each in operation.get("parameters", ()) if each["in"] != "header"]
    if not parameters:
        return
    yield '<div class="wide"><table><tr><th>Parameter</th><th>Type</th><th></th></tr>'
    for each in parameters:
        optional = "" if each["required"] else ' <span class="soft">optional</span>'
        usual = each["schema"].get("default")
        told = each.get("description", "") + ("" if usual is None else f" Usually `{usual}`.")
        yield f"<tr><td><code>{escape(each['name'])}</code>{optional}</td><td>{_type(each['schema'])}</td>"
        yield f"<td>{_inline(told.strip())}</td></tr>"
    yield "</table></div>"


def _curl(method: str, path: str, operation: Mapping[str, Any]) -> str:
    url = f"curl http://localhost:8080{path}"
    if "security" not in operation:
        return url
    key = '-H "Authorization: Bearer $CORRELATOR_KEY"'
    how = "" if method in {"get", "post"} else f" -X {method.upper()}"
    if "requestBody" not in operation:
        return f"{url}{how} {key}"
    example = json.dumps(operation["requestBody"]["content"]["application/json"]["example"])
    return f"{url}{how} \\\n  -H 'Content-Type: application/json' {key} \\\n  -d '{example}'"


def _contents_of(response: Mapping[str, Any]) -> str:
    return "".join(
        f'<p><code>{escape(media_type)}</code><br><span class="soft">{_type(content["schema"])}</span></p>'
        for media_type, content in response.get("content", {}).items()
    )


def _schemas(document: Mapping[str, Any]) -> Iterator[str]:
    yield '<h2 id="schemas">Schemas</h2>'
    for name, schema in document["components"]["schemas"].items():
        yield f'<article id="schema-{escape(name)}"><header><h3>{escape(name)}</h3></header><div>'
        yield _prose(schema.get("description", ""))
        if "properties" in schema:
            required = schema.get("required", ())
            yield '<div class="wide"><table><tr><th>Property</th><th>Type</th><th></th></tr>'
            for key, value in schema["properties"].items():
                optional = "" if key in required else ' <span class="soft">optional</span>'
                yield f"<tr><td><code>{escape(key)}</code>{optional}</td><td>{_type(value)}</td>"
                yield f"<td>{_inline(value.get('description', ''))}</td></tr>"
            yield "</table></div>"
        else:
            yield f"<p>{_type(schema)}</p>"
        yield "</div></article>"


def _problems() -> Iterator[str]:
    yield '<h2 id="problems">Problems</h2>'
    yield _prose("The `type` of a problem is the same on every server; compare it as a text.")
    yield '<div class="wide"><table><tr><th>Type</th><th>Status</th><th>Meaning</th></tr>'
    for kind in problems.KINDS:
        yield f'<tr id="problem-{kind.slug}"><td><code>{kind.type}</code></td><td>{kind.status}</td>'
        yield f"<td>{_inline(f'{kind.title}. {kind.meaning}')}</td></tr>"
    yield "</table></div>"


def _resolve(document: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = node.get("$ref")
    if reference is None:
        return node
    target: Any = document
    for part in reference.removeprefix("#/").split("/"):
        target = target[part]
    found: Mapping[str, Any] = target
    return found


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words, with links to those that have a name."""
    match schema:
        case {"$ref": str(reference)}:
            name = escape(reference.rpartition("/")[2])
            return f'<a href="#schema-{name}">{name}</a>'
        case {"anyOf": [*choices]}:
            return " or ".join(_type(choice) for choice in choices)
        case {"enum": [*values]}:
            return " ".join(f"<code>{escape(json.dumps(value))}</code>" for value in values)
        case {"type": "array" | ["array", "null"], "items": items}:
            return f"array of {_type(items)}"
        case {"type": str(kind), "format": str(form)}:
            return escape(f"{kind} ({form})")
        case {"type": str(kind)}:
            return escape(kind)
        case _:
            return "anything"


def _prose(text: str) -> str:
    return "".join(f"<p>{_inline(paragraph)}</p>" for paragraph in text.split("\n\n") if paragraph)


def _inline(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))
