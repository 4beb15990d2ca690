//! Template + share -> the manifest that one member gets. Pure: the same input gives the same bytes.
//!
//! What a kind means (where its replicas are, which fields a member's own controllers write) is asked of
//! `atoll-interpreter`, how a patch merges of `atoll-merge`. Sending, applying and merging claims of several bindings on one object is left to the
//! controller's members and to the agent.

mod hash;
mod identity;
mod patch;
mod replicas;
mod strip;

use std::collections::BTreeMap;

use atoll_api::marks;
use serde_json::{Map, Value, json};

pub use identity::Key;
pub use patch::check as check_patch;

/// Part of every hash: raised when the rendering of an unchanged template changes, so that members notice.
pub const RENDER_VERSION: u32 = 1;

/// What one binding wants on one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Share {
    /// Name of the Cluster; errors name it.
    pub cluster: String,
    /// Replicas there, kept eviction tasks included. `None` for a kind without replicas.
    pub replicas: Option<i64>,
    /// Replicas of this binding on the clusters that come before this one in the order of their names, 0 where every
    /// cluster gets all (Duplicated). What is cut into ranges counts from here: the completions of a Job.
    pub before: i64,
    /// Of a StatefulSet whose subsets a WorkloadSpread names: the replicas of this binding on the clusters that come
    /// before this one in the order of the subsets. Its ordinals begin above theirs.
    pub ordinals: Option<i64>,
    /// uid of the binding.
    pub claim: String,
    /// Whether the object stays when the binding goes (`preserveResourcesOnDeletion`).
    pub preserve: bool,
    /// Strategic merge patch on the pod template there: that of the cluster's subset of a WorkloadSpread.
    pub patch: Option<Value>,
    /// Labels of the object there besides the template's: what a copy elsewhere left (`statePreservation`).
    pub labels: BTreeMap<String, String>,
}

/// The manifest of one object on one member.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// Which object.
    pub key: Key,
    /// For example `apps/v1`.
    pub api_version: String,
    /// What to apply, marks included: label managed-by, annotations claims, hash and, if so, preserve.
    pub manifest: Value,
    /// SHA-256 in hex over [`RENDER_VERSION`] and the manifest without its marks. Who sends differences compares the
    /// marks besides: another claim or `preserve` does not change the hash.
    pub hash: String,
}

/// Why a template has no manifest. Each names the field and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A field that every object has is absent or of another type.
    #[error("field {field} of the template must be {expected}, it is {found}")]
    Malformed {
        /// Path of the field.
        field: String,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// The template carries a mark by which Atoll knows objects on members.
    #[error(
        "field {field} of the template is a mark that only Atoll sets on member objects: remove it"
    )]
    Marked {
        /// Path of the field.
        field: String,
    },
    /// A share of replicas for a kind that has none.
    #[error(
        "share of cluster {cluster:?} has replicas, but {key} has none: a custom kind needs an integer \
         spec.replicas and a pod template"
    )]
    NoReplicas {
        /// The cluster.
        cluster: String,
        /// The template.
        key: Key,
    },
    /// A patch that this template cannot take, or that changes what it may not.
    #[error("patch of the pod template for cluster {cluster:?}: {problem}")]
    Patch {
        /// The cluster.
        cluster: String,
        /// The field, what is wrong with it, and what would be right.
        problem: String,
    },
    /// A share that no object can have.
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

/// Renders what `share` wants of `template`: the user's object without what belongs to the hub's server, with the
/// share's replicas and patch, and Atoll's marks.
///
/// # Errors
/// A template without identity, with ill-typed metadata or with marks; a negative share; a patch that does not fit.
pub fn render(template: &Value, share: &Share) -> Result<Rendered, RenderError> {
    let (key, api_version) = identity::of(template)?;
    let mut fields = strip::server_side(template)?;
    atoll_interpreter::strip_retained(&mut fields);
    let mut manifest = Value::Object(fields);
    // What was taken away may leave an empty map behind.
    strip::empty_metadata(&mut manifest);
    replicas::set(&mut manifest, &key, share)?;
    if let Some(patch) = &share.patch {
        patch::apply(&mut manifest, patch)
            .map_err(|problem| RenderError::Patch { cluster: share.cluster.clone(), problem })?;
    }
    if !share.labels.is_empty() {
        let labels = child(child(&mut manifest, "metadata"), "labels");
        for (label, value) in share.labels.iter().filter(|(label, _)| !marks::is_own(label)) {
            labels[label.as_str()] = json!(value);
        }
    }
    Ok(marked(key, api_version, manifest, Some(share)))
}

/// The manifest of a namespace that is made on a member because an object of it goes there: the labels of the `hub`'s
/// own, where it is known. It has no claim and is always preserved: Atoll removes no namespace.
#[must_use]
pub fn namespace(name: &str, hub: Option<&Value>) -> Rendered {
    let labels: Map<String, Value> = hub
        .and_then(|hub| hub.pointer("/metadata/labels"))
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        // The server sets its name label itself; marks are ours to set.
        .filter(|(label, _)| *label != "kubernetes.io/metadata.name" && !marks::is_own(label))
        .map(|(label, value)| (label.clone(), value.clone()))
        .collect();
    let mut metadata = Map::from_iter([("name".to_owned(), json!(name))]);
    if !labels.is_empty() {
        metadata.insert("labels".to_owned(), Value::Object(labels));
    }
    let key = Key {
        group: String::new(),
        kind: "Namespace".to_owned(),
        namespace: None,
        name: name.to_owned(),
    };
    let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    marked(key, "v1".to_owned(), manifest, None)
}

/// Hashes the bare manifest and puts the marks on it. Without a share: no claim, always preserved.
fn marked(key: Key, api_version: String, mut manifest: Value, share: Option<&Share>) -> Rendered {
    let hash = hash::of(&manifest);
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

/// The map under `field`, made when absent.
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
