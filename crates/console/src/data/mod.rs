//! What the pages show: plain values. Texts come from clusters and users, so they are hostile until a view escapes them.

mod decision;
mod fleet;
mod plan;
mod workload;

use jiff::Timestamp;

use crate::query::encode;

pub use decision::*;
pub use fleet::*;
pub use plan::*;
pub use workload::*;

/// Rows of a table on one page.
pub const ROWS: usize = 50;
/// Rows of the heat map on one page.
pub const MAP_ROWS: usize = 40;
/// Columns of the heat map on one page.
pub const MAP_COLUMNS: usize = 24;

/// How a value is coloured. A text or a sign says the same, so that colour is never the only difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    /// As it should be.
    Good,
    /// It needs attention some time.
    Warn,
    /// It needs attention now.
    Bad,
    /// Neither.
    #[default]
    Plain,
}

/// A word with its tone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Word {
    /// The word.
    pub text: String,
    /// Its tone.
    pub tone: Tone,
}

impl Word {
    /// A word with a tone.
    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

/// A time, and how long ago it was when the page was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct When {
    /// The time.
    pub at: Timestamp,
    /// For example `5m`.
    pub age: String,
}

/// Part of a longer list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paged<T> {
    /// The rows of this page.
    pub rows: Vec<T>,
    /// Number of the page, from 0.
    pub page: usize,
    /// Rows of a full page.
    pub size: usize,
    /// Rows of all pages.
    pub all: usize,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), page: 0, size: ROWS, all: 0 }
    }
}

impl<T> Paged<T> {
    /// The page with this number; the last one if there are fewer. Only its rows are made.
    pub fn of<S>(items: &[S], page: usize, size: usize, make: impl FnMut(&S) -> T) -> Self {
        let size = size.max(1);
        let page = page.min(items.len().saturating_sub(1) / size);
        let rows = items.iter().skip(page * size).take(size).map(make).collect();
        Self { rows, page, size, all: items.len() }
    }

    /// As [`Self::of`], for `all` items that are not in a slice. Only those of the page are made; `None` leaves one out.
    pub fn pick<S>(
        items: impl Iterator<Item = S>,
        all: usize,
        page: usize,
        size: usize,
        make: impl FnMut(S) -> Option<T>,
    ) -> Self {
        let size = size.max(1);
        let page = page.min(all.saturating_sub(1) / size);
        let rows = items.skip(page * size).take(size).filter_map(make).collect();
        Self { rows, page, size, all }
    }

    /// Number of pages, at least 1.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.all.div_ceil(self.size.max(1)).max(1)
    }
}

/// Names a workload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct WorkloadId {
    /// API group; empty for core.
    pub group: String,
    /// For example `Deployment`.
    pub kind: String,
    /// `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl WorkloadId {
    /// The kind with its group, as kubectl reads it: `Deployment.apps`.
    #[must_use]
    pub fn type_(&self) -> String {
        match self.group.as_str() {
            "" => self.kind.clone(),
            group => format!("{}.{group}", self.kind),
        }
    }

    /// The address of its page.
    #[must_use]
    pub fn path(&self) -> String {
        let namespace = self.namespace.as_deref().unwrap_or(NO_NAMESPACE);
        format!("/workloads/{}/{}/{}", encode(namespace), encode(&self.type_()), encode(&self.name))
    }

    /// Reads the parts of an address.
    #[must_use]
    pub fn of_path(namespace: &str, type_: &str, name: &str) -> Self {
        let (kind, group) = type_.split_once('.').unwrap_or((type_, ""));
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespace: (namespace != NO_NAMESPACE).then(|| namespace.to_owned()),
            name: name.to_owned(),
        }
    }
}

impl std::fmt::Display for WorkloadId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{}/{}", self.kind.to_lowercase(), self.name)
    }
}

/// Stands for no namespace in addresses. It is no valid name of a namespace.
pub const NO_NAMESPACE: &str = "-";

/// The address of a member's page.
#[must_use]
pub fn member_path(name: &str) -> String {
    format!("/members/{}", encode(name))
}

/// How much of a resource of a member is requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// For example `cpu`.
    pub resource: &'static str,
    /// Requested part; `None` = unknown.
    pub percent: Option<u8>,
    /// For example `3.5 of 12 free`.
    pub text: String,
}

/// A member on the overview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberTile {
    /// Its name.
    pub name: String,
    /// Its state in words.
    pub state: Vec<Word>,
    /// Why it is not only ready.
    pub reason: String,
    /// Since when it is or is not ready.
    pub since: Option<When>,
    /// Its agent's session.
    pub session: Word,
    /// Replicas that decisions give it.
    pub replicas: i64,
    /// Workloads that it has.
    pub workloads: usize,
    /// Its resources.
    pub use_: Vec<Use>,
}

/// What keeps a workload or a member from being as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concern {
    /// `Failing`, `Waiting`, `Held`, `Moving`.
    pub state: Word,
    /// Since when.
    pub since: Option<When>,
    /// The workload; `None` for a member's own.
    pub workload: Option<WorkloadId>,
    /// The members that it is about.
    pub members: Vec<String>,
    /// Why.
    pub why: String,
}

/// Number of workloads in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// The state.
    pub state: Word,
    /// How many.
    pub count: usize,
}

/// Changes by people that a ChangeGuard holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldPlan {
    /// Its id.
    pub plan: String,
    /// The guards that hold it.
    pub guards: Vec<String>,
    /// Its workloads.
    pub workloads: i64,
    /// Replicas that it moves.
    pub replicas: i64,
    /// Since when it waits.
    pub since: When,
    /// The objects that people changed.
    pub causes: Vec<String>,
    /// Why it waits, from each guard once.
    pub why: Vec<String>,
}

/// The page Overview.
#[derive(Debug, Clone, Default)]
pub struct Overview {
    /// Holder and term of the leader; `None` if no controller leads.
    pub leader: Option<String>,
    /// Members; those that are not fine first.
    pub members: Paged<MemberTile>,
    /// Members that are ready.
    pub ready: usize,
    /// All workloads.
    pub workloads: usize,
    /// Workloads by their most urgent state, without those that are fine.
    pub counts: Vec<Count>,
    /// The most urgent first.
    pub concerns: Paged<Concern>,
    /// Plans that ChangeGuards hold, oldest first.
    pub held: Vec<HeldPlan>,
    /// Plans that are not in the list.
    pub more_held: usize,
    /// Decisions of the last hour, newest first.
    pub recent: Vec<DecisionRow>,
    /// What is not shown, and why.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_workloads_read_back() {
        let hostile = WorkloadId {
            group: "example.com".to_owned(),
            kind: "Widget".to_owned(),
            namespace: Some("a b".to_owned()),
            name: "x/../\"><script>".to_owned(),
        };
        let path = hostile.path();
        assert_eq!(path, "/workloads/a%20b/Widget.example.com/x%2F..%2F%22%3E%3Cscript%3E");
        let global = WorkloadId { namespace: None, ..hostile.clone() };
        assert!(global.path().starts_with("/workloads/-/"));
        assert_eq!(WorkloadId::of_path("a b", "Widget.example.com", &hostile.name), hostile);
    }

    #[test]
    fn a_page_beyond_the_end_is_the_last() {
        let items: Vec<usize> = (0..101).collect();
        let page = Paged::of(&items, 9, 50, |n| *n);
        assert_eq!((page.page, page.pages(), page.rows), (2, 3, vec![100]));
        let none: Paged<usize> = Paged::of(&[], 3, 50, |n: &usize| *n);
        assert_eq!((none.page, none.pages(), none.all), (0, 1, 0));
    }
}
