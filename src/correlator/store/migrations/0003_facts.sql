-- The fact tables: what events said, merged by the rules of rulebook/facts.py.
--
-- No name here carries its schema: all is made in the first schema of the search path, which is `facts` on every
-- connection of Correlator. Replay runs this same file with the search path at `facts_next`, fills the tables, and
-- renames the schema. So nothing in here may look a table up by name when it runs: views, keys and triggers hold on to
-- the things themselves and follow the rename.
--
-- How a row of rulebook/facts.py lies in its table:
-- * An id or digest of 16 bytes is a uuid. "No run" in a key is the nil uuid; elsewhere what is not there is NULL.
-- * A group of columns is columns. Where a stored order key decides, it stands beside them as `<group>_order`; while it
--   is NULL, nothing was said.
-- * A map of facets is two columns: `facets` holds the bodies that stand, by key, and `facet_orders` the order key of
--   each in hex. A key that has an order and no body was deleted.
-- Texts compare by code point (COLLATE "C") as in Python, because some rules take the lesser. None of them is in a
-- B-tree: names of thousands of characters are legal, and an entry holds 2,704 bytes.

-- When something was said, ready to compare: the event's time (8 bytes: microseconds since 1970, sign bit turned), its
-- rank (1), the first half of its content's digest (16). One column where three would be needed, of the same size, and
-- the merge is one comparison of bytes: GREATEST(standing, said).
CREATE DOMAIN order_key AS bytea CHECK (octet_length(VALUE) = 25);

CREATE TABLE jobs (
    id             uuid PRIMARY KEY,
    -- NULL for a job that is only known by name, as somebody's parent or source.
    first_event_at timestamptz,
    last_event_at  timestamptz,
    job_namespace  text COLLATE "C" NOT NULL,
    job_name       text COLLATE "C" NOT NULL,
    facets         jsonb NOT NULL DEFAULT '{}',
    facet_orders   jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 70);

CREATE TABLE job_runs (
    id                   uuid PRIMARY KEY,
    job_id               uuid NOT NULL,
    -- No foreign keys on parent and root: their children name them, often before or without events of their own.
    parent_job_run_id    uuid,
    root_job_run_id      uuid,

    -- The moments that the run's state is made of.
    first_event_at       timestamptz NOT NULL,
    first_start_at       timestamptz,
    fail_at              timestamptz,
    abort_at             timestamptz,
    complete_at          timestamptz,
    open_at              timestamptz,
    event_time           timestamptz NOT NULL,
    nominal_time         timestamptz,
    nominal_end_at       timestamptz,
    started_at           timestamptz NOT NULL
        GENERATED ALWAYS AS (coalesce(first_start_at, first_event_at)) STORED,
    ended_at             timestamptz
        GENERATED ALWAYS AS (least(fail_at, abort_at, complete_at)) STORED,

    -- Written by the merge from the moments above, and defended by the trigger below.
    current_state        text COLLATE "C" NOT NULL
        CHECK (current_state IN ('START', 'RUNNING', 'COMPLETE', 'FAIL', 'ABORT', 'OTHER')),
    -- The state at open_at; of the two RUNNING is the greater.
    open_state           text COLLATE "C" CHECK (open_state IN ('START', 'RUNNING')),
    event_type           text COLLATE "C" NOT NULL
        CHECK (event_type IN ('START', 'RUNNING', 'COMPLETE', 'FAIL', 'ABORT', 'OTHER')),
    states_lineage       boolean NOT NULL DEFAULT false,
    has_results          boolean NOT NULL DEFAULT false,
    -- A column of its own, so that its index is touched only by the few runs that contradict themselves: an index over
    -- the moments would make every update of a run write to every index (no HOT).
    contradicts_itself   boolean NOT NULL GENERATED ALWAYS AS (
        num_nonnulls(fail_at, abort_at, complete_at) > 1
        OR coalesce(open_at > least(fail_at, abort_at, complete_at), false)
    ) STORED,

    canonical_job_run_id text COLLATE "C" NOT NULL,
    job_namespace        text COLLATE "C" NOT NULL,
    job_name             text COLLATE "C" NOT NULL,
    run_id               text COLLATE "C" NOT NULL,
    producer             text COLLATE "C" NOT NULL,
    parent_run_id        text COLLATE "C",
    parent_job_namespace text COLLATE "C",
    parent_job_name      text COLLATE "C",
    root_run_id          text COLLATE "C",
    root_job_namespace   text COLLATE "C",
    root_job_name        text COLLATE "C",
    processing_type      text COLLATE "C",
    integration          text COLLATE "C",
    job_type             text COLLATE "C",
    error_message        text COLLATE "C",

    last_event_order     order_key NOT NULL,
    parent_order         order_key,
    nominal_order        order_key,
    type_order           order_key,
    error_order          order_key,

    -- [{"event_time": …, "state": …}, …], sorted by time, rank and state, each pair once; the first and the last 50.
    state_history        jsonb NOT NULL DEFAULT '[]',
    facets               jsonb NOT NULL DEFAULT '{}',
    facet_orders         jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 70);

-- The runs of a job, by time: its history, its last completed run, the run before a given one.
CREATE INDEX job_runs_of_job ON job_runs (job_id, started_at);
-- The tasks of a DAG run, and the retries of a task.
CREATE INDEX job_runs_of_parent ON job_runs (parent_job_run_id) WHERE parent_job_run_id IS NOT NULL;
-- All runs under one root, for reads and writes within a family.
CREATE INDEX job_runs_of_root ON job_runs (root_job_run_id) WHERE root_job_run_id IS NOT NULL;
-- The runs that contradict themselves, without reading the others.
CREATE INDEX job_runs_in_contradiction ON job_runs (id) WHERE contradicts_itself;

-- Layer 3. It looks at nothing but the row, so it holds in whatever schema and for whoever writes.
CREATE FUNCTION validate_job_run_state_transition() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.current_state IN ('COMPLETE', 'FAIL', 'ABORT') AND NEW.current_state IS DISTINCT FROM OLD.current_state THEN
        RAISE EXCEPTION 'Invalid state transition: % -> % (terminal states are immutable)',
            OLD.current_state, NEW.current_state
        USING ERRCODE = 'check_violation',
              HINT = 'Terminal states (COMPLETE/FAIL/ABORT) can only transition to themselves (idempotent)',
              SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
    END IF;
    -- Else an ended run could be moved out of the way and another put in its place.
    IF NEW.id IS DISTINCT FROM OLD.id THEN
        RAISE EXCEPTION 'Invalid change of identity: run % cannot become run %', OLD.id, NEW.id
        USING ERRCODE = 'check_violation',
              HINT = 'The id of a run is made of its job and run id and never changes; insert another row',
              SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END
$$;

-- The condition says again what the function refuses, so that no update that is allowed pays for a call: START → COMPLETE
-- took 8.4 µs a row without a trigger, 8.7 with this condition, 11.1 with a call (least of nine rounds, 50,000 rows).
CREATE TRIGGER job_run_state_validation
    BEFORE UPDATE ON job_runs
    FOR EACH ROW
    WHEN (
        OLD.current_state IN ('COMPLETE', 'FAIL', 'ABORT') AND OLD.current_state IS DISTINCT FROM NEW.current_state
        OR OLD.id IS DISTINCT FROM NEW.id
    )
    EXECUTE FUNCTION validate_job_run_state_transition();
-- Also in a session that turns triggers off by session_replication_role.
ALTER TABLE job_runs ENABLE ALWAYS TRIGGER job_run_state_validation;

-- What runs said that cannot all be true, in the words of rulebook/runs.py. Reads the index of contradictory runs.
CREATE VIEW run_contradictions AS
SELECT run.id AS job_run_id, run.job_id, said.kind, said.at, said.sentence
FROM job_runs AS run
CROSS JOIN LATERAL (
    -- Of several ends at one instant FAIL counts before ABORT, and ABORT before COMPLETE.
    SELECT reported.state, reported.at, row_number() OVER (ORDER BY reported.at, reported.place) AS number
    FROM (VALUES ('FAIL', run.fail_at, 1), ('ABORT', run.abort_at, 2), ('COMPLETE', run.complete_at, 3))
        AS reported (state, at, place)
    WHERE reported.at IS NOT NULL
) AS ending
CROSS JOIN LATERAL (
    SELECT
        'two_ends' AS kind,
        ending.at,
        'the run is ' || run.current_state || ', and '
            || CASE WHEN ending.at = run.ended_at THEN 'at the same time' ELSE 'later' END
            || ' it is said to be ' || ending.state AS sentence
    WHERE ending.number > 1
    UNION ALL
    SELECT
        'active_after_end',
        run.open_at,
        'the run is ' || run.current_state || ', and later a ' || run.open_state || ' is reported'
    WHERE ending.number = 1 AND run.open_at > run.ended_at
) AS said
WHERE run.contradicts_itself;

CREATE TABLE datasets (
    id                   uuid PRIMARY KEY,
    -- NULL for a dataset that is only named, as somebody's source.
    first_event_at       timestamptz,
    last_event_at        timestamptz,
    canonical_dataset_id text COLLATE "C" NOT NULL,
    -- As first sent.
    dataset_namespace    text COLLATE "C" NOT NULL,
    dataset_name         text COLLATE "C" NOT NULL,
    named_order          order_key NOT NULL,
    symlinks_order       order_key,
    -- [[id in hex, URN, type], …]: the other names that the dataset says it has.
    aliases              jsonb,
    facets               jsonb NOT NULL DEFAULT '{}',
    facet_orders         jsonb NOT NULL DEFAULT '{}',
    -- The schema facet as it stands in facets. The merge copies it when it changes: a generated column would be written
    -- anew by each update of the row (one trial, 40 columns: 193 µs and 10 KB of WAL, instead of 11 µs and 0.7 KB).
    schema_json          jsonb
) WITH (fillfactor = 70);

-- Whose other name is this? `aliases @> '[["<id in hex>"]]'`. The other way is a read of the row itself.
CREATE INDEX datasets_by_alias ON datasets USING gin (aliases jsonb_path_ops);

CREATE VIEW dataset_aliases AS
SELECT
    dataset.id AS dataset_id,
    (alias ->> 0)::uuid AS alias_id,
    alias ->> 1 AS alias_urn,
    alias ->> 2 AS alias_type
FROM datasets AS dataset
CROSS JOIN LATERAL jsonb_array_elements(dataset.aliases) AS alias;

CREATE TABLE lineage_edges (
    job_run_id       uuid NOT NULL REFERENCES job_runs DEFERRABLE INITIALLY DEFERRED,
    dataset_id       uuid NOT NULL REFERENCES datasets DEFERRABLE INITIALLY DEFERRED,
    first_event_at   timestamptz NOT NULL,
    last_event_at    timestamptz NOT NULL,
    row_count        bigint,
    byte_size        bigint,
    file_count       bigint,
    -- Who says so, as in statements.STRENGTH: 0 lineage facet, 1 columnLineage facet, 2 inputs and outputs, 3 rename.
    origin           smallint NOT NULL,
    -- Of an output, the strongest that tells where its data comes from; NULL when only the inputs beside it do.
    sources_told_by  smallint,
    edge_type        text COLLATE "C" NOT NULL CHECK (edge_type IN ('input', 'output')),
    dataset_version  text COLLATE "C",
    lifecycle_change text COLLATE "C",
    statistics_order order_key,
    version_order    order_key,
    lifecycle_order  order_key,
    facets           jsonb NOT NULL DEFAULT '{}',
    facet_orders     jsonb NOT NULL DEFAULT '{}',
    -- The run first: its edges come together, so a merge writes to few pages.
    PRIMARY KEY (job_run_id, dataset_id, edge_type)
) WITH (fillfactor = 80);

-- Who wrote a dataset, who read it, by time. The edge's first time, which rarely moves: the last one moves with every
-- event, and each move would be a write to every index.
CREATE INDEX lineage_edges_of_dataset ON lineage_edges (dataset_id, edge_type, first_event_at);

-- Column lineage comes again with every run, nearly always the same. So each mapping is stored once, and a run has the
-- list of its own (one trial, 16,667 runs with 60 each: 0.26 s to insert and 38 MB, bloat of an update included, where a
-- row of two ids for each edge took 7.8 s and 105 MB).
CREATE TABLE column_mappings (
    -- First half of the SHA-256 of the other columns: a key over them could be wider than an index entry may be.
    id             uuid PRIMARY KEY,
    target_id      uuid NOT NULL,
    source_id      uuid NOT NULL,
    -- As in lineage_edges.
    origin         smallint NOT NULL,
    masking        boolean NOT NULL,
    target_kind    text COLLATE "C" NOT NULL CHECK (target_kind IN ('dataset', 'job', 'run')),
    source_kind    text COLLATE "C" NOT NULL CHECK (source_kind IN ('dataset', 'job', 'run')),
    -- Empty for all of the dataset.
    target_field   text COLLATE "C" NOT NULL,
    source_field   text COLLATE "C" NOT NULL,
    transformation text COLLATE "C" NOT NULL,
    subtype        text COLLATE "C" NOT NULL
);

CREATE TABLE run_column_mappings (
    job_run_id  uuid PRIMARY KEY REFERENCES job_runs DEFERRABLE INITIALLY DEFERRED,
    -- Sorted, each once.
    mapping_ids uuid[] NOT NULL
) WITH (fillfactor = 80);

-- One row for each edge that a run states. Asked by run: one row, then one probe for each of its mappings.
CREATE VIEW column_edges AS
SELECT
    run.job_run_id,
    mapping.target_kind, mapping.target_id, mapping.target_field,
    mapping.source_kind, mapping.source_id, mapping.source_field,
    mapping.origin, mapping.transformation, mapping.subtype, mapping.masking
FROM run_column_mappings AS run
CROSS JOIN LATERAL unnest(run.mapping_ids) AS of_run (mapping_id)
JOIN column_mappings AS mapping ON mapping.id = of_run.mapping_id;

-- Outputs that RUNNING events named; which of them are versions, rulebook/runs.py tells from the whole run.
CREATE TABLE running_writes (
    job_run_id       uuid NOT NULL REFERENCES job_runs DEFERRABLE INITIALLY DEFERRED,
    dataset_id       uuid NOT NULL REFERENCES datasets DEFERRABLE INITIALLY DEFERRED,
    at               timestamptz NOT NULL,
    row_count        bigint,
    byte_size        bigint,
    file_count       bigint,
    statistics_order order_key,
    PRIMARY KEY (job_run_id, dataset_id, at)
);

-- The last write of a dataset before a moment.
CREATE INDEX running_writes_of_dataset ON running_writes (dataset_id, at);

-- Lineage that a JobEvent or DatasetEvent declares, whole; it stands until the same is declared again.
CREATE TABLE declarations (
    entity_id   uuid NOT NULL,
    event_time  timestamptz NOT NULL,
    digest      uuid NOT NULL,
    entity_kind text COLLATE "C" NOT NULL CHECK (entity_kind IN ('job', 'dataset')),
    -- `job`, or the key of the facet that tells.
    said_by     text COLLATE "C" NOT NULL,
    -- {"inputs": […], "outputs": […], "edges": [[…], …], "explicit": …, "told": {…}}, ids in hex.
    edges       jsonb NOT NULL,
    -- The last of an entity before a moment is the last entry of a range.
    PRIMARY KEY (entity_id, entity_kind, said_by, event_time)
);

CREATE TABLE facet_history (
    entity_id   uuid NOT NULL,
    -- The run that said so; the nil uuid when a JobEvent or DatasetEvent did.
    job_run_id  uuid NOT NULL,
    event_time  timestamptz NOT NULL,
    digest      uuid NOT NULL,
    -- Into facet_bodies; NULL where the facet was deleted.
    body_digest uuid,
    rank        smallint NOT NULL,
    entity_kind text COLLATE "C" NOT NULL CHECK (entity_kind IN ('job', 'dataset')),
    facet_key   text COLLATE "C" NOT NULL,
    -- The history of one facet of one entity is a range in order of time.
    PRIMARY KEY (entity_id, entity_kind, facet_key, event_time, job_run_id)
);

CREATE TABLE facet_bodies (
    digest uuid PRIMARY KEY,
    -- Without _producer and _schemaURL.
    body   jsonb NOT NULL
);

CREATE TABLE test_results (
    test_id       uuid NOT NULL,
    job_run_id    uuid NOT NULL REFERENCES job_runs DEFERRABLE INITIALLY DEFERRED,
    -- NULL for a result of the `test` run facet, which names no dataset.
    dataset_id    uuid REFERENCES datasets DEFERRABLE INITIALLY DEFERRED,
    event_time    timestamptz NOT NULL,
    of_own_output boolean NOT NULL,
    status        text COLLATE "C" NOT NULL CHECK (status IN ('pass', 'fail', 'warn', 'skip')),
    test_name     text COLLATE "C" NOT NULL,
    column_name   text COLLATE "C" NOT NULL,
    -- Canonical JSON; empty for none.
    parameters    text COLLATE "C" NOT NULL,
    severity      text COLLATE "C" NOT NULL,
    expected      text COLLATE "C" NOT NULL,
    actual        text COLLATE "C" NOT NULL,
    message       text COLLATE "C" NOT NULL,
    description   text COLLATE "C" NOT NULL,
    result_order  order_key NOT NULL,
    PRIMARY KEY (job_run_id, test_id)
) WITH (fillfactor = 80);

-- The results of a test in order, from which streaks are read.
CREATE INDEX test_results_of_test ON test_results (test_id, event_time, job_run_id);
-- The last results on a dataset.
CREATE INDEX test_results_of_dataset ON test_results (dataset_id, event_time) WHERE dataset_id IS NOT NULL;

-- Unbroken streaks of failures, derived by the merge for what a batch touched.
CREATE TABLE incidents (
    -- That of the streak's first failing result.
    id             uuid PRIMARY KEY,
    -- The incident further upstream that this one is a consequence of.
    root_id        uuid REFERENCES incidents DEFERRABLE INITIALLY DEFERRED CHECK (root_id <> id),
    -- What fails: a test, or a job's runs.
    test_id        uuid,
    job_id         uuid,
    -- NULL for a test of no known dataset.
    dataset_id     uuid,
    -- The run of the first failing result.
    job_run_id     uuid NOT NULL REFERENCES job_runs DEFERRABLE INITIALLY DEFERRED,
    opened_at      timestamptz NOT NULL,
    last_failed_at timestamptz NOT NULL CHECK (last_failed_at >= opened_at),
    resolved_at    timestamptz,
    kind           text COLLATE "C" NOT NULL CHECK (kind IN ('test', 'run')),
    CHECK ((kind = 'test') = (test_id IS NOT NULL) AND (kind = 'run') = (job_id IS NOT NULL))
) WITH (fillfactor = 80);

-- What is wrong now.
CREATE INDEX incidents_open ON incidents (opened_at) WHERE resolved_at IS NULL;
-- The streaks of one test, and of one job.
CREATE INDEX incidents_of_test ON incidents (test_id, opened_at) WHERE test_id IS NOT NULL;
CREATE INDEX incidents_of_job ON incidents (job_id, opened_at) WHERE job_id IS NOT NULL;
-- The consequences of an incident.
CREATE INDEX incidents_of_root ON incidents (root_id) WHERE root_id IS NOT NULL;
