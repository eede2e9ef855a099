"""What follows from a merge, within its transaction: names that mean one dataset, and incidents under their roots."""

from typing import Any

import psycopg

from correlator.correlation import groups, names
from correlator.store.merge import Merged


def follow(connection: psycopg.Connection[Any], merged: Merged) -> None:
    """For `store.merge.merge`."""
    if merged.renamed:
        names.refresh(connection, merged.renamed, merged.schema)
    groups.attach(connection, merged.incidents, merged.concerned, merged.schema)


def follow_all(connection: psycopg.Connection[Any], schema: str = "facts") -> None:
    """All of it anew, within the caller's transaction: after a replay, or when patterns of names have changed."""
    names.refresh_all(connection, schema)
    groups.attach_all(connection, schema)
