"""Questions about incidents find their rows by indexes, however many runs and incidents there are."""

import random
from collections.abc import Callable, Iterator

import psycopg
import pytest
from benchmarks.incidents import DETAIL, Size, fill, questions, urn

from correlator.correlation.incident_detail import incident_detail
from correlator.correlation.incident_list import Filters, incident_counts, incident_list, unresolved_counts
from tests.integration.correlation.scans import rows_read

SIZE = Size(3, 20)
"""300 jobs, 6,000 runs and as many incidents."""
LARGE = ("incidents", "incident_texts", "failures", "job_runs", "lineage_edges", "test_results")
"""What grows with history; a hundred jobs are read faster than looked up."""

# As if every result had been red and every next one green, beside those that the benchmark has.
_INCIDENTS = """
INSERT INTO incidents (id, test_id, dataset_id, job_run_id, opened_at, last_failed_at, resolved_at, kind, resolved_by)
SELECT md5(job_run_id::text)::uuid, test_id, dataset_id, job_run_id, event_time, event_time,
       event_time + interval '1 hour', 'test', 'pass'
FROM test_results
"""
_TEXTS = """
INSERT INTO incident_texts (incident_id, said)
SELECT id, text_of_incident(test_id, job_run_id, dataset_id) FROM incidents
ON CONFLICT DO NOTHING
"""
_FAILURES = """
INSERT INTO failures (id, incident_id, subject_id, job_run_id, at)
SELECT incident.id, incident.id, incident.test_id, incident.job_run_id, incident.opened_at FROM incidents AS incident
WHERE NOT EXISTS (SELECT FROM failures AS failure WHERE failure.incident_id = incident.id)
"""


@pytest.fixture(scope="module")
def filled(shared: psycopg.Connection) -> Iterator[psycopg.Connection]:
    fill(shared, SIZE)
    for statement in (_INCIDENTS, _TEXTS, _FAILURES, "VACUUM ANALYZE"):
        shared.execute(statement)
    yield shared
    shared.execute("TRUNCATE facts.jobs, facts.job_runs, facts.datasets, facts.dataset_jobs, facts.data_tests CASCADE")


def asking(connection: psycopg.Connection, name: str) -> Callable[[], object]:
    ids = [id_ for (id_,) in connection.execute("SELECT id FROM incidents ORDER BY id LIMIT 200")]
    return questions(connection, SIZE, ids, random.Random(3))[name]


MOST = {
    DETAIL: {"incidents": 150, "failures": 80, "job_runs": 1_200, "lineage_edges": 2_400, "test_results": 100},
    "incidents, the newest": {
        "incidents": 400,
        "failures": 100,
        "job_runs": 300,
        "lineage_edges": 300,
        "test_results": 200,
    },
    "incidents, open": dict.fromkeys(LARGE, 100),
    "incidents of a dataset": dict.fromkeys(LARGE, 100),
    "incidents by a part of a name": dict.fromkeys(LARGE, 100) | {"incidents": 1_000, "incident_texts": 2_000},
    "incidents that nobody has": {},
    "how many incidents": {"incidents": 20},
}
"""Rows of each table that a question may look at; of those that are not named, none."""


def read_beyond(connection: psycopg.Connection, name: str, times: int) -> dict[str, int]:
    """Tables of which a question has looked at more than it may, and at how much."""
    ask = asking(connection, name)
    found: dict[str, int] = {}
    # Also when the plan is no longer made for these very values.
    for _ in range(times):
        read = rows_read(connection, LARGE, ask)
        found |= {table: rows for table, rows in read.items() if rows > MOST[name].get(table, 0)}
    return found


@pytest.mark.parametrize("name", MOST)
def test_a_question_about_incidents_looks_at_little_however_many_there_are(
    filled: psycopg.Connection, name: str
) -> None:
    assert read_beyond(filled, name, 12) == {}


@pytest.mark.parametrize(
    ("index", "table", "name"),
    [
        ("incidents_by_time", "incidents", "incidents, the newest"),
        ("incidents_open", "incidents", "incidents, open"),
        ("incidents_open", "incidents", "how many incidents"),
        ("incidents_of_dataset", "incidents", "incidents of a dataset"),
        ("incidents_of_dataset", "incidents", DETAIL),
        ("incidents_of_test", "incidents", DETAIL),
        ("incidents_of_root", "incidents", DETAIL),
        ("incident_texts_by_pieces", "incident_texts", "incidents that nobody has"),
        ("incident_texts_by_pieces", "incident_texts", "incidents by a part of a name"),
        ("failures_of_incident", "failures", DETAIL),
        ("job_runs_ended", "job_runs", DETAIL),
        ("lineage_edges_of_dataset", "lineage_edges", DETAIL),
        ("test_results_of_test", "test_results", "incidents, the newest"),
    ],
)
def test_it_is_this_index_that_spares_it_the_rest(
    filled: psycopg.Connection, index: str, table: str, name: str
) -> None:
    with filled.transaction(force_rollback=True):
        filled.execute(f"DROP INDEX facts.{index}".encode())

        assert table in read_beyond(filled, name, 3 if name == DETAIL else 1)


def test_the_incidents_asked_for_have_causes(filled: psycopg.Connection) -> None:
    ids = [id_ for (id_,) in filled.execute("SELECT id FROM incidents ORDER BY id LIMIT 20")]

    assert any(incident_detail(filled, id_).candidates for id_ in ids)


def test_lists_find_something_and_nothing(filled: psycopg.Connection) -> None:
    assert len(incident_list(filled, Filters(text="table_3"))) == 50
    assert incident_list(filled, Filters(text="no such name")) == []


def test_how_many_are_wrong_now_is_told_without_those_that_are_over(filled: psycopg.Connection) -> None:
    assert sum(one.incidents for one in unresolved_counts(filled)) > 0

    for _ in range(7):
        assert rows_read(filled, LARGE, lambda: unresolved_counts(filled))["incidents"] < 20


def test_counts_of_one_dataset_are_told_without_those_of_others(filled: psycopg.Connection) -> None:
    filters = Filters(dataset=urn(1, 5, 5))
    assert incident_counts(filled, filters).total >= SIZE.runs

    for _ in range(7):
        assert rows_read(filled, LARGE, lambda: incident_counts(filled, filters))["incidents"] < 5 * SIZE.runs


def test_all_counts_are_those_of_the_incidents_there_are(filled: psycopg.Connection) -> None:
    ((number,),) = filled.execute("SELECT count(*) FROM incidents").fetchall()

    assert incident_counts(filled, Filters()).total == number
