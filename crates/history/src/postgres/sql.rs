//! PostgreSQL's statements, as static text. Times are passed as microseconds since 1970; the tables have `timestamptz`.

use crate::sql::Statements;

/// A parameter in microseconds as a time.
macro_rules! time {
    ($parameter:literal) => {
        concat!("to_timestamp(", $parameter, "::bigint / 1000000.0)")
    };
}

/// The dialect; see [`crate::sql::Statements`].
macro_rules! dialect {
    (text $parameter:literal) => {
        concat!($parameter, "::text")
    };
    (number $parameter:literal) => {
        concat!($parameter, "::bigint")
    };
    (flag $parameter:literal) => {
        concat!($parameter, "::bool")
    };
    (time $parameter:literal) => {
        time!($parameter)
    };
    (micros $column:literal) => {
        concat!("(extract(epoch FROM ", $column, ") * 1000000)::bigint")
    };
    (json $column:literal) => {
        concat!($column, "::text")
    };
    (bytewise $column:literal) => {
        concat!($column, " COLLATE \"C\"")
    };
    (prune $table:literal $column:literal, $parameter:literal) => {
        concat!($table, $column, " <= ", time!($parameter), " AND ")
    };
}

pub(super) const STATEMENTS: Statements = statements!(
    dialect,
    page_of_workload: page!(
        dialect,
        "decisions d",
        "d",
        "d.workload_name = $6 AND d.namespace = $1 AND "
    ),
    page_of_cluster: page!(
        dialect,
        "changes c JOIN decisions d ON d.decided_at = c.decided_at AND d.seq = c.seq",
        "c",
        "c.cluster = $7 AND "
    ),
    newest: NEWEST,
    milestones: MILESTONES,
    residents: RESIDENTS,
    inputs: "SELECT inputs FROM decisions WHERE id = $1::text",
);

pub(super) const AFTER_OF: &str =
    "SELECT id, after_clusters::text FROM decisions WHERE id = ANY($1::text[])";

/// Begins a transaction that excludes other writers until it ends: numbers then follow commit order, which followers
/// rely on, and a row found missing stays missing. Each statement must see what was committed before it, whatever the
/// server's default isolation. The key is "atoll" in ASCII.
pub(super) const BEGIN: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(418565287020)";

/// Like [`BEGIN`], but its commit does not wait for the disk; [`FLUSH`] does.
pub(super) const BEGIN_LATER: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(418565287020); \
     SET LOCAL synchronous_commit = off";

/// Returns when everything committed before is as durable as commits are on this server: a commit of its own that
/// writes only a few bytes to the log.
pub(super) const FLUSH: &str = "SELECT pg_logical_emit_message(true, 'atoll', '')::text";

pub(super) const MAKE_PARTITIONS: &str =
    concat!("SELECT atoll_make_partitions(", time!("$1"), ", ", time!("$2"), ")");

/// Before a batch: the first of $1 numbers reserved for the batch, and the time of the latest standing.
pub(super) const CLAIM: &str = "SELECT setval('decisions_seq', nextval('decisions_seq') + $1::bigint - 1) - $1::bigint + 1, \
     (SELECT (extract(epoch FROM max(s.at)) * 1000000)::bigint FROM standings s)";

/// Which of the ids $1 exist. By id alone, so that only one index applies: a planner takes tables that were recently
/// empty for small ones, and would scan all decisions of the same second.
pub(super) const THERE: &str = "SELECT id FROM decisions WHERE id = ANY($1::text[])";

/// Invalidates the standings from $1 on.
pub(super) const INVALIDATE: &str =
    concat!("UPDATE standings SET valid = false WHERE valid AND at >= ", time!("$1"));

/// COPY of decisions, and its number of columns.
pub(super) const COPY_DECISIONS: (&str, i16) = (
    concat!("COPY decisions (seq, ", decision_columns!(), ", inputs) FROM STDIN (FORMAT binary)"),
    29,
);

/// COPY of changes, and its number of columns.
pub(super) const COPY_CHANGES: (&str, i16) = (
    "COPY changes (cluster, decided_at, seq, binding_uid, replicas_before, replicas_after, decision, namespace, \
     workload_kind, workload_name) FROM STDIN (FORMAT binary)",
    10,
);

pub(super) const INSERT_UNCONFIRMED: &str = "INSERT INTO unconfirmed (cluster, binding_uid) \
     SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING";

/// The newest row of each of the bindings $1. The inner query needs only the index of bindings.
const NEWEST: &str = "SELECT d.binding_uid, d.id, d.term, d.trigger_name FROM \
     (SELECT max(n.seq) AS seq FROM decisions n WHERE n.binding_uid = ANY($1::text[]) GROUP BY n.binding_uid) l \
     JOIN decisions d ON d.seq = l.seq";

pub(super) const NOTE_MILESTONES: &str = concat!(
    "INSERT INTO milestones (decision, decided_at, cluster, stage, at) SELECT r.decision, ",
    time!("r.decided"),
    ", r.cluster, r.stage, ",
    time!("r.at"),
    " FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::bigint[]) \
     AS r (decision, decided, cluster, stage, at) ON CONFLICT DO NOTHING"
);

pub(super) const NOTE_MEMBERS: &str = concat!(
    "INSERT INTO member_events (cluster, cluster_uid, at, kind, reason, message) SELECT r.cluster, r.uid, ",
    time!("r.at"),
    ", r.kind, r.reason, r.message \
     FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[]) \
     AS r (cluster, uid, at, kind, reason, message) ON CONFLICT DO NOTHING"
);

/// Milestones of the decisions $1, at most $2.
const MILESTONES: &str = "SELECT decision, (extract(epoch FROM decided_at) * 1000000)::bigint AS decided_at, \
     cluster, stage, (extract(epoch FROM at) * 1000000)::bigint AS at FROM milestones WHERE decision = ANY($1::text[]) \
     ORDER BY decision, milestones.at LIMIT $2::bigint";

/// Shares on cluster $1 at $2.
const RESIDENTS: &str = concat!(
    "SELECT binding_uid, namespace, workload_kind, workload_name, replicas, decision AS id, \
     (extract(epoch FROM since) * 1000000)::bigint AS decided_at FROM residents($1::text, ",
    time!("$2"),
    ") ORDER BY namespace COLLATE \"C\", workload_kind COLLATE \"C\", workload_name COLLATE \"C\", \
     binding_uid COLLATE \"C\""
);

/// Drops one week that ended before $1, if there is one; returns whether it did.
pub(super) const SWEEP: &str = concat!("SELECT atoll_sweep(", time!("$1"), ")");

/// Takes the next due standing whose time is not after $1; returns whether it did.
pub(super) const TAKE_STANDING: &str = concat!("SELECT atoll_take_standing(", time!("$1"), ")");

/// The oldest schema version whose programs may write, if above $1.
pub(super) const NOT_FOR_US: &str =
    "SELECT oldest_writer FROM history_bounds WHERE oldest_writer > $1::bigint";

/// All statements beside [`STATEMENTS`], for the test that prepares each.
#[cfg(test)]
pub(super) const ALL: [&str; 12] = [
    FLUSH,
    SWEEP,
    TAKE_STANDING,
    NOT_FOR_US,
    NOTE_MILESTONES,
    NOTE_MEMBERS,
    AFTER_OF,
    MAKE_PARTITIONS,
    CLAIM,
    THERE,
    INVALIDATE,
    INSERT_UNCONFIRMED,
];
