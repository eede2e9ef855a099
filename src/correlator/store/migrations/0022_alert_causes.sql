-- One alert for each root, also where it is no incident by itself: a deploy that nobody tested, and two marts that are red
-- because of it.
ALTER TABLE kept.alert_watch
    -- The run that is named as the reason, where the evidence for it is strong, else the version that failed; of what was
    -- told, and of what waits because somebody was told of the same.
    ADD COLUMN cause text NOT NULL DEFAULT '',
    -- It is a consequence of another, or of the same run: it is told if it goes on when that is over, however late.
    ADD COLUMN waits_for_another boolean NOT NULL DEFAULT false;
CREATE INDEX alert_watch_causes ON kept.alert_watch (cause) WHERE told_at IS NOT NULL AND cause <> '';
