-- What the pipeline's batches need: a place where fact rows wait for their merge, and the ledger of what was merged.

-- Rows that were copied and not yet merged. The tables in here are made by store/merge.py when the pipeline starts on a
-- source, one set for each source: sources merge by turns but copy at the same time. All of it may be lost at any time.
CREATE SCHEMA staging;

-- The attempt at a batch that is under way, for each set. It is as perishable as the rows themselves: when a crash has
-- emptied their tables, this one is empty too, and nobody takes an empty table for a batch that says nothing.
CREATE UNLOGGED TABLE staging.attempts (
    slot   text COLLATE "C" PRIMARY KEY,
    number bigint NOT NULL
) WITH (fillfactor = 10);

-- The ledger: what each batch of the pipeline read, and what became of it; written by the transaction that merges. A
-- batch that is repeated replaces its row.
CREATE TABLE kept.pipeline_batches (
    -- The query of Spark's checkpoint, and the number that it gave the batch.
    query_id       text COLLATE "C" NOT NULL,
    batch_id       bigint NOT NULL,
    source         text COLLATE "C" NOT NULL,
    read           bigint NOT NULL,
    applied        bigint NOT NULL,
    duplicates     bigint NOT NULL,
    rejected       bigint NOT NULL,
    -- Of the event log; NULL for other sources, and for a batch that read nothing.
    first_position bigint,
    last_position  bigint,
    -- Where in its source the batch lies, in the source's own words.
    offsets        jsonb,
    -- From its first task to its commit.
    seconds        double precision NOT NULL,
    committed_at   timestamptz NOT NULL,
    PRIMARY KEY (query_id, batch_id),
    CHECK (read = applied + duplicates + rejected),
    CHECK ((first_position IS NULL) = (last_position IS NULL) AND first_position <= last_position)
) WITH (fillfactor = 90);
CREATE INDEX pipeline_batches_committed_at ON kept.pipeline_batches (committed_at);

-- Old rows of the ledger, added up by day so that it does not grow for ever. Of the positions nothing is lost: what no
-- batch has read stays a hole, by whatever day.
CREATE TABLE kept.pipeline_days (
    source     text COLLATE "C",
    day        date,
    batches    bigint NOT NULL,
    read       bigint NOT NULL,
    applied    bigint NOT NULL,
    duplicates bigint NOT NULL,
    rejected   bigint NOT NULL,
    positions  int8multirange NOT NULL,
    PRIMARY KEY (source, day),
    CHECK (read = applied + duplicates + rejected)
);

-- The ledger added up, one row for each source, by the transactions that write it: who asks every second what the
-- pipeline has done need not read all of it.
CREATE TABLE kept.pipeline_totals (
    source       text COLLATE "C" PRIMARY KEY,
    batches      bigint NOT NULL,
    read         bigint NOT NULL,
    applied      bigint NOT NULL,
    duplicates   bigint NOT NULL,
    rejected     bigint NOT NULL,
    -- Of the last batch.
    seconds      double precision NOT NULL,
    committed_at timestamptz NOT NULL
) WITH (fillfactor = 10);

-- How far sources that are not the log have been read, by the merge ("facts") and by the archive: the partition of a
-- topic up to which offset, a file in which size. Written with what was read, so that a checkpoint that is lost loses
-- nothing.
CREATE TABLE kept.source_origins (
    source      text COLLATE "C",
    reader      text COLLATE "C",
    origin      text COLLATE "C",
    position    bigint,
    size        bigint,
    modified_at timestamptz,
    events      bigint NOT NULL,
    -- The id of the topic that it is a partition of: one that is deleted and made again has another.
    incarnation text COLLATE "C",
    PRIMARY KEY (source, reader, origin)
);

-- What a source no longer had when its turn came, such as messages that had expired. The pipeline passes it by; that it
-- was so is told until somebody has taken note.
CREATE TABLE kept.source_losses (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source     text COLLATE "C" NOT NULL,
    reader     text COLLATE "C" NOT NULL,
    origin     text COLLATE "C" NOT NULL,
    sentence   text NOT NULL,
    -- As far as they can be counted.
    events     bigint NOT NULL,
    noticed_at timestamptz NOT NULL DEFAULT now(),
    settled_at timestamptz
);

-- What the archive holds, one row for each directory that is whole. A directory without one is what an attempt that
-- was given up has left behind.
CREATE TABLE kept.archive_batches (
    source         text COLLATE "C" NOT NULL,
    directory      text COLLATE "C" NOT NULL,
    events         bigint NOT NULL,
    rejected       bigint NOT NULL,
    first_position bigint,
    last_position  bigint,
    written_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source, directory)
);

-- Which arrival at a source was rejected, so that a batch that is repeated keeps it once. Over HTTP each is its own.
ALTER TABLE kept.rejected_events ADD COLUMN arrival uuid;
CREATE UNIQUE INDEX rejected_events_arrival ON kept.rejected_events (arrival) WHERE arrival IS NOT NULL;
