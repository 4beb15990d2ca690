//! What was last sent to a member for a binding.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::{BindingUid, ClusterName, ManifestHash};
use atoll_render::overrides::{Applied, ClusterProperties};
use atoll_render::{NodeRules, Rendered};
use serde_json::Value;

use super::order::{Order, labels_for, overwrites};
use super::plan::Presence;
use crate::index::rows::Binding;
use crate::index::template::Template;
use crate::lifecycle::rollouts::Cause;

/// Number of recent hashes under which a member's report is still matched.
const REMEMBERED_HASHES: usize = 4;

/// What was last sent for a binding on a member.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sent {
    /// Hash of the manifest.
    pub hash: ManifestHash,
    /// Replicas in it.
    pub replicas: Option<i64>,
    /// Whether the object outlives its binding.
    pub preserve: bool,
    /// Whether it may replace an object that Atoll does not manage.
    pub overwrite: bool,
    /// Rules of override policies in it.
    pub applied: Vec<Applied>,
    /// What it was rendered from.
    inputs: Inputs,
    /// The template revision that each recent hash was last rendered from, newest hash last.
    revisions: Vec<(ManifestHash, i64)>,
}

impl Sent {
    /// What is sent now, after `before`.
    pub(super) fn next(
        before: Option<&Self>,
        order: &Order,
        inputs: Inputs,
        revision: i64,
    ) -> Self {
        let hash = order.object.hash.clone();
        let mut revisions = before.map(|before| before.revisions.clone()).unwrap_or_default();
        revisions.retain(|(held, _)| *held != hash);
        if revisions.len() == REMEMBERED_HASHES {
            revisions.remove(0);
        }
        revisions.reserve_exact(1);
        revisions.push((hash.clone(), revision));
        Self {
            hash,
            replicas: order.replicas,
            preserve: order.preserve,
            overwrite: order.overwrite,
            applied: order.applied.clone(),
            inputs,
            revisions,
        }
    }

    /// Whether the member need not be sent this, because it was sent the same before.
    pub(super) fn is_same(&self, before: &Self) -> bool {
        (&self.hash, self.preserve, self.overwrite)
            == (&before.hash, before.preserve, before.overwrite)
    }

    /// Whether it is the result of these inputs, so that it need not be rendered again.
    pub(super) fn is_of(&self, inputs: &Inputs) -> bool {
        self.inputs == *inputs
    }

    /// Why overrides made another manifest of these inputs; `None` if something else changed too.
    pub(super) fn overrides_changed(&self, inputs: &Inputs) -> Option<Cause> {
        let held = &self.inputs.overrides;
        if *held == inputs.overrides {
            return None;
        }
        let same = Inputs { overrides: held.clone(), ..inputs.clone() };
        let properties = |overrides: &Option<Box<(u64, ClusterProperties)>>| {
            overrides.as_ref().map(|held| held.1.clone())
        };
        let cause = match properties(held) == properties(&inputs.overrides) {
            true => Cause::Policies,
            false if held.is_none() || inputs.overrides.is_none() => Cause::Policies,
            false => Cause::Cluster,
        };
        (self.inputs == same).then_some(cause)
    }

    /// uid of the binding.
    #[must_use]
    pub(crate) fn claim(&self) -> &BindingUid {
        &self.inputs.claim
    }

    /// The newest template revision that renders to this hash here; `None` for an older hash.
    #[must_use]
    pub(crate) fn revision(&self, hash: &str) -> Option<i64> {
        self.revisions.iter().find(|(held, _)| held == hash).map(|(_, revision)| *revision)
    }
}

/// Everything that a member's order is computed from: equal inputs give equal orders. What few workloads have is boxed:
/// there is one of these for each workload on each member.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Inputs {
    /// Version of the template's content.
    pub source: u64,
    /// uid of the binding.
    pub claim: BindingUid,
    /// Hash of the manifest of its namespace.
    pub namespace: Option<ManifestHash>,
    /// The override policies that may concern it, and the cluster's properties.
    pub overrides: Option<Box<(u64, ClusterProperties)>>,
    /// The user's rule that writes the replicas: its hash, and whether it did.
    pub revising: Option<(u64, bool)>,
    /// The patch of the cluster's subset.
    pub patch: Option<Box<Value>>,
    /// The nodes of the cluster's subset.
    pub nodes: Option<Box<NodeRules>>,
    /// Labels added to the template's.
    pub labels: BTreeMap<String, String>,
    /// Replicas of the clusters before it in the order of the subsets.
    pub ordinals: Option<i64>,
    /// The share.
    pub presence: Presence,
    /// Whether the object outlives its binding.
    pub preserve: bool,
    /// Whether it may replace an object that Atoll does not manage.
    pub overwrite: bool,
}

impl Inputs {
    /// The inputs of a share where no rule, override or spread changes the template.
    pub(super) fn of(
        (binding, template): (&Binding, &Template),
        source: u64,
        namespace: Option<&Arc<Rendered>>,
        (cluster, presence): (&ClusterName, Presence),
    ) -> Self {
        Self {
            source,
            claim: binding.uid.clone(),
            namespace: namespace.map(|needed| needed.hash.clone()),
            overrides: None,
            revising: None,
            patch: None,
            nodes: None,
            labels: labels_for(binding, cluster),
            ordinals: None,
            presence,
            preserve: binding.spec.preserve_resources_on_deletion,
            // An error is that of the order.
            overwrite: overwrites(binding, template).unwrap_or_default(),
        }
    }
}
