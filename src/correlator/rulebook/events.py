"""An event that was judged and accepted, as the rest of Correlator sees it."""

from typing import Any, Literal, TypeVar, cast

import msgspec
from openlineage.client.generated.base import BaseFacet

from correlator.rulebook import spec
from correlator.rulebook.formats import Instant
from correlator.rulebook.problems import Problem

EventType = Literal["START", "RUNNING", "COMPLETE", "FAIL", "ABORT", "OTHER"]
Kind = Literal["run", "job", "dataset"]
F = TypeVar("F", bound=BaseFacet)


class RawFacet(msgspec.Struct, gc=False):
    """A facet as it came, byte for byte."""

    text: bytes
    read: Any
    """What was made of it by the reader of its key (`facets`)."""
    content: Any = None
    """Its content (`identity`), once somebody has asked."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RawFacet) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]

    def __bytes__(self) -> bytes:
        return self.text


class Facets(msgspec.Struct, gc=False):
    """The facets of one entity, as they came and as they were understood.

    Most sets come again to the letter and are remembered, and with them what others have made of them.
    """

    raw: dict[str, RawFacet]
    """Every facet."""
    typed: dict[str, Any]
    """The standard ones that keep their schema. Nothing is derived from the others: custom, broken, deleted."""
    deleted: tuple[str, ...] = ()
    """Keys whose facet says that it is no more."""
    doubts: tuple[Any, ...] = ()
    """Those that are not plainly in order, and why (`facets`)."""
    digest: bytes | None = None
    """Of the whole set (`identity`), once somebody has asked."""
    bodies: dict[str, str | None] | None = None
    """As facts keep them (`identity`), once somebody has asked."""
    gist: Any = None
    """What they say to the fold (`gists`), once somebody has asked."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Facets) and (self.raw, self.typed, self.deleted) == (
            other.raw,
            other.typed,
            other.deleted,
        )

    __hash__ = None  # type: ignore[assignment]


class Run(msgspec.Struct, frozen=True, gc=False):
    run_id: str
    facets: Facets


class Job(msgspec.Struct, frozen=True, gc=False):
    namespace: str
    name: str
    facets: Facets


class Dataset(msgspec.Struct, frozen=True, gc=False):
    namespace: str
    name: str
    facets: Facets
    role_facets: Facets
    """`inputFacets` of an input, `outputFacets` of an output: said of this run's use of the dataset only."""


class RunEvent(msgspec.Struct, frozen=True, gc=False):
    raw: bytes
    event_time: Instant
    producer: str
    schema_url: str
    event_type: EventType | None
    """None only under policy `spec`, which does not ask for it."""
    run: Run
    job: Job
    inputs: list[Dataset]
    outputs: list[Dataset]
    warnings: tuple[Problem, ...] = ()
    beyond: bytes | None = None
    """Canonical JSON of what no other field tells (`identity`), where that is known."""
    digest: bytes | None = None
    """Of the content (`identity`), once somebody has asked."""

    @property
    def kind(self) -> Kind:
        return "run"


class JobEvent(msgspec.Struct, frozen=True, gc=False):
    raw: bytes
    event_time: Instant
    producer: str
    schema_url: str
    job: Job
    inputs: list[Dataset]
    outputs: list[Dataset]
    warnings: tuple[Problem, ...] = ()
    beyond: bytes | None = None
    digest: bytes | None = None
    """Both as of a RunEvent."""

    @property
    def kind(self) -> Kind:
        return "job"


class DatasetEvent(msgspec.Struct, frozen=True, gc=False):
    raw: bytes
    event_time: Instant
    producer: str
    schema_url: str
    dataset: Dataset
    warnings: tuple[Problem, ...] = ()
    beyond: bytes | None = None
    digest: bytes | None = None
    """Both as of a RunEvent."""

    @property
    def kind(self) -> Kind:
        return "dataset"


Event = RunEvent | JobEvent | DatasetEvent


class Rejection(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event that was refused, with every reason."""

    raw: bytes
    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()
    kind: Kind | None = None
    producer: str | None = None

    @property
    def sentence(self) -> str:
        """All reasons in one line, for answers that have room for one."""
        return "; ".join(problem.message for problem in self.errors)


_KEYS: dict[type[BaseFacet], str] = {facet.source: facet.key for facet in spec.STANDARD_FACETS.values()}


def body(facets: Facets, kind: type[F]) -> F | None:
    """The facet of that class, if it is there and was understood.

    What is returned has the attributes of the class, not its type: see `spec`.
    """
    return cast("F | None", facets.typed.get(_KEYS[kind]))


def body_at(facets: Facets, key: str, _kind: type[F]) -> F | None:
    """The same for a facet that stands under another key than its own, as `parentRun` does."""
    return cast("F | None", facets.typed.get(key))
