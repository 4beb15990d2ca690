-- One row for every committed decision, in the order in which they were recorded. Partitioned by week, so that old
-- history goes by dropping tables. An id always has the same decided_at, which makes the key unique by id.
CREATE SEQUENCE decisions_seq;

CREATE TABLE decisions (
    seq             bigint      NOT NULL DEFAULT nextval('decisions_seq'), -- grows with every row, in the order of commits
    id              text        NOT NULL,
    parent          text,
    decided_at      timestamptz NOT NULL,
    trigger_name    text        NOT NULL,
    mode            text        NOT NULL,
    outcome         text        NOT NULL,
    desired         bigint      NOT NULL,
    pending         jsonb       NOT NULL, -- [{replicas, reason}]
    affinity_name   text,
    term            bigint      NOT NULL,
    binding_kind    text        NOT NULL,
    namespace       text        NOT NULL, -- '' for cluster-scoped bindings
    binding_name    text        NOT NULL,
    binding_uid     text        NOT NULL,
    workload_group  text        NOT NULL, -- '' for core
    workload_version text       NOT NULL,
    workload_kind   text        NOT NULL,
    workload_name   text        NOT NULL,
    workload_uid    text,
    before_clusters jsonb,                -- [{name, replicas}]; NULL = not known
    after_clusters  jsonb       NOT NULL,
    reason          text,
    gap             jsonb,                -- {from, count}; the row stands for several
    withdrawal      jsonb,                -- {clusters, unconfirmed}
    detail          bytea,                -- the whole decision, compressed; NULL = lost
    PRIMARY KEY (id, decided_at)
) PARTITION BY RANGE (decided_at);

CREATE INDEX decisions_by_seq ON decisions (seq);
CREATE INDEX decisions_by_time ON decisions (decided_at, seq);
CREATE INDEX decisions_by_namespace ON decisions (namespace, decided_at, seq);
CREATE INDEX decisions_by_workload ON decisions (workload_name, namespace, decided_at, seq);
CREATE INDEX decisions_by_binding ON decisions (binding_uid, decided_at, seq);

-- The clusters whose share a decision changed. NULL = the cluster was no target (before) or is none (after); kinds
-- without replicas have 0.
CREATE TABLE changes (
    cluster         text        NOT NULL,
    decided_at      timestamptz NOT NULL,
    seq             bigint      NOT NULL,
    binding_uid     text        NOT NULL,
    replicas_before bigint,
    replicas_after  bigint,
    PRIMARY KEY (cluster, decided_at, seq)
) PARTITION BY RANGE (decided_at);

-- Who was on a member at a time: the last change of each binding before it.
CREATE INDEX changes_by_binding ON changes (cluster, binding_uid, decided_at, seq);

-- Members that had not confirmed a withdrawal when its row was written. Kept however old it is: it is the proof by
-- which a member that was away for long still gives the objects up.
CREATE TABLE unconfirmed (
    cluster         text        NOT NULL,
    binding_uid     text        NOT NULL,
    PRIMARY KEY (cluster, binding_uid)
);

-- Makes the partitions of the weeks from the first time to the last. Weeks begin on Monday, UTC. Attaching an empty
-- table stops neither readers nor writers, as creating it in place would. Callers hold the lock of writers.
CREATE FUNCTION atoll_make_partitions(first timestamptz, last timestamptz) RETURNS void
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    week timestamptz := date_trunc('week', first);
    part text;
    base text;
BEGIN
    WHILE week <= last LOOP
        FOREACH base IN ARRAY ARRAY['decisions', 'changes'] LOOP
            part := base || to_char(week, '_YYYYMMDD');
            IF to_regclass(part) IS NULL THEN
                EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS)', part, base);
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
