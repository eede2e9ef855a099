-- The runs of a job by their start and by their end, with what decides between two of the same instant: the last one
-- before a moment is then the end of a range, and nothing has to be sorted, nor read beside it.
DROP INDEX job_runs_of_job;
CREATE INDEX job_runs_of_job ON job_runs (job_id, started_at, id);
DROP INDEX job_runs_ended;
CREATE INDEX job_runs_ended ON job_runs (job_id, ended_at, id) WHERE ended_at IS NOT NULL;
