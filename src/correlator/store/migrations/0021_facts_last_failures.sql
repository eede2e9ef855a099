-- Incidents that go on when the one that they were a consequence of is over are looked at again, and are found by when
-- they failed last: those of a dataset, and all of late.
CREATE INDEX incidents_of_dataset_that_went_on ON incidents (dataset_id, last_failed_at)
    WHERE last_failed_at > opened_at AND dataset_id IS NOT NULL;
CREATE INDEX incidents_that_went_on ON incidents (last_failed_at) WHERE last_failed_at > opened_at;
