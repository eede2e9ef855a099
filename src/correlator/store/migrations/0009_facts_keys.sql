-- A merge looks every row up by its primary key. While a table is empty or was never analyzed, the planner takes an
-- index on some of the key's columns for just as good, and of two that cost the same it takes the younger; then each
-- row of a first large batch reads all that there is of its dataset or test, and twice the rows take four times as
-- long. So where a table has such an index, the primary key has to be the youngest.
ALTER TABLE lineage_edges
    DROP CONSTRAINT lineage_edges_pkey,
    ADD PRIMARY KEY (job_run_id, dataset_id, edge_type);
ALTER TABLE running_writes
    DROP CONSTRAINT running_writes_pkey,
    ADD PRIMARY KEY (job_run_id, dataset_id, at);
ALTER TABLE test_results
    DROP CONSTRAINT test_results_pkey,
    ADD PRIMARY KEY (job_run_id, test_id);
ALTER TABLE implied_results
    DROP CONSTRAINT implied_results_pkey,
    ADD PRIMARY KEY (job_run_id, test_id);
