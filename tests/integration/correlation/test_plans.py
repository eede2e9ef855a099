"""No question reads a large table from end to end: what it costs follows the answer, not the history."""

import random
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from benchmarks.catalogue import questions
from benchmarks.lineage import BEGAN, Layers, fill

from correlator.correlation.case import Failure
from correlator.correlation.causes import explain
from correlator.correlation.history import History, Version
from correlator.correlation.lineage import Direction, Graph, graph
from correlator.correlation.missing_runs import missing_runs
from correlator.correlation.questions import Question
from correlator.correlation.starts import find_start
from correlator.correlation.walk import Limits
from tests.integration.correlation.scans import looked_up, read_whole

SHAPE = Layers("plans", 5, 400, 5)
"""2,000 jobs, 10,000 runs, 30,000 edges."""
_OF_RUNS = ("job_runs", "lineage_edges", "run_column_mappings", "data_tests")
LARGE = (*_OF_RUNS, "jobs", "datasets", "dataset_jobs", "standing_lineage", "last_runs")


@pytest.fixture(scope="module")
def filled(shared: psycopg.Connection) -> Iterator[psycopg.Connection]:
    fill(shared, SHAPE)
    shared.execute("VACUUM ANALYZE")
    yield shared
    shared.execute("TRUNCATE facts.jobs, facts.job_runs, facts.datasets, facts.dataset_jobs CASCADE")
    shared.execute("TRUNCATE facts.standing_lineage, facts.last_runs, facts.producer_jobs")


@pytest.mark.parametrize(
    "name",
    [
        "a page of jobs",
        "a page of jobs, by words",
        "a page of datasets",
        "a job",
        "a run",
        "a dataset",
        "search: one table",
        "lineage, one step both ways",
        "all producers",
    ],
)
def test_a_question_finds_its_rows_by_indexes(filled: psycopg.Connection, name: str) -> None:
    ask = questions(filled, SHAPE, random.Random(3))[name]
    # Also when the plan is no longer made for these very values.
    for _ in range(7):
        read = read_whole(filled, LARGE, ask)
        # An empty table has nothing to be looked up.
        assert [table for table in read if table not in ("run_column_mappings", "data_tests")] == []


@pytest.mark.parametrize(("urn", "direction"), [(SHAPE.source, "down"), (SHAPE.report, "up")])
def test_a_whole_closure_is_found_by_indexes_and_without_the_runs(
    filled: psycopg.Connection, urn: str, direction: Direction
) -> None:
    def ask() -> Graph:
        return graph(filled, find_start(filled, f"dataset:{urn}"), direction=direction, depth=100)

    for _ in range(7):
        assert read_whole(filled, LARGE, ask) == []
        assert looked_up(filled, ("standing_lineage", "dataset_jobs", "datasets", "job_runs"), ask) == [
            "standing_lineage",
            "dataset_jobs",
            "datasets",
        ]
    assert len(ask().nodes) == 2 * len(list(SHAPE.jobs())) + 1


def test_a_closure_at_another_moment_is_found_by_indexes(filled: psycopg.Connection) -> None:
    start = find_start(filled, f"dataset:{SHAPE.source}")
    moment = BEGAN + timedelta(hours=3)

    for _ in range(7):
        assert read_whole(filled, LARGE, lambda: graph(filled, start, depth=100, as_of=moment)) == []


def test_a_cause_is_found_by_indexes(filled: psycopg.Connection) -> None:
    last = "SELECT dataset_id, job_run_id, used_at, dataset_id FROM lineage_edges WHERE edge_type = 'output'"
    history = History(filled)
    bad = Version(*history.rows(f"{last} ORDER BY used_at DESC LIMIT 1")[0])
    of_dataset = f"{last} AND dataset_id = %s AND used_at < %s ORDER BY used_at DESC LIMIT 1"
    good = Version(*history.rows(of_dataset, bad.dataset, bad.at)[0])
    failure = Failure(Question("volume", ""), bad.dataset, bad, good, bad.at)

    for _ in range(7):
        read = read_whole(filled, LARGE, lambda: explain(History(filled), failure, Limits(runs=100)))
        assert [table for table in read if table != "run_column_mappings"] == []
    assert len(explain(History(filled), failure).bad.distances) > 10


def test_missing_runs_cost_as_much_as_there_are_jobs(filled: psycopg.Connection) -> None:
    row = filled.execute("SELECT max(started_at) FROM job_runs").fetchone()
    assert row is not None

    assert "job_runs" not in read_whole(filled, LARGE, lambda: missing_runs(filled, row[0], limit=10))


def test_what_reads_everything_is_noticed(filled: psycopg.Connection) -> None:
    assert read_whole(filled, LARGE, lambda: filled.execute("SELECT count(*) FROM job_runs WHERE producer = 'x'")) == [
        "job_runs"
    ]
