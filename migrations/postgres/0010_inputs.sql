-- What each decision read: the differences from the inputs of an earlier decision, compressed. NULL = not stored.
ALTER TABLE decisions ADD COLUMN inputs bytea;
-- They are compressed already.
ALTER TABLE decisions ALTER COLUMN inputs SET STORAGE EXTERNAL;

-- As before, but decisions that stay when their week is given up lose their inputs.
CREATE OR REPLACE FUNCTION atoll_sweep(before timestamptz) RETURNS boolean
LANGUAGE plpgsql SET timezone = 'UTC' SET work_mem = '64MB' SET maintenance_work_mem = '64MB' AS $$
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

    CREATE TABLE decisions_next (LIKE decisions INCLUDING DEFAULTS INCLUDING STORAGE);
    CREATE TABLE changes_next (LIKE changes INCLUDING DEFAULTS INCLUDING STORAGE);
    CREATE TABLE milestones_next (LIKE milestones INCLUDING DEFAULTS INCLUDING STORAGE);
    -- What stood at the end of the week and was decided before. A share that changed in that very moment is in the next.
    IF EXISTS (SELECT FROM standings WHERE at = bound AND valid) THEN
        INSERT INTO changes_next SELECT * FROM changes c WHERE c.decided_at < bound AND (c.seq, c.cluster) IN (
            SELECT s.seq, s.cluster FROM standing_shares s WHERE s.at = bound
        );
    ELSE
        INSERT INTO changes_next SELECT * FROM changes c WHERE c.decided_at < bound AND (c.seq, c.cluster) IN (
            SELECT l.seq, l.cluster FROM (
                SELECT DISTINCT ON (x.cluster COLLATE "C", x.binding_uid COLLATE "C") x.cluster, x.seq, x.replicas_after
                FROM changes x WHERE x.decided_at < bound
                ORDER BY x.cluster COLLATE "C", x.binding_uid COLLATE "C", x.decided_at DESC, x.seq DESC
            ) AS l WHERE l.replicas_after IS NOT NULL
        );
    END IF;
    INSERT INTO decisions_next SELECT * FROM decisions WHERE decided_at < bound AND seq IN (
        SELECT seq FROM changes_next
        UNION ALL
        SELECT seq FROM (
            SELECT DISTINCT ON (binding_uid COLLATE "C") seq, trigger_name FROM decisions WHERE decided_at < bound
            ORDER BY binding_uid COLLATE "C", decided_at DESC, seq DESC
        ) AS last WHERE trigger_name <> 'Withdrawn'
    );
    INSERT INTO milestones_next SELECT * FROM milestones
    WHERE decided_at < bound AND decision IN (SELECT id FROM decisions_next);
    -- Inputs build on those of earlier decisions, which go with the week.
    UPDATE decisions_next SET inputs = NULL WHERE inputs IS NOT NULL;
    -- The indexes of the parents: those that attaching would make while writers wait.
    FOR part IN
        SELECT pg_get_indexdef(i.indexrelid) AS made, i.indisprimary AS is_key, t.relname || '_next' AS next
        FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
        WHERE t.oid IN ('decisions'::regclass, 'changes'::regclass, 'milestones'::regclass)
    LOOP
        IF part.is_key THEN
            EXECUTE format('ALTER TABLE %I ADD PRIMARY KEY %s', part.next, substring(part.made FROM '\(.*\)'));
        ELSE
            EXECUTE format('CREATE INDEX ON %I %s', part.next, substring(part.made FROM 'USING .*'));
        END IF;
    END LOOP;
    DELETE FROM standing_shares WHERE at < bound;

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
    DELETE FROM standings WHERE at < bound;
    RETURN true;
END
$$;
