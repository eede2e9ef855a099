-- What people say and set up, which no replay may touch.

-- Words and deeds about incidents, in the order in which they were said. Each is said of a failure, and belongs to the
-- incident that has this failure now.
CREATE TABLE kept.incident_actions (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    failure_id uuid NOT NULL,
    -- The test or job that failed.
    subject_id uuid NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor      text NOT NULL,
    kind       text COLLATE "C" NOT NULL
        CHECK (kind IN ('acknowledge', 'assign', 'mute', 'unmute', 'resolve', 'reopen', 'comment')),
    -- assign: who; mute: until when; resolve: the reason.
    assignee   text,
    until      timestamptz,
    reason     text COLLATE "C",
    note       text,
    -- reopen: the resolve that it takes back.
    cancels    bigint REFERENCES kept.incident_actions
);
CREATE INDEX incident_actions_of_failure ON kept.incident_actions (failure_id);
CREATE INDEX incident_actions_of_subject ON kept.incident_actions (subject_id, at);
CREATE UNIQUE INDEX incident_actions_cancelled ON kept.incident_actions (cancels) WHERE cancels IS NOT NULL;

-- Where a person's resolve ends a streak: a failure after it opens a new incident. Reopening takes it back.
CREATE VIEW kept.incident_cuts AS
SELECT resolve.subject_id, resolve.at, resolve.id AS action_id
FROM kept.incident_actions AS resolve
WHERE resolve.kind = 'resolve'
  AND NOT EXISTS (SELECT FROM kept.incident_actions AS reopen WHERE reopen.cancels = resolve.id);

-- What only a site knows about its names: what matches the pattern is called by the target. The first that matches
-- counts, by their place.
CREATE TABLE kept.dataset_patterns (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    place      integer NOT NULL,
    pattern    text NOT NULL UNIQUE,
    target     text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL
);

-- What is hidden from questions: the noise of tests and sandboxes.
CREATE TABLE kept.ignored_names (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind       text COLLATE "C" NOT NULL CHECK (kind IN ('namespace', 'job', 'dataset')),
    pattern    text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    UNIQUE (kind, pattern)
);

-- Who is told of what.
CREATE TABLE kept.alert_routes (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    kind       text COLLATE "C" NOT NULL CHECK (kind IN ('webhook', 'slack', 'pagerduty')),
    url        text NOT NULL,
    -- Signs a webhook; the routing key of PagerDuty.
    secret     text,
    -- What it is for: all that is named has to fit; an empty list fits everything.
    owners     text[] NOT NULL DEFAULT '{}',
    namespaces text[] NOT NULL DEFAULT '{}',
    severities text[] NOT NULL DEFAULT '{}',
    is_enabled boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL
);

-- Alerts on their way. A row is written once for each route and incident, and stays, so that nobody is told twice.
CREATE TABLE kept.alert_outbox (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    route_id    bigint NOT NULL REFERENCES kept.alert_routes ON DELETE CASCADE,
    -- A failure of the incident, or a name such as `pipeline:lag`.
    about       text COLLATE "C" NOT NULL,
    event       text COLLATE "C" NOT NULL CHECK (event IN ('opened', 'resolved', 'test')),
    payload     bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    due_at      timestamptz NOT NULL DEFAULT now(),
    attempts    integer NOT NULL DEFAULT 0,
    sent_at     timestamptz,
    given_up_at timestamptz,
    last_error  text,
    UNIQUE (route_id, about, event)
);
CREATE INDEX alert_outbox_due ON kept.alert_outbox (due_at) WHERE sent_at IS NULL AND given_up_at IS NULL;
