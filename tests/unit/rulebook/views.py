"""Reading folded facts in tests, by the names that events used."""

from typing import Any

from correlator.rulebook import facts as f
from correlator.rulebook import identity, statements
from correlator.rulebook.facts import Facts, Row
from correlator.rulebook.formats import rfc3339
from correlator.rulebook.runs import RunView, run_view
from tests.unit.rulebook.histories import DB, RUN


def run_row(facts: Facts, run: str = RUN, job: str = "etl.orders", namespace: str = "airflow") -> Row:
    return facts.rows(f.JOB_RUNS)[identity.job_run_key(namespace, job, run),]


def the_run(facts: Facts, run: str = RUN, job: str = "etl.orders", namespace: str = "airflow") -> RunView:
    return run_view(run_row(facts, run, job, namespace))


def dataset_row(facts: Facts, name: str, namespace: str = DB) -> Row:
    return facts.rows(f.DATASETS)[statements.dataset_ref(namespace, name).key,]


def job_row(facts: Facts, name: str = "etl.orders", namespace: str = "airflow") -> Row:
    return facts.rows(f.JOBS)[identity.job_key(namespace, name),]


def said(table: f.Table, row: Row, group: str) -> Any:
    """The columns of a group without its order key."""
    declared = next(g for g in table.groups if g.name == group)
    value = row.get(group)
    if value is None:
        return None
    ordered = tuple(column.name for column in declared.columns[:3]) == ("event_time", "rank", "digest")
    if declared.shape is f.Shape.MAP:
        return {name: columns[-1] for name, columns in value.items()}
    payload = value[3:] if ordered else value
    return payload[0] if len(payload) == 1 else payload


def edges(facts: Facts) -> set[tuple[str, str]]:
    """Inputs and outputs of all runs, as (edge type, URN)."""
    urns = {key[0]: row["identity"][0] for key, row in facts.rows(f.DATASETS).items()}
    return {(role, urns[dataset]) for _, dataset, role in facts.rows(f.LINEAGE_EDGES)}


def column_arrows(facts: Facts) -> set[str]:
    urns = {key[0]: row["identity"][0] for key, row in facts.rows(f.DATASETS).items()}
    return {
        f"{urns.get(source, source_kind)}.{source_field} -> {urns.get(target, target_kind)}.{target_field}"
        for _, target_kind, target, target_field, source_kind, source, source_field, *_ in facts.rows(f.COLUMN_EDGES)
    }


def results(facts: Facts) -> list[tuple[str, str, str]]:
    """Every stored result as (test, column, status)."""
    return sorted((row["test"][1], row["test"][2], row["result"][3]) for row in facts.rows(f.TEST_RESULTS).values())


def history(facts: Facts, facet_key: str) -> list[tuple[str, bytes]]:
    """The digests of a facet by when each was said first, for tests with one entity."""
    return sorted(
        (rfc3339(row["first"][0]), digest)
        for (_, _, key, *_, digest), row in facts.rows(f.FACET_HISTORY).items()
        if key == facet_key
    )
