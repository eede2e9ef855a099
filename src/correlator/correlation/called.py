"""What jobs and datasets are called in answers."""

from collections.abc import Iterable
from typing import Final

import msgspec

from correlator.correlation.history import History
from correlator.correlation.ids import Id


class JobName(msgspec.Struct, frozen=True):
    namespace: str
    name: str


class DatasetName(msgspec.Struct, frozen=True):
    urn: str
    namespace: str
    name: str


def names_of(history: History, classes: Iterable[Id]) -> dict[Id, DatasetName]:
    """What classes of datasets are called."""
    wanted = list(dict.fromkeys(classes))
    found: dict[Id, DatasetName] = {}
    for of_class, urn, namespace, name in history.rows(_NAMES, wanted):
        found[of_class] = DatasetName(urn, namespace, name)
    return found


_NAMES: Final = """
SELECT asked.id, coalesce(called.class_urn, dataset.canonical_dataset_id), dataset.dataset_namespace,
       dataset.dataset_name
FROM unnest(%s::uuid[]) AS asked (id)
LEFT JOIN LATERAL (
    SELECT dataset_id, class_urn FROM {s}.dataset_classes AS mate
    WHERE mate.class_id = asked.id AND EXISTS (SELECT FROM {s}.datasets WHERE id = mate.dataset_id)
    ORDER BY mate.dataset_id <> asked.id, mate.dataset_id LIMIT 1
) AS called ON true
JOIN {s}.datasets AS dataset ON dataset.id = coalesce(called.dataset_id, asked.id)
"""
