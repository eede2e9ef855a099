"""Reading facets: typed when they are standard ones, kept as they came whatever they are."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import inspect

from correlator.rulebook import constraints, explain, spec
from correlator.rulebook.constraints import Entity
from correlator.rulebook.events import Facets, RawFacet
from correlator.rulebook.formats import Verdicts, is_uri
from correlator.rulebook.identity import NO_DIGEST
from correlator.rulebook.policy import Formats
from correlator.rulebook.problems import ROOT, Problem
from correlator.rulebook.recent import Recent

Check = Callable[[Any], object]

MOST_KNOWN = 4 << 20
MOST_KNOWN_OF_RUNS = 1 << 20
MOST_KNOWN_OF_A_KEY = 256 << 10
LONGEST_KNOWN = 4096
"""Bytes that are remembered: of sets of facets for each entity, of facets for each key, and of any one text at most.

What is said of a run comes again, if at all, while the run lasts.
"""

_MOST_LOOKED_FOR = 1001
"""Problems of one facet: one more than a policy tells by default, so that it notices that there are more."""


class Reading(msgspec.Struct, frozen=True, gc=False):
    """What was made of a facet that is custom, deleted, or not plainly in order. Paths begin at the facet."""

    body: Any = None
    """The typed facet; None for custom, broken and deleted ones."""
    deleted: bool = False
    problems: tuple[Problem, ...] = ()
    """What the spec holds against it."""
    remarks: tuple[Problem, ...] = ()
    """What is odd about a facet that does not stand where the spec puts it."""


_URIS: Final = explain.URIS
_CUSTOM = Reading()
_DELETED = Reading(deleted=True)


class FacetReader:
    """How the facets of one key on one entity are read.

    `away` marks a standard facet that stands where the spec does not put it: understood, but judged there only by what
    every facet has to have.
    """

    __slots__ = (
        "_away",
        "_base",
        "_can_be_deleted",
        "_decode",
        "_decode_base",
        "_shape",
        "_sound",
        "_urls",
        "_version",
        "is_custom",
        "known",
    )

    def __init__(self, entity: Entity, standard: spec.FacetShape | None, *, away: bool = False) -> None:
        self.is_custom = standard is None
        self._base = spec.BASE_FACETS[entity]
        self._shape = self._base if standard is None else standard.shape
        self._away = away
        self._can_be_deleted = "_deleted" in self._base.__struct_fields__
        self._version = None if standard is None else standard.version
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(self._shape).decode
        self._decode_base = msgspec.json.Decoder(self._base).decode
        self._sound = sound_check(explain.type_of(self._shape), besides=constraints.ALWAYS_REQUIRED)
        self._urls = Verdicts(self._is_our_version)
        # What jobs and datasets say comes again as a whole; of what runs say, only what is not about this very run.
        self.known = Recent(self._facet, most=MOST_KNOWN_OF_A_KEY, longest=LONGEST_KNOWN) if entity == "run" else None

    def _facet(self, text: bytes) -> RawFacet:
        return RawFacet(text, self.read(text))

    def read(self, raw: bytes) -> Any:
        """The typed facet itself when it is a standard one and in order, which most are; else a Reading."""
        try:
            facet = self._decode(raw)
            # Whether a facet can be deleted, the place where it stands decides.
            of_place: Any = self._decode_base(raw) if self._away else facet
        except msgspec.ValidationError:
            return self._look(raw, None)
        if not (_URIS[facet._producer] and self._urls[facet._schemaURL]):  # noqa: SLF001
            return self._look(raw, facet)
        if self._sound is not None and not self._sound(facet):
            return self._look(raw, facet)
        if self._can_be_deleted and of_place._deleted:  # noqa: SLF001
            return _DELETED
        return _CUSTOM if self.is_custom else facet

    def _is_our_version(self, schema_url: str) -> bool:
        return is_uri(schema_url) and self._other_major(schema_url) is None

    def _other_major(self, schema_url: Any) -> Problem | None:
        """What to remark when a facet declares another major version of our document: it is not ours to judge."""
        declared = spec.facet_version(schema_url) if isinstance(schema_url, str) else None
        ours = self._version
        if declared is None or ours is None or declared.document != ours.document or declared.major == ours.major:
            return None
        words = f"_schemaURL declares major version {declared.major}, and {ours.major} is what is understood"
        return Problem("_schemaURL", "other_version", words)

    def _look(self, raw: bytes, facet: Any) -> Reading:
        """The slower way, which finds everything that is wrong. `facet` is given if it decoded."""
        value = explain.plain(raw)
        shape, base = explain.type_of(self._shape), explain.type_of(self._base)
        if not isinstance(value, dict):
            return Reading(problems=_first(explain.problems(value, base, ROOT)))
        if (remark := self._other_major(value.get("_schemaURL"))) is not None:
            return Reading(problems=_first(explain.problems(value, base, ROOT)), remarks=(remark,))
        gone = value.get("_deleted") is True
        if self.is_custom or (gone and self._can_be_deleted):
            deleted = gone and self._can_be_deleted
            return Reading(deleted=deleted, problems=_first(explain.problems(value, base, ROOT)))
        found = _first(explain.problems(value, shape, ROOT))
        body = self._understood(value, facet, found)
        if not (gone or self._away):
            return Reading(body, problems=found)
        # What calls itself deleted where nothing can be is not judged by its body, nor is what stands away from home;
        # both are still understood if they can be.
        problems = _first(explain.problems(value, base, ROOT))
        held_against_it = set(problems)
        remarks = () if gone else tuple(problem for problem in found if problem not in held_against_it)
        return Reading(body, problems=problems, remarks=remarks)

    def _understood(self, value: dict[str, Any], facet: Any, found: tuple[Problem, ...]) -> Any:
        """The typed facet unless its body is broken.

        A sound body in an envelope without `_producer` or `_schemaURL` still says what it says: people who write events
        by hand leave these out, and who sent the event is known from the event.
        """
        if any(p.path not in ("_producer", "_schemaURL") and not p.rule.startswith("format_") for p in found):
            return None
        if facet is not None:
            return facet
        filled = {key: text if isinstance(text := value.get(key), str) else "" for key in ("_producer", "_schemaURL")}
        try:
            whole = explain.with_whole_numbers(value | filled, explain.type_of(self._shape))
            return msgspec.convert(whole, self._shape)
        except msgspec.ValidationError:  # there was more to find than was looked for
            return None


def _first(problems: Iterator[Problem]) -> tuple[Problem, ...]:
    return tuple(islice(problems, _MOST_LOOKED_FOR))


def sound_check(kind: inspect.Type, besides: frozenset[str] = frozenset()) -> Check | None:
    """A quick yes or no on what the types leave open (formats, fields that go together); None when there is nothing.

    It is asked of values that are there. `besides` names fields of the outermost object that are judged elsewhere.
    """
    match kind:
        case inspect.Metadata(extra={"format": name}):
            return explain.FORMATS[name]
        case inspect.Metadata(type=inner):
            return sound_check(inner)
        case inspect.StructType() if _leaves_something_open(kind, besides):
            return _struct_check(kind, besides)
        case inspect.ListType(item_type=inner) if (each := sound_check(inner)) is not None:
            return partial(_holds_for_all, each)
        case inspect.DictType(value_type=inner) if (each := sound_check(inner)) is not None:
            return partial(_holds_for_all_values, each)
        case inspect.UnionType(types=alternatives):
            checks = {t.cls: sound_check(t) for t in alternatives if isinstance(t, inspect.StructType)}
            if any(check is not None for check in checks.values()):
                return lambda value: (check := checks[type(value)]) is None or check(value)
    return None


def _holds_for_all(check: Check, items: list[Any]) -> bool:
    return all(map(check, items))


def _holds_for_all_values(check: Check, members: dict[str, Any]) -> bool:
    return all(map(check, members.values()))


def _struct_check(kind: inspect.StructType, besides: frozenset[str]) -> Check:
    pair = constraints.TOGETHER.get(kind.cls.__name__)
    members: list[tuple[Callable[[Any], Any], Check]] = []

    def check(value: Any) -> bool:
        if not members:  # on first use, because a recursive type would never be done with its members before
            members.extend(_open_members(kind, besides))
        if pair is not None and (getattr(value, pair[0]) is None) != (getattr(value, pair[1]) is None):
            return False
        for get, holds in members:
            member = get(value)
            if member is not None and not holds(member):
                return False
        return True

    return check


def _open_members(
    kind: inspect.StructType, besides: frozenset[str], prefix: str = ""
) -> Iterator[tuple[Callable[[Any], Any], Check]]:
    """What has to be checked in an object; what must be there is reached in one step (`run.runId`)."""
    for field in kind.fields:
        path = f"{prefix}{field.name}"
        if field.name in besides:
            continue
        if isinstance(field.type, inspect.StructType) and field.required and field.type.cls is not kind.cls:
            yield from _open_members(field.type, frozenset(), f"{path}.")
        elif (holds := sound_check(field.type)) is not None:
            yield attrgetter(path), holds


def _leaves_something_open(kind: inspect.StructType, besides: frozenset[str]) -> bool:
    """Whether a format or a pair can be reached from here; recursive types without any must not be walked."""
    seen: set[type[Any]] = set()

    def reaches(inner: inspect.Type, ignored: frozenset[str] = frozenset()) -> bool:
        match inner:
            case inspect.Metadata(extra={"format": _}):
                return True
            case inspect.Metadata(type=t) | inspect.ListType(item_type=t) | inspect.DictType(value_type=t):
                return reaches(t)
            case inspect.UnionType(types=alternatives):
                return any(reaches(t) for t in alternatives)
            case inspect.StructType(cls=cls, fields=fields) if cls not in seen:
                seen.add(cls)
                return cls.__name__ in constraints.TOGETHER or any(
                    reaches(f.type) for f in fields if f.name not in ignored
                )
            case _:
                return False

    return reaches(kind, besides)


CUSTOM: Final[dict[Entity, FacetReader]] = {entity: FacetReader(entity, None) for entity in spec.BASE_FACETS}
"""Facets that the spec does not know have to have what every facet has, and no more."""

READERS: Final[dict[Entity, dict[str, FacetReader]]] = {entity: {} for entity in spec.BASE_FACETS}
for (_entity, _key), _standard in spec.STANDARD_FACETS.items():
    READERS[_entity][_key] = FacetReader(_entity, _standard)
for (_entity, _key), _home in constraints.OTHER_HOMES.items():
    READERS[_entity][_key] = FacetReader(_entity, spec.STANDARD_FACETS[_home], away=True)


class Doubt(msgspec.Struct, frozen=True, gc=False):
    """A facet that is not plainly in order."""

    key: str
    reading: Reading
    is_custom: bool

    def is_dropped(self, formats: Formats) -> bool:
        """Whether it is a standard facet that nothing is derived from."""
        if self.is_custom or self.reading.deleted:
            return False
        return self.reading.body is None or (formats == "enforce" and bool(self.reading.problems))


class KnownMaps(Recent[Facets]):
    """Reads all facets of an entity at once, and remembers them.

    What a job or a dataset says of itself stays the same to the letter from run to run, and most of what a run says
    from START to COMPLETE; to look that up costs a fraction of reading it. Of what a run says the facets that are not
    about this very run come again, so those are remembered one by one too. Long texts are read every time.
    """

    def __init__(self, entity: Entity) -> None:
        of_run = entity in ("run", "input", "output")
        most = MOST_KNOWN_OF_RUNS if of_run else MOST_KNOWN
        super().__init__(self._read, most=most, longest=LONGEST_KNOWN, at_once=of_run)
        self._readers = READERS[entity]
        self._custom = CUSTOM[entity]
        self.nothing = Facets({}, {}, digest=NO_DIGEST)

    def _read(self, text: bytes) -> Facets:
        raw: dict[str, Any] = members(text)
        typed: dict[str, Any] = {}
        deleted: list[str] = []
        doubts: list[Doubt] = []
        readers, custom = self._readers, self._custom
        for key, view in raw.items():
            reader = readers.get(key, custom)
            facet_text = bytes(view)
            known = reader.known
            facet = RawFacet(facet_text, reader.read(facet_text)) if known is None else known[facet_text]
            raw[key], read = facet, facet.read
            if type(read) is not Reading:
                typed[key] = read
            elif read is not _CUSTOM:
                if read.body is not None:
                    typed[key] = read.body
                elif read.deleted:
                    deleted.append(key)
                if read.problems or read.remarks:
                    doubts.append(Doubt(key, read, reader.is_custom))
        return Facets(raw, typed, tuple(deleted), tuple(doubts))


members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""The members of an object, each as it is written; a ValidationError for anything that is no object."""

MAPS: Final[dict[Entity, KnownMaps]] = {entity: KnownMaps(entity) for entity in spec.BASE_FACETS}
