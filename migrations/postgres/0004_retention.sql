-- Old history goes by the week. Expands only: a controller of the version before goes on writing.

-- Which rules refused how many clusters: {rule: clusters}. NULL = not known.
ALTER TABLE decisions ADD COLUMN rejections jsonb;

-- One row. What was decided before kept_until is in the tables *_kept: what stood at that time, and nothing else.
-- Programs that know schema version oldest_writer may write; a later migration that takes something away raises it.
CREATE TABLE history_bounds (
    kept_until      timestamptz NOT NULL,
    oldest_writer   bigint      NOT NULL
);
INSERT INTO history_bounds VALUES ('1969-12-29 00:00:00+00', 2);

-- What stands stays, however old it is: the last decision of every binding that has not ended, and the last change of
-- every share. Without them nobody could say why a workload that has not moved for a year is where it is.
CREATE TABLE decisions_kept PARTITION OF decisions FOR VALUES FROM (MINVALUE) TO ('1969-12-29 00:00:00+00');
CREATE TABLE changes_kept PARTITION OF changes FOR VALUES FROM (MINVALUE) TO ('1969-12-29 00:00:00+00');
CREATE TABLE milestones_kept PARTITION OF milestones FOR VALUES FROM (MINVALUE) TO ('1969-12-29 00:00:00+00');

-- As before, but weeks that were swept are not made again: what comes late for them goes to what is kept.
CREATE OR REPLACE FUNCTION atoll_make_partitions(first timestamptz, last timestamptz) RETURNS void
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    week timestamptz := date_trunc('week', first);
    bound timestamptz := (SELECT kept_until FROM history_bounds);
    part text;
    base text;
BEGIN
    WHILE week <= last LOOP
        FOREACH base IN ARRAY ARRAY['decisions', 'changes', 'milestones', 'member_events'] LOOP
            part := base || to_char(week, '_YYYYMMDD');
            IF to_regclass(part) IS NULL AND (week >= bound OR base = 'member_events') THEN
                EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS)', part, base);
                EXECUTE format(
                    'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                    base, part, week, week + interval '168 hours'
                );
            END IF;
        END LOOP;
        week := week + interval '168 hours';
    END LOOP;
END
$$;

-- Drops the oldest week if it ended before this time, and keeps of it and of what was kept before what stood at its end.
-- Tells whether it did: call it until it says no, each time in a transaction of its own. Writers are held up only for
-- the exchange of tables at its end; whatever needs long is done before.
CREATE FUNCTION atoll_sweep(before timestamptz) RETURNS boolean
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
          AND to_timestamp(right(c.relname, 8), 'YYYYMMDD') + interval '168 hours' <= before
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

    CREATE TABLE decisions_next (LIKE decisions INCLUDING DEFAULTS INCLUDING INDEXES);
    CREATE TABLE changes_next (LIKE changes INCLUDING DEFAULTS INCLUDING INDEXES);
    CREATE TABLE milestones_next (LIKE milestones INCLUDING DEFAULTS INCLUDING INDEXES);
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
    RETURN true;
END
$$;
