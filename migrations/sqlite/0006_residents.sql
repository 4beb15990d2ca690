-- Who was on a member at a time: the index tells the last change of each binding before it, without the other changes.
DROP INDEX changes_by_binding;
CREATE INDEX changes_by_binding ON changes (cluster, binding_uid, decided_at, seq, replicas_after);
