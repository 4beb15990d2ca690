-- What came of decisions, what happened to members, and who changed what. Expands only: a controller of the version
-- before goes on writing.

-- JSON: {version, profile, sources: [{kind, namespace, name, uid, generation, changed: {manager, operation, at}}]}.
ALTER TABLE decisions ADD COLUMN provenance TEXT;

-- Steps in the life of a decision. They have no other home than this table: what happened while the database was away
-- for long is missing.
CREATE TABLE milestones (
    decision        TEXT    NOT NULL,
    decided_at      INTEGER NOT NULL, -- of the decision, microseconds since 1970
    cluster         TEXT    NOT NULL, -- '' where the step is of no single member
    stage           TEXT    NOT NULL, -- Decided, Committed, Dispatched, Applied, Healthy, Superseded
    at              INTEGER NOT NULL, -- microseconds since 1970
    PRIMARY KEY (decision, cluster, stage)
) WITHOUT ROWID;

-- What happened to members.
CREATE TABLE member_events (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    cluster         TEXT    NOT NULL,
    cluster_uid     TEXT    NOT NULL, -- '' where it is not known
    at              INTEGER NOT NULL, -- microseconds since 1970
    kind            TEXT    NOT NULL, -- Joined, Ready, Lost, Tainted, ...
    reason          TEXT    NOT NULL,
    message         TEXT    NOT NULL,
    UNIQUE (cluster, at, kind, reason)
);

CREATE INDEX member_events_by_time ON member_events (at, seq);

-- Who was on a member at a time: the last change of each binding before it.
ALTER TABLE changes ADD COLUMN binding_uid TEXT NOT NULL DEFAULT '';
UPDATE changes SET binding_uid = (SELECT d.binding_uid FROM decisions d WHERE d.seq = changes.seq);
CREATE INDEX changes_by_binding ON changes (cluster, binding_uid, decided_at, seq);
