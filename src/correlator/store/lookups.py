"""What questions look up, kept in step by the merge.

Which jobs ever used a dataset, which ran under which, which tests there are, and which runs say that they are about an
incident. All of it follows from the facts alone. A job's use of a dataset is never unsaid; a result may be (one that
was only implied), and a test without results is none. A run may take back under whom it ran: whoever asks for children
has to look whether a run still says so.
"""

from functools import lru_cache

from correlator.rulebook import facts as f
from correlator.store.fact_rows import BY_NAME, DATASET_JOBS, JOB_CHILDREN
from correlator.store.staging import probed, staged_table, staged_touched


@lru_cache(maxsize=64)
def after_merge(slot: str, schema: str) -> tuple[bytes, ...]:
    """After incidents have written down what was touched. Of each the only parameter is the number of a part."""
    touched = staged_touched(slot)
    runs, results = (staged_table(slot, BY_NAME[table.name]) for table in (f.JOB_RUNS, f.TEST_RESULTS))
    uses, children = staged_table(slot, DATASET_JOBS), staged_table(slot, JOB_CHILDREN)
    known_result = probed(
        f"{schema}.test_results", "known", "known.job_run_id = result.job_run_id AND known.test_id = result.test_id"
    )
    told = f"""
        SELECT known.test_id AS id, known.dataset_id, known.test_name, known.column_name, known.parameters
        FROM {results} AS result {known_result}
        WHERE result.attempt = %(part)s AND known.dataset_id IS NOT NULL
        UNION ALL
        SELECT implied.test_id, implied.dataset_id, implied.test_name, implied.column_name, implied.parameters
        FROM {touched} AS looking
        {probed(f"{schema}.implied_results", "implied", "implied.job_run_id = looking.id")}
        WHERE looking.attempt = %(part)s AND looking.kind = 'o'
    """
    mentioned = (
        "CASE WHEN run.facets #>> '{correlator_incidentContext,incidentId}' ~* "
        "'^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$' "
        "THEN (run.facets #>> '{correlator_incidentContext,incidentId}')::uuid END"
    )
    return tuple(
        statement.encode()
        for statement in (
            # One index probe for each use of a dataset by a job. A long part names some of them more than once.
            f"""
            INSERT INTO {schema}.dataset_jobs (dataset_id, job_id, edge_type)
            SELECT DISTINCT said.dataset_id, said.job_id, said.edge_type
            FROM {uses} AS said
            WHERE said.attempt = %(part)s AND said.job_id IS NOT NULL AND NOT EXISTS (
                SELECT FROM {schema}.dataset_jobs AS known
                WHERE known.dataset_id = said.dataset_id AND known.edge_type = said.edge_type
                  AND known.job_id = said.job_id
            )
            ORDER BY said.dataset_id, said.edge_type, said.job_id
            """,
            f"""
            INSERT INTO {schema}.job_children (parent_key, job_id)
            SELECT DISTINCT said.parent_key, said.job_id
            FROM {children} AS said
            WHERE said.attempt = %(part)s AND NOT EXISTS (
                SELECT FROM {schema}.job_children AS known
                WHERE known.parent_key = said.parent_key AND known.job_id = said.job_id
            )
            ORDER BY said.parent_key, said.job_id
            """,
            # By the primary keys of runs: a bulk load has no other indexes. Only what is gone is asked for by its test.
            f"""
            WITH gone AS MATERIALIZED (
                SELECT touched.id FROM {touched} AS touched
                WHERE touched.attempt = %(part)s AND touched.kind = 't'
                EXCEPT
                SELECT said.id FROM ({told}) AS said
            )
            DELETE FROM {schema}.data_tests AS known USING gone
            WHERE known.id = gone.id
              AND NOT EXISTS (
                  SELECT FROM {schema}.test_results AS said WHERE said.test_id = gone.id AND said.dataset_id IS NOT NULL
              )
              AND NOT EXISTS (SELECT FROM {schema}.implied_results AS said WHERE said.test_id = gone.id)
            """,
            f"""
            INSERT INTO {schema}.data_tests (id, dataset_id, test_name, column_name, parameters)
            SELECT DISTINCT ON (said.id) said.id, said.dataset_id, said.test_name, said.column_name, said.parameters
            FROM ({told}) AS said
            WHERE NOT EXISTS (SELECT FROM {schema}.data_tests AS known WHERE known.id = said.id)
            ORDER BY said.id
            """,
            # Nearly always of no run.
            f"""
            WITH said AS MATERIALIZED (
                SELECT run.id, {mentioned} AS failure_id
                FROM {runs} AS staged {probed(f"{schema}.job_runs", "run", "run.id = staged.id")}
                WHERE staged.attempt = %(part)s AND staged.facet_orders ? 'correlator_incidentContext'
            ), gone AS (
                DELETE FROM {schema}.incident_mentions AS known USING said
                WHERE known.job_run_id = said.id AND known.failure_id IS DISTINCT FROM said.failure_id
            )
            INSERT INTO {schema}.incident_mentions (failure_id, job_run_id)
            SELECT said.failure_id, said.id FROM said
            WHERE said.failure_id IS NOT NULL
              AND NOT EXISTS (SELECT FROM {schema}.incident_mentions AS known WHERE known.job_run_id = said.id
                              AND known.failure_id = said.failure_id)
            """,
        )
    )
