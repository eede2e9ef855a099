"""The fact tables once more: bare while they are filled, then with all that the others have."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from correlator.rulebook import facts as f
from correlator.rulebook.fold import fold
from correlator.store.database import Database
from correlator.store.fact_rows import read_facts
from correlator.store.merge import merge
from correlator.store.next_facts import NEXT, NextFacts
from correlator.store.staging import begin, prepare, stage
from tests.integration.store.merging import SOURCE
from tests.unit.rulebook.histories import dataset, run_event

Connection = psycopg.Connection[Any]

_DEFINITIONS = """
SELECT pg_get_indexdef(indexrelid), NULL FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE relnamespace = %(schema)s::regnamespace
UNION ALL
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = %(schema)s::regnamespace
UNION ALL
SELECT relname, (SELECT string_agg(option, ' ' ORDER BY option) FROM unnest(reloptions) AS option) FROM pg_class
WHERE relnamespace = %(schema)s::regnamespace AND relkind = 'r' AND reloptions IS NOT NULL
"""


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    with database.connect("test", autocommit=True) as connection:
        prepare(connection, SOURCE)
        yield connection


def definitions(connection: Connection, schema: str) -> set[tuple[str, str]]:
    rows = connection.execute(_DEFINITIONS, {"schema": schema}).fetchall()
    return {(name.replace(f"{schema}.", ""), (said or "").replace(f"{schema}.", "")) for name, said in rows}


def test_they_have_the_keys_and_indexes_of_the_others_in_the_end(connection: Connection) -> None:
    following = NextFacts(connection)

    following.make()
    bare = definitions(connection, NEXT)
    following.dress()

    assert definitions(connection, NEXT) == definitions(connection, "facts")
    assert len(bare) < len(definitions(connection, NEXT))


def test_what_came_in_no_order_lies_close_in_the_end(connection: Connection) -> None:
    """Keys of runs are hashes, and pages of their index are split as they come."""
    following = NextFacts(connection)
    following.make()
    facts = fold([run_event("COMPLETE", 1, run=f"run {number}", outputs=[dataset("t")]) for number in range(3_000)])
    rows = [row for row in facts if row[0] in (f.JOBS, f.DATASETS)]
    for share in range(10):
        attempt = begin(connection, SOURCE)
        of_share = [row for row in facts if row[0] in (f.JOB_RUNS, f.LINEAGE_EDGES) and row[1][0][0] % 10 == share]
        stage(connection, attempt, rows + of_share)
        merge(connection, attempt, None, NEXT, derives=False)

    def size(index: str) -> int:
        (found,) = connection.execute("SELECT pg_relation_size(%s::regclass)", [f"{NEXT}.{index}"]).fetchall()
        return int(found[0])

    before, empty = size("lineage_edges_pkey"), size("lineage_edges_of_version")
    following.dress()

    assert size("lineage_edges_pkey") < 0.9 * before
    # No edge has a version, of which this one is.
    assert size("lineage_edges_of_version") == empty
    assert len(read_facts(connection, NEXT).rows(f.JOB_RUNS)) == 3_000


@pytest.mark.parametrize(("table", "whose"), [("job_runs", "job_id"), ("lineage_edges", "dataset_id")])
def test_what_is_asked_for_together_lies_together_in_the_end(connection: Connection, table: str, whose: str) -> None:
    """Of many jobs each run comes hours after the one before; a question asks for several of them."""
    following = NextFacts(connection)
    following.make()
    for hour in range(12):
        attempt = begin(connection, SOURCE)
        events = [
            run_event("COMPLETE", 60 * hour, run=f"{job} {hour}", job=f"job {job}", outputs=[dataset(f"t {job}")])
            for job in range(60)
        ]
        stage(connection, attempt, fold(events))
        merge(connection, attempt, None, NEXT, derives=False)

    def strewn() -> int:
        """How often the next row is another's."""
        query = f"SELECT {whose} FROM {NEXT}.{table} ORDER BY ctid"  # noqa: S608
        owners = [owner for (owner,) in connection.execute(query.encode())]
        return sum(one != other for one, other in pairwise(owners))

    before = strewn()
    following.dress()

    assert before > 600
    assert strewn() == 59
    # Made anew with the rows, and in whose order is nobody's business later.
    assert definitions(connection, NEXT) == definitions(connection, "facts")
    assert connection.execute("SELECT FROM pg_index WHERE indisclustered").fetchall() == []
