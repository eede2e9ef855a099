"""What follows from a merge, within its transaction: names that mean one dataset, and incidents under their roots."""

from typing import Any

import psycopg

from correlator.correlation import names
from correlator.store.merge import Merged


def follow(connection: psycopg.Connection[Any], merged: Merged) -> None:
    """For `store.merge.merge`."""
    if merged.renamed:
        names.refresh(connection, merged.renamed, merged.schema)
