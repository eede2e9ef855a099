-- Runs that say which incident they are about, in a run facet `correlator_incidentContext`, by the id of any of its
-- failures. Kept by the merge for the runs of a batch. As in 0003 no name carries its schema.
CREATE TABLE incident_mentions (
    failure_id uuid NOT NULL,
    job_run_id uuid NOT NULL,
    PRIMARY KEY (failure_id, job_run_id)
);
CREATE INDEX incident_mentions_of_run ON incident_mentions (job_run_id);
INSERT INTO incident_mentions (failure_id, job_run_id)
SELECT (facets #>> '{correlator_incidentContext,incidentId}')::uuid, id FROM job_runs
WHERE facets #>> '{correlator_incidentContext,incidentId}'
    ~* '^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$';
