"""What follows from a merge, within its transaction: names that mean one dataset, and incidents under their roots."""

from typing import Any

import psycopg

from correlator.correlation import groups, names
from correlator.correlation.ids import id_of
from correlator.store.alert_watch import see
from correlator.store.incidents import Changed
from correlator.store.merge import Merged

_STANDING = "facts"
"""Of tables that a replay fills nobody is told."""


def follow(connection: psycopg.Connection[Any], merged: Merged, most: int = groups.MOST) -> None:
    """For `store.merge.merge`; `most` is how many incidents are looked at again."""
    concerned = [id_of(id_) for id_ in merged.concerned]
    if names.refresh(connection, merged.renamed, merged.schema):
        concerned += groups.unresolved(connection, merged.schema, most)
    groups.attach(connection, merged.incidents, concerned, merged.schema, most)
    if merged.schema == _STANDING:
        see(connection, merged.incidents.incidents)


def follow_patterns(connection: psycopg.Connection[Any]) -> None:
    """After a change of the patterns of names, by whoever holds the lock of the merges."""
    names.refresh_all(connection)
    groups.attach(connection, Changed(), groups.unresolved(connection))


def follow_all(connection: psycopg.Connection[Any], schema: str = "facts") -> None:
    """All of it anew, within the caller's transaction: after a replay."""
    names.refresh_all(connection, schema)
    groups.attach_all(connection, schema)
