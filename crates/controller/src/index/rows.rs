//! Rows of the tables, parsed once when an object's event arrives.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::binding::{ReadStatus, ResourceBindingSpec};
use atoll_api::{BindingUid, marks, share_equal};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::key::{BindingKey, PolicyKey, TemplateKey};
use super::meta::{Meta, RawMeta};
use super::status_text::StatusText;
use super::unchecked;
use crate::leader::LeaderTerm;
use crate::object::string_map;
use crate::packed::Packed;

/// A policy, and why it or another object is invalid; its previous row stays in force.
pub(crate) use atoll_scheduler::detect::{ObjectError as RowError, Policy};

/// What is read of a binding of either scope.
#[derive(Deserialize)]
struct Raw {
    metadata: RawMeta,
    spec: ResourceBindingSpec,
    status: Option<ReadStatus>,
}

/// A binding of either scope.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// Its key in the tables.
    pub key: BindingKey,
    /// The object that it is for.
    pub template: TemplateKey,
    /// That object's binding has another key, so this one was not created by Atoll.
    pub(crate) misplaced: bool,
    /// uid: the claim under which members hold its objects.
    pub uid: BindingUid,
    /// Its other metadata.
    pub(crate) meta: Meta,
    /// What was decided.
    pub spec: ResourceBindingSpec,
    /// What was last reported.
    pub(crate) status: StatusText,
}

/// The object that a binding with this key is for, and whether that object's binding has another key.
fn object_of(spec: &ResourceBindingSpec, key: &BindingKey) -> (TemplateKey, bool) {
    let template = TemplateKey::of(&spec.resource);
    let misplaced = template.binding() != *key;
    (template, misplaced)
}

impl Binding {
    /// Parses a binding of either scope.
    ///
    /// # Errors
    /// When it does not fit its type.
    pub fn read(object: &Value) -> Result<Self, RowError> {
        Raw::deserialize(object)
            .map_or_else(|error| Self::with_malformed_status(object.clone(), &error), Self::of)
    }

    /// The same, from the text of the object.
    pub(crate) fn parse(object: &str) -> Result<Self, RowError> {
        serde_json::from_str(object).map_or_else(
            |error| {
                Self::with_malformed_status(
                    serde_json::from_str(object).unwrap_or_default(),
                    &error,
                )
            },
            Self::of,
        )
    }

    /// Parses a binding whose status is the only part that does not fit its type: API servers do not check it. The row has the
    /// malformed status, so that the next status removes all of it.
    fn with_malformed_status(
        mut object: Value,
        error: &serde_json::Error,
    ) -> Result<Self, RowError> {
        let status = object.get_mut("status").map(Value::take).unwrap_or_default();
        let raw = Raw::deserialize(object).map_err(|error| RowError::Shape(error.to_string()))?;
        let row = Self::of(raw)?;
        let why = unchecked::check_status(&status)
            .map_or_else(|field| format!("status.{field}"), |()| error.to_string());
        tracing::warn!(key = %row.key, why, "the binding's status is malformed; the controller writes it again");
        Ok(Self { status: StatusText::malformed(status), ..row })
    }

    fn of(mut raw: Raw) -> Result<Self, RowError> {
        let name = raw.metadata.name.as_deref().ok_or(RowError::Metadata("name"))?;
        let uid = raw.metadata.uid.as_ref().ok_or(RowError::Metadata("uid"))?.into();
        let key = BindingKey::of(raw.metadata.namespace.as_deref(), name);
        let status = StatusText::of(&raw.status.map(|status| status.0).unwrap_or_default());
        // There is one of these for each workload, and a list that is read has room for more.
        raw.spec.clusters.shrink_to_fit();
        let (template, misplaced) = object_of(&raw.spec, &key);
        let meta = Meta::read(raw.metadata);
        Ok(Self { key, template, misplaced, uid, meta, spec: raw.spec, status })
    }

    /// Shares what it has in common with another: bindings of a policy have most of it in common.
    pub(super) fn share(&mut self, other: &Self) {
        share_equal(&mut self.uid, &other.uid);
        share_equal(&mut self.template, &other.template);
        self.meta.share(&other.meta);
        self.status.share(&other.status);
        if let Some((decision, known)) =
            self.spec.decision.as_mut().zip(other.spec.decision.as_ref())
        {
            decision.share(known);
        }
        share_equal(&mut self.spec.failover, &other.spec.failover);
        share_equal(&mut self.spec.replica_requirements, &other.spec.replica_requirements);
        share_equal(&mut self.spec.placement, &other.spec.placement);
    }

    /// The next version of it, with this metadata and spec.
    #[must_use]
    pub(crate) fn next(&self, meta: Meta, spec: ResourceBindingSpec) -> Self {
        let version: u64 = self.resource_version().parse().unwrap_or_default();
        let resource_version = version.saturating_add(1).to_string().into();
        let (key, uid, status) = (self.key.clone(), self.uid.clone(), self.status.clone());
        let (template, misplaced) = match spec.resource == self.spec.resource {
            true => (self.template.clone(), self.misplaced),
            false => object_of(&spec, &key),
        };
        let meta = Meta { resource_version, ..meta };
        Self { key, template, misplaced, uid, meta, spec, status }
    }

    /// resourceVersion that guards the next write.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.meta.resource_version
    }

    /// It is being withdrawn.
    #[must_use]
    pub fn deleting(&self) -> bool {
        self.meta.deleted.time().is_some()
    }

    /// An annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.meta.annotations.get(key).map(|text| &**text)
    }

    /// A label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.meta.labels.get(key).map(|text| &**text)
    }

    /// The policy in its marks, which may be deleted.
    #[must_use]
    pub fn policy(&self) -> Option<PolicyKey> {
        PolicyKey::of_annotations(|key| self.annotation(key))
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

    /// Its metadata as the hub's API has it.
    #[must_use]
    pub fn metadata(&self) -> ObjectMeta {
        self.meta.object(&self.key, &self.uid)
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
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Its manifest for members, made once for all objects in it.
    pub(crate) manifest: Arc<Packed>,
    /// It has a deletionTimestamp.
    pub deleting: bool,
}

impl Namespace {
    /// Reads a Namespace as returned by the API server.
    pub(super) fn read(name: &str, object: &Value) -> Self {
        Self {
            labels: string_map(&object["metadata"]["labels"]),
            manifest: Arc::new(Packed::prerequisite(&atoll_render::namespace(name, Some(object)))),
            deleting: !object["metadata"]["deletionTimestamp"].is_null(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_malformed_status_is_replaced_and_a_malformed_spec_is_an_error() {
        let binding = |replicas: Value, status: Value| {
            json!({
                "metadata": {"namespace": "shop", "name": "web-deployment", "uid": "u"},
                "spec": {"replicas": replicas, "resource": {"apiVersion": "apps/v1",
                    "kind": "Deployment", "namespace": "shop", "name": "web"}},
                "status": status,
            })
        };
        let malformed = json!({"summary": "all", "truncated": 1, "note": "x"});
        let object = binding(json!(2), malformed.clone());
        let row = Binding::read(&object).unwrap();
        assert_eq!(Binding::parse(&object.to_string()).unwrap(), row);
        assert_eq!((row.spec.replicas, row.status.read()), (Some(2), Default::default()));
        let wanted = json!({"summary": {"ready": 2}});
        let patch = crate::status::write::patch(&row.status.value(), &wanted).unwrap();
        let removed = json!({"summary": {"ready": 2}, "truncated": null, "note": null});
        assert_eq!(patch, json!({"status": removed}));

        for status in [json!({}), malformed] {
            let error = Binding::read(&binding(json!("two"), status)).unwrap_err();
            assert!(error.to_string().contains("two"), "{error}");
        }
    }

    #[test]
    fn a_row_with_its_counts_fits_into_a_block_of_768_bytes() {
        // There is one for each workload; the allocator's next larger block has 896 bytes.
        let counts = 2 * size_of::<usize>();
        assert!(size_of::<Binding>() + counts <= 768, "{}", size_of::<Binding>());
    }
}
