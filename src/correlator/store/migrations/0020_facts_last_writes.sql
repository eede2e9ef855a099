-- The last write of a dataset before a moment is asked for more than anything else, and of two at one moment the one
-- with the greater id counts. Where the id is no part of the key, the write before it is read as well, with its run, to
-- see that it is older: a page of an incident among ten million runs read a hundred blocks more.
DROP INDEX lineage_edges_of_dataset;
CREATE INDEX lineage_edges_of_dataset ON lineage_edges (dataset_id, edge_type, used_at, job_run_id)
    INCLUDE (row_count, byte_size);

-- As 0009 says, the primary key has to be the youngest.
ALTER TABLE lineage_edges
    DROP CONSTRAINT lineage_edges_pkey,
    ADD PRIMARY KEY (job_run_id, dataset_id, edge_type);
