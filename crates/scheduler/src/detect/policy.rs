//! Policies of either scope, read once for claiming.

use atoll_api::policy::{PropagationPolicySpec, PropagationPolicyStatus, ResourceSelector};
use atoll_api::selector::Selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::key::{GroupKind, PolicyKey};

/// An object that cannot be read as what its kind says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// It does not fit the kind's type.
    #[error("{0}")]
    Shape(String),
    /// Metadata that every API server sets is missing.
    #[error("metadata.{0} is missing")]
    Metadata(&'static str),
}

/// A policy of either scope.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Its name in the tables.
    pub key: PolicyKey,
    /// uid; empty where nobody gave one.
    pub uid: String,
    /// generation.
    pub generation: i64,
    /// It has a deletionTimestamp: it claims nothing any more.
    pub deleting: bool,
    /// What it asks for.
    pub spec: PropagationPolicySpec,
    /// What was last said of it.
    pub status: PropagationPolicyStatus,
    /// The selectors, read; or the field and the mistake in it, in which case the policy selects nothing.
    pub selectors: Result<Vec<ReadSelector>, String>,
}

/// One entry of `spec.resourceSelectors`, read.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadSelector {
    /// The kind, whatever its version.
    pub kind: GroupKind,
    /// Version that the selector names.
    pub version: String,
    /// Namespace, where it is given.
    pub namespace: Option<String>,
    /// Which objects of the kind.
    pub which: Which,
}

/// Which objects of a kind a selector takes. The order is the order of strength.
#[derive(Debug, Clone, PartialEq)]
pub enum Which {
    /// All.
    All,
    /// By labels.
    Labels(Selector),
    /// One.
    Name(String),
}

impl ReadSelector {
    fn read(selector: &ResourceSelector, path: &str) -> Result<Self, String> {
        let kind = GroupKind::of(&selector.api_version, &selector.kind);
        if kind.is_own() {
            return Err(format!("{path}: {kind} is a kind of Atoll's own and is never propagated"));
        }
        let version =
            selector.api_version.rsplit_once('/').map_or(&*selector.api_version, |(_, v)| v);
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        // A selector with a name ignores its labels, as Karmada's does.
        let which = match (given(&selector.name), &selector.label_selector) {
            (Some(name), _) => Which::Name(name),
            (None, Some(labels)) => Which::Labels(
                Selector::parse(labels).map_err(|e| format!("{path}.labelSelector: {e}"))?,
            ),
            (None, None) => Which::All,
        };
        Ok(Self { kind, version: version.to_owned(), namespace: given(&selector.namespace), which })
    }
}

#[derive(Deserialize)]
struct Raw {
    metadata: ObjectMeta,
    spec: PropagationPolicySpec,
    #[serde(default)]
    status: Option<PropagationPolicyStatus>,
}

impl Policy {
    /// Reads a policy of either scope.
    ///
    /// # Errors
    /// When it does not fit its type.
    pub fn read(object: &Value) -> Result<Self, ObjectError> {
        let raw = Raw::deserialize(object).map_err(|e| ObjectError::Shape(e.to_string()))?;
        let selectors = raw
            .spec
            .resource_selectors
            .iter()
            .enumerate()
            .map(|(i, selector)| {
                ReadSelector::read(selector, &format!("spec.resourceSelectors[{i}]"))
            })
            .collect();
        Ok(Self {
            key: PolicyKey {
                namespace: raw.metadata.namespace,
                name: raw.metadata.name.ok_or(ObjectError::Metadata("name"))?,
            },
            uid: raw.metadata.uid.unwrap_or_default(),
            generation: raw.metadata.generation.unwrap_or_default(),
            deleting: raw.metadata.deletion_timestamp.is_some(),
            spec: raw.spec,
            status: raw.status.unwrap_or_default(),
            selectors,
        })
    }

    /// The selectors that can be read; none while one of them is wrong.
    pub fn selectors(&self) -> &[ReadSelector] {
        self.selectors.as_deref().unwrap_or_default()
    }
}
