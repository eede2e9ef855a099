-- What questions need beside the facts: when data was read and written, what a run's results amount to, which failures
-- make one incident, and which names mean one dataset. All of it is worked out of the facts by the merge, for what a
-- batch touched; nothing here is said by an event. As in 0003 no name carries its schema.

-- When the run read or wrote the dataset: an input at the run's start, an output at its end. NULL for an output that
-- was not written: the run has not ended, or FAILed or ABORTed without a word of rows.
ALTER TABLE lineage_edges ADD COLUMN used_at timestamptz;
UPDATE lineage_edges AS edge SET used_at = CASE
    WHEN edge.edge_type = 'input' THEN run.started_at
    WHEN run.current_state = 'COMPLETE' OR edge.row_count > 0 THEN run.ended_at
END
FROM job_runs AS run WHERE run.id = edge.job_run_id;

-- Who wrote a dataset last before a moment, and who read it after that.
DROP INDEX lineage_edges_of_dataset;
CREATE INDEX lineage_edges_of_dataset ON lineage_edges (dataset_id, edge_type, used_at);
-- The write of a version that a read names. A hash: versions can be longer than an entry of a B-tree.
CREATE INDEX lineage_edges_of_version ON lineage_edges USING hash (dataset_version)
    WHERE edge_type = 'output' AND dataset_version IS NOT NULL;

-- The runs of a job by their end: the last good one before a moment, and what failed since.
CREATE INDEX job_runs_ended ON job_runs (job_id, ended_at) WHERE ended_at IS NOT NULL;

-- Results that no event states as such, by rulebook/results.py: those of the `test` run facet, which belong to the
-- inputs of their run, and the failure of a run that only looks at data and says no more than that it failed.
CREATE TABLE implied_results (
    test_id     uuid NOT NULL,
    job_run_id  uuid NOT NULL REFERENCES job_runs DEFERRABLE INITIALLY DEFERRED,
    -- NULL where the run names no input.
    dataset_id  uuid,
    event_time  timestamptz NOT NULL,
    status      text COLLATE "C" NOT NULL CHECK (status IN ('pass', 'fail', 'warn', 'skip')),
    test_name   text COLLATE "C" NOT NULL,
    column_name text COLLATE "C" NOT NULL,
    parameters  text COLLATE "C" NOT NULL,
    severity    text COLLATE "C" NOT NULL,
    expected    text COLLATE "C" NOT NULL,
    actual      text COLLATE "C" NOT NULL,
    message     text COLLATE "C" NOT NULL,
    description text COLLATE "C" NOT NULL,
    PRIMARY KEY (job_run_id, test_id)
);
CREATE INDEX implied_results_of_test ON implied_results (test_id, event_time, job_run_id);
CREATE INDEX implied_results_of_dataset ON implied_results (dataset_id, event_time) WHERE dataset_id IS NOT NULL;

-- What a run's results amount to: one row for each test that it answered.
CREATE VIEW standing_results AS
SELECT test_id, job_run_id, dataset_id, event_time, status, test_name, column_name, parameters, severity, expected,
       actual, message, description, of_own_output
FROM test_results
WHERE dataset_id IS NOT NULL
UNION ALL
SELECT test_id, job_run_id, dataset_id, event_time, status, test_name, column_name, parameters, severity, expected,
       actual, message, description, false
FROM implied_results;

-- The last pass before a moment, however long a test has been failing since.
CREATE INDEX test_results_passed ON test_results (test_id, event_time, job_run_id) WHERE status = 'pass';

ALTER TABLE incidents
    -- Of the last failure: as the producer says it, `warn` for a warning, else `error`.
    ADD COLUMN severity text COLLATE "C" NOT NULL DEFAULT 'error',
    -- By a pass, or by a person.
    ADD COLUMN resolved_by text COLLATE "C" CHECK (resolved_by IN ('pass', 'person')),
    ADD COLUMN failures integer NOT NULL DEFAULT 1,
    ADD CHECK ((resolved_at IS NULL) = (resolved_by IS NULL));
CREATE INDEX incidents_by_time ON incidents (opened_at DESC, id);
CREATE INDEX incidents_of_dataset ON incidents (dataset_id, opened_at) WHERE dataset_id IS NOT NULL;

-- Every failure and the incident that it belongs to. Its id is made of what fails and the run, so it stays the same
-- when late events move the incident's first failure, and with it the incident's id: any of them leads there.
CREATE TABLE failures (
    id          uuid PRIMARY KEY,
    incident_id uuid NOT NULL REFERENCES incidents DEFERRABLE INITIALLY DEFERRED,
    -- The test, or the job.
    subject_id  uuid NOT NULL,
    job_run_id  uuid NOT NULL,
    at          timestamptz NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX failures_of_incident ON failures (incident_id, at);
CREATE INDEX failures_of_subject ON failures (subject_id, at, job_run_id);
CREATE INDEX failures_of_run ON failures (job_run_id);

-- Datasets with several names: what their class is called. Who is not here is a class of his own.
CREATE TABLE dataset_classes (
    dataset_id uuid PRIMARY KEY,
    class_id   uuid NOT NULL,
    class_urn  text COLLATE "C" NOT NULL
);
CREATE INDEX dataset_classes_of_class ON dataset_classes (class_id);
