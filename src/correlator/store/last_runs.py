"""What stands of each job: the lineage of its last run that completed, and how its last run is.

Both follow from the facts alone, and are kept by the merge for the jobs of a batch, so that a question about thousands
of jobs reads a row of each and none of their histories. A run stands from the moment it completed; a stream, which need
not ever end, from the moment it began, as soon as it was said to be RUNNING.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import psycopg

from correlator.store.fact_rows import LAST_OF_JOBS
from correlator.store.staging import PARTS, Attempt, staged_table, staged_touched

_IS_STREAM = "upper({run}.processing_type) IN ('STREAMING', 'SERVICE')"
_WAS_RUNNING = """{run}.state_history @> '[{{"state": "RUNNING"}}]'"""


def lineage_of_run(schema: str, until: str = "'infinity'") -> str:
    """What `run` has read and written up to a moment, as `standing_lineage` has it, in SQL: one index range."""
    return f"""
        SELECT coalesce(inputs, '{{}}') AS inputs, coalesce(outputs, '{{}}') AS outputs,
               CASE WHEN run.states_lineage OR NOT are_plain THEN origins END AS origins,
               CASE WHEN run.states_lineage OR NOT are_plain THEN told_by END AS told_by,
               upper(run.job_type) IS NOT DISTINCT FROM 'TEST' OR (run.has_results AND outputs IS NULL) AS observes
        FROM (
            SELECT array_agg(dataset_id ORDER BY dataset_id) FILTER (WHERE edge_type = 'input') AS inputs,
                   array_agg(dataset_id ORDER BY dataset_id) FILTER (WHERE edge_type = 'output') AS outputs,
                   array_agg(origin ORDER BY dataset_id) FILTER (WHERE edge_type = 'input') AS origins,
                   array_agg(sources_told_by ORDER BY dataset_id) FILTER (WHERE edge_type = 'output') AS told_by,
                   bool_and(sources_told_by IS NULL AND origin <> 3) AS are_plain
            FROM {schema}.lineage_edges WHERE job_run_id = run.id AND first_event_at <= {until}
        ) AS edge
    """  # noqa: S608 (names of our own)


def note_last_runs(connection: psycopg.Connection[Any], attempt: Attempt, schema: str) -> None:
    """Of the jobs of a batch, after all of it was merged."""
    of_attempt = {"first": attempt.number, "last": attempt.number + PARTS - 1}
    with connection.pipeline():
        for statement in _touched(attempt.slot, schema):
            connection.execute(statement, of_attempt, prepare=True)


def note_all_last_runs(connection: psycopg.Connection[Any], schema: str = "facts") -> None:
    """Of every job, anew."""
    jobs = f"SELECT DISTINCT job_id FROM {schema}.job_runs"  # noqa: S608
    standing = f"""
        SELECT job.job_id, last.id, last.at
        FROM ({jobs}) AS job LEFT JOIN LATERAL (
            SELECT id, at FROM (({_last_completed(schema)}) UNION ALL ({_last_stream(schema)})) AS each
            ORDER BY at DESC, id DESC LIMIT 1
        ) AS last ON true
    """  # noqa: S608
    connection.execute(_keep_lineage(schema, standing).encode())
    connection.execute(_keep_last_runs(schema, jobs).encode())


@lru_cache(maxsize=64)
def _touched(slot: str, schema: str) -> tuple[bytes, ...]:
    staged = f"FROM {staged_table(slot, LAST_OF_JOBS)} AS said WHERE said.attempt BETWEEN %(first)s AND %(last)s"
    jobs = f"SELECT DISTINCT said.job_id {staged}"
    # Of the runs that stood before, those of which the batch says something.
    touched = f"""
        SELECT before.id FROM {staged_touched(slot)} AS before
        WHERE before.attempt BETWEEN %(first)s AND %(last)s AND before.kind = 'r'
    """  # noqa: S608
    # For each job three probes: of its runs in the batch the one that ended last, and the one that stood so far. The
    # others are looked at only where one of these two turns out to have failed, or to have ended earlier: else none of
    # them can have come before it.
    is_other = (
        "(job.said_at IS NOT NULL AND job.new_at IS DISTINCT FROM job.said_at"
        " OR job.stood_at IS NOT NULL AND (job.still_at IS NULL OR job.still_at < job.stood_at))"
    )
    # OFFSET 0: the order of the joins is ours. Of tables that have just been filled the planner may believe anything.
    standing = f"""
        WITH job AS MATERIALIZED (
            SELECT told.job_id, told.said_at, new.id AS new_id, new.at AS new_at,
                   stood.job_run_id AS stood_id, stood.at AS stood_at, still.at AS still_at,
                   told.job_id IN (SELECT said.job_id {staged} AND said.may_be_stream) AS may_be_stream
            FROM (
                SELECT DISTINCT ON (said.job_id) said.job_id, said.job_run_id, said.complete_at AS said_at {staged}
                ORDER BY said.job_id, said.complete_at DESC NULLS LAST, said.job_run_id DESC
            ) AS told
            CROSS JOIN LATERAL ({_run(schema, "told.job_run_id")}) AS new
            LEFT JOIN LATERAL (
                SELECT job_run_id, at FROM {schema}.standing_lineage WHERE job_id = told.job_id OFFSET 0
            ) AS stood ON true
            LEFT JOIN LATERAL ({_run(schema, "stood.job_run_id")}) AS still ON true
        ), best AS MATERIALIZED (
            SELECT DISTINCT ON (job_id) job_id, id, at, stood_id
            FROM (
                SELECT job_id, new_id AS id, new_at AS at, stood_id FROM job
                UNION ALL
                SELECT job_id, stood_id, still_at, stood_id FROM job
                UNION ALL
                SELECT job.job_id, last.id, last.at, job.stood_id
                FROM job CROSS JOIN LATERAL ({_last_completed(schema)}) AS last WHERE {is_other}
                UNION ALL
                SELECT job.job_id, last.id, last.at, job.stood_id
                FROM job CROSS JOIN LATERAL ({_last_stream(schema)}) AS last WHERE job.may_be_stream OR {is_other}
            ) AS candidate
            ORDER BY job_id, at DESC NULLS LAST, id DESC
        )
        SELECT job_id, id, at FROM best
        WHERE at IS NULL OR id IS DISTINCT FROM stood_id OR id IN ({touched})
    """  # noqa: S608
    return _keep_lineage(schema, standing).encode(), _keep_last_runs(schema, jobs).encode()


def _run(schema: str, id_: str) -> str:
    """A run, and since when it stands."""
    is_stream, was_running = (text.format(run="run") for text in (_IS_STREAM, _WAS_RUNNING))
    return f"""
        SELECT run.id, greatest(
            CASE WHEN run.current_state = 'COMPLETE' THEN run.ended_at END,
            CASE WHEN {is_stream} AND {was_running} THEN run.started_at END
        ) AS at
        FROM {schema}.job_runs AS run WHERE run.id = {id_} OFFSET 0
    """  # noqa: S608


def _last_completed(schema: str) -> str:
    return f"""
        SELECT run.id, run.ended_at AS at FROM {schema}.job_runs AS run
        WHERE run.job_id = job.job_id AND run.ended_at IS NOT NULL AND run.current_state = 'COMPLETE'
        ORDER BY run.ended_at DESC, run.id DESC LIMIT 1
    """  # noqa: S608


def _last_stream(schema: str) -> str:
    is_stream, was_running = (text.format(run="run") for text in (_IS_STREAM, _WAS_RUNNING))
    return f"""
        SELECT run.id, run.started_at AS at FROM {schema}.job_runs AS run
        WHERE run.job_id = job.job_id AND {is_stream} AND {was_running}
        ORDER BY run.started_at DESC, run.id DESC LIMIT 1
    """  # noqa: S608


def _keep_lineage(schema: str, standing: str) -> str:
    """Of runs that stand, by job: what each has read and written. A job of which none stands has no moment."""
    changing = ("job_run_id", "at", "states_lineage", "observes", "run_id", "inputs", "outputs", "origins", "told_by")
    columns = ("job_id", "job_namespace", "job_name", *changing)
    known, said = (_of(row, changing) for row in ("known", "said"))
    return f"""
        MERGE INTO {schema}.standing_lineage AS known
        USING (
            SELECT standing.job_id, run.id AS job_run_id, standing.at, run.states_lineage, edge.observes,
                   run.job_namespace, run.job_name, run.run_id, edge.inputs, edge.outputs, edge.origins, edge.told_by
            FROM ({standing}) AS standing
            LEFT JOIN {schema}.job_runs AS run ON run.id = standing.id AND standing.at IS NOT NULL
            CROSS JOIN LATERAL ({lineage_of_run(schema)}) AS edge
        ) AS said ON known.job_id = said.job_id
        WHEN MATCHED AND said.job_run_id IS NULL THEN DELETE
        WHEN MATCHED AND ({known}) IS DISTINCT FROM ({said}) THEN UPDATE SET ({", ".join(changing)}) = ROW ({said})
        WHEN NOT MATCHED AND said.job_run_id IS NOT NULL THEN
            INSERT ({", ".join(columns)}) VALUES ({_of("said", columns)})
    """  # noqa: S608


def _keep_last_runs(schema: str, jobs: str) -> str:
    """Of each job the end of an index range; and what that changes in the figures of who told of it, before and now."""
    is_open = (
        "run.ended_at IS NULL AND run.current_state IN ('START', 'RUNNING') "
        f"AND ({_IS_STREAM.format(run='run')}) IS NOT TRUE"
    )
    of_job = f"FROM {schema}.job_runs AS run WHERE run.job_id = job.job_id ORDER BY run.started_at DESC, run.id DESC"
    of_run = ("event_time", "has_start", "is_open", "left_open", "current_state", "producer", "integration")
    changing = ("job_run_id", *of_run)
    columns = ("job_id", "job_namespace", "job_name", *changing)
    fails = "{0}.current_state IN ('FAIL', 'ABORT')"
    counted = f"{{0}}.producer, {{0}}.integration, {fails}, {{0}}.has_start, {{0}}.left_open"
    now, before = (counted.format(row) for row in ("last", "known"))
    return f"""
        WITH last AS MATERIALIZED (
            SELECT job.job_id, newest.*, coalesce(former.is_open, false) AS left_open
            FROM ({jobs}) AS job
            CROSS JOIN LATERAL (
                SELECT run.id AS job_run_id, run.event_time, run.first_start_at IS NOT NULL AS has_start,
                       {is_open} AS is_open, run.current_state, run.job_namespace, run.job_name, run.producer,
                       run.integration
                {of_job} LIMIT 1
            ) AS newest
            LEFT JOIN LATERAL (SELECT {is_open} AS is_open {of_job} LIMIT 1 OFFSET 1) AS former ON true
        ), changed AS MATERIALIZED (
            SELECT last.*, known.job_id IS NULL OR ({now}) IS DISTINCT FROM ({before}) AS counts
            FROM last LEFT JOIN {schema}.last_runs AS known ON known.job_id = last.job_id
            WHERE known.job_id IS NULL OR ({_of("known", changing)}) IS DISTINCT FROM ({_of("last", changing)})
        ), kept AS (
            INSERT INTO {schema}.last_runs ({", ".join(columns)})
            SELECT {", ".join(columns)} FROM changed ORDER BY job_id
            ON CONFLICT (job_id) DO UPDATE SET ({", ".join(changing)}) = ROW ({_of("excluded", changing)})
        ), counted (one, producer, integration, fails, has_start, left_open) AS (
            SELECT 1 AS one, {now} FROM changed AS last WHERE last.counts
            UNION ALL
            -- As they were before this statement.
            SELECT -1, {before} FROM changed CROSS JOIN LATERAL (
                SELECT * FROM {schema}.last_runs WHERE job_id = changed.job_id OFFSET 0
            ) AS known WHERE changed.counts
        )
        MERGE INTO {schema}.producer_jobs AS known
        USING (
            SELECT md5(producer || chr(31) || coalesce(integration, ''))::uuid AS id, producer, integration,
                   sum(one) AS jobs, sum(one * fails::integer) AS failing,
                   sum(one * (NOT has_start)::integer) AS without_start, sum(one * left_open::integer) AS left_open
            FROM counted GROUP BY producer, integration
        ) AS said ON known.id = said.id
        WHEN MATCHED AND known.jobs + said.jobs = 0 THEN DELETE
        WHEN MATCHED AND (said.jobs, said.failing, said.without_start, said.left_open) <> (0, 0, 0, 0) THEN UPDATE SET
            jobs = known.jobs + said.jobs, failing = known.failing + said.failing,
            without_start = known.without_start + said.without_start, left_open = known.left_open + said.left_open
        WHEN NOT MATCHED THEN INSERT (id, producer, integration, jobs, failing, without_start, left_open)
            VALUES (said.id, said.producer, said.integration, said.jobs, said.failing, said.without_start,
                    said.left_open)
    """  # noqa: S608


def _of(row: str, columns: Iterable[str]) -> str:
    return ", ".join(f"{row}.{name}" for name in columns)
