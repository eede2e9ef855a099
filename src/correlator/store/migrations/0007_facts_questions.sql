-- What questions look up, so that an answer costs the same whatever the history: who ever used a dataset, which tests
-- there are, and names by their words. Worked out of the facts by the merge, for what a batch touched. As in 0003 no
-- name carries its schema.

-- The jobs that ever read or wrote a dataset. Runs are many, and nearly all of a job's use the same.
CREATE TABLE dataset_jobs (
    dataset_id uuid NOT NULL,
    job_id     uuid NOT NULL,
    edge_type  text COLLATE "C" NOT NULL CHECK (edge_type IN ('input', 'output')),
    PRIMARY KEY (dataset_id, edge_type, job_id)
);
INSERT INTO dataset_jobs (dataset_id, job_id, edge_type)
SELECT DISTINCT edge.dataset_id, run.job_id, edge.edge_type
FROM lineage_edges AS edge JOIN job_runs AS run ON run.id = edge.job_run_id;

-- Every data test that has a result.
CREATE TABLE data_tests (
    id          uuid PRIMARY KEY,
    dataset_id  uuid,
    test_name   text COLLATE "C" NOT NULL,
    column_name text COLLATE "C" NOT NULL,
    parameters  text COLLATE "C" NOT NULL
);
INSERT INTO data_tests (id, dataset_id, test_name, column_name, parameters)
SELECT DISTINCT ON (test_id) test_id, dataset_id, test_name, column_name, parameters FROM standing_results;
CREATE INDEX data_tests_of_dataset ON data_tests (dataset_id);

-- A stream need not ever end: its last run before a moment, among the few that are streams.
CREATE INDEX job_runs_streaming ON job_runs (job_id, started_at)
    WHERE upper(processing_type) IN ('STREAMING', 'SERVICE');
-- A run by the id that its producer gave it. A hash: it may be any text.
CREATE INDEX job_runs_by_run_id ON job_runs USING hash (run_id);
-- What is declared of a dataset: `edges @> '{"inputs": ["<id in hex>"]}'`.
CREATE INDEX declarations_by_content ON declarations USING gin (edges jsonb_path_ops);

-- Lists by name, page by page. Names of thousands of characters are legal, and an entry holds 2,704 bytes.
CREATE INDEX jobs_by_name ON jobs (left(job_namespace, 300), left(job_name, 300), id);
CREATE INDEX datasets_by_urn ON datasets (left(canonical_dataset_id, 600), id);

-- The words of a name, as people look for them: lower case, cut at every sign and before capitals in the middle. 400
-- characters are at most 1,600 bytes; a word may have 2,046.
CREATE FUNCTION words_of(name text) RETURNS tsvector
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN array_to_tsvector(array_remove(regexp_split_to_array(
    lower(left(name, 400) || ' ' || regexp_replace(left(name, 400), '([a-z0-9])([A-Z])', '\1 \2', 'g')) COLLATE "C",
    '[\s[:punct:]]+'
), ''));
-- Those of a schema's columns; of one that has more than 2,000 the others are not found.
CREATE FUNCTION words_of_columns(schema_facet jsonb) RETURNS tsvector
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (
    SELECT coalesce(array_to_tsvector(array_agg(DISTINCT word)), '')
    FROM (
        SELECT lower(left(field #>> '{}', 100)) COLLATE "C" AS word
        FROM jsonb_path_query(schema_facet, 'lax $.fields[*].name') AS field LIMIT 2000
    ) AS named
    WHERE word <> ''
);

CREATE INDEX jobs_by_words ON jobs USING gin (words_of(job_namespace || ' ' || job_name));
CREATE INDEX datasets_by_words ON datasets USING gin (words_of(canonical_dataset_id));
CREATE INDEX datasets_by_columns ON datasets USING gin (words_of_columns(schema_json));
CREATE INDEX data_tests_by_words ON data_tests USING gin (words_of(test_name || ' ' || column_name));

-- The jobs that ever ran under a job (the tasks of a DAG), whose own events may never come: a jump from child to child.
CREATE INDEX job_runs_of_parent_job
    ON job_runs ((md5(parent_job_namespace || chr(31) || parent_job_name)::uuid), job_id)
    WHERE parent_job_name IS NOT NULL;
