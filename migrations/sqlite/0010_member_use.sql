-- Samples of how much of a member's capacity is requested are member events of the kind Used: reason cpu=54,memory=27,pods=3.
-- They have a view of their own, and are no part of what happened to a member.

DROP VIEW member_timeline;

CREATE VIEW member_timeline AS
SELECT c.cluster, strftime('%Y-%m-%dT%H:%M:%SZ', c.decided_at / 1000000, 'unixepoch') AS at, 'Share' AS what,
       d.id AS decision, d.trigger_name, d.outcome, d.namespace, d.workload_kind, d.workload_name, c.replicas_before,
       c.replicas_after, d.reason
FROM changes c JOIN decisions d ON d.seq = c.seq
UNION ALL
SELECT e.cluster, strftime('%Y-%m-%dT%H:%M:%SZ', e.at / 1000000, 'unixepoch'), e.kind, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, trim(e.reason || ': ' || e.message, ': ')
FROM member_events e WHERE e.kind <> 'Used';

-- Requested part of each resource of a member, in percent, from each sample on.
CREATE VIEW member_use AS
SELECT e.cluster, strftime('%Y-%m-%dT%H:%M:%SZ', e.at / 1000000, 'unixepoch') AS at,
       substr(part.value, 1, instr(part.value, '=') - 1) AS resource,
       CAST(substr(part.value, instr(part.value, '=') + 1) AS INTEGER) AS percent
FROM member_events e, json_each('["' || replace(e.reason, ',', '","') || '"]') AS part
WHERE e.kind = 'Used';
