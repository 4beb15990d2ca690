-- Faster to write, and "who was on a member at a time" bounded however long history is. Expands only: a controller of
-- the version before goes on writing. On some ten million decisions the new index takes minutes, in which writers wait.

-- One index on changes instead of two; it alone answers what happened to a member's shares.
ALTER TABLE changes DROP CONSTRAINT changes_pkey;
DROP INDEX changes_by_binding;
CREATE INDEX changes_by_cluster ON changes (cluster, decided_at, seq) INCLUDE (binding_uid, replicas_after);

-- Details are compressed already.
ALTER TABLE decisions ALTER COLUMN detail SET STORAGE EXTERNAL;

-- Times at which it was written down who stood where: who was on a member later is that and the changes since. What
-- was decided up to then and recorded later makes a standing invalid, until it is written anew.
CREATE TABLE standings (
    at              timestamptz PRIMARY KEY,
    seq             bigint      NOT NULL, -- rows up to this number were seen
    shares          bigint      NOT NULL, -- how many stood
    valid           boolean     NOT NULL
);

-- The shares that stood at the time of a standing, each with the decision that set it.
CREATE TABLE standing_shares (
    at              timestamptz NOT NULL,
    cluster         text        NOT NULL,
    binding_uid     text        NOT NULL,
    decided_at      timestamptz NOT NULL,
    seq             bigint      NOT NULL,
    replicas        bigint      NOT NULL,
    decision        text        NOT NULL,
    namespace       text        NOT NULL,
    workload_kind   text        NOT NULL,
    workload_name   text        NOT NULL
);

CREATE INDEX standing_shares_by_cluster ON standing_shares (at, cluster);

-- Who had a share on a member at a time, and since when.
CREATE FUNCTION residents(member text, moment timestamptz)
RETURNS TABLE (binding_uid text, namespace text, workload_kind text, workload_name text, replicas bigint, decision text,
               since timestamptz)
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH base AS MATERIALIZED (
        SELECT COALESCE(max(s.at), '-infinity') AS at FROM standings s WHERE s.valid AND s.at <= moment
    ), latest AS MATERIALIZED (
        SELECT DISTINCT ON (u.binding_uid COLLATE "C") u.* FROM (
            SELECT s.binding_uid, s.decided_at, s.seq, s.replicas, s.decision, s.namespace, s.workload_kind,
                   s.workload_name
            FROM standing_shares s WHERE s.at = (SELECT at FROM base) AND s.cluster = member
            UNION ALL
            SELECT c.binding_uid, c.decided_at, c.seq, c.replicas_after, NULL, NULL, NULL, NULL
            FROM changes c WHERE c.cluster = member AND c.decided_at > (SELECT at FROM base) AND c.decided_at <= moment
        ) AS u ORDER BY u.binding_uid COLLATE "C", u.decided_at DESC, u.seq DESC
    )
    -- Row by row: whatever the planner believes, each is found by its key.
    SELECT l.binding_uid, COALESCE(l.namespace, n.namespace), COALESCE(l.workload_kind, n.workload_kind),
           COALESCE(l.workload_name, n.workload_name), l.replicas, COALESCE(l.decision, n.id), l.decided_at
    FROM latest l LEFT JOIN LATERAL (
        SELECT d.id, d.namespace, d.workload_kind, d.workload_name FROM decisions d
        WHERE l.decision IS NULL AND d.seq = l.seq AND d.decided_at = l.decided_at LIMIT 1
    ) AS n ON true
    WHERE l.replicas IS NOT NULL AND COALESCE(l.decision, n.id) IS NOT NULL;
END
$$;

-- Writes down who stood where, at the next time at which that is due: the oldest that became invalid, or the begin of a
-- week, or, where much happens, now. Nothing after `latest`, when rows may still be on their way. Tells whether it did:
-- call it until it says no, each time in a transaction of its own.
CREATE FUNCTION atoll_take_standing(latest timestamptz) RETURNS boolean
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    bound timestamptz := (SELECT kept_until FROM history_bounds);
    last standings;
    base timestamptz;
    moment timestamptz;
    seen bigint;
    stood bigint;
BEGIN
    -- Another controller that keeps house is not waited for.
    IF NOT pg_try_advisory_xact_lock(418565287021) THEN
        RETURN false;
    END IF;
    seen := (SELECT COALESCE(max(seq), 0) FROM decisions);
    SELECT min(at) INTO moment FROM standings WHERE NOT valid;
    IF moment IS NULL THEN
        SELECT * INTO last FROM standings ORDER BY at DESC LIMIT 1;
        IF last.at IS NULL THEN
            moment := date_trunc('week', (SELECT min(decided_at) FROM decisions WHERE decided_at >= bound));
        ELSE
            moment := date_trunc('week', last.at);
        END IF;
        moment := moment + interval '168 hours';
        -- More changes than twice what stands: reading them costs more than writing it down again.
        IF moment > latest AND seen - last.seq >= 2 * greatest(last.shares, 50000) THEN
            moment := latest;
        END IF;
    END IF;
    IF moment IS NULL OR moment > latest OR moment <= last.at THEN
        RETURN false;
    END IF;
    base := (SELECT COALESCE(max(at), '-infinity') FROM standings WHERE valid AND at < moment);

    DELETE FROM standing_shares WHERE at = moment;
    INSERT INTO standing_shares
    SELECT moment, l.cluster, l.binding_uid, l.decided_at, l.seq, l.replicas, COALESCE(l.decision, d.id),
           COALESCE(l.namespace, d.namespace), COALESCE(l.workload_kind, d.workload_kind),
           COALESCE(l.workload_name, d.workload_name)
    FROM (
        SELECT DISTINCT ON (u.cluster, u.binding_uid) u.* FROM (
            SELECT s.cluster, s.binding_uid, s.decided_at, s.seq, s.replicas, s.decision, s.namespace, s.workload_kind,
                   s.workload_name
            FROM standing_shares s WHERE s.at = base
            UNION ALL
            SELECT c.cluster, c.binding_uid, c.decided_at, c.seq, c.replicas_after, NULL, NULL, NULL, NULL
            FROM changes c WHERE c.decided_at > base AND c.decided_at <= moment
        ) AS u ORDER BY u.cluster, u.binding_uid, u.decided_at DESC, u.seq DESC
    ) AS l LEFT JOIN decisions d ON l.decision IS NULL AND d.seq = l.seq AND d.decided_at = l.decided_at
                                AND d.decided_at > base AND d.decided_at <= moment
    WHERE l.replicas IS NOT NULL AND COALESCE(l.decision, d.id) IS NOT NULL ORDER BY l.cluster;
    GET DIAGNOSTICS stood = ROW_COUNT;

    -- From here on writers wait.
    PERFORM pg_advisory_xact_lock(418565287020);
    IF EXISTS (SELECT FROM decisions WHERE seq > seen AND decided_at <= moment) THEN
        RAISE EXCEPTION 'rows of the time that is being written down came in' USING ERRCODE = 'serialization_failure';
    END IF;
    INSERT INTO standings VALUES (moment, seen, stood, true)
    ON CONFLICT (at) DO UPDATE SET seq = excluded.seq, shares = excluded.shares, valid = true;
    RETURN true;
END
$$;

-- As before; tables store columns as their parent does.
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
                EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING STORAGE)', part, base);
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

-- As before, and with a week go the standings of its time.
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

-- As before, but decisions are looked up for the shares that are asked for alone.
CREATE OR REPLACE VIEW placements_over_time AS
SELECT shares.cluster, d.namespace, d.workload_kind, d.workload_name, shares.binding_uid,
       shares.replicas_after AS replicas, shares.decided_at AS valid_from, shares.valid_until
FROM (
    SELECT c.cluster, c.binding_uid, c.seq, c.decided_at, c.replicas_after,
           lead(c.decided_at) OVER (PARTITION BY c.cluster, c.binding_uid ORDER BY c.decided_at, c.seq) AS valid_until
    FROM changes c
) AS shares JOIN decisions d ON d.decided_at = shares.decided_at AND d.seq = shares.seq
WHERE shares.replicas_after IS NOT NULL;
