"""Incidents: unbroken streaks of failures of one test, or of one job's runs.

They are worked out of the facts, in the transaction that merges them, and only around what a batch touched. Of a
subject that was touched at some moment, all is looked at that lies after its last pass before that moment: what lies
before it cannot have changed. What people have resolved cuts a streak as a pass does.

What is touched is written down twice, before the merge and after it: a result that comes again with a later time
leaves the streak where it was, too.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import msgspec
import psycopg

from correlator.rulebook import facts as f
from correlator.store.fact_rows import BY_NAME
from correlator.store.staging import Attempt, of_attempt, probed, staged_table, staged_touched


class Changed(msgspec.Struct, frozen=True):
    """What a derivation has changed."""

    incidents: tuple[UUID, ...] = ()
    """Those that are new, or not as they were."""
    gone: tuple[UUID, ...] = ()
    """Those whose failures belong to others now, or are none any more."""
    orphaned: tuple[UUID, ...] = ()
    """Consequences of those that are gone."""

    def __bool__(self) -> bool:
        return bool(self.incidents or self.gone)


# What counts as an end of silence for a stream that was aborted, if its job has no history of its own.
_USUAL_GAP: Final = "interval '10 minutes'"

# First half of the SHA-256, as every id.
_FAILURE_ID: Final = "encode(substring(sha256(uuid_send({subject}) || uuid_send({run})) FROM 1 FOR 16), 'hex')::uuid"
_TEST_ID: Final = (
    "encode(substring(sha256(uuid_send({dataset}) || convert_to("
    "{name} || chr(31) || {column} || chr(31) || {parameters}, 'UTF8')) FROM 1 FOR 16), 'hex')::uuid"
)


def observes(run: str, schema: str) -> str:
    """Whether a run only looks at data, as `rulebook.results.observes` says, in SQL."""
    return (
        f"(upper({run}.job_type) IS NOT DISTINCT FROM 'TEST' OR ({run}.has_results AND NOT EXISTS ("
        f"SELECT FROM {schema}.lineage_edges AS written "
        f"WHERE written.job_run_id = {run}.id AND written.edge_type = 'output')))"
    )


def used_at(edge_type: str, row_count: str) -> str:
    """When `run` read or wrote a dataset, in SQL."""
    return (
        f"CASE WHEN {edge_type} = 'input' THEN run.started_at "
        f"WHEN run.current_state = 'COMPLETE' OR {row_count} > 0 THEN run.ended_at END"
    )


@lru_cache(maxsize=64)
def before_merge(slot: str, schema: str) -> tuple[bytes, ...]:
    """Write down what stands and will change. The only parameter of each is the number of a part."""
    touched = staged_touched(slot)
    runs, results = (staged_table(slot, BY_NAME[table.name]) for table in (f.JOB_RUNS, f.TEST_RESULTS))
    run_of_said = probed(f"{schema}.job_runs", "run", "run.id = said.id")
    known_result = probed(
        f"{schema}.test_results", "known", "known.job_run_id = said.job_run_id AND known.test_id = said.test_id"
    )
    return _encoded(
        f"""
        INSERT INTO {touched} (attempt, kind, id, at)
        SELECT said.attempt, 'r', run.id, NULL
        FROM {runs} AS said {run_of_said}
        WHERE said.attempt = %(part)s
        """,
        f"""
        INSERT INTO {touched} (attempt, kind, id, at)
        SELECT before.attempt, 'j', run.job_id, run.ended_at
        FROM {touched} AS before {probed(f"{schema}.job_runs", "run", "run.id = before.id")}
        WHERE before.attempt = %(part)s AND before.kind = 'r' AND run.ended_at IS NOT NULL
          AND {_matters("run", schema)}
        """,
        f"""
        INSERT INTO {touched} (attempt, kind, id, at)
        SELECT said.attempt, 't', known.test_id, known.event_time
        FROM {results} AS said {known_result}
        WHERE said.attempt = %(part)s
        """,
    )


@lru_cache(maxsize=64)
def after_merge(slot: str, schema: str) -> tuple[bytes, ...]:
    """Work out what is stored beside the facts of the runs that were touched, and write down what that touches."""
    touched = staged_touched(slot)
    runs, results = (staged_table(slot, BY_NAME[table.name]) for table in (f.JOB_RUNS, f.TEST_RESULTS))
    run_of_said = probed(f"{schema}.job_runs", "run", "run.id = said.id")
    known_result = probed(
        f"{schema}.test_results", "known", "known.job_run_id = said.job_run_id AND known.test_id = said.test_id"
    )
    run_before = probed(f"{schema}.job_runs", "run", "run.id = before.id")
    used = used_at("edge.edge_type", "edge.row_count")
    return _encoded(
        # Edges that the batch itself has brought know it already, unless they are of a run that was there before.
        f"""
        UPDATE {schema}.lineage_edges AS known SET used_at = edge.now_used_at
        FROM (
            SELECT edge.job_run_id, edge.dataset_id, edge.edge_type, {used} AS now_used_at
            FROM {touched} AS before {run_before}
            {probed(f"{schema}.lineage_edges", "edge", "edge.job_run_id = before.id")}
            WHERE before.attempt = %(part)s AND before.kind = 'r' AND edge.used_at IS DISTINCT FROM {used}
        ) AS edge
        WHERE known.job_run_id = edge.job_run_id AND known.dataset_id = edge.dataset_id
          AND known.edge_type = edge.edge_type
        """,
        # A run that was not there before is as it was staged: it need not be looked up.
        f"""
        INSERT INTO {touched} (attempt, kind, id, at)
        SELECT said.attempt, 'o', said.id, NULL::timestamptz
        FROM {runs} AS said
        WHERE said.attempt = %(part)s AND {_tests("said")}
        UNION
        SELECT before.attempt, 'o', run.id, NULL
        FROM {touched} AS before {run_before}
        WHERE before.attempt = %(part)s AND before.kind = 'r' AND {_tests("run")}
        """,
        f"""
        WITH gone AS (
            DELETE FROM {schema}.implied_results AS known USING {touched} AS looking
            WHERE looking.attempt = %(part)s AND looking.kind = 'o' AND known.job_run_id = looking.id
            RETURNING looking.attempt, known.test_id, known.event_time
        )
        INSERT INTO {touched} (attempt, kind, id, at) SELECT attempt, 't', test_id, event_time FROM gone
        """,
        f"""
        WITH new AS (
            INSERT INTO {schema}.implied_results {_implied(touched, schema)}
            RETURNING test_id, event_time
        )
        INSERT INTO {touched} (attempt, kind, id, at)
        SELECT %(part)s::bigint, 't', new.test_id, new.event_time FROM new
        """,
        f"""
        INSERT INTO {touched} (attempt, kind, id, at)
        SELECT said.attempt, 't', known.test_id, known.event_time
        FROM {results} AS said {known_result}
        WHERE said.attempt = %(part)s AND known.dataset_id IS NOT NULL
        """,
        # What is said of a run counts as said of the tests that failed in it: incidents are found by it.
        f"""
        INSERT INTO {touched} (attempt, kind, id, at)
        SELECT said.attempt, 't', failure.subject_id, failure.at
        FROM {runs} AS said
        {probed(f"{schema}.failures", "failure", "failure.job_run_id = said.id")}
        {probed(f"{schema}.incidents", "incident", "incident.id = failure.incident_id")}
        WHERE said.attempt = %(part)s AND said.error_order IS NOT NULL AND incident.kind = 'test'
        """,
        # A run that starts may be the retry of one that failed, or the end of a stream's silence.
        f"""
        INSERT INTO {touched} (attempt, kind, id, at)
        SELECT said.attempt, 'j', run.job_id, least(run.started_at, run.ended_at, (
            SELECT min(sibling.ended_at) FROM (
                SELECT * FROM {schema}.job_runs WHERE parent_job_run_id = run.parent_job_run_id OFFSET 0
            ) AS sibling
            WHERE sibling.job_id = run.job_id
        ), (
            SELECT max(former.ended_at) FROM {schema}.job_runs AS former
            WHERE former.job_id = run.job_id AND former.ended_at <= run.started_at
        ))
        FROM (
            SELECT said.attempt, said.id FROM {runs} AS said
            WHERE said.attempt = %(part)s
              AND (num_nonnulls(said.fail_at, said.abort_at) > 0 OR {_has_failed("said", schema)})
            UNION
            SELECT before.attempt, before.id FROM {touched} AS before
            WHERE before.attempt = %(part)s AND before.kind = 'r'
            OFFSET 0
        ) AS said {run_of_said}
        WHERE {_matters("run", schema)}
        """,
    )


def _tests(run: str) -> str:
    """Whether a run can say something of tests."""
    return f"({run}.has_results OR upper({run}.job_type) = 'TEST')"


def _matters(run: str, schema: str) -> str:
    """Whether a run can change what is known of its job's failures."""
    return f"({run}.current_state IN ('FAIL', 'ABORT') OR {_has_failed(run, schema)})"


def _has_failed(run: str, schema: str) -> str:
    return f"EXISTS (SELECT FROM {schema}.incidents AS known WHERE known.job_id = {run}.job_id)"


def _implied(touched: str, schema: str) -> str:
    """The results that runs imply: see `rulebook.results.standing_results`."""
    moved = _TEST_ID.format(
        dataset="read.dataset_id", name="said.test_name", column="said.column_name", parameters="said.parameters"
    )
    failed = _TEST_ID.format(dataset="read.dataset_id", name="run.job_name", column="''", parameters="''")
    # The same test may be reported more than once, of no dataset, with other results: the greatest order stands.
    return f"""
        (test_id, job_run_id, dataset_id, event_time, status, test_name, column_name, parameters, severity, expected,
         actual, message, description)
        WITH looking AS MATERIALIZED (
            SELECT DISTINCT run.id, run.job_name, run.current_state, run.error_message, run.ended_at, run.event_time,
                   {observes("run", schema)} AS observes
            FROM {touched} AS touched {probed(f"{schema}.job_runs", "run", "run.id = touched.id")}
            WHERE touched.attempt = %(part)s AND touched.kind = 'o'
        ), of_no_dataset AS MATERIALIZED (
            SELECT said.* FROM looking JOIN {schema}.test_results AS said ON said.job_run_id = looking.id
            WHERE said.dataset_id IS NULL AND NOT EXISTS (
                SELECT FROM {schema}.test_results AS other
                WHERE other.job_run_id = said.job_run_id AND num_nonnulls(other.dataset_id) = 1
                  AND other.test_name = said.test_name
            )
        ), placed AS (
            SELECT coalesce({moved}, said.test_id) AS test_id, said.job_run_id, read.dataset_id, said.event_time,
                   said.status, said.test_name, said.column_name, said.parameters, said.severity, said.expected,
                   said.actual, said.message, said.description, said.result_order
            FROM of_no_dataset AS said
            LEFT JOIN {schema}.lineage_edges AS read
                ON read.job_run_id = said.job_run_id AND read.edge_type = 'input'
        )
        (SELECT DISTINCT ON (job_run_id, test_id) test_id, job_run_id, dataset_id, event_time, status, test_name,
                column_name, parameters, severity, expected, actual, message, description
         FROM placed ORDER BY job_run_id, test_id, result_order DESC)
        UNION ALL
        SELECT {failed}, run.id, read.dataset_id, coalesce(run.ended_at, run.event_time), 'fail', run.job_name, '', '',
               '', '', '', '', ''
        FROM looking AS run
        JOIN {schema}.lineage_edges AS read ON read.job_run_id = run.id AND read.edge_type = 'input'
        WHERE run.observes AND (run.current_state = 'FAIL' OR run.error_message <> '')
          AND NOT EXISTS (SELECT FROM {schema}.test_results AS said WHERE said.job_run_id = run.id)
    """


def derive_touched(connection: psycopg.Connection[Any], attempt: Attempt, schema: str) -> Changed:
    """The incidents around all that a batch touched."""
    touched = staged_touched(attempt.slot)
    subjects = f"SELECT id, min(at) AS at FROM {touched} WHERE {of_attempt()} AND kind = '{{}}' GROUP BY id"
    return _derived(connection, schema, subjects.format("t"), subjects.format("j"), attempt.number)


def derive(connection: psycopg.Connection[Any], subjects: Sequence[UUID], schema: str = "facts") -> Changed:
    """All incidents of some tests and jobs."""
    # Each by its own kind: to those of the other it would seem that nothing of them fails.
    given = "SELECT id, '-infinity'::timestamptz AS at FROM unnest(%s::uuid[]) AS id (id) WHERE"
    is_job = f"EXISTS (SELECT FROM {schema}.jobs AS job WHERE job.id = id.id)"
    return _derived(connection, schema, f"{given} NOT {is_job}", f"{given} {is_job}", list(subjects))


def derive_all(connection: psycopg.Connection[Any], schema: str = "facts") -> Changed:
    """Every incident, of every test and job that ever failed."""
    tests = f"""
        SELECT DISTINCT test_id AS id, '-infinity'::timestamptz AS at FROM {schema}.standing_results
        WHERE status IN ('fail', 'warn') AND %s::bigint IS NULL
    """
    jobs = f"""
        SELECT DISTINCT job_id AS id, '-infinity'::timestamptz AS at FROM {schema}.job_runs
        WHERE current_state IN ('FAIL', 'ABORT') AND %s::bigint IS NULL
    """
    return _derived(connection, schema, tests, jobs, None)


def _derived(connection: psycopg.Connection[Any], schema: str, tests: str, jobs: str, parameter: object) -> Changed:
    # A merge has reason to look up every row by its key; here rows of one statement meet each other.
    connection.execute("SELECT set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true)")
    changed: list[UUID] = []
    gone: list[UUID] = []
    for statement in (_derive_tests(schema, tests), _derive_jobs(schema, jobs)):
        for incident, is_gone in connection.execute(statement.encode(), [parameter], prepare=True):
            (gone if is_gone else changed).append(incident)
    rows = connection.execute(_FOLLOW.format(schema=schema).encode(), [gone]).fetchall() if gone else []
    return Changed(tuple(changed), tuple(gone), tuple(child for (child,) in rows))


# Consequences of an incident that is no more belong to the one that has its failure now, or to none.
_FOLLOW: Final = """
UPDATE {schema}.incidents AS child SET root_id = nullif((
    SELECT failure.incident_id FROM {schema}.failures AS failure WHERE failure.id = child.root_id
), child.id)
WHERE child.root_id = ANY (%s::uuid[])
RETURNING child.id
"""


@lru_cache(maxsize=8)
def _derive_tests(schema: str, subjects: str) -> str:
    last_pass = f"""
        SELECT passed.event_time AS at, passed.job_run_id FROM (
            (SELECT event_time, job_run_id FROM {schema}.test_results
             WHERE test_id = subject.id AND event_time < subject.at AND status = 'pass' AND dataset_id IS NOT NULL
             ORDER BY test_id DESC, event_time DESC, job_run_id DESC LIMIT 1)
            UNION ALL
            (SELECT event_time, job_run_id FROM {schema}.implied_results
             WHERE test_id = subject.id AND event_time < subject.at AND status = 'pass'
             ORDER BY test_id DESC, event_time DESC, job_run_id DESC LIMIT 1)
        ) AS passed ORDER BY 1 DESC, 2 DESC LIMIT 1
    """
    outcome = f"""
        SELECT test_id AS subject_id, job_run_id, dataset_id, event_time AS at, status,
               CASE WHEN severity <> '' THEN severity WHEN status = 'warn' THEN 'warn' ELSE 'error' END AS severity
        FROM (
            SELECT test_id, job_run_id, dataset_id, event_time, status, severity FROM {schema}.test_results
            WHERE test_id = since.id AND dataset_id IS NOT NULL
              AND (event_time, job_run_id) > (since.at, since.job_run_id)
            UNION ALL
            SELECT test_id, job_run_id, dataset_id, event_time, status, severity FROM {schema}.implied_results
            WHERE test_id = since.id AND (event_time, job_run_id) > (since.at, since.job_run_id)
        ) AS said
        WHERE status <> 'skip'
    """
    return _derivation(schema, subjects, last_pass, outcome, "test")


@lru_cache(maxsize=8)
def _derive_jobs(schema: str, subjects: str) -> str:
    last_pass = f"""
        SELECT ended_at AS at, id AS job_run_id FROM {schema}.job_runs
        WHERE job_id = subject.id AND ended_at < subject.at AND current_state = 'COMPLETE'
        ORDER BY ended_at DESC, id DESC LIMIT 1
    """
    # A retry is a later run of the job under the same parent: the last one counts. A stream that was aborted and comes
    # back after no more than its usual gap was only restarted.
    outcome = f"""
        SELECT run.job_id AS subject_id, run.id AS job_run_id,
               (SELECT edge.dataset_id FROM {schema}.lineage_edges AS edge
                WHERE edge.job_run_id = run.id AND edge.edge_type = 'output'
                ORDER BY edge.dataset_id LIMIT 1) AS dataset_id,
               run.ended_at AS at,
               CASE WHEN run.current_state = 'COMPLETE' THEN 'pass' ELSE 'fail' END AS status, 'error' AS severity
        FROM {schema}.job_runs AS run
        WHERE run.job_id = since.id AND (run.ended_at, run.id) > (since.at, since.job_run_id)
          AND (run.current_state = 'COMPLETE' OR (
              EXISTS (SELECT FROM {schema}.lineage_edges AS edge
                      WHERE edge.job_run_id = run.id AND edge.edge_type = 'output')
              AND NOT {observes("run", schema)}
              AND NOT EXISTS (
                  SELECT FROM {schema}.job_runs AS retry
                  WHERE retry.parent_job_run_id = run.parent_job_run_id AND retry.job_id = run.job_id
                    AND (retry.started_at, retry.id) > (run.started_at, run.id))
              AND NOT (
                  run.current_state = 'ABORT'
                  AND coalesce(upper(run.processing_type) IN ('STREAMING', 'SERVICE'), false)
                  AND EXISTS (
                      SELECT FROM {schema}.job_runs AS next
                      WHERE next.job_id = run.job_id AND next.id <> run.id AND next.started_at >= run.ended_at
                        AND next.started_at <= run.ended_at + ({_usual_gap(schema)})))))
    """
    return _derivation(schema, subjects, last_pass, outcome, "run")


def _usual_gap(schema: str) -> str:
    """How long a job's restarts usually take: twice the median of those before."""
    return f"""
        SELECT greatest({_USUAL_GAP}, 2 * percentile_disc(0.5) WITHIN GROUP (ORDER BY gap)) FROM (
            SELECT (SELECT min(later.started_at) FROM {schema}.job_runs AS later
                    WHERE later.job_id = former.job_id AND later.id <> former.id
                      AND later.started_at >= former.ended_at) - former.ended_at AS gap
            FROM {schema}.job_runs AS former
            WHERE former.job_id = run.job_id AND former.ended_at < run.ended_at
            ORDER BY former.ended_at DESC LIMIT 20
        ) AS gaps
    """


def _derivation(schema: str, subjects: str, last_pass: str, outcome: str, kind: str) -> str:
    """One statement for all subjects: cut their outcomes into streaks, and make the tables say so.

    It gives the incidents that it changed, and those that are no more.
    """
    subject, test = ("test_id", "subject_id") if kind == "test" else ("job_id", "NULL")
    failure = _FAILURE_ID.format(subject="numbered.subject_id", run="numbered.job_run_id")
    return f"""
    WITH subject AS MATERIALIZED ({subjects}),
    since AS MATERIALIZED (
        SELECT subject.id, coalesce(passed.at, '-infinity') AS at,
               coalesce(passed.job_run_id, '00000000-0000-0000-0000-000000000000') AS job_run_id
        FROM subject LEFT JOIN LATERAL ({last_pass}) AS passed ON true
    ), cut AS MATERIALIZED (
        SELECT cuts.subject_id, cuts.at FROM since JOIN kept.incident_cuts AS cuts ON cuts.subject_id = since.id
    ), outcome AS MATERIALIZED (
        SELECT said.* FROM since CROSS JOIN LATERAL ({outcome}) AS said
    ), numbered AS MATERIALIZED (
        SELECT outcome.*,
               count(*) FILTER (WHERE outcome.status = 'pass') OVER streak AS passes,
               min(outcome.at) FILTER (WHERE outcome.status = 'pass') OVER back AS passed_at,
               (SELECT count(*) FROM cut WHERE cut.subject_id = outcome.subject_id AND cut.at < outcome.at) AS cuts
        FROM outcome
        WINDOW streak AS (PARTITION BY outcome.subject_id ORDER BY outcome.at, outcome.job_run_id),
               back AS (PARTITION BY outcome.subject_id ORDER BY outcome.at DESC, outcome.job_run_id DESC)
    ), failing AS MATERIALIZED (
        SELECT {failure} AS id, numbered.*,
               first_value({failure}) OVER (
                   PARTITION BY numbered.subject_id, numbered.passes, numbered.cuts
                   ORDER BY numbered.at, numbered.job_run_id
               ) AS incident_id
        FROM numbered WHERE numbered.status <> 'pass'
    ), streak AS MATERIALIZED (
        SELECT failing.incident_id AS id, failing.subject_id, min(failing.at) AS opened_at,
               max(failing.at) AS last_failed_at, count(*)::integer AS failures,
               (array_agg(failing.dataset_id ORDER BY failing.at, failing.job_run_id))[1] AS dataset_id,
               (array_agg(failing.job_run_id ORDER BY failing.at, failing.job_run_id))[1] AS job_run_id,
               (array_agg(failing.severity ORDER BY failing.at DESC, failing.job_run_id DESC))[1] AS severity,
               min(failing.passed_at) AS passed_at,
               (SELECT min(cut.at) FROM cut
                WHERE cut.subject_id = failing.subject_id AND cut.at >= max(failing.at)) AS cut_at
        FROM failing
        GROUP BY failing.incident_id, failing.subject_id, failing.passes, failing.cuts
    ), ended AS MATERIALIZED (
        SELECT streak.*, least(passed_at, cut_at) AS resolved_at,
               CASE WHEN least(passed_at, cut_at) IS NULL THEN NULL
                    WHEN cut_at <= passed_at OR passed_at IS NULL THEN 'person' ELSE 'pass' END AS resolved_by
        FROM streak
    ), put AS (
        INSERT INTO {schema}.incidents AS known (
            id, {subject}, dataset_id, job_run_id, opened_at, last_failed_at, resolved_at, kind, severity, resolved_by,
            failures
        )
        SELECT id, subject_id, dataset_id, job_run_id, opened_at, last_failed_at, resolved_at, '{kind}', severity,
               resolved_by, failures
        FROM ended ORDER BY id
        ON CONFLICT (id) DO UPDATE SET
            dataset_id = excluded.dataset_id, job_run_id = excluded.job_run_id, opened_at = excluded.opened_at,
            last_failed_at = excluded.last_failed_at, resolved_at = excluded.resolved_at,
            severity = excluded.severity, resolved_by = excluded.resolved_by, failures = excluded.failures
        WHERE (known.dataset_id, known.job_run_id, known.opened_at, known.last_failed_at, known.resolved_at,
               known.severity, known.resolved_by, known.failures)
              IS DISTINCT FROM
              (excluded.dataset_id, excluded.job_run_id, excluded.opened_at, excluded.last_failed_at,
               excluded.resolved_at, excluded.severity, excluded.resolved_by, excluded.failures)
        RETURNING known.id
    ), told AS (
        INSERT INTO {schema}.incident_texts AS known (incident_id, said)
        SELECT id, {schema}.text_of_incident({test}, job_run_id, dataset_id) FROM ended ORDER BY id
        ON CONFLICT (incident_id) DO UPDATE SET said = excluded.said WHERE known.said <> excluded.said
    ), dropped AS (
        DELETE FROM {schema}.incidents AS known USING since
        WHERE known.{subject} = since.id AND (known.opened_at, known.job_run_id) > (since.at, since.job_run_id)
          AND NOT EXISTS (SELECT FROM streak WHERE streak.id = known.id)
        RETURNING known.id
    ), untold AS (
        DELETE FROM {schema}.incident_texts AS known USING dropped WHERE known.incident_id = dropped.id
    ), placed AS (
        INSERT INTO {schema}.failures AS known (id, incident_id, subject_id, job_run_id, at)
        SELECT id, incident_id, subject_id, job_run_id, at FROM failing ORDER BY id
        ON CONFLICT (id) DO UPDATE SET incident_id = excluded.incident_id, at = excluded.at
        WHERE (known.incident_id, known.at) IS DISTINCT FROM (excluded.incident_id, excluded.at)
    ), removed AS (
        DELETE FROM {schema}.failures AS known USING since
        WHERE known.subject_id = since.id AND (known.at, known.job_run_id) > (since.at, since.job_run_id)
          AND NOT EXISTS (SELECT FROM failing WHERE failing.id = known.id)
    )
    SELECT id, false AS is_gone FROM put
    UNION ALL
    SELECT id, true FROM dropped
    """


def _encoded(*statements: str) -> tuple[bytes, ...]:
    return tuple(statement.encode() for statement in statements)
