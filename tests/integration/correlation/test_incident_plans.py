"""Questions about incidents find their rows by indexes, however many runs and incidents there are."""

import random
from collections.abc import Iterator

import psycopg
import pytest
from benchmarks.incidents import DETAIL, Size, fill, questions, urn

from correlator.correlation.incident_detail import incident_detail
from correlator.correlation.incident_list import Filters, incident_counts, incident_list, unresolved_counts
from tests.integration.correlation.scans import read_whole

SIZE = Size(3, 20)
"""300 jobs, 6,000 runs and as many incidents."""
LARGE = ("incidents", "failures", "job_runs", "lineage_edges", "test_results")
"""What grows with history; a hundred jobs are read faster than looked up."""

# As if every result had been red and every next one green, beside those that the benchmark has.
_INCIDENTS = """
INSERT INTO incidents (id, test_id, dataset_id, job_run_id, opened_at, last_failed_at, resolved_at, kind, resolved_by)
SELECT md5(job_run_id::text)::uuid, test_id, dataset_id, job_run_id, event_time, event_time,
       event_time + interval '1 hour', 'test', 'pass'
FROM test_results
"""
_FAILURES = """
INSERT INTO failures (id, incident_id, subject_id, job_run_id, at)
SELECT incident.id, incident.id, incident.test_id, incident.job_run_id, incident.opened_at FROM incidents AS incident
WHERE NOT EXISTS (SELECT FROM failures AS failure WHERE failure.incident_id = incident.id)
"""


@pytest.fixture(scope="module")
def filled(shared: psycopg.Connection) -> Iterator[psycopg.Connection]:
    fill(shared, SIZE)
    for statement in (_INCIDENTS, _FAILURES, "VACUUM ANALYZE"):
        shared.execute(statement)
    yield shared
    shared.execute("TRUNCATE facts.jobs, facts.job_runs, facts.datasets, facts.dataset_jobs, facts.data_tests CASCADE")


@pytest.mark.parametrize(
    "name",
    [
        "incidents, the newest",
        "incidents, open",
        "incidents of a dataset",
        "incidents by a part of a name",
    ],
)
def test_a_list_of_incidents_finds_its_rows_by_indexes(filled: psycopg.Connection, name: str) -> None:
    ask = questions(filled, SIZE, [], random.Random(3))[name]
    # Also when the plan is no longer made for these very values.
    for _ in range(7):
        assert read_whole(filled, LARGE, ask) == []


def test_an_incident_with_cause_and_impact_is_found_by_indexes(filled: psycopg.Connection) -> None:
    ids = [id_ for (id_,) in filled.execute("SELECT id FROM incidents ORDER BY id LIMIT 200")]
    ask = questions(filled, SIZE, ids, random.Random(3))[DETAIL]

    for _ in range(12):
        assert read_whole(filled, LARGE, ask) == []
    assert any(incident_detail(filled, id_).candidates for id_ in ids[:20])


def test_how_many_are_wrong_now_is_told_without_those_that_are_over(filled: psycopg.Connection) -> None:
    assert sum(one.incidents for one in unresolved_counts(filled)) > 0

    for _ in range(7):
        assert read_whole(filled, LARGE, lambda: unresolved_counts(filled)) == []


def test_counts_of_one_dataset_are_told_without_those_of_others(filled: psycopg.Connection) -> None:
    filters = Filters(dataset=urn(1, 5, 5))
    assert incident_counts(filled, filters).total >= SIZE.runs

    for _ in range(7):
        assert read_whole(filled, LARGE, lambda: incident_counts(filled, filters)) == []


def test_all_counts_read_nothing_but_incidents(filled: psycopg.Connection) -> None:
    read = read_whole(filled, LARGE, lambda: incident_counts(filled, Filters()))

    assert set(read) <= {"incidents"}


def test_a_word_that_nobody_has_is_looked_for_by_probes(filled: psycopg.Connection) -> None:
    filters = Filters(text="no such name")
    assert incident_list(filled, filters) == []

    read = read_whole(filled, LARGE, lambda: incident_list(filled, filters))

    # There is no index over parts of words: every incident is looked at, and what belongs to it.
    assert set(read) <= {"incidents"}
