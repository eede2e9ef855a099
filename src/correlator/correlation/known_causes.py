"""How often it is known who made what failed."""

from collections import defaultdict
from datetime import datetime
from typing import Annotated, Any, Final

import psycopg
from msgspec import Meta, Struct

from correlator.correlation.failing import failed_versions
from correlator.correlation.history import History
from correlator.correlation.ids import id_of
from correlator.correlation.ignored import Ignored, sql_of_datasets
from correlator.correlation.incidents import incidents_of

MOST: Final = 1_000
"""Incidents that are looked at, the newest first."""


class NamespaceShare(Struct, frozen=True, kw_only=True):
    namespace: Annotated[str, Meta(description="Of the datasets that failed a test.")]
    incidents: int
    with_cause: Annotated[int, Meta(description="Those of which the run is known that wrote what failed.")]


class KnownCauses(Struct, frozen=True, kw_only=True):
    incidents: int
    with_cause: int
    share: Annotated[float | None, Meta(description="Null where nothing has failed.")]
    namespaces: Annotated[list[NamespaceShare], Meta(description="Those with most incidents of unknown cause first.")]
    truncated: Annotated[bool, Meta(description=f"Whether there are more than the newest {MOST:,}.")]


_OF_TESTS: Final = f"""
SELECT incident.id, dataset.dataset_namespace
FROM incidents AS incident JOIN datasets AS dataset ON dataset.id = incident.dataset_id
WHERE incident.kind = 'test' AND incident.opened_at > %(since)s
  AND {sql_of_datasets("dataset.dataset_namespace", "dataset.canonical_dataset_id")}
ORDER BY incident.opened_at DESC LIMIT %(limit)s
"""  # noqa: S608 (constants)


def known_causes(connection: psycopg.Connection[Any], since: datetime) -> KnownCauses:
    """Of the incidents of tests that began after a moment. A run that failed is its own cause, and is not counted."""
    values = {"since": since, "limit": MOST + 1} | Ignored.load(connection).parameters
    rows = connection.execute(_OF_TESTS.encode(), values).fetchall()
    namespaces = {id_of(incident): namespace for incident, namespace in rows[:MOST]}
    history = History(connection)
    versions = failed_versions(history, list(incidents_of(history, list(namespaces)).values()), most=1)
    counts: defaultdict[str, list[bool]] = defaultdict(list)
    for incident, namespace in namespaces.items():
        counts[namespace].append(bool(versions.get(incident)))
    found = [
        NamespaceShare(namespace=namespace, incidents=len(known), with_cause=sum(known))
        for namespace, known in counts.items()
    ]
    with_cause = sum(one.with_cause for one in found)
    return KnownCauses(
        incidents=len(namespaces),
        with_cause=with_cause,
        share=round(with_cause / len(namespaces), 4) if namespaces else None,
        namespaces=sorted(found, key=lambda one: (one.with_cause - one.incidents, one.namespace)),
        truncated=len(rows) > MOST,
    )
