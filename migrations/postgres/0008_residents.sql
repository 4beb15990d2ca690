-- "Who was on a member at a time" reads one stretch of an index and one of a table, and looks no decision up. Expands only:
-- rows of the version before lack what is new, and their decisions are looked up as before. On some ten million
-- decisions the new index takes minutes, in which writers wait.

-- Of which decision a change is, and of which workload. NULL in rows that an earlier version wrote.
ALTER TABLE changes
    ADD COLUMN decision      text,
    ADD COLUMN namespace     text,
    ADD COLUMN workload_kind text,
    ADD COLUMN workload_name text;

DROP INDEX changes_by_cluster;
CREATE INDEX changes_by_cluster ON changes (cluster, decided_at, seq)
    INCLUDE (binding_uid, replicas_after, decision, namespace, workload_kind, workload_name);

CREATE OR REPLACE FUNCTION residents(member text, moment timestamptz)
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
            SELECT c.binding_uid, c.decided_at, c.seq, c.replicas_after, c.decision, c.namespace, c.workload_kind,
                   c.workload_name
            FROM changes c WHERE c.cluster = member AND c.decided_at > (SELECT at FROM base) AND c.decided_at <= moment
        ) AS u ORDER BY u.binding_uid COLLATE "C", u.decided_at DESC, u.seq DESC
    )
    SELECT l.binding_uid, l.namespace, l.workload_kind, l.workload_name, l.replicas, l.decision, l.decided_at
    FROM latest l WHERE l.replicas IS NOT NULL AND l.decision IS NOT NULL
    UNION ALL
    -- Row by row: whatever the planner believes, each is found by its key.
    SELECT l.binding_uid, d.namespace, d.workload_kind, d.workload_name, l.replicas, d.id, l.decided_at
    FROM latest l CROSS JOIN LATERAL (
        SELECT x.id, x.namespace, x.workload_kind, x.workload_name FROM decisions x
        WHERE x.seq = l.seq AND x.decided_at = l.decided_at LIMIT 1
    ) AS d WHERE l.replicas IS NOT NULL AND l.decision IS NULL;
END
$$;

-- Writes down who stood where, at the next time at which that is due: the oldest that became invalid, or the begin of a
-- week, or when as many decisions were made as shares stand, but not twice in an hour. So a question reads a few times
-- what it answers, and what is written down grows with what happened. Nothing after `latest`, when rows may still be
-- on their way. Tells whether it did: call it until it says no, each time in a transaction of its own.
CREATE OR REPLACE FUNCTION atoll_take_standing(latest timestamptz) RETURNS boolean
LANGUAGE plpgsql SET timezone = 'UTC' SET work_mem = '64MB' AS $$
DECLARE
    bound timestamptz := (SELECT kept_until FROM history_bounds);
    last standings;
    base timestamptz;
    moment timestamptz;
    busy timestamptz;
    seen bigint;
    upto bigint;
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
            last.at := (SELECT d.decided_at FROM decisions d WHERE d.decided_at >= bound ORDER BY d.decided_at LIMIT 1);
            last.seq := (SELECT d.seq - 1 FROM decisions d WHERE d.decided_at >= bound ORDER BY d.decided_at, d.seq LIMIT 1);
            last.shares := 0;
        END IF;
        moment := date_trunc('week', last.at) + interval '168 hours';
        busy := (SELECT d.decided_at FROM decisions d WHERE d.seq > last.seq + greatest(last.shares, 50000)
                 ORDER BY d.seq LIMIT 1);
        IF busy IS NOT NULL THEN
            moment := least(moment, greatest(busy, last.at + interval '1 hour'));
        END IF;
    END IF;
    IF moment IS NULL OR moment > latest THEN
        RETURN false;
    END IF;
    base := (SELECT COALESCE(max(at), '-infinity') FROM standings WHERE valid AND at < moment);
    upto := COALESCE((SELECT d.seq FROM decisions d WHERE d.decided_at <= moment
                      ORDER BY d.decided_at DESC, d.seq DESC LIMIT 1), 0);

    DELETE FROM standing_shares WHERE at = moment;
    INSERT INTO standing_shares
    SELECT moment, l.cluster, l.binding_uid, l.decided_at, l.seq, l.replicas, COALESCE(l.decision, d.id),
           COALESCE(l.namespace, d.namespace), COALESCE(l.workload_kind, d.workload_kind),
           COALESCE(l.workload_name, d.workload_name)
    FROM (
        SELECT DISTINCT ON (u.cluster COLLATE "C", u.binding_uid COLLATE "C") u.* FROM (
            SELECT s.cluster, s.binding_uid, s.decided_at, s.seq, s.replicas, s.decision, s.namespace, s.workload_kind,
                   s.workload_name
            FROM standing_shares s WHERE s.at = base
            UNION ALL
            SELECT c.cluster, c.binding_uid, c.decided_at, c.seq, c.replicas_after, c.decision, c.namespace,
                   c.workload_kind, c.workload_name
            FROM changes c WHERE c.decided_at > base AND c.decided_at <= moment
        ) AS u ORDER BY u.cluster COLLATE "C", u.binding_uid COLLATE "C", u.decided_at DESC, u.seq DESC
    ) AS l LEFT JOIN LATERAL (
        SELECT x.id, x.namespace, x.workload_kind, x.workload_name FROM decisions x
        WHERE l.decision IS NULL AND x.seq = l.seq AND x.decided_at = l.decided_at LIMIT 1
    ) AS d ON true
    WHERE l.replicas IS NOT NULL AND COALESCE(l.decision, d.id) IS NOT NULL;
    GET DIAGNOSTICS stood = ROW_COUNT;

    -- From here on writers wait.
    PERFORM pg_advisory_xact_lock(418565287020);
    IF EXISTS (SELECT FROM decisions WHERE seq > seen AND decided_at <= moment) THEN
        RAISE EXCEPTION 'rows of the time that is being written down came in' USING ERRCODE = 'serialization_failure';
    END IF;
    INSERT INTO standings VALUES (moment, upto, stood, true)
    ON CONFLICT (at) DO UPDATE SET seq = excluded.seq, shares = excluded.shares, valid = true;
    RETURN true;
END
$$;
