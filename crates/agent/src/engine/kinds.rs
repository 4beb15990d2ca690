//! The followed kinds: those of the index, added and removed as it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::marks::{MANAGED_BY, MANAGED_BY_VALUE};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::apply::order::metadata_is_enough;
use crate::key::{GroupKind, Key};
use crate::member::{Apis, Follow, Followed, Member, follow};
use atoll_api::Jitter;

/// How long a kind without objects is still followed: an object that is replaced returns within moments.
const IDLE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct State {
    /// Ends the watch.
    token: Option<CancellationToken>,
    /// Its objects were listed once, or it is known to have none.
    listed: bool,
    /// Why the last attempt to list it failed.
    hindered: Option<Hindered>,
    /// Keys in the current list.
    seen: BTreeSet<Key>,
    idle_since: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hindered {
    /// The agent lacks permission.
    Forbidden,
    /// Any other failure.
    Failed,
}

/// The followed kinds.
pub(super) struct Kinds {
    member: Member,
    jitter: Jitter,
    events: mpsc::Sender<(GroupKind, Followed)>,
    token: CancellationToken,
    kinds: BTreeMap<GroupKind, State>,
    tasks: JoinSet<()>,
}

impl Kinds {
    pub(super) fn new(
        member: Member,
        jitter: Jitter,
        events: mpsc::Sender<(GroupKind, Followed)>,
        token: CancellationToken,
    ) -> Self {
        Self { member, jitter, events, token, kinds: BTreeMap::new(), tasks: JoinSet::new() }
    }

    /// Follows a kind, in this version or the preferred one, unless already followed. A kind that is known not to be
    /// served has no objects; one that may be served is tried again after the next discovery.
    pub(super) fn follow(&mut self, kind: &GroupKind, apis: &Apis, version: Option<&str>) {
        let entry = self.kinds.entry(kind.clone()).or_default();
        let target = apis.resolve(kind, version).or_else(|_| apis.resolve(kind, None));
        match (target, &entry.token) {
            (Ok(target), None) => {
                let token = self.token.child_token();
                entry.token = Some(token.clone());
                let what = Follow {
                    namespace: None,
                    labels: Some(format!("{MANAGED_BY}={MANAGED_BY_VALUE}")),
                    metadata_only: metadata_is_enough(kind),
                };
                let (member, jitter) = (self.member.clone(), self.jitter.clone());
                let (kind, events) = (kind.clone(), self.events.clone());
                self.tasks.spawn(follow(member, target.clone(), what, jitter, kind, events, token));
            }
            (Ok(_), Some(_)) => {}
            (Err(_), token) => {
                if apis.surely_lacks(kind) {
                    if let Some(token) = token {
                        token.cancel();
                    }
                    entry.token = None;
                    entry.listed = true;
                }
            }
        }
        // Remove finished tasks.
        while self.tasks.try_join_next().is_some() {}
    }

    pub(super) fn list_begins(&mut self, kind: &GroupKind) {
        if let Some(entry) = self.kinds.get_mut(kind) {
            entry.seen.clear();
        }
    }

    pub(super) fn seen(&mut self, kind: &GroupKind, key: Key) {
        if let Some(entry) = self.kinds.get_mut(kind) {
            entry.seen.insert(key);
        }
    }

    pub(super) fn list_ends(&mut self, kind: &GroupKind) -> BTreeSet<Key> {
        let Some(entry) = self.kinds.get_mut(kind) else { return BTreeSet::new() };
        entry.listed = true;
        entry.hindered = None;
        std::mem::take(&mut entry.seen)
    }

    /// Following a kind failed.
    pub(super) fn failed(&mut self, kind: &GroupKind, forbidden: bool) {
        if let Some(entry) = self.kinds.get_mut(kind)
            && !entry.listed
        {
            let how = if forbidden { Hindered::Forbidden } else { Hindered::Failed };
            entry.hindered = Some(how);
        }
    }

    /// Kinds that could not be listed so far.
    pub(super) fn hindered(&self) -> impl Iterator<Item = &GroupKind> {
        self.kinds.iter().filter(|(_, entry)| entry.hindered.is_some()).map(|(kind, _)| kind)
    }

    /// Whether waiting may still help: false when all kinds were listed except forbidden ones.
    pub(super) fn are_awaited(&self) -> bool {
        let awaited = |entry: &State| !entry.listed && entry.hindered != Some(Hindered::Forbidden);
        self.kinds.values().any(awaited)
    }

    pub(super) fn follows(&self, kind: &GroupKind) -> bool {
        self.kinds.contains_key(kind)
    }

    pub(super) fn is_listed(&self, kind: &GroupKind) -> bool {
        self.kinds.get(kind).is_some_and(|entry| entry.listed)
    }

    pub(super) fn all_listed(&self) -> bool {
        self.kinds.values().all(|entry| entry.listed)
    }

    pub(super) fn unlisted(&self) -> impl Iterator<Item = &GroupKind> {
        self.kinds.iter().filter(|(_, entry)| !entry.listed).map(|(kind, _)| kind)
    }

    /// The unused kinds that have been unused for longer than [`IDLE`].
    pub(super) fn idle(&mut self, unused: Vec<GroupKind>, now: Instant) -> Vec<GroupKind> {
        for (kind, entry) in &mut self.kinds {
            if !unused.contains(kind) {
                entry.idle_since = None;
            }
        }
        unused
            .into_iter()
            .filter(|kind| {
                self.kinds.get_mut(kind).is_some_and(|entry| {
                    now.duration_since(*entry.idle_since.get_or_insert(now)) >= IDLE
                })
            })
            .collect()
    }

    /// Ends the watches of all other kinds.
    pub(super) fn keep_only(&mut self, kept: &BTreeSet<GroupKind>) {
        self.kinds.retain(|kind, entry| {
            let keep = kept.contains(kind);
            if let (false, Some(token)) = (keep, &entry.token) {
                token.cancel();
            }
            keep
        });
    }

    pub(super) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}
