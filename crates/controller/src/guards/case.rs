//! A decision on a binding: whether people caused it, which guards select it, and whether it may go.

use std::collections::BTreeSet;

use atoll_api::binding::{ObjectReference, Trigger};
use atoll_api::{POLICY_GROUP, VERSION};
use atoll_decision::Decision;
use kube::Resource;

use super::change::{self, Change};
use crate::detect::Claim;
use crate::index::Index;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::index::template::Template;

/// What was decided on.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) key: &'a BindingKey,
    pub(crate) claim: &'a Claim,
    pub(crate) template: &'a Template,
    pub(crate) binding: Option<&'a Binding>,
}

/// The change of a decision that people caused, with the guards that select it.
pub(super) fn guarded<'a>(
    index: &Index,
    case: Case<'a>,
    decision: &Decision,
) -> Option<(Change, BTreeSet<String>, &'a Binding)> {
    index.guards().next()?;
    let binding = case.binding?;
    let policy = case.claim.policy().map(|policy| &**policy);
    let guards = index.guards_of(&case.template.key, policy, binding);
    let guards: BTreeSet<String> = guards.map(|(name, _)| name.clone()).collect();
    if guards.is_empty() {
        return None;
    }
    let asked = case.claim.asked(Some(&binding.spec));
    let change = change::by_people(index, &asked.placement, binding, decision)?;
    Some((change, guards, binding))
}

/// Whether a change is the one in the binding's mark, and its plan was released. What somebody approved goes exactly as
/// planned; what goes because it fits may move to other clusters than planned, but not more.
pub(super) fn may_go(
    index: &Index,
    binding: &Binding,
    change: &Change,
    guards: &BTreeSet<String>,
) -> bool {
    let Some(held) = &binding.spec.held else { return false };
    let rows = || guards.iter().filter_map(|name| index.guard(name));
    let approved = held.change == change.hash && rows().any(|guard| guard.releases(held, true));
    // A release without an approval is written to all guards of the plan.
    let fits = change.replicas <= held.replicas && rows().all(|guard| guard.releases(held, false));
    approved || fits
}

/// The object whose change a decision follows from: the Cluster that is left, or else the policy, or else the binding.
pub(super) fn cause(index: &Index, case: Case<'_>, decision: &Decision) -> ObjectReference {
    let left = decision.before().iter().find(|target| {
        let after = decision.clusters().iter().find(|now| now.name == target.name);
        after.is_none_or(|now| now.replicas < target.replicas)
    });
    let cluster = left.and_then(|target| index.cluster(&target.name));
    if let (Trigger::ClusterChange, Some(cluster)) = (decision.trigger(), cluster) {
        return ObjectReference {
            api_version: atoll_api::Cluster::api_version(&()).into_owned(),
            kind: atoll_api::Cluster::kind(&()).into_owned(),
            namespace: None,
            name: cluster.metadata.name.clone().unwrap_or_default(),
            uid: cluster.metadata.uid.clone(),
        };
    }
    if let (Some(policy), true) = (case.claim.policy(), decision.trigger() != Trigger::Rebalance) {
        return ObjectReference {
            api_version: format!("{POLICY_GROUP}/{VERSION}"),
            kind: policy.key.kind().to_owned(),
            namespace: policy.key.namespace.clone(),
            name: policy.key.name.clone(),
            uid: Some(policy.uid.clone()),
        };
    }
    case.template.reference()
}
