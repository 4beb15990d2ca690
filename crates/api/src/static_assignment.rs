//! What carries out the `staticAssignments` of a FederatedResourceQuota: a ResourceQuota without amounts on the hub, a policy
//! that sends it to the assigned members, and override rules with each member's amounts.
//!
//! Only the ResourceQuota is an object of the hub. The policies are made from the FederatedResourceQuota wherever they are
//! needed: users of a namespace may write its PropagationPolicies and OverridePolicies, so an object of the hub could be
//! changed by those whom the quota limits.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;
use serde_json::json;

use crate::federated_resource_quota::FederatedResourceQuota;
use crate::override_policy::{
    OverridePolicy, OverridePolicySpec, OverrideRule, OverriderOperator, Overriders,
    PlaintextOverrider,
};
use crate::placement::{ClusterAffinity, Placement};
use crate::policy::{DEFAULT_PROFILE, PropagationPolicy, PropagationPolicySpec, ResourceSelector};
use crate::{POLICY_GROUP, VERSION, marks};

/// Start of a ResourceQuota's name.
const PREFIX: &str = "static-";
/// Limit of Kubernetes for names.
const MAX_NAME: usize = 253;
const KIND: &str = "FederatedResourceQuota";
/// End of a policy's name. No object of a hub can have such a name.
const ENDING: &str = " (FederatedResourceQuota)";

/// The name of the ResourceQuota of a quota; `None` if it would be too long.
#[must_use]
pub fn name_of(quota: &str) -> Option<String> {
    (PREFIX.len() + quota.len() <= MAX_NAME).then(|| format!("{PREFIX}{quota}"))
}

/// Whether a policy of this name was made from a FederatedResourceQuota, and is no object of the hub.
#[must_use]
pub fn is_policy_name(policy: &str) -> bool {
    policy.ends_with(ENDING)
}

/// The name of the only policies that apply to an object, if it is a ResourceQuota of `staticAssignments`.
#[must_use]
pub fn policy_for(
    (group, kind, name): (&str, &str, &str),
    has_label: impl FnOnce(&str) -> bool,
) -> Option<String> {
    let quota = name.strip_prefix(PREFIX)?;
    let is_one = group.is_empty() && kind == "ResourceQuota" && has_label(marks::STATIC_ASSIGNMENT);
    is_one.then(|| format!("{quota}{ENDING}"))
}

/// Whether a quota with this name and uid owns an object.
#[must_use]
pub fn is_owned(owners: &[OwnerReference], quota: &str, uid: &str) -> bool {
    owners.iter().any(|owner| owner.kind == KIND && owner.name == quota && owner.uid == uid)
}

/// The quota that owns an object, by name and uid, if the object has the label of these objects.
#[must_use]
pub fn owner(metadata: &ObjectMeta) -> Option<(&str, &str)> {
    let labels = metadata.labels.as_ref()?;
    labels.get(marks::STATIC_ASSIGNMENT)?;
    let owner = metadata.owner_references.iter().flatten().find(|owner| owner.kind == KIND)?;
    Some((&owner.name, &owner.uid))
}

/// What a quota with `staticAssignments` asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Assigned {
    /// The amounts of each member.
    pub overrides: OverridePolicy,
    /// The members.
    pub policy: PropagationPolicy,
    /// The object of the hub.
    pub quota: ResourceQuota,
}

impl Assigned {
    /// `None`: nothing is assigned.
    #[must_use]
    pub fn of(quota: &FederatedResourceQuota) -> Option<Self> {
        let assigned = &quota.spec.static_assignments;
        if assigned.is_empty() || quota.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let name = name_of(&quota.name_any())?;
        let label = (marks::STATIC_ASSIGNMENT.to_owned(), "true".to_owned());
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            namespace: quota.metadata.namespace.clone(),
            labels: Some(BTreeMap::from([label])),
            owner_references: Some(vec![OwnerReference {
                api_version: format!("{POLICY_GROUP}/{VERSION}"),
                kind: KIND.to_owned(),
                name: quota.name_any(),
                uid: quota.metadata.uid.clone().unwrap_or_default(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        };
        let of_policies = ObjectMeta {
            name: Some(format!("{}{ENDING}", quota.name_any())),
            namespace: quota.metadata.namespace.clone(),
            // They change when the quota does.
            uid: quota.metadata.uid.clone(),
            generation: quota.metadata.generation,
            ..ObjectMeta::default()
        };
        let selector = ResourceSelector {
            api_version: "v1".to_owned(),
            kind: "ResourceQuota".to_owned(),
            name: Some(name),
            ..ResourceSelector::default()
        };
        Some(Self {
            overrides: OverridePolicy {
                metadata: of_policies.clone(),
                spec: amounts(quota, selector.clone()),
                status: None,
            },
            policy: PropagationPolicy {
                metadata: of_policies,
                spec: members(quota, selector),
                status: None,
            },
            quota: ResourceQuota {
                metadata,
                spec: Some(ResourceQuotaSpec::default()),
                status: None,
            },
        })
    }
}

fn on(cluster_names: Vec<String>) -> ClusterAffinity {
    ClusterAffinity { cluster_names, ..ClusterAffinity::default() }
}

/// The rules that write each member's amounts.
fn amounts(quota: &FederatedResourceQuota, selector: ResourceSelector) -> OverridePolicySpec {
    let rules = quota.spec.static_assignments.iter().map(|assignment| OverrideRule {
        target_cluster: Some(on(vec![assignment.cluster_name.clone()])),
        overriders: Overriders {
            plaintext: vec![PlaintextOverrider {
                path: "/spec".to_owned(),
                operator: OverriderOperator::Add,
                value: Some(json!({"hard": assignment.hard})),
                value_from: None,
            }],
            ..Overriders::default()
        },
    });
    OverridePolicySpec {
        resource_selectors: vec![selector],
        override_rules: rules.collect(),
        ..OverridePolicySpec::default()
    }
}

/// The placement on the assigned members.
fn members(quota: &FederatedResourceQuota, selector: ResourceSelector) -> PropagationPolicySpec {
    let assigned = quota.spec.static_assignments.iter();
    let placement = Placement {
        cluster_affinity: Some(on(assigned.map(|entry| entry.cluster_name.clone()).collect())),
        cluster_tolerations: tolerations(),
        ..Placement::default()
    };
    PropagationPolicySpec {
        resource_selectors: vec![selector],
        placement: placement.into(),
        priority: i32::MAX,
        scheduler_name: DEFAULT_PROFILE.to_owned(),
        ..PropagationPolicySpec::default()
    }
}

/// A quota holds on a cordoned member, and stays on a lost one. It leaves a drained one.
fn tolerations() -> Vec<Toleration> {
    let exists = |key: Option<&str>, effect: &str| Toleration {
        key: key.map(str::to_owned),
        operator: Some("Exists".to_owned()),
        effect: Some(effect.to_owned()),
        ..Toleration::default()
    };
    vec![
        exists(None, "NoSchedule"),
        exists(Some(marks::TAINT_UNREACHABLE), "NoExecute"),
        exists(Some(marks::TAINT_NOT_READY), "NoExecute"),
    ]
}
