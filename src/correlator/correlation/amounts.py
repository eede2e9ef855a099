"""How much was written into a dataset, write by write, and what is usual: the points and the band of a plot."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
import psycopg
from msgspec import Meta

from correlator.correlation.called import JobName
from correlator.correlation.history import History
from correlator.correlation.ids import Id
from correlator.correlation.usual import Samples, band
from correlator.rulebook.identity import dataset_key

USUAL_WRITES: Final = 60


class Amount(msgspec.Struct, frozen=True):
    """One write."""

    at: datetime
    rows: int | None
    bytes: int | None
    run_id: str
    job: JobName


class Usual(msgspec.Struct, frozen=True):
    """What an amount was before the last one: beyond low and high it is odd."""

    low: float
    middle: float
    high: float


class Amounts(msgspec.Struct, frozen=True):
    items: Annotated[list[Amount], Meta(description="The oldest first.")]
    usual_rows: Annotated[Usual | None, Meta(description="Null where too few writes say how many rows they had.")]
    usual_bytes: Usual | None


def amounts(
    connection: psycopg.Connection[Any], urn: str, *, until: datetime | None = None, limit: int = USUAL_WRITES
) -> Amounts:
    """The last writes up to a moment, under any of the dataset's names."""
    history = History(connection)
    dataset = Id(dataset_key(urn))
    of_class = history.classes([dataset])[dataset]
    rows = history.rows(_WRITES, history.members([of_class])[of_class], until, until, limit, limit)
    items = [
        Amount(at, row_count, byte_size, run_id, JobName(namespace, name))
        for at, row_count, byte_size, run_id, namespace, name in reversed(rows)
    ]
    return Amounts(
        items,
        _usual(items, lambda one: one.rows),
        _usual(items, lambda one: one.bytes),
    )


def _usual(items: Sequence[Amount], amount: Callable[[Amount], int | None]) -> Usual | None:
    """As of the last one, by those before it."""
    before = Samples.of([(one.at, float(said)) for one in reversed(items[:-1]) if (said := amount(one)) is not None])
    found = band(items[-1].at, before) if before else None
    return None if found is None else Usual(*found)


# The end of one index range for each name.
_WRITES: Final = """
SELECT written.used_at, written.row_count, written.byte_size, run.run_id, run.job_namespace, run.job_name
FROM unnest(%s::uuid[]) AS member (id)
CROSS JOIN LATERAL (
    SELECT * FROM {s}.lineage_edges AS edge
    WHERE edge.dataset_id = member.id AND edge.edge_type = 'output' AND edge.used_at IS NOT NULL
      AND (%s::timestamptz IS NULL OR edge.used_at <= %s::timestamptz)
    ORDER BY edge.used_at DESC LIMIT %s
) AS written
JOIN {s}.job_runs AS run ON run.id = written.job_run_id
ORDER BY written.used_at DESC, run.id LIMIT %s
"""
