//! The kinds that the agent follows to find its objects, and the index that names them.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::Engine;
use super::index_state::Trust;
use super::queue::Place;
use crate::apply::fields::is_applied;
use crate::inventory::index::Index;
use crate::key::GroupKind;
use crate::member::MemberError;

/// Backoff of index writes after a failure.
const INDEX_RETRY: Duration = Duration::from_secs(1);

impl Engine {
    /// Whether we applied an object with our marks. For a kind in the index the marks decide; elsewhere they may be
    /// copies.
    pub(super) fn is_ours(&self, kind: &GroupKind, object: &Value) -> bool {
        self.index.trust == Trust::Complete || is_applied(object, &kind.group)
    }

    /// Whether all kinds that may have objects of ours are followed.
    pub(super) fn is_everything_followed(&self) -> bool {
        self.index.trust != Trust::Lost || self.options.discovery.current().is_complete()
    }

    /// Rewrites a lost index once its content is known: kinds with objects of ours, and those that could not be listed,
    /// which may have some.
    pub(super) fn restore_index(&mut self, now: Instant) {
        if !self.index.may_write(now) {
            return;
        }
        match self.index.trust {
            Trust::Complete => return,
            Trust::Restored => {}
            Trust::Lost => {
                let apis = self.options.discovery.current();
                let awaited = self.kinds.are_awaited() && self.settling.is_some();
                if awaited || !apis.is_complete() || !self.options.fence.is_open() {
                    return;
                }
            }
        }
        self.index.retry = None;
        let mut next = Index { namespaces: self.table.namespaces(), ..Index::default() };
        next.kinds = self.table.kinds();
        next.kinds.extend(self.kinds.unlisted().cloned());
        if self.index.trust == Trust::Lost {
            tracing::info!(kinds = next.kinds.len(), "listed all kinds");
        }
        self.index.trust = Trust::Restored;
        self.write_index(next);
    }

    /// Ends the time that kinds have to be listed.
    pub(super) fn settle(&mut self, now: Instant) {
        if self.settling.is_some_and(|until| until <= now) {
            self.settling = None;
            self.report_unlisted();
        }
    }

    /// Reports kinds that cannot be listed, once their time is over.
    pub(super) fn report_unlisted(&self) {
        if self.settling.is_some() {
            return;
        }
        let unlisted = self.kinds.hindered().cloned().collect();
        self.options.unlisted.send_if_modified(|known| {
            let changed = *known != unlisted;
            *known = unlisted;
            changed
        });
    }

    /// Adds new kinds and namespaces of due work to the index before any of that work starts.
    pub(super) fn extend_index(&mut self, now: Instant) {
        if !self.index.may_write(now) {
            return;
        }
        if self.index.trust != Trust::Complete {
            return;
        }
        self.index.retry = None;
        let mut next = self.index.index.clone();
        for (key, place) in self.table.queue.due() {
            if matches!(place, Place::Apply(_)) {
                next.add(key);
            }
        }
        if next != self.index.index {
            self.write_index(next);
        }
    }

    fn write_index(&mut self, next: Index) {
        let (member, namespace) = (self.options.member.clone(), self.options.namespace.clone());
        self.index.writing = Some(next.clone());
        self.index.writes.spawn(async move { next.write(&member, &namespace).await });
    }

    pub(super) fn index_written(
        &mut self,
        done: Result<Result<(), MemberError>, tokio::task::JoinError>,
    ) {
        let written = self.index.writing.take();
        match done {
            Ok(Ok(())) => {
                if let Some(index) = written {
                    self.index.index = index;
                }
                if self.index.trust == Trust::Restored {
                    self.index.trust = Trust::Complete;
                    self.kinds.keep_only(&self.index.index.kinds);
                }
                self.follow_index();
            }
            Ok(Err(error)) => {
                tracing::warn!(error = %error.message(), "cannot write the inventory's index; nothing new is applied");
                self.index.retry = Some(Instant::now() + INDEX_RETRY);
                let due = self.table.queue.due().map(|(key, _)| key.clone());
                let waiting: Vec<_> = due.filter(|key| !self.index.index.covers(key)).collect();
                for key in waiting {
                    let message =
                        format!("the inventory's index cannot be written: {}", error.message());
                    self.refuse(&key, String::new(), "IndexNotWritten", message);
                }
            }
            Err(error) => {
                tracing::error!(%error, "the write of the inventory's index panicked");
                self.index.retry = Some(Instant::now() + INDEX_RETRY);
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
        match self.index.trust {
            Trust::Lost => apis.kinds().for_each(&mut follow),
            Trust::Complete | Trust::Restored => {
                self.index.index.kinds.iter().for_each(&mut follow)
            }
        }
    }

    /// Ends watches of kinds without entries, and removes them from the index.
    pub(super) fn drop_unused(&mut self) {
        if self.late {
            self.send_inventory();
        }
        if self.index.trust != Trust::Complete {
            return;
        }
        let unused: Vec<_> = self
            .index
            .index
            .kinds
            .iter()
            .filter(|kind| self.kinds.is_listed(kind) && !self.table.uses(kind))
            .cloned()
            .collect();
        let mut next = self.index.index.clone();
        for kind in self.kinds.idle(unused, Instant::now()) {
            next.kinds.remove(&kind);
        }
        if self.kinds.all_listed() {
            let used = self.table.namespaces();
            next.namespaces.retain(|namespace| used.contains(namespace));
        }
        // Only a removed kind is worth a write: a superfluous namespace costs nothing.
        if next.kinds != self.index.index.kinds && self.index.writing.is_none() {
            self.kinds.keep_only(&next.kinds);
            self.index.index = next.clone();
            self.write_index(next);
        }
    }
}
