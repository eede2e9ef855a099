"""Who owns what: the `ownership` facets of datasets, and of the jobs that make them."""

from collections.abc import Iterable
from typing import Final

from correlator.correlation.history import History
from correlator.correlation.ids import Id


def owners_of_datasets(history: History, classes: Iterable[Id]) -> dict[Id, str]:
    """By the class of each: who the dataset says owns it, else who owns the job that writes it."""
    members = history.members(classes)
    by_name = {name: of_class for of_class, names in members.items() for name in names}
    rows = history.rows(_OF_DATASETS, list(by_name), list(by_name))
    found: dict[Id, str] = {}
    # What a dataset says itself goes before what its job says, of whatever name of it.
    for _, name, owner in sorted(rows, key=lambda row: (row[0], row[1], row[2])):
        found.setdefault(by_name[name], owner)
    return found


def owners_of_jobs(history: History, jobs: Iterable[Id]) -> dict[Id, str]:
    wanted = list(dict.fromkeys(jobs))
    return dict(history.rows(_OF_JOBS, wanted)) if wanted else {}


def first_owner(facets: str) -> str:
    """The name of the first owner, in SQL."""
    return f"nullif(jsonb_path_query_first({facets}, 'lax $.ownership.owners[0].name') #>> '{{}}', '')"


_OF_DATASETS: Final = f"""
SELECT 0, dataset.id, {first_owner("dataset.facets")} FROM {{s}}.datasets AS dataset
WHERE dataset.id = ANY (%s::uuid[]) AND {first_owner("dataset.facets")} IS NOT NULL
UNION ALL
SELECT 1, written.dataset_id, {first_owner("job.facets")}
FROM {{s}}.dataset_jobs AS written JOIN {{s}}.jobs AS job ON job.id = written.job_id
WHERE written.dataset_id = ANY (%s::uuid[]) AND written.edge_type = 'output'
  AND {first_owner("job.facets")} IS NOT NULL
"""  # noqa: S608 (constants of this module)

_OF_JOBS: Final = f"""
SELECT id, {first_owner("facets")} FROM {{s}}.jobs WHERE id = ANY (%s::uuid[]) AND {first_owner("facets")} IS NOT NULL
"""  # noqa: S608
