-- The views again: with events of members, refusals, and what took long. `moves` and `placements_over_time` as they were.
DROP VIEW moves;
DROP VIEW member_timeline;

-- What happened on a member: shares that decisions changed (what = 'Share'), and events of its own.
CREATE VIEW member_timeline AS
SELECT c.cluster, c.decided_at AS at, 'Share' AS what, d.id AS decision, d.trigger_name, d.outcome, d.namespace,
       d.workload_kind, d.workload_name, c.replicas_before, c.replicas_after, d.reason
FROM changes c JOIN decisions d ON d.decided_at = c.decided_at AND d.seq = c.seq
UNION ALL
SELECT e.cluster, e.at, e.kind, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       concat_ws(': ', NULLIF(e.reason, ''), NULLIF(e.message, ''))
FROM member_events e;

-- Replicas that came to a cluster (change above 0) or left it, with the decision that did it.
CREATE VIEW moves AS
SELECT c.decided_at AS at, d.id AS decision, d.namespace, d.workload_kind, d.workload_name, d.trigger_name, c.cluster,
       COALESCE(c.replicas_after, 0) - COALESCE(c.replicas_before, 0) AS change, d.reason
FROM changes c JOIN decisions d ON d.decided_at = c.decided_at AND d.seq = c.seq
WHERE COALESCE(c.replicas_after, 0) <> COALESCE(c.replicas_before, 0);

-- How many clusters a rule refused in a decision.
CREATE VIEW rejections AS
SELECT d.decided_at AS at, d.id AS decision, d.namespace, d.workload_kind, d.workload_name, d.trigger_name, d.outcome,
       r.key AS rule, r.value::bigint AS clusters
FROM decisions d CROSS JOIN LATERAL jsonb_each_text(d.rejections) AS r;

-- Decisions that took more than 10 s until every member had applied them, or more than 60 s until all were healthy.
-- NULL = not so far as is known. Seconds count from the decision.
CREATE VIEW slow_decisions AS
SELECT * FROM (
    SELECT d.decided_at AS at, d.id AS decision, d.namespace, d.workload_kind, d.workload_name, d.trigger_name,
           round(extract(epoch FROM m.committed - COALESCE(m.decided, d.decided_at)), 3) AS seconds_to_commit,
           round(extract(epoch FROM m.dispatched - COALESCE(m.decided, d.decided_at)), 3) AS seconds_to_dispatch,
           round(extract(epoch FROM m.applied - COALESCE(m.decided, d.decided_at)), 3) AS seconds_to_apply,
           round(extract(epoch FROM m.healthy - COALESCE(m.decided, d.decided_at)), 3) AS seconds_to_healthy,
           m.slowest_member
    FROM decisions d JOIN LATERAL (
        SELECT min(s.at) FILTER (WHERE s.stage = 'Decided') AS decided,
               min(s.at) FILTER (WHERE s.stage = 'Committed') AS committed,
               max(s.at) FILTER (WHERE s.stage = 'Dispatched') AS dispatched,
               max(s.at) FILTER (WHERE s.stage = 'Applied') AS applied,
               max(s.at) FILTER (WHERE s.stage = 'Healthy') AS healthy,
               (array_agg(s.cluster ORDER BY s.at DESC)
                   FILTER (WHERE s.stage IN ('Applied', 'Healthy')))[1] AS slowest_member
        FROM milestones s WHERE s.decision = d.id AND s.decided_at = d.decided_at
    ) AS m ON true
) AS lives WHERE seconds_to_apply > 10 OR seconds_to_healthy > 60;
