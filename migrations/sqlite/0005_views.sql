-- The views again: with events of members, refusals, and what took long. Times are RFC 3339 text.
DROP VIEW placements_over_time;
DROP VIEW moves;
DROP VIEW member_timeline;

-- What happened on a member: shares that decisions changed (what = 'Share'), and events of its own.
CREATE VIEW member_timeline AS
SELECT c.cluster, strftime('%Y-%m-%dT%H:%M:%SZ', c.decided_at / 1000000, 'unixepoch') AS at, 'Share' AS what,
       d.id AS decision, d.trigger_name, d.outcome, d.namespace, d.workload_kind, d.workload_name, c.replicas_before,
       c.replicas_after, d.reason
FROM changes c JOIN decisions d ON d.seq = c.seq
UNION ALL
SELECT e.cluster, strftime('%Y-%m-%dT%H:%M:%SZ', e.at / 1000000, 'unixepoch'), e.kind, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, trim(e.reason || ': ' || e.message, ': ')
FROM member_events e;

-- Replicas that came to a cluster (change above 0) or left it, with the decision that did it.
CREATE VIEW moves AS
SELECT strftime('%Y-%m-%dT%H:%M:%SZ', c.decided_at / 1000000, 'unixepoch') AS at, d.id AS decision, d.namespace,
       d.workload_kind, d.workload_name, d.trigger_name, c.cluster,
       COALESCE(c.replicas_after, 0) - COALESCE(c.replicas_before, 0) AS change, d.reason
FROM changes c JOIN decisions d ON d.seq = c.seq
WHERE COALESCE(c.replicas_after, 0) <> COALESCE(c.replicas_before, 0);

-- Who had how many replicas where, from when until when; valid_until is NULL for what still holds.
CREATE VIEW placements_over_time AS
SELECT shares.cluster, d.namespace, d.workload_kind, d.workload_name, shares.binding_uid,
       shares.replicas_after AS replicas,
       strftime('%Y-%m-%dT%H:%M:%SZ', shares.decided_at / 1000000, 'unixepoch') AS valid_from,
       strftime('%Y-%m-%dT%H:%M:%SZ', shares.until / 1000000, 'unixepoch') AS valid_until
FROM (
    SELECT c.cluster, c.binding_uid, c.seq, c.decided_at, c.replicas_after,
           lead(c.decided_at) OVER (PARTITION BY c.cluster, c.binding_uid ORDER BY c.decided_at, c.seq) AS until
    FROM changes c
) AS shares JOIN decisions d ON d.seq = shares.seq WHERE shares.replicas_after IS NOT NULL;

-- How many clusters a rule refused in a decision.
CREATE VIEW rejections AS
SELECT strftime('%Y-%m-%dT%H:%M:%SZ', d.decided_at / 1000000, 'unixepoch') AS at, d.id AS decision, d.namespace,
       d.workload_kind, d.workload_name, d.trigger_name, d.outcome, r.key AS rule, r.value AS clusters
FROM decisions d CROSS JOIN json_each(d.rejections) AS r;

-- Decisions that took more than 10 s until every member had applied them, or more than 60 s until all were healthy.
-- NULL = not so far as is known. Seconds count from the decision.
CREATE VIEW slow_decisions AS
SELECT * FROM (
    SELECT strftime('%Y-%m-%dT%H:%M:%SZ', d.decided_at / 1000000, 'unixepoch') AS at, d.id AS decision, d.namespace,
           d.workload_kind, d.workload_name, d.trigger_name,
           (min(s.at) FILTER (WHERE s.stage = 'Committed') - COALESCE(min(s.at) FILTER (WHERE s.stage = 'Decided'), d.decided_at)) / 1e6 AS seconds_to_commit,
           (max(s.at) FILTER (WHERE s.stage = 'Dispatched') - COALESCE(min(s.at) FILTER (WHERE s.stage = 'Decided'), d.decided_at)) / 1e6 AS seconds_to_dispatch,
           (max(s.at) FILTER (WHERE s.stage = 'Applied') - COALESCE(min(s.at) FILTER (WHERE s.stage = 'Decided'), d.decided_at)) / 1e6 AS seconds_to_apply,
           (max(s.at) FILTER (WHERE s.stage = 'Healthy') - COALESCE(min(s.at) FILTER (WHERE s.stage = 'Decided'), d.decided_at)) / 1e6 AS seconds_to_healthy,
           (SELECT l.cluster FROM milestones l WHERE l.decision = d.id AND l.stage IN ('Applied', 'Healthy')
            ORDER BY l.at DESC LIMIT 1) AS slowest_member
    FROM decisions d JOIN milestones s ON s.decision = d.id GROUP BY d.seq
) AS lives WHERE seconds_to_apply > 10 OR seconds_to_healthy > 60;
