-- The jobs that ever said that they ran under a job (the tasks of a DAG), whose own events may never come. An index of
-- all runs told it before, to which each run had to be added; and nearly all of a job's runs say the same.
CREATE TABLE job_children (
    -- Of the parent's namespace and name: a key over them could be wider than an index entry may be.
    parent_key uuid NOT NULL,
    job_id     uuid NOT NULL,
    PRIMARY KEY (parent_key, job_id)
);
INSERT INTO job_children (parent_key, job_id)
SELECT DISTINCT md5(parent_job_namespace || chr(31) || parent_job_name)::uuid, job_id FROM job_runs
WHERE parent_job_name IS NOT NULL;
DROP INDEX job_runs_of_parent_job;
