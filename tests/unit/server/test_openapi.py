"""The OpenAPI document and its page."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import jsonschema
import msgspec
import pytest

from correlator.config import ServerSettings
from correlator.http import problems
from correlator.http.exchange import encode
from correlator.rulebook.decode import judge
from correlator.rulebook.events import Rejection
from correlator.server import openapi
from correlator.server.openapi_page import HEADERS, page

DOCUMENT = json.loads(encode(openapi.document(ServerSettings(), "1.2.3")))


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(references, node.values()))
    return set().union(*map(references, node)) if isinstance(node, list) else set()


def test_every_reference_leads_somewhere() -> None:
    for reference in references(DOCUMENT):
        target = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]


def test_every_schema_is_one() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_kind_of_problem_is_documented() -> None:
    told = json.dumps(DOCUMENT)
    for kind in problems.KINDS:
        assert kind.type in told


def test_the_limits_are_those_of_this_server() -> None:
    told = openapi.document(ServerSettings(max_request_bytes=7_000_000, max_batch_events=33), "1")["info"][
        "description"
    ]
    assert "`7MB` for a request" in told
    assert "`33` events in a request" in told


def test_the_example_is_an_event_without_a_flaw() -> None:
    verdict = judge(msgspec.json.encode(openapi.EXAMPLE_EVENT))
    assert not isinstance(verdict, Rejection)
    assert not verdict.warnings


@pytest.mark.parametrize(
    "change", [{"eventType": None}, {"job": {"name": " "}}, {"schemaURL": "https://example.com"}, {"eventTime": 1}]
)
def test_what_the_schema_of_an_event_refuses_the_rulebook_refuses_too(change: dict[str, Any]) -> None:
    event = {**openapi.EXAMPLE_EVENT, **change}
    schema = {"$ref": "#/components/schemas/Event", "components": DOCUMENT["components"]}
    assert not jsonschema.Draft202012Validator(schema).is_valid(event)
    assert isinstance(judge(msgspec.json.encode(event)), Rejection)


class Links(HTMLParser):
    """Whatever a browser would follow or fetch, and where it could."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.targets: list[str] = []
        self.ids: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in {"href", "src", "action", "srcset"} and value is not None:
                self.targets.append(value)
            if name == "id" and value is not None:
                self.ids.append(value)
            assert not name.startswith("on")
            assert name != "style", "the policy of the page would not let it"


def test_the_page_needs_nothing_from_elsewhere_and_its_links_lead_somewhere() -> None:
    html = page(DOCUMENT).decode()
    links = Links(html)
    assert not links.tags & {"script", "link", "img", "iframe", "form", "object"}
    assert "url(" not in html
    assert "@import" not in html
    assert len(links.ids) == len(set(links.ids))
    for target in links.targets:
        assert target == "/openapi.json" or target.removeprefix("#") in links.ids
    for path in DOCUMENT["paths"]:
        assert path in html


def test_the_page_allows_its_own_style_and_nothing_else() -> None:
    policy = dict(HEADERS)[b"content-security-policy"].decode()
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_the_page_escapes_what_it_shows() -> None:
    document = json.loads(json.dumps(DOCUMENT))
    document["info"]["description"] = "<script>alert(1)</script> `<b>`"
    html = page(document).decode()
    assert "<script>" not in html
    assert "<code>&lt;b&gt;</code>" in html


def test_the_curl_examples_can_be_pasted() -> None:
    html = page(DOCUMENT).decode()
    found = re.findall(r"-d &#x27;(.*?)&#x27;</code>", html)
    with_a_body = [o for operations in DOCUMENT["paths"].values() for o in operations.values() if "requestBody" in o]
    assert len(found) == len(with_a_body)
    for example in found:
        json.loads(example.replace("&quot;", '"'))
