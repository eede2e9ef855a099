"""Several names, one dataset: what symlinks and configured patterns say, and what the class of names is called.

Facts are stored under the URN that an event's own names give and are never moved. Aliases are applied when a question
is asked, so that a new symlink or a changed pattern is effective at once and on all history.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from openlineage.client.generated.symlinks_dataset import SymlinksDatasetFacet

from correlator.rulebook.events import Facets, body
from correlator.rulebook.naming import class_name, same_names, storable
from correlator.rulebook.patterns import NamePattern
from correlator.rulebook.statements import dataset_ref


class Symlink(msgspec.Struct, frozen=True, order=True, gc=False):
    urn: str
    type: str
    """What kind of name it is, such as TABLE or LOCATION."""


def symlinks(facets: Facets) -> list[Symlink] | None:
    """The other names that a dataset says it has; None when it says nothing of them, none when it took them back."""
    if "symlinks" in facets.deleted:
        return []
    facet = body(facets, SymlinksDatasetFacet)
    if facet is None:
        return None
    said = {Symlink(dataset_ref(i.namespace, i.name).urn, storable(i.type)) for i in facet.identifiers or ()}
    return sorted(said)


def called(
    urns: Iterable[str], said: Mapping[str, Sequence[Symlink]], patterns: Sequence[NamePattern] = ()
) -> dict[str, str]:
    """What each dataset is called: the name of its class.

    Two names are of one class when a symlink joins them or a pattern leads from one to the other; the first pattern
    that matches a name counts.
    """
    names = {*urns, *said, *(link.urn for links in said.values() for link in links)}
    targets = {urn: target for urn in names if (target := _target(urn, patterns)) is not None}
    tables = {link.urn for links in said.values() for link in links if link.type.upper() == "TABLE"}
    pairs = [(urn, urn) for urn in names]
    pairs += [(urn, link.urn) for urn, links in said.items() for link in links]
    pairs += targets.items()
    classes = same_names(pairs)
    meant = set(targets.values())
    return {
        urn: class_name(members, pattern_targets=meant & members, table_symlinks=tables & members)
        for urn, members in classes.items()
    }


def _target(urn: str, patterns: Sequence[NamePattern]) -> str | None:
    return next((target for pattern in patterns if (target := pattern.apply(urn)) is not None), None)
