"""The official JSON Schemas, read: each definition with what it is made of put together in one place."""

from typing import Any, NamedTuple

from tests import corpus

ANNOTATIONS = {"description", "example", "deprecated", "documentation"}


class Node(NamedTuple):
    """A schema and the document that its local references are about."""

    document: str
    schema: Any


def resolve(reference: str, document: str) -> Node:
    address, _, pointer = reference.partition("#")
    schema: Any = corpus.documents()[address or document]
    for step in filter(None, pointer.split("/")):
        schema = schema[step]
    return Node(address or document, schema)


class Outline:
    """A schema with its references resolved and its `allOf` parts put together."""

    def __init__(self, node: Node) -> None:
        self.type: str | None = None
        self.format: str | None = None
        self.minimum: int | None = None
        self.values: set[str] | None = None
        self.properties: dict[str, Node] = {}
        self.required: set[str] = set()
        self.extras: Node | bool | None = None
        self.items: Node | None = None
        self.choices: list[Node] = []
        self.partners: dict[str, list[str]] = {}
        self._take(node)

    def _take(self, node: Node) -> None:
        for keyword, value in node.schema.items():
            match keyword:
                case "$ref":
                    self._take(resolve(value, node.document))
                case "allOf" | "anyOf":
                    assert keyword == "allOf" or len(value) == 1, "an anyOf with a choice has no outline"
                    for part in value:
                        self._take(Node(node.document, part))
                case "type":
                    assert self.type in (None, value)
                    self.type = value
                case "format":
                    self.format = value
                case "minimum":
                    self.minimum = value
                case "enum":
                    self.values = set(value)
                case "const":
                    self.type, self.values = "string", {value}
                case "properties":
                    self.properties |= {name: Node(node.document, member) for name, member in value.items()}
                case "required":
                    self.required |= set(value)
                case "additionalProperties":
                    self.extras = value if isinstance(value, bool) else Node(node.document, value)
                case "items":
                    self.items = Node(node.document, value)
                case "oneOf":
                    self.choices = [Node(node.document, choice) for choice in value]
                case "dependentRequired":
                    self.partners = value
                case "not":
                    assert node.schema["type"] == "object"  # tells the kinds of events apart: tested with the policies
                    assert set(value) == {"required"}
                case _:
                    assert keyword in ANNOTATIONS, f"the walk does not know the keyword {keyword}"

    @property
    def tag(self) -> str | None:
        """The constant that tells an alternative from the others."""
        values = Outline(self.properties["type"]).values if "type" in self.properties else None
        return min(values) if values is not None and len(values) == 1 else None
