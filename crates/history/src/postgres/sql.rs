//! All statements, as static text. Times are passed as microseconds since 1970; the tables have `timestamptz`.

/// A parameter in microseconds as a time.
macro_rules! time {
    ($parameter:literal) => {
        concat!("to_timestamp(", $parameter, "::bigint / 1000000.0)")
    };
}

/// Columns of a record, by the names that `rows` reads. `detail` is separate: lists omit it.
macro_rules! columns {
    () => {
        "d.seq, d.id, d.parent, (extract(epoch FROM d.decided_at) * 1000000)::bigint AS decided_at, d.trigger_name, \
         d.mode, d.outcome, d.desired, d.pending::text AS pending, d.affinity_name, d.term, d.binding_kind, \
         d.namespace, d.binding_name, d.binding_uid, d.workload_group, d.workload_version, d.workload_kind, \
         d.workload_name, d.workload_uid, d.before_clusters::text AS before_clusters, \
         d.after_clusters::text AS after_clusters, d.reason, d.gap::text AS gap, d.withdrawal::text AS withdrawal, \
         d.provenance::text AS provenance, d.rejections::text AS rejections"
    };
}

/// The conditions of a filter. $1 namespace, $2 exclude the empty one, $3 binding, $4 to $6 group, kind and name of the
/// workload, $7 cluster, $8 trigger, $9 outcome, $10 since, $11 until.
macro_rules! filter {
    () => {
        concat!(
            " AND ($1::text IS NULL OR d.namespace = $1) AND (NOT $2::bool OR d.namespace <> '') \
             AND ($3::text IS NULL OR d.binding_uid = $3) AND ($4::text IS NULL OR d.workload_group = $4) \
             AND ($5::text IS NULL OR d.workload_kind = $5) AND ($6::text IS NULL OR d.workload_name = $6) \
             AND ($7::text IS NULL OR EXISTS (SELECT 1 FROM changes x WHERE x.cluster = $7 \
             AND x.decided_at = d.decided_at AND x.seq = d.seq)) \
             AND ($8::text IS NULL OR d.trigger_name = $8) AND ($9::text IS NULL OR d.outcome = $9) \
             AND ($10::bigint IS NULL OR d.decided_at >= ",
            time!("$10"),
            ") AND ($11::bigint IS NULL OR d.decided_at < ",
            time!("$11"),
            ")"
        )
    };
}

/// A page, newest first. $12 and $13 are the position after which it starts, $14 is its length. `$driver` names the
/// columns whose index yields the rows in order; a planner cannot derive it from "no value or this value".
macro_rules! page {
    ($from:literal, $order:literal, $driver:literal) => {
        concat!(
            "SELECT ",
            columns!(),
            " FROM ",
            $from,
            " WHERE ",
            $driver,
            $order,
            ".decided_at <= ",
            time!("$12"),
            " AND (",
            $order,
            ".decided_at, ",
            $order,
            ".seq) < (",
            time!("$12"),
            ", $13::bigint)",
            filter!(),
            " ORDER BY ",
            $order,
            ".decided_at DESC, ",
            $order,
            ".seq DESC LIMIT $14::bigint"
        )
    };
}

pub(super) const PAGE: &str = page!("decisions d", "d", "");
pub(super) const PAGE_OF_NAMESPACE: &str = page!("decisions d", "d", "d.namespace = $1 AND ");
pub(super) const PAGE_OF_BINDING: &str = page!("decisions d", "d", "d.binding_uid = $3 AND ");
pub(super) const PAGE_OF_WORKLOAD: &str =
    page!("decisions d", "d", "d.workload_name = $6 AND d.namespace = $1 AND ");
pub(super) const PAGE_OF_NAME: &str = page!("decisions d", "d", "d.workload_name = $6 AND ");
pub(super) const PAGE_OF_CLUSTER: &str = page!(
    "changes c JOIN decisions d ON d.decided_at = c.decided_at AND d.seq = c.seq",
    "c",
    "c.cluster = $7 AND "
);

/// Rows after number $12 in write order, at most $13.
pub(super) const TAIL: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM decisions d WHERE d.seq > $12::bigint",
    filter!(),
    " ORDER BY d.seq LIMIT $13::bigint"
);

pub(super) const GET: &str =
    concat!("SELECT ", columns!(), ", d.detail FROM decisions d WHERE d.id = $1::text");

pub(super) const LAST: &str = "SELECT COALESCE(MAX(seq), 0) FROM decisions";

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
    "COPY decisions (seq, id, parent, decided_at, trigger_name, mode, outcome, desired, pending, affinity_name, term, \
     binding_kind, namespace, binding_name, binding_uid, workload_group, workload_version, workload_kind, \
     workload_name, workload_uid, before_clusters, after_clusters, reason, gap, withdrawal, provenance, rejections, \
     detail) FROM STDIN (FORMAT binary)",
    28,
);

/// COPY of changes, and its number of columns.
pub(super) const COPY_CHANGES: (&str, i16) = (
    "COPY changes (cluster, decided_at, seq, binding_uid, replicas_before, replicas_after, decision, namespace, \
     workload_kind, workload_name) FROM STDIN (FORMAT binary)",
    10,
);

pub(super) const INSERT_UNCONFIRMED: &str = "INSERT INTO unconfirmed (cluster, binding_uid) \
     SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING";

pub(super) const UNCONFIRMED: &str = "SELECT binding_uid FROM unconfirmed WHERE cluster = $1::text ORDER BY binding_uid COLLATE \"C\"";

/// The newest row of each of the bindings $1. The inner query needs only the index of bindings.
pub(super) const NEWEST: &str = "SELECT d.binding_uid, d.id, d.term, d.trigger_name FROM \
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
pub(super) const MILESTONES: &str = "SELECT decision, (extract(epoch FROM decided_at) * 1000000)::bigint AS decided_at, \
     cluster, stage, (extract(epoch FROM at) * 1000000)::bigint AS at FROM milestones WHERE decision = ANY($1::text[]) \
     ORDER BY decision, milestones.at LIMIT $2::bigint";

/// $1 the cluster, $2 since, $3 until, $4 and $5 the position after which the page starts, $6 its length.
macro_rules! member_events {
    ($driver:literal) => {
        concat!(
            "SELECT seq, cluster, cluster_uid, (extract(epoch FROM e.at) * 1000000)::bigint AS at, kind, reason, \
             message FROM member_events e WHERE ",
            $driver,
            "($2::bigint IS NULL OR e.at >= ",
            time!("$2"),
            ") AND ($3::bigint IS NULL OR e.at < ",
            time!("$3"),
            ") AND e.at <= ",
            time!("$4"),
            " AND (e.at, e.seq) < (",
            time!("$4"),
            ", $5::bigint) AND ($1::text IS NULL OR e.cluster = $1) ORDER BY e.at DESC, e.seq DESC LIMIT $6::bigint"
        )
    };
}

pub(super) const MEMBER_EVENTS: &str = member_events!("");
pub(super) const MEMBER_EVENTS_OF: &str = member_events!("e.cluster = $1 AND ");

/// Shares on cluster $1 at $2.
pub(super) const RESIDENTS: &str = concat!(
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

/// All statements, for the test that prepares each.
#[cfg(test)]
pub(super) const ALL: [&str; 27] = [
    NEWEST,
    FLUSH,
    SWEEP,
    TAKE_STANDING,
    NOT_FOR_US,
    NOTE_MILESTONES,
    NOTE_MEMBERS,
    MILESTONES,
    MEMBER_EVENTS,
    MEMBER_EVENTS_OF,
    RESIDENTS,
    PAGE,
    PAGE_OF_NAMESPACE,
    PAGE_OF_BINDING,
    PAGE_OF_WORKLOAD,
    PAGE_OF_NAME,
    PAGE_OF_CLUSTER,
    TAIL,
    GET,
    LAST,
    AFTER_OF,
    MAKE_PARTITIONS,
    CLAIM,
    THERE,
    INVALIDATE,
    INSERT_UNCONFIRMED,
    UNCONFIRMED,
];
