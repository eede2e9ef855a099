-- How many incidents are over, by what counts tell them apart. Those that are not are few, and are counted when
-- somebody asks: how they stand with people changes without them.
CREATE TABLE incident_totals (
    -- Of the other columns: a severity may be any text, and longer than an index entry may be.
    id        uuid PRIMARY KEY,
    kind      text COLLATE "C" NOT NULL,
    severity  text COLLATE "C" NOT NULL,
    is_root   boolean NOT NULL,
    incidents bigint NOT NULL
) WITH (fillfactor = 50);

-- For each statement that changes incidents, whoever makes it. The table is looked up beside that of the incidents,
-- wherever replay has put them.
CREATE FUNCTION keep_incident_totals() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    changed text := CASE TG_OP
        WHEN 'INSERT' THEN 'SELECT 1 AS n, * FROM added'
        WHEN 'DELETE' THEN 'SELECT -1 AS n, * FROM taken'
        WHEN 'UPDATE' THEN 'SELECT 1 AS n, * FROM added UNION ALL SELECT -1, * FROM taken'
    END;
    kept bigint;
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        EXECUTE format('DELETE FROM %I.incident_totals', TG_TABLE_SCHEMA);
        RETURN NULL;
    END IF;
    -- Most batches of events change none.
    IF TG_OP = 'DELETE' THEN
        PERFORM FROM taken LIMIT 1;
    ELSE
        PERFORM FROM added LIMIT 1;
    END IF;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    EXECUTE format($sql$
        INSERT INTO %1$I.incident_totals AS total (id, kind, severity, is_root, incidents)
        SELECT md5(concat_ws(chr(31), kind, root_id IS NULL, severity))::uuid, kind, severity, root_id IS NULL, sum(n)
        FROM (%2$s) AS changed
        WHERE resolved_at IS NOT NULL
        GROUP BY kind, severity, root_id IS NULL HAVING sum(n) <> 0
        ORDER BY 1
        ON CONFLICT (id) DO UPDATE SET incidents = total.incidents + excluded.incidents
    $sql$, TG_TABLE_SCHEMA, changed);
    GET DIAGNOSTICS kept = ROW_COUNT;
    IF kept > 0 AND TG_OP <> 'INSERT' THEN
        EXECUTE format('DELETE FROM %I.incident_totals WHERE incidents = 0', TG_TABLE_SCHEMA);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER incident_totals_added AFTER INSERT ON incidents
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION keep_incident_totals();
CREATE TRIGGER incident_totals_changed AFTER UPDATE ON incidents
    REFERENCING OLD TABLE AS taken NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION keep_incident_totals();
CREATE TRIGGER incident_totals_taken AFTER DELETE ON incidents
    REFERENCING OLD TABLE AS taken FOR EACH STATEMENT EXECUTE FUNCTION keep_incident_totals();
CREATE TRIGGER incident_totals_emptied AFTER TRUNCATE ON incidents
    FOR EACH STATEMENT EXECUTE FUNCTION keep_incident_totals();
-- Also in a session that turns triggers off by session_replication_role, as large merges do.
ALTER TABLE incidents
    ENABLE ALWAYS TRIGGER incident_totals_added,
    ENABLE ALWAYS TRIGGER incident_totals_changed,
    ENABLE ALWAYS TRIGGER incident_totals_taken,
    ENABLE ALWAYS TRIGGER incident_totals_emptied;

INSERT INTO incident_totals (id, kind, severity, is_root, incidents)
SELECT md5(concat_ws(chr(31), kind, root_id IS NULL, severity))::uuid, kind, severity, root_id IS NULL, count(*)
FROM incidents WHERE resolved_at IS NOT NULL GROUP BY kind, severity, root_id IS NULL;
