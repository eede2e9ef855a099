-- What is needed to tell people of incidents: what may have to be told, what was, and to whom.

-- Incidents that somebody may have to be told of, from the merge that found them until they are over. A replay enters
-- none, for it finds nothing that was not known.
CREATE TABLE kept.alert_watch (
    -- The incident's id when it was seen, which is that of a failure: it leads to the incident whatever becomes of it.
    failure_id      uuid PRIMARY KEY,
    seen_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Not looked at before that.
    due_at          timestamptz NOT NULL DEFAULT '-infinity',
    told_at         timestamptz,
    -- The reopening that it was told after; 0 for the first time.
    occasion        bigint NOT NULL DEFAULT 0,
    -- What was told, for a word on an incident that is no more.
    title           text NOT NULL DEFAULT '',
    acknowledged_at timestamptz
);
CREATE INDEX alert_watch_due ON kept.alert_watch (due_at) WHERE told_at IS NULL;
CREATE INDEX alert_watch_told ON kept.alert_watch (failure_id) WHERE told_at IS NOT NULL;

-- Whether it was told that the pipeline is behind, and how often so far.
CREATE TABLE kept.pipeline_alarm (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    times   bigint NOT NULL DEFAULT 0,
    told_at timestamptz
);
INSERT INTO kept.pipeline_alarm DEFAULT VALUES;

ALTER TABLE kept.alert_routes
    -- For what no other route is for.
    ADD COLUMN is_default boolean NOT NULL DEFAULT false,
    ADD COLUMN tells_resolved boolean NOT NULL DEFAULT true;

ALTER TABLE kept.alert_outbox
    -- By which a receiver knows a message that comes again.
    ADD COLUMN key uuid NOT NULL DEFAULT gen_random_uuid(),
    ADD COLUMN occasion bigint NOT NULL DEFAULT 0,
    ADD COLUMN title text NOT NULL DEFAULT '',
    -- Until when it belongs to the process that sends it.
    ADD COLUMN leased_until timestamptz,
    DROP CONSTRAINT alert_outbox_event_check,
    ADD CONSTRAINT alert_outbox_event_check CHECK (event IN ('opened', 'acknowledged', 'resolved')),
    DROP CONSTRAINT alert_outbox_route_id_about_event_key,
    ADD CONSTRAINT alert_outbox_once UNIQUE (route_id, about, event, occasion);
-- Whether something about the same waits before it.
CREATE INDEX alert_outbox_waiting ON kept.alert_outbox (route_id, about, id)
    WHERE sent_at IS NULL AND given_up_at IS NULL;

-- How many messages were taken and given up in all: the outbox forgets them.
CREATE TABLE kept.alert_totals (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    sent    bigint NOT NULL DEFAULT 0,
    failed  bigint NOT NULL DEFAULT 0
);
INSERT INTO kept.alert_totals DEFAULT VALUES;
