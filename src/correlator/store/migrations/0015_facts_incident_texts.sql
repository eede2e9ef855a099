-- What an incident is found by: the names of what failed and what was said of it, as one text for each. Kept by the
-- derivation of incidents, within its transaction. As in 0003 no name carries its schema.
CREATE TABLE incident_texts (
    incident_id uuid PRIMARY KEY,
    said        text COLLATE "C" NOT NULL
);

-- Of a test that failed in a run, or of a run without one. Between two parts stands a sign that nobody types. Messages
-- can be megabytes: what is looked for stands at their beginning.
CREATE FUNCTION text_of_incident(of_test uuid, of_run uuid, of_dataset uuid) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (
    SELECT concat_ws(
        chr(31), left(run.job_namespace || '/' || run.job_name, 2000), left(run.run_id, 2000),
        left(dataset.canonical_dataset_id, 2000), left(said.test_name, 2000), left(said.column_name, 2000),
        left(said.message, 2000), left(run.error_message, 2000)
    )
    FROM job_runs AS run
    LEFT JOIN datasets AS dataset ON dataset.id = of_dataset
    LEFT JOIN LATERAL (
        SELECT result.test_name, result.column_name, result.message FROM standing_results AS result
        WHERE result.job_run_id = of_run AND result.test_id = of_test LIMIT 1
    ) AS said ON true
    WHERE run.id = of_run
);

-- Every three letters in a row, and what is left at the end: a part of a text has none that the text has not. By the
-- beginnings of these, parts of one or two letters are found too.
CREATE FUNCTION pieces_of(said text) RETURNS tsvector
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 1000
RETURN (
    SELECT coalesce(array_to_tsvector(array_agg(DISTINCT piece)), '')
    FROM (
        SELECT letter || lead(letter, 1, '') OVER in_order || lead(letter, 2, '') OVER in_order AS piece
        FROM string_to_table(lower(said COLLATE "C"), NULL) WITH ORDINALITY AS one (letter, place)
        WINDOW in_order AS (ORDER BY place)
    ) AS cut
);

INSERT INTO incident_texts (incident_id, said)
SELECT id, text_of_incident(test_id, job_run_id, dataset_id) FROM incidents;
ALTER TABLE incident_texts
    ADD FOREIGN KEY (incident_id) REFERENCES incidents DEFERRABLE INITIALLY DEFERRED;

-- What waits to be put in its place is read by every question: no more than that.
CREATE INDEX incident_texts_by_pieces ON incident_texts USING gin (pieces_of(said))
    WITH (gin_pending_list_limit = 512);
