//! Statements that every SQL database runs, as static text.
//!
//! The databases differ in types. Each brings a macro for its dialect, with these arms:
//!
//! | arm | what it yields |
//! | --- | --- |
//! | `text`, `number`, `flag` PARAMETER | the parameter with its type |
//! | `time` PARAMETER | a parameter in microseconds since 1970 as the tables' type of times |
//! | `micros` COLUMN | a column of times in microseconds since 1970 |
//! | `json` COLUMN | a column of JSON as text |
//! | `bytewise` COLUMN | a column of texts, ordered by their bytes |
//! | `prune` COLUMN, PARAMETER | `COLUMN <= PARAMETER AND `, if that makes lists skip partitions; else nothing |

/// Statements that [`super::SqlDatabase`] runs.
pub struct Statements {
    /// A page of decisions, newest first. $1 to $11 are the filter's, $12 and $13 the position after which the page
    /// starts, $14 its length. The other pages are the same, but driven by the index of one of the filter's columns.
    pub page: &'static str,
    pub page_of_namespace: &'static str,
    pub page_of_binding: &'static str,
    /// By name and namespace.
    pub page_of_workload: &'static str,
    /// By name, in all namespaces.
    pub page_of_name: &'static str,
    pub page_of_cluster: &'static str,
    /// Decisions after number $12 in write order, at most $13.
    pub tail: &'static str,
    /// Decision $1, with its detail.
    pub get: &'static str,
    /// The inputs of decision $1.
    pub inputs: &'static str,
    /// The last number.
    pub last: &'static str,
    /// Withdrawn bindings whose removal cluster $1 had not confirmed.
    pub unconfirmed: &'static str,
    /// The newest row of each of the bindings $1.
    pub newest: &'static str,
    /// Milestones of the decisions $1, at most $2.
    pub milestones: &'static str,
    /// A page of member events, newest first. $1 the cluster, $2 since, $3 until, $4 and $5 the position after which
    /// the page starts, $6 its length, $7 the kind, NULL for all but samples of use.
    pub member_events: &'static str,
    /// The same for one cluster, driven by its index.
    pub member_events_of: &'static str,
    /// Shares on cluster $1 at $2.
    pub residents: &'static str,
}

impl Statements {
    /// All of them, for the tests that prepare each.
    #[cfg(test)]
    pub fn all(&self) -> Vec<&'static str> {
        let Self { page, page_of_namespace, page_of_binding, page_of_workload, .. } = *self;
        let Self { page_of_name, page_of_cluster, tail, get, last, unconfirmed, .. } = *self;
        let Self { newest, milestones, member_events, member_events_of, residents, .. } = *self;
        let inputs = self.inputs;
        vec![
            page,
            page_of_namespace,
            page_of_binding,
            page_of_workload,
            page_of_name,
            page_of_cluster,
            tail,
            get,
            inputs,
            last,
            unconfirmed,
            newest,
            milestones,
            member_events,
            member_events_of,
            residents,
        ]
    }
}

/// Columns of a decision that writers fill, in the order of [`super::write_decision`].
macro_rules! decision_columns {
    () => {
        "id, parent, decided_at, trigger_name, mode, outcome, desired, pending, affinity_name, term, binding_kind, \
         namespace, binding_name, binding_uid, workload_group, workload_version, workload_kind, workload_name, \
         workload_uid, before_clusters, after_clusters, reason, gap, withdrawal, provenance, rejections, detail"
    };
}

/// Columns of a decision, by the names that `rows` reads. `detail` is separate: lists omit it.
macro_rules! columns {
    ($sql:ident) => {
        concat!(
            "d.seq, d.id, d.parent, ",
            $sql!(micros "d.decided_at"),
            " AS decided_at, d.trigger_name, d.mode, d.outcome, d.desired, ",
            $sql!(json "d.pending"),
            " AS pending, d.affinity_name, d.term, d.binding_kind, d.namespace, d.binding_name, d.binding_uid, \
             d.workload_group, d.workload_version, d.workload_kind, d.workload_name, d.workload_uid, ",
            $sql!(json "d.before_clusters"),
            " AS before_clusters, ",
            $sql!(json "d.after_clusters"),
            " AS after_clusters, d.reason, ",
            $sql!(json "d.gap"),
            " AS gap, ",
            $sql!(json "d.withdrawal"),
            " AS withdrawal, ",
            $sql!(json "d.provenance"),
            " AS provenance, ",
            $sql!(json "d.rejections"),
            " AS rejections"
        )
    };
}

/// One condition of a filter: a parameter that is NULL selects everything.
macro_rules! selected {
    ($sql:ident, $parameter:literal, $column:literal) => {
        concat!(" AND (", $sql!(text $parameter), " IS NULL OR ", $column, " = ", $parameter, ")")
    };
}

/// The conditions of a filter. $1 namespace, $2 exclude the empty one, $3 binding, $4 to $6 group, kind and name of the
/// workload, $7 cluster, $8 trigger, $9 outcome, $10 since, $11 until.
macro_rules! filter {
    ($sql:ident) => {
        concat!(
            selected!($sql, "$1", "d.namespace"),
            " AND (NOT ",
            $sql!(flag "$2"),
            " OR d.namespace <> '')",
            selected!($sql, "$3", "d.binding_uid"),
            selected!($sql, "$4", "d.workload_group"),
            selected!($sql, "$5", "d.workload_kind"),
            selected!($sql, "$6", "d.workload_name"),
            " AND (",
            $sql!(text "$7"),
            " IS NULL OR EXISTS (SELECT 1 FROM changes x WHERE x.cluster = $7 \
             AND x.decided_at = d.decided_at AND x.seq = d.seq))",
            selected!($sql, "$8", "d.trigger_name"),
            selected!($sql, "$9", "d.outcome"),
            " AND (",
            $sql!(number "$10"),
            " IS NULL OR d.decided_at >= ",
            $sql!(time "$10"),
            ") AND (",
            $sql!(number "$11"),
            " IS NULL OR d.decided_at < ",
            $sql!(time "$11"),
            ")"
        )
    };
}

/// A page, newest first. `$driver` names the columns whose index yields the rows in order; a planner cannot derive it
/// from "no value or this value".
macro_rules! page {
    ($sql:ident, $from:literal, $order:literal, $driver:literal) => {
        concat!(
            "SELECT ",
            columns!($sql),
            " FROM ",
            $from,
            " WHERE ",
            $driver,
            $sql!(prune $order ".decided_at", "$12"),
            "(",
            $order,
            ".decided_at, ",
            $order,
            ".seq) < (",
            $sql!(time "$12"),
            ", ",
            $sql!(number "$13"),
            ")",
            filter!($sql),
            " ORDER BY ",
            $order,
            ".decided_at DESC, ",
            $order,
            ".seq DESC LIMIT ",
            $sql!(number "$14")
        )
    };
}

macro_rules! member_events {
    ($sql:ident, $driver:literal) => {
        concat!(
            "SELECT seq, cluster, cluster_uid, ",
            $sql!(micros "e.at"),
            " AS at, kind, reason, message FROM member_events e WHERE ",
            $driver,
            "(",
            $sql!(number "$2"),
            " IS NULL OR e.at >= ",
            $sql!(time "$2"),
            ") AND (",
            $sql!(number "$3"),
            " IS NULL OR e.at < ",
            $sql!(time "$3"),
            ") AND ",
            $sql!(prune "e" ".at", "$4"),
            "(e.at, e.seq) < (",
            $sql!(time "$4"),
            ", ",
            $sql!(number "$5"),
            ")",
            selected!($sql, "$1", "e.cluster"),
            " AND CASE WHEN ",
            $sql!(text "$7"),
            " IS NULL THEN e.kind <> 'Used' ELSE e.kind = ",
            $sql!(text "$7"),
            " END ORDER BY e.at DESC, e.seq DESC LIMIT ",
            $sql!(number "$6")
        )
    };
}

/// The [`Statements`] of a dialect; what follows it are those that each database has its own way of.
macro_rules! statements {
    ($sql:ident, $($field:ident: $text:expr),+ $(,)?) => {
        $crate::sql::Statements {
            page: page!($sql, "decisions d", "d", ""),
            page_of_namespace: page!($sql, "decisions d", "d", "d.namespace = $1 AND "),
            page_of_binding: page!($sql, "decisions d", "d", "d.binding_uid = $3 AND "),
            page_of_name: page!($sql, "decisions d", "d", "d.workload_name = $6 AND "),
            tail: concat!(
                "SELECT ",
                columns!($sql),
                " FROM decisions d WHERE d.seq > ",
                $sql!(number "$12"),
                filter!($sql),
                " ORDER BY d.seq LIMIT ",
                $sql!(number "$13")
            ),
            get: concat!(
                "SELECT ",
                columns!($sql),
                ", d.detail FROM decisions d WHERE d.id = ",
                $sql!(text "$1")
            ),
            last: "SELECT COALESCE(MAX(seq), 0) AS seq FROM decisions",
            unconfirmed: concat!(
                "SELECT binding_uid FROM unconfirmed WHERE cluster = ",
                $sql!(text "$1"),
                " ORDER BY ",
                $sql!(bytewise "binding_uid")
            ),
            member_events: member_events!($sql, ""),
            member_events_of: member_events!($sql, "e.cluster = $1 AND "),
            $($field: $text),+
        }
    };
}
