-- What a source has that its readers have not read yet, where only the source can tell, as the pipeline last saw it. Of
-- the log this is known without.
CREATE TABLE kept.source_backlogs (
    source        text COLLATE "C",
    reader        text COLLATE "C",
    events        bigint NOT NULL,
    -- The oldest of them came after this; null where nothing waits.
    waiting_since timestamptz,
    looked_at     timestamptz NOT NULL,
    PRIMARY KEY (source, reader)
) WITH (fillfactor = 10);
