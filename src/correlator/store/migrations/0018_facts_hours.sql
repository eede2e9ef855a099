-- Every event of a run says the same of its job and datasets once more: two rows and two entries of an index where one
-- says it all. Now a row is what was said of a facet by one run in one hour, with the first and the last time that it
-- was: the least and the greatest, so that no order of events matters. That it is an hour keeps a run that never ends
-- from hiding what others said meanwhile, and the range of what may have been said last short.
CREATE TABLE facet_hours (
    entity_id   uuid NOT NULL,
    -- The run that said so; the nil uuid when a JobEvent or DatasetEvent did.
    job_run_id  uuid NOT NULL,
    -- Into facet_bodies; the nil uuid where the facet was deleted.
    body_digest uuid NOT NULL,
    -- The full hour, in UTC, that both moments lie in.
    hour        timestamptz NOT NULL,
    first_at    timestamptz NOT NULL,
    last_at     timestamptz NOT NULL CHECK (last_at >= first_at),
    -- Of the last event that said so.
    rank        smallint NOT NULL,
    entity_kind text COLLATE "C" NOT NULL CHECK (entity_kind IN ('job', 'dataset')),
    facet_key   text COLLATE "C" NOT NULL
-- A run that says it again an event later moves the last time.
) WITH (fillfactor = 90);

INSERT INTO facet_hours (entity_id, job_run_id, body_digest, hour, first_at, last_at, rank, entity_kind, facet_key)
SELECT entity_id, job_run_id, coalesce(body_digest, '00000000-0000-0000-0000-000000000000'),
    date_bin('1 hour', event_time, 'epoch'), min(event_time), max(event_time),
    (array_agg(rank ORDER BY event_time DESC, rank DESC))[1], entity_kind, facet_key
FROM facet_history
GROUP BY entity_id, entity_kind, facet_key, date_bin('1 hour', event_time, 'epoch'), job_run_id, body_digest;

DROP TABLE facet_history;
ALTER TABLE facet_hours RENAME TO facet_history;
-- The history of one facet of one entity is a range in order of time.
ALTER TABLE facet_history
    ADD PRIMARY KEY (entity_id, entity_kind, facet_key, hour, job_run_id, body_digest);
