-- One row for every committed decision, in the order in which they were recorded.
CREATE TABLE decisions (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT, -- grows with every row: the order within a binding, and of a watch
    id              TEXT    NOT NULL UNIQUE,
    parent          TEXT,
    decided_at      INTEGER NOT NULL,                  -- microseconds since 1970
    trigger_name    TEXT    NOT NULL,
    mode            TEXT    NOT NULL,
    outcome         TEXT    NOT NULL,
    desired         INTEGER NOT NULL,
    pending         TEXT    NOT NULL,                  -- JSON: [{replicas, reason}]
    affinity_name   TEXT,
    term            INTEGER NOT NULL,
    binding_kind    TEXT    NOT NULL,
    namespace       TEXT    NOT NULL,                  -- '' for cluster-scoped bindings
    binding_name    TEXT    NOT NULL,
    binding_uid     TEXT    NOT NULL,
    workload_group  TEXT    NOT NULL,                  -- '' for core
    workload_version TEXT   NOT NULL,
    workload_kind   TEXT    NOT NULL,
    workload_name   TEXT    NOT NULL,
    workload_uid    TEXT,
    before_clusters TEXT,                              -- JSON: [{name, replicas}]; NULL = not known
    after_clusters  TEXT    NOT NULL,
    reason          TEXT,
    gap             TEXT,                              -- JSON: {from, count}; the row stands for several
    withdrawal      TEXT,                              -- JSON: {clusters, unconfirmed}
    detail          BLOB                               -- the whole decision, compressed; NULL = lost
);

CREATE INDEX decisions_by_time ON decisions (decided_at, seq);
CREATE INDEX decisions_by_namespace ON decisions (namespace, decided_at, seq);
CREATE INDEX decisions_by_workload ON decisions (workload_name, decided_at, seq);
CREATE INDEX decisions_by_binding ON decisions (binding_uid, decided_at, seq);

-- The clusters whose share a decision changed. NULL = the cluster was no target (before) or is none (after); kinds
-- without replicas have 0.
CREATE TABLE changes (
    cluster         TEXT    NOT NULL,
    decided_at      INTEGER NOT NULL,
    seq             INTEGER NOT NULL REFERENCES decisions (seq) ON DELETE CASCADE,
    replicas_before INTEGER,
    replicas_after  INTEGER,
    PRIMARY KEY (cluster, decided_at, seq)
) WITHOUT ROWID;

-- Members that had not confirmed a withdrawal when its row was written.
CREATE TABLE unconfirmed (
    cluster         TEXT    NOT NULL,
    binding_uid     TEXT    NOT NULL,
    PRIMARY KEY (cluster, binding_uid)
) WITHOUT ROWID;
