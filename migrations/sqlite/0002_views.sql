-- Views for people, the same on every database; docs/history-queries.md has queries on them. Times are RFC 3339 text.

-- What happened to the shares of a member.
CREATE VIEW member_timeline AS
SELECT c.cluster, strftime('%Y-%m-%dT%H:%M:%SZ', c.decided_at / 1000000, 'unixepoch') AS at, d.id AS decision,
       d.trigger_name, d.outcome, d.namespace, d.workload_kind, d.workload_name, c.replicas_before, c.replicas_after,
       d.reason
FROM changes c JOIN decisions d ON d.seq = c.seq;

-- Replicas that came to a cluster (change above 0) or left it, with the decision that did it.
CREATE VIEW moves AS
SELECT at, decision, namespace, workload_kind, workload_name, trigger_name, cluster,
       COALESCE(replicas_after, 0) - COALESCE(replicas_before, 0) AS change, reason
FROM member_timeline
WHERE COALESCE(replicas_after, 0) <> COALESCE(replicas_before, 0);

-- Who had how many replicas where, from when until when; valid_until is NULL for what still holds.
CREATE VIEW placements_over_time AS
SELECT * FROM (
    SELECT c.cluster, d.namespace, d.workload_kind, d.workload_name, d.binding_uid, c.replicas_after AS replicas,
           strftime('%Y-%m-%dT%H:%M:%SZ', c.decided_at / 1000000, 'unixepoch') AS valid_from,
           strftime('%Y-%m-%dT%H:%M:%SZ', lead(c.decided_at) OVER (
               PARTITION BY c.cluster, d.binding_uid ORDER BY c.decided_at, c.seq
           ) / 1000000, 'unixepoch') AS valid_until
    FROM changes c JOIN decisions d ON d.seq = c.seq
) AS shares WHERE replicas IS NOT NULL;
