-- Who may talk to the server. Keys are few: every server reads the whole table every few seconds.
CREATE TABLE kept.api_keys (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL CHECK (name <> '' AND length(name) <= 100),
    -- SHA-256. A key has 256 random bits, so there is nothing to guess that a slow hash would have to protect.
    hash         bytea NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    -- The beginning of the key, by which people tell keys apart.
    prefix       text NOT NULL,
    scopes       text[] NOT NULL CHECK (
        cardinality(scopes) > 0 AND scopes <@ ARRAY['ingest', 'read', 'act', 'admin']
    ),
    created_at   timestamptz NOT NULL DEFAULT now(),
    created_by   text NOT NULL,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz
);

CREATE UNIQUE INDEX api_keys_name ON kept.api_keys (name) WHERE revoked_at IS NULL;

-- What happened to keys. No foreign key and the name beside the id: each line can be read by itself.
CREATE TABLE kept.key_audit (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT now(),
    action   text NOT NULL CHECK (action IN ('created', 'revoked', 'expired', 'denied')),
    actor    text NOT NULL,
    key_id   bigint NOT NULL,
    key_name text NOT NULL,
    detail   text NOT NULL DEFAULT ''
);

CREATE FUNCTION kept.refuse_to_forget_keys() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on % is refused: what happened to keys is never changed or removed', TG_OP, TG_TABLE_NAME
        USING HINT = CASE TG_TABLE_NAME
            WHEN 'api_keys' THEN 'Revoke the key instead: correlator keys revoke NAME'
            ELSE 'key_audit only grows'
        END;
END
$$;

CREATE TRIGGER key_audit_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON kept.key_audit
    FOR EACH STATEMENT EXECUTE FUNCTION kept.refuse_to_forget_keys();

-- Without any key the server is open to everybody, so that a deleted key would open it.
CREATE TRIGGER api_keys_are_revoked_not_deleted BEFORE DELETE OR TRUNCATE ON kept.api_keys
    FOR EACH STATEMENT EXECUTE FUNCTION kept.refuse_to_forget_keys();
