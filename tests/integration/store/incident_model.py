"""What is derived of facts, worked out once more: in Python, from all of them, with the rulebook's own rules."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import psycopg

from correlator.rulebook import facts as f
from correlator.rulebook.facts import Facts, Row
from correlator.rulebook.formats import Instant
from correlator.rulebook.identity import Id
from correlator.rulebook.results import DataTest, Outcome, Result, observes, standing_results
from correlator.rulebook.runs import end_write, run_view
from correlator.rulebook.statements import DatasetRef
from correlator.store.fact_rows import InstantLoader
from correlator.store.incidents import derive_all

_GAP = 10 * 60 * 1_000_000


class Streak(NamedTuple):
    subject: Id
    dataset: Id | None
    run: Id
    opened_at: Instant
    last_failed_at: Instant
    resolved_at: Instant | None
    failures: int


class Answer(NamedTuple):
    """What one run says of a test, or of its job."""

    at: Instant
    run: Id
    status: str
    dataset: Id | None


def check_what_is_derived_of_runs(connection: psycopg.Connection, facts: Facts) -> None:
    cursor = connection.cursor(binary=True)
    cursor.adapters.register_loader("timestamptz", InstantLoader)

    rows = cursor.execute("SELECT job_run_id, dataset_id, edge_type, used_at FROM lineage_edges").fetchall()
    assert {(run.bytes, dataset.bytes, role): at for run, dataset, role, at in rows} == used(facts)

    tests = answers_of_tests(facts)
    rows = cursor.execute("SELECT test_id, job_run_id, dataset_id, event_time, status FROM standing_results").fetchall()
    assert sorted((test.bytes, at, run.bytes, status) for test, run, _, at, status in rows) == sorted(
        (test, answer.at, answer.run, answer.status) for test, answers in tests.items() for answer in answers
    )

    expected = {failure_id(s.subject, s.run): s for s in streaks(tests) + streaks(answers_of_jobs(facts))}
    assert incidents(cursor) == expected
    assert {incident for _, incident in failures(connection)} == set(expected)
    before = (incidents(cursor), failures(connection))
    derive_all(connection)
    assert (incidents(cursor), failures(connection)) == before
    check_what_is_kept_of_incidents(connection)


def check_what_is_kept_of_incidents(connection: psycopg.Connection) -> None:
    """What incidents are found by and counted by is what their facts say now."""
    found = connection.execute("""
        SELECT incident.id, run.job_namespace || '/' || run.job_name, run.run_id, dataset.canonical_dataset_id,
               said.test_name, said.column_name, said.message, run.error_message
        FROM incidents AS incident
        JOIN job_runs AS run ON run.id = incident.job_run_id
        LEFT JOIN datasets AS dataset ON dataset.id = incident.dataset_id
        LEFT JOIN standing_results AS said ON said.test_id = incident.test_id AND said.job_run_id = incident.job_run_id
    """)
    texts = {id_: "\x1f".join(part for part in parts if part is not None) for id_, *parts in found}
    assert dict(connection.execute("SELECT incident_id, said FROM incident_texts").fetchall()) == texts
    counted = connection.execute("""
        SELECT kind, severity, root_id IS NULL, count(*) FROM incidents WHERE resolved_at IS NOT NULL GROUP BY 1, 2, 3
    """).fetchall()
    kept = connection.execute("SELECT kind, severity, is_root, incidents FROM incident_totals").fetchall()
    assert sorted(kept) == sorted(counted)


def incidents(cursor: psycopg.Cursor) -> dict[bytes, Streak]:
    rows = cursor.execute(
        "SELECT id, coalesce(test_id, job_id), dataset_id, job_run_id, opened_at, last_failed_at, resolved_at, "
        "failures FROM incidents"
    ).fetchall()
    return {
        id_.bytes: Streak(subject.bytes, None if dataset is None else dataset.bytes, run.bytes, *rest)
        for id_, subject, dataset, run, *rest in rows
    }


def failures(connection: psycopg.Connection) -> set[tuple[bytes, bytes]]:
    rows = connection.execute("SELECT id, incident_id FROM failures").fetchall()
    return {(id_.bytes, incident.bytes) for id_, incident in rows}


def failure_id(subject: Id, run: Id) -> bytes:
    return sha256(subject + run).digest()[:16]


def used(facts: Facts) -> dict[tuple[Id, Id, str], Instant | None]:
    """When each run read and wrote."""
    found: dict[tuple[Id, Id, str], Instant | None] = {}
    for (run, dataset, role), edge in facts.rows(f.LINEAGE_EDGES).items():
        row = facts.rows(f.JOB_RUNS)[run,]
        if role == "input":
            found[run, dataset, role] = run_view(row).started_at
        else:
            said = edge.get("statistics")
            write = end_write(run, row, rows_written=None if said is None else said[3], version=None)
            found[run, dataset, role] = write.at if write is not None and write.is_a_version else None
    return found


def answers_of_tests(facts: Facts) -> dict[Id, list[Answer]]:
    stored: defaultdict[Id, list[Outcome]] = defaultdict(list)
    times: dict[tuple[Id, Id], Instant] = {}
    for (test_id, run), row in facts.rows(f.TEST_RESULTS).items():
        dataset, name, column, parameters = row["test"]
        at, _, _, status, severity, expected, actual, message, description, own = row["result"]
        test = DataTest(test_id, dataset or b"", name, column, parameters)
        result = Result(status, severity, expected, actual, message, description, own)
        stored[run].append(Outcome(test, result, DatasetRef(dataset, "", "", "") if dataset else None))
        times[run, test_id] = at
    found: defaultdict[Id, list[Answer]] = defaultdict(list)
    edges = _edges(facts)
    for (run,), row in facts.rows(f.JOB_RUNS).items():
        view = run_view(row)
        standing = standing_results(
            stored[run],
            inputs=[DatasetRef(dataset, "", "", "") for dataset in edges[run, "input"]],
            job_name=row["identity"][3],
            state=view.state,
            error_message=row["error"][3] or "" if "error" in row else "",
            is_observing=_observes(row, edges[run, "output"]),
        )
        # A result that was moved to a dataset has the time of the one it was.
        of_name = {(o.test.name, o.test.column, o.test.parameters): times[run, o.test.key] for o in stored[run]}
        seen: set[Id] = set()
        for outcome in standing:
            test = outcome.test
            at = times.get((run, test.key)) or of_name.get((test.name, test.column, test.parameters))
            at = at or view.ended_at or row["last_event"][0]
            assert test.key not in seen
            seen.add(test.key)
            found[test.key].append(Answer(at, run, outcome.result.status, test.dataset or None))
    return found


def answers_of_jobs(facts: Facts) -> dict[Id, list[Answer]]:
    found: defaultdict[Id, list[Answer]] = defaultdict(list)
    rows = {run: row for (run,), row in facts.rows(f.JOB_RUNS).items()}
    edges = _edges(facts)
    of_job: defaultdict[Id, dict[Id, Row]] = defaultdict(dict)
    for run, row in rows.items():
        of_job[row["identity"][1]][run] = row
    for run, row in rows.items():
        view = run_view(row)
        job = row["identity"][1]
        outputs = sorted(edges[run, "output"])
        if view.ended_at is None:
            continue
        if view.state == "COMPLETE":
            found[job].append(Answer(view.ended_at, run, "pass", None))
        elif (
            outputs
            and not _observes(row, outputs)
            and not any(_is_retry(row, run, other, key) for key, other in of_job[job].items())
            and not _is_restarted(row, of_job[job].values())
        ):
            found[job].append(Answer(view.ended_at, run, "fail", outputs[0]))
    return found


def _is_retry(row: Row, run: Id, other: Row, other_run: Id) -> bool:
    """Of two runs of one job."""
    parent = row["parent"][3] if "parent" in row else None
    return (
        parent is not None
        and "parent" in other
        and other["parent"][3] == parent
        and (run_view(other).started_at, other_run) > (run_view(row).started_at, run)
    )


def _is_restarted(row: Row, runs: Iterable[Row]) -> bool:
    view = run_view(row)
    kind = row["type"][3].upper() if row.get("type") and row["type"][3] else ""
    if view.state != "ABORT" or kind not in ("STREAMING", "SERVICE") or view.ended_at is None:
        return False
    views = [run_view(other) for other in runs if other is not row]
    ends = sorted((v.ended_at for v in views if v.ended_at is not None and v.ended_at < view.ended_at), reverse=True)
    gaps = sorted(min((v.started_at - end for v in views if v.started_at >= end), default=_GAP) for end in ends[:20])
    # In these histories no gap is longer than the least that is usual.
    assert all(gap <= _GAP for gap in gaps)
    return any(view.ended_at <= v.started_at <= view.ended_at + _GAP for v in views)


def _observes(row: Row, outputs: Collection[Id]) -> bool:
    said = row.get("type")
    return observes(
        (said[5] or "") if said else "",
        has_results="tested" in row and bool(row["tested"][0]),
        has_outputs=bool(outputs),
    )


def _edges(facts: Facts) -> defaultdict[tuple[Id, str], list[Id]]:
    """The datasets of each run and role."""
    found: defaultdict[tuple[Id, str], list[Id]] = defaultdict(list)
    for run, dataset, role in facts.rows(f.LINEAGE_EDGES):
        found[run, role].append(dataset)
    return found


def streaks(answers: Mapping[Id, Iterable[Answer]]) -> list[Streak]:
    found: list[Streak] = []
    for subject, said in answers.items():
        open_: list[Answer] = []
        for answer in sorted(said):
            if answer.status in ("fail", "warn"):
                open_.append(answer)
            elif answer.status == "pass" and open_:
                found.append(_streak(subject, open_, answer.at))
                open_ = []
        if open_:
            found.append(_streak(subject, open_, None))
    return found


def _streak(subject: Id, failing: list[Answer], ended: Any) -> Streak:
    first = failing[0]
    return Streak(subject, first.dataset, first.run, first.at, failing[-1].at, ended, len(failing))
