//! Policies of either scope, parsed once for claims.

use std::collections::BTreeMap;

use atoll_api::policy::{PropagationPolicySpec, PropagationPolicyStatus, ResourceSelector};
use atoll_api::selector::{Labelled, Selector};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::key::{GroupKind, PolicyKey, TemplateKey};

/// Why an object could not be read as its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// It does not match the kind's schema.
    #[error("{0}")]
    Shape(String),
    /// Metadata that every API server sets is missing.
    #[error("metadata.{0} is missing")]
    Metadata(&'static str),
}

/// A policy of either scope.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Its identity.
    pub key: PolicyKey,
    /// uid; empty if the object has none.
    pub uid: String,
    /// generation.
    pub generation: i64,
    /// When its spec or metadata last changed, if the object says so.
    pub changed_at: Option<Timestamp>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it has a deletionTimestamp. Such a policy claims nothing.
    pub deleting: bool,
    /// Its spec.
    pub spec: PropagationPolicySpec,
    /// Its last status.
    pub status: PropagationPolicyStatus,
    /// The parsed selectors, or the invalid field and its problem. With an invalid selector the policy selects nothing.
    pub selectors: Result<Vec<ReadSelector>, String>,
    /// Selects the namespaces whose objects the policy selects. `None` = all.
    pub namespaces: Option<Selector>,
    /// Whether templates may name their first placement themselves.
    pub accepts_start: bool,
}

/// Stands for every kind in a selector of a PropagationPolicy.
const EVERY_KIND: &str = "*";

/// One parsed entry of `spec.resourceSelectors`.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadSelector {
    /// The kind, regardless of version. `None` = every kind that [`super::is_selected_by_every_kind`] allows.
    pub kind: Option<GroupKind>,
    /// Version that the selector names; empty for every kind.
    pub version: String,
    /// Namespace, if given.
    pub namespace: Option<String>,
    /// Which objects of the kind.
    pub which: Which,
}

/// Which objects of a kind a selector matches. Later variants are stronger.
#[derive(Debug, Clone, PartialEq)]
pub enum Which {
    /// All.
    All,
    /// By labels.
    Labels(Selector),
    /// One object.
    Name(String),
}

impl ReadSelector {
    fn read(selector: &ResourceSelector, namespaced: bool, path: &str) -> Result<Self, String> {
        let (kind, version) = Self::kind(selector, namespaced, path)?;
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        // A selector with a name ignores its labels, as in Karmada.
        let which = match (given(&selector.name), &selector.label_selector) {
            (Some(name), _) => Which::Name(name),
            (None, Some(labels)) => Which::Labels(
                Selector::parse(labels).map_err(|e| format!("{path}.labelSelector: {e}"))?,
            ),
            (None, None) => Which::All,
        };
        Ok(Self { kind, version, namespace: given(&selector.namespace), which })
    }

    /// The kind and the version, or why there is none.
    fn kind(
        selector: &ResourceSelector,
        namespaced: bool,
        path: &str,
    ) -> Result<(Option<GroupKind>, String), String> {
        let api_version = &*selector.api_version;
        if selector.kind == EVERY_KIND {
            if !namespaced {
                return Err(format!(
                    "{path}.kind: \"*\" selects the objects of one namespace; use a PropagationPolicy, or name the kinds"
                ));
            }
            if api_version != EVERY_KIND {
                return Err(format!(
                    "{path}.apiVersion: is {api_version:?}, but kind \"*\" selects kinds of every group; write \"*\", or name the kinds"
                ));
            }
            if selector.name.as_deref().is_some_and(|name| !name.is_empty()) {
                return Err(format!(
                    "{path}.name: kind \"*\" selects all objects or by labels; name the kind, or remove the name"
                ));
            }
            return Ok((None, String::new()));
        }
        if api_version == EVERY_KIND {
            return Err(format!(
                "{path}.apiVersion: \"*\" is for kind \"*\" only; name the group and version of {}",
                selector.kind
            ));
        }
        let kind = GroupKind::of(api_version, &selector.kind);
        if kind.is_own() {
            return Err(format!(
                "{path}: {kind} is one of Atoll's own kinds, which are never propagated"
            ));
        }
        let version = api_version.rsplit_once('/').map_or(api_version, |(_, version)| version);
        Ok((Some(kind), version.to_owned()))
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
    /// The object does not match the schema.
    pub fn read(object: &Value) -> Result<Self, ObjectError> {
        let raw = Raw::deserialize(object).map_err(|e| ObjectError::Shape(e.to_string()))?;
        let namespaced = raw.metadata.namespace.is_some();
        let selectors = raw
            .spec
            .resource_selectors
            .iter()
            .enumerate()
            .map(|(i, selector)| {
                ReadSelector::read(selector, namespaced, &format!("spec.resourceSelectors[{i}]"))
            })
            .collect();
        let namespaces = namespaces(&raw);
        let annotations = raw.metadata.annotations.as_ref();
        let accepts = annotations.and_then(|all| all.get(atoll_api::marks::ACCEPTS_START));
        Ok(Self {
            accepts_start: accepts.is_some_and(|value| value == "true"),
            changed_at: changed_at(object),
            key: PolicyKey {
                namespace: raw.metadata.namespace,
                name: raw.metadata.name.ok_or(ObjectError::Metadata("name"))?,
            },
            uid: raw.metadata.uid.unwrap_or_default(),
            generation: raw.metadata.generation.unwrap_or_default(),
            labels: raw.metadata.labels.unwrap_or_default(),
            deleting: raw.metadata.deletion_timestamp.is_some(),
            spec: raw.spec,
            status: raw.status.unwrap_or_default(),
            selectors: namespaces.as_ref().map_err(Clone::clone).and(selectors),
            namespaces: namespaces.unwrap_or_default(),
        })
    }

    /// Whether the policy selects objects of this one's namespace. Objects in a namespace with unknown labels are not
    /// selected by them.
    #[must_use]
    pub fn is_for_namespace_of(
        &self,
        key: &TemplateKey,
        labels: &(impl Labelled + ?Sized),
        namespace_labels: Option<&BTreeMap<String, String>>,
    ) -> bool {
        let Some(namespaces) = &self.namespaces else { return true };
        match (key.namespace(), namespace_labels) {
            (None, _) => key.group_kind().is_namespace() && namespaces.matches(labels),
            (Some(_), Some(of_namespace)) => namespaces.matches(of_namespace),
            (Some(_), None) => false,
        }
    }

    /// Whether a selector is for every kind.
    #[must_use]
    pub fn selects_every_kind(&self) -> bool {
        self.selectors().iter().any(|selector| selector.kind.is_none())
    }

    /// The kinds that the selectors name.
    pub fn named_kinds(&self) -> impl Iterator<Item = &GroupKind> {
        self.selectors().iter().filter_map(|selector| selector.kind.as_ref())
    }

    /// The parsed selectors; empty if one of them is invalid.
    pub fn selectors(&self) -> &[ReadSelector] {
        self.selectors.as_deref().unwrap_or_default()
    }
}

/// The parsed `spec.namespaceSelector`, or its problem.
fn namespaces(raw: &Raw) -> Result<Option<Selector>, String> {
    let Some(selector) = &raw.spec.namespace_selector else { return Ok(None) };
    if raw.metadata.namespace.is_some() {
        return Err(
            "spec.namespaceSelector: a PropagationPolicy selects objects of its own namespace; \
                    use a ClusterPropagationPolicy"
                .to_owned(),
        );
    }
    let parsed = Selector::parse(selector);
    parsed.map(Some).map_err(|error| format!("spec.namespaceSelector: {error}"))
}

/// When the spec or the metadata of an object last changed: the latest time in its managed fields that is not of its
/// status, else its creation. `None` for an object that no API server has stored.
pub(super) fn changed_at(object: &Value) -> Option<Timestamp> {
    let metadata = &object["metadata"];
    let time = |value: &Value| value.as_str()?.parse::<Timestamp>().ok();
    let entries = metadata["managedFields"].as_array().into_iter().flatten();
    let edits = entries.filter(|entry| entry["subresource"] != "status");
    edits.filter_map(|entry| time(&entry["time"])).max().or(time(&metadata["creationTimestamp"]))
}
