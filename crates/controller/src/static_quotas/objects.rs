//! The objects that carry out the `staticAssignments` of a FederatedResourceQuota: a ResourceQuota without amounts, the
//! policy that sends it to the assigned members, and the OverridePolicy with each member's amounts.

use atoll_api::federated_resource_quota::FederatedResourceQuota;
use atoll_api::override_policy::{OverridePolicy, PlaintextOverrider};
use atoll_api::override_policy::{OverridePolicySpec, OverrideRule, OverriderOperator, Overriders};
use atoll_api::placement::{ClusterAffinity, Placement};
use atoll_api::policy::{PropagationPolicy, PropagationPolicySpec, ResourceSelector};
use atoll_api::{POLICY_GROUP, VERSION, marks};
use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;
use serde_json::json;

/// Start of the objects' names.
const PREFIX: &str = "static-";
/// Limit of Kubernetes for names.
const MAX_NAME: usize = 253;
const KIND: &str = "FederatedResourceQuota";

/// The name of the objects of a quota; `None` if it would be too long.
#[must_use]
pub(crate) fn name_of(quota: &str) -> Option<String> {
    (PREFIX.len() + quota.len() <= MAX_NAME).then(|| format!("{PREFIX}{quota}"))
}

/// Whether a quota with this name and uid owns an object.
#[must_use]
pub(crate) fn is_owned(owners: &[OwnerReference], quota: &str, uid: &str) -> bool {
    owners.iter().any(|owner| owner.kind == KIND && owner.name == quota && owner.uid == uid)
}

/// The quota that owns an object, by name and uid, if the object has the label of these objects.
pub(super) fn owner(metadata: &ObjectMeta) -> Option<(&str, &str)> {
    let labels = metadata.labels.as_ref()?;
    labels.get(marks::STATIC_ASSIGNMENT)?;
    let owner = metadata.owner_references.iter().flatten().find(|owner| owner.kind == KIND)?;
    Some((&owner.name, &owner.uid))
}

/// What a quota asks for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Objects {
    pub(super) overrides: OverridePolicy,
    pub(super) policy: PropagationPolicy,
    pub(super) quota: ResourceQuota,
}

impl Objects {
    /// `None`: nothing is assigned.
    pub(super) fn of(quota: &FederatedResourceQuota) -> Option<Self> {
        let assigned = &quota.spec.static_assignments;
        if assigned.is_empty() || quota.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let name = name_of(&quota.name_any())?;
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            namespace: quota.metadata.namespace.clone(),
            labels: Some([(marks::STATIC_ASSIGNMENT.to_owned(), "true".to_owned())].into()),
            owner_references: Some(vec![OwnerReference {
                api_version: format!("{POLICY_GROUP}/{VERSION}"),
                kind: KIND.to_owned(),
                name: quota.name_any(),
                uid: quota.metadata.uid.clone()?,
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        };
        let selector = ResourceSelector {
            api_version: "v1".to_owned(),
            kind: "ResourceQuota".to_owned(),
            name: Some(name),
            ..ResourceSelector::default()
        };
        let of = |cluster_names| ClusterAffinity { cluster_names, ..ClusterAffinity::default() };
        let rules = assigned.iter().map(|assignment| OverrideRule {
            target_cluster: Some(of(vec![assignment.cluster_name.clone()])),
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
        let overrides = OverridePolicySpec {
            resource_selectors: vec![selector.clone()],
            override_rules: rules.collect(),
            ..OverridePolicySpec::default()
        };
        let names = assigned.iter().map(|assignment| assignment.cluster_name.clone()).collect();
        let placement = Placement {
            cluster_affinity: Some(of(names)),
            cluster_tolerations: tolerations(),
            ..Placement::default()
        };
        let policy = PropagationPolicySpec {
            resource_selectors: vec![selector],
            placement: placement.into(),
            // No other policy takes the object, also while a user has removed its label.
            priority: i32::MAX,
            scheduler_name: atoll_api::policy::DEFAULT_PROFILE.to_owned(),
            ..PropagationPolicySpec::default()
        };
        Some(Self {
            overrides: OverridePolicy { metadata: metadata.clone(), spec: overrides, status: None },
            policy: PropagationPolicy { metadata: metadata.clone(), spec: policy, status: None },
            quota: ResourceQuota {
                metadata,
                spec: Some(ResourceQuotaSpec::default()),
                status: None,
            },
        })
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

/// Makes an object of the hub what it must be; the rest of it stays.
pub(super) trait Adopt {
    fn adopt(&mut self, wanted: &Self);
}

fn adopt_metadata(held: &mut ObjectMeta, wanted: &ObjectMeta) {
    let labels = held.labels.get_or_insert_default();
    labels.extend(wanted.labels.clone().unwrap_or_default());
    held.owner_references.clone_from(&wanted.owner_references);
}

impl Adopt for OverridePolicy {
    fn adopt(&mut self, wanted: &Self) {
        adopt_metadata(&mut self.metadata, &wanted.metadata);
        self.spec.clone_from(&wanted.spec);
    }
}

impl Adopt for PropagationPolicy {
    fn adopt(&mut self, wanted: &Self) {
        adopt_metadata(&mut self.metadata, &wanted.metadata);
        self.spec.clone_from(&wanted.spec);
    }
}

impl Adopt for ResourceQuota {
    fn adopt(&mut self, wanted: &Self) {
        adopt_metadata(&mut self.metadata, &wanted.metadata);
        // API servers may leave out a spec without amounts.
        if self.spec.clone().unwrap_or_default() != wanted.spec.clone().unwrap_or_default() {
            self.spec.clone_from(&wanted.spec);
        }
    }
}
