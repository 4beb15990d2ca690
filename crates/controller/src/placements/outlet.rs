//! The leader's interface to `members`.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::policy::ConflictResolution;
use atoll_api::{BindingUid, Cluster, ClusterName};
use atoll_history::Recorder;
use atoll_render::Key;
use atoll_traces::TraceContext;
use bytes::Bytes;

use super::verdicts::{Judgement, Verdicts};
use crate::leader::LeaderTerm;
use crate::lifecycle::emptying::Emptying;
use crate::members::{
    AgentCustomizations, LimitReason, Members, Oracle, Proof, Verdict, Withdrawal,
};
use crate::packed::Packed;

/// Passes orders to members. Calls never wait: `members` keeps the newest order per member and binding.
pub(crate) trait Outlet: Send + Sync + 'static {
    /// Users' sessions on members are recorded here, where there are such sessions.
    fn record_sessions(&self, _recorder: &Recorder) {}
    /// Sets what a binding wants on a member, replacing its previous order: its object last, after what that needs.
    fn set_desired(
        &self,
        cluster: &ClusterName,
        claim: &BindingUid,
        objects: Vec<Arc<Packed>>,
        conflict: ConflictResolution,
    );
    /// The agent continues this trace when it gets the next order for an object.
    fn trace(&self, _cluster: &ClusterName, _object: &Key, _context: TraceContext) {}
    /// The manifest of an object that a binding wants on a member, as JSON. May wait for a lock for a moment: not for the
    /// event loop.
    fn manifest(&self, cluster: &ClusterName, claim: &BindingUid, key: &Key) -> Option<Bytes>;
    /// A binding wants nothing on a member any more; with the proof for it.
    fn withdraw(&self, cluster: &ClusterName, claim: &BindingUid, how: Withdrawal, proof: Proof);
    /// Leadership lost: drop all desired state; the next leader, or a later term of ours, rebuilds it.
    fn stepped_down(&self);
    /// Every committed decision was passed on in this term: now other objects on members may be judged.
    fn caches_complete(&self, term: LeaderTerm, oracle: Arc<dyn Oracle>);
    /// The limits on removals may have changed.
    fn limits_changed(&self);
    /// Node label keys that define the members' node classes, because placed templates use them.
    fn watch_labels(&self, keys: &BTreeSet<String>);
    /// Customizations whose rules agents use.
    fn set_customizations(&self, customizations: Arc<AgentCustomizations>);
    /// Progress of emptying a member, if it must be emptied.
    fn emptying(&self, cluster: &ClusterName, emptying: Emptying);
    /// A Cluster object was created or changed.
    fn cluster_changed(&self, cluster: &Cluster);
    /// A Cluster object was deleted.
    fn cluster_deleted(&self, name: &ClusterName);
}

impl Outlet for Members {
    fn record_sessions(&self, recorder: &Recorder) {
        Self::record_sessions(self, recorder.clone());
    }

    fn set_desired(
        &self,
        cluster: &ClusterName,
        claim: &BindingUid,
        objects: Vec<Arc<Packed>>,
        conflict: ConflictResolution,
    ) {
        Self::set(self, cluster, claim, objects, conflict);
    }

    fn trace(&self, cluster: &ClusterName, object: &Key, context: TraceContext) {
        Self::trace(self, cluster, object, context);
    }

    fn manifest(&self, cluster: &ClusterName, claim: &BindingUid, key: &Key) -> Option<Bytes> {
        Self::manifest(self, cluster, claim, key)
    }

    fn withdraw(&self, cluster: &ClusterName, claim: &BindingUid, how: Withdrawal, proof: Proof) {
        Self::withdraw(self, cluster, claim, how, proof);
    }

    fn stepped_down(&self) {
        Self::stepped_down(self);
    }

    fn caches_complete(&self, term: LeaderTerm, oracle: Arc<dyn Oracle>) {
        Self::caches_complete(self, term, oracle);
    }

    fn limits_changed(&self) {
        Self::limits_changed(self);
    }

    fn watch_labels(&self, keys: &BTreeSet<String>) {
        Self::watch_labels(self, keys);
    }

    fn set_customizations(&self, customizations: Arc<AgentCustomizations>) {
        Self::set_customizations(self, customizations);
    }

    fn emptying(&self, cluster: &ClusterName, emptying: Emptying) {
        Self::emptying(self, cluster, emptying);
    }

    fn cluster_changed(&self, cluster: &Cluster) {
        Self::cluster_changed(self, cluster);
    }

    fn cluster_deleted(&self, name: &ClusterName) {
        Self::cluster_deleted(self, name);
    }
}

impl Oracle for Verdicts {
    fn verdict(&self, cluster: &ClusterName, claim: &BindingUid, _key: &Key) -> Verdict {
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

    fn limit(&self, claim: &BindingUid) -> Option<LimitReason> {
        Self::limit(self, claim)
    }
}
