-- What stands of each job, so that a question about thousands of them reads a row of each, whatever their history: the
-- lineage of its last run that completed, and how its last run is. Kept by the merge for the jobs of a batch. As in 0003
-- no name carries its schema.

-- Of a stream the last run that was RUNNING counts too. A job of which no run has come so far is not here.
CREATE TABLE standing_lineage (
    job_id         uuid PRIMARY KEY,
    job_run_id     uuid NOT NULL,
    -- When that run ended; of a stream that goes on, when it began.
    at             timestamptz NOT NULL,
    states_lineage boolean NOT NULL,
    -- Whether it only looks at data, and is no part of lineage.
    observes       boolean NOT NULL,
    job_namespace  text COLLATE "C" NOT NULL,
    job_name       text COLLATE "C" NOT NULL,
    run_id         text COLLATE "C" NOT NULL,
    inputs         uuid[] NOT NULL,
    outputs        uuid[] NOT NULL,
    -- Of each input its `origin`, and of each output its `sources_told_by`, as in lineage_edges; NULL where nothing more
    -- is said than that the inputs go into the outputs.
    origins        smallint[],
    told_by        smallint[]
) WITH (fillfactor = 70);

CREATE TABLE last_runs (
    job_id        uuid PRIMARY KEY,
    job_run_id    uuid NOT NULL,
    event_time    timestamptz NOT NULL,
    has_start     boolean NOT NULL,
    -- No end was said of it, and it is no stream.
    is_open       boolean NOT NULL,
    -- The run before it is still open.
    left_open     boolean NOT NULL,
    current_state text COLLATE "C" NOT NULL,
    job_namespace text COLLATE "C" NOT NULL,
    job_name      text COLLATE "C" NOT NULL,
    producer      text COLLATE "C" NOT NULL,
    integration   text COLLATE "C"
) WITH (fillfactor = 70);

-- How many last runs each producer has told of, and how they are: a question about all jobs reads none of them.
CREATE TABLE producer_jobs (
    -- Of the producer and the integration: a key over them could be wider than an index entry may be.
    id            uuid PRIMARY KEY,
    jobs          bigint NOT NULL,
    failing       bigint NOT NULL,
    without_start bigint NOT NULL,
    left_open     bigint NOT NULL,
    producer      text COLLATE "C" NOT NULL,
    integration   text COLLATE "C"
) WITH (fillfactor = 70);

-- The last stream of a job is the end of a range, as in 0013.
DROP INDEX job_runs_streaming;
CREATE INDEX job_runs_streaming ON job_runs (job_id, started_at, id)
    WHERE upper(processing_type) IN ('STREAMING', 'SERVICE');

INSERT INTO standing_lineage
SELECT run.job_id, run.id, standing.at, run.states_lineage,
       upper(run.job_type) IS NOT DISTINCT FROM 'TEST' OR (run.has_results AND edge.outputs IS NULL),
       run.job_namespace, run.job_name, run.run_id, coalesce(edge.inputs, '{}'), coalesce(edge.outputs, '{}'),
       CASE WHEN run.states_lineage OR NOT edge.are_plain THEN edge.origins END,
       CASE WHEN run.states_lineage OR NOT edge.are_plain THEN edge.told_by END
FROM (SELECT DISTINCT job_id FROM job_runs) AS job
CROSS JOIN LATERAL (
    SELECT id, at FROM (
        (SELECT id, ended_at AS at FROM job_runs
         WHERE job_id = job.job_id AND ended_at IS NOT NULL AND current_state = 'COMPLETE'
         ORDER BY ended_at DESC, id DESC LIMIT 1)
        UNION ALL
        (SELECT id, started_at FROM job_runs
         WHERE job_id = job.job_id AND upper(processing_type) IN ('STREAMING', 'SERVICE')
           AND state_history @> '[{"state": "RUNNING"}]'
         ORDER BY started_at DESC, id DESC LIMIT 1)
    ) AS last ORDER BY at DESC, id DESC LIMIT 1
) AS standing
JOIN job_runs AS run ON run.id = standing.id
CROSS JOIN LATERAL (
    SELECT array_agg(dataset_id ORDER BY dataset_id) FILTER (WHERE edge_type = 'input') AS inputs,
           array_agg(dataset_id ORDER BY dataset_id) FILTER (WHERE edge_type = 'output') AS outputs,
           array_agg(origin ORDER BY dataset_id) FILTER (WHERE edge_type = 'input') AS origins,
           array_agg(sources_told_by ORDER BY dataset_id) FILTER (WHERE edge_type = 'output') AS told_by,
           bool_and(sources_told_by IS NULL AND origin <> 3) AS are_plain
    FROM lineage_edges WHERE job_run_id = run.id
) AS edge;

INSERT INTO last_runs
SELECT job_id, id, event_time, first_start_at IS NOT NULL, is_open, coalesce(left_open, false), current_state,
       job_namespace, job_name, producer, integration
FROM (
    SELECT *, lag(is_open) OVER of_job AS left_open, row_number() OVER (of_job) AS number,
           count(*) OVER (PARTITION BY job_id) AS runs
    FROM (
        SELECT *, ended_at IS NULL AND current_state IN ('START', 'RUNNING')
            AND upper(processing_type) IN ('STREAMING', 'SERVICE') IS NOT TRUE AS is_open
        FROM job_runs
    ) AS run
    WINDOW of_job AS (PARTITION BY job_id ORDER BY started_at, id)
) AS run
WHERE number = runs;

INSERT INTO producer_jobs
SELECT md5(producer || chr(31) || coalesce(integration, ''))::uuid, count(*),
       count(*) FILTER (WHERE current_state IN ('FAIL', 'ABORT')), count(*) FILTER (WHERE NOT has_start),
       count(*) FILTER (WHERE left_open), producer, integration
FROM last_runs GROUP BY producer, integration;

-- When a producer was last heard of, and the runs that have been silent for long.
CREATE INDEX last_runs_of_producer ON last_runs ((md5(producer)::uuid), is_open, event_time);
