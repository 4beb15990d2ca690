//! Template + share + overrides -> the manifest for one member. Pure: equal input gives equal bytes.
//!
//! `atoll-interpreter` defines the meaning of kinds (where replicas are, which fields a member's controllers write),
//! and `atoll-merge` applies patches. The controller and the agent send and apply manifests and merge the claims of
//! several bindings on one object.

mod identity;
mod nodes;
pub mod overrides;
mod patch;
mod replicas;
mod strip;

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::{ManifestHash, marks};
use serde_json::{Map, Value, json};

/// Identity of an object on a member.
pub use atoll_api::ObjectKey as Key;
pub use nodes::NodeRules;
use overrides::{Applied, ClusterProperties, Division, OverrideError, Policies};
pub use patch::check as check_patch;
pub use strip::{SERVER_ANNOTATIONS, SERVER_METADATA};

/// What one binding requests on one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Share {
    /// Name of the Cluster, for errors.
    pub cluster: String,
    /// Replicas there, including kept eviction tasks. `None` for a kind without replicas.
    pub replicas: Option<i64>,
    /// Replicas of this binding on the clusters before this one in order of names; 0 with Duplicated. Ranges start
    /// here, for example the completions of a Job.
    pub before: i64,
    /// For a StatefulSet with a WorkloadSpread: replicas of this binding on the clusters before this one in order of
    /// the subsets. Its ordinals start above theirs.
    pub ordinals: Option<i64>,
    /// uid of the binding.
    pub claim: String,
    /// Whether the object stays when the binding is deleted (`preserveResourcesOnDeletion`).
    pub preserve: bool,
    /// Strategic merge patch for the pod template, from the cluster's subset of a WorkloadSpread.
    pub patch: Option<Value>,
    /// Nodes for the pods, from the cluster's subset of a WorkloadSpread.
    pub nodes: Option<NodeRules>,
    /// Labels in addition to the template's: the state preserved from a failed copy (`statePreservation`).
    pub labels: BTreeMap<String, String>,
    /// The template has the replicas of this share already: a rule of a user wrote them.
    pub revised: bool,
}

/// The manifest of one object on one member.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// Identity of the object.
    pub key: Key,
    /// For example `apps/v1`.
    pub api_version: Arc<str>,
    /// The object to apply, with its marks: label managed-by, annotations claims, hash and, if set, preserve.
    pub manifest: Value,
    /// Hash of the manifest without its marks. A changed claim or `preserve` does not change it, so comparisons must
    /// include the marks.
    pub hash: ManifestHash,
}

/// Why a template has no manifest. Each error names the field and the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A field that every object needs is missing or has the wrong type.
    #[error("field {field} of the template must be {expected}, it is {found}")]
    Malformed {
        /// Path of the field.
        field: String,
        /// The expected type.
        expected: &'static str,
        /// The actual type.
        found: &'static str,
    },
    /// The template has a mark by which Atoll identifies objects on members.
    #[error(
        "field {field} of the template is a mark that only Atoll sets on member objects: remove it"
    )]
    Marked {
        /// Path of the field.
        field: String,
    },
    /// The share has replicas, but the kind has none.
    #[error(
        "share of cluster {cluster:?} has replicas, but {key} has none: a custom kind needs an integer \
         spec.replicas and a pod template, or a ResourceInterpreterCustomization with replicaRevision"
    )]
    NoReplicas {
        /// The cluster.
        cluster: String,
        /// The template.
        key: Key,
    },
    /// The patch does not fit the template, or changes a field that it must not change.
    #[error("patch of the pod template for cluster {cluster:?}: {problem}")]
    Patch {
        /// The cluster.
        cluster: String,
        /// The field, its problem, and how to fix it.
        problem: String,
    },
    /// The node selectors of the subset do not fit the template.
    #[error("node selectors of the subset for cluster {cluster:?}: {problem}")]
    Nodes {
        /// The cluster.
        cluster: String,
        /// The field, its problem, and how to fix it.
        problem: String,
    },
    /// A rule of an override policy cannot be applied.
    #[error(transparent)]
    Override(#[from] OverrideError),
    /// The share has a negative number.
    #[error("share of cluster {cluster:?}: {field} is {value}, it must be 0 or more")]
    NegativeShare {
        /// The cluster.
        cluster: String,
        /// The field of the share.
        field: &'static str,
        /// Its value.
        value: i64,
    },
}

/// Renders `template` for `share`: the user's object without the hub's fields, with the share's replicas and patch, and
/// Atoll's marks.
///
/// # Errors
/// A template without identity, with metadata of wrong types or with marks; a negative share; a patch that does not
/// fit.
pub fn render(template: &Value, share: &Share) -> Result<Rendered, RenderError> {
    let (key, api_version) = identity::of(template)?;
    let manifest = placed(template, &key, share)?;
    Ok(marked(key, api_version, manifest, Some(share)))
}

/// The overrides for one member.
#[derive(Debug, Clone, Copy)]
pub struct Overrides<'a> {
    /// The member's Cluster.
    pub cluster: &'a ClusterProperties,
    /// All override policies.
    pub policies: &'a Policies,
    /// Whether the replicas are divided among members, as opposed to Duplicated. Then overrides cannot change them.
    pub divided: bool,
}

/// Like [`render`], but changed by override policies. Returns the applied rules too, in order.
///
/// # Errors
/// See [`render`]; [`RenderError::Override`] if a rule cannot be applied.
pub fn render_overridden(
    template: &Value,
    share: &Share,
    overrides: &Overrides<'_>,
) -> Result<(Rendered, Vec<Applied>), RenderError> {
    let (key, api_version) = identity::of(template)?;
    let manifest = placed(template, &key, share)?;
    let division = Division {
        replicas: overrides.divided && share.replicas.is_some(),
        ordinals: share.ordinals.is_some(),
    };
    let (mut manifest, applied) = overrides::apply_to(
        manifest,
        overrides.cluster,
        overrides.policies,
        division,
        overrides::assigned_by(template).as_deref(),
    )?;
    preserve_state(&mut manifest, share);
    Ok((marked(key, api_version, manifest, Some(share)), applied))
}

/// The user's object with the share's replicas, patch and labels.
fn placed(template: &Value, key: &Key, share: &Share) -> Result<Value, RenderError> {
    let mut fields = strip::server_side(template)?;
    atoll_interpreter::strip_retained(&mut fields);
    let mut manifest = Value::Object(fields);
    // Removing fields may leave empty maps.
    strip::empty_metadata(&mut manifest);
    replicas::set(&mut manifest, key, share)?;
    if let Some(patch) = &share.patch {
        patch::apply(&mut manifest, patch)
            .map_err(|problem| RenderError::Patch { cluster: share.cluster.clone(), problem })?;
    }
    if let Some(nodes) = &share.nodes {
        nodes
            .apply(&mut manifest)
            .map_err(|problem| RenderError::Nodes { cluster: share.cluster.clone(), problem })?;
    }
    preserve_state(&mut manifest, share);
    Ok(manifest)
}

/// Sets the labels with the state of a failed copy.
fn preserve_state(manifest: &mut Value, share: &Share) {
    if share.labels.is_empty() {
        return;
    }
    let labels = child(child(manifest, "metadata"), "labels");
    for (label, value) in share.labels.iter().filter(|(label, _)| !marks::is_own(label)) {
        labels[label.as_str()] = json!(value);
    }
}

/// The manifest of a namespace that a member needs for an object in it, with the labels of the namespace on the `hub`,
/// if known. It has no claim and is always preserved: Atoll never deletes namespaces.
#[must_use]
pub fn namespace(name: &str, hub: Option<&Value>) -> Rendered {
    let labels: Map<String, Value> = hub
        .and_then(|hub| hub.pointer("/metadata/labels"))
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        // The API server sets its name label itself, and Atoll sets its marks.
        .filter(|(label, _)| *label != "kubernetes.io/metadata.name" && !marks::is_own(label))
        .map(|(label, value)| (label.clone(), value.clone()))
        .collect();
    let mut metadata = Map::from_iter([("name".to_owned(), json!(name))]);
    if !labels.is_empty() {
        metadata.insert("labels".to_owned(), Value::Object(labels));
    }
    let key = Key::new("", "Namespace", None, name);
    let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    marked(key, "v1".into(), manifest, None)
}

/// Hashes the manifest and adds the marks. Without a share: no claim, always preserved.
fn marked(key: Key, api_version: Arc<str>, mut manifest: Value, share: Option<&Share>) -> Rendered {
    let hash = ManifestHash::of(&manifest);
    let metadata = child(&mut manifest, "metadata");
    child(metadata, "labels")[marks::MANAGED_BY] = json!(marks::MANAGED_BY_VALUE);
    let annotations = child(metadata, "annotations");
    annotations[marks::HASH] = json!(hash);
    if let Some(share) = share {
        annotations[marks::CLAIMS] = json!(share.claim);
    }
    if share.is_none_or(|share| share.preserve) {
        annotations[marks::PRESERVE] = json!("true");
    }
    Rendered { key, api_version, manifest, hash }
}

/// The map under `field`, created if absent.
fn child<'a>(parent: &'a mut Value, field: &str) -> &'a mut Value {
    let value = &mut parent[field];
    if !value.is_object() {
        *value = json!({});
    }
    value
}

/// The type of a value, for errors.
fn type_of(value: Option<&Value>) -> &'static str {
    match value {
        None => "absent",
        Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "a boolean",
        Some(Value::Number(_)) => "a number",
        Some(Value::String(text)) if text.is_empty() => "empty",
        Some(Value::String(_)) => "a string",
        Some(Value::Array(_)) => "a list",
        Some(Value::Object(_)) => "a map",
    }
}
