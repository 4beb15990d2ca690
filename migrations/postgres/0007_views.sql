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
