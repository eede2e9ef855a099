-- What only happens once: the event log, what keeps an event from being stored twice, the ledger, and the rejects.
-- `facts` holds what the log and the archive can rebuild. No foreign key leads from one schema to the other.
CREATE SCHEMA IF NOT EXISTS kept;
CREATE SCHEMA facts;

-- The end of the log, one row. Whoever appends locks it until he commits: positions are therefore dense (a rollback
-- gives them back) and in the order of commits, and the times of receipt never run backwards, even when the clock does.
CREATE TABLE kept.log_head (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    position    bigint NOT NULL DEFAULT 0,
    received_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 10);
INSERT INTO kept.log_head DEFAULT VALUES;

-- The log: events as they were received, to the byte. One partition for each UTC day of receipt.
CREATE TABLE kept.lineage_events (
    position    bigint NOT NULL,
    received_at timestamptz NOT NULL,
    raw         bytea NOT NULL
) PARTITION BY RANGE (received_at);
-- As it is: the compression that every build of PostgreSQL has costs more than all the rest of an append.
ALTER TABLE kept.lineage_events ALTER COLUMN raw SET STORAGE EXTERNAL;

-- Makes the day's partition if it is not there. Attaching locks out neither readers nor writers of other days.
CREATE FUNCTION kept.ensure_log_partition(at timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    day  date := (at AT TIME ZONE 'UTC')::date;
    name text := 'lineage_events_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF to_regclass('kept.' || name) IS NOT NULL THEN
        RETURN;
    END IF;
    -- At midnight housekeeping and an append may want the same day: the later one waits, and finds it made.
    PERFORM pg_advisory_xact_lock(4017283003);
    -- Read from the table: what to_regclass knows may be older than the wait.
    IF EXISTS (SELECT FROM pg_class WHERE relname = name AND relnamespace = 'kept'::regnamespace) THEN
        RETURN;
    END IF;
    -- Events of up to some 8 KB stay in the row: moving them out would double the work of writing and reading them.
    EXECUTE format(
        'CREATE TABLE kept.%I (LIKE kept.lineage_events INCLUDING ALL, PRIMARY KEY (position)) '
        'WITH (toast_tuple_target = 8160)', name
    );
    EXECUTE format(
        'ALTER TABLE kept.lineage_events ATTACH PARTITION kept.%I FOR VALUES FROM (%L) TO (%L)',
        name, day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC'
    );
END
$$;

-- Who has read the log how far. Retention never passes any of them.
CREATE TABLE kept.log_readers (
    reader   text COLLATE "C" PRIMARY KEY,
    position bigint NOT NULL,
    read_at  timestamptz NOT NULL DEFAULT now()
);

-- What was received lately. `key` is what happened, `digest` the bytes in which it was told; each the first half of a
-- SHA-256. `content` is the digest of the decoded content, worked out only when a key is met again in other bytes.
-- Equal keys have equal times, and with the time in front neighbours in time are neighbours in the index: keys alone
-- would touch a leaf of their own each, and write it to the WAL whole after every checkpoint (5 KB for each event).
CREATE TABLE kept.lineage_event_idempotency (
    event_time  timestamptz NOT NULL,
    key         uuid NOT NULL,
    digest      uuid NOT NULL,
    content     uuid,
    position    bigint NOT NULL,
    received_at timestamptz NOT NULL,
    PRIMARY KEY (event_time, key, digest)
);
-- Old keys are found here and removed in chunks. The rows of one commit share one time, so it stays small.
CREATE INDEX lineage_event_idempotency_received_at ON kept.lineage_event_idempotency (received_at);
-- Of a key that was told in several ways all contents are known. There may be many thousands of them, so that each is
-- looked up by itself. Nearly every row has none, and is not in here.
CREATE INDEX lineage_event_idempotency_content ON kept.lineage_event_idempotency (event_time, key, content)
    WHERE content IS NOT NULL;

-- The ledger: what each group commit was given, and what became of it.
CREATE TABLE kept.ingest_batches (
    id             uuid PRIMARY KEY,
    source         text COLLATE "C" NOT NULL,
    committed_at   timestamptz NOT NULL,
    received       integer NOT NULL,
    stored         integer NOT NULL,
    duplicates     integer NOT NULL,
    rejected       integer NOT NULL,
    first_position bigint,
    last_position  bigint,
    CHECK (received = stored + duplicates + rejected),
    CHECK (stored = coalesce(last_position - first_position + 1, 0))
);
CREATE INDEX ingest_batches_committed_at ON kept.ingest_batches (committed_at);

-- Old rows of the ledger, added up by day so that it does not grow for ever.
CREATE TABLE kept.ingest_days (
    source         text COLLATE "C",
    day            date,
    batches        bigint NOT NULL,
    received       bigint NOT NULL,
    stored         bigint NOT NULL,
    duplicates     bigint NOT NULL,
    rejected       bigint NOT NULL,
    first_position bigint,
    last_position  bigint,
    PRIMARY KEY (source, day),
    CHECK (received = stored + duplicates + rejected)
);

CREATE VIEW kept.ingest_totals AS
SELECT source,
       sum(received)::bigint AS received,
       sum(stored)::bigint AS stored,
       sum(duplicates)::bigint AS duplicates,
       sum(rejected)::bigint AS rejected
FROM (
    SELECT source, received, stored, duplicates, rejected FROM kept.ingest_batches
    UNION ALL
    SELECT source, received, stored, duplicates, rejected FROM kept.ingest_days
) AS ledger
GROUP BY source;

-- What was refused, as it was received, with the reason. `problems` has all reasons, the columns the first.
CREATE TABLE kept.rejected_events (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rejected_at    timestamptz NOT NULL DEFAULT now(),
    source         text COLLATE "C" NOT NULL,
    layer          smallint NOT NULL,
    path           text NOT NULL,
    rule           text COLLATE "C" NOT NULL,
    sentence       text NOT NULL,
    problems       jsonb NOT NULL,
    kind           text COLLATE "C",
    producer       text,
    sent_by        text,
    correlation_id text COLLATE "C",
    raw            bytea NOT NULL,
    -- What counts against the byte cap: the event and the words about it, which can be longer than the event.
    kept_bytes     integer NOT NULL,
    -- When it was taken after all, and where in the log; no position if the log had it already.
    redriven_at    timestamptz,
    redriven_as    bigint
);
-- Retention takes the oldest; lists begin with the newest.
CREATE INDEX rejected_events_rejected_at ON kept.rejected_events (rejected_at);

-- How much the rejects take, and what the byte cap has cost so far. One row, kept in step by whoever adds or removes.
CREATE TABLE kept.reject_totals (
    one            boolean PRIMARY KEY DEFAULT true CHECK (one),
    events         bigint NOT NULL DEFAULT 0,
    bytes          bigint NOT NULL DEFAULT 0,
    capped_events  bigint NOT NULL DEFAULT 0,
    capped_bytes   bigint NOT NULL DEFAULT 0,
    last_capped_at timestamptz
);
INSERT INTO kept.reject_totals DEFAULT VALUES;

-- One group commit, in one statement. Events whose (key, digest) is known are duplicates. An event whose key is known in
-- other bytes only is disputed and left out of everything, unless its `content` is given: then contents decide. Answers
-- with ordinals (from 1), because nearly always there are none. Called with the id of a batch that had been committed
-- (the answer got lost) it does nothing but say where that batch lies.
-- One index probe for each event, then one for each insert, however many ways a key was told in. The settings keep a
-- large group from scanning the table; `IS TRUE` keeps it from being looked up by its time of receipt, under which
-- stands a whole day, as the planner may want where it knows of few keys only.
CREATE FUNCTION kept.append_events(
    batch uuid, from_source text,
    times timestamptz[], keys uuid[], digests uuid[], contents uuid[], raws bytea[],
    more_duplicates integer, more_rejected integer, remembered_seconds integer,
    OUT first_position bigint, OUT last_position bigint, OUT duplicates integer[], OUT disputed integer[],
    OUT was_committed boolean
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    head     kept.log_head;
    expired  timestamptz;
    received integer;
    stored   integer;
BEGIN
    SELECT * INTO head FROM kept.log_head FOR UPDATE;
    head.received_at := greatest(head.received_at, clock_timestamp());
    expired := head.received_at - make_interval(secs => remembered_seconds);

    SELECT known.first_position, known.last_position INTO first_position, last_position
    FROM kept.ingest_batches AS known WHERE known.id = batch;
    was_committed := FOUND;
    IF was_committed THEN
        RETURN;
    END IF;

    SELECT coalesce(array_agg(n) FILTER (WHERE is_duplicate), '{}'),
           coalesce(array_agg(n) FILTER (WHERE NOT is_duplicate AND content IS NULL), '{}')
    INTO duplicates, disputed
    FROM (
        SELECT said.n, said.content,
               EXISTS (
                   SELECT FROM kept.lineage_event_idempotency AS known
                   WHERE known.event_time = said.event_time AND known.key = said.key AND known.digest = said.digest
                     AND (known.received_at > expired) IS TRUE
               ) OR said.content IS NOT NULL AND EXISTS (
                   SELECT FROM kept.lineage_event_idempotency AS known
                   WHERE known.event_time = said.event_time AND known.key = said.key AND known.content = said.content
                     AND (known.received_at > expired) IS TRUE
               ) AS is_duplicate
        FROM unnest(times, keys, digests, contents) WITH ORDINALITY AS said (event_time, key, digest, content, n)
        -- Whether the key is known at all; of one that was told in many ways the first row says so.
        CROSS JOIN LATERAL (
            SELECT FROM kept.lineage_event_idempotency AS known
            WHERE known.event_time = said.event_time AND known.key = said.key AND (known.received_at > expired) IS TRUE
            LIMIT 1
        ) AS met
    ) AS met;

    stored := cardinality(keys) - cardinality(duplicates) - cardinality(disputed);
    IF stored > 0 THEN
        PERFORM kept.ensure_log_partition(head.received_at);
        first_position := head.position + 1;
        last_position := head.position + stored;
        UPDATE kept.log_head SET position = append_events.last_position, received_at = head.received_at;
        IF stored < cardinality(keys) THEN
            SELECT array_agg(said.event_time ORDER BY said.n), array_agg(said.key ORDER BY said.n),
                   array_agg(said.digest ORDER BY said.n), array_agg(said.content ORDER BY said.n),
                   array_agg(said.raw ORDER BY said.n)
            INTO times, keys, digests, contents, raws
            FROM unnest(times, keys, digests, contents, raws) WITH ORDINALITY
                 AS said (event_time, key, digest, content, raw, n)
            WHERE said.n <> ALL (append_events.duplicates) AND said.n <> ALL (append_events.disputed);
        END IF;
        INSERT INTO kept.lineage_events (position, received_at, raw)
        SELECT head.position + said.n, head.received_at, said.raw
        FROM unnest(raws) WITH ORDINALITY AS said (raw, n);
        INSERT INTO kept.lineage_event_idempotency (event_time, key, digest, content, position, received_at)
        SELECT said.event_time, said.key, said.digest, said.content, head.position + said.n, head.received_at
        FROM unnest(times, keys, digests, contents) WITH ORDINALITY AS said (event_time, key, digest, content, n)
        -- Only a key that has expired and is not yet removed can be in the way.
        ON CONFLICT (event_time, key, digest) DO UPDATE
        SET content = excluded.content, position = excluded.position, received_at = excluded.received_at;
    END IF;

    -- A group of nothing but disputes is entered when these are settled.
    received := stored + cardinality(duplicates) + more_duplicates + more_rejected;
    IF received > 0 THEN
        INSERT INTO kept.ingest_batches VALUES (
            batch, from_source, head.received_at,
            received, stored, cardinality(duplicates) + more_duplicates, more_rejected,
            append_events.first_position, append_events.last_position
        );
    END IF;
END
$$;

-- What is remembered under these keys without its content. Whoever settles reads all that is known under a key, so that
-- a key of which one content is known has none left to read: it is not looked through again for each of thousands of
-- events.
CREATE FUNCTION kept.unread_events(times timestamptz[], keys uuid[], remembered_seconds integer)
RETURNS TABLE (key uuid, digest uuid, "position" bigint, event_time timestamptz)
LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
    SELECT known.key, known.digest, known.position, known.event_time
    FROM (
        SELECT said.event_time, said.key FROM unnest(times, keys) AS said (event_time, key)
        WHERE NOT EXISTS (
            SELECT FROM kept.lineage_event_idempotency AS settled, kept.log_head AS head
            WHERE settled.event_time = said.event_time AND settled.key = said.key AND settled.content IS NOT NULL
              AND (settled.received_at > head.received_at - make_interval(secs => remembered_seconds)) IS TRUE
        )
        OFFSET 0
    ) AS said
    JOIN kept.lineage_event_idempotency AS known
      ON known.event_time = said.event_time AND known.key = said.key AND known.content IS NULL
$$;
