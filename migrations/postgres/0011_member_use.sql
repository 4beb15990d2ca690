-- Samples of how much of a member's capacity is requested are member events of the kind Used: reason cpu=54,memory=27,pods=3.
-- They have a view of their own, and are no part of what happened to a member.

CREATE OR REPLACE VIEW member_timeline AS
SELECT c.cluster, c.decided_at AS at, 'Share' AS what, d.id AS decision, d.trigger_name, d.outcome, d.namespace,
       d.workload_kind, d.workload_name, c.replicas_before, c.replicas_after, d.reason
FROM changes c CROSS JOIN LATERAL (
    SELECT * FROM decisions x WHERE x.decided_at = c.decided_at AND x.seq = c.seq LIMIT 1
) AS d
UNION ALL
SELECT e.cluster, e.at, e.kind, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       concat_ws(': ', NULLIF(e.reason, ''), NULLIF(e.message, ''))
FROM member_events e WHERE e.kind <> 'Used';

-- Requested part of each resource of a member, in percent, from each sample on.
CREATE VIEW member_use AS
SELECT e.cluster, e.at, split_part(part, '=', 1) AS resource, split_part(part, '=', 2)::integer AS percent
FROM member_events e CROSS JOIN LATERAL unnest(string_to_array(e.reason, ',')) AS part
WHERE e.kind = 'Used' AND part ~ '^[a-z]+=[0-9]{1,3}$';
