-- Views as before, with decided_at in microseconds beside the time as text: a bound on it uses an index. CROSS JOIN keeps
-- the order: decisions first, then their changes.
DROP VIEW moves;
DROP VIEW rejections;

CREATE VIEW moves AS
SELECT strftime('%Y-%m-%dT%H:%M:%SZ', d.decided_at / 1000000, 'unixepoch') AS at, d.id AS decision, d.namespace,
       d.workload_kind, d.workload_name, d.trigger_name, c.cluster,
       COALESCE(c.replicas_after, 0) - COALESCE(c.replicas_before, 0) AS change, d.reason, d.decided_at
FROM decisions d CROSS JOIN changes c ON c.seq = d.seq
WHERE COALESCE(c.replicas_after, 0) <> COALESCE(c.replicas_before, 0);

CREATE VIEW rejections AS
SELECT strftime('%Y-%m-%dT%H:%M:%SZ', d.decided_at / 1000000, 'unixepoch') AS at, d.id AS decision, d.namespace,
       d.workload_kind, d.workload_name, d.trigger_name, d.outcome, r.key AS rule, r.value AS clusters, d.decided_at
FROM decisions d CROSS JOIN json_each(d.rejections) AS r;
