//! What was last sent to a member for a binding.

use atoll_api::{BindingUid, ClusterName, ManifestHash};
use atoll_render::overrides::{Applied, ClusterProperties};

use super::order::{Order, labels_for, overwrites};
use super::plan::Wanted;
use super::special::Special;
use crate::index::rows::Binding;
use crate::index::template::Template;
use crate::lifecycle::rollouts::Cause;
use crate::packed::Packed;

/// Number of earlier hashes under which a member's report is still matched.
const EARLIER_HASHES: usize = 3;

/// What was last sent for a binding on a member.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sent {
    /// Hash of the manifest.
    pub hash: ManifestHash,
    /// Rules of override policies in it.
    pub applied: Box<[Applied]>,
    /// What it was rendered from.
    inputs: Inputs,
    /// The template revision that it was last rendered from.
    revision: i64,
    /// The same of recent hashes, newest last.
    earlier: Box<[(ManifestHash, i64)]>,
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
        let mut earlier = Vec::new();
        if let Some(before) = before {
            earlier.reserve_exact(before.earlier.len() + 1);
            earlier.extend_from_slice(&before.earlier);
            earlier.push((before.hash.clone(), before.revision));
        }
        earlier.retain(|(held, _)| *held != hash);
        if earlier.len() > EARLIER_HASHES {
            earlier.remove(0);
        }
        Self {
            hash,
            applied: order.applied.as_slice().into(),
            inputs,
            revision,
            earlier: earlier.into(),
        }
    }

    /// Whether the member need not be sent this, because it was sent the same before.
    pub(super) fn is_same(&self, before: &Self) -> bool {
        (&self.hash, self.inputs.preserve, self.inputs.overwrite)
            == (&before.hash, before.inputs.preserve, before.inputs.overwrite)
    }

    /// Replicas in it.
    pub(crate) fn replicas(&self) -> Option<i64> {
        self.inputs.wanted.replicas.get()
    }

    /// Whether it is the result of these inputs, so that it need not be rendered again.
    pub(super) fn is_of(&self, inputs: &Inputs) -> bool {
        self.inputs == *inputs
    }

    /// Why overrides made another manifest of these inputs; `None` if something else changed too.
    pub(super) fn overrides_changed(&self, inputs: &Inputs) -> Option<Cause> {
        let (held, now) = (self.inputs.overrides(), inputs.overrides());
        if held == now {
            return None;
        }
        let special = inputs.special.as_deref().cloned().unwrap_or_default();
        let special = Special { overrides: held.cloned(), ..special }.boxed();
        let cause = match (held, now) {
            (Some((_, on)), Some((_, now_on))) if on != now_on => Cause::Cluster,
            _ => Cause::Policies,
        };
        (self.inputs == Inputs { special, ..inputs.clone() }).then_some(cause)
    }

    /// uid of the binding.
    #[must_use]
    pub(crate) fn claim(&self) -> &BindingUid {
        &self.inputs.claim
    }

    /// The newest template revision that renders to this hash here; `None` for an older hash.
    #[must_use]
    pub(crate) fn revision(&self, hash: &str) -> Option<i64> {
        if self.hash == hash {
            return Some(self.revision);
        }
        self.earlier.iter().find(|(held, _)| held == hash).map(|(_, revision)| *revision)
    }
}

/// Everything that a member's order is computed from: equal inputs give equal orders.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Inputs {
    /// Version of the template's content.
    pub source: u64,
    /// uid of the binding.
    pub claim: BindingUid,
    /// Hash of the manifest of its namespace.
    pub namespace: Option<ManifestHash>,
    /// Boxed: there is one of these for each workload on each member.
    pub special: Option<Box<Special>>,
    /// The share.
    pub wanted: Wanted,
    /// Whether the object outlives its binding.
    pub preserve: bool,
    /// Whether it may replace an object that Atoll does not manage.
    pub overwrite: bool,
}

impl Inputs {
    /// The inputs of a share.
    pub(super) fn of(
        (binding, template): (&Binding, &Template),
        source: u64,
        namespace: Option<&Packed>,
        (cluster, wanted): (&ClusterName, Wanted),
        special: Special,
    ) -> Self {
        Self {
            source,
            claim: binding.uid.clone(),
            namespace: namespace.map(|needed| needed.hash.clone()),
            special: Special { labels: labels_for(binding, cluster), ..special }.boxed(),
            wanted,
            preserve: binding.spec.preserve_resources_on_deletion,
            // An error is that of the order.
            overwrite: overwrites(binding, template).unwrap_or_default(),
        }
    }

    pub(super) fn overrides(&self) -> Option<&(u64, ClusterProperties)> {
        self.special.as_ref()?.overrides.as_ref()
    }
}
