//! SQLite's statements, as static text, in SQL close to PostgreSQL's: numbered parameters, row values, ON CONFLICT.

use crate::sql::Statements;

/// The dialect; see [`crate::sql::Statements`]. Times are columns of microseconds, JSON is text, and texts are ordered by
/// their bytes. Nothing prunes partitions: there are none, and with a second bound the planner may read everything up
/// to that.
macro_rules! dialect {
    (prune $table:literal $column:literal, $parameter:literal) => {
        ""
    };
    ($arm:ident $text:literal) => {
        $text
    };
}

pub(super) const STATEMENTS: Statements = statements!(
    dialect,
    // The index of names is enough for both.
    page_of_workload: page!(dialect, "decisions d", "d", "d.workload_name = $6 AND "),
    page_of_cluster: page!(
        dialect,
        "changes c JOIN decisions d ON d.seq = c.seq",
        "c",
        "c.cluster = $7 AND "
    ),
    newest: NEWEST,
    milestones: MILESTONES,
    residents: RESIDENTS,
    inputs: "SELECT i.frame AS inputs FROM decisions d LEFT JOIN inputs i ON i.seq = d.seq WHERE d.id = $1",
);

pub(super) const AFTER_OF: &str = "SELECT after_clusters FROM decisions WHERE id = $1";

pub(super) const INSERT: &str = concat!(
    "INSERT INTO decisions (",
    decision_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, \
     $23, $24, $25, $26, $27) ON CONFLICT DO NOTHING"
);

pub(super) const INSERT_CHANGE: &str = "INSERT INTO changes (cluster, decided_at, seq, replicas_before, replicas_after, binding_uid, decision, namespace, \
     workload_kind, workload_name) SELECT $2, decided_at, seq, $3, $4, binding_uid, id, namespace, workload_kind, \
     workload_name FROM decisions WHERE id = $1";

/// A table of its own: a row that is longer than a page would take another whole page.
pub(super) const INSERT_INPUTS: &str =
    "INSERT INTO inputs (seq, frame) SELECT seq, $2 FROM decisions WHERE id = $1";

pub(super) const INSERT_UNCONFIRMED: &str =
    "INSERT INTO unconfirmed (cluster, binding_uid) VALUES ($1, $2) ON CONFLICT DO NOTHING";

/// The newest row of each of the bindings in the JSON array $1.
const NEWEST: &str = "SELECT d.binding_uid, d.id, d.term, d.trigger_name FROM \
     (SELECT max(n.seq) AS seq FROM json_each($1) j CROSS JOIN decisions n ON n.binding_uid = j.value \
     GROUP BY n.binding_uid) l CROSS JOIN decisions d ON d.seq = l.seq";

pub(super) const NOTE_MILESTONE: &str = "INSERT INTO milestones (decision, decided_at, cluster, stage, at) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";

pub(super) const NOTE_MEMBER: &str = "INSERT INTO member_events (cluster, cluster_uid, at, kind, reason, message) \
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";

/// Milestones of the decisions in the JSON array $1, at most $2.
const MILESTONES: &str = "SELECT m.decision, m.decided_at, m.cluster, m.stage, m.at \
     FROM json_each($1) j JOIN milestones m ON m.decision = j.value ORDER BY m.decision, m.at LIMIT $2";

/// The last share of each binding on cluster $1 up to $2, from the standing at `base` and the changes since. Rows of
/// earlier versions lack the binding: it is looked up in their decisions. CASE, because a join fetches the row before
/// it evaluates a condition that would skip it.
macro_rules! last_shares {
    ($base:literal) => {
        concat!(
            "WITH base (at) AS MATERIALIZED (",
            $base,
            "), shares AS (",
            "SELECT binding_uid, decided_at, seq, replicas, decision, namespace, workload_kind, workload_name \
             FROM standing_shares WHERE at = (SELECT at FROM base) AND cluster = $1 \
             UNION ALL \
             SELECT binding_uid, decided_at, seq, replicas_after, decision, namespace, workload_kind, workload_name \
             FROM changes WHERE cluster = $1 AND decided_at > (SELECT at FROM base) AND decided_at <= $2",
            "), numbered AS (SELECT *, row_number() OVER \
             (PARTITION BY binding_uid ORDER BY decided_at DESC, seq DESC) AS place FROM shares), \
             last AS (SELECT n.binding_uid, n.decided_at, n.seq, n.replicas, COALESCE(n.decision, d.id) AS decision, \
             COALESCE(n.namespace, d.namespace) AS namespace, COALESCE(n.workload_kind, d.workload_kind) AS workload_kind, \
             COALESCE(n.workload_name, d.workload_name) AS workload_name \
             FROM numbered n LEFT JOIN decisions d ON d.seq = CASE WHEN n.decision IS NULL THEN n.seq END \
             WHERE n.place = 1 AND n.replicas IS NOT NULL AND COALESCE(n.decision, d.id) IS NOT NULL) "
        )
    };
}

/// Shares on cluster $1 at $2.
const RESIDENTS: &str = concat!(
    last_shares!(
        "SELECT COALESCE(max(at), -9223372036854775808) FROM standings WHERE valid AND at <= $2"
    ),
    "SELECT binding_uid, namespace, workload_kind, workload_name, replicas, decision AS id, decided_at FROM last \
     ORDER BY namespace, workload_kind, workload_name, binding_uid"
);

/// Copies the shares on cluster $1 at $2 into a standing.
pub(super) const TAKE_SHARES: &str = concat!(
    "INSERT INTO standing_shares (at, cluster, binding_uid, decided_at, seq, replicas, decision, namespace, \
     workload_kind, workload_name) ",
    last_shares!(
        "SELECT COALESCE(max(at), -9223372036854775808) FROM standings WHERE valid AND at < $2"
    ),
    "SELECT $2, $1, binding_uid, decided_at, seq, replicas, decision, namespace, workload_kind, workload_name FROM last"
);

/// The oldest invalid standing.
pub(super) const STANDING_INVALID: &str = "SELECT min(at) FROM standings WHERE NOT valid";

/// The latest standing: its time, the last decision up to then, its number of shares. If none, the time of the first
/// decision.
pub(super) const STANDING_LAST: &str = "SELECT * FROM (SELECT at, seq, shares FROM standings ORDER BY at DESC LIMIT 1) \
     UNION ALL SELECT * FROM (SELECT decided_at, seq - 1, 0 FROM decisions \
     WHERE NOT EXISTS (SELECT 1 FROM standings) ORDER BY decided_at, seq LIMIT 1)";

/// When the first decision after number $1 was made.
pub(super) const DECIDED_BEHIND: &str =
    "SELECT decided_at FROM decisions WHERE seq > $1 ORDER BY seq LIMIT 1";

/// Creates a standing at $1, not valid yet.
pub(super) const STANDING_BEGIN: &str = "INSERT INTO standings (at, seq, shares, valid) VALUES ($1, 0, 0, 0) \
     ON CONFLICT (at) DO UPDATE SET valid = 0";

/// Every cluster with shares. Skips from one to the next, because each has many rows.
pub(super) const CLUSTERS: &str = "WITH RECURSIVE c (name) AS (SELECT (SELECT min(cluster) FROM changes) \
     UNION ALL SELECT (SELECT min(n.cluster) FROM changes n WHERE n.cluster > c.name) FROM c WHERE c.name IS NOT NULL) \
     SELECT name FROM c WHERE name IS NOT NULL";

/// Deletes cluster $1's part of the standing at $2.
pub(super) const FORGET_SHARES: &str = "DELETE FROM standing_shares WHERE at = $2 AND cluster = $1";

/// Marks the standing at $1 as valid, unless decisions of its time arrived after number $2. $3 is the number of shares.
pub(super) const STANDING_END: &str = "UPDATE standings SET valid = 1, shares = $3, \
     seq = COALESCE((SELECT seq FROM decisions WHERE decided_at <= $1 ORDER BY decided_at DESC, seq DESC LIMIT 1), 0) \
     WHERE at = $1 AND NOT EXISTS (SELECT 1 FROM decisions WHERE seq > $2 AND +decided_at <= $1)";

/// Standings from before $1.
pub(super) const SWEEP_STANDINGS: &str = "DELETE FROM standings WHERE at < $1";

/// Deletes standing shares from before $1, at most $2 of them.
pub(super) const SWEEP_SHARES: &str = "DELETE FROM standing_shares WHERE (at, cluster, binding_uid) IN \
     (SELECT at, cluster, binding_uid FROM standing_shares WHERE at < $1 LIMIT $2)";

pub(super) const SWEEP_MEMBERS: &str = "DELETE FROM member_events WHERE at < $1";

/// Decisions from before $1 after the position $2, $3: at most $4.
pub(super) const SWEEP_PART: &str = "SELECT decided_at, seq FROM decisions WHERE decided_at < $1 \
     AND (decided_at, seq) > ($2, $3) ORDER BY decided_at, seq LIMIT $4";

/// A part: $2 to $5 are its exclusive start and inclusive end. The planner uses one upper bound: with a second one, it
/// may read everything up to that for each part.
macro_rules! part {
    () => {
        "(decided_at, seq) > ($2, $3) AND (decided_at, seq) <= ($4, $5)"
    };
}

/// Deletes shares that were already replaced at $1, the retention limit.
pub(super) const SWEEP_CHANGES: &str = concat!(
    "DELETE FROM changes WHERE seq IN (SELECT seq FROM decisions WHERE ",
    part!(),
    ") AND EXISTS (SELECT 1 FROM decisions n CROSS JOIN changes x WHERE n.binding_uid = changes.binding_uid \
     AND (n.decided_at, n.seq) > (changes.decided_at, changes.seq) AND n.decided_at < $1 \
     AND x.cluster = changes.cluster AND x.decided_at = n.decided_at AND x.seq = n.seq)"
);

/// Deletes decisions that set no current share and are not the last of an active binding.
pub(super) const SWEEP_DECISIONS: &str = concat!(
    "DELETE FROM decisions WHERE ",
    part!(),
    " AND NOT EXISTS (SELECT 1 FROM changes c WHERE c.seq = decisions.seq AND c.replicas_after IS NOT NULL) \
     AND (trigger_name = 'Withdrawn' OR EXISTS (SELECT 1 FROM decisions n \
     WHERE n.binding_uid = decisions.binding_uid AND n.decided_at < $1 \
     AND (n.decided_at, n.seq) > (decisions.decided_at, decisions.seq))) RETURNING id"
);

/// Deletes inputs, also of decisions that stay: those that they build on are gone.
pub(super) const SWEEP_INPUTS: &str = concat!(
    "DELETE FROM inputs WHERE seq IN (SELECT seq FROM decisions WHERE decided_at < $1 AND ",
    part!(),
    ")"
);

pub(super) const SWEEP_MILESTONES: &str =
    "DELETE FROM milestones WHERE decision IN (SELECT value FROM json_each($1))";

/// All statements beside [`STATEMENTS`], for the test that prepares each.
#[cfg(test)]
pub(super) const ALL: [&str; 23] = [
    STANDING_INVALID,
    STANDING_LAST,
    DECIDED_BEHIND,
    STANDING_BEGIN,
    CLUSTERS,
    FORGET_SHARES,
    TAKE_SHARES,
    STANDING_END,
    SWEEP_STANDINGS,
    SWEEP_SHARES,
    SWEEP_MEMBERS,
    SWEEP_PART,
    SWEEP_CHANGES,
    SWEEP_DECISIONS,
    SWEEP_INPUTS,
    SWEEP_MILESTONES,
    NOTE_MILESTONE,
    NOTE_MEMBER,
    AFTER_OF,
    INSERT,
    INSERT_CHANGE,
    INSERT_UNCONFIRMED,
    INSERT_INPUTS,
];
