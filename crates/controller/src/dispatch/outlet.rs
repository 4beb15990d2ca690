//! The members' side as the engine sees it.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::Cluster;
use atoll_api::policy::ConflictResolution;
use atoll_render::{Key, Rendered};

use super::verdicts::{Judgement, Verdicts};
use crate::lifecycle::emptying::Emptying;
use crate::members::{LimitReason, Members, Oracle, Proof, Verdict, Withdrawal};

/// Hands orders to members. Calls never wait: the members' side keeps the newest word for each member and binding.
pub trait Outlet: Send + Sync + 'static {
    /// What a binding wants on a member, in place of what it wanted before.
    fn set_desired(
        &self,
        cluster: &str,
        claim: &str,
        objects: Vec<Arc<Rendered>>,
        conflict: ConflictResolution,
    );
    /// A binding wants nothing on a member any more, and why that is certain.
    fn withdraw(&self, cluster: &str, claim: &str, how: Withdrawal, proof: Proof);
    /// We lead no more: what was wanted of members is another leader's matter, and may be another thing when we lead again.
    fn stepped_down(&self);
    /// Every committed decision was handed over in this term: what else members hold may be judged.
    fn caches_complete(&self, term: u64);
    /// Removals that are limited may be unlimited from now on, or for another reason.
    fn limits_changed(&self);
    /// Node label keys by which members shall tell their nodes apart, because placed templates ask for them.
    fn watch_labels(&self, keys: &BTreeSet<String>);
    /// How far a member is from being empty, where that is wanted.
    fn emptying(&self, cluster: &str, emptying: Emptying);
    /// A Cluster object came or changed.
    fn cluster_changed(&self, cluster: &Cluster);
    /// A Cluster object went.
    fn cluster_deleted(&self, name: &str);
}

impl Outlet for Members {
    fn set_desired(
        &self,
        cluster: &str,
        claim: &str,
        objects: Vec<Arc<Rendered>>,
        conflict: ConflictResolution,
    ) {
        Self::set_desired(self, cluster, claim, objects, conflict);
    }

    fn withdraw(&self, cluster: &str, claim: &str, how: Withdrawal, proof: Proof) {
        Self::withdraw(self, cluster, claim, how, proof);
    }

    fn stepped_down(&self) {
        Self::stepped_down(self);
    }

    fn caches_complete(&self, term: u64) {
        Self::caches_complete(self, term);
    }

    fn limits_changed(&self) {
        Self::limits_changed(self);
    }

    fn watch_labels(&self, keys: &BTreeSet<String>) {
        Self::watch_labels(self, keys);
    }

    fn emptying(&self, cluster: &str, emptying: Emptying) {
        Self::emptying(self, cluster, emptying);
    }

    fn cluster_changed(&self, cluster: &Cluster) {
        Self::cluster_changed(self, cluster);
    }

    fn cluster_deleted(&self, name: &str) {
        Self::cluster_deleted(self, name);
    }
}

impl Oracle for Verdicts {
    fn verdict(&self, cluster: &str, claim: &str, _key: &Key) -> Verdict {
        match self.judge(cluster, claim) {
            Judgement::Wanted => Verdict::Wanted,
            Judgement::NotATarget => Verdict::Remove(Proof::NotTargeted),
            Judgement::Withdrawn => Verdict::Remove(Proof::BindingDeleted),
            Judgement::Released => Verdict::Release(Proof::BindingDeleted),
            Judgement::WithdrawnBefore => Verdict::Remove(Proof::Recorded),
            Judgement::Frozen => Verdict::Frozen,
            Judgement::Unknown => Verdict::Unknown,
        }
    }

    fn limit(&self, claim: &str) -> Option<LimitReason> {
        Self::limit(self, claim)
    }
}
