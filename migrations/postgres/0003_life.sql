-- What came of decisions, what happened to members, and who changed what. Expands only: a controller of the version
-- before goes on writing.

-- Which scheduler decided, and the generations and last writers of what it read:
-- {version, profile, sources: [{kind, namespace, name, uid, generation, changed: {manager, operation, at}}]}.
ALTER TABLE decisions ADD COLUMN provenance jsonb;

-- Steps in the life of a decision. They have no other home than this table: what happened while the database was away
-- for long is missing. Each has the time of its decision, so that both go together.
CREATE TABLE milestones (
    decision        text        NOT NULL,
    decided_at      timestamptz NOT NULL,
    cluster         text        NOT NULL, -- '' where the step is of no single member
    stage           text        NOT NULL, -- Decided, Committed, Dispatched, Applied, Healthy, Superseded
    at              timestamptz NOT NULL,
    PRIMARY KEY (decision, cluster, stage, decided_at)
) PARTITION BY RANGE (decided_at);

-- What happened to members.
CREATE SEQUENCE member_events_seq;

CREATE TABLE member_events (
    seq             bigint      NOT NULL DEFAULT nextval('member_events_seq'),
    cluster         text        NOT NULL,
    cluster_uid     text        NOT NULL, -- '' where it is not known
    at              timestamptz NOT NULL,
    kind            text        NOT NULL, -- Joined, Ready, Lost, Tainted, ...
    reason          text        NOT NULL,
    message         text        NOT NULL,
    PRIMARY KEY (cluster, at, kind, reason)
) PARTITION BY RANGE (at);

CREATE INDEX member_events_by_time ON member_events (at, seq);

-- As before, for two more tables.
CREATE OR REPLACE FUNCTION atoll_make_partitions(first timestamptz, last timestamptz) RETURNS void
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    week timestamptz := date_trunc('week', first);
    part text;
    base text;
BEGIN
    WHILE week <= last LOOP
        FOREACH base IN ARRAY ARRAY['decisions', 'changes', 'milestones', 'member_events'] LOOP
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

-- The weeks that there are get the new tables' partitions.
DO $$
DECLARE
    week timestamptz;
BEGIN
    FOR week IN
        SELECT to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC'
        FROM pg_inherits WHERE inhparent = 'decisions'::regclass
    LOOP
        PERFORM atoll_make_partitions(week, week);
    END LOOP;
END
$$;
