"""What is in the datasets that runs wrote and read: which columns, or the same as the last time."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from correlator.correlation.case import Case
from correlator.correlation.changes import schema_change
from correlator.correlation.findings import Pair, Unchanged
from correlator.correlation.ids import Id
from correlator.correlation.past import facets_at

_LOOKED_BACK: Final = 12
"""Former runs whose versions are compared."""
_ALIVE: Final = 6
"""Of so many counts it can be said whether a table changes with every run,"""
_MANY_ROWS: Final = 20
"""and by so many rows that two equal ones are no chance."""


def find_changes_of_schemas(case: Case, pairs: Sequence[Pair]) -> None:
    """Of the schemas of what they wrote."""
    asked = [
        (version.written_as, moment)
        for pair in pairs
        for version in case.bad.written[pair.found.run.id]
        for moment in (version.at, pair.before.ended_at)
    ]
    facets = facets_at(case.history, "dataset", asked, ["schema"])
    for pair in pairs:
        one, before = pair.found, pair.before
        for version in case.bad.written[one.run.id]:
            now, then = facets[version.written_as, version.at], facets[version.written_as, before.ended_at]
            change = schema_change(then.get("schema"), now.get("schema"))
            if change:
                one.schemas[version.dataset] = change
            if "schema" in now:
                one.said["schema"].add(version.dataset)


def find_changes_of_sources(case: Case, pairs: Sequence[Pair]) -> None:
    """Of schemas of what runs read and nobody is known to write: they tell of it themselves, or a catalogue does."""
    names = {
        step.use.dataset: case.history.members([step.use.dataset])[step.use.dataset]
        for pair in pairs
        for step in case.bad.reads_of(pair.found.run.id)
        if step.version is None
    }
    moments = {pair.found.run.id: (pair.before.ended_at, pair.found.run.last_moment) for pair in pairs}
    asked = [
        (name, moment)
        for pair in pairs
        for step in case.bad.reads_of(pair.found.run.id)
        for name in (names[step.use.dataset] if step.version is None else ())
        for moment in moments[pair.found.run.id]
    ]
    facets = facets_at(case.history, "dataset", asked, ["schema"])
    for pair in pairs:
        then, now = moments[pair.found.run.id]
        for step in case.bad.reads_of(pair.found.run.id):
            for name in names[step.use.dataset] if step.version is None else ():
                change = schema_change(facets[name, then].get("schema"), facets[name, now].get("schema"))
                if change:
                    pair.found.sources[step.use.dataset] = change


def find_unchanged(case: Case, pairs: Sequence[Pair]) -> None:
    """Runs that read the same as the last time: the same version by its name, the same number of rows."""
    runs = [pair.found for pair in pairs]
    former = {
        one.run.id: [
            past
            for past in case.pasts[one.run.job_id].good_before(one.run.last_moment)[: _LOOKED_BACK + 1]
            if past.id != one.run.id
        ][:_LOOKED_BACK]
        for one in runs
    }
    versions = _versions_read(case, [one.run.id for one in runs])
    # Few name versions: what was before is asked for where one is named now.
    versions |= _versions_read(case, [past.id for run in versions for past in former[run]])
    for one in runs:
        if not former[one.run.id]:
            continue
        for dataset, named in versions.get(one.run.id, {}).items():
            seen = [versions.get(past.id, {}).get(dataset) for past in former[one.run.id]]
            repeated = _repeated(seen, named)
            # Who runs more often than what it reads is renewed reads the same again and again.
            if repeated and _differ(seen[repeated:]):
                sentence = f"it read version {named[:40]} of its input, as its last run did"
                began = former[one.run.id][repeated - 2] if repeated > 1 else None
                one.unchanged.append(Unchanged(sentence, is_certain=True, first=began))
        past = case.pasts[one.run.job_id]
        for version in case.bad.written[one.run.id]:
            samples = past.rows_before(version.dataset, one.run.last_moment)
            if version.row_count is None or samples.amounts(1) != [version.row_count]:
                continue
            counts = samples.amounts()
            repeated = _repeated(counts, version.row_count)
            if version.row_count and _is_alive(counts[repeated : repeated + _ALIVE]):
                sentence = f"it wrote {version.row_count:,} rows, exactly as many as its last run"
                at = samples.ats[repeated - 2] if repeated > 1 else None
                began = next((run for run in past.good if run.ended_at == at), None)
                one.unchanged.append(Unchanged(sentence, is_certain=False, first=began))


def _versions_read(case: Case, runs: Sequence[Id]) -> dict[Id, dict[Id, str]]:
    """Of the runs that name any."""
    found: defaultdict[Id, dict[Id, str]] = defaultdict(dict)
    for run, dataset, named in case.history.rows(_VERSIONS_READ, list(dict.fromkeys(runs))) if runs else ():
        found[run][dataset] = named
    return dict(found)


def _repeated(seen: Sequence[object], now: object) -> int:
    """How many of the last ones were the same as now."""
    return next((number for number, one in enumerate(seen) if one != now), len(seen))


def _differ(seen: Sequence[object]) -> bool:
    """Whether from one to the next it usually was another."""
    same = [one == other for one, other in pairwise(seen)]
    return bool(seen) and 3 * sum(same) <= len(same)


def _is_alive(counts: Sequence[int]) -> bool:
    """Whether equal counts would be a strange chance: they differ from run to run, and by many rows."""
    if len(counts) < _ALIVE:
        return False
    return median(abs(one - other) for one, other in pairwise(counts)) >= _MANY_ROWS


_VERSIONS_READ: Final = """
SELECT job_run_id, dataset_id, dataset_version FROM {s}.lineage_edges
WHERE job_run_id = ANY (%s::uuid[]) AND edge_type = 'input' AND dataset_version IS NOT NULL
"""
