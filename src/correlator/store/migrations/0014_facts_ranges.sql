-- What a page of an incident asks most is what some job, dataset or test did lately. Each is the end of one index
-- range; here the index holds all that is asked for, so that a hundred runs lie on two pages of it where they would be
-- a hundred pages of the table.
DROP INDEX job_runs_ended;
CREATE INDEX job_runs_ended ON job_runs (job_id, ended_at, id)
    INCLUDE (current_state, started_at, parent_job_run_id, nominal_time) WHERE ended_at IS NOT NULL;
DROP INDEX lineage_edges_of_dataset;
CREATE INDEX lineage_edges_of_dataset ON lineage_edges (dataset_id, edge_type, used_at)
    INCLUDE (job_run_id, row_count, byte_size);
DROP INDEX test_results_of_test;
CREATE INDEX test_results_of_test ON test_results (test_id, event_time, job_run_id)
    INCLUDE (status) WHERE dataset_id IS NOT NULL;

-- That holds for pages of the table of which a vacuum has seen that nobody is still writing there. By default it comes
-- when a table has grown by a fifth, and the last days are what is asked for.
ALTER TABLE job_runs SET (autovacuum_vacuum_insert_scale_factor = 0.02);
ALTER TABLE lineage_edges SET (autovacuum_vacuum_insert_scale_factor = 0.02);
ALTER TABLE test_results SET (autovacuum_vacuum_insert_scale_factor = 0.02);

-- As 0009 says, the primary keys have to be the youngest.
ALTER TABLE lineage_edges
    DROP CONSTRAINT lineage_edges_pkey,
    ADD PRIMARY KEY (job_run_id, dataset_id, edge_type);
ALTER TABLE test_results
    DROP CONSTRAINT test_results_pkey,
    ADD PRIMARY KEY (job_run_id, test_id);
