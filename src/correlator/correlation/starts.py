"""Where a walk through the graph begins: the dataset, job, run or column that a text means."""

from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import psycopg

from correlator.rulebook.identity import Id, dataset_key, job_key


class NodeError(ValueError):
    """What was asked from cannot be a node; the message says how to write one."""


class UnknownNodeError(LookupError):
    """Nothing of that name is known."""


class Start(NamedTuple):
    """Where a walk begins."""

    node_id: str
    dataset: Id | None = None
    """The class."""
    column: str = ""
    job: Id | None = None
    run: Id | None = None
    ended_at: datetime | None = None


_FIND_DATASET: Final = """
SELECT coalesce(of_class.class_urn, dataset.canonical_dataset_id)
FROM (SELECT %(id)s::uuid AS id) AS given
LEFT JOIN datasets AS dataset USING (id)
LEFT JOIN dataset_classes AS of_class ON of_class.dataset_id = given.id
"""
_FIND_JOB: Final = """
SELECT id, job_namespace, job_name FROM jobs WHERE id = ANY (%(ids)s::uuid[])
ORDER BY length(job_namespace) DESC LIMIT 1
"""
_FIND_RUN: Final = """
SELECT id, ended_at, canonical_job_run_id FROM job_runs WHERE id = %(id)s::uuid
UNION ALL
SELECT id, ended_at, canonical_job_run_id FROM job_runs WHERE run_id = %(run_id)s
LIMIT 1
"""

_HOW: Final = (
    "write dataset:URN, job:NAMESPACE/NAME, run:ID or column:URN#COLUMN, such as dataset:postgres://db:5432/shop.orders"
)


def find_start(connection: psycopg.Connection[Any], text: str) -> Start:
    """The node that a text means, as the answers write it."""
    kind, colon, rest = text.partition(":")
    if not colon or not rest:
        raise NodeError(f"{text[:200]!r} is no node: {_HOW}")
    match kind:
        case "dataset":
            urn = _dataset(connection, rest)
            return Start(f"dataset:{urn}", dataset=dataset_key(urn))
        case "column":
            name, sharp, column = rest.rpartition("#")
            if not sharp or not name or not column:
                raise NodeError(f"{text[:200]!r} names no column: write column:URN#COLUMN")
            urn = _dataset(connection, name)
            return Start(f"column:{urn}#{column}", dataset=dataset_key(urn), column=column)
        case "job":
            return _job_start(connection, rest)
        case "run":
            return _run_start(connection, rest)
        case _:
            raise NodeError(f"{kind[:50]!r} is no kind of node: {_HOW}")


def _dataset(connection: psycopg.Connection[Any], urn: str) -> str:
    row = connection.execute(_FIND_DATASET, {"id": dataset_key(urn).hex()}).fetchone()
    if row is None or row[0] is None:
        raise UnknownNodeError(f"No event has named a dataset {urn[:500]!r}. GET /api/v1/search?q=… finds names.")
    return str(row[0])


def _job_start(connection: psycopg.Connection[Any], name: str) -> Start:
    # A namespace may hold slashes itself, and so may a name: whichever is known is meant.
    parts = name.split("/")
    keys = [job_key("/".join(parts[:cut]), "/".join(parts[cut:])).hex() for cut in range(1, len(parts))]
    row = connection.execute(_FIND_JOB, {"ids": keys}).fetchone()
    if row is None:
        raise UnknownNodeError(
            f"No event has named a job {name[:500]!r} (NAMESPACE/NAME). GET /api/v1/search?q=… finds names."
        )
    return Start(f"job:{row[1]}/{row[2]}", job=row[0].bytes)


def _run_start(connection: psycopg.Connection[Any], given: str) -> Start:
    row = connection.execute(_FIND_RUN, {"id": run_key(given), "run_id": given}).fetchone()
    if row is None:
        raise UnknownNodeError(f"No event has named a run {given[:200]!r}.")
    return Start(f"run:{row[2]}", run=row[0].bytes, ended_at=row[1])


def run_key(given: str) -> str | None:
    """The first half of a run's canonical id, or a run's id as the tables have it; None for any other text."""
    compact = given.replace("-", "")
    if len(compact) not in (32, 64):
        return None
    try:
        return UUID(compact[:32]).hex
    except ValueError:
        return None
