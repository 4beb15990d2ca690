-- Views as before, for histories of millions of decisions: the decision of each change is found by its key. Joined, the
-- planner reads the decisions of all weeks, because it does not see that both tables' times are bounded alike.

CREATE OR REPLACE VIEW member_timeline AS
SELECT c.cluster, c.decided_at AS at, 'Share' AS what, d.id AS decision, d.trigger_name, d.outcome, d.namespace,
       d.workload_kind, d.workload_name, c.replicas_before, c.replicas_after, d.reason
FROM changes c CROSS JOIN LATERAL (
    SELECT * FROM decisions x WHERE x.decided_at = c.decided_at AND x.seq = c.seq LIMIT 1
) AS d
UNION ALL
SELECT e.cluster, e.at, e.kind, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       concat_ws(': ', NULLIF(e.reason, ''), NULLIF(e.message, ''))
FROM member_events e;

CREATE OR REPLACE VIEW moves AS
SELECT c.decided_at AS at, d.id AS decision, d.namespace, d.workload_kind, d.workload_name, d.trigger_name, c.cluster,
       COALESCE(c.replicas_after, 0) - COALESCE(c.replicas_before, 0) AS change, d.reason
FROM changes c CROSS JOIN LATERAL (
    SELECT * FROM decisions x WHERE x.decided_at = c.decided_at AND x.seq = c.seq LIMIT 1
) AS d
WHERE COALESCE(c.replicas_after, 0) <> COALESCE(c.replicas_before, 0);

-- As before, but a name is read as a time only where it is one: in a database of many weeks the planner looks at the names
-- of all tables first.
CREATE OR REPLACE FUNCTION atoll_sweep(before timestamptz) RETURNS boolean
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    week text;
    bound timestamptz;
    seen bigint;
    base text;
    part record;
BEGIN
    -- Another controller that sweeps is not waited for.
    IF NOT pg_try_advisory_xact_lock(418565287021) THEN
        RETURN false;
    END IF;
    FOR part IN
        SELECT c.relname AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'member_events'::regclass
          AND CASE WHEN c.relname ~ '^member_events_[0-9]{8}$'
                   THEN to_timestamp(right(c.relname, 8), 'YYYYMMDD') + interval '168 hours' <= before ELSE false END
    LOOP
        EXECUTE format('DROP TABLE %I', part.name);
    END LOOP;
    SELECT min(right(c.relname, 8)) INTO week FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'decisions'::regclass AND c.relname ~ '_[0-9]{8}$';
    bound := to_timestamp(week, 'YYYYMMDD') + interval '168 hours';
    IF bound IS NULL OR bound > before THEN
        RETURN false;
    END IF;
    seen := (SELECT COALESCE(max(seq), 0) FROM decisions);

    CREATE TABLE decisions_next (LIKE decisions INCLUDING DEFAULTS INCLUDING INDEXES INCLUDING STORAGE);
    CREATE TABLE changes_next (LIKE changes INCLUDING DEFAULTS INCLUDING INDEXES INCLUDING STORAGE);
    CREATE TABLE milestones_next (LIKE milestones INCLUDING DEFAULTS INCLUDING INDEXES INCLUDING STORAGE);
    INSERT INTO changes_next SELECT * FROM (
        SELECT DISTINCT ON (cluster, binding_uid) * FROM changes WHERE decided_at < bound
        ORDER BY cluster, binding_uid, decided_at DESC, seq DESC
    ) AS last WHERE replicas_after IS NOT NULL;
    INSERT INTO decisions_next SELECT * FROM decisions WHERE decided_at < bound AND seq IN (
        SELECT seq FROM changes_next
        UNION ALL
        SELECT seq FROM (
            SELECT DISTINCT ON (binding_uid) seq, trigger_name FROM decisions WHERE decided_at < bound
            ORDER BY binding_uid, decided_at DESC, seq DESC
        ) AS last WHERE trigger_name <> 'Withdrawn'
    );
    INSERT INTO milestones_next SELECT * FROM milestones
    WHERE decided_at < bound AND decision IN (SELECT id FROM decisions_next);

    -- From here on writers wait.
    PERFORM pg_advisory_xact_lock(418565287020);
    IF EXISTS (SELECT FROM decisions WHERE decided_at < bound AND seq > seen) THEN
        RAISE EXCEPTION 'rows of a week that is being dropped came in' USING ERRCODE = 'serialization_failure';
    END IF;
    FOREACH base IN ARRAY ARRAY['decisions', 'changes', 'milestones'] LOOP
        EXECUTE format('DROP TABLE IF EXISTS %I', base || '_' || week);
        EXECUTE format('DROP TABLE %I', base || '_kept');
        EXECUTE format('ALTER TABLE %I RENAME TO %I', base || '_next', base || '_kept');
        EXECUTE format(
            'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%L)', base, base || '_kept', bound
        );
    END LOOP;
    UPDATE history_bounds SET kept_until = bound;
    DELETE FROM standing_shares WHERE at < bound;
    DELETE FROM standings WHERE at < bound;
    RETURN true;
END
$$;
