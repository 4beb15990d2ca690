//! Where the agent looks for its objects: the kinds that it follows, and the index that names them.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::Engine;
use super::queue::Place;
use crate::apply::fields::is_applied;
use crate::inventory::index::{Found, Index};
use crate::key::GroupKind;
use crate::member::MemberError;

/// Wait before the index is written again after a failure.
const INDEX_RETRY: Duration = Duration::from_secs(1);

/// How far the index is to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Books {
    /// It names every kind and namespace with objects of ours, on the member too.
    Kept,
    /// It was lost: every kind that the member serves is followed. It stays lost on the member until all were listed, so
    /// that an agent that dies meanwhile is followed by one that looks everywhere as well; until then anything is applied.
    Lost,
    /// What the member holds is known and is being written. Nothing is applied that it does not name.
    Restored,
}

impl Books {
    /// What to begin with.
    pub(super) fn open(found: Found, first: bool) -> (Index, Self) {
        match found {
            Found::Intact(index) => (index, Self::Kept),
            // Written at once, so that it is missed if it goes.
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
    /// Whether an object with our marks was applied by us. Of a kind of the index it is; elsewhere others may have copied them.
    pub(super) fn is_ours(&self, kind: &GroupKind, object: &Value) -> bool {
        self.books == Books::Kept || is_applied(object, &kind.group)
    }

    /// Whether all kinds are known that may have objects of ours.
    pub(super) fn is_everything_followed(&self) -> bool {
        self.books != Books::Lost || self.options.discovery.current().is_complete()
    }

    /// Writes an index that was lost anew, once it is known what belongs into it: kinds with objects of ours, and those that
    /// could not be listed, which may have some.
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

    /// Says which kinds cannot be listed, once they had their time.
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

    /// Lists kinds and namespaces of due work that are new, before any of it starts.
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

    /// Ends watches of kinds that nothing is known of any more, and takes them out of the index.
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
        // Kinds alone are worth a write: a namespace too many costs nothing.
        if next.kinds != self.index.kinds && self.index_write.is_none() {
            self.kinds.keep_only(&next.kinds);
            self.index = next.clone();
            self.write_index(next);
        }
    }
}
