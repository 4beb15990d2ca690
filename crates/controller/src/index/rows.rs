//! Rows of the tables, parsed once when an object's event arrives.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::binding::{ObjectReference, ResourceBindingSpec, ResourceBindingStatus};
use atoll_api::{BindingUid, TemplateUid, marks};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::key::{BindingKey, GroupKind, PolicyKey, TemplateKey};
use crate::leader::LeaderTerm;

/// A policy, and why it or another object is invalid; its previous row stays in force.
pub(crate) use atoll_scheduler::detect::{ObjectError as RowError, Policy};

/// A user's object.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// Its key in the tables.
    pub key: TemplateKey,
    /// As returned by the API server, with apiVersion and kind.
    pub object: Arc<Value>,
    /// uid.
    pub uid: TemplateUid,
    /// resourceVersion.
    pub resource_version: String,
    /// generation; 0 for kinds that have none (ConfigMap).
    pub generation: i64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// Another object controls it, so it is not a user's own.
    pub controlled: bool,
    /// The WorkloadPolicy in a label of the object or of its pod template.
    pub workload_policy: Option<String>,
}

impl Template {
    /// Parses an object of this kind.
    ///
    /// # Errors
    /// When metadata that every API server sets is missing.
    pub fn read(kind: &GroupKind, object: Arc<Value>) -> Result<Self, RowError> {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().map(str::to_owned);
        let labels = string_map(&metadata["labels"]);
        let pod_labels = string_map(&object["spec"]["template"]["metadata"]["labels"]);
        let controlled = metadata["ownerReferences"]
            .as_array()
            .is_some_and(|owners| owners.iter().any(|owner| owner["controller"] == true));
        Ok(Self {
            key: TemplateKey {
                kind: kind.clone(),
                namespace: text("namespace").filter(|namespace| !namespace.is_empty()),
                name: text("name").ok_or(RowError::Metadata("name"))?,
            },
            uid: text("uid").ok_or(RowError::Metadata("uid"))?.into(),
            resource_version: text("resourceVersion").unwrap_or_default(),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            deleting: !metadata["deletionTimestamp"].is_null(),
            workload_policy: workload_policy(&labels).or_else(|| workload_policy(&pod_labels)),
            labels,
            controlled,
            object,
        })
    }

    /// apiVersion under which it was read.
    #[must_use]
    pub fn api_version(&self) -> &str {
        self.object["apiVersion"].as_str().unwrap_or_default()
    }

    /// A reference to this object.
    #[must_use]
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: self.api_version().to_owned(),
            kind: self.key.kind.kind.clone(),
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            uid: Some((&self.uid).into()),
        }
    }

    /// Its generation for observers: for kinds without one every version counts as new.
    #[must_use]
    pub fn revision(&self) -> i64 {
        if self.generation > 0 {
            self.generation
        } else {
            self.resource_version.parse().unwrap_or_default()
        }
    }
}

fn workload_policy(labels: &BTreeMap<String, String>) -> Option<String> {
    std::iter::once(marks::WORKLOAD_POLICY)
        .chain(marks::WORKLOAD_POLICY_ALIASES)
        .find_map(|label| labels.get(label).cloned())
}

/// The string values of an object.
pub(crate) fn string_map(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries
        .filter_map(|(key, value)| value.as_str().map(|value| (key.clone(), value.to_owned())))
        .collect()
}

/// The parts that both scopes of a kind share.
#[derive(Deserialize)]
struct Raw<Spec, Status> {
    metadata: ObjectMeta,
    spec: Spec,
    #[serde(default = "Option::default")]
    status: Option<Status>,
}

fn shape<Spec: for<'a> Deserialize<'a>, Status: for<'a> Deserialize<'a>>(
    object: &Value,
) -> Result<Raw<Spec, Status>, RowError> {
    Raw::deserialize(object).map_err(|error| RowError::Shape(error.to_string()))
}

/// A binding of either scope.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// Its key in the tables.
    pub key: BindingKey,
    /// uid: the claim under which members hold its objects.
    pub uid: BindingUid,
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What was decided.
    pub spec: ResourceBindingSpec,
    /// What was last reported.
    pub status: ResourceBindingStatus,
}

impl Binding {
    /// Parses a binding of either scope.
    ///
    /// # Errors
    /// When it does not fit its type.
    pub fn read(object: &Value) -> Result<Self, RowError> {
        let raw: Raw<ResourceBindingSpec, ResourceBindingStatus> = shape(object)?;
        let name = raw.metadata.name.clone().ok_or(RowError::Metadata("name"))?;
        let uid = raw.metadata.uid.as_ref().ok_or(RowError::Metadata("uid"))?.into();
        let key = BindingKey { namespace: raw.metadata.namespace.clone(), name };
        Ok(Self {
            key,
            uid,
            metadata: raw.metadata,
            spec: raw.spec,
            status: raw.status.unwrap_or_default(),
        })
    }

    /// resourceVersion that guards the next write.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    /// It is being withdrawn.
    #[must_use]
    pub fn deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The template.
    #[must_use]
    pub fn template(&self) -> TemplateKey {
        TemplateKey::of(&self.spec.resource)
    }

    /// An annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// A label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// The policy in its marks, which may be deleted.
    #[must_use]
    pub fn policy(&self) -> Option<PolicyKey> {
        PolicyKey::of_annotations(self.metadata.annotations.as_ref())
    }

    /// uid of the policy in its marks.
    #[must_use]
    pub fn policy_uid(&self) -> Option<&str> {
        self.label(marks::POLICY_UID).or_else(|| self.label(marks::CLUSTER_POLICY_UID))
    }

    /// id of the decision that it holds.
    #[must_use]
    pub fn decision_id(&self) -> Option<&str> {
        self.spec.decision.as_ref().map(|decision| decision.id.as_str())
    }

    /// Term of the leader that made its decision; 0 without one.
    #[must_use]
    pub fn term(&self) -> LeaderTerm {
        let decision = self.spec.decision.as_ref();
        decision.map_or(LeaderTerm::default(), |decision| LeaderTerm::from_record(decision.term))
    }

    /// Whether it exists only because others refer to its object: no policy ever claimed it.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.spec.placement.is_none() && self.spec.decision.is_none()
    }

    /// Clusters on which others need its object.
    pub fn required_on(&self) -> impl Iterator<Item = &str> {
        let clusters = self.spec.required_by.iter().flat_map(|by| &by.clusters);
        clusters.map(|cluster| cluster.name.as_str())
    }

    /// Clusters of the committed decision: targets, then those it is leaving, then those where others need it.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        let targets = self.spec.clusters.iter().map(|target| target.name.as_str());
        let leaving =
            self.spec.graceful_eviction_tasks.iter().map(|task| task.from_cluster.as_str());
        targets.chain(leaving).chain(self.required_on())
    }
}

/// A namespace of the hub.
#[derive(Debug, Clone, PartialEq)]
pub struct Namespace {
    /// As returned by the API server.
    pub object: Arc<Value>,
    /// It has a deletionTimestamp.
    pub deleting: bool,
}

/// Whether two versions of a template have the same content.
pub(crate) fn same_content(held: &Arc<Value>, template: &Template) -> bool {
    if Arc::ptr_eq(held, &template.object) {
        return true;
    }
    // Kinds without a generation show their resourceVersion as revision.
    let passing: &[&str] = if template.generation > 0 {
        &["resourceVersion", "managedFields"]
    } else {
        &["managedFields"]
    };
    same_but(&held["metadata"], &template.object["metadata"], passing)
        && same_but(held, &template.object, &["metadata", "status"])
}

/// Whether two objects have the same fields, except for the fields in `but`.
fn same_but(a: &Value, b: &Value, but: &[&str]) -> bool {
    let field = |name: &&String| !but.contains(&name.as_str());
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a == b };
    a.keys().filter(field).eq(b.keys().filter(field))
        && a.keys().filter(field).all(|name| a.get(name) == b.get(name))
}
