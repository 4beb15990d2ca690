//! The kinds that the agent follows to find its objects, and the index that names them.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::Engine;
use super::queue::Place;
use crate::apply::fields::is_applied;
use crate::inventory::index::{Found, Index};
use crate::key::GroupKind;
use crate::member::MemberError;

/// Backoff of index writes after a failure.
const INDEX_RETRY: Duration = Duration::from_secs(1);

/// How far the index can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Books {
    /// It names every kind and namespace with objects of ours, on the member too.
    Kept,
    /// It was lost: every kind that the member serves is followed. It stays lost on the member until all kinds were
    /// listed, so that a successor of a crashed agent also lists everything; until then objects are applied without it.
    Lost,
    /// The member's content is known and the index is being written. Only objects that it names are applied.
    Restored,
}

impl Books {
    /// The index and its state at start.
    pub(super) fn open(found: Found, first: bool) -> (Index, Self) {
        match found {
            Found::Intact(index) => (index, Self::Kept),
            // Written at once, so that its loss would be noticed.
            Found::Absent if first => (Index::default(), Self::Restored),
            Found::Absent | Found::Damaged => {
                let what = if found == Found::Absent { "gone" } else { "damaged" };
                tracing::warn!(
                    "the inventory's index is {what}: all kinds of the member are looked through"
                );
                (Index::default(), Self::Lost)
            }
        }
    }
}

impl Engine {
    /// Whether we applied an object with our marks. For a kind in the index the marks decide; elsewhere they may be
    /// copies.
    pub(super) fn is_ours(&self, kind: &GroupKind, object: &Value) -> bool {
        self.books == Books::Kept || is_applied(object, &kind.group)
    }

    /// Whether all kinds that may have objects of ours are followed.
    pub(super) fn is_everything_followed(&self) -> bool {
        self.books != Books::Lost || self.options.discovery.current().is_complete()
    }

    /// Rewrites a lost index once its content is known: kinds with objects of ours, and those that could not be listed,
    /// which may have some.
    pub(super) fn restore_index(&mut self, now: Instant) {
        if self.index_write.is_some() || self.index_retry.is_some_and(|at| now < at) {
            return;
        }
        match self.books {
            Books::Kept => return,
            Books::Restored => {}
            Books::Lost => {
                let apis = self.options.discovery.current();
                let awaited = self.kinds.are_awaited() && self.settling.is_some();
                if awaited || !apis.is_complete() || !self.options.fence.is_open() {
                    return;
                }
            }
        }
        self.index_retry = None;
        let mut next = Index { namespaces: self.table.namespaces(), ..Index::default() };
        next.kinds = self.table.kinds();
        next.kinds.extend(self.kinds.unlisted().cloned());
        if self.books == Books::Lost {
            tracing::info!(kinds = next.kinds.len(), "all kinds were looked through");
        }
        self.books = Books::Restored;
        self.write_index(next);
    }

    /// Ends the time that kinds have to be listed.
    pub(super) fn settle(&mut self, now: Instant) {
        if self.settling.is_some_and(|until| until <= now) {
            self.settling = None;
            self.tell_unlisted();
        }
    }

    /// Reports kinds that cannot be listed, once their time is over.
    pub(super) fn tell_unlisted(&self) {
        if self.settling.is_some() {
            return;
        }
        let unlisted = self.kinds.hindered().cloned().collect();
        self.options.unlisted.send_if_modified(|told| {
            let changed = *told != unlisted;
            *told = unlisted;
            changed
        });
    }

    /// Adds new kinds and namespaces of due work to the index before any of that work starts.
    pub(super) fn extend_index(&mut self, now: Instant) {
        if self.index_write.is_some() || self.index_retry.is_some_and(|at| now < at) {
            return;
        }
        if self.books != Books::Kept {
            return;
        }
        self.index_retry = None;
        let mut next = self.index.clone();
        for (key, place) in self.table.queue.due() {
            if matches!(place, Place::Apply(_)) {
                next.add(key);
            }
        }
        if next != self.index {
            self.write_index(next);
        }
    }

    fn write_index(&mut self, next: Index) {
        let (member, namespace) = (self.options.member.clone(), self.options.namespace.clone());
        self.index_write = Some(next.clone());
        self.writes.spawn(async move { next.write(&member, &namespace).await });
    }

    pub(super) fn index_written(
        &mut self,
        done: Result<Result<(), MemberError>, tokio::task::JoinError>,
    ) {
        let written = self.index_write.take();
        match done {
            Ok(Ok(())) => {
                if let Some(index) = written {
                    self.index = index;
                }
                if self.books == Books::Restored {
                    self.books = Books::Kept;
                    self.kinds.keep_only(&self.index.kinds);
                }
                self.follow_index();
            }
            Ok(Err(error)) => {
                tracing::warn!(error = %error.message(), "cannot write the inventory's index; nothing new is applied");
                self.index_retry = Some(Instant::now() + INDEX_RETRY);
                let due = self.table.queue.due().map(|(key, _)| key.clone());
                let waiting: Vec<_> = due.filter(|key| !self.index.covers(key)).collect();
                for key in waiting {
                    let message =
                        format!("the inventory's index cannot be written: {}", error.message());
                    self.refuse(&key, String::new(), "IndexNotWritten", message);
                }
            }
            Err(error) => {
                tracing::error!(%error, "writing the inventory's index ended badly");
                self.index_retry = Some(Instant::now() + INDEX_RETRY);
            }
        }
    }

    /// Follows every kind of the index that the member serves; without an index, all that it serves.
    pub(super) fn follow_index(&mut self) {
        let apis = self.options.discovery.current();
        let mut follow = |kind: &GroupKind| {
            let version = self.table.version_of(kind);
            self.kinds.follow(kind, &apis, version.as_deref());
        };
        match self.books {
            Books::Lost => apis.kinds().for_each(&mut follow),
            Books::Kept | Books::Restored => self.index.kinds.iter().for_each(&mut follow),
        }
    }

    /// Ends watches of kinds without entries, and removes them from the index.
    pub(super) fn drop_unused(&mut self) {
        if self.late {
            self.send_inventory();
        }
        if self.books != Books::Kept {
            return;
        }
        let unused: Vec<_> = self
            .index
            .kinds
            .iter()
            .filter(|kind| self.kinds.is_listed(kind) && !self.table.uses(kind))
            .cloned()
            .collect();
        let mut next = self.index.clone();
        for kind in self.kinds.idle(unused, Instant::now()) {
            next.kinds.remove(&kind);
        }
        if self.kinds.all_listed() {
            let used = self.table.namespaces();
            next.namespaces.retain(|namespace| used.contains(namespace));
        }
        // Only a removed kind is worth a write: a superfluous namespace costs nothing.
        if next.kinds != self.index.kinds && self.index_write.is_none() {
            self.kinds.keep_only(&next.kinds);
            self.index = next.clone();
            self.write_index(next);
        }
    }
}
